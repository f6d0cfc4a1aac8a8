"""Replaying a graph under any costs: passes over its events until the order in which streams take turns stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boundby.model.arrays import Int32Array, Int64Array
from boundby.native.forward import Costs, Pass, forward
from boundby.replay.device_concurrency import find_exclusions
from boundby.replay.graph import Graph

# Passes at most where the order of operations depends on their times.
MOST_PASSES = 8
# The rules by which streams take turns hold if no operation moves by more than this part of the whole.
TURNS_ERROR = 0.005


def calibrate(graph: Graph) -> Graph:
    """The graph with what its rules leave unexplained of the measured times, so that unchanged it replays them.

    What is unexplained of operations is a cost of its own; that of nodes is the host's own time, wherever it goes.
    """
    graph.links.check(graph.order)
    learnt = forward(graph.links, graph.costs, graph.order, calibrates=True)
    exclusions = find_exclusions(graph, learnt.delay_ns)
    if exclusions is not None:
        graph = replace(graph, links=replace(graph.links, excludes=exclusions))
        learnt = forward(graph.links, graph.costs, graph.order, calibrates=True)
    links = replace(
        graph.links,
        unexplained_lead_ns=learnt.lead_ns,
        follow_lag_ns=graph.links.follow_lag_ns + learnt.begin_delay_ns,
        queue_slot_lag_ns=graph.links.queue_slot_lag_ns + learnt.begin_delay_ns,
    )
    costs = replace(
        graph.costs,
        interval_ns=graph.costs.interval_ns + learnt.begin_delay_ns,
        call_ns=graph.costs.call_ns + learnt.end_delay_ns,
        wait_lag_ns=graph.costs.wait_lag_ns + learnt.end_delay_ns,
        unexplained_delay_ns=learnt.delay_ns,
    )
    graph = replace(graph, links=links, costs=costs)
    return replace(graph, takes_turns=_takes_turns(graph))


def _takes_turns(graph: Graph) -> bool:
    """True if streams share devices, and the rules by which they do give the measured times back."""
    if len(graph.links.lane_first) == 0:
        return False
    first = forward(graph.links, graph.costs, graph.order)
    second = forward(graph.links, graph.costs, _reorder(graph.order, first))
    span = int(first.end.max() - first.start.min())
    return bool(np.abs(first.start - second.start).max() <= TURNS_ERROR * span)


def replay(graph: Graph, costs: Costs) -> tuple[Int64Array, Int64Array]:
    """Start and end of every operation with these costs, shape (operations,), in nanoseconds.

    Chains that follow nothing begin when their first node was measured to begin; all else follows from the costs.
    """
    order = graph.order
    if graph.takes_turns and not costs.is_same(graph.costs):
        for _ in range(MOST_PASSES):
            outcome = forward(graph.links, costs, order, looks_ahead=True)
            following = _reorder(order, outcome)
            if (following == order).all():
                return outcome.start, outcome.end
            order = following  # where none is found that stays, none may run at once all the same
    outcome = forward(graph.links, costs, order)
    return outcome.start, outcome.end


def _reorder(order: Int32Array, outcome: Pass) -> Int32Array:
    """The events in the order in which they came; those of one instant stay as they were."""
    is_operation, is_end = order < 0, (order & 1) == 1
    row, node = np.where(is_operation, ~order, 0), np.where(is_operation, 0, order >> 1)
    time: Int64Array = outcome.turn[row]
    if len(outcome.call_start):
        of_node = np.where(is_end, outcome.call_end[node], outcome.call_start[node])
        time = np.where(is_operation, time, of_node)
    ordered: Int32Array = order[np.argsort(time, kind="stable")]
    return ordered
