"""Replaying a graph under any costs: its events in their measured order, or each in its turn."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.model.arrays import Int32Array, Int64Array, compact, factorize, in_order, pick
from boundby.model.scale import HARDLY
from boundby.native.passes import NEVER, NONE, Costs, Links, Pass, Spans, Windows, find_late, forward, in_turns, spans
from boundby.replay.device_concurrency import find_exclusions
from boundby.replay.graph import Graph

# The rules by which streams take turns hold if no operation moves by more than this part of the whole.
TURNS_ERROR = HARDLY


def calibrate(graph: Graph) -> Graph:
    """The graph with what its rules leave unexplained of the measured times, so that unchanged it replays them.

    What is unexplained of operations is a cost of its own; that of nodes is the host's own time, wherever it goes.
    """
    order = _measured_order(graph)
    graph = replace(graph, order=order, links=_without_later_slots(graph.links, order))
    graph.links.check(graph.order)
    if len(graph.links.lane_first):
        first = _learn(_copied(graph))
        exclusions = find_exclusions(graph, first.costs.unexplained_delay_ns)
        excluded = graph if exclusions is None else replace(graph, links=replace(graph.links, excludes=exclusions))
        graph = first if exclusions is None else _learn(excluded)
    else:
        graph = _learn(graph)
    if not _takes_turns(graph):
        return graph
    turned = replace(graph, takes_turns=True)
    vars(turned)["following"] = graph.following  # which takes as long as a replay
    return turned


_OF_COSTS, _OF_LINKS = ("interval_ns", "call_ns", "wait_lag_ns"), ("follow_lag_ns", "queue_slot_lag_ns")


def _copied(graph: Graph) -> Graph:
    """With columns of its own where calibrating changes them."""
    costs = graph.costs.changed(**{name: getattr(graph.costs, name).copy() for name in _OF_COSTS})
    return replace(
        graph,
        costs=costs,
        links=replace(graph.links, **{name: getattr(graph.links, name).copy() for name in _OF_LINKS}),
    )


def _learn(graph: Graph) -> Graph:
    """With what dependencies leave unexplained: see `Pass`. Costs and lags change in place; who has a leader has lags
    that are written to."""
    links, costs = graph.links, graph.costs
    lags = {name: getattr(links, name) for name in _OF_LINKS}
    for name, leader in zip(_OF_LINKS, (links.follows, links.queue_slot), strict=True):
        if not lags[name].flags.writeable and leader.max(initial=NONE) >= 0:
            lags[name] = lags[name].copy()
    links = replace(links, **lags)
    one_pass = forward(links, costs, graph.order, calibrates=True)
    lags = {name: compact(lag_ns) for name, lag_ns in lags.items()}
    return replace(
        graph,
        links=replace(links, unexplained_lead_ns=compact(one_pass.lead_ns), **lags),
        costs=costs.changed(unexplained_delay_ns=compact(one_pass.delay_ns)),
    )


def _takes_turns(graph: Graph) -> bool:
    """True if streams share devices, and the rules by which they do give the measured times back."""
    if len(graph.links.lane_first) == 0:
        return False
    measured, outcome = forward(graph.links, graph.costs, graph.order), _in_turns(graph, graph.costs)
    span = int(measured.end.max() - measured.start.min())
    return bool(np.abs(measured.start - outcome.start).max() <= TURNS_ERROR * span)


def _in_turns(graph: Graph, costs: Costs) -> Pass:
    return in_turns(graph.links, costs, graph.order, graph.following)


def replay(graph: Graph, costs: Costs) -> tuple[Int64Array, Int64Array]:
    """Start and end of every operation with these costs, shape (operations,), in nanoseconds.

    Chains that follow nothing begin when their first node was measured to begin; all else follows from the costs.
    """
    outcome = _outcome(graph, costs)
    return outcome.start, outcome.end


def call_starts(graph: Graph, costs: Costs) -> Int64Array:
    """When each node begins with these costs, shape (nodes,), in nanoseconds."""
    return _outcome(graph, costs).call_start


def _outcome(graph: Graph, costs: Costs) -> Pass:
    is_turned = graph.takes_turns and not costs.is_same(graph.costs)
    if is_turned:
        return _in_turns(graph, costs)
    return forward(graph.links, costs, graph.order)


def replay_spans(graph: Graph, costs: Iterable[Costs], windows: Windows) -> list[Spans]:
    """When the operations of each window begin and end with each of these costs; each with a pass of its own, or of
    AT_ONCE of them where one order is good for all."""
    if graph.takes_turns or graph.slots is None:  # worked out before there are costs, which take memory as well
        return [
            windows.spans(outcome.start, outcome.end, outcome.call_start)
            for outcome in (_outcome(graph, each) for each in costs)
        ]
    return spans(graph.links, graph.costs, costs, graph.order, graph.slots, windows)


def run_ahead_ns(graph: Graph, costs: Costs) -> int:
    """By how much longer than it ever was measured what one thread has done waits for the thread that follows it: how
    far it may run ahead of that one is not known beyond."""
    links = graph.links
    if links.follows.max(initial=NONE) == NONE or costs.is_same(graph.costs):
        return 0
    rows = np.flatnonzero(links.follows >= 0)
    made = links.follows[rows]
    pair = factorize(links.chain[rows].astype(np.int64), links.chain[made].astype(np.int64))[1]
    longest = np.zeros(int(pair.max()) + 1, np.int64)
    np.maximum.at(longest, pair, links.node_begin_ns[rows] - links.node_end_ns[made])
    outcome = _outcome(graph, costs)
    ahead = outcome.call_start[rows] - outcome.call_end[made] - longest[pair]
    return max(int(ahead.max()), 0)


def replay_otherwise(graph: Graph, costs: Costs, windows: Windows) -> Spans | None:
    """The same with streams that take their turns as work becomes ready, where the rules for that do not give the
    measured times back: which of the two holds after a change is open. None: no streams share a device, or they do."""
    if graph.takes_turns or len(graph.links.lane_first) == 0:
        return None
    outcome = _in_turns(graph, costs)
    return windows.spans(outcome.start, outcome.end, outcome.call_start)


def _without_later_slots(links: Links, order: Int32Array) -> Links:
    """Without waits for room that times contradict: the operation that should have made it came after the launch."""
    held = np.flatnonzero(links.queue_slot >= 0)
    slot = links.queue_slot[held]
    late = links.start_ns[slot] >= links.node_begin_ns[held]
    held, slot = held[late], slot[late]
    if not len(held):
        return links
    position = np.empty(2 * links.nodes + links.operations, np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)  # what is negative counts from the end
    late = position[~slot] > position[2 * held]
    queue_slot = links.queue_slot.copy()
    queue_slot[held[late]] = NONE
    return replace(links, queue_slot=queue_slot)


def _measured_order(graph: Graph) -> Int32Array:
    """The graph's events as measured, such that what each depends on comes before it."""
    links = graph.links
    turn = np.maximum(links.start_ns, pick(links.node_begin_ns, links.launch, NEVER))
    order = _in_time(links, turn)
    late = find_late(links, graph.costs, links.node_begin_ns, links.node_end_ns, turn)
    if len(late) == 0:
        return order
    nodes = 2 * links.nodes
    time = np.empty(nodes + len(turn), np.int64)
    np.multiply(links.node_begin_ns, 2, out=time[:nodes:2])
    np.multiply(links.node_end_ns, 2, out=time[1:nodes:2])
    time[nodes:] = _before_returns(links, late, turn)[::-1]
    return order[in_order(time[order])]  # what is negative counts from the end


def _in_time(links: Links, turn: Int64Array) -> Int32Array:
    """Events in the order of their times: nodes begin (and, unless they wait, end) at their start, waiting calls end at
    their end, operations come at their turn. At one instant ends come first, then the nodes that follow them, then what
    those launch."""
    waiting = np.flatnonzero(links.wait_at[1:] > links.wait_at[:-1])
    first, stop = links.nodes, links.nodes + len(turn)
    key = np.empty(stop + len(waiting), np.int64)
    key[:first], key[first:stop], key[stop:] = links.node_begin_ns, turn, links.node_end_ns[waiting]
    key -= key.min() if len(key) else 0
    key *= 4
    key[:first] += 1
    key[first:stop] += 2
    by_time = np.argsort(key, kind="stable")
    del key
    event = np.empty(len(by_time), np.int32)
    event[:first] = np.arange(0, 2 * first, 2, dtype=np.int32)
    event[first:stop] = ~np.arange(len(turn), dtype=np.int32)
    event[stop:] = 2 * waiting + 1
    return event[by_time]


def _before_returns(links: Links, late: npt.NDArray[np.intp], turn: Int64Array) -> Int64Array:
    """Twice the turn of every operation; but one less than twice the return of a call that waits for it (``late``: for
    which that holds, see `find_late`), where that comes first because clocks drift, and what precedes it on its streams
    no later."""
    key, begin = 2 * turn, np.append(links.node_begin_ns, NEVER)
    what: Int64Array = links.wait_for[late].astype(np.int64)
    limit = 2 * links.node_end_ns[links.waiting[late]] - 1
    launched = begin[links.launch]
    leader, follower = links.follows_on
    while len(what):
        np.minimum.at(key, what, limit)
        early = (key[leader] > key[follower]) & (2 * launched[leader] <= key[follower])
        what, limit = leader[early], key[follower[early]]
    while (early := key[leader] > key[follower]).any():  # what cannot come earlier holds up what follows it after all
        np.maximum.at(key, follower[early], key[leader[early]])
    return key
