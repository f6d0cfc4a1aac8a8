"""Captures of CUDA graphs: what each launched in which ranges, and which of them a replay is of.

A replay is of the capture that made its nodes (by their numbers, in one process), else of the one whose kernels have
the same names in the same order. PyTorch's profiler on AMD writes a captured launch's kernel beside it; elsewhere it is
told by the run before the capture, in the same ranges, that engines warm up with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.regions import Ownership, Regions, build_ownership
from boundby.correlation.correlate import Calls, correlate
from boundby.correlation.logical_threads import find_logical_threads
from boundby.correlation.starting import stream_captures
from boundby.model.arrays import Int8Array, Int32Array, Int64Array, pick, unique
from boundby.model.intervals import NOTHING
from boundby.trace.tables import CapturedGraph, GraphRangeTable, Ranges, Trace
from boundby.trace.vocabulary.cuda import CallWork, plain_name, work_of_call

_Rows = npt.NDArray[np.intp]
_BYTES = np.dtype(np.int32).itemsize
_WORKS = (CallWork.KERNEL, CallWork.COPY, CallWork.SET)


def nested(ranges: Ranges, chains: Sequence[Sequence[int]]) -> tuple[GraphRangeTable, Int64Array]:
    """These chains of ranges (rows, the outermost first) as a table, and the place of each one's last; -1: empty."""
    rows = np.array(sorted({row for chain in chains for row in chain}), np.intp)
    rows = rows[np.lexsort((rows, -ranges.end_ns[rows], ranges.start_ns[rows], ranges.thread[rows]))]
    place = {row: number for number, row in enumerate(rows.tolist())}
    last = np.arange(len(rows))
    for chain in chains:
        for row in chain:
            last[place[row]] = max(last[place[row]], place[chain[-1]])
    table = GraphRangeTable(ranges.name[rows], ranges.domain[rows], ranges.arguments[rows], last)
    return table, np.array([place[chain[-1]] if chain else NOTHING for chain in chains], np.int64)


def chain_of(parent: npt.NDArray[np.int64], row: int) -> list[int]:
    """A range and those that it lies in, the outermost first."""
    found: list[int] = []
    while row != NOTHING:
        found.append(row)
        row = int(parent[row])
    return found[::-1]


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
    found: list[CapturedGraph] = []
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
            found.append(CapturedGraph(trace.path, pid, table, own.work, kernel, leaf, nodes))
    return tuple(found)


def _launches(trace: Trace, calls: Calls, ownership: Ownership, process: int) -> _LaunchesInRanges:
    """All launches of kernels, copies and sets of one process."""
    work_of_name = np.zeros(len(trace.names) + 1, np.int8)
    for number in calls.names.tolist():
        work_of_name[number] = work_of_call(plain_name(trace.names[number])) if number >= 0 else CallWork.NONE
    work = work_of_name[calls.name]
    call = np.flatnonzero(np.isin(work, _WORKS) & (trace.process_of(calls.thread) == process) & ~calls.has_failed)
    call = call[np.lexsort((call, calls.start_ns[call]))]
    innermost = np.full(len(calls), NOTHING, np.int64)
    for thread in unique(calls.thread[call]).tolist():
        rows = calls.rows_of(thread)
        innermost[rows] = ownership.ranges_at(thread, calls.start_ns[rows])
    parent, chains = ownership.regions.range_parent, dict[int, list[int]]()
    for row in unique(innermost[call]).tolist():
        chains[row] = chain_of(parent, row)
    return _LaunchesInRanges(
        call, work[call], _kernels(trace, calls)[call], [chains[row] for row in innermost[call].tolist()]
    )


def _kernels(trace: Trace, calls: Calls) -> Int32Array:
    """What each call launches, by its own word or by what ran for it; -1: not told."""
    kernel = np.full(len(calls), -1, np.int32)
    told = np.flatnonzero(trace.api.kernel >= 0)
    for thread in unique(trace.api.thread[told]).tolist():
        rows, mine = calls.rows_of(thread), told[trace.api.thread[told] == thread]
        place = np.searchsorted(calls.start_ns[rows], trace.api.start_ns[mine], "right") - 1
        kernel[rows.start + place[place >= 0]] = trace.api.kernel[mine[place >= 0]]
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
    known = np.array([bool(label) for label in labels])
    edges = np.flatnonzero(np.diff(np.concatenate(([False], known, [False]))))
    first, stop = max(edges.reshape(-1, 2).tolist(), key=lambda edge: edge[1] - edge[0])
    wanted = np.array([label[-1] for label in labels[first:stop]], np.int32).tobytes()
    every = np.array([run[-1] if run else -1 for run in runs], np.int32).tobytes()
    found: set[tuple[int, ...]] = set()
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
            found.add(tuple(warm_up.kernel[stretch].tolist()))
        at = every.find(wanted, at + 1)
    return np.array(found.pop(), np.int32) if len(found) == 1 else own.kernel


def _nodes(trace: Trace, calls: Calls, process: int, own: _Rows, begin_ns: int, end_ns: int) -> dict[int, int]:
    """The launch of each node that was made in this capture."""
    table = trace.graph_nodes
    then = (table.captured_ns >= begin_ns) & (table.captured_ns < end_ns)
    made = np.flatnonzero(then & (table.thread >= 0) & (table.process == process))
    place = np.searchsorted(calls.start_ns[own], table.captured_ns[made], "right") - 1
    call = pick(own, place, 0)
    inside = (place >= 0) & (table.captured_ns[made] <= calls.end_ns[call]) & (table.thread[made] == calls.thread[call])
    made, place = made[inside], place[inside]
    return {
        int(number): int(launch)
        for column in (table.original, table.node)
        for number, launch in zip(column[made].tolist(), place.tolist(), strict=True)
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
        found = {-1: -1}
        for number in unique(numbers[numbers >= 0]).tolist():
            text = theirs[number]
            if text not in self._known:
                self._known[text] = len(self._first) + len(self._more)
                self._more.append(text)
            found[number] = self._known[text]
        return np.array([found[number] for number in numbers.tolist()], np.int32)

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
        for place, one in enumerate(captures):
            for number in one.nodes:
                self._of_node.setdefault((one.pid, number), {})[place] = one
            is_kernel = one.work == CallWork.KERNEL
            if bool((one.kernel[is_kernel] >= 0).all()):
                key = one.work.tobytes(), one.kernel[is_kernel].tobytes()
                self._of_order.setdefault(key, []).append(GraphOwners(one.ranges, one.leaf))

    def owners(self, replay: ReplayedGraph) -> list[GraphOwners]:
        """What the captures say that this replay may be of: one, or those that differ."""
        for numbers in replay.numbers:
            near = self._of_node.get((replay.pid, numbers[0]), {}).values()
            if found := [owners for one in near if (owners := _by_numbers(one, numbers, replay)) is not None]:
                return _distinct(found)
        key = replay.work.tobytes(), replay.kernel[replay.work == CallWork.KERNEL].tobytes()
        return _distinct(self._of_order.get(key, []))


def _by_numbers(one: CapturedGraph, numbers: list[int], replay: ReplayedGraph) -> GraphOwners | None:
    """The owners of nodes of these numbers, where this capture made them all and no others, and of the same kinds: ids
    of processes, and numbers, are given again."""
    launch = [one.nodes.get(number, NOTHING) for number in numbers]
    if sorted(launch) != list(range(len(one.work))) or bool((one.work[launch] != replay.work).any()):
        return None
    known = (one.kernel[launch] >= 0) & (replay.work == CallWork.KERNEL)
    if bool((one.kernel[launch] != replay.kernel)[known].any()):
        return None
    return GraphOwners(one.ranges, one.leaf[launch])


def _distinct(found: list[GraphOwners]) -> list[GraphOwners]:
    """One of each kind. Of those that differ in the sizes of operators' inputs alone, one without these."""
    kinds: dict[tuple[object, ...], GraphOwners] = {}
    for one in found:
        table = one.ranges
        key = tuple(tuple(column.tolist()) for column in (table.name, table.domain, table.last, one.leaf))
        same = kinds.setdefault(key, one)
        if bool((same.ranges.arguments != table.arguments).any()):
            unknown = np.full(len(table), -1, np.int32)
            kinds[key] = same._replace(ranges=replace(same.ranges, arguments=unknown))
    return list(kinds.values())
