"""The host's side of the graph: what each thread (or logical thread) does, one thing after the other.

A node is a CUDA call, or an instant without length: where a thread begins, wakeups another, or is woken.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.host_state import DISPATCH_LIMIT_NS
from boundby.attribution.regions import ROOT
from boundby.attribution.segments import concatenate
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import (
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
    as_rows,
    compact,
    group_sums,
    in_order,
    is_even,
    is_in,
    joined,
    narrow,
    shared,
    spread,
    unique,
)
from boundby.model.causes import CAUSES, Cause
from boundby.model.intervals import IntervalSet, contains, intersect, union
from boundby.model.library import int64, integers, run
from boundby.model.scale import SMALL
from boundby.native.passes import NONE, cut_intervals
from boundby.replay.wakeups import NO_WAKEUPS, Wakeups, find_hand_overs, find_wakeups, makes_ahead
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass

# Two threads take turns if for no more than this part of the time both sleep or neither does.
ALTERNATE_FRACTION = SMALL


class WindowEdges(NamedTuple):
    """Where devices' windows begin and end on the host, which is at work there while the device idles: instants of the
    thread that is responsible then. Columns of equal length."""

    device: Int64Array
    time_ns: Int64Array
    node: Int32Array


NO_EDGES = WindowEdges(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32))


class HostNodes(Struct, frozen=True):
    """Nodes ordered by chain and start; columns of equal length, then the pieces of the intervals before them."""

    chain: Int32Array
    thread: Int32Array
    start_ns: Int64Array
    end_ns: Int64Array
    call: Int32Array | None  # row in Calls; NONE: an instant. None: each node is the call of the same number
    kind: Int8Array  # CallClass
    interval_ns: Int64Array  # before the node; negative where calls of a logical thread overlap
    follows: Int32Array  # the node of another chain that woke this one; NONE
    follow_lag_ns: Int64Array
    piece_node: Int32Array
    piece_ns: Int32Array
    piece_cause: Int8Array
    piece_region: Int32Array
    disagreements: tuple[Disagreement, ...]  # with the account
    edges: WindowEdges


def find_host_nodes(timeline: Timeline) -> HostNodes:
    """The nodes of all threads that call CUDA, and of those that wake them or are woken by them."""
    calls = timeline.calls
    all_wakeups = find_wakeups(timeline)
    wakeups = _relevant(timeline, all_wakeups, unique(calls.thread))
    leader = timeline.logical_threads.leader.copy()
    linked = unique(np.concatenate((wakeups.thread, wakeups.waker)))
    leader[linked] = linked  # who is known to wait for whom need not be taken for one
    signal = _outside_calls(timeline, wakeups.waker, wakeups.signal)
    given = find_hand_overs(timeline, wakeups)
    made = _outside_calls(timeline, given.maker, given.made)
    taken = np.maximum(_outside_calls(timeline, given.taker, given.taken), made)
    begins = _beginnings(timeline, linked)
    edges, responsible = _edges(timeline, leader)
    thread, start, end, row, kind, role = (
        joined(columns)
        for columns in zip(
            _nodes(calls.thread, calls.start_ns, 3, calls.end_ns, kind=calls.kind),
            _nodes(wakeups.thread, wakeups.end, 1),
            _nodes(wakeups.waker, signal, 2),  # what it takes at that instant it takes first: that makes room
            _nodes(given.maker, made, 1),
            _nodes(given.taker, taken, 1),
            _nodes(linked, begins, 0),
            _nodes(responsible, _outside_calls(timeline, responsible, edges.time_ns), 0),
            strict=True,
        )
    )
    chain = spread(int(leader[thread[0]]), len(thread)) if is_even(thread) else leader[thread]
    order, count = in_order(chain, start, end, role), len(chain)
    follows, lag = np.full(count, NONE, np.int32), np.zeros(count, np.int64)
    of_wake = of_edge = np.empty(0, np.int64)
    if count > len(calls):  # else nobody wakes anybody
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        lengths = len(wakeups.thread), len(wakeups.thread), len(given.made), len(given.made), len(linked)
        of_wake, of_signal, of_made, of_taken, _, of_edge = np.split(rank[len(calls) :].copy(), np.cumsum(lengths))
        del rank
        follows[of_wake], lag[of_wake] = of_signal, wakeups.end - signal
        follows[of_taken], lag[of_taken] = of_made, np.minimum(given.lag, taken - made)
    chain, thread, row, kind = narrow(chain[order]), narrow(thread[order]), row[order], kind[order]
    start, end = shared(start[order], calls.start_ns), shared(end[order], calls.end_ns)
    is_each_a_call = isinstance(order, slice) and count == len(calls)
    del order, role
    is_call = row >= 0
    _begin_later(timeline, chain, start, end, is_call, follows, lag)
    low, high = _free_from(chain, start, end), start
    if len(of_wake):
        high = start.copy()
        high[of_wake] = np.minimum(np.maximum(wakeups.begin, low[of_wake]), start[of_wake])
    np.minimum(low, high, out=low)
    pieces = _pieces(timeline, low, high, thread, wakeups, all_wakeups)
    disagreements = find_disagreements(timeline, thread, low, pieces.node, pieces.ns, pieces.cause)
    del low  # rather worked out again than kept for so long: most memory is taken here
    free_from = _free_from(chain, start, end)
    interval_ns = start - free_from
    if high is not start:
        interval_ns = np.minimum(interval_ns, 0) + np.maximum(high - free_from, 0)
    del free_from, high
    if not (timeline.trace.captured.osrt or len(timeline.trace.python_frames)):
        pieces, gone = _elastic(timeline, chain, start, end, is_call, follows, lag, pieces)
        interval_ns -= group_sums(gone.node, gone.ns, count)
    return HostNodes(
        chain=chain.astype(np.int32, copy=False),
        thread=thread.astype(np.int32, copy=False),
        start_ns=start,
        end_ns=end,
        call=None if is_each_a_call else row,
        kind=kind,
        interval_ns=interval_ns,
        follows=compact(follows),
        follow_lag_ns=compact(lag),
        piece_node=pieces.node,
        piece_ns=pieces.ns,
        piece_cause=pieces.cause,
        piece_region=pieces.region,
        disagreements=disagreements,
        edges=edges._replace(node=of_edge.astype(np.int32)),
    )


def _edges(timeline: Timeline, leader: Int64Array) -> tuple[WindowEdges, Int64Array]:
    """Those of threads of which a chain has calls, and whose they are; nodes are not known yet. And where the first gap
    begins for which one is responsible, which may not have called before."""
    callers = set(leader[unique(timeline.calls.thread)].tolist())
    instants: list[tuple[int, int, int]] = []
    for device in timeline.devices:
        owned = device.gaps.start_ns[device.gaps.thread >= 0][:1].tolist()
        begins = {device.low_ns, *(start for start in owned if device.low_ns < start < device.high_ns)}
        for bound, instant in (*((low, low) for low in sorted(begins)), (device.high_ns, device.high_ns - 1)):
            gap = int(device.gaps.at(np.array([instant]))[0])
            if gap >= 0 and instant < device.gaps.end_ns[gap]:
                thread = int(device.gaps.thread[gap])
                instants += [(device.index, bound, thread)] if thread >= 0 and int(leader[thread]) in callers else []
    index, time_ns, thread = np.array(instants, np.int64).reshape(-1, 3).T
    return WindowEdges(index, time_ns, np.zeros(0, np.int32)), thread


def _free_from(chain: npt.NDArray[Any], start: Int64Array, end: Int64Array) -> Int64Array:
    """Since when each node's chain has done nothing before it: the first one's begins with it."""
    free_from = np.empty_like(end)
    free_from[1:] = end[:-1]
    first = _first_nodes(chain)
    free_from[first] = start[first]
    return free_from


def _first_nodes(chain: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The first node of each chain."""
    if is_even(chain):
        return np.zeros(1, np.intp)
    return np.flatnonzero(np.append(True, chain[1:] != chain[:-1])[: len(chain)])


def _leading(timeline: Timeline, chain: Int64Array, is_call: BoolArray) -> dict[int, tuple[int, int, int, int]]:
    """Of each chain but the leading one of its process (the one with most calls): its nodes, and the leading one's."""
    process = timeline.trace.process_of_thread
    bounds = np.append(_first_nodes(chain), len(chain)).tolist()
    nodes = {int(chain[low]): (low, high) for low, high in itertools.pairwise(bounds)}
    leading: dict[int, tuple[int, int]] = {}
    for number, (low, high) in nodes.items():
        size = int(is_call[low:high].sum())
        leading[process[number]] = max(leading.get(process[number], (0, 0)), (size, -number))
    leader_of = {number: -leading[process[number]][1] for number in nodes}
    return {number: (*nodes[number], *nodes[leader]) for number, leader in leader_of.items() if leader != number}


def _begin_later(
    timeline: Timeline,
    chain: Int64Array,
    start: Int64Array,
    end: Int64Array,
    is_call: BoolArray,
    follows: Int32Array,
    lag: Int64Array,
) -> None:
    """Chains that begin in the middle of the trace were begun by the leading one of their process: their first node
    follows the last of that one before it. Fills ``follows`` and ``lag``."""
    for low, _, begin, stop in _leading(timeline, chain, is_call).values():
        call = begin + int(np.searchsorted(end[begin:stop], start[low], side="right")) - 1
        if call >= begin and follows[low] == NONE:
            follows[low], lag[low] = call, start[low] - end[call]


def _elastic(
    timeline: Timeline,
    chain: Int64Array,
    start: Int64Array,
    end: Int64Array,
    is_call: BoolArray,
    follows: Int32Array,
    lag: Int64Array,
    pieces: _Pieces,
) -> tuple[_Pieces, _Pieces]:
    """Where only context switches tell of sleeps, a thread beside the leading one that slept is taken to have waited
    for it: it goes on a measured time after the call of that one before. So does the leading one that wakes just as
    another falls asleep, if one of the two sleeps at any time. Fills ``follows`` and ``lag``; returns the
    pieces that are left, and those that are gone."""
    slept = np.zeros(len(chain), bool)
    slept[pieces.node[pieces.cause == Cause.HOST_BLOCKED]] = True
    tied = np.zeros(len(chain), bool)
    for low, high, begin, stop in _leading(timeline, chain, is_call).values():
        rows = low + np.flatnonzero(slept[low:high] & (follows[low:high] == NONE))
        position = begin + np.searchsorted(end[begin:stop], start[rows], side="right") - 1
        rows, position = rows[position >= begin], position[position >= begin]
        follows[rows], lag[rows] = position, start[rows] - end[position]
        tied[rows] = True
        back = begin + np.flatnonzero(slept[begin:stop] & (follows[begin:stop] == NONE) & ~tied[begin:stop])
        position = low + np.searchsorted(end[low:high], start[back], side="right") - 1
        since = start[back] - end[position]
        good = (position >= low) & (position + 1 < high) & (since <= DISPATCH_LIMIT_NS)
        good &= _alternate(timeline, int(chain[low]), int(chain[begin]))
        good &= slept[np.minimum(position + 1, high - 1)] & (end[position] >= np.append(0, end)[back])
        follows[back[good]], lag[back[good]] = position[good], since[good]
        tied[back[good]] = True
    gone = tied[pieces.node] & (pieces.cause == Cause.HOST_BLOCKED)
    return pieces.of(~gone), pieces.of(gone)


def _alternate(timeline: Timeline, one: int, other: int) -> bool:
    """Whether one of two threads sleeps at (nearly) any time of the trace, and the other one does not."""
    asleep = [timeline.host_state.evidence(thread).asleep for thread in (one, other)]
    span_ns, total_ns = timeline.trace.span_ns[1] - timeline.trace.span_ns[0], sum(each.total for each in asleep)
    both_ns = intersect(*asleep).total
    return both_ns + (span_ns - (total_ns - both_ns)) <= ALTERNATE_FRACTION * span_ns


def _nodes(
    thread: npt.NDArray[Any],
    start: Int64Array,
    role: int,
    end: Int64Array | None = None,
    *,
    kind: Int8Array | None = None,
) -> tuple[npt.NDArray[Any], ...]:
    """Columns of nodes: thread, start, end, row in Calls, class, order of equals."""
    count = len(thread)
    is_call = end is not None
    return (
        thread,
        start,
        start if end is None else end,
        np.arange(count, dtype=np.int32) if is_call else np.full(count, NONE, np.int32),
        np.full(count, int(CallClass.OTHER), np.int8) if kind is None else kind,
        np.full(count, role, np.int8),
    )


def _relevant(timeline: Timeline, wakeups: Wakeups, callers: npt.NDArray[Any]) -> Wakeups:
    """Wakeups among the threads that call CUDA, those that wake one of these, directly or not, and those that make what
    these take."""
    matter = set(callers.tolist())
    while True:
        more = set(wakeups.waker[is_in(wakeups.thread, sorted(matter))].tolist())
        waiting = set(wakeups.thread[is_in(wakeups.waker, sorted(matter))].tolist()) - matter
        more = (more | {thread for thread in waiting if makes_ahead(timeline, wakeups, thread)}) - matter
        if not more:
            break
        matter |= more
    kept = is_in(wakeups.thread, sorted(matter)) & is_in(wakeups.waker, sorted(matter))
    return Wakeups(*(column[kept] for column in wakeups)) if kept.any() else NO_WAKEUPS


def _beginnings(timeline: Timeline, threads: Int64Array) -> Int64Array:
    lifetimes = [timeline.host_state.lifetime(int(thread)) for thread in threads]
    return np.array([life[0] if life else 0 for life in lifetimes], np.int64)


def _outside_calls(timeline: Timeline, thread: Int64Array, time: Int64Array) -> Int64Array:
    """Instants on threads; those inside a CUDA call of the thread are put at its start."""
    time = time.copy()
    for number in unique(thread).tolist():
        rows = timeline.calls.rows_of(number)
        own = np.flatnonzero(thread == number)
        start, end = timeline.calls.start_ns[rows], timeline.calls.end_ns[rows]
        span = contains(IntervalSet(start, end), time[own])
        inside = span >= 0
        time[own[inside]] = start[span[inside]]
    return time


class _Pieces(Struct, frozen=True):
    node: Int32Array
    ns: Int32Array
    cause: Int8Array
    region: Int32Array

    def of(self, which: BoolArray) -> _Pieces:
        return _Pieces(self.node[which], self.ns[which], self.cause[which], self.region[which])


def _pieces(
    timeline: Timeline, low: Int64Array, high: Int64Array, thread: Int64Array, wakeups: Wakeups, told: Wakeups
) -> _Pieces:
    """The interval before each node, cut by what is done for its thread, as the account has it, and where.

    A sleep is the thread's own while others run whose part in it the graph has itself: callers of other chains, threads
    that are woken or wake, and those that wait for it. Who launches no kernel waits for input: its sleep is its own.
    """
    parts: list[tuple[Any, ...]] = [
        (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int8), np.empty(0, np.int32))
    ]
    linked = unique(np.concatenate((wakeups.thread, wakeups.waker)))
    everyone, callers = set(range(len(timeline.trace.threads))), set(unique(timeline.calls.thread).tolist())
    launched = timeline.calls.of_operation[timeline.trace.operations.kind <= OpKind.GRAPH]
    launchers = set(unique(timeline.calls.thread[launched[launched >= 0]]).tolist())
    state, of_range = timeline.host_state, timeline.ownership.regions.of_range
    for number in unique(thread).tolist():
        rows = as_rows((high > low) if is_even(thread) else (thread == number) & (high > low))
        members = {number} if number in linked else set(timeline.logical_threads.members(number).tolist())
        fed = unique(told.thread[told.waker == number])
        fed = fed[~is_in(fed, told.waker)]  # they wait for it, and nobody for them
        apart = callers.union(linked.tolist(), fed.tolist()) if members & launchers else everyone
        doing = state.doing(number, apart=apart - members)
        ranges = timeline.ownership.steps(number)
        columns = {
            "low": low[rows],
            "high": high[rows],
            "node": np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows,
            "step_time": ranges.time,
            "step_range": ranges.value,
            "region_of_range": of_range,
            "state_time": doing.time,
            "state": doing.value,
        }
        parts.append(cut_intervals(columns, {"otherwise": state.awake, "root": ROOT}))
    return _Pieces(*(joined(column) for column in zip(*parts, strict=True)))


# Whether replay and account agree about what each thread did: where the account owns an instant of the host, the
# interval of the graph that holds it has the same cause. What does not is counted, and limits what may be predicted.

# What the account says of a thread between its calls; all else is the device's, a call's, or debited to a wait.
_BETWEEN_CALLS = (Cause.CPU, Cause.HOST_BLOCKED, Cause.INIT, Cause.UNATTRIBUTED)


class Disagreement(Struct, frozen=True):
    """For how long an interval of the graph has another cause than the account, on one thread."""

    thread: int
    account: Cause
    replay: Cause
    ns: int


def find_disagreements(
    timeline: Timeline,
    thread: npt.NDArray[np.integer],
    low_ns: Int64Array,
    piece_node: Int32Array,
    piece_ns: Int32Array,
    piece_cause: Int8Array,
) -> tuple[Disagreement, ...]:
    """Per thread and pair of causes, longest first. ``thread`` and ``low_ns`` of nodes: whose it is, and when the
    interval before it begins; pieces in order of their nodes."""
    total_ns: defaultdict[int, Int64Array] = defaultdict(lambda: np.zeros((len(CAUSES), len(CAUSES)), np.int64))
    for segments, cause in ((device.segments, _told(device)) for device in timeline.devices):
        owner = integers(segments.thread)
        account = int64(segments.start_ns), int64(segments.end_ns), cause, owner, owner.itemsize, len(segments)
        for number in unique(segments.thread[cause >= 0]).tolist():
            rows = _rows_of(number, thread, piece_node)
            pieces = [np.ascontiguousarray(column[rows]) for column in (piece_node, piece_ns, piece_cause)]
            by_cause = number, len(CAUSES), total_ns[number]
            run("boundby_differing", low_ns, *pieces, len(pieces[0]), *account, *by_cause)
    disagreements = [
        Disagreement(number, Cause(accounted), Cause(other), int(ns[accounted, other]))
        for number, ns in total_ns.items()
        for accounted, other in np.argwhere(ns).tolist()
    ]
    return tuple(sorted(disagreements, key=lambda item: (-item.ns, item.thread, item.account, item.replay)))


def _rows_of(number: int, thread: npt.NDArray[np.integer], piece_node: Int32Array) -> slice | npt.NDArray[np.intp]:
    """The pieces of a thread's nodes."""
    if is_even(thread):
        return slice(None) if len(thread) and thread[0] == number else slice(0)
    return as_rows(thread[piece_node] == number)


def _told(device: DeviceTimeline) -> Int8Array:
    """The cause of each segment that the account gives a thread between its calls; NONE: of all else, and of what it
    withholds as records are missing."""
    segments, withheld = device.segments, concatenate(*device.withheld[:2])
    causes = np.array([cause if cause in _BETWEEN_CALLS else NONE for cause in Cause], np.int8)[segments.cause]
    if len(withheld):
        causes[contains(union(withheld.start_ns, withheld.end_ns), segments.start_ns) >= 0] = NONE
    return causes
