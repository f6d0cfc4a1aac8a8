"""Ranges inside CUDA graphs: what a replay runs belongs to the ranges that were open when the graph was captured.

A replay is one call, in which no range of the model is open. Each node that it runs has an original, which was made
while the model ran in its ranges. These are put into each launch of the graph, as long as a nanosecond or so each: the
host does nothing in them, and all their time is the device's. What follows (regions, account, verdicts) treats them
like any, so that a model has the same regions whether it runs eagerly or as a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.graph_captures import (
    CaptureIndex,
    GraphOwners,
    ReplayedGraph,
    captured_graphs,
    chain_of,
    nested,
)
from boundby.attribution.graph_launches import graphs_of
from boundby.attribution.regions import Ownership
from boundby.correlation.correlate import Calls
from boundby.correlation.starting import stream_captures
from boundby.model.arrays import Int32Array, Int64Array, is_even, pick, ranked, spread, unique
from boundby.model.intervals import NOTHING, IntervalSet, contains
from boundby.model.units import plural
from boundby.trace.facts import GRAPH_RANGES, TraceWarning
from boundby.trace.tables import CapturedGraph, GraphRangeTable, OpKind, Trace
from boundby.trace.vocabulary.cuda import CallWork

_Rows = npt.NDArray[np.intp]
#: What a call puts on the device for each kind of operation.
_WORK = np.zeros(len(OpKind), np.int8)
_WORK[[OpKind.KERNEL, OpKind.MEMCPY, OpKind.MEMSET]] = CallWork.KERNEL, CallWork.COPY, CallWork.SET


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
    none = spread(0, len(trace.operations), np.int32)
    captures = (*captured_graphs(trace, calls, ownership), *trace.captured_graphs)
    if not captures and not (trace.graph_nodes.thread >= 0).any():
        return GraphRanges(trace, none)
    replays = _Replays(trace, calls, by_order=bool(captures))
    if not len(replays.rows):
        return GraphRanges(trace, none)
    known, untold = _known(trace, calls, ownership, replays, captures)
    launches = unique(replays.call)
    added, later_ns = [], np.zeros(len(trace.operations), np.int32)
    place = np.full(replays.count, NOTHING, np.int64)
    for graph, (nodes, found) in known.items():
        place[nodes] = found.leaf
        mine = launches[replays.of_call[launches] == graph]
        # A range takes a nanosecond, and a launch must last so long: it does, of a thousand ranges, too.
        mine = mine[calls.end_ns[mine] - calls.start_ns[mine] > len(found.ranges) + 1]
        added.append(_in_launches(calls, mine, found.ranges))
        is_told = np.isin(replays.call, mine) & (place[replays.node] >= 0)
        later_ns[replays.rows[is_told]] = place[replays.node[is_told]] + 1
    warnings = (*trace.warnings, *_of_untold(trace, untold))
    if not later_ns.any():
        return GraphRanges(replace(trace, warnings=warnings) if untold else trace, none)
    ranges = trace.ranges
    for columns in added:
        ranges = ranges.and_more(columns)
    text = (
        f"{np.count_nonzero(later_ns):,} operations inside CUDA graphs are counted in the ranges that were open when "
        f"the graphs were captured{_where(trace)}. The host spends no time in these while a graph is launched."
    )
    warnings = (*warnings, TraceWarning(GRAPH_RANGES, text))
    return GraphRanges(replace(trace, ranges=ranges.sorted(trace.names), warnings=warnings), later_ns)


class _Replays:
    """What ran for launches of graphs: ``rows`` of the operations, and of each its call, its node and its graph. Where
    the trace numbers no nodes, those of launches that run the same in the same order are one (``by_order``)."""

    def __init__(self, trace: Trace, calls: Calls, *, by_order: bool) -> None:
        table, self._told = trace.operations, trace.graph_nodes
        node = table.node.astype(np.int64)
        is_launch = np.array([*("GraphLaunch" in name for name in trace.names), False], bool)
        by_graph = pick(is_launch[calls.name], calls.of_operation, False) & (table.kind != OpKind.GRAPH)
        self.count = len(self._told)
        unnumbered = np.flatnonzero(by_graph & (node < 0)) if by_order else np.empty(0, np.intp)
        unnumbered = unnumbered[np.lexsort((table.start_ns[unnumbered], calls.of_operation[unnumbered]))]
        first_of: dict[tuple[bytes, bytes], int] = {}
        for rows in np.split(unnumbered, np.flatnonzero(np.diff(calls.of_operation[unnumbered])) + 1):
            key = table.name[rows].tobytes(), table.kind[rows].tobytes()
            first = first_of.setdefault(key, self.count)
            self.count = max(self.count, first + len(rows))
            node[rows] = np.arange(first, first + len(rows))
        self.rows = np.flatnonzero((node >= 0) & (calls.of_operation >= 0))
        self.node, self.call = node[self.rows], calls.of_operation[self.rows]
        self.of_call, self.of_node = graphs_of(self.node, self.call, self.count, len(calls))
        self._row = np.zeros(self.count, np.intp)  # of each node an operation that ran for it
        self._row[self.node[::-1]] = self.rows[::-1]

    def is_whole(self, trace: Trace, nodes: _Rows) -> bool:
        """Whether this graph is on record as one operation."""
        return bool((trace.operations.kind[self._row[nodes]] == OpKind.GRAPH).all())

    def orders(self, trace: Trace, graph: int) -> Iterator[tuple[_Rows, ReplayedGraph]]:
        """The nodes of a graph in the orders in which they may have been captured: as they count and, first where they
        run on one stream, as they begin."""
        nodes, table = np.flatnonzero(self.of_node == graph), trace.operations
        is_numbered = int(nodes[-1]) < len(self._told)
        orders = [nodes]
        if is_numbered:
            begun = nodes[np.argsort(self._began_ns(trace, graph, nodes), kind="stable")]
            orders.insert(0 if is_even(table.stream[self._row[nodes]]) else 1, begun)
        for order in orders:
            rows = self._row[order]
            numbers = (self._told.node[order], self._told.original[order]) if is_numbered else ()
            work = _WORK[table.kind[rows]]
            pid = trace.processes[int(table.process[rows[0]])].pid
            yield order, ReplayedGraph(pid, tuple(one.tolist() for one in numbers), work, table.name[rows])

    def _began_ns(self, trace: Trace, graph: int, nodes: _Rows) -> Int64Array:
        """When each node begins in the launch that runs most of them."""
        mine = np.flatnonzero(self.of_call[self.call] == graph)
        _, which = ranked(self.call[mine])
        mine = mine[which == int(np.bincount(which).argmax())]
        began = np.full(self.count, np.iinfo(np.int64).max)
        began[self.node[mine]] = trace.operations.start_ns[self.rows[mine]]
        return began[nodes]


def _known(
    trace: Trace, calls: Calls, ownership: Ownership, replays: _Replays, captures: Sequence[CapturedGraph]
) -> tuple[dict[int, tuple[_Rows, GraphOwners]], list[int]]:
    """By graph its nodes, and their ranges; and of each graph for which other recordings were asked in vain, how many
    different captures it may be of (0: none)."""
    told = trace.graph_nodes
    innermost = np.full(len(told), NOTHING, np.int64)
    for number in unique(told.thread[told.thread >= 0]).tolist():
        mine = told.thread == number
        innermost[mine] = ownership.ranges_at(number, told.captured_ns[mine])
    began = stream_captures(trace, calls)
    known: dict[int, tuple[_Rows, GraphOwners]] = {}
    untold: list[int] = []
    anywhere, elsewhere = CaptureIndex(captures), CaptureIndex(trace.captured_graphs)
    for graph in unique(replays.of_node[replays.of_node >= 0]).tolist():
        nodes = np.flatnonzero(replays.of_node == graph)
        if int(nodes[-1]) < len(told) and (own := _ranges_of(trace, ownership, nodes, innermost, began)) is not None:
            known[graph] = nodes, own
            continue
        if replays.is_whole(trace, nodes):
            continue
        is_told = int(nodes[-1]) < len(told) and bool((told.thread[nodes] >= 0).any())  # and its capture has no ranges
        asked = elsewhere if is_told else anywhere
        tries = [(order, asked.owners(replay)) for order, replay in replays.orders(trace, graph)]
        if found := next(((order, same[0]) for order, same in tries if len(same) == 1), None):
            known[graph] = found
        elif trace.captured_graphs:
            untold.append(max(len(several) for _, several in tries))
    return known, untold


def _where(trace: Trace) -> str:
    """The other recordings that hold captures."""
    paths = ", ".join(dict.fromkeys(one.path for one in trace.captured_graphs))
    return paths and f" (in {paths})"


def _of_untold(trace: Trace, untold: list[int]) -> Iterator[TraceWarning]:
    """What was not found in the recordings of captures."""
    paths = _where(trace)
    several, missing = sum(count > 1 for count in untold), untold.count(0)
    if several:
        text = (
            f"Several captures{paths} launch what {plural(several, 'CUDA graph')} runs, in different ranges: it is "
            "counted with the launches of the graph."
        )
        yield TraceWarning("graph-captures-several", text)
    if missing:
        text = (
            f"No capture{paths} makes the nodes of {plural(missing, 'CUDA graph')} or launches the same kernels in "
            "the same order: what runs is counted with the launches of the graph."
        )
        if any(bool((one.kernel[one.work == CallWork.KERNEL] < 0).any()) for one in trace.captured_graphs):
            text += (
                " Captured launches do not tell their kernels: record the run before the capture, in the same ranges,"
                " with it."
            )
        yield TraceWarning("graph-captures-missing", text)


def _ranges_of(
    trace: Trace,
    ownership: Ownership,
    nodes: _Rows,
    innermost: Int64Array,
    captures: dict[int, IntervalSet],
) -> GraphOwners | None:
    """The ranges that were opened while this graph was captured. Where the begin of the capture is not on record, those
    that hold each of its nodes count as opened before: they say where it was captured, and nothing of what it does."""
    parent, ranges = ownership.regions.range_parent, trace.ranges
    chains = {number: chain_of(parent, number) for number in unique(innermost[nodes]).tolist()}
    began = _begin_of_capture(trace, nodes, captures)
    if began is None:
        around = _common(list(chains.values()))
        kept = {number: chain[around:] for number, chain in chains.items()}
    else:
        kept = {number: [row for row in chain if ranges.start_ns[row] >= began] for number, chain in chains.items()}
    table, leaf = nested(ranges, [kept[number] for number in innermost[nodes].tolist()])
    return GraphOwners(table, leaf) if len(table) else None


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
    calls: Calls, launches: npt.NDArray[np.integer], table: GraphRangeTable
) -> dict[str, npt.NDArray[np.generic]]:
    """The columns of a graph's ranges in each of its launches."""
    begin, several = calls.start_ns[launches] + 1, len(launches) * len(table)
    return {
        "start_ns": np.add.outer(begin, np.arange(len(table))).reshape(-1),
        "end_ns": np.add.outer(begin, table.last + 1).reshape(-1),
        "thread": np.repeat(calls.thread[launches], len(table)),
        "name": np.tile(table.name, len(launches)),
        "domain": np.tile(table.domain, len(launches)),
        "arguments": np.tile(table.arguments, len(launches)),
        "is_start_end": np.zeros(several, bool),
        "is_open": np.zeros(several, bool),
    }
