"""The host sleeps in the operating system while the GPU idles: locks, the GIL, files, the network, other processes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.host_idleness import (
    ON_PURPOSE,
    Idleness,
    Place,
    host_pieces,
    hot_functions,
    is_seen,
    places,
    slept_on,
)
from boundby.evidence.latecomers import MESSAGE_NAME, MOSTLY, Late, Messages, Sender, latecomer, messages, sender, who
from boundby.model.arrays import unique
from boundby.model.causes import Cause
from boundby.model.intervals import CoveredTime
from boundby.model.late import expression
from boundby.model.scale import HALF, NOTABLE
from boundby.model.units import duration, duration_range, percent, size
from boundby.model.units import place as place_of
from boundby.rules.builtin._operations import ENOUGH
from boundby.rules.builtin._telling import fold, host, match, mostly_in, neighbours, where_and_when, while_idle
from boundby.rules.rule import Match, Rule
from boundby.trace.stacks import StackSource
from boundby.trace.vocabulary.os import MESSAGES, MessageKind, message_kind

# Functions of CPython in which a thread waits for the interpreter's lock.
GIL_FUNCTIONS = ("take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread", "PyGILState_Ensure")

LAUNCHER = expression(r"^(?:\S*/)?(?:mpirun|mpiexec(?:\.hydra)?|orterun|prun|srun|torchrun)\s")
#: Messages below this size take their latency, not their bytes; so many of them are worth joining.
SMALL_BYTES = 4_096
LEAST_MESSAGES = ENOUGH
_BARRIER, _SEND = expression(r"[Bb]arrier"), expression(r"^MPI_I?[bsr]?[sS]end$")
LAUNCHING = "launching thread"
ADVICE = {
    "GIL": "Move the work of the Python thread that holds the interpreter's lock to a process (multiprocessing), or to "
    "code that releases the lock (NumPy, Numba nogil)",
    "lock": "Hold the lock for less, or split what it guards: another thread holds it; a logging handler, an allocator "
    "and a queue are the usual ones",
    "condition": "Let the other thread or the queue run ahead (a deeper queue, more producers): the launching thread "
    "waits until the other one hands something over",
    "file": "Read and write files in another thread, buffer them, or write less often: the launching thread does it",
    "network": "Prefetch, batch requests, or do them in another thread: the launching thread waits for the network",
    "sleep": ON_PURPOSE,
    "poll": "Let the other side run ahead: the launching thread polls file descriptors (a pipe or queue of another "
    "process, a socket), and what it waits for comes too late",
    "thread or process": "Keep the thread or process alive and hand it work, or join it later: the launching thread "
    "waits for it to end",
    "queue": "Let the producer run ahead: the launching thread waits for a message queue",
}
#: What the host does, by what it waits for.
_SPELT_OUT = {
    "GIL": "waits for the interpreter's lock (GIL)",
    MESSAGES: "waits for messages of other ranks",
    "lock": "waits for a lock",
    "condition": "waits for another thread (on a condition)",
    "file": "waits for a file",
    "network": "waits for the network",
    "thread or process": "waits for a thread or process to end",
    "queue": "waits for a message queue",
    "sleep": "is in sleep()",
    "poll": "waits in poll",
}
_TRACED = "Capture with --trace=osrt to see on what the thread sleeps"


class _Wait(Struct, frozen=True):
    """What the host waits for in a place: ``what`` by the calls that it sleeps in (None: they do not tell), and of
    messages who comes late, what is on record of them, who sends them."""

    what: str | None
    late: Late | None = None
    messages: Messages | None = None
    sends: Sender | None = None
    is_barrier: bool = False  # ranks only meet there: nothing is sent
    is_send: bool = False

    @property
    def late_rank(self) -> str:
        """Who comes late; empty: nobody does."""
        if self.late is not None:
            return self.late.who
        return (self.messages.late or "") if self.messages is not None else ""

    @property
    def does(self) -> str:
        """What the host does."""
        if self.what is None:
            return "sleeps"
        if self.is_barrier:
            return "waits at a barrier for the other ranks"
        if self.is_send:
            return "waits until other ranks take its messages"
        if self.what == MESSAGES and self.sends is not None:
            return f"waits for messages of {self.sends.who}"
        return _SPELT_OUT.get(self.what, f"waits in {self.what}")

    @property
    def for_whom(self) -> str:
        """The end of a title's clause."""
        return f", mostly for {self.late_rank}" if self.late_rank else ""

    @property
    def evidence(self) -> dict[str, object]:
        facts: dict[str, object] = {}
        if (of := self.messages) is not None:
            facts |= {"messages": of.count, "late": of.late or None, "waited_for_it_ns": of.late_ns}
        if self.sends is not None:
            facts["sending_process"] = self.sends.pid
            facts["inside_a_send_meanwhile_fraction"] = round(self.sends.inside, 3)
        if self.late is not None:
            facts |= {"late_process": self.late.pid, "late_process_inside_ns": self.late.inside_ns}
            facts["other_processes_inside_ns"] = [self.late.least_ns, self.late.most_ns]
        return facts

    def remedy(self, context: RuleContext, doing: _Doing | None) -> str:
        """The row of the table that fits. ``doing``: what the late rank does meanwhile, where that is on record."""
        if self.what == MESSAGES:
            if doing is not None:
                return "host_blocked.late-rank-sleeps" if doing.sleeps else "host_blocked.late-rank-computes"
            return "host_blocked.late-rank" if self.late_rank or self.is_barrier else "host_blocked.messages-ahead"
        if self.what != "sleep":
            return "host_blocked.shorter-wait"
        return "host_blocked.shorter-sleep" if _is_of_ranks(context) else "host_blocked.wait-for-event"


class _Doing(Struct, frozen=True):
    """What a rank does while others wait for it: ``rank 1 is in sleep() between MPI_Barrier and MPI_Allreduce``."""

    words: str
    sleeps: bool  # in a call that only lets time pass


def _check(context: RuleContext) -> Iterator[Match]:
    waits = places(context, host_pieces(context).of_kind(Idleness.WAIT))
    for place, wait in fold(context, waits, lambda place: _wait(context, place)):
        if wait.what == MESSAGES:  # what the library does inside of one call cuts the wait into many pieces
            regions = [part.region for part in place.parts or (place,)]
            calls = _calls_that_wait(context, place, regions)
            place = replace(place, times=min(place.times, calls) or place.times)  # none: they count with what is above
        evidence = wait.evidence
        if slept := slept_on(context, place.rows):
            evidence["slept_on_ns"] = slept
        if gil := _gil_share(context, place.rows):
            evidence["waiting_with_gil_in_backtrace_fraction"] = round(gil, 3)
        doing = _meanwhile(context, place, wait.late_rank) if wait.late_rank else None
        yield match(
            context,
            place,
            f"{host(context, place)} {wait.does}{while_idle(context)}{wait.for_whom}{where_and_when(context, place)}",
            wait.does,
            evidence=evidence,
            advice=(_advice(context, place, wait, doing),),
            removed_least=HALF,
        ).advising(
            wait.remedy(context, doing),
            code=_code(context, place, wait),
            late=wait.late_rank or "one rank",
            doing=doing.words if doing is not None else "",
            job=_job(context),
            work=_work(context),
            thread=_thread(context),
        )


def _calls_that_wait(context: RuleContext, place: Place, regions: list[int]) -> int:
    """Calls in these regions of the ranks that wait there: who comes last hardly does."""
    pieces, ranges = host_pieces(context), context.trace.ranges
    waited_ns = {
        thread: pieces.total_ns(pieces.of_thread(place.rows, thread)) for thread in pieces.threads_of(place.rows)
    }
    who_waits = [thread for thread, ns in waited_ns.items() if ns >= NOTABLE * max(waited_ns.values())]
    is_there = np.isin(context.timeline.ownership.regions.of_range, regions)
    return int(np.count_nonzero(is_there & np.isin(ranges.thread, who_waits)))


def _wait(context: RuleContext, place: Place) -> _Wait:
    if any(MESSAGE_NAME.search(name) for name in context.path(place.region)[-1:]):
        received, sends = messages(context, place.region), None
        if received is None or not received.late:
            sends = sender(context, place.region, host_pieces(context).intervals(place.rows))
        is_barrier = bool(_BARRIER.search(context.path(place.region)[-1]))
        return _Wait(
            MESSAGES, latecomer(context, place.region), received, sends, is_barrier, is_send=_are_sends(context, place)
        )
    if _gil_share(context, place.rows) >= HALF:
        return _Wait("GIL")
    slept = slept_on(context, place.rows)
    is_named = sum(slept.values()) >= HALF * place.total_ns
    return _Wait(next(iter(slept)) if slept and is_named else None)


def _meanwhile(context: RuleContext, place: Place, rank: str) -> _Doing | None:
    """What a rank does for most of the time for which others wait for it there; None: nothing on record tells."""
    trace, pieces = context.trace, host_pieces(context)
    is_of_rank = np.array([who(trace, number) == rank for number in range(len(trace.processes))], bool)
    is_message = np.array([bool(MESSAGE_NAME.search(name)) for name in context.tree.name], bool)
    rows_of = np.flatnonzero(is_of_rank[trace.process_of_thread[pieces.thread]] & ~is_message[pieces.region])
    waits = pieces.intervals(place.rows)
    inside_ns = CoveredTime(waits).within(pieces.start_ns[rows_of], pieces.end_ns[rows_of])
    is_asleep = pieces.cause[rows_of] == Cause.HOST_BLOCKED
    for chosen in (is_asleep, ~is_asleep):
        rows = rows_of[chosen & (inside_ns > 0)]
        if inside_ns[chosen].sum() < MOSTLY * waits.total or not len(rows):
            continue
        where = _where(context, rows)
        if not is_asleep[chosen].any():
            hot = mostly_in(hot_functions(context, rows))
            computes = f"{rank} computes{where}{f', mostly in {hot}' if hot else ''}"
            return _Doing(computes, sleeps=False) if is_seen(context) else None
        slept = slept_on(context, rows)
        what = next(iter(slept), "")
        if slept.get(what, 0) >= HALF * pieces.total_ns(rows):
            return _Doing(f"{rank} {_Wait(what).does}{where}", sleeps=what == "sleep")
    return None


def _where(context: RuleContext, rows: Rows) -> str:
    """`` between MPI_Barrier and MPI_Allreduce``, `` in assemble``: where most of these pieces lie."""
    pieces = host_pieces(context)
    path = context.path(context.place(pieces.region[rows], pieces.length_ns[rows]))
    where = f"in {place_of(path)}" if path else neighbours(context, rows)
    return f" {where}" if where else ""


def _advice(context: RuleContext, place: Place, wait: _Wait, doing: _Doing | None) -> str:
    if wait.what is None:
        return _unnamed(context, place)
    if wait.what == "sleep" and _is_of_ranks(context):
        return "Remove or shorten the sleep: the other ranks wait for this one meanwhile"
    if wait.what != MESSAGES:
        return ADVICE[wait.what].replace(LAUNCHING, _thread(context))
    return _advice_on_messages(context, place, wait, doing)


def _advice_on_messages(context: RuleContext, place: Place, wait: _Wait, doing: _Doing | None) -> str:
    if wait.late is not None:
        return _late_advice(wait.late, doing, is_barrier=wait.is_barrier)
    of = wait.messages
    if of is not None and (of.late or _are_small(of) or of.copies):
        return _message_advice(of, doing)
    if wait.is_barrier:
        return (
            "Record all ranks to see which one comes late, and why. Balance the work, or drop the barrier where the "
            "order does not matter: a barrier moves no data"
        )
    return _sender_advice(context, wait.sends) if wait.sends else _overlap_advice(context, place, of)


def _is_of_ranks(context: RuleContext) -> bool:
    """Whether this is one of several ranks: no event of one process tells another to go on."""
    return len(context.trace.messages) > 0


def _job(context: RuleContext) -> str:
    """The command that tells which rank the others wait for: of this report where it holds several ranks."""
    trace = context.trace
    if len(trace.ranks) > 1:
        return f"boundby job {shlex.quote(trace.path)}"
    if LAUNCHER.match(trace.how_it_runs):
        return f"boundby profile -- {trace.how_it_runs}"
    return f"mpirun -n RANKS boundby profile -- {trace.how_it_runs}\nboundby job ."


def _work(context: RuleContext) -> str:
    """Beside what messages can be on their way."""
    return "the GPU's work" if context.timeline.devices else "other work"


def _thread(context: RuleContext) -> str:
    """Who waits."""
    return LAUNCHING if context.timeline.devices else "thread"


def _overlap_advice(context: RuleContext, place: Place, of: Messages | None) -> str:
    ways = ["give device pointers to a CUDA-aware MPI"] if context.timeline.devices else []
    why, small = "messages are small and many", ["join small messages"]
    if of is not None and of.median_bytes > SMALL_BYTES:
        why, small = f"messages of {size(of.median_bytes)} (median) take their time on the way", []
    elif of is None and place.times < LEAST_MESSAGES:
        why, small = "messages take their time on the way", []
    if call := _waited_in(context, place):
        does = f"do {_work(context)} that needs no message before {call}"
        begun = f"the messages are not there yet when {call} begins, since another rank is late or {why}"
        return f"{_one_of('Begin these messages earlier', does, *small, *ways)}: {begun}"
    ahead = "MPI_Isend" if _are_sends(context, place) else "MPI_Irecv"
    overlap = f"Overlap the messages with {_work(context)} ({ahead} before it, MPI_Wait after it)"
    return f"{_one_of(overlap, *small, *ways)}: another rank is late, or {why}"


def _one_of(*ways: str) -> str:
    """``this``, ``this or that``, ``this, that or a third``."""
    return " or ".join(part for part in (", ".join(ways[:-1]), ways[-1]) if part)


def _are_sends(context: RuleContext, place: Place) -> bool:
    """Whether the host waits in calls that send and receive nothing."""
    return all(_SEND.search(context.tree.name[part.region]) for part in place.parts or (place,))


def _waited_in(context: RuleContext, place: Place) -> str:
    """``MPI_Waitall``: the call that waits for what was begun before; empty where any part is another call."""
    names = [context.tree.name[part.region] for part in place.parts or (place,)]
    return names[0] if all(message_kind(name) == MessageKind.WAIT for name in names) else ""


def _code(context: RuleContext, place: Place, wait: _Wait) -> str:
    """What takes the wait off the thread, where the remedy's own words do not fit."""
    if wait.what != MESSAGES:
        return _code_by_wait(context, wait.what)
    if wait.late_rank or wait.is_barrier:
        return ""
    if call := _waited_in(context, place):
        return (
            "MPI_Irecv(buffer, count, type, source, tag, comm, &request);  // as early as possible\n"
            f"{call}(...);  // after {_work(context)} that does not need the messages"
        )
    return _send_code(context) if _are_sends(context, place) else ""


def _code_by_wait(context: RuleContext, what: str | None) -> str:
    """What takes the wait off the launching thread, by what it waits for."""
    python = {
        "GIL": "pool = concurrent.futures.ProcessPoolExecutor()  # in place of threading.Thread",
        "file": "pool.submit(file.write, text)  # concurrent.futures.ThreadPoolExecutor(1)",
        "network": "ahead = pool.submit(fetch, step + 1)  # concurrent.futures.ThreadPoolExecutor(1)",
        "thread or process": "worker = threading.Thread(target=serve, daemon=True)  # started once",
        "queue": "batches = queue.Queue(maxsize=8)  # a deeper queue",
        "condition": "batches = queue.Queue(maxsize=8)  # a deeper queue",
    }
    cpp = {
        "file": "std::thread(write, std::move(text)).detach();  // not on the thread that launches",
        "network": "auto ahead = std::async(std::launch::async, fetch, step + 1);",
        "thread or process": "pool.submit(work);  // a pool that lives as long as the program, not a thread for each",
    }
    words = context.program.pick(cpp, torch=python, python=python)
    return words.get(what or "", "")


def _send_code(context: RuleContext) -> str:
    return (
        f"MPI_Isend(buffer, count, type, target, tag, comm, &request);  // then {_work(context)}\n"
        "MPI_Wait(&request, MPI_STATUS_IGNORE);  // before the buffer is written again"
    )


def _are_small(told: Messages) -> bool:
    return 0 <= told.median_bytes <= SMALL_BYTES and told.count >= LEAST_MESSAGES


def _message_advice(told: Messages, doing: _Doing | None) -> str:
    if told.late:
        does, call = ("receives", "MPI_Irecv") if told.sends else ("sends", "MPI_Isend")
        meanwhile = "" if doing is None else f"; meanwhile {doing.words}"
        return (
            f"See what {told.late} does before it {does}: {duration(told.late_ns)} of {duration(told.total_ns)} in "
            f"these {told.count:,} calls pass before it begins to {does[:-1]}{meanwhile}. {call} before that work, and "
            f"{'MPI_Isend' if told.sends else 'MPI_Irecv'} here with MPI_Wait after other work, hide the wait"
        )
    if told.copies:
        return (
            "Build MPI with CUDA support (UCX with cuda and gdrcopy), or exchange one large host buffer: the library "
            f"copies device memory by way of the host ({told.copies:,} copies inside these calls)"
        )
    return f"Join the messages into a few large ones: there are {told.count:,} of {size(told.median_bytes)} (median)"


def _late_advice(late: Late, doing: _Doing | None, *, is_barrier: bool) -> str:
    last = (
        f"it comes last (it is in {late.name} for {duration(late.inside_ns)}, the others for "
        f"{duration_range(late.least_ns, late.most_ns)})"
    )
    does, without = f"what {late.who} does before {late.name}", ", or do without the barrier" if is_barrier else ""
    if doing is not None:
        return f"Shorten {does}, or share it among the ranks{without}: {last}, and meanwhile {doing.words}"
    return f"See {does}, {'' if is_barrier else 'and '}balance the work{without}: {last}"


def _sender_advice(context: RuleContext, sends: Sender) -> str:
    if sends.inside < HALF:
        return (
            f"See what {sends.who} does before it sends, or post the receive earlier (MPI_Irecv before "
            f"{_work(context)}, MPI_Wait after it): it comes late, since it alone sends, and is outside of any send "
            f"for {percent(1 - sends.inside)} of this wait"
        )
    alone = f"it alone sends, and is inside a send for {percent(sends.inside)} of this wait"
    if sends.receivers > 1:
        return (
            f"Let {sends.who} send to all at once, by MPI_Isend and MPI_Waitall, or one collective (MPI_Scatter, "
            f"MPI_Bcast): {alone}, since it serves {sends.receivers} processes one after the other"
        )
    hand = ", hand device pointers to a CUDA-aware MPI" if context.timeline.devices else ""
    return (
        f"Post the receive before {_work(context)} (MPI_Irecv, MPI_Wait after it), join small messages{hand}: the "
        f"messages' own way takes the time. They come from {sends.who}: {alone}"
    )


def _gil_share(context: RuleContext, rows: Rows) -> float:
    """Of the pieces' time in OS calls that carry a backtrace, the fraction that waited for the GIL."""
    trace, pieces = context.trace, host_pieces(context)
    if not trace.captured.backtraces:
        return 0.0
    stacks, calls = trace.backtraces.load(), trace.os_calls
    is_gil = np.array([name in GIL_FUNCTIONS for name in stacks.names] or [False], bool)
    if not is_gil.any():
        return 0.0
    inside = CoveredTime(pieces.intervals(rows))
    waited, of_gil = 0, 0
    for thread in pieces.threads_of(rows):
        events = stacks.rows(StackSource.OS, thread)
        of_thread = calls.rows_of(thread)
        call = of_thread.start + np.searchsorted(calls.start_ns[of_thread], stacks.events.start_ns[events])
        has_call = call < of_thread.stop
        call, stack = call[has_call], stacks.events.stack[events][has_call]
        spent = inside.within(calls.start_ns[call], calls.end_ns[call])
        for number, ns in zip(stack[spent > 0].tolist(), spent[spent > 0].tolist(), strict=True):
            waited += ns
            of_gil += ns * bool(is_gil[stacks.frames.symbol[stacks.frames_of(number)]].any())
    return of_gil / waited if waited else 0.0


def _unnamed(context: RuleContext, place: Place) -> str:
    """What to say of a sleep that no OS call explains: whether there were cores enough is in the schedule."""
    cores = context.trace.machine.cores
    if cores is None or not len(context.trace.schedule):
        return f"{_TRACED}: no OS call on record tells"
    inside, running_ns = host_pieces(context).intervals(place.rows), 0
    for thread in unique(context.trace.schedule.thread).tolist():
        on_cpu = context.timeline.host_state.evidence(thread).on_cpu
        if on_cpu is not None:
            running_ns += int(CoveredTime(on_cpu).within(inside.start, inside.end).sum())
    running = running_ns / max(inside.total, 1)
    if running > cores - 1:
        return (
            f"Try fewer threads or workers (OMP_NUM_THREADS): this one may wait for a core, since {running:.1f} "
            f"threads of the program run at once meanwhile on {cores} cores, and no OS call says on what it sleeps"
        )
    return (
        f"{_TRACED}: it is not on record, and not for a core, since {running:.1f} of {cores} cores run the program "
        "meanwhile. It may be for a device, the network, a clock, another process or page faults"
    )


RULE = Rule(
    id="host-wait",
    title="The host sleeps while the GPU idles",
    group="host",
    cause=Cause.HOST_BLOCKED,
    check=_check,
)
