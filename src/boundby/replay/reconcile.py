"""Dependencies that the measured times contradict are dropped, and lags made no longer than they can have been.

What is left can be obeyed: nothing starts before what it comes after has ended, and no delay is negative.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from boundby.model.arrays import Int32Array, Int64Array, compact, offsets, pick, scattered
from boundby.native.passes import NONE, Costs, Links
from boundby.replay.events import MOST_CLOCK_ERROR_NS
from boundby.replay.graph import Contradictions, Graph
from boundby.replay.streams import NEVER


class _Waits(NamedTuple):
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
    is_dropped = slack < -MOST_CLOCK_ERROR_NS  # when a held call begins is known about as well
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
    good = slack >= -MOST_CLOCK_ERROR_NS
    dropped = int(len(good) - np.count_nonzero(good))
    slack[~good] = np.iinfo(np.int64).max
    if len(first):
        lag[waiting] = np.minimum(lag[waiting], np.minimum.reduceat(slack, first))
    if not dropped:
        return _Waits(links.wait_at, links.wait_for, lag, 0)
    return _Waits(offsets(who[good], links.nodes).astype(np.int32), links.wait_for[good], lag, dropped)
