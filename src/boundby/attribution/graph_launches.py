"""The launches of CUDA graphs, node by node: which graph each runs, and where nodes of it are not on record.

A graph's nodes follow one another within microseconds, unless the device works on something else. Where it idles
between two nodes of one launch, and nodes that run there in other launches are missing, or it idles longer than any
launch takes, what ran there was lost. (A node may also run a function of the host: then nothing ran. Which of both it
was, the trace does not tell.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.correlation.correlate import Calls
from boundby.model.arrays import Int64Array, ranked, unique
from boundby.model.intervals import NOTHING, CoveredTime, union
from boundby.model.once import once
from boundby.model.scale import HALF, NO_LAUNCH_NS
from boundby.trace.tables import Trace

_Rows = npt.NDArray[np.intp]


class LostNodes(Struct, frozen=True):
    """Stretches inside launches of graphs in which nodes are not on record; a row each, in order of call and time."""

    call: _Rows  # row of Calls
    device: npt.NDArray[np.integer]
    stream: Int64Array
    begin_ns: Int64Array
    until_ns: Int64Array
    missing: Int64Array  # nodes that run there in another launch of the graph; 0: none does, but the device idles


def graphs_of(
    node: npt.NDArray[np.integer], call: npt.NDArray[np.integer], nodes: int, calls: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The graph of each call and of each node (NOTHING: none), by its first node: calls of a graph share nodes."""
    of_node, of_call = np.full(nodes, nodes, np.int64), np.full(calls, nodes, np.int64)
    np.minimum.at(of_node, node, node)
    while True:
        before = of_node.copy()
        np.minimum.at(of_call, call, of_node[node])
        np.minimum.at(of_node, node, of_call[call])
        if bool((of_node == before).all()):
            return np.where(of_call == nodes, NOTHING, of_call), np.where(of_node == nodes, NOTHING, of_node)


def lost_nodes(trace: Trace, calls: Calls) -> LostNodes:
    """Where nodes of graphs are not on record."""
    table, nothing = trace.operations, np.empty(0, np.int64)
    none = LostNodes(np.empty(0, np.intp), np.empty(0, np.int32), *[nothing] * 4)
    is_launch = np.array(["GraphLaunch" in name for name in trace.names], bool)
    if not is_launch.any():
        return none
    by_graph = np.append(is_launch, False)[np.append(calls.name, -1)[calls.of_operation]]
    rows = np.flatnonzero(by_graph & (calls.of_operation >= 0))
    if not len(rows):
        return none
    rows = rows[np.lexsort((table.end_ns[rows], table.start_ns[rows], table.device[rows], calls.of_operation[rows]))]
    before, after = _gaps(trace, calls, rows)
    if not len(before):
        return none
    missing = _Graphs(trace, calls, rows).missing_between(before, after)
    begin, until = table.end_ns[before], table.start_ns[after]
    idle = _idle_within(trace, table.device[before], begin, until) == until - begin
    kept = (missing > 0) | (idle & (until - begin >= NO_LAUNCH_NS) & _is_alone(trace, calls, before))
    before, after, missing = before[kept], after[kept], missing[kept]
    stream = table.stream[before].astype(np.int64)
    return LostNodes(
        calls.of_operation[before].astype(np.intp),
        table.device[before],
        stream,
        table.end_ns[before],
        table.start_ns[after],
        missing,
    )


def _gaps(trace: Trace, calls: Calls, rows: _Rows) -> tuple[_Rows, _Rows]:
    """Of these operations, ordered by call, device and time, those after which none of the same launch runs for longer
    than a launch takes, and the next one of each: those that end last before the gap, and begin it."""
    table = trace.operations
    start, end = table.start_ns[rows], table.end_ns[rows]
    call, device = calls.of_operation[rows], table.device[rows]
    same = (call[1:] == call[:-1]) & (device[1:] == device[:-1])
    group = np.append(0, np.cumsum(~same))
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(len(rows), np.int64)
    rank[by_end] = np.arange(len(rows))
    ends = by_end[np.maximum.accumulate(group * len(rows) + rank) % len(rows)]  # of its group so far, the latest end
    at = np.flatnonzero(same & (start[1:] - end[ends[:-1]] > LAUNCH_LIMIT_NS))
    return rows[ends[at]], rows[at + 1]


def _idle_within(
    trace: Trace, device: npt.NDArray[np.integer], begin: Int64Array, until: Int64Array
) -> npt.NDArray[np.int64]:
    """For how long each device idles in each stretch."""
    table, idle = trace.operations, until - begin
    for number in unique(device).tolist():
        mine, own = device == number, table.device == number
        busy = CoveredTime(union(table.start_ns[own], table.end_ns[own]))
        idle[mine] -= busy.within(begin[mine], until[mine])
    return idle


def _is_alone(trace: Trace, calls: Calls, rows: _Rows) -> npt.NDArray[np.bool_]:
    """Whether the process uses one device: a node may wait for another device's."""
    process, table = trace.process_of(calls.thread), trace.operations
    several = np.zeros(len(trace.processes) + 1, bool)
    for number in unique(table.process).tolist():
        several[number] = len(unique(table.device[table.process == number])) > 1
    found: npt.NDArray[np.bool_] = ~several[process[calls.of_operation[rows]]]
    return found


class _Graphs:
    """Of each graph the launch with most nodes, which the others are held against."""

    def __init__(self, trace: Trace, calls: Calls, rows: _Rows) -> None:
        table, nodes = trace.operations, trace.graph_nodes
        self._table, self._calls = table, calls
        self._rows = rows[table.node[rows] >= 0]
        self._call, self._node = calls.of_operation[self._rows], table.node[self._rows]
        if len(self._rows):
            self._graph_of_call, _ = graphs_of(self._node, self._call, len(nodes), len(calls))

    def missing_between(self, before: _Rows, after: _Rows) -> Int64Array:
        """How many nodes of its graph each launch lacks between these two of its operations, if the gap between them is
        as long as they need; else 0."""
        found = np.zeros(len(before), np.int64)
        if not len(self._rows):
            return found
        for at, (first, last) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
            if self._table.node[first] >= 0 and self._table.node[last] >= 0:
                found[at] = self._missing(first, last)
        return found

    def _missing(self, first: int, last: int) -> int:
        call = int(self._calls.of_operation[first])
        node, start, length = self._most(int(self._graph_of_call[call]))
        low, high = (np.flatnonzero(node == self._table.node[row]) for row in (first, last))
        if not len(low) or not len(high):
            return 0
        between = (start > start[low[0]]) & (start < start[high[0]])
        own = self._node[self._of_call(call)]
        lacking = between & ~np.isin(node, own)
        gap_ns = int(self._table.start_ns[last] - self._table.end_ns[first])
        return int(lacking.sum()) if gap_ns >= HALF * int(length[lacking].sum()) else 0

    @once
    def _most(self, graph: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Nodes, starts and durations of the launch of a graph that has most."""
        mine = np.flatnonzero(self._graph_of_call[self._call] == graph)
        calls, which = ranked(self._call[mine])
        rows = self._rows[self._of_call(int(calls[np.bincount(which).argmax()]))]
        start = self._table.start_ns[rows]
        return self._table.node[rows].astype(np.int64), start, (self._table.end_ns[rows] - start).astype(np.int64)

    def _of_call(self, call: int) -> slice:
        """Places of a launch among the rows, which are ordered by call."""
        return slice(*np.searchsorted(self._call, (call, call + 1)).tolist())
