"""Why a device is idle: the table of its gaps, the wait that is to blame for each, and the pieces of the account.

Everything that asks about gaps asks this table: it is built once, with the account.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.attribution import segments
from boundby.attribution.context import DeviceOperations, TraceContext
from boundby.attribution.host_state import ELSEWHERE
from boundby.attribution.losses import Losses, Withheld, withhold
from boundby.attribution.regions import ROOT
from boundby.attribution.segments import NO_THREAD, Segments
from boundby.model.arrays import (
    Int32Array,
    Int64Array,
    as_rows,
    bounds,
    compact,
    group_sums,
    in_order,
    joined,
    narrow,
    pick,
    places,
    running_maximum,
    spread,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.intervals import Coverage, IntervalSet, expand
from boundby.model.library import core, int64
from boundby.model.records import dataclass, fields, replace
from boundby.model.step_function import NOTHING, cut
from boundby.native.account import Divided, around, divide
from boundby.trace.tables import Operations, Table

# An operation that starts within this time of its launch was simply on its way; one that takes longer waited.
LAUNCH_LIMIT_NS = 10_000

# Gaps are worked on in blocks of this many, which bounds the memory that their pieces take on the way.
GAPS_AT_ONCE = 100_000

# Of the waits that delayed one launch, only so many of the latest are looked at to find the one to blame.
_LATEST_WAITS = 32

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Gaps(Table):
    """The idle intervals of one device inside its window, in order of time: a row each.

    Waits since the operation before the gap was launched delayed the next launch; the longest of them, of the
    responsible thread or of those it takes turns with, is to blame.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    thread: Int32Array  # responsible: launched what ends the gap, or what ran before a last gap; NO_THREAD
    operation: Int32Array  # that ends the gap, a row of Trace.operations; NOTHING: none comes any more
    wait: Int32Array  # the call that is to blame, a row of Calls; NOTHING: nobody waited
    sync_ns: Int64Array  # how much of the gap is ``sync`` in the account: what that wait cost

    @property
    def intervals(self) -> IntervalSet:
        """When the device is idle."""
        return IntervalSet(self.start_ns, self.end_ns)

    @property
    def length_ns(self) -> Int64Array:
        return self.end_ns - self.start_ns

    def at(self, time: Int64Array) -> npt.NDArray[np.intp]:
        """The gap that holds each of these instants, all of which must be idle."""
        return places(self.start_ns, time, side="right") - 1


@dataclass(frozen=True)
class _Dividing(Gaps):
    """The same, with what only dividing them needs."""

    launch: Int32Array  # the call that launched what ends it, a row of Calls; NOTHING: not known
    since_ns: Int64Array  # when the operation before the gap was launched
    wait_start_ns: Int64Array  # when the waiting in ``wait`` began, where it is known

    def costs(self, pieces: Segments) -> Int64Array:
        """How much of each gap is ``sync``."""
        sync = np.flatnonzero(pieces.cause == Cause.SYNC)
        start, end = pieces.start_ns[sync], pieces.end_ns[sync]
        return group_sums(self.at(start), end - start, len(self))

    def divided(self, wait: Int32Array, sync_ns: Int64Array) -> Gaps:
        """The table with the waits that are to blame and what they cost."""
        known = replace(self, wait=wait, sync_ns=narrow(sync_ns))
        return Gaps(*(compact(getattr(known, column.name)) for column in fields(Gaps)))


class _Pieces(NamedTuple):
    """Parts of gaps. ``owner`` is a region already known, or NOTHING: ask the thread at that instant."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    state: npt.NDArray[np.int64]
    thread: npt.NDArray[np.int64]
    gap: npt.NDArray[np.intp]
    owner: npt.NDArray[np.int64]

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> _Pieces:
        return _Pieces(*(column[rows] for column in self))


def account_gaps(
    context: TraceContext,
    operations: DeviceOperations,
    idle: IntervalSet,
    span: tuple[int, int],
    losses: Losses,
    device: int,
) -> tuple[Gaps, Segments, Withheld]:
    """The table of a device's gaps, the segments of the account that cover them exactly, and what of these is withheld
    because records are missing.

    ``idle``: when the device does nothing in its window, which is ``span``.
    """
    gaps = _find_gaps(context, operations, idle, span[0])
    wait, cost = np.full(len(gaps), NOTHING, np.int32), np.zeros(len(gaps), np.int64)
    parts: list[Segments] = []
    for thread in unique(gaps.thread).tolist():
        rows = as_rows(gaps.thread == thread)
        of_thread = gaps.take(rows)
        if thread == NO_THREAD:
            nobodys = np.full(len(of_thread), ROOT)
            parts.insert(0, segments.make(of_thread.start_ns, of_thread.end_ns, Cause.UNATTRIBUTED, nobodys))
            continue
        waits = _waits_of(context, thread)
        if core() is not None:
            divided = _divided(context, thread, waits, of_thread)
            wait[rows], cost[rows] = divided.wait, divided.sync
            parts.append(Segments(*divided[:5]))
            continue
        blocked = Coverage(context.host_state.logical_thread_blocked(thread))
        every = np.arange(len(gaps))[rows]
        for first in range(0, len(every), GAPS_AT_ONCE):
            block = every[first : first + GAPS_AT_ONCE]
            some = gaps.take(block)
            wait[block], since_ns = _longest_waits(context, waits, some)
            parts.append(_divide(context, thread, blocked, replace(some, wait=wait[block], wait_start_ns=since_ns)))
    whole = segments.concatenate(segments.nothing(), *parts)
    pieces, withheld = withhold(context, losses, device, whole, span)
    is_told = core() is not None and pieces is whole  # nothing was withheld
    return gaps.divided(wait, cost if is_told else gaps.costs(pieces)), pieces, withheld


def _find_gaps(context: TraceContext, operations: DeviceOperations, idle: IntervalSet, low: int) -> _Dividing:
    """For each idle interval: who is responsible, what ends it, since when waits count. Nobody is blamed yet."""
    calls, table = context.calls, operations.table
    call_of, launched_ns = calls.of_operation[operations.rows], calls.launched_ns[operations.rows]
    if len(without := np.flatnonzero(call_of < 0)):
        launched_ns = launched_ns.copy()
        launched_ns[without] = table.start_ns[without]
    if core() is not None:
        following, telling, since_ns = around(idle, table.start_ns, table.end_ns, launched_ns, low)
    else:
        following, telling, since_ns = _around(idle, table.start_ns, table.end_ns, launched_ns, low)
    launch = pick(call_of, following, NOTHING).astype(np.int32, copy=False)
    is_followed, first = bool((telling == following).all()), int(operations.rows.start)
    return _Dividing(
        start_ns=idle.start,
        end_ns=idle.end,
        thread=_launching_threads(context, launch if is_followed else pick(call_of, telling, NOTHING), table, telling),
        operation=np.where(following >= 0, following + np.int32(first), NOTHING) if first else following,
        launch=launch,
        wait=spread(NOTHING, len(idle.start), np.int32),
        sync_ns=spread(0, len(idle.start)),
        since_ns=since_ns,
        wait_start_ns=spread(NOTHING, len(idle.start)),
    )


def _around(
    idle: IntervalSet, start_ns: Int64Array, end_ns: Int64Array, launched_ns: Int64Array, low: int
) -> tuple[Int32Array, Int32Array, Int64Array]:
    """What `around` tells."""
    following = places(start_ns, idle.end, side="left")
    following = np.where(following < len(start_ns), following, NOTHING)
    previous = _last_ended(end_ns, launched_ns, idle.start)
    telling = np.where(following != NOTHING, following, np.maximum(previous, 0))
    return following.astype(np.int32), telling.astype(np.int32), pick(launched_ns, previous, low)


def _last_ended(end_ns: Int64Array, launch_ns: Int64Array, time_ns: Int64Array) -> npt.NDArray[np.intp]:
    """The operation that ended last at or before each instant, of equals the one launched last; NOTHING for none."""
    by_end = in_order(end_ns, launch_ns)
    place = places(end_ns[by_end], time_ns, side="right") - 1
    return place if isinstance(by_end, slice) else pick(by_end, place, NOTHING)


def _launching_threads(
    context: TraceContext, call: npt.NDArray[np.integer], table: Operations, rows: Int32Array
) -> Int32Array:
    """The thread of each launching call; without a known call the only thread of the process of the operation, one of
    these rows, that calls CUDA; NO_THREAD where there are several or none."""
    callers = unique(context.calls.thread)
    if len(call) and len(callers) == 1 and bounds(call)[0] >= 0:
        return compact(spread(int(callers[0]), len(call), np.int32))
    number = context.trace.process_of_thread[callers]
    sole = np.full(len(context.trace.processes) + 1, NO_THREAD, np.int32)  # the last: of processes that are not known
    sole[number] = np.where(np.bincount(number, minlength=1)[number] == 1, callers, NO_THREAD)
    thread = pick(context.calls.thread, call, NO_THREAD)
    without = np.flatnonzero(call < 0)
    thread[without] = sole[table.process[rows[without]]]
    return thread


def _delayed_until(context: TraceContext, gaps: _Dividing) -> Int64Array:
    """When each gap's launch was made at the latest: waits after that delayed something else."""
    return np.maximum(np.minimum(pick(context.calls.start_ns, gaps.launch, _NEVER), gaps.end_ns), gaps.since_ns)


def _divided(context: TraceContext, thread: int, waits: _Waits, gaps: _Dividing) -> Divided:
    """What follows, for all gaps of one responsible thread in one native pass: `_longest_waits` and `_divide`."""
    state, blocked = context.host_state, context.host_state.logical_thread_blocked(thread)
    asked: list[int] = []
    while True:
        threads = dict.fromkeys([thread, *asked, *unique(waits.thread).tolist()])
        divided = divide(
            {
                "start": gaps.start_ns,
                "end": gaps.end_ns,
                "since": gaps.since_ns,
                "launch": gaps.launch,
                "operation": gaps.operation,
            },
            {
                "call_start": int64(context.calls.start_ns),
                "call_end": int64(context.calls.end_ns),
                "launch_region": context.launch_region.astype(np.int32, copy=False),
            },
            state.states(thread),
            [(other, state.running(other, thread)) for other in asked],
            {other: context.ownership.steps(other) for other in threads},
            context.ownership.regions.of_range,
            (*blocked, np.append(0, np.cumsum(blocked.end - blocked.start))),
            {
                "wait_start": waits.start,
                "wait_end": waits.end,
                "wait_reach": waits.reach,
                "wait_call": waits.call,
                "wait_owner": waits.thread,
            },
            {
                "latest_waits": _LATEST_WAITS,
                "launch_limit": LAUNCH_LIMIT_NS,
                "sync": Cause.SYNC,
                "cuda_api": Cause.CUDA_API,
                "device_wait": Cause.DEVICE_WAIT,
                "host_blocked": Cause.HOST_BLOCKED,
                "elsewhere": ELSEWHERE,
                "awake": state.awake,
            },
        )
        every = state.running_elsewhere(thread) if divided.asleep else []
        if len(asked) == len(every) or not divided.asleep:
            return divided
        asked = every[: max(1, 2 * len(asked))]  # who need not be asked need not be worked out


def _divide(context: TraceContext, thread: int, blocked: Coverage, gaps: _Dividing) -> Segments:
    """The pieces of the gaps of one responsible thread: its states, launch latency, waiting for the device to begin."""
    launch_end = pick(context.calls.end_ns, gaps.launch, _NEVER)
    host_end = np.clip(launch_end, gaps.start_ns, gaps.end_ns)
    arrive_end = np.clip(np.minimum(launch_end, gaps.end_ns) + LAUNCH_LIMIT_NS, host_end, gaps.end_ns)
    rows = np.arange(len(gaps), dtype=np.intp)
    region = pick(context.launch_region, gaps.operation, ROOT).astype(np.int64)
    start, end, row, state = cut(gaps.start_ns, host_end, context.host_state.states(thread))
    host = _Pieces(start, end, state, np.full(len(row), thread, np.int64), row, np.full(len(row), NOTHING, np.int64))
    host = _chase(context, thread, host)
    latency = _constant(host_end, arrive_end, Cause.CUDA_API, thread, rows, region)
    waiting = _constant(arrive_end, gaps.end_ns, Cause.DEVICE_WAIT, thread, rows, region)
    pieces = _debit_syncs(context, blocked, gaps, _stack(host, latency))
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
        start, end, row, state = cut(asleep.start, asleep.end, context.host_state.running(other, thread))
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
    return pieces._replace(state=np.where(pieces.state == ELSEWHERE, int(context.host_state.awake), pieces.state))


def _debit_syncs(context: TraceContext, blocked: Coverage, gaps: _Dividing, pieces: _Pieces) -> _Pieces:
    """Turn up to W of each gap into ``sync``: W is how long the host was ``blocked`` since the operation before.

    Had it not waited, the next launch would have come W earlier. What lies in a sync call goes first, then the
    earliest part. Time in which the device itself delays a launched operation is not the host's to save.
    """
    budget = blocked.within(gaps.since_ns, _delayed_until(context, gaps))
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
    blamed = _waiting_regions(context, gaps)[pieces.gap]
    middle = pieces.start + taken
    synced = pieces._replace(
        end=middle,
        state=np.full(len(order), int(Cause.SYNC)),
        owner=np.where(blamed != NOTHING, blamed, pieces.owner),
    )
    return _stack(synced, pieces._replace(start=middle))


def _waiting_regions(context: TraceContext, gaps: _Dividing) -> Int64Array:
    """The region in which the wait that is to blame for each gap began; NOTHING where nobody waited."""
    region = np.full(len(gaps), NOTHING, np.int64)
    thread = pick(context.calls.thread, gaps.wait, NO_THREAD)
    for member in unique(thread[thread != NO_THREAD]).tolist():
        mine = thread == member
        region[mine] = context.ownership.at(member, gaps.wait_start_ns[mine])
    return region


class _Waits(NamedTuple):
    """When the members of one logical thread waited for the device, in order of start, and in which call."""

    start: Int64Array
    end: Int64Array
    reach: Int64Array  # the latest end so far
    call: Int64Array
    thread: Int64Array  # whose wait it is


def _waits_of(context: TraceContext, thread: int) -> _Waits:
    calls, parts = context.calls, []
    for member in context.logical_threads.members(thread).tolist():
        blocked, rows = context.host_state.blocked(member), calls.rows_of(member)
        call = places(calls.start_ns[rows], blocked.start, side="right") + (rows.start - 1)
        parts.append((blocked.start, blocked.end, call, np.full(len(call), member, np.int64)))
    start, end, call, of_thread = (joined(columns) for columns in zip(*parts, strict=True))
    order = in_order(start)
    return _Waits(start[order], end[order], running_maximum(end[order]), call[order], of_thread[order])


def _longest_waits(context: TraceContext, waits: _Waits, gaps: _Dividing) -> tuple[Int64Array, Int64Array]:
    """The call with the longest wait since the operation before each gap (NOTHING: nobody waited), and its begin."""
    until = _delayed_until(context, gaps)
    stop = places(waits.start, until, side="left")
    first = places(waits.reach, gaps.since_ns, side="right")
    first = np.minimum(np.maximum(first, stop - _LATEST_WAITS), stop)
    row, wait = expand(first, stop)
    overlap = np.minimum(waits.end[wait], until[row]) - np.maximum(waits.start[wait], gaps.since_ns[row])
    order = np.lexsort((wait, overlap))  # the last write wins: the longest, of equals the latest
    order = order[overlap[order] > 0]
    longest = np.full(len(gaps), NOTHING, np.int64)
    longest[row[order]] = wait[order]
    return pick(waits.call, longest, NOTHING), pick(waits.start, longest, NOTHING)


def _own(context: TraceContext, pieces: _Pieces) -> Segments:
    """Give every piece its region: the one known, else the one open on its thread, cut where that changes."""
    known = pieces.owner != NOTHING
    fixed = pieces.take(known)
    parts = [segments.make(fixed.start, fixed.end, fixed.state, fixed.owner, fixed.thread)]
    open_ = pieces.take(~known)
    for thread in unique(open_.thread).tolist():
        mine = open_.take(open_.thread == thread)
        start, end, row, rows = cut(mine.start, mine.end, context.ownership.steps(thread))
        region = context.ownership.region_of(rows)
        parts.append(segments.make(start, end, mine.state[row], region, np.full(len(row), thread, np.int64)))
    return segments.concatenate(*parts)
