"""Ranges inside CUDA graphs: what a replay runs belongs to the ranges that were open when the graph was captured.

A replay is one call, in which no range of the model is open. Each node that it runs has an original, which was made
while the model ran in its ranges. These are put into each launch of the graph, as long as a nanosecond or so each: the
host does nothing in them, and all their time is the device's. What follows (regions, account, verdicts) treats them
like any, so that a model has the same regions whether it runs eagerly or as a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.attribution.regions import Ownership, Regions, build_ownership
from boundby.correlation.correlate import Calls, correlate
from boundby.correlation.logical_threads import find_logical_threads
from boundby.correlation.starting import stream_captures
from boundby.model.arrays import Int8Array, Int32Array, Int64Array, is_even, pick, ranked, spread, unique
from boundby.model.intervals import NOTHING, CoveredTime, IntervalSet, contains, union
from boundby.model.late import once
from boundby.model.scale import HALF, NO_LAUNCH_NS
from boundby.model.units import plural
from boundby.trace.facts import GRAPH_RANGES, TraceWarning
from boundby.trace.tables import CapturedGraph, GraphRangeTable, OpKind, Ranges, Trace
from boundby.trace.vocabulary.cuda import CallWork, plain_name, work_of_call

# The launches of CUDA graphs, node by node: which graph each runs, and where nodes of it are not on record.
#
# A graph's nodes follow one another within microseconds, unless the device works on something else. Where it idles
# between two nodes of one launch, and nodes that run there in other launches are missing, or it idles longer than any
# launch takes, what ran there was lost. (A node may also run a function of the host: then nothing ran. Which of both
# it was, the trace does not tell.)

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
        rows_here, own = device == number, table.device == number
        busy = CoveredTime(union(table.start_ns[own], table.end_ns[own]))
        idle[rows_here] -= busy.within(begin[rows_here], until[rows_here])
    return idle


def _is_alone(trace: Trace, calls: Calls, rows: _Rows) -> npt.NDArray[np.bool_]:
    """Whether the process uses one device: a node may wait for another device's."""
    process, table = trace.process_of(calls.thread), trace.operations
    several = np.zeros(len(trace.processes) + 1, bool)
    for number in unique(table.process).tolist():
        several[number] = len(unique(table.device[table.process == number])) > 1
    is_alone: npt.NDArray[np.bool_] = ~several[process[calls.of_operation[rows]]]
    return is_alone


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
        missing = np.zeros(len(before), np.int64)
        if not len(self._rows):
            return missing
        for at, (first, last) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
            if self._table.node[first] >= 0 and self._table.node[last] >= 0:
                missing[at] = self._missing(first, last)
        return missing

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
        own = np.flatnonzero(self._graph_of_call[self._call] == graph)
        calls, which = ranked(self._call[own])
        rows = self._rows[self._of_call(int(calls[np.bincount(which).argmax()]))]
        start = self._table.start_ns[rows]
        return self._table.node[rows].astype(np.int64), start, (self._table.end_ns[rows] - start).astype(np.int64)

    def _of_call(self, call: int) -> slice:
        """Places of a launch among the rows, which are ordered by call."""
        return slice(*np.searchsorted(self._call, (call, call + 1)).tolist())


# Captures of CUDA graphs: what each launched in which ranges, and which of them a replay is of.
#
# A replay is of the capture that made its nodes (by their numbers, in one process), else of the one whose kernels
# have the same names in the same order. PyTorch's profiler on AMD writes a captured launch's kernel beside it;
# elsewhere it is told by the run before the capture, in the same ranges, that engines warm up with.

_BYTES = np.dtype(np.int32).itemsize
_WORKS = (CallWork.KERNEL, CallWork.COPY, CallWork.SET)


def nested(ranges: Ranges, chains: Sequence[Sequence[int]]) -> tuple[GraphRangeTable, Int64Array]:
    """These chains of ranges (rows, the outermost first) as a table, and the place of each one's last; -1: empty."""
    rows = np.array(sorted({row for chain in chains for row in chain}), np.intp)
    rows = rows[np.lexsort((rows, -ranges.end_ns[rows], ranges.start_ns[rows], ranges.thread[rows]))]
    index_of = {row: number for number, row in enumerate(rows.tolist())}
    last = np.arange(len(rows))
    for chain in chains:
        for row in chain:
            last[index_of[row]] = max(last[index_of[row]], index_of[chain[-1]])
    table = GraphRangeTable(ranges.name[rows], ranges.domain[rows], ranges.arguments[rows], last)
    return table, np.array([index_of[chain[-1]] if chain else NOTHING for chain in chains], np.int64)


def chain_of(parent: npt.NDArray[np.int64], row: int) -> list[int]:
    """A range and those that it lies in, the outermost first."""
    chain: list[int] = []
    while row != NOTHING:
        chain.append(row)
        row = int(parent[row])
    return chain[::-1]


class _LaunchesInRanges(NamedTuple):
    """Launches in order of their calls."""

    call: _Rows
    work: Int8Array
    kernel: Int32Array
    chains: list[list[int]]  # of ranges around each

    def take(self, chosen: npt.NDArray[np.bool_]) -> _LaunchesInRanges:
        rows = np.flatnonzero(chosen)
        return _LaunchesInRanges(
            self.call[rows], self.work[rows], self.kernel[rows], [self.chains[row] for row in rows.tolist()]
        )


def captured_graphs(trace: Trace, calls: Calls, ownership: Ownership) -> tuple[CapturedGraph, ...]:
    """The captures on record whose launches lie in ranges that were opened since the capture began."""
    graphs: list[CapturedGraph] = []
    for process, captures in stream_captures(trace, calls).items():
        launches = _launches(trace, calls, ownership, process)
        runs = np.isin(launches.call, calls.of_operation)
        warm_up = launches.take(runs)
        for begin, end in zip(captures.start.tolist(), captures.end.tolist(), strict=True):
            start = calls.start_ns[launches.call]
            own = launches.take(~runs & (start >= begin) & (start < end))
            inside = [[row for row in chain if trace.ranges.start_ns[row] >= begin] for chain in own.chains]
            if not any(inside):
                continue
            kernel = own.kernel
            if bool(((kernel < 0) & (own.work == CallWork.KERNEL)).any()):
                kernel = _of_a_run(ownership.regions, own._replace(chains=inside), warm_up)
            table, leaf = nested(trace.ranges, inside)
            nodes = _nodes(trace, calls, process, own.call, begin, end)
            pid = trace.processes[process].pid
            graphs.append(CapturedGraph(trace.path, pid, table, own.work, kernel, leaf, nodes))
    return tuple(graphs)


def _launches(trace: Trace, calls: Calls, ownership: Ownership, process: int) -> _LaunchesInRanges:
    """All launches of kernels, copies and sets of one process."""
    work_of_name = np.zeros(len(trace.names) + 1, np.int8)
    for number in calls.names.tolist():
        work_of_name[number] = work_of_call(plain_name(trace.names[number])) if number >= 0 else CallWork.NONE
    work = work_of_name[calls.name]
    call = np.flatnonzero(np.isin(work, _WORKS) & (trace.process_of(calls.thread) == process) & ~calls.has_failed)
    call = call[np.lexsort((call, calls.start_ns[call]))]
    innermost = ownership.ranges_at(calls.thread[call], calls.start_ns[call])
    chains = {row: chain_of(ownership.regions.range_parent, row) for row in unique(innermost).tolist()}
    return _LaunchesInRanges(
        call, work[call], _kernels(trace, calls)[call], [chains[row] for row in innermost.tolist()]
    )


def _kernels(trace: Trace, calls: Calls) -> Int32Array:
    """What each call launches, by its own word or by what ran for it; -1: not told."""
    kernel = np.full(len(calls), -1, np.int32)
    kernel_calls = np.flatnonzero(trace.api.kernel >= 0)
    for thread in unique(trace.api.thread[kernel_calls]).tolist():
        rows, own = calls.rows_of(thread), kernel_calls[trace.api.thread[kernel_calls] == thread]
        position = np.searchsorted(calls.start_ns[rows], trace.api.start_ns[own], "right") - 1
        kernel[rows.start + position[position >= 0]] = trace.api.kernel[own[position >= 0]]
    ran = np.flatnonzero((calls.of_operation >= 0) & (trace.operations.name >= 0))
    kernel[calls.of_operation[ran]] = trace.operations.name[ran]
    return kernel


def _of_a_run(regions: Regions, own: _LaunchesInRanges, warm_up: _LaunchesInRanges) -> Int32Array:
    """The kernels of launches by those of a stretch of launches that did run, one after the other in ranges of the same
    (folded) names (``own.chains``: since the capture began); untold where there is none, or stretches disagree."""
    numbers = {name: number for number, name in enumerate(sorted(set(regions.name)))}
    of_region = np.array([numbers[name] for name in regions.name], np.int32)
    labels, runs = (
        [of_region[regions.of_range[chain]].tolist() for chain in launches.chains] for launches in (own, warm_up)
    )
    has_label = np.array([bool(label) for label in labels])
    edges = np.flatnonzero(np.diff(np.concatenate(([False], has_label, [False]))))
    first, stop = max(edges.reshape(-1, 2).tolist(), key=lambda edge: edge[1] - edge[0])
    wanted = np.array([label[-1] for label in labels[first:stop]], np.int32).tobytes()
    every = np.array([run[-1] if run else -1 for run in runs], np.int32).tobytes()
    kernel_runs: set[tuple[int, ...]] = set()
    at = every.find(wanted)
    while at >= 0:
        begin = at // _BYTES - first
        stretch = slice(begin, begin + len(labels))
        same = at % _BYTES == 0 and 0 <= begin <= len(runs) - len(labels)
        same = same and all(
            len(run) >= len(label) and run[len(run) - len(label) :] == label
            for run, label in zip(runs[stretch], labels, strict=True)
        )
        if same and bool((warm_up.work[stretch] == own.work).all()):
            kernel_runs.add(tuple(warm_up.kernel[stretch].tolist()))
        at = every.find(wanted, at + 1)
    return np.array(kernel_runs.pop(), np.int32) if len(kernel_runs) == 1 else own.kernel


def _nodes(trace: Trace, calls: Calls, process: int, own: _Rows, begin_ns: int, end_ns: int) -> dict[int, int]:
    """The launch of each node that was made in this capture."""
    table = trace.graph_nodes
    then = (table.captured_ns >= begin_ns) & (table.captured_ns < end_ns)
    made = np.flatnonzero(then & (table.thread >= 0) & (table.process == process))
    position = np.searchsorted(calls.start_ns[own], table.captured_ns[made], "right") - 1
    call = pick(own, position, 0)
    inside = (
        (position >= 0) & (table.captured_ns[made] <= calls.end_ns[call]) & (table.thread[made] == calls.thread[call])
    )
    made, position = made[inside], position[inside]
    return {
        int(number): int(launch)
        for column in (table.original, table.node)
        for number, launch in zip(column[made].tolist(), position.tolist(), strict=True)
    }


def captures_ranges(trace: Trace) -> bool:
    """Whether the trace holds the capture of a graph, and ranges in it."""
    return bool(_captures_of(trace))


def _captures_of(trace: Trace) -> tuple[CapturedGraph, ...]:
    if not any("BeginCapture" in trace.names[name] for name in unique(trace.api.name).tolist()):
        return ()
    calls = correlate(trace)
    return captured_graphs(trace, calls, build_ownership(trace, find_logical_threads(trace, calls)))


def with_captures_of(trace: Trace, other: Trace) -> Trace:
    """The trace with the captures that another recording holds, in its own names."""
    graphs = _captures_of(other)
    names, domains = (_Numbers(texts) for texts in (trace.names, trace.domains))
    first = len(trace.arguments)
    adopted = []
    for graph in graphs:
        table = graph.ranges
        own = replace(
            table,
            name=names.of(other.names, table.name),
            domain=domains.of(other.domains, table.domain),
            arguments=np.where(table.arguments >= 0, table.arguments + first, -1).astype(np.int32),
        )
        adopted.append(replace(graph, ranges=own, kernel=names.of(other.names, graph.kernel)))
    return replace(
        trace,
        names=names.texts,
        domains=domains.texts,
        arguments=(*trace.arguments, *other.arguments),
        operator_names=trace.operator_names | other.operator_names,
        captured_graphs=(*trace.captured_graphs, *adopted),
    )


class _Numbers:
    """Texts that grow by those of another trace."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._known: dict[str, int] = {}
        for number, text in enumerate(texts):
            self._known.setdefault(text, number)
        self._first, self._more = tuple(texts), list[str]()

    def of(self, theirs: Sequence[str], numbers: Int32Array) -> Int32Array:
        """Their numbers as these; -1 stays."""
        own_number = {-1: -1}
        for number in unique(numbers[numbers >= 0]).tolist():
            text = theirs[number]
            if text not in self._known:
                self._known[text] = len(self._first) + len(self._more)
                self._more.append(text)
            own_number[number] = self._known[text]
        return np.array([own_number[number] for number in numbers.tolist()], np.int32)

    @property
    def texts(self) -> tuple[str, ...]:
        return (*self._first, *self._more)


class ReplayedGraph(Struct, frozen=True):
    """What a launch of a graph runs: its nodes in an order in which they may have been captured."""

    pid: int
    numbers: tuple[list[int], ...]  # of its nodes, and of those that they are clones of; empty: not told
    work: Int8Array
    kernel: Int32Array


class GraphOwners(NamedTuple):
    """The ranges of a replay, and the place of each of its nodes (in its order); -1: in none."""

    ranges: GraphRangeTable
    leaf: Int64Array


class CaptureIndex:
    """Captures by what tells them: the numbers of their nodes, and what they launch in which order."""

    def __init__(self, captures: Iterable[CapturedGraph]) -> None:
        self._of_node: dict[tuple[int, int], dict[int, CapturedGraph]] = {}
        self._of_order: dict[tuple[bytes, bytes], list[GraphOwners]] = {}
        for index, graph in enumerate(captures):
            for number in graph.nodes:
                self._of_node.setdefault((graph.pid, number), {})[index] = graph
            is_kernel = graph.work == CallWork.KERNEL
            if bool((graph.kernel[is_kernel] >= 0).all()):
                key = graph.work.tobytes(), graph.kernel[is_kernel].tobytes()
                self._of_order.setdefault(key, []).append(GraphOwners(graph.ranges, graph.leaf))

    def owners(self, replay: ReplayedGraph) -> list[GraphOwners]:
        """What the captures say that this replay may be of: one, or those that differ."""
        for numbers in replay.numbers:
            near = self._of_node.get((replay.pid, numbers[0]), {}).values()
            if all_owners := [owners for graph in near if (owners := _by_numbers(graph, numbers, replay)) is not None]:
                return _distinct(all_owners)
        key = replay.work.tobytes(), replay.kernel[replay.work == CallWork.KERNEL].tobytes()
        return _distinct(self._of_order.get(key, []))


def _by_numbers(one: CapturedGraph, numbers: list[int], replay: ReplayedGraph) -> GraphOwners | None:
    """The owners of nodes of these numbers, where this capture made them all and no others, and of the same kinds: ids
    of processes, and numbers, are given again."""
    launch = [one.nodes.get(number, NOTHING) for number in numbers]
    if sorted(launch) != list(range(len(one.work))) or bool((one.work[launch] != replay.work).any()):
        return None
    both_known = (one.kernel[launch] >= 0) & (replay.work == CallWork.KERNEL)
    if bool((one.kernel[launch] != replay.kernel)[both_known].any()):
        return None
    return GraphOwners(one.ranges, one.leaf[launch])


def _distinct(found: list[GraphOwners]) -> list[GraphOwners]:
    """One of each kind. Of those that differ in the sizes of operators' inputs alone, one without these."""
    kinds: dict[tuple[object, ...], GraphOwners] = {}
    for owners in found:
        table = owners.ranges
        key = tuple(tuple(column.tolist()) for column in (table.name, table.domain, table.last, owners.leaf))
        same = kinds.setdefault(key, owners)
        if bool((same.ranges.arguments != table.arguments).any()):
            unknown = np.full(len(table), -1, np.int32)
            kinds[key] = same._replace(ranges=replace(same.ranges, arguments=unknown))
    return list(kinds.values())


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
        return rows, ownership.ranges_at(thread, time)


def with_graph_ranges(trace: Trace, calls: Calls, ownership: Ownership) -> GraphRanges:
    """The trace with the ranges of captures in each launch of their graphs; itself where none are told."""
    none = spread(0, len(trace.operations), np.int32)
    captures = (*captured_graphs(trace, calls, ownership), *trace.captured_graphs)
    if not captures and not (trace.graph_nodes.thread >= 0).any():
        return GraphRanges(trace, none)
    replays = _Replays(trace, calls, by_order=bool(captures))
    if not len(replays.rows):
        return GraphRanges(trace, none)
    owners_of, untold = _known(trace, calls, ownership, replays, captures)
    launches = unique(replays.call)
    added, later_ns = [], np.zeros(len(trace.operations), np.int32)
    leaf_of = np.full(replays.count, NOTHING, np.int64)
    for graph, (nodes, owners) in owners_of.items():
        leaf_of[nodes] = owners.leaf
        own = launches[replays.of_call[launches] == graph]
        # A range takes a nanosecond, and a launch must last so long: it does, of a thousand ranges, too.
        own = own[calls.end_ns[own] - calls.start_ns[own] > len(owners.ranges) + 1]
        added.append(_in_launches(calls, own, owners.ranges))
        is_told = np.isin(replays.call, own) & (leaf_of[replays.node] >= 0)
        later_ns[replays.rows[is_told]] = leaf_of[replays.node[is_told]] + 1
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
            yield order, ReplayedGraph(pid, tuple(column.tolist() for column in numbers), work, table.name[rows])

    def _began_ns(self, trace: Trace, graph: int, nodes: _Rows) -> Int64Array:
        """When each node begins in the launch that runs most of them."""
        own = np.flatnonzero(self.of_call[self.call] == graph)
        _, which = ranked(self.call[own])
        own = own[which == int(np.bincount(which).argmax())]
        began = np.full(self.count, np.iinfo(np.int64).max)
        began[self.node[own]] = trace.operations.start_ns[self.rows[own]]
        return began[nodes]


def _known(
    trace: Trace, calls: Calls, ownership: Ownership, replays: _Replays, captures: Sequence[CapturedGraph]
) -> tuple[dict[int, tuple[_Rows, GraphOwners]], list[int]]:
    """By graph its nodes, and their ranges; and of each graph for which other recordings were asked in vain, how many
    different captures it may be of (0: none)."""
    graph_nodes = trace.graph_nodes
    innermost = ownership.ranges_at(graph_nodes.thread, graph_nodes.captured_ns)
    began = stream_captures(trace, calls)
    owners_of: dict[int, tuple[_Rows, GraphOwners]] = {}
    untold: list[int] = []
    anywhere, elsewhere = CaptureIndex(captures), CaptureIndex(trace.captured_graphs)
    for graph in unique(replays.of_node[replays.of_node >= 0]).tolist():
        nodes = np.flatnonzero(replays.of_node == graph)
        if (
            int(nodes[-1]) < len(graph_nodes)
            and (own := _ranges_of(trace, ownership, nodes, innermost, began)) is not None
        ):
            owners_of[graph] = nodes, own
            continue
        if replays.is_whole(trace, nodes):
            continue
        is_told = int(nodes[-1]) < len(graph_nodes) and bool(
            (graph_nodes.thread[nodes] >= 0).any()
        )  # and its capture has no ranges
        asked = elsewhere if is_told else anywhere
        tries = [(order, asked.owners(replay)) for order, replay in replays.orders(trace, graph)]
        if match := next(((order, same[0]) for order, same in tries if len(same) == 1), None):
            owners_of[graph] = match
        elif trace.captured_graphs:
            untold.append(max(len(several) for _, several in tries))
    return owners_of, untold


def _where(trace: Trace) -> str:
    """The other recordings that hold captures."""
    paths = ", ".join(dict.fromkeys(graph.path for graph in trace.captured_graphs))
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
        if any(bool((graph.kernel[graph.work == CallWork.KERNEL] < 0).any()) for graph in trace.captured_graphs):
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
    captured = nodes[table.thread[nodes] >= 0]
    if not len(captured):
        return None
    capture = captures.get(int(table.process[captured[0]]))
    if capture is None:
        return None
    first_ns = table.captured_ns[captured].min(keepdims=True)
    at = int(contains(capture, first_ns)[0])
    return None if at < 0 else int(capture.start[at])


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
