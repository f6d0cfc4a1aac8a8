"""Why a device is idle: the causes of gaps, the sync debit, and who owns each piece."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.attribution import segments
from boundby.attribution.context import TraceContext
from boundby.attribution.host_state import ELSEWHERE, HostState
from boundby.attribution.regions import ROOT
from boundby.attribution.segments import Segments
from boundby.model.arrays import Int64Array
from boundby.model.causes import Cause
from boundby.model.intervals import Coverage, expand
from boundby.model.step_function import NOTHING, StepFunction, cut

# An operation that starts within this time of its launch was simply on its way; one that takes longer waited.
LAUNCH_LIMIT_NS = 10_000

# Gaps are worked on in blocks of this many, which bounds the memory that their pieces take on the way.
GAPS_AT_ONCE = 100_000

# Of the waits that delayed one launch, only so many of the latest are looked at to name the region to blame.
_LATEST_WAITS = 32


class Gap(NamedTuple):
    """Idle intervals of one device and what is known of each; columns of equal length.

    ``launch_start`` and ``launch_end`` bound the call that launched the operation ending the gap (max int64:
    unknown). ``since`` is when the operation before the gap was launched. ``region`` owns the next operation.
    """

    start: Int64Array
    end: Int64Array
    thread: npt.NDArray[np.int64]
    launch_start: Int64Array
    launch_end: Int64Array
    since: Int64Array
    region: npt.NDArray[np.int64]

    def take(self, rows: npt.NDArray[np.intp]) -> Gap:
        return Gap(*(column[rows] for column in self))


class _Pieces(NamedTuple):
    """Parts of gaps. ``owner`` is a range region already known, or NOTHING: ask the thread at that instant."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    state: npt.NDArray[np.int64]
    thread: npt.NDArray[np.int64]
    gap: npt.NDArray[np.intp]
    owner: npt.NDArray[np.int64]

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> _Pieces:
        return _Pieces(*(column[rows] for column in self))


def attribute_gaps(context: TraceContext, gaps: Gap) -> Segments:
    """Segments that cover the gaps exactly."""
    unknown = np.flatnonzero(gaps.thread < 0)
    parts = [
        segments.make(gaps.start[unknown], gaps.end[unknown], Cause.UNATTRIBUTED, np.full(len(unknown), ROOT, np.int64))
    ]
    for thread in np.unique(gaps.thread[gaps.thread >= 0]).tolist():
        rows = np.flatnonzero(gaps.thread == thread)
        parts += [
            _attribute(context, thread, gaps.take(rows[first : first + GAPS_AT_ONCE]))
            for first in range(0, len(rows), GAPS_AT_ONCE)
        ]
    return segments.concatenate(*parts)


def _attribute(context: TraceContext, thread: int, gaps: Gap) -> Segments:
    """The gaps of one responsible thread."""
    host_end = np.clip(gaps.launch_end, gaps.start, gaps.end)
    arrive_end = np.clip(np.minimum(gaps.launch_end, gaps.end) + LAUNCH_LIMIT_NS, host_end, gaps.end)
    rows = np.arange(len(gaps.start), dtype=np.intp)
    start, end, row, state = cut(gaps.start, host_end, context.host_state.states(thread))
    host = _Pieces(start, end, state, np.full(len(row), thread, np.int64), row, np.full(len(row), NOTHING, np.int64))
    host = _chase(context, thread, host)
    latency = _constant(host_end, arrive_end, Cause.CUDA_API, thread, rows, gaps.region)
    waiting = _constant(arrive_end, gaps.end, Cause.DEVICE_WAIT, thread, rows, gaps.region)
    pieces = _debit_syncs(context, thread, gaps, _stack(host, latency))
    return _own(context, _stack(pieces, waiting))


def _constant(
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    cause: Cause,
    thread: int,
    gap: npt.NDArray[np.intp],
    owner: npt.NDArray[np.int64],
) -> _Pieces:
    count = len(start)
    return _Pieces(start, end, np.full(count, int(cause)), np.full(count, thread, np.int64), gap, owner)


def _stack(*parts: _Pieces) -> _Pieces:
    stacked = _Pieces(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return stacked.take(stacked.end > stacked.start)


def _chase(context: TraceContext, thread: int, pieces: _Pieces) -> _Pieces:
    """While the thread sleeps, whoever of its process runs is responsible; failing that, the sleep is."""
    settled = []
    for other in context.host_state.running_elsewhere(thread):
        sleeping = (pieces.state == Cause.HOST_BLOCKED) | (pieces.state == ELSEWHERE)
        if not sleeping.any():
            break
        settled.append(pieces.take(~sleeping))
        asleep = pieces.take(sleeping)
        start, end, row, state = cut(asleep.start, asleep.end, running(context.host_state, other))
        runs = state != NOTHING
        pieces = _Pieces(
            start,
            end,
            np.where(runs, state, asleep.state[row]),
            np.where(runs, other, asleep.thread[row]),
            asleep.gap[row],
            asleep.owner[row],
        )
    pieces = _stack(*settled, pieces)
    return pieces._replace(state=np.where(pieces.state == ELSEWHERE, int(Cause.CPU), pieces.state))


def running(host_state: HostState, thread: int) -> StepFunction:
    """A thread's states where it can be shown to run; NOTHING elsewhere.

    Being outside every CUDA call shows nothing unless context switches were captured for the thread, or it is
    the latest caller of a logical thread about which nothing else is known.
    """
    states, evidence = host_state.states(thread), host_state.evidence(thread)
    shows_cpu = evidence.on_cpu is not None or not evidence.is_known
    silent = np.isin(states.value, (Cause.HOST_BLOCKED, ELSEWHERE)) | ((states.value == Cause.CPU) & (not shows_cpu))
    return StepFunction(states.time, np.where(silent, NOTHING, states.value))


def _debit_syncs(context: TraceContext, thread: int, gaps: Gap, pieces: _Pieces) -> _Pieces:
    """Turn up to W of each gap into ``sync``: W is how long the host had waited since the operation before.

    Had it not waited, the next launch would have come W earlier. What lies in a sync call goes first, then the
    earliest part. Time in which the device itself delays a launched operation is not the host's to save.
    """
    blocked = context.host_state.logical_thread_blocked(thread)
    until = np.maximum(np.minimum(gaps.launch_start, gaps.end), gaps.since)
    budget = Coverage(blocked).within(gaps.since, until)
    in_sync = pieces.state == Cause.SYNC
    length = pieces.end - pieces.start
    np.subtract.at(budget, pieces.gap[in_sync], length[in_sync])
    order = np.lexsort((pieces.start, pieces.gap))
    pieces, in_sync, length = pieces.take(order), in_sync[order], length[order]
    debitable = np.where(in_sync, 0, length)
    before = np.cumsum(debitable) - debitable
    first = np.flatnonzero(np.append(True, pieces.gap[1:] != pieces.gap[:-1])) if len(order) else order
    sizes = np.diff(np.append(first, len(order)))
    before = before - np.repeat(before[first], sizes)
    taken = np.clip(budget[pieces.gap] - before, 0, debitable)
    taken = np.where(in_sync, length, taken)
    blame = _blame(context, thread, gaps, until)
    is_blamed = blame[pieces.gap] != NOTHING
    middle = pieces.start + taken
    synced = _Pieces(
        pieces.start,
        middle,
        np.full(len(order), int(Cause.SYNC)),
        pieces.thread,
        pieces.gap,
        np.where(is_blamed, blame[pieces.gap], pieces.owner),
    )
    return _stack(synced, pieces._replace(start=middle))


def _blame(context: TraceContext, thread: int, gaps: Gap, until: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The region whose wait delayed each launch most: that of the longest wait since the operation before."""
    waiter, start = longest_waits(context, thread, gaps, until)
    blame = np.full(len(gaps.start), NOTHING, np.int64)
    for member in np.unique(waiter[waiter != NOTHING]).tolist():
        mine = waiter == member
        blame[mine] = context.ownership.at(member, start[mine])
    return blame


def longest_waits(
    context: TraceContext, thread: int, gaps: Gap, until: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], Int64Array]:
    """The longest wait of the logical thread since the operation before each gap: the thread that waited (NOTHING:
    none did) and when its wait began."""
    starts, lengths, threads = [], [], []
    for member in context.logical_threads.members(thread).tolist():
        waits = context.host_state.blocked(member)
        starts.append(waits.start)
        lengths.append(waits.end - waits.start)
        threads.append(np.full(len(waits.start), member, np.int64))
    start = np.concatenate(starts)
    order = np.argsort(start, kind="stable")
    start, length, waiting = start[order], np.concatenate(lengths)[order], np.concatenate(threads)[order]
    reach = start + length
    stop = np.searchsorted(start, until, side="left")
    first = np.searchsorted(np.maximum.accumulate(reach), gaps.since, side="right") if len(reach) else stop
    first = np.minimum(np.maximum(first, stop - _LATEST_WAITS), stop)
    row, wait = expand(first, stop)
    waiter = np.full(len(gaps.start), NOTHING, np.int64)
    began: Int64Array = np.zeros(len(gaps.start), np.int64)
    overlap = np.minimum(reach[wait], until[row]) - np.maximum(start[wait], gaps.since[row])
    longest = np.lexsort((wait, overlap))  # the last write wins: the longest, of equals the latest
    longest = longest[overlap[longest] > 0]
    waiter[row[longest]] = waiting[wait[longest]]
    began[row[longest]] = start[wait[longest]]
    return waiter, began


def _own(context: TraceContext, pieces: _Pieces) -> Segments:
    """Give every piece its region: the one known, else the one open on its thread, cut where that changes."""
    known = pieces.owner != NOTHING
    fixed = pieces.take(known)
    parts = [segments.make(fixed.start, fixed.end, fixed.state, fixed.owner, fixed.thread)]
    open_ = pieces.take(~known)
    for thread in np.unique(open_.thread).tolist():
        mine = open_.take(open_.thread == thread)
        start, end, row, rows = cut(mine.start, mine.end, context.ownership.steps(thread))
        region = context.ownership.region_of(rows)
        parts.append(segments.make(start, end, mine.state[row], region, np.full(len(row), thread, np.int64)))
    return segments.concatenate(*parts)
