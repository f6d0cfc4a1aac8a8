"""From a timeline to its graph, without what measured times contradict: host nodes, streams, events, waits and
device concurrency put together."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import Timeline
from boundby.model.arrays import (
    Int32Array,
    Int64Array,
    compact,
    factorize,
    in_order,
    index_type,
    is_any,
    narrow,
    offsets,
    pick,
    scattered,
    spread,
)
from boundby.model.scale import CLOCK_ERROR_NS
from boundby.native.passes import NONE, Costs, Links
from boundby.replay.device_concurrency import find_concurrency, held_until
from boundby.replay.engine import calibrate
from boundby.replay.events import (
    Edges,
    default_stream_edges,
    read_points,
    resolve_events,
)
from boundby.replay.graph import Contradictions, Graph
from boundby.replay.host_nodes import HostNodes, find_host_nodes
from boundby.replay.streams import NEVER, SWITCH_LIMIT_NS, StreamQueues, order_streams, predecessors
from boundby.replay.wait_edges import Waits, find_waits
from boundby.trace.facts import CLOCKS_APART_NS
from boundby.trace.tables import Operations, Trace
from boundby.trace.vocabulary.cuda import CallClass


class _Waits(Struct, frozen=True):
    at: Int32Array
    what: Int32Array
    lag_ns: Int64Array
    dropped: int


def reconcile(graph: Graph) -> Graph:
    """The graph without dependencies that its measured times contradict; how many there were is kept."""
    links, costs = graph.links, graph.costs
    start, end = links.start_ns, links.start_ns + costs.duration_ns
    has_call = links.launch >= 0
    from_end = links.from_call_end & has_call
    latency = costs.launch_latency_ns  # no more than from the launch to the start
    if from_end.any():
        returned = pick(links.node_end_ns, links.launch, NEVER)
        from_end &= returned <= start
        launched = np.where(from_end, returned, pick(links.node_begin_ns, links.launch, NEVER))
        latency = np.where(has_call, np.minimum(latency, start - launched), latency)
    before, out_of_order = _finished_before(links.before, start, end)
    after_at, after_what, overlapping = _finished(links, start, end)
    switch = costs.switch_ns  # no more than from there to the start, where nothing is dropped
    if out_of_order + overlapping:
        free = _raised(pick(end, before, NEVER), after_at, end[after_what])
        switch = np.where(free > NEVER, np.clip(switch, 0, np.maximum(start - free, 0)), 0)
    waits = _reconciled_waits(links, costs, start, end)
    is_lost = costs.waits & (np.diff(waits.at) == 0)
    length = links.node_end_ns - links.node_begin_ns
    follows, follow_lag = _reconciled(links.follows, links.follow_lag_ns, links.node_begin_ns, links.node_end_ns)
    slot, slot_lag = _reconciled(links.queue_slot, links.queue_slot_lag_ns, links.node_begin_ns, end)
    links = replace(
        links,
        follows=follows,
        follow_lag_ns=follow_lag,
        wait_at=waits.at,
        wait_for=waits.what,
        queue_slot=slot,
        queue_slot_lag_ns=slot_lag,
        from_call_end=from_end,
        before=before,
        after_at=after_at,
        after_what=after_what,
    )
    costs = costs.changed(
        call_ns=np.where(is_lost, length, np.minimum(costs.call_ns, length)),
        waits=costs.waits & ~is_lost,
        wait_lag_ns=waits.lag_ns,
        launch_latency_ns=latency,
        switch_ns=switch,
    )
    is_early = has_call & (latency < 0)
    rows = np.flatnonzero(is_early)
    early = scattered(links.operations, rows, -latency[rows])
    if out_of_order + overlapping:
        late = _raised(pick(end, graph.links.before, NEVER), graph.links.after_at, end[graph.links.after_what])
        early = np.maximum(early, late - start)
    dropped = Contradictions(
        streams=out_of_order + overlapping,
        waits=waits.dropped,
        launches=len(rows),
        by_ns=compact(np.minimum(early, end - start)) if early.any() else early,
    )
    return replace(graph, links=links, costs=costs, contradictions=dropped)


def _raised(values: Int64Array, at: Int32Array, others: Int64Array) -> Int64Array:
    """Each value, or the largest of the others that belong to it (from ``at`` on), where that is more."""
    if len(others):
        np.maximum.at(values, np.repeat(np.arange(len(values)), np.diff(at)), others)
    return values


def _finished_before(before: Int32Array, start: Int64Array, end: Int64Array) -> tuple[Int32Array, int]:
    """The operation before each one on its stream that had ended when it started, and how many others there were."""
    before, passed = before.copy(), 0
    while True:
        runs = np.flatnonzero(pick(end, before, NEVER) > start)
        if len(runs) == 0:
            return before, passed
        passed += len(runs)
        before[runs] = before[before[runs]]


def _finished(links: Links, start: Int64Array, end: Int64Array) -> tuple[Int32Array, Int32Array, int]:
    """The operations of other streams that had ended when each one started: offsets, rows, how many are left out."""
    if not len(links.after_what):
        return links.after_at, links.after_what, 0
    who = np.repeat(np.arange(links.operations), np.diff(links.after_at))
    good = end[links.after_what] <= start[who]
    at = np.searchsorted(who[good], np.arange(links.operations + 1)).astype(np.int32)
    return at, links.after_what[good], int((~good).sum())


def _reconciled(
    what: Int32Array, lag: Int64Array, begin: Int64Array, done: Int64Array
) -> tuple[Int32Array, Int64Array]:
    """What nodes come after, where that was done when they began (give or take the error of the clocks); and lags that
    fit in between."""
    if not (what >= 0).any():
        return what, lag
    slack = begin - pick(done, what, NEVER)  # without anything that it comes after more than any lag
    is_dropped = slack < -CLOCKS_APART_NS  # when a held call begins is known about as well
    if is_dropped.any():
        what, slack = np.where(is_dropped, np.int32(NONE), what), np.where(is_dropped, lag, slack)
    return what, np.minimum(lag, slack)


def _reconciled_waits(links: Links, costs: Costs, start: Int64Array, end: Int64Array) -> _Waits:
    """What calls wait for, where that was done when they returned (give or take the error of the clocks)."""
    waiting = np.flatnonzero(links.wait_at[1:] > links.wait_at[:-1])
    first, lag = links.wait_at[waiting], costs.wait_lag_ns.copy()
    who = np.repeat(waiting.astype(np.int32), links.wait_at[waiting + 1] - first)
    slack = end[links.wait_for]
    if links.waits_for_start.any():
        begun = np.flatnonzero(links.waits_for_start[who])
        slack[begun] = start[links.wait_for[begun]]
    np.subtract(links.node_end_ns[who], slack, out=slack)
    good = slack >= -CLOCKS_APART_NS
    dropped = int(len(good) - np.count_nonzero(good))
    slack[~good] = np.iinfo(np.int64).max
    if len(first):
        lag[waiting] = np.minimum(lag[waiting], np.minimum.reduceat(slack, first))
    if not dropped:
        return _Waits(links.wait_at, links.wait_for, lag, 0)
    return _Waits(offsets(who[good], links.nodes).astype(np.int32), links.wait_for[good], lag, dropped)


def build_graph(timeline: Timeline) -> Graph:
    """The graph of all processes of a trace (they share nothing but devices)."""
    return calibrate(reconcile(_put_together(timeline)))  # what its rules leave unexplained


def _put_together(timeline: Timeline) -> Graph:
    """As the rules have it, whatever the times."""
    table, before = _in_order(timeline.trace.operations)
    calls = timeline.calls
    begun = pick(calls.start_ns, calls.of_operation, 0)
    queues = StreamQueues(table, np.where(calls.of_operation >= 0, begun, table.start_ns))
    points = read_points(timeline)
    events = resolve_events(timeline, points, queues)
    waits = find_waits(timeline, points, events, queues)
    after = _between_streams(timeline.trace, table, events.operations, queues, before)
    device = find_concurrency(timeline.trace, queues.key)
    del begun, queues, points, events  # all that follows can do without: most memory is taken here
    crossed = spread(NEVER, len(table))
    if len(after.who):
        crossed = crossed.copy()
        np.maximum.at(crossed, after.who, table.end_ns[after.what])
    begin = _begin(waits, calls.start_ns, calls.end_ns)
    streams = order_streams(
        *(table, calls.of_operation, begin, np.where(waits.holds, begin, calls.end_ns), before),
        crossed,
        held_until(table, device, SWITCH_LIMIT_NS),
    )
    del crossed, begin, before
    nodes = find_host_nodes(timeline)
    on_node, launch = _on_nodes(nodes, waits), calls.of_operation.astype(np.int32, copy=False)
    region, loads = timeline.call_region, calls.is_first_load
    if nodes.call is not None:
        node_of = np.full(len(calls) + 1, NONE, np.int32)  # the last entry is for instants
        node_of[nodes.call] = np.arange(len(nodes.call), dtype=np.int32)
        launch = pick(node_of[:-1], calls.of_operation, NONE)
        region, loads = pick(region, nodes.call, ROOT), pick(loads, nodes.call, False)
        instants = np.flatnonzero(nodes.call < 0)
        region[instants] = timeline.ownership.at(nodes.thread[instants], nodes.start_ns[instants])
    del waits
    links = Links(
        chain=nodes.chain,
        node_begin_ns=_begin(on_node, nodes.start_ns, nodes.end_ns),
        node_end_ns=nodes.end_ns,
        follows=nodes.follows,
        follow_lag_ns=nodes.follow_lag_ns,
        wait_at=on_node.at.astype(np.int32, copy=False),
        wait_for=on_node.what.astype(np.int32),
        waits_for_start=compact(on_node.by_start),
        queue_slot=compact(on_node.queue_slot.astype(np.int32, copy=False)),
        queue_slot_lag_ns=compact(on_node.queue_slot_lag),
        launch=launch,
        from_call_end=compact(streams.from_call_end),
        before=streams.before.astype(np.int32, copy=False),
        after_at=compact(offsets(after.who, len(table)).astype(np.int32)),
        after_what=after.what.astype(np.int32),
        start_ns=table.start_ns,
        unexplained_lead_ns=compact(np.zeros(len(table), np.int64)),
        lane=compact(device.lane),
        lane_first=device.first,
        lane_stop=device.stop,
        kind=compact(device.kind),
        excludes=device.excludes,
        kinds=device.kinds,
    )
    costs = Costs(
        interval_ns=nodes.interval_ns,
        call_ns=on_node.cost,
        waits=on_node.holds,
        wait_lag_ns=on_node.lag,
        launch_latency_ns=streams.launch_latency,
        switch_ns=streams.switch,
        unexplained_delay_ns=compact(np.zeros(len(table), np.int64)),
        duration_ns=table.end_ns - table.start_ns,
    )
    disagreements, edges = nodes.disagreements, nodes.edges
    kind, wait_is_open, call_row = nodes.kind, compact(on_node.is_open), _next_call(nodes)
    pieces = {name: getattr(nodes, name) for name in ("piece_ns", "piece_cause", "piece_region")}
    of_node = nodes.piece_node
    del streams, on_node, nodes
    order_of_nodes = in_order(of_node)
    pieces = {name: column[order_of_nodes] for name, column in pieces.items()}
    pieces["piece_region"] = pieces["piece_region"].astype(index_type(len(timeline.ownership.regions)))
    pieces["piece_at"] = offsets(of_node[order_of_nodes], links.nodes).astype(np.int32)
    del of_node
    return Graph(
        links=links,
        costs=costs,
        order=np.empty(0, np.int32),
        node_kind=kind,
        is_init=compact(is_any(kind, (CallClass.ALLOC, CallClass.INIT)) | loads),
        wait_is_open=wait_is_open,
        call_row=call_row,
        node_region=region,
        device=table.device,
        op_kind=table.kind,
        is_communication=table.is_communication,
        op_region=timeline.launch_region,
        disagreements=disagreements,
        edges=edges,
        **pieces,
    )


def _in_order(table: Operations) -> tuple[Operations, Int64Array]:
    """Operations, and the one before each on its stream; NONE. What seems to begin before that one has ended, by no
    more than the clocks err (or as kernels do that are allowed to begin early), ends it."""
    before = narrow(predecessors(table))
    overlap = pick(table.end_ns, before, NEVER) - table.start_ns
    rows = np.flatnonzero((overlap > 0) & (overlap <= CLOCKS_APART_NS))
    if len(rows) == 0:
        return table, before
    end_ns: Int64Array = table.end_ns.copy()
    np.minimum.at(end_ns, before[rows], table.start_ns[rows])
    return replace(table, end_ns=end_ns), before


def _between_streams(trace: Trace, table: Operations, events: Edges, queues: StreamQueues, before: Int64Array) -> Edges:
    """Events and the null stream's rules, as far as the measured times do not contradict them, in order."""
    nulls = default_stream_edges(trace, queues, before)
    who, what = np.concatenate((events.who, nulls.who)), np.concatenate((events.what, nulls.what))
    good = (table.end_ns[what] <= table.start_ns[who] + CLOCK_ERROR_NS) & (table.start_ns[what] <= table.start_ns[who])
    good &= who != what
    pairs, _ = factorize(who[good], what[good])
    return Edges(*np.ascontiguousarray(pairs.T))


def _on_nodes(nodes: HostNodes, waits: Waits) -> Waits:
    """Waits per node instead of per call; instants (whose call is NONE: the last entry) wait for nothing."""
    if nodes.call is None:
        return waits
    count = pick(np.diff(waits.at), nodes.call, 0)
    at = np.append(0, np.cumsum(count))
    waiting = np.flatnonzero(count)
    first = (waits.at[nodes.call[waiting]] - at[waiting]).astype(np.int32)
    return Waits(
        at=at,
        what=waits.what[np.repeat(first, count[waiting]) + np.arange(at[-1], dtype=np.int32)],
        holds=pick(waits.holds, nodes.call, False),
        by_start=pick(waits.by_start, nodes.call, False),
        lag=pick(waits.lag, nodes.call, 0),
        cost=pick(waits.cost, nodes.call, 0),
        queue_slot=pick(waits.queue_slot, nodes.call, NONE),
        queue_slot_lag=pick(waits.queue_slot_lag, nodes.call, 0),
        held_by_slot=pick(waits.held_by_slot, nodes.call, False),
        is_open=pick(waits.is_open, nodes.call, False),
    )


def _begin(waits: Waits, start: Int64Array, end: Int64Array) -> Int64Array:
    """When calls or nodes begin: those that a full queue holds up once there is room."""
    return np.where(waits.held_by_slot, end - waits.cost, start) if waits.held_by_slot.any() else start


def _next_call(nodes: HostNodes) -> Int32Array | None:
    """The row in Calls of each node, or of the next call in its chain; NONE after the last. None: nodes are calls."""
    if nodes.call is None:
        return None
    calls_of: Int32Array = nodes.call.copy()
    rows = np.flatnonzero(calls_of < 0)
    is_last = np.append(rows[1:] > rows[:-1] + 1, True)[: len(rows)]  # of instants that follow each other
    following = rows[is_last][np.cumsum(is_last) - is_last] + 1
    rows, following = (column[following < len(calls_of)] for column in (rows, following))
    same = nodes.chain[following] == nodes.chain[rows]
    calls_of[rows[same]] = nodes.call[following[same]]
    return calls_of
