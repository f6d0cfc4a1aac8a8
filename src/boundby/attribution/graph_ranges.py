"""Ranges inside CUDA graphs: what a replay runs belongs to the ranges that were open when the graph was captured.

A replay is one call, in which no range of the model is open. Each node that it runs has an original, which was made
while the model ran in its ranges. These are put into each launch of the graph, as long as a nanosecond or so each: the
host does nothing in them, and all their time is the device's. What follows (regions, account, verdicts) treats them
like any, so that a model has the same regions whether it runs eagerly or as a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.graph_launches import graphs_of
from boundby.attribution.regions import Ownership
from boundby.correlation.correlate import Calls
from boundby.correlation.starting import stream_captures
from boundby.model.arrays import Int32Array, Int64Array, spread, unique
from boundby.model.intervals import NOTHING, IntervalSet, contains
from boundby.trace.facts import TraceWarning
from boundby.trace.tables import Trace


class _Graph(NamedTuple):
    """The ranges of one graph, each before those in it; ``leaf``: of each of its nodes, by the node's row, the place of
    the innermost."""

    ranges: npt.NDArray[np.intp]
    last: npt.NDArray[np.int64]  # the place of the last one that lies in each
    leaf: dict[int, int]


class GraphRanges(Struct, frozen=True):
    """A trace with the ranges of its graphs in their launches. ``later_ns``: by how much later than its call each
    operation counts as launched, so that it lies in its own range; 0 of all others."""

    trace: Trace
    later_ns: Int32Array

    def of_operations(self, calls: Calls, ownership: Ownership) -> tuple[npt.NDArray[np.intp], Int32Array]:
        """The operations inside graphs whose range is known, and that."""
        rows = np.flatnonzero(self.later_ns)
        thread, time = calls.thread[calls.of_operation[rows]], calls.launched_ns[rows] + self.later_ns[rows]
        found = np.full(len(rows), NOTHING, np.int32)
        for number in unique(thread).tolist():
            mine = thread == number
            found[mine] = ownership.ranges_at(number, time[mine])
        return rows, found


def with_graph_ranges(trace: Trace, calls: Calls, ownership: Ownership) -> GraphRanges:
    """The trace with the ranges of captures in each launch of their graphs; itself where none are told."""
    nodes, none = trace.graph_nodes, spread(0, len(trace.operations), np.int32)
    inside = np.flatnonzero((trace.operations.node >= 0) & (calls.of_operation >= 0))
    if not len(inside) or not (nodes.thread >= 0).any():
        return GraphRanges(trace, none)
    node, call = trace.operations.node[inside], calls.of_operation[inside]
    graph_of_call, graph_of_node = graphs_of(node, call, len(nodes), len(calls))
    innermost = np.full(len(nodes), NOTHING, np.int64)
    for number in unique(nodes.thread[nodes.thread >= 0]).tolist():
        mine = nodes.thread == number
        innermost[mine] = ownership.ranges_at(number, nodes.captured_ns[mine])
    captures = stream_captures(trace, calls)
    known = {
        graph: found
        for graph in unique(graph_of_node[graph_of_node >= 0]).tolist()
        if (found := _ranges_of(trace, ownership, np.flatnonzero(graph_of_node == graph), innermost, captures))
        is not None
    }
    launches = unique(call)
    added, later_ns = [], np.zeros(len(trace.operations), np.int32)
    place = np.full(len(nodes), NOTHING, np.int64)
    for graph, found in known.items():
        place[list(found.leaf)] = list(found.leaf.values())
        mine = launches[graph_of_call[launches] == graph]
        # A range takes a nanosecond, and a launch must last so long: it does, of a thousand ranges, too.
        mine = mine[calls.end_ns[mine] - calls.start_ns[mine] > len(found.ranges) + 1]
        added.append(_in_launches(trace, calls, mine, found))
        is_told = np.isin(call, mine) & (place[node] >= 0)
        later_ns[inside[is_told]] = place[node[is_told]] + 1
    if not later_ns.any():
        return GraphRanges(trace, none)
    ranges = trace.ranges
    for columns in added:
        ranges = ranges.and_more(columns)
    text = (
        f"{np.count_nonzero(later_ns):,} operations inside CUDA graphs are counted in the ranges that were open when "
        "the graphs were captured. The host spends no time in these while a graph is launched."
    )
    warnings = (*trace.warnings, TraceWarning("graph-ranges", text))
    return GraphRanges(replace(trace, ranges=ranges.sorted(trace.names), warnings=warnings), later_ns)


def _ranges_of(
    trace: Trace,
    ownership: Ownership,
    nodes: npt.NDArray[np.intp],
    innermost: Int64Array,
    captures: dict[int, IntervalSet],
) -> _Graph | None:
    """The ranges that were opened while this graph was captured. Where the begin of the capture is not on record, those
    that hold each of its nodes count as opened before: they say where it was captured, and nothing of what it does."""
    parent, ranges = ownership.regions.range_parent, trace.ranges
    chains = {number: _chain(parent, number) for number in unique(innermost[nodes]).tolist()}
    began = _begin_of_capture(trace, nodes, captures)
    if began is None:
        around = _common(list(chains.values()))
        kept = {number: chain[around:] for number, chain in chains.items()}
    else:
        kept = {number: [row for row in chain if ranges.start_ns[row] >= began] for number, chain in chains.items()}
    rows = np.array(sorted({row for chain in kept.values() for row in chain}), np.intp)
    if not len(rows):
        return None
    rows = rows[np.lexsort((rows, -ranges.end_ns[rows], ranges.start_ns[rows], ranges.thread[rows]))]
    place = {row: number for number, row in enumerate(rows.tolist())}
    last = np.arange(len(rows))
    for chain in kept.values():
        for row in chain:
            last[place[row]] = max(last[place[row]], place[chain[-1]])
    leaf = {
        node: place[kept[around][-1]] if kept[around] else NOTHING
        for node, around in zip(nodes.tolist(), innermost[nodes].tolist(), strict=True)
    }
    return _Graph(rows, last, leaf)


def _chain(parent: npt.NDArray[np.int64], row: int) -> list[int]:
    """A range and those that it lies in, the outermost first."""
    found: list[int] = []
    while row != NOTHING:
        found.append(row)
        row = int(parent[row])
    return found[::-1]


def _common(chains: Sequence[Sequence[int]]) -> int:
    """With how many ranges all chains begin."""
    return next(
        (level for level, rows in enumerate(zip(*chains, strict=False)) if len(set(rows)) > 1), min(map(len, chains))
    )


def _begin_of_capture(trace: Trace, nodes: npt.NDArray[np.intp], captures: dict[int, IntervalSet]) -> int | None:
    """When the capture of these nodes began; None where its calls are not on record."""
    table = trace.graph_nodes
    told = nodes[table.thread[nodes] >= 0]
    if not len(told):
        return None
    known = captures.get(int(table.process[told[0]]))
    if known is None:
        return None
    first_ns = table.captured_ns[told].min(keepdims=True)
    at = int(contains(known, first_ns)[0])
    return None if at < 0 else int(known.start[at])


def _in_launches(
    trace: Trace, calls: Calls, launches: npt.NDArray[np.integer], graph: _Graph
) -> dict[str, npt.NDArray[np.generic]]:
    """The columns of a graph's ranges in each of its launches."""
    ranges, count = trace.ranges, len(graph.ranges)
    begin = calls.start_ns[launches] + 1
    several = len(launches) * count
    return {
        "start_ns": np.add.outer(begin, np.arange(count)).reshape(-1),
        "end_ns": np.add.outer(begin, graph.last + 1).reshape(-1),
        "thread": np.repeat(calls.thread[launches], count),
        "name": np.tile(ranges.name[graph.ranges], len(launches)),
        "domain": np.tile(ranges.domain[graph.ranges], len(launches)),
        "arguments": np.tile(ranges.arguments[graph.ranges], len(launches)),
        "is_start_end": np.zeros(several, bool),
        "is_open": np.zeros(several, bool),
    }
