"""What each waiting call waited for, and what it would cost without: edges of the graph.

How long calls waited, `boundby.attribution.gaps` tells.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.host_state import FULL_QUEUE_DEPTH
from boundby.attribution.timeline import Timeline
from boundby.model.arrays import (
    BoolArray,
    Int32Array,
    Int64Array,
    as_rows,
    as_slice,
    compact,
    factorize,
    in_order,
    is_in,
    median,
    offsets,
    pick,
    places,
    running_maximum,
    scattered,
    unique,
)
from boundby.model.intervals import CoveredTime
from boundby.model.late import expression
from boundby.model.scale import CLOCK_ERROR_NS, HABIT, HALF, LAUNCH_NS, MANY, ROOM, SMALL, TENFOLD
from boundby.native.passes import NONE
from boundby.replay.events import Command, Edges, Events, Points
from boundby.replay.streams import NEVER, USUAL_ARRIVAL_NS, StreamQueues
from boundby.trace.facts import CLOCKS_APART_NS
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass

_FREE = expression(r"^(?:cudaFree|cuMemFree|hipFree)(?:_v\d+)*$")

# Fallbacks where a trace shows no example.
USUAL_QUICK_SYNC_NS = 1_500  # a sync for what is done already
LONG_SYNC_NS = CLOCKS_APART_NS  # longer than one for what is done already
USUAL_RETURN_NS = LAUNCH_NS // 2  # from the end of what a sync waits for to its return
# Launches of one stream that are not finished; the next one waits for room. Measured: 880 to 1,024.
USUAL_QUEUE_LIMIT = 1_024
# No shorter queue is known; and one is known to be full if so many launches found it as full.
LEAST_QUEUE, LEAST_PLATEAU = USUAL_QUEUE_LIMIT // 2, MANY
# A launch that waited for room ends within so many times a launch's usual time.
MOST_SLOT_LAG = TENFOLD
# More edges than this for each call and operation (but for few of these), from many device-wide syncs of many streams,
# are not followed one by one: they would take most memory. A real trace with 804 streams has 80 for each.
EDGES_PER_EVENT, LEAST_EDGES = 128, 200_000
# Allocations of a kind of which more than this part returned before the device was done do not wait for it.
CONTRADICTED_FRACTION = SMALL
# A slope (0: never waits, 1: always) is known if its standard error is below this.
SLOPE_ERROR = 0.2
# Who sleeps for so much of the time in which the device still works waits for it.
MOSTLY_ASLEEP = HALF
# Fewer allocations than this determine no slope.
LEAST_ALLOCATIONS = HABIT


class Waits(Struct, frozen=True):
    """Per call (rows of Calls): what it waits for (``at[call]:at[call + 1]`` of ``what``), the lag from then to its
    return, what it costs without the wait. ``queue_slot``: the operation that must have ended before it can launch.
    ``is_open``: whether it waits at all, its times do not tell; what it then would wait for is told if it ``holds`` or
    not."""

    at: Int32Array
    what: npt.NDArray[np.integer]
    holds: BoolArray  # it does wait
    by_start: BoolArray  # the call returns by the operation's start, not its end
    lag: Int64Array
    cost: Int64Array
    queue_slot: Int32Array
    queue_slot_lag: Int64Array
    held_by_slot: BoolArray
    is_open: BoolArray


def find_waits(timeline: Timeline, points: Points, events: Events, queues: StreamQueues) -> Waits:
    """Syncs, stalled allocations, blocking and pageable copies, launches without room."""
    table, calls = timeline.trace.operations, timeline.calls
    start, end, kind = calls.start_ns, calls.end_ns, calls.kind
    allocations, is_open = _waiting_allocations(timeline, points, queues)
    holds = np.ones(len(calls), bool)
    holds[is_open] = is_in(np.flatnonzero(is_open), allocations)
    allocations = unique(np.concatenate((allocations, np.flatnonzero(is_open))))
    edges = [_told_syncs(points, events, queues, start), _all_streams(points, allocations, queues, start)]
    edges[0] = _without_stale(edges[0], points, table.end_ns, start, end)
    has_edge = np.zeros(len(calls), bool)
    for number, edge_set in enumerate(edges):
        edges[number] = _plausible(edge_set, table.end_ns, end)
        has_edge[edges[number].who] = True
    untold = np.flatnonzero((kind == CallClass.SYNC) & ~has_edge)
    edges.append(_guessed(timeline, untold[timeline.waits.blocked_ns[untold] > 0], points.process, queues.launched))
    copies, by_start = _copies(timeline)
    edges.append(copies)
    who, what = _put_in_order(edges)
    at = offsets(who, len(calls))
    waiting = at[1:] > at[:-1]
    length = end - start
    usual = _usual_launch(timeline, length, waiting)
    slot, queue_slot_lag, held = _queue_slots(timeline, queues, usual)
    queue_slot_lag = _hold_in_driver(timeline, Edges(who, what), slot, queue_slot_lag, held, usual)
    lag, cost = _lags(timeline, length, Edges(who, what), by_start, held, usual)
    if not holds.all():
        cost = np.where(holds, cost, length)
    slot, lag_ns = compact(slot), compact(queue_slot_lag)
    return Waits(at.astype(np.int32), what, holds & waiting, by_start, lag, cost, slot, lag_ns, held, is_open)


def _put_in_order(edges: list[Edges]) -> Edges:
    """All edges by their calls, in as little memory as holds them: calls that wait for hundreds of streams have most of
    a trace's edges. Empties the list."""
    who, what = (np.concatenate(columns, dtype=np.int32) for columns in zip(*edges, strict=True))
    edges.clear()
    order = in_order(who, what)
    return Edges(who[order], what[order])


def _waiting_allocations(
    timeline: Timeline, points: Points, queues: StreamQueues
) -> tuple[npt.NDArray[np.intp], BoolArray]:
    """Allocation calls that wait for the device, judged by function and region; and of which that is open (a mask over
    calls).

    None of a kind that returns before what was launched earlier is done. Where the calls themselves do not tell, those
    in which their thread sleeps until the device is done wait; where that is not seen either, those that free device
    memory, as CUDA has it, and others that return sooner after the device is done than it took.
    """
    table, calls = timeline.trace.operations, timeline.calls
    rows, is_open = np.flatnonzero(calls.kind == CallClass.ALLOC), np.zeros(len(calls), bool)
    if len(rows) == 0 or len(table) == 0:
        return rows[:0], is_open
    start, end = calls.start_ns[rows], calls.end_ns[rows]
    edges = _all_streams(points, rows, queues, calls.start_ns)
    done = np.full(len(calls), NEVER)
    np.maximum.at(done, edges.who, table.end_ns[edges.what])
    done = done[rows]
    region = timeline.call_region[rows]
    _, group = factorize(calls.name[rows], points.process[rows], region)
    waits = np.zeros(len(rows), bool)
    is_free = np.array([bool(_FREE.match(name)) for name in timeline.trace.names], bool)[calls.name]
    for number in range(int(group.max()) + 1):
        is_own = group == number
        could = is_own & (done > start)
        if could.any() and (done > end + CLOCK_ERROR_NS)[could].mean() > CONTRADICTED_FRACTION:
            continue
        length, pending = (end - start)[is_own], np.maximum(done - start, 0)[is_own]
        grows = _grows(length, pending)
        soon = median((length - pending)[pending > 0]) <= median(pending[pending > 0]) if could.any() else False
        shown = grows if grows is not None else _sleep_shows(timeline, rows[could], np.minimum(done, end)[could])
        waits[is_own] = shown if shown is not None else is_free[rows[is_own][0]] or soon
        # One that never found the device at work may wait for it as well.
        is_open[rows[could if could.any() else is_own]] = shown is None and not is_free[rows[is_own][0]]
    return rows[waits & (done <= end + CLOCK_ERROR_NS)], is_open


def _sleep_shows(timeline: Timeline, rows: npt.NDArray[np.intp], until_ns: Int64Array) -> bool | None:
    """True if threads sleep in these calls up to where the device is done, by their context switches; False if they do
    not, though they sleep in syncs; None: these do not tell."""
    calls = timeline.calls
    asleep_ns = pending_ns = in_syncs_ns = of_syncs_ns = 0
    for thread in unique(calls.thread[rows]).tolist():
        evidence = timeline.host_state.evidence(thread)
        if evidence.off_cpu is None or evidence.is_thinned:
            return None
        away, is_own = CoveredTime(evidence.off_cpu), calls.thread[rows] == thread
        syncs = np.flatnonzero((calls.thread == thread) & (calls.kind == CallClass.SYNC))
        asleep_ns += int(away.within(calls.start_ns[rows[is_own]], until_ns[is_own]).sum())
        in_syncs_ns += int(away.within(calls.start_ns[syncs], calls.end_ns[syncs]).sum())
        pending_ns += int((until_ns - calls.start_ns[rows])[is_own].sum())
        of_syncs_ns += int(timeline.waits.blocked_ns[syncs].sum())
    if pending_ns <= LONG_SYNC_NS * len(rows):  # switches and calls are stamped by two clocks
        return None
    if asleep_ns >= MOSTLY_ASLEEP * pending_ns:
        return True
    return False if of_syncs_ns and in_syncs_ns >= MOSTLY_ASLEEP * of_syncs_ns else None


def _grows(length: Int64Array, pending: Int64Array) -> bool | None:
    """True if calls take longer by as much as the device has still to do when they begin, by the slope of a straight
    line; None: they do not differ enough to determine one."""
    spread = pending - pending.mean()
    square = float((spread**2).sum())
    if np.ptp(pending) <= CLOCKS_APART_NS or len(length) < LEAST_ALLOCATIONS:  # clocks alone may differ so
        return None
    slope = float((spread * length).sum()) / square
    rest = length - length.mean() - slope * spread
    if (float((rest**2).sum()) / (len(length) - 2) / square) ** 0.5 >= SLOPE_ERROR:
        return None
    return slope > 1 / 2


def _told_syncs(points: Points, events: Events, queues: StreamQueues, start: Int64Array) -> Edges:
    """Syncs whose stream or event the capture names, and device-wide ones."""
    parts = [events.syncs]
    rows = np.flatnonzero((points.command == Command.STREAM_SYNC) & (points.stream >= 0))
    if len(rows):
        distinct, inverse = factorize(points.device[rows], points.process[rows], points.stream[rows])
        keys = [
            [
                number
                for queue, number in queues.place.items()
                if queue[1:] == (process, stream) and device in (NONE, queue[0])
            ]
            for device, process, stream in distinct.tolist()
        ]
        key = np.array([numbers[0] if len(numbers) == 1 else NONE for numbers in keys], np.int64)[inverse]
        tail = queues.tail(key, start[rows])
        parts.append(Edges(rows[tail >= 0].astype(np.int64), tail[tail >= 0]))
    parts.append(_all_streams(points, np.flatnonzero(points.command == Command.DEVICE_SYNC), queues, start))
    return Edges(*(np.concatenate(columns, dtype=np.int32) for columns in zip(*parts, strict=True)))


def _all_streams(points: Points, rows: npt.NDArray[np.intp], queues: StreamQueues, start: Int64Array) -> Edges:
    """These calls wait for all streams of their process, on their device where it is told."""
    parts = [Edges(np.empty(0, np.int32), np.empty(0, np.int32))]
    most = max(EDGES_PER_EVENT * (len(start) + len(queues.launched)), LEAST_EDGES)
    if 0 < len(rows) * queues.count <= most:
        device, process, _ = np.array([*queues.place], np.int64).T
        number = np.array([*queues.place.values()], np.int64)
        of_process, of_device, since = points.process[rows], points.device[rows], start[rows]
        together = max(ROOM // len(rows), 1)  # streams
        for first in range(0, queues.count, together):
            part = slice(first, first + together)
            is_on = (of_device == NONE) | (of_device == device[part, None])
            stream, row = np.nonzero((of_process == process[part, None]) & is_on)
            tail = queues.tail(number[part][stream], since[row])
            parts.append(Edges(rows[row[tail >= 0]].astype(np.int32), tail[tail >= 0].astype(np.int32)))
    return Edges(np.concatenate([part.who for part in parts]), np.concatenate([part.what for part in parts]))


def _without_stale(edges: Edges, points: Points, op_end: Int64Array, start: Int64Array, end: Int64Array) -> Edges:
    """Without event syncs that lasted although all they are told to wait for was done: a later record of the event
    has no row."""
    stale = points.command == Command.EVENT_SYNC
    if not stale.any():
        return edges
    stale &= end - start > LONG_SYNC_NS
    stale[edges.who[op_end[edges.what] + CLOCKS_APART_NS > start[edges.who]]] = False
    return Edges(edges.who[~stale[edges.who]], edges.what[~stale[edges.who]])


def _plausible(edges: Edges, op_end: Int64Array, call_end: Int64Array) -> Edges:
    """Without those whose call returned before the operation ended."""
    over = op_end[edges.what]
    over -= call_end[edges.who]
    good = over <= CLOCKS_APART_NS
    return edges if good.all() else Edges(edges.who[good], edges.what[good])


def _guessed(timeline: Timeline, waits: npt.NDArray[np.intp], process: Int32Array, launched: Int64Array) -> Edges:
    """For waits of which nothing is told: of the operations launched before, the one that ended last before the
    call returned."""
    table, calls = timeline.trace.operations, timeline.calls
    parts = [Edges(np.empty(0, np.int64), np.empty(0, np.int64))]
    for number in unique(process[waits]).tolist():
        rows = waits[process[waits] == number]
        rows_of = np.flatnonzero(table.process == number)
        last = _latest_finished(
            rows_of,
            table.start_ns[rows_of],
            table.end_ns[rows_of],
            launched[rows_of],
            calls.start_ns[rows],
            calls.end_ns[rows],
        )
        parts.append(Edges(rows[last >= 0].astype(np.int64), last[last >= 0]))
    return Edges(np.concatenate([part.who for part in parts]), np.concatenate([part.what for part in parts]))


def _latest_finished(
    rows: npt.NDArray[np.intp],
    begin: Int64Array,
    finish: Int64Array,
    launched: Int64Array,
    low: Int64Array,
    high: Int64Array,
) -> Int64Array:
    """Of the operations launched before ``low``, the one that finished last before ``high``; NONE without any."""
    order = np.lexsort((launched, finish))
    position = np.searchsorted(finish[order], high, side="right") - 1
    finished = np.full(len(low), NONE, np.int64)
    open_ = np.flatnonzero(position >= 0)
    for _ in range(64):  # operations of other threads, launched later, lie between: rarely more than a few
        if len(open_) == 0:
            break
        row = order[position[open_]]
        is_before = (launched[row] <= low[open_]) & (begin[row] < high[open_])
        finished[open_[is_before]] = rows[row[is_before]]
        open_ = open_[~is_before]
        position[open_] -= 1
        open_ = open_[position[open_] >= 0]
    return finished


def _copies(timeline: Timeline) -> tuple[Edges, BoolArray]:
    """Copies that hold their call until they end, or (``by_start``) until they start."""
    table, calls = timeline.trace.operations, timeline.calls
    by_start = np.zeros(len(calls), bool)
    copies = np.flatnonzero((table.kind == OpKind.MEMCPY) & (calls.of_operation >= 0))
    call = calls.of_operation[copies]
    end = calls.end_ns[call]
    waits = (calls.kind[call] == CallClass.BLOCKING_COPY) | table.is_pageable[copies]
    waits &= end > table.start_ns[copies] - CLOCKS_APART_NS
    until_start = waits & (end < table.end_ns[copies])
    by_start[call[until_start]] = True
    return Edges(call[waits], copies[waits].astype(np.int64)), by_start


def _queue_slots(timeline: Timeline, queues: StreamQueues, usual: int) -> tuple[Int32Array, Int64Array, BoolArray]:
    """The operation that must have ended before each call can launch: the one as many launches earlier on the
    stream as its queue is long. How long that is, the launches tell that were held up."""
    table, calls = timeline.trace.operations, timeline.calls
    slot, is_full = np.full(len(calls), NONE, np.int32), np.zeros(len(calls), bool)
    for rows in queues.rows:
        own = as_slice(rows)  # nothing is copied where the operations are those of one stream
        chosen = as_rows(calls.of_operation[own] >= 0)
        order = rows[chosen]
        if len(order) <= LEAST_QUEUE:
            continue
        call, ended = calls.of_operation[own][chosen], table.end_ns[own][chosen]
        last = as_rows(np.append(call[1:] != call[:-1], True))  # of several operations of a call the one that ends last
        order, call, ended = order[last], call[last], ended[last]
        finished = places(running_maximum(ended), calls.end_ns[call], side="right")
        position = np.arange(1, len(call) + 1)
        depth = position - finished
        is_stuck = timeline.host_state.queue_full[call] & (depth >= FULL_QUEUE_DEPTH)
        is_full[call[is_stuck]] = True
        # Queues are counted in more than launches: one that was held up went on when the last operation so far ended.
        room = finished - 1
        position -= _queue_limit(depth, is_stuck) + 1
        np.minimum(room, position, out=room, where=~is_stuck if is_stuck.any() else True)
        has_room = as_rows(room >= 0)
        slot[call[has_room]] = order[room[has_room]]
    # A launch held up by something else than its own queue is just a long launch.
    held = pick(table.end_ns, slot, NEVER) > calls.start_ns
    late = np.flatnonzero(held | is_full & (slot >= 0) if is_full.any() else held)
    by_ns = calls.end_ns[late] - table.end_ns[slot[late]] - usual
    is_held = held[late] & (by_ns >= -usual) & (by_ns <= MOST_SLOT_LAG * usual)
    is_held |= is_full[late] & (by_ns <= 2 * (calls.end_ns[late] - calls.start_ns[late]))
    held[late] = is_held
    return slot, scattered(len(calls), late[is_held], by_ns[is_held]), held


def _hold_in_driver(
    timeline: Timeline, waits: Edges, slot: Int32Array, lag_ns: Int64Array, held: BoolArray, usual: int
) -> Int64Array:
    """Calls that the driver holds while another thread waits launch once what that one waits for is done, as those do
    that wait for room. Fills ``slot`` and ``held``; returns ``lag_ns`` with theirs."""
    held_with = timeline.host_state.held_with
    rows = np.flatnonzero(held_with >= 0)
    if not len(rows):
        return lag_ns
    end_ns = timeline.trace.operations.end_ns
    last = np.full(len(held_with), NONE, np.int64)
    order = np.argsort(end_ns[waits.what], kind="stable")
    last[waits.who[order]] = waits.what[order]  # the last write wins: what ends last
    what = last[held_with[rows]]
    by_ns = timeline.calls.end_ns[rows] - pick(end_ns, what, NEVER) - usual
    good = (what >= 0) & (by_ns >= 0)
    lag_ns = lag_ns.copy()
    slot[rows[good]], lag_ns[rows[good]], held[rows[good]] = what[good], by_ns[good], True
    return lag_ns


def _queue_limit(depth: Int64Array, is_stuck: BoolArray) -> int:
    """How many launches of a stream may be unfinished: the most that ever were, if that was so again and again.
    ``depth``: how many were when each one returned."""
    if is_stuck.any():
        return max(int(median(depth[is_stuck])), 1)
    most = int(depth.max())
    again = np.count_nonzero(depth >= most - 1)
    return most if most >= LEAST_QUEUE and again >= LEAST_PLATEAU else max(USUAL_QUEUE_LIMIT, most)


def _usual_launch(timeline: Timeline, length: Int64Array, waiting: BoolArray) -> int:
    """How long a launch takes that waits for nothing; ``length``: of all calls."""
    launches = (timeline.calls.kind == CallClass.LAUNCH) & ~timeline.host_state.queue_full & ~waiting
    return int(median(length[launches])) if launches.any() else USUAL_ARRIVAL_NS


def _lags(
    timeline: Timeline, length: Int64Array, edges: Edges, by_start: BoolArray, held: BoolArray, usual: int
) -> tuple[Int64Array, Int64Array]:
    """From the end of what each call waited for to its return, and its own time without the wait."""
    table, calls = timeline.trace.operations, timeline.calls
    start, end, kind = calls.start_ns, calls.end_ns, calls.kind
    who, what = edges
    cost = np.where(held, np.minimum(length, usual), length) if held.any() else length.copy()
    lag = np.zeros(len(calls), np.int64)
    sync = kind == CallClass.SYNC
    first = np.flatnonzero(np.append(True, who[1:] != who[:-1])[: len(who)])  # in order of the calls
    rows, done = who[first], table.end_ns[what]
    if by_start.any():
        begun = np.flatnonzero(by_start[who])
        done[begun] = table.start_ns[what[begun]]
    done = np.maximum.reduceat(done, first) if len(first) else done
    real = done > start[rows]  # it had to wait; else what it asked for was done already
    is_quick = sync & (length <= LONG_SYNC_NS)  # a longer one waited for what is not on record
    is_quick[rows[real]] = False
    quick = int(median(length[is_quick])) if is_quick.any() else USUAL_QUICK_SYNC_NS
    sync, allocation, length = sync[rows], kind[rows] == CallClass.ALLOC, length[rows]
    until = end[rows] - done
    returning = int(median(until[sync & real])) if (sync & real).any() else USUAL_RETURN_NS
    # An allocation waits first and then does its own work.
    own = np.where(real, np.clip(until, 0, length), length)
    lag[rows] = np.where(allocation, own, np.where(sync & ~real, np.minimum(until, returning), until))
    copy = np.where(sync, np.where(real, np.minimum(length, quick), cost[rows]), np.minimum(length, usual))
    cost[rows] = np.where(allocation, own, copy)
    return lag, cost
