"""The account of one device: every nanosecond of its window gets one cause and one owner region.

What of it is busy is decided here, what is idle (``sync`` among it) in `boundby.attribution.gaps`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution import segments
from boundby.attribution.gaps import GapTable, account_gaps
from boundby.attribution.groundwork import DeviceOperations, TraceContext
from boundby.attribution.host_state import ELSEWHERE, HostState
from boundby.attribution.losses import Losses, Withheld
from boundby.attribution.segments import Segments
from boundby.correlation.cpu_evidence import lifetime
from boundby.model.arrays import as_rows, as_slice, sorted_distinct, unique
from boundby.model.causes import Cause
from boundby.model.intervals import (
    EMPTY,
    IntervalSet,
    Overlay,
    StepFunction,
    clip,
    complement,
    contains,
    cut,
    exposed,
    overlay,
    simplify,
    union,
)
from boundby.model.scale import HALF_MORE
from boundby.trace.tables import OpKind, Trace
from boundby.trace.vocabulary.os import MessageKind


def account_device(
    context: TraceContext,
    operations: DeviceOperations,
    busy: IntervalSet,
    low: int,
    high: int,
    losses: Losses,
    device: int,
) -> tuple[Segments, GapTable, Withheld]:
    """Segments that cover [low, high) exactly, the table of the gaps among them, and what of these is withheld because
    records are missing. ``device``: index into Trace.gpus."""
    gaps, pieces, withheld = account_gaps(context, operations, complement(busy, low, high), (low, high), losses, device)
    return segments.covering(_busy_segments(context, operations, low, high), pieces), gaps, withheld


def _busy_segments(context: TraceContext, operations: DeviceOperations, low: int, high: int) -> Segments:
    """Compute before communication before copies; within a class the earliest started operation owns."""
    table = operations.table
    communicates = table.is_communication
    computes = (table.kind <= OpKind.GRAPH) & ~communicates
    parts = []
    free = IntervalSet(np.array([low], np.int64), np.array([high], np.int64))
    classes = [
        (Cause.GPU_COMPUTE, as_rows(computes)),
        (Cause.GPU_COMM, as_rows(communicates)),
        (Cause.GPU_COPY, as_rows(table.kind >= OpKind.MEMCPY)),
    ]
    for number, (cause, rows) in enumerate(classes):
        pieces, owner = exposed(table.start_ns[rows], table.end_ns[rows])
        is_inside = len(free.start) == 1 and clip(pieces, int(free.start[0]), int(free.end[0])) is pieces
        every = np.arange(len(owner))
        shown = Overlay(*pieces, every, np.zeros_like(every)) if is_inside else overlay(pieces, free)
        is_whole = len(free.start) == 1 and len(shown.left) == len(owner)  # each is shown once
        row = owner if is_whole else owner[shown.left]
        shown_rows = as_slice(row if isinstance(rows, slice) and not rows.start else np.arange(len(table))[rows][row])
        region = context.launch_region[operations.rows][shown_rows]
        parts.append(segments.make(shown.start, shown.end, cause, region))
        if not any(len(table.start_ns[others]) for _, others in classes[number + 1 :]):
            break
        taken = union(table.start_ns[rows], table.end_ns[rows])
        if len(free.start):
            rest = complement(taken, low, high)
            both = overlay(free, rest)
            free = IntervalSet(both.start, both.end)
    return segments.concatenate(*parts)


# The account of host threads, for traces without GPU work: on a CPU, blocked, or unknown.

# A sample shows that the thread ran for about one sampling period; gaps up to this many periods are not a stop.
SAMPLE_REACH = HALF_MORE


class ThreadAccount(Struct, frozen=True):
    """One annotated thread: its time inside ranges, split by cause and region."""

    thread: int
    low_ns: int
    high_ns: int
    covered: IntervalSet
    segments: Segments

    @property
    def total_ns(self) -> int:
        return self.covered.total


def account_threads(
    context: TraceContext, low_ns: int, high: int, begins: Mapping[int, int]
) -> tuple[ThreadAccount, ...]:
    """Accounts of all threads with ranges; without any range, of every process's main thread over the window. Of a rank
    of MPI without ranges of its own: all that it does between the start and the end of MPI.
    ``begins``: the processes for which it begins otherwise."""
    trace = context.trace
    annotated = unique(trace.ranges.thread).tolist()
    accounts = []
    for thread in annotated or _main_threads(trace):
        low = begins.get(trace.threads[thread].process, low_ns)
        rows = trace.ranges.thread == thread
        covered = union(trace.ranges.start_ns[rows], trace.ranges.end_ns[rows])
        is_rank = len(trace.messages.of_thread(thread)) > 0 and bool(trace.in_library[rows].all())
        if not annotated or is_rank:
            first, last = lifetime(trace, thread) or (low, high)
            covered = IntervalSet(np.array([first], np.int64), np.array([last], np.int64))
            if is_rank:
                covered = _between_start_and_end(trace, thread, first, last)
        covered = clip(covered, low, high)
        if len(covered.start):
            accounts.append(ThreadAccount(thread, low, high, covered, _segments(context, thread, covered)))
    return tuple(accounts)


def _between_start_and_end(trace: Trace, thread: int, low: int, high: int) -> IntervalSet:
    """The part of a rank's life in which it can pass messages."""
    started = trace.in_messages(thread, (MessageKind.START,)).end
    ended = trace.in_messages(thread, (MessageKind.END,)).start
    bounds = max(low, int(started.max(initial=low))), min(high, int(ended.min(initial=high)))
    return union(*(np.array([bound], np.int64) for bound in bounds))


def _main_threads(trace: Trace) -> list[int]:
    main = [index for index, thread in enumerate(trace.threads) if thread.pid == thread.tid]
    active = set(unique(trace.os_calls.thread).tolist()) | set(unique(trace.api.thread).tolist())
    active |= set(unique(trace.schedule.thread).tolist()) | set(unique(trace.samples.thread).tolist())
    return [index for index in main if index in active] or sorted(active)[:1]


def _segments(context: TraceContext, thread: int, covered: IntervalSet) -> Segments:
    start, end, _, state = cut(covered.start, covered.end, known_states(context.trace, context.host_state, thread))
    begin, finish, row, rows = cut(start, end, context.ownership.steps(thread))
    cause = np.where(state >= 0, state, int(Cause.UNATTRIBUTED))[row]
    region = context.ownership.region_of(rows)
    return segments.make(begin, finish, cause, region, np.full(len(row), thread, np.int64))


def known_states(trace: Trace, host_state: HostState, thread: int) -> StepFunction:
    """The thread's states, with ``unattributed`` where nothing captured shows whether it ran."""
    states, evidence = host_state.states(thread), host_state.evidence(thread)
    states = StepFunction(states.time, np.where(states.value == ELSEWHERE, int(Cause.UNATTRIBUTED), states.value))
    if evidence.in_blocking_call is not None:
        return states  # outside every blocking call a thread runs
    shown = next((intervals for intervals in (evidence.on_cpu, evidence.shown) if intervals is not None), None)
    shown = sampled(trace, thread) if shown is None else shown
    time = sorted_distinct(states.time, shown.start, shown.end)
    state = states.at(time)
    runs = contains(shown, time) >= 0
    return simplify(StepFunction(time, np.where((state == Cause.CPU) & ~runs, int(Cause.UNATTRIBUTED), state)))


def sampled(trace: Trace, thread: int) -> IntervalSet:
    """Times around a thread's CPU samples: it is sampled only while it runs."""
    period = sample_period(trace)
    if period is None:
        return EMPTY
    time = trace.samples.of_thread(thread).start_ns
    return union(time - int(SAMPLE_REACH * period), time)


def sample_period(trace: Trace) -> int | None:
    """Nanoseconds between samples of a running thread: the lower quartile of the differences."""
    same: npt.NDArray[np.bool_] = np.diff(trace.samples.thread) == 0
    differences = np.diff(trace.samples.start_ns)[same]
    differences = differences[differences > 0]
    return int(np.quantile(differences, 0.25)) if len(differences) else None
