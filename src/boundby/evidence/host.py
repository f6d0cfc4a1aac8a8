"""Idle time for which the host's own work or sleep is to blame, and the one rule that speaks of each piece.

Waiting for input comes first (its regions say so), then libraries that set themselves up (`lazy-initialization` tells
of them), then single long stretches (a phase that runs on the CPU), then work and sleep in between calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import DeviceTimeline
from boundby.evidence.context import CannotCheckError, RuleContext, SavingNs
from boundby.evidence.hotspots import PYTHON_CODE, UNKNOWN, Hotspot, hottest
from boundby.evidence.library import is_setup
from boundby.evidence.operators import is_operator
from boundby.evidence.workers import fed_by_processes
from boundby.model.causes import Cause
from boundby.model.intervals import Coverage, IntervalSet, union
from boundby.model.units import duration
from boundby.results.report import Example
from boundby.trace.vocabulary.cuda import blocked_on, plain_name

Int = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

INPUT, PHASE, WORK, WAIT, SETUP = range(5)

# Names of ranges in which a program fetches its next batch (PyTorch's own range among them).
INPUT_NAME = re.compile(
    r"data.?load|dataset|\bload(er|ing)?\b|__next__|\bdata\b|\binputs?\b|\bfetch|next.?batch|get.?batch|load.?batch"
    r"|batch.?load|prefetch|dali",
    re.IGNORECASE,
)
# One stretch is a phase of its own from this share of the window, if no more than so many are half as long: many alike
# are what every step does, and no phase.
PHASE_SHARE, PHASE_ALIKE = 0.05, 3
# What a reader takes in: more places than this stand as one, more functions are not named, longer names are cut.
MOST_PLACES, MOST_HOTSPOTS, LONGEST_SYMBOL = 8, 3, 60
# Pieces that are this much of a region's host time stand for all of it.
MOST_OF = 0.9
_TEMPLATE, _ARGUMENTS = re.compile(r"<[^<>]*>"), re.compile(r"\([^()]*\)")
# Message passing: the host waits for other ranks there, whatever its CPU does meanwhile (MPI polls).
MESSAGE_NAME = re.compile(r"^P?MPI_|^nvshmemx?_|^gloo", re.IGNORECASE)


@dataclass(frozen=True)
class HostPieces:
    """Idle pieces of all devices, by start. ``call``: the call that ended the interval (row of ``timeline.calls``)."""

    start_ns: Int
    end_ns: Int
    cause: npt.NDArray[np.int8]
    region: Int  # the innermost that is the user's, no operator
    thread: Int
    call: Int
    kind: Int
    regions: Int  # by region of the tree: the user's own one around it

    def of_kind(self, kind: int) -> Rows:
        return np.flatnonzero(self.kind == kind)

    def total_ns(self, rows: Rows) -> int:
        return int((self.end_ns - self.start_ns)[rows].sum())

    def intervals(self, rows: Rows) -> IntervalSet:
        return union(self.start_ns[rows], self.end_ns[rows])


@dataclass(frozen=True)
class Place:
    """Pieces of one region."""

    region: int
    rows: Rows
    total_ns: int
    times: int  # intervals between two calls: a gap can hold several pieces


def host_pieces(context: RuleContext) -> HostPieces:
    """Use as ``context.once(host_pieces)``. Raises CannotCheckError where nothing tells what the host did."""
    timeline = context.timeline
    if not len(timeline.calls):
        raise CannotCheckError("the trace holds no CUDA API calls, so nothing tells what the host did")
    columns: list[tuple[Int, ...]] = []
    for device in context.timeline.devices:
        parts = device.segments
        mine = np.isin(parts.cause, (int(Cause.CPU), int(Cause.HOST_BLOCKED))) & (parts.thread >= 0)
        own = (parts.start_ns, parts.end_ns, parts.cause, parts.region, parts.thread)
        chosen = [column[mine].astype(np.int64) for column in own]
        columns.append((*chosen, _next_call(context, device, chosen[1])))
    columns.append(tuple(np.empty(0, np.int64) for _ in range(6)))
    joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
    order = np.lexsort((joined[4], joined[1], joined[0]))
    start, end, cause, region, thread, call = (column[order] for column in joined)
    owner = _user_regions(context)[region]
    messages = np.array([bool(MESSAGE_NAME.search(name)) for name in context.timeline.ownership.regions.name], bool)
    kind = np.where((cause == Cause.CPU) & ~messages[owner], WORK, WAIT)
    _, stretch = np.unique(call, return_inverse=True)
    lengths = np.zeros(int(stretch.max(initial=-1)) + 1, np.int64)
    np.add.at(lengths, stretch, end - start)
    alike = len(lengths) - np.searchsorted(np.sort(lengths), lengths // 2, side="left")
    is_phase = (lengths >= PHASE_SHARE * context.longest_window_ns) & (alike <= PHASE_ALIKE)
    kind[is_phase[stretch]] = PHASE
    kind[is_setup(context, start, end, thread, call) & ~messages[owner]] = SETUP
    kind[_is_input(context)[owner]] = INPUT
    found = HostPieces(start, end, cause.astype(np.int8), owner, thread, call, kind, _user_regions(context))
    kind[fed_by_processes(context, found, np.flatnonzero((kind == WAIT) & ~messages[owner]))] = INPUT
    return found


def _user_regions(context: RuleContext) -> Int:
    """For each region the innermost around it (or itself) that is no framework operator's."""
    tree = context.timeline.ownership.regions
    found = np.arange(len(tree))
    for row in range(1, len(tree)):  # parents stand before their children
        name = tree.name[row]
        if is_operator(name) and not INPUT_NAME.search(name):
            found[row] = found[tree.parent[row]]
    return found


def _is_input(context: RuleContext) -> npt.NDArray[np.bool_]:
    """Regions that fetch input, or lie in one that does."""
    tree = context.timeline.ownership.regions
    found = np.zeros(len(tree), bool)
    for row in range(1, len(tree)):
        found[row] = found[tree.parent[row]] or bool(INPUT_NAME.search(tree.name[row]))
    return found


def _next_call(context: RuleContext, device: DeviceTimeline, end: Int) -> Int:
    """The first call that begins at or after each instant, by the threads that launch what ends the gap there; -1.

    Not the piece's own thread: a data feeder computes, and the launching thread's next call waits for it.
    """
    calls, logical_threads = context.timeline.calls, context.timeline.logical_threads
    gaps = device.gaps
    found = np.full(len(end), -1, np.int64)
    if not len(gaps) or not len(end):
        return found
    launch = gaps.launch[np.maximum(np.searchsorted(gaps.start_ns, end, side="left") - 1, 0)]
    leader = logical_threads.leader[calls.thread]
    wanted = np.where(launch >= 0, leader[np.maximum(launch, 0)], -1)
    for chain in np.unique(wanted[wanted >= 0]).tolist():
        rows = np.flatnonzero(leader == chain)
        rows = rows[np.argsort(calls.start_ns[rows], kind="stable")]
        mine = wanted == chain
        place = np.searchsorted(calls.start_ns[rows], end[mine], side="left")
        found[mine] = np.where(place < len(rows), rows[np.minimum(place, len(rows) - 1)], -1)
    return found


def places(context: RuleContext, pieces: HostPieces, rows: Rows) -> list[Place]:
    """The pieces by region, most time first: every region that holds enough by itself, and one place for the rest."""
    length = pieces.end_ns - pieces.start_ns
    total = np.zeros(len(context.timeline.ownership.regions), np.int64)
    np.add.at(total, pieces.region[rows], length[rows])
    large = np.flatnonzero(total >= context.least_ns)
    large = large[np.lexsort((large, -total[large]))][:MOST_PLACES]
    rest = rows[~np.isin(pieces.region[rows], large)]
    found = [_place(pieces, region, rows[pieces.region[rows] == region]) for region in large.tolist()]
    if pieces.total_ns(rest) >= context.least_ns:
        found.append(_place(pieces, context.place(pieces.region[rest], length[rest]), rest))
    return found


def _place(pieces: HostPieces, region: int, rows: Rows) -> Place:
    return Place(region, rows, pieces.total_ns(rows), len(np.unique(pieces.call[rows])))


def saving(context: RuleContext, pieces: HostPieces, place: Place) -> SavingNs:
    """What the program would save without these stretches of work and sleep: of all such time in the region, where the
    pieces are most of it, else of the intervals that they lie in."""
    rows = place.rows
    causes = [cause.key for cause in (Cause.CPU, Cause.HOST_BLOCKED) if (pieces.cause[rows] == cause).any()]
    inside = np.unique(pieces.region[rows])  # several, where places are told as one
    whole = pieces.total_ns(np.flatnonzero(np.isin(pieces.region, inside)))
    mask = {"regions": np.isin(pieces.regions, inside)} if place.total_ns >= MOST_OF * whole else {}
    if not mask:
        calls = np.zeros(len(context.timeline.calls), bool)
        ended = pieces.call[rows]
        calls[ended[ended >= 0]] = True
        mask = {"calls": calls}
    low, high = context.saving(causes, **mask) or (0, place.total_ns)
    # Host time that the GPU hides goes with the intervals as well; the finding speaks of the idle time only.
    return min(low, place.total_ns), min(high, place.total_ns)


def slept_on(context: RuleContext, pieces: HostPieces, rows: Rows) -> dict[str, int]:
    """What the threads slept on in the pieces, by the OS runtime calls that they were in; largest first."""
    os_calls, names = context.timeline.trace.os_calls, context.timeline.trace.names
    found: dict[str, int] = {}
    for thread in np.unique(pieces.thread[rows]).tolist():
        mine = rows[pieces.thread[rows] == thread]
        low, high = np.searchsorted(os_calls.thread, [thread, thread + 1])
        what = [blocked_on(names[name]) for name in os_calls.name[low:high].tolist()]
        for kind in sorted({item for item in what if item}):
            chosen = np.array([item == kind for item in what], bool)
            calls = union(os_calls.start_ns[low:high][chosen], os_calls.end_ns[low:high][chosen])
            inside = int(Coverage(calls).within(pieces.start_ns[mine], pieces.end_ns[mine]).sum())
            if inside:
                found[kind] = found.get(kind, 0) + inside
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def hot_functions(
    context: RuleContext, pieces: HostPieces, rows: Rows, threads: Iterable[int] | None = None
) -> tuple[Hotspot, ...]:
    """The sampled functions in which the host was meanwhile: the program's own Python ones, else the innermost that
    are no plumbing. ``threads`` None: those of the pieces."""
    chosen = sorted(set(np.unique(pieces.thread[rows]).tolist()) if threads is None else set(threads))
    inside, timeline = pieces.intervals(rows), context.timeline
    for level in ("python", "user"):
        found = hottest(timeline, chosen, inside, limit=MOST_HOTSPOTS, level=level)
        found = tuple(spot for spot in found if spot.symbol != UNKNOWN)
        if found:
            return found
    return ()


def named(spots: Sequence[Hotspot]) -> list[str]:
    """``decode (libjpeg.so) 61 %``, for evidence."""
    return [f"{short_symbol(spot.symbol)} ({spot.module}) {spot.share:.0%}" for spot in spots]


def short_symbol(symbol: str) -> str:
    """A function's name without template parameters and arguments: ``ns::Class::method``."""
    if symbol == PYTHON_CODE:
        return "Python code"
    short = symbol.replace("(anonymous namespace)::", "")
    for pattern in (_TEMPLATE, _ARGUMENTS):
        while (shorter := pattern.sub("", short)) != short:
            short = shorter
    short = short.removesuffix(" const").strip().rsplit(" ", 1)[-1] or symbol
    return short if len(short) <= LONGEST_SYMBOL else f"...{short[3 - LONGEST_SYMBOL :]}"


def is_seen(context: RuleContext) -> bool:
    """Whether the trace tells if the host computed or slept; else its own code is all that can be said."""
    captured = context.timeline.trace.captured
    return captured.cpu_scheduling or captured.osrt or captured.cpu_samples


def examples(context: RuleContext, pieces: HostPieces, rows: Rows, does: str = "is busy") -> tuple[Example, ...]:
    """The longest intervals between two calls, each with all its pieces together, and the call that ended it.
    ``does``: what the host does there, as the title says it (``sleeps``)."""
    timeline = context.timeline
    calls, index = np.unique(pieces.call[rows], return_inverse=True)
    length, start = np.zeros(len(calls), np.int64), np.full(len(calls), np.iinfo(np.int64).max)
    np.add.at(length, index, (pieces.end_ns - pieces.start_ns)[rows])
    np.minimum.at(start, index, pieces.start_ns[rows])
    found = []
    for number in np.lexsort((start, -length))[:3].tolist():
        call = int(calls[number])
        until = plain_name(timeline.trace.names[timeline.calls.name[call]]) if call >= 0 else "the end"
        found.append(Example(int(start[number]), int(length[number]), f"the host {does} until {until}"))
    return tuple(found)


def times(place: Place) -> str:
    """``53.2 ms in one stretch`` or ``120 ms, 100 times 1.20 ms``."""
    if place.times <= 1:
        return f"{duration(place.total_ns)} in one stretch"
    return f"{duration(place.total_ns)}, {place.times:,} times {duration(place.total_ns // place.times)}"
