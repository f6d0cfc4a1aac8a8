"""From a timeline to its graph: host nodes, streams, events, waits and engines put together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.replay.chains import Chains, build_chains
from boundby.replay.engines import find_engines, held_until
from boundby.replay.events import CLOCK_ERROR_NS, Edges, default_stream_edges, read_points, resolve_events
from boundby.replay.graph import Graph, Int, Int32
from boundby.replay.replay import learn
from boundby.replay.streams import NEVER, NONE, SWITCH_LIMIT_NS, StreamQueues, order_streams, predecessors
from boundby.replay.waits import Waits, find_waits
from boundby.trace.vocabulary.cuda import CallClass


def build_graph(timeline: Timeline) -> Graph:
    """The graph of all processes of a trace (they share nothing but devices)."""
    table, calls = timeline.trace.operations, timeline.calls
    chains = build_chains(timeline)
    node_of = np.full(len(calls) + 1, NONE, np.int64)  # the last entry is for operations without a call
    is_call = chains.call >= 0
    node_of[chains.call[is_call]] = np.flatnonzero(is_call)
    has_call = calls.of_operation >= 0
    begun = calls.start_ns[np.maximum(calls.of_operation, 0)] if len(calls) else table.start_ns
    queues = StreamQueues(table, np.where(has_call, begun, table.start_ns))
    before = predecessors(table)
    points = read_points(timeline)
    events = resolve_events(timeline, points, queues)
    waits = find_waits(timeline, points, events, queues)
    after = _between_streams(timeline, events.operations, queues, before)
    engines = find_engines(timeline.trace, queues.key)
    crossed = np.full(len(table), NEVER)
    np.maximum.at(crossed, after.who, table.end_ns[after.what])
    waiting = np.diff(waits.at) > 0
    begin = np.where(waits.held_by_room, calls.end_ns - waits.cost, calls.start_ns)
    streams = order_streams(
        *(table, calls.of_operation, begin, np.where(waiting, begin, calls.end_ns), before),
        crossed,
        held_until(table, engines, SWITCH_LIMIT_NS),
    )
    on_node = _on_nodes(chains, waits)
    del waits, queues, points, events, crossed, begin, waiting
    region = np.zeros(len(chains.chain), np.int64)
    for number in np.unique(chains.thread).tolist():
        mine = chains.thread == number
        region[mine] = timeline.ownership.at(number, chains.start_ns[mine])
    launch = node_of[calls.of_operation]
    loads = np.append(calls.is_first_load, False)[chains.call]
    graph = Graph(
        chain=chains.chain,
        interval_ns=chains.interval_ns,
        cost_ns=on_node.cost,
        kind=chains.kind,
        is_call=is_call,
        is_init=np.isin(chains.kind, (CallClass.ALLOC, CallClass.INIT)) | loads,
        wait_at=on_node.at.astype(np.int32),
        wait_for=on_node.what.astype(np.int32),
        waits_for_start=on_node.by_start,
        wait_lag_ns=on_node.lag,
        room=on_node.room.astype(np.int32),
        room_lag_ns=on_node.room_lag,
        follows=chains.follows,
        follow_lag_ns=chains.follow_lag_ns,
        call_start_ns=chains.start_ns,
        call_row=_next_call(chains),
        call_region=region.astype(np.int32),
        launch=launch.astype(np.int32),
        arrival_ns=streams.arrival,
        from_call_end=streams.from_call_end,
        before=streams.before.astype(np.int32),
        switch_ns=streams.switch,
        after_at=np.searchsorted(after.who, np.arange(len(table) + 1)).astype(np.int32),
        after_what=after.what.astype(np.int32),
        engines=engines,
        takes_turns=False,
        early_ns=np.zeros(len(table), np.int64),
        hold_ns=np.zeros(len(table), np.int64),
        duration_ns=table.end_ns - table.start_ns,
        start_ns=table.start_ns,
        device=table.device,
        op_kind=table.kind,
        is_communication=table.is_communication,
        op_region=timeline.launch_region.astype(np.int32),
        order=_event_order(chains, on_node, launch, table.start_ns),
        piece_call=chains.piece_node,
        piece_ns=chains.piece_ns,
        piece_cause=chains.piece_cause,
        piece_region=chains.piece_region,
    )
    return learn(graph)  # what its rules leave unexplained


def _between_streams(timeline: Timeline, events: Edges, queues: StreamQueues, before: Int) -> Edges:
    """Events and the null stream's rules, as far as the measured times do not contradict them, in order."""
    table = timeline.trace.operations
    nulls = default_stream_edges(timeline.trace, queues, before)
    who, what = np.concatenate((events.who, nulls.who)), np.concatenate((events.what, nulls.what))
    good = (table.end_ns[what] <= table.start_ns[who] + CLOCK_ERROR_NS) & (table.start_ns[what] <= table.start_ns[who])
    good &= who != what
    pairs = np.unique(np.stack((who[good], what[good])), axis=1)
    return Edges(pairs[0], pairs[1])


def _on_nodes(chains: Chains, waits: Waits) -> Waits:
    """The same per node instead of per call; instants wait for nothing."""
    if np.array_equal(chains.call, np.arange(len(waits.lag))):
        return waits
    is_call = chains.call >= 0
    row = chains.call[is_call]
    count = np.zeros(len(chains.call), np.int64)
    count[is_call] = np.diff(waits.at)[row]
    at = np.concatenate(([0], np.cumsum(count)))
    first = np.zeros(len(chains.call), np.int64)
    first[is_call] = waits.at[row]
    what = waits.what[np.repeat(first - at[:-1], count) + np.arange(at[-1])]

    def spread(column: npt.NDArray[np.int64], default: int) -> Int:
        found = np.full(len(is_call), default, np.int64)
        found[is_call] = column[row]
        return found

    return Waits(
        at=at,
        what=what,
        by_start=spread(waits.by_start.astype(np.int64), 0) == 1,
        lag=spread(waits.lag, 0),
        cost=spread(waits.cost, 0),
        room=spread(waits.room, NONE),
        room_lag=spread(waits.room_lag, 0),
        held_by_room=spread(waits.held_by_room.astype(np.int64), 0) == 1,
    )


def _next_call(chains: Chains) -> Int32:
    """The row in Calls of each node, or of the next call in its chain; NONE after the last."""
    count = len(chains.call)
    place = np.where(chains.call >= 0, np.arange(count), count)
    place = np.minimum.accumulate(place[::-1])[::-1] if count else place
    found = np.append(chains.call, NONE)[place]
    same = np.append(chains.chain, NONE)[place] == chains.chain
    return np.where(same, found, NONE).astype(np.int32)


def _event_order(chains: Chains, waits: Waits, launch: Int, op_start: Int) -> Int32:
    """Events such that what each depends on comes before it.

    Nodes begin (and, unless they wait, end) at their start, waiting calls end at their end, operations come at
    their start. At one instant ends come first, then the nodes that follow them, then what those launch.
    """
    waiting = np.flatnonzero(np.diff(waits.at) > 0)
    begin = np.where(waits.held_by_room, chains.end_ns - waits.cost, chains.start_ns)
    started = np.append(begin, NEVER)[launch]
    nodes, operations = len(begin), len(op_start)
    event = np.empty(nodes + operations + len(waiting), np.int32)
    event[:nodes] = 2 * np.arange(nodes)
    event[nodes : nodes + operations] = ~np.arange(operations)
    event[nodes + operations :] = 2 * waiting + 1
    # Four times the time, plus the rank among events of one instant.
    key = np.concatenate((begin, np.maximum(op_start, started), chains.end_ns[waiting]))
    key -= key.min() if len(key) else 0
    key *= 4
    key[:nodes] += 1
    key[nodes : nodes + operations] += 2
    return event[np.argsort(key, kind="stable")]
