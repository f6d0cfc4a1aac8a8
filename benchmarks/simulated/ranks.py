"""Ranks of MPI as exports with known answers: who comes late to whom, by how much, in which call.

A rank is a list of what it does. Collectives end when all have come, messages when both ends have (an eager send
goes on at once); a rank that waits for what never comes stays in its call until the recording ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.simulated.full_export import Export
from boundby.simulate.nsys_export import ExportedThread

US, MS = 1_000, 1_000_000
#: From the last arrival to the end of a call.
TRANSFER_NS = 10 * US
INIT_NS, FINALIZE_NS = 200 * MS, 5 * MS
FIRST_PID = 5_000
WORLD_HANDLE = 0x5000


@dataclass(frozen=True)
class Own:
    """The rank's own work; ``sleeps``: in nanosleep, else on its CPU."""

    ns: int
    sleeps: bool = False


@dataclass(frozen=True)
class Collective:
    """Of all ranks; ``root``: from there (MPI_Bcast), who goes on at once."""

    name: str = "MPI_Allreduce"
    bytes: int = 16
    root: int | None = None


@dataclass(frozen=True)
class Send:
    to: int
    bytes: int = 16
    tag: int = 7
    eager: bool = True


@dataclass(frozen=True)
class Recv:
    of: int
    bytes: int = 16
    tag: int = 7
    begun_before: int = 0  # by MPI_Irecv, so much earlier; then MPI_Waitall waits for it


Step = Own | Collective | Send | Recv


@dataclass
class _Rank:
    number: int
    steps: Sequence[Step]
    thread: ExportedThread
    now: int = INIT_NS
    at: int = 0
    met: dict[str, int] = field(default_factory=dict)
    switches: list[int] = field(default_factory=list)


def ranks(
    programs: Sequence[Iterable[Step]], *, polls: bool = True, dies: Mapping[int, str] | None = None, osrt: bool = True
) -> Export:
    """The export of these ranks, in one report. ``polls``: on the CPU while they wait. ``dies``: ranks that end after
    their last step, without MPI_Finalize."""
    export = Export(("mpirun", "-np", str(len(programs)), "./ranks"))
    every = []
    for number, steps in enumerate(programs):
        thread = export.thread(FIRST_PID + number, name=f"MPI Rank {number}")
        export.mpi_rank(thread, number, len(programs), WORLD_HANDLE + number)
        export.mpi(thread, 0, INIT_NS, "MPI_Init")
        every.append(_Rank(number, tuple(steps), thread))
    while sum(_step(one, every, export, osrt) for one in every):  # all of them, each time
        pass
    stuck = [one for one in every if one.at < len(one.steps)]
    lost = set(dies or ())
    until = max(one.now for one in every) + (1_000 * MS if stuck else 0)
    for one in every:
        if one in stuck:
            _call(export, one, one.steps[one.at], one.now, until)
            one.now = until
        elif one.number not in lost:
            export.mpi(one.thread, one.now, max(other.now for other in every) + FINALIZE_NS, "MPI_Finalize")
        if osrt:
            export.osrt(one.thread, 0, 2 * US, "fopen")
        if polls:
            for number, time in enumerate((0, *one.switches, one.now)):
                export.sched(one.thread, time, number % 2 == 0)
    return export


def _step(one: _Rank, every: Sequence[_Rank], export: Export, osrt: bool) -> bool:
    """One step of a rank, if it can do it now."""
    if one.at >= len(one.steps):
        return False
    step = one.steps[one.at]
    if isinstance(step, Own):
        if step.sleeps and osrt:
            export.osrt(one.thread, one.now, one.now + step.ns, "nanosleep")
            one.switches += [one.now, one.now + step.ns]
        one.now += step.ns
        one.at += 1
        return True
    others = _partners(one, step, every)
    if others is None:
        return False
    goes_on = isinstance(step, Send) and step.eager
    goes_on |= isinstance(step, Collective) and step.root == one.number
    end = (one.now if goes_on else max([one.now, *others])) + TRANSFER_NS
    _call(export, one, step, one.now, end)
    one.now = end
    one.at += 1
    return True


def _partners(one: _Rank, step: Step, every: Sequence[_Rank]) -> list[int] | None:
    """When the others come that the step waits for; None: not known yet."""
    key = _key(one.number, step)
    one.met.setdefault(f"{key} {_count(one, key)}", one.now)
    name = f"{key} {_count(one, key)}"
    if isinstance(step, Collective):
        wanted = [every[step.root]] if step.root is not None else [other for other in every if other is not one]
    elif isinstance(step, Send):
        wanted = [] if step.eager else [every[step.to]]
    else:
        assert isinstance(step, Recv)
        wanted = [every[step.of]]
    found = [other.met.get(name) for other in wanted if other is not one]
    return None if None in found else [time for time in found if time is not None]


def _key(rank: int, step: Step) -> str:
    if isinstance(step, Send):
        return f"{rank} {step.to} {step.tag}"
    if isinstance(step, Recv):
        return f"{step.of} {rank} {step.tag}"
    return "all"


def _count(one: _Rank, key: str) -> int:
    """How many steps of that kind the rank has behind it."""
    return sum(not isinstance(step, Own) and _key(one.number, step) == key for step in one.steps[: one.at])


def _call(export: Export, one: _Rank, step: Step, start: int, end: int) -> None:
    handle = WORLD_HANDLE + one.number
    if isinstance(step, Collective):
        place: dict[str, int | None] = {"communicator": handle, "root": step.root, "bytes": step.bytes}
        export.mpi(one.thread, start, end, step.name, **place, received=step.bytes)
    elif isinstance(step, Send):
        name = "MPI_Send"
        export.mpi(one.thread, start, end, name, communicator=handle, peer=step.to, tag=step.tag, bytes=step.bytes)
    elif isinstance(step, Recv):
        of: dict[str, int] = {"communicator": handle, "peer": step.of, "tag": step.tag, "bytes": step.bytes}
        if step.begun_before:
            begun = start - step.begun_before
            export.mpi(one.thread, begun, begun + US, "MPI_Irecv", **of)
            export.mpi(one.thread, start, end, "MPI_Waitall")
        else:
            export.mpi(one.thread, start, end, "MPI_Recv", **of)
