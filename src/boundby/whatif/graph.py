"""The dependency graph of one process: host calls in order, operations in stream order, launches, waits.

Every edge carries a measured lag, so that an unchanged replay gives the measured times back. Threads that work in
turns (a crew) are one chain: the interval from one call to the next is the host's, whoever of them made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.model.causes import Cause
from boundby.model.trace import BoolArray, MemoryKind, OpKind
from boundby.timeline.account import Setting
from boundby.timeline.calls import CallClass
from boundby.timeline.evidence import lifetime
from boundby.timeline.gaps import running
from boundby.timeline.hosts import DISPATCH_LIMIT_NS
from boundby.timeline.intervals import EMPTY, Coverage, IntervalSet, complement, intersect, subtract, union
from boundby.timeline.steps import StepFunction, cut

Int = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]  # indexes: half the memory at millions of events

# An operation that starts this soon after the one before it on its stream was held up by that one.
SWITCH_LIMIT_NS = 6_000
# A launch that reaches an idle device takes this long at most before it counts as held up by something unseen.
ARRIVAL_LIMIT_NS = 60_000
# A call this long did more than launch; what it launched could not start before it was done.
LONG_CALL_NS = 30_000
# Fallbacks where a trace shows no example.
USUAL_SWITCH_NS = 1_000
USUAL_ARRIVAL_NS = 5_000
USUAL_QUICK_SYNC_NS = 1_500  # a sync for what is done already
USUAL_RETURN_NS = 5_000  # from the end of what a sync waits for to its return
NONE = -1


@dataclass(frozen=True)
class Graph:
    """Events in an order in which every dependency comes first. Columns of calls, then of operations.

    Times are nanoseconds on the host's clock. Each call runs after the one before it in its chain: an interval of
    dispatch, own code, sleep and initialization lies between. A waiting call also ends after an operation.
    """

    # calls, by chain and start
    chain: Int32
    dispatch_ns: Int  # of the interval before the call, by what it was spent on
    cpu_ns: Int
    sleep_ns: Int
    overlap_ns: Int  # negative where a crew's calls overlap: the interval before the call is shorter than nothing
    cost_ns: Int  # the call's own time, without waiting
    kind: npt.NDArray[np.int8]  # CallClass
    is_init: BoolArray
    waits_for: Int32  # operation whose end (or start) lets the call return; NONE
    waits_for_start: BoolArray  # the call returns by the operation's start, not its end
    wait_lag_ns: Int  # from then to the call's return
    waits_for_room: BoolArray  # not a sync: the launch queue was full
    wait_cost_ns: Int  # what is left of the call where the wait is gone
    follows: Int32  # a call of the process's leading chain that woke this one's thread; NONE
    follow_lag_ns: Int  # from that call's end to this one's start
    call_start_ns: Int
    call_region: Int32
    # operations, by device and start
    launch: Int32  # call, or NONE: the operation starts when it did, relative to the one before it
    arrival_ns: Int  # from the start of the launching call (or its end) to the start at the earliest
    from_call_end: BoolArray  # a long launching call had to finish first: it loaded a module, say
    before: Int32  # the operation before it on its stream; NONE
    switch_ns: Int
    also_after: Int32  # an operation of another stream it was held up by; NONE
    hold_ns: Int  # what neither explains
    duration_ns: Int
    start_ns: Int
    device: Int32
    op_kind: npt.NDArray[np.int8]
    is_communication: BoolArray
    op_region: Int32
    # event order: 2 * call begins it, 2 * call + 1 ends one that waits, ~row is an operation
    order: Int32
    # pieces of intervals, for scenarios limited to a region: call, nanoseconds, cause, region
    piece_call: Int32
    piece_ns: Int
    piece_cause: npt.NDArray[np.int8]
    piece_region: Int32

    @property
    def calls(self) -> int:
        return len(self.chain)


def build_graph(setting: Setting) -> Graph:
    """The graph of all processes of a trace (they share nothing but the arrays)."""
    trace, calls, crews = setting.trace, setting.calls, setting.crews
    table = trace.operations
    chain = crews.leader[calls.thread] if len(calls) else np.empty(0, np.int64)
    order = np.lexsort((calls.end_ns, calls.start_ns, chain))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    start, end = calls.start_ns[order], calls.end_ns[order]
    thread, kind = calls.thread[order].astype(np.int64), calls.kind[order]
    chain = chain[order]
    follows = np.append(False, chain[1:] == chain[:-1])
    free_from = np.where(follows, np.append(0, end[:-1]), start)
    pieces = _interval_pieces(setting, np.minimum(free_from, start), start, thread)
    woken_by, woken_lag, pieces = _wakers(setting, chain, start, end, pieces)
    spent = {cause: np.zeros(len(order), np.int64) for cause in (Cause.CUDA_API, Cause.CPU, Cause.HOST_BLOCKED)}
    for cause, total in spent.items():
        mine = pieces.cause == cause
        np.add.at(total, pieces.call[mine], pieces.ns[mine])
    launch = (
        np.where(calls.of_operation >= 0, rank[np.maximum(calls.of_operation, 0)], NONE)
        if len(order)
        else np.full(len(table), NONE, np.int64)
    )
    waits = _waits(setting, order, start, end, kind, launch)
    cost = np.where(waits.operation != NONE, waits.cost, end - start)
    stream = _stream_order(setting, launch, start, np.where(waits.operation == NONE, end, start))
    region = np.zeros(len(order), np.int64)
    for number in np.unique(thread).tolist():
        mine = thread == number
        region[mine] = setting.ownership.at(number, start[mine])
    return Graph(
        chain=chain.astype(np.int32),
        dispatch_ns=spent[Cause.CUDA_API],
        cpu_ns=spent[Cause.CPU],
        sleep_ns=spent[Cause.HOST_BLOCKED],
        overlap_ns=np.minimum(start - free_from, 0),
        cost_ns=cost,
        kind=kind,
        is_init=np.isin(kind, (CallClass.ALLOC, CallClass.INIT)) | calls.is_first_load[order],
        waits_for=waits.operation.astype(np.int32),
        waits_for_start=waits.by_start,
        wait_lag_ns=waits.lag,
        waits_for_room=waits.for_room,
        wait_cost_ns=waits.cost,
        follows=woken_by.astype(np.int32),
        follow_lag_ns=woken_lag,
        call_start_ns=start,
        call_region=region.astype(np.int32),
        launch=launch.astype(np.int32),
        arrival_ns=stream.arrival,
        from_call_end=stream.from_call_end,
        before=stream.before.astype(np.int32),
        switch_ns=stream.switch,
        also_after=stream.also_after.astype(np.int32),
        hold_ns=stream.hold,
        duration_ns=table.end_ns - table.start_ns,
        start_ns=table.start_ns,
        device=table.device,
        op_kind=table.kind,
        is_communication=table.is_communication,
        op_region=setting.launch_region.astype(np.int32),
        order=_event_order(start, end, waits.operation, table.start_ns),
        piece_call=pieces.call,
        piece_ns=pieces.ns,
        piece_cause=pieces.cause,
        piece_region=pieces.region,
    )


def as_steps(intervals: IntervalSet) -> StepFunction:
    """1 inside the set, NOTHING outside."""
    time = np.stack((intervals.start, intervals.end), axis=1).reshape(-1)
    return StepFunction(time, np.tile(np.array([1, NONE], np.int64), len(intervals.start)))


@dataclass(frozen=True)
class _Pieces:
    call: Int32
    ns: Int
    cause: npt.NDArray[np.int8]
    region: Int32


def _interval_pieces(setting: Setting, low: Int, high: Int, thread: Int) -> _Pieces:
    """The interval before each call, cut by what the host did and where: dispatch first, then its own code or sleep."""
    parts: list[tuple[Any, ...]] = [
        (np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int8), np.empty(0, np.int32))
    ]
    for number in np.unique(thread).tolist():
        rows = np.flatnonzero((thread == number) & (high > low))
        begin, finish, row, owner = cut(low[rows], high[rows], setting.ownership.steps(number))
        asleep_steps = as_steps(_crew_asleep(setting, number))
        piece_start, piece_end, inner, state = cut(begin, finish, asleep_steps)
        call = rows[row[inner]]
        region = setting.ownership.region_of(owner)[inner]
        asleep = state != NONE
        dispatch_end = low[call] + DISPATCH_LIMIT_NS
        dispatch = np.where(asleep, 0, np.clip(np.minimum(piece_end, dispatch_end) - piece_start, 0, None))
        rest = piece_end - piece_start - dispatch
        cause = np.where(asleep, np.int8(Cause.HOST_BLOCKED), np.int8(Cause.CPU))
        for ns, of in ((dispatch, np.full(len(call), Cause.CUDA_API, np.int8)), (rest, cause)):
            kept = ns > 0
            parts.append((call[kept].astype(np.int32), ns[kept], of[kept], region[kept].astype(np.int32)))
        del begin, finish, row, owner, piece_start, piece_end, inner, state, call, region, asleep, dispatch, rest
    return _Pieces(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _wakers(setting: Setting, chain: Int, start: Int, end: Int, pieces: _Pieces) -> tuple[Int, Int, _Pieces]:
    """Which call of the process's leading chain woke a helper from its sleep.

    A thread that feeds data sleeps until the thread it feeds has taken some: its sleep ends some time after a call
    of that thread, and would end earlier if that call came earlier. Returns (call or NONE, lag, pieces left).
    """
    woken, lag = np.full(len(chain), NONE, np.int64), np.zeros(len(chain), np.int64)
    process = np.array([thread.process for thread in setting.trace.threads], np.int64)
    leads: dict[int, tuple[int, int]] = {}
    for number in np.unique(chain).tolist():
        size = int((chain == number).sum())
        leads[process[number]] = max(leads.get(process[number], (0, 0)), (size, -number))
    slept = np.zeros(len(chain), bool)
    slept[pieces.call[pieces.cause == Cause.HOST_BLOCKED]] = True
    for number in np.unique(chain).tolist():
        leading = -leads[process[number]][1]
        rows = np.flatnonzero((chain == number) & slept)
        theirs = np.flatnonzero(chain == leading)
        if leading == number or len(rows) == 0:
            continue
        place = np.searchsorted(end[theirs], start[rows], side="right") - 1
        known = place >= 0
        woken[rows[known]] = theirs[place[known]]
        lag[rows[known]] = start[rows[known]] - end[theirs[place[known]]]
    gone = (pieces.cause == Cause.HOST_BLOCKED) & (woken[pieces.call] != NONE)
    left = _Pieces(pieces.call[~gone], pieces.ns[~gone], pieces.cause[~gone], pieces.region[~gone])
    return woken, lag, left


def _crew_asleep(setting: Setting, thread: int) -> IntervalSet:
    """When every thread of a crew is known to sleep and no other of the process, its data feeder say, can be shown
    to run for it."""
    found: IntervalSet | None = None
    for member in setting.crews.members(thread).tolist():
        evidence, life = setting.hosts.evidence(member), lifetime(setting.trace, member)
        asleep = evidence.asleep
        if life is not None and evidence.is_known:  # a thread that is not there does not work either
            low, high = setting.trace.span_ns
            gone = complement(IntervalSet(np.array([life[0]], np.int64), np.array([life[1]], np.int64)), low, high)
            asleep = union(np.concatenate((asleep.start, gone.start)), np.concatenate((asleep.end, gone.end)))
        found = asleep if found is None else intersect(found, asleep)
    if found is None or len(found.start) == 0:
        return EMPTY
    for other in setting.hosts.running_elsewhere(thread):
        if setting.crews.leader[other] != setting.crews.leader[thread] and other not in set(setting.calls.thread):
            steps = running(setting.hosts, other)
            until = np.append(steps.time[1:], setting.trace.span_ns[1])
            runs = steps.value != NONE
            found = subtract(found, union(steps.time[runs], until[runs]))
    return found


@dataclass(frozen=True)
class _Waits:
    operation: Int
    by_start: BoolArray
    for_room: BoolArray
    lag: Int
    cost: Int


def _waits(
    setting: Setting, order: npt.NDArray[np.intp], start: Int, end: Int, kind: npt.NDArray[np.int8], launch: Int
) -> _Waits:
    """What each waiting call waited for: the operation that ended last before it returned, of those it knew of."""
    table, calls = setting.trace.operations, setting.calls
    count = len(order)
    operation = np.full(count, NONE, np.int64)
    by_start = np.zeros(count, bool)
    cost = end - start
    process = np.array([thread.process for thread in setting.trace.threads], np.int64)[calls.thread[order]]
    waited = np.zeros(count, np.int64)
    for member in np.unique(calls.thread[order]).tolist():
        mine = calls.thread[order] == member
        blocked = setting.hosts.blocked(member)
        waited[mine] = Coverage(blocked).within(start[mine], end[mine])
    syncs = np.isin(kind, (CallClass.SYNC, CallClass.ALLOC)) & (waited > 0)
    launched = np.where(launch >= 0, start[np.maximum(launch, 0)], table.start_ns) if count else table.start_ns
    for number in np.unique(process[syncs]).tolist():
        rows = np.flatnonzero(syncs & (process == number))
        mine = np.flatnonzero(table.process == number)
        operation[rows] = _latest_finished(
            mine, table.start_ns[mine], table.end_ns[mine], launched[mine], start[rows], end[rows]
        )
    finished = np.where(operation != NONE, table.end_ns[np.maximum(operation, 0)], start) if len(table) else start
    real = syncs & (finished > start)  # it had to wait; else what it asked for was done already
    plain = syncs & (kind == CallClass.SYNC)
    quick = int(np.median(cost[plain & ~real])) if (plain & ~real).any() else USUAL_QUICK_SYNC_NS
    returning = int(np.median((end - finished)[plain & real])) if (plain & real).any() else USUAL_RETURN_NS
    cost = np.where(plain & real, np.minimum(cost, quick), np.where(plain, cost, np.maximum(cost - waited, 0)))
    pageable = (table.source == MemoryKind.PAGEABLE) | (table.target == MemoryKind.PAGEABLE)
    copies = np.flatnonzero((table.kind == OpKind.MEMCPY) & (launch >= 0))
    call = launch[copies]
    blocking = kind[call] == CallClass.BLOCKING_COPY
    until_end = (blocking | pageable[copies]) & (end[call] >= table.end_ns[copies])
    until_end &= end[call] > table.start_ns[copies]
    until_start = (blocking | pageable[copies]) & ~until_end & (end[call] > table.start_ns[copies])
    operation[call[until_end | until_start]] = copies[until_end | until_start]
    by_start[call[until_start]] = True
    for_room = setting.hosts.queue_full[order] & (operation == NONE)
    for number in np.unique(process[for_room]).tolist():
        rows = np.flatnonzero(for_room & (process == number))
        mine = np.flatnonzero(table.process == number)
        by_begin = mine[np.argsort(table.start_ns[mine], kind="stable")]
        place = np.searchsorted(table.start_ns[by_begin], end[rows], side="left") - 1
        operation[rows[place >= 0]] = by_begin[place[place >= 0]]
    for_room &= operation != NONE
    by_start[for_room] = True
    launches = (kind == CallClass.LAUNCH) & ~for_room
    cost[for_room] = int(np.median((end - start)[launches])) if launches.any() else USUAL_ARRIVAL_NS
    done = (
        np.where(by_start, table.start_ns[np.maximum(operation, 0)], table.end_ns[np.maximum(operation, 0)])
        if len(table)
        else end
    )
    lag = np.where(operation != NONE, end - done, 0)
    lag = np.where(plain & ~real, np.minimum(lag, returning), lag)
    held = call[until_end | until_start]
    cost[held] = np.clip(table.start_ns[copies[until_end | until_start]] - start[held], 0, USUAL_ARRIVAL_NS)
    return _Waits(operation, by_start, for_room, lag, cost)


def _latest_finished(rows: Int, begin: Int, finish: Int, launched: Int, low: Int, high: Int) -> Int:
    """Of the operations launched before ``low``, the one that finished last before ``high``; NONE without any."""
    order = np.lexsort((launched, finish))
    place = np.searchsorted(finish[order], high, side="right") - 1
    found = np.full(len(low), NONE, np.int64)
    open_ = np.flatnonzero(place >= 0)
    for _ in range(64):  # operations of other threads, launched later, lie between: rarely more than a few
        if len(open_) == 0:
            break
        row = order[place[open_]]
        known = (launched[row] <= low[open_]) & (begin[row] < high[open_])
        found[open_[known]] = rows[row[known]]
        open_ = open_[~known]
        place[open_] -= 1
        open_ = open_[place[open_] >= 0]
    return found


@dataclass(frozen=True)
class _StreamOrder:
    arrival: Int
    from_call_end: BoolArray
    before: Int
    switch: Int
    also_after: Int
    hold: Int


def _stream_order(setting: Setting, launch: Int, call_start: Int, call_end: Int) -> _StreamOrder:
    """For each operation the one before it on its stream, and what held it up by how much."""
    table = setting.trace.operations
    count = len(table)
    never = np.iinfo(np.int64).min // 2
    by_stream = np.lexsort((table.end_ns, table.start_ns, table.stream, table.process, table.device))
    same = np.ones(count, bool)
    same[:1] = False
    for column in (table.stream, table.process, table.device):
        ordered = column[by_stream]
        same[1:] &= ordered[1:] == ordered[:-1]
    before = np.full(count, NONE, np.int64)
    before[by_stream[1:]] = np.where(same[1:], by_stream[:-1], NONE)
    # Work without a call (page migrations) on a stream of its own follows what ended last on the device.
    lost = np.flatnonzero((launch < 0) & (before < 0))
    before[lost] = _ended_last(setting, lost)
    has_call = launch >= 0
    launched, finished = np.full(count, never), np.full(count, never)
    launched[has_call], finished[has_call] = call_start[launch[has_call]], call_end[launch[has_call]]
    from_end = has_call & (finished - launched >= LONG_CALL_NS) & (table.start_ns >= finished - USUAL_ARRIVAL_NS)
    launched = np.where(from_end, finished, launched)
    free = np.where(before >= 0, table.end_ns[np.maximum(before, 0)], never)
    after_free, after_launch = table.start_ns - free, table.start_ns - launched
    idle_before = has_call & ~from_end & (free < launched) & (after_launch <= ARRIVAL_LIMIT_NS)
    usual_arrival = int(np.quantile(after_launch[idle_before], 0.25)) if idle_before.any() else USUAL_ARRIVAL_NS
    # What had arrived before its stream was free was held up by its stream.
    queued = (after_free <= SWITCH_LIMIT_NS) & (before >= 0) & (~has_call | (launched + usual_arrival <= free))
    arrived = ~queued & has_call & (after_launch <= ARRIVAL_LIMIT_NS)
    usual_switch = int(np.median(np.maximum(after_free[queued], 0))) if queued.any() else USUAL_SWITCH_NS
    switch = np.where(queued, after_free, np.minimum(usual_switch, after_free))
    arrival = np.where(arrived, after_launch, np.minimum(np.where(from_end, 0, usual_arrival), after_launch))
    earliest = np.maximum(np.where(has_call, launched + arrival, never), np.where(before >= 0, free + switch, never))
    unknown = earliest <= never // 2
    late = np.flatnonzero(~unknown & (table.start_ns > earliest))
    also = np.full(count, NONE, np.int64)
    also[late] = _held_by(setting, late)
    earliest = np.where(also >= 0, np.maximum(earliest, table.end_ns[np.maximum(also, 0)]), earliest)
    hold = np.where(unknown, 0, table.start_ns - earliest)
    return _StreamOrder(arrival, from_end, before, switch, also, hold)


def _held_by(setting: Setting, late: npt.NDArray[np.intp]) -> Int:
    """The operation on the same device whose end let each late one start, if one ended just before; else NONE."""
    table = setting.trace.operations
    other = _ended_last(setting, late)
    near = (other >= 0) & (table.start_ns[late] - table.end_ns[np.maximum(other, 0)] <= SWITCH_LIMIT_NS)
    return np.where(near, other, NONE)


def _ended_last(setting: Setting, rows: npt.NDArray[np.intp]) -> Int:
    """The operation of the same device that ended last before each of these started; NONE without one."""
    table = setting.trace.operations
    found = np.full(len(rows), NONE, np.int64)
    for device in np.unique(table.device[rows]).tolist():
        everyone = np.flatnonzero(table.device == device)
        by_end = everyone[np.lexsort((table.start_ns[everyone], table.end_ns[everyone]))]
        mine = np.flatnonzero(table.device[rows] == device)
        place = np.searchsorted(table.end_ns[by_end], table.start_ns[rows[mine]], side="right") - 1
        other = by_end[np.maximum(place, 0)]
        good = (place >= 0) & (table.start_ns[other] < table.start_ns[rows[mine]])
        found[mine[good]] = other[good]
    return found


def _event_order(start: Int, end: Int, waits_for: Int, op_start: Int) -> Int32:
    """Events such that what each depends on comes before it.

    Calls begin (and, unless they wait, end) at their start, waiting calls end at their end, operations come at
    their start. At one instant ends come first, then the calls that follow them, then what those launch.
    """
    calls, waiting = np.arange(len(start)), np.flatnonzero(waits_for != NONE)
    key = np.concatenate((start, op_start, end[waiting]))
    rank = np.repeat(np.array([1, 2, 0], np.int8), (len(start), len(op_start), len(waiting)))
    event = np.concatenate((2 * calls, ~np.arange(len(op_start)), 2 * waiting + 1))
    ordered: Int32 = event[np.lexsort((rank, key))].astype(np.int32)
    return ordered
