"""What is drawn over time: the account in bins, NVTX ranges, what each stream ran and each thread called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.account import ThreadAccount, sample_period
from boundby.attribution.segments import Segments
from boundby.attribution.timeline import Timeline
from boundby.correlation.cpu_evidence import CpuEvidence
from boundby.model.arrays import (
    Int8Array,
    Int32Array,
    Int64Array,
    as_rows,
    bounds,
    factorize,
    group_counts,
    group_sums,
    into_groups,
    is_even,
    pick,
    places,
    unique,
)
from boundby.model.causes import CAUSES, Cause
from boundby.model.intervals import NOTHING, CoveredTime, IntervalSet, any_of, depths, first_free_lanes
from boundby.model.library import int64, integers, run
from boundby.model.scale import DRAWN, LIST, ONE_BY_ONE, PAGE_ROWS, SEVERAL, TABLE
from boundby.plot_data.work_tables import RegionIndex
from boundby.results.plot_data import AccountLane, CauseBins, CauseSegments, RangeLane, WorkLane
from boundby.stats.host import launching_thread
from boundby.trace.tables import Direction, MemoryKind, OpKind, Trace
from boundby.trace.vocabulary.cuda import plain_name
from boundby.trace.vocabulary.kernel_names import kernel_label

# Stretches kept exactly, in all lanes together: some 20 characters each in a page.
MOST_SEGMENTS = DRAWN
# Bins in all lanes together where there are more stretches than that.
FINE_BINS = DRAWN

SWITCHES, SAMPLES = "context switches", "CPU samples"

_Cpu = tuple[Int64Array, Int64Array, str] | tuple[None, None, None]  # on a CPU, known, source; not captured
_NOT_CAPTURED = None, None, None


def account_lanes(timeline: Timeline, edges: Int64Array, index: RegionIndex) -> tuple[AccountLane, ...]:
    """A lane for every device; without GPU work for every thread that has an account."""
    count = max(len(timeline.devices) + len(timeline.threads), 1)

    def lane(kind: str, number: int, name: str, segments: Segments, span: tuple[int, int], cpu: _Cpu) -> AccountLane:
        exact, fine = None, None
        if segments.join_to(MOST_SEGMENTS // count):
            joined = segments.joined()
            exact = CauseSegments(
                joined.start_ns, joined.end_ns, joined.cause.astype(np.int64), index.of(joined.region)
            )
        else:
            index.of(unique(segments.region))  # named all the same
            fine = cause_bins(segments, even_edges(*span, FINE_BINS // count))
        return AccountLane(
            kind,
            number,
            name,
            *span,
            bins=(coarser(fine, edges) if fine else None) or cause_bins(segments, edges),
            segments=exact,
            fine=fine,
            cpu_ns=cpu[0],
            cpu_known_ns=cpu[1],
            cpu_source=cpu[2],
        )

    lanes = []
    for device in timeline.devices:
        gpu = timeline.trace.gpus[device.index]
        cpu = _logical_cpu(timeline, launching_thread(timeline.calls, device), edges)
        lanes.append(lane("device", gpu.id, gpu.name, device.segments, (device.low_ns, device.high_ns), cpu))
    for account in timeline.threads:
        thread = timeline.trace.threads[account.thread]
        cpu = _cpu(timeline, account.thread, edges)
        lanes.append(lane("thread", thread.tid, thread.name, account.segments, covered_span(account), cpu))
    return tuple(lanes)


def even_edges(low: int, high: int, bins: int) -> Int64Array:
    """Edges of that many bins of equal width, or of as many as there are nanoseconds."""
    bins = max(min(bins, high - low), 1)
    edges: Int64Array = low + np.arange(bins + 1, dtype=np.int64) * (high - low) // bins
    return edges


def covered_span(account: ThreadAccount) -> tuple[int, int]:
    """From the first to the last instant that a thread's account covers."""
    return int(account.covered.start[0]), int(account.covered.end[-1])


def cause_bins(segments: Segments, edges: Int64Array) -> CauseBins:
    """Nanoseconds of each cause between neighbouring edges; sums to the segments' time inside the edges."""
    causes = len(CAUSES)
    bins = np.zeros((len(edges) - 1, causes), np.int64)
    columns = int64(segments.start_ns), int64(segments.end_ns), np.ascontiguousarray(segments.cause), len(segments)
    if run("boundby_bins", *columns, int64(edges), len(bins), causes, bins) < 0:
        raise IndexError("a segment's cause is none")
    return CauseBins(edges, bins)


def coarser(fine: CauseBins, edges: Int64Array) -> CauseBins | None:
    """The same in wider bins; None where an edge of these is none of the finer bins'."""
    first = places(fine.edges_ns, edges)
    if first[0] or first[-1] != len(fine.cause_ns) or not np.array_equal(fine.edges_ns[first], edges):
        return None
    return CauseBins(edges, np.add.reduceat(fine.cause_ns, first[:-1], axis=0))


def _logical_cpu(timeline: Timeline, thread: int | None, edges: Int64Array) -> _Cpu:
    """When at least one member of a logical thread is on a CPU: as the Report's CPU utilization, per bin."""
    if thread is None:
        return _NOT_CAPTURED
    members = [timeline.host_state.evidence(member) for member in timeline.logical_threads.members(thread).tolist()]
    on = [evidence.on_cpu for evidence in members if evidence.on_cpu is not None]
    if len(members) == 1 or not on:
        return _cpu(timeline, thread, edges)
    return _within(any_of(on), edges), np.diff(edges), SWITCHES


def _cpu(timeline: Timeline, thread: int, edges: Int64Array) -> _Cpu:
    """One thread's time on a CPU per bin, by context switches, else by samples; None: neither was captured."""
    evidence: CpuEvidence = timeline.host_state.evidence(thread)
    if evidence.on_cpu is not None and evidence.off_cpu is not None:
        on = _within(evidence.on_cpu, edges)
        return on, on + _within(evidence.off_cpu, edges), SWITCHES
    samples = timeline.trace.samples
    period = sample_period(timeline.trace) if len(samples) else None
    low, high = np.searchsorted(samples.thread, [thread, thread + 1])
    if period is None or low == high:
        return _NOT_CAPTURED
    width = np.diff(edges)
    count = np.diff(np.searchsorted(samples.start_ns[low:high], edges))
    together = max(int(np.ceil(SEVERAL * period / max(int(width.max()), 1))), 1)
    group = np.arange(len(width)) // together
    ran = np.minimum(np.bincount(group, count) * period / np.maximum(np.bincount(group, width), 1), 1.0)
    return np.rint(ran[group] * width).astype(np.int64), width, SAMPLES


def _within(intervals: IntervalSet, edges: Int64Array) -> Int64Array:
    covered: Int64Array = np.diff(CoveredTime(intervals).until(edges))
    return covered


# NVTX ranges as lanes: one per thread and nesting depth, neighbours too short to be drawn apart merged.

# Ranges kept apart, in all lanes together: some 25 characters each in a page.
MOST_RANGES = DRAWN

Rows = npt.NDArray[np.intp]


class _Lane(Struct, frozen=True):
    process: int
    thread: int  # NOTHING: start/end ranges of the process
    depth: int
    rows: Rows  # in order of start


def range_lanes(timeline: Timeline, low: int, high: int, index: RegionIndex) -> tuple[tuple[RangeLane, ...], int]:
    """Lanes of the ranges that overlap [low, high), and how many lanes were left out."""
    trace = timeline.trace
    ranges = trace.ranges
    shown = np.flatnonzero((ranges.end_ns > low) & (ranges.start_ns < high) & (ranges.end_ns > ranges.start_ns))
    pushed = shown[~ranges.is_start_end[shown]]
    lanes = [*_nested(timeline, pushed), *_overlapping(trace, shown[ranges.is_start_end[shown]])]
    kept = lanes
    if len(lanes) > TABLE:
        covered = [int((ranges.end_ns - ranges.start_ns)[lane.rows].sum()) for lane in lanes]
        best = sorted(range(len(lanes)), key=lambda number: (-covered[number], number))[:TABLE]
        kept = [lanes[number] for number in sorted(best)]
    resolution = _resolution(trace, kept, high - low)
    return tuple(_drawn(timeline, lane, resolution, index) for lane in kept), len(lanes) - len(kept)


def _resolution(trace: Trace, lanes: list[_Lane], span: int) -> int:
    """The finest resolution at which the lanes hold no more than MOST_RANGES; 0: every range can stand alone."""
    columns = [(trace.ranges.start_ns[lane.rows], trace.ranges.end_ns[lane.rows]) for lane in lanes]
    return resolution_for(columns, span, MOST_RANGES)


def _nested(timeline: Timeline, rows: Rows) -> list[_Lane]:
    """Push/pop ranges by thread and by how many ranges of the same thread hold them."""
    trace = timeline.trace
    ranges, parent = trace.ranges, timeline.ownership.regions.range_parent
    if len(rows) == 0:
        return []
    depth = timeline.ownership.regions.range_depth
    if not is_even(ranges.thread):
        same = (parent >= 0) & (ranges.thread[np.maximum(parent, 0)] == ranges.thread)
        depth = depths(np.where(same, parent, NOTHING))
    depth = depth[rows]
    keys, of_row = factorize(ranges.thread[rows], depth)
    ends = np.cumsum(count := group_counts(of_row, len(keys)))
    in_lanes = np.split(into_groups(of_row, rows, count), ends[:-1])
    lanes = [
        _Lane(trace.threads[thread].process, thread, level, rows_of_lane)
        for (thread, level), rows_of_lane in zip(keys.tolist(), in_lanes, strict=True)
    ]

    def place(lane: _Lane) -> tuple[int, bool, int, int]:
        thread = trace.threads[lane.thread]
        return lane.process, thread.pid != thread.tid, thread.tid, lane.depth

    return sorted(lanes, key=place)


def _overlapping(trace: Trace, rows: Rows) -> list[_Lane]:
    """Start/end ranges by process, each in the first lane that is free when it starts."""
    process = trace.process_of_thread[trace.ranges.thread[rows]]
    lanes = []
    for number in unique(process).tolist():
        members = rows[process == number]
        members = members[np.lexsort((members, trace.ranges.start_ns[members]))]
        level = first_free_lanes(trace.ranges.start_ns[members], trace.ranges.end_ns[members], LIST)
        lanes += [_Lane(number, NOTHING, depth, members[level == depth]) for depth in unique(level).tolist()]
    return lanes


def _drawn(timeline: Timeline, lane: _Lane, resolution: int, index: RegionIndex) -> RangeLane:
    trace = timeline.trace
    start, end = trace.ranges.start_ns[lane.rows], trace.ranges.end_ns[lane.rows]
    region = timeline.ownership.regions.of_range[lane.rows]
    thread = trace.threads[lane.thread] if lane.thread != NOTHING else None
    first = groups_of(start, end, resolution)
    most, until, covered = grouped(first, region, start, end)
    return RangeLane(
        pid=trace.processes[lane.process].pid if 0 <= lane.process < len(trace.processes) else -1,
        tid=thread.tid if thread else None,
        thread=thread.name if thread else "",
        depth=lane.depth,
        start_ns=start[first],
        end_ns=until,
        region=index.of(most),
        count=np.diff(np.append(first, len(start))).astype(np.int64),
        covered_ns=covered,
    )


def resolution_for(columns: Sequence[tuple[Int64Array, Int64Array]], span: int, most: int) -> int:
    """The finest resolution at which starts and ends of all lanes fall into at most ``most`` groups; 0: all alone."""
    if sum(len(start) for start, _ in columns) <= most:
        return 0
    finest = max(span >> 24, 1)
    least, enough = 0, 62 - finest.bit_length()  # doublings of that: each leaves groups whole
    likely = (len(columns) * span // (most * finest)).bit_length()  # rows everywhere, and none that stands alone
    tried = [likely - 1, likely]
    while least < enough:
        middle, groups = tried.pop() if tried else (least + enough) // 2, 0
        if not least <= middle < enough:
            continue
        for start, end in columns:
            groups += len(groups_of(start, end, finest << middle, most + 1 - groups))
        least, enough = (middle + 1, enough) if groups > most else (least, middle)
    return finest << least


def groups_of(start: Int64Array, end: Int64Array, resolution: int, most: int | None = None) -> Rows:
    """Where groups of rows begin: a row at least as long as the resolution stands alone, short ones join those of
    the same stretch of time. ``most``: as many of them are enough."""
    most = len(start) if most is None else most
    if not resolution:
        return np.arange(min(len(start), most))
    first = np.empty(min(len(start), most), np.int64)
    return first[: run("boundby_groups", int64(start), int64(end), len(start), resolution, most, first)]


def grouped(
    first: Rows, value: npt.NDArray[Any], start: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Of each group (see `groups_of`) the value that holds most of its time (of equals the smallest), when the last of
    its rows ends, and how long they take together. Values: from 0 on."""
    if not len(first):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    size, heaviest = bounds(value)[1] + 1, np.empty((3, len(first)), np.int64)
    values = integers(value)
    columns = len(first), len(value), values, values.itemsize, int64(start), int64(end)
    if run("boundby_heaviest", int64(first), *columns, size, np.zeros(size, np.int64), *heaviest) < 0:
        raise IndexError("a group has no rows, or a value below 0")
    return heaviest[0], heaviest[1], heaviest[2]


# What each stream ran and which CUDA calls each thread made, as lanes; neighbours too short to draw merged.

# Operations and calls kept apart, in all lanes together: some 20 characters each in a page.
MOST_WORK = DRAWN
# Lanes beyond these, those with the least time, are left out: a page of them is not read.
MOST_STREAMS, MOST_CALLING = ONE_BY_ONE, LIST
# Labels beyond these, those with the least time, are told as OTHER.
MOST_LABELS = PAGE_ROWS
OTHER = "(one of many short ones)"
NAMELESS_CALL, NAMELESS_KERNEL = "a call without a name", "a kernel without a name"


class _WorkOfLane(NamedTuple):
    kind: str  # "stream" | "calls"
    device: int
    pid: int
    number: int
    thread: str
    rows: slice | Rows  # of operations or calls, in order of start
    start_ns: Int64Array
    end_ns: Int64Array


class WorkLanes(Struct, frozen=True):
    lanes: tuple[WorkLane, ...]
    left_out: int
    names: tuple[str, ...]


def work_lanes(timeline: Timeline, low: int, high: int) -> WorkLanes:
    """Lanes of what ran and was called in [low, high), how many were left out, and the labels they point to."""
    streams, calls = _streams(timeline, low, high), _calls(timeline, low, high)
    kept = [*_longest(streams, MOST_STREAMS), *_longest(calls, MOST_CALLING)]
    resolution = resolution_for([(lane.start_ns, lane.end_ns) for lane in kept], high - low, MOST_WORK)
    labels = _Labels(timeline)
    drawn = [_drawn_work(lane, resolution, labels) for lane in kept]
    names, renumbered = labels.most_used(drawn)
    return WorkLanes(renumbered, len(streams) + len(calls) - len(kept), names)


def _streams(timeline: Timeline, low: int, high: int) -> list[_WorkOfLane]:
    """Operations by device, process and stream, in this order."""
    trace, lanes = timeline.trace, []
    for device in timeline.devices:
        table = device.operations.table
        inside = as_rows((table.end_ns > low) & (table.start_ns < high))
        keys, of_row = factorize(table.process[inside], table.stream[inside])
        of_key: list[slice | Rows] = [inside] * len(keys)
        if len(keys) > 1:
            count = np.bincount(of_row)
            chosen = np.arange(len(table))[inside]
            of_key = [*np.split(into_groups(of_row, chosen, count), np.cumsum(count)[:-1])]
        for (process, stream), rows in zip(keys.tolist(), of_key, strict=True):
            pid = trace.processes[process].pid if 0 <= process < len(trace.processes) else -1
            times = table.start_ns[rows], table.end_ns[rows]
            lane = "stream", trace.gpus[device.index].id, pid, stream, ""
            lanes.append(_WorkOfLane(*lane, device.operations.at(rows), *times))
    return lanes


def _calls(timeline: Timeline, low: int, high: int) -> list[_WorkOfLane]:
    """Outermost calls by thread."""
    trace, calls, lanes = timeline.trace, timeline.calls, []
    for number in unique(calls.thread).tolist():
        rows = calls.rows_of(number)
        first = rows.start + int(np.searchsorted(calls.end_ns[rows], low, side="right"))
        called = slice(first, rows.start + int(np.searchsorted(calls.start_ns[rows], high, side="left")))
        if called.start < called.stop:
            thread = trace.threads[number]
            times = calls.start_ns[called], calls.end_ns[called]
            lanes.append(_WorkOfLane("calls", -1, thread.pid, thread.tid, thread.name, called, *times))
    return lanes


def _longest(lanes: list[_WorkOfLane], most: int) -> list[_WorkOfLane]:
    """Those with the most time, in their own order."""
    if len(lanes) <= most:
        return lanes
    total = [int((lane.end_ns - lane.start_ns).sum()) for lane in lanes]
    best = sorted(range(len(lanes)), key=lambda number: (-total[number], number))[:most]
    return [lanes[number] for number in sorted(best)]


def _drawn_work(lane: _WorkOfLane, resolution: int, labels: _Labels) -> WorkLane:
    start, end = lane.start_ns, lane.end_ns
    first = groups_of(start, end, resolution)
    label, cause = labels.of(lane)
    most, until, covered = grouped(first, label, start, end)
    return WorkLane(
        *lane[:5],
        start_ns=start[first],
        end_ns=until,
        name=most,
        cause=np.full(len(first), cause) if isinstance(cause, int) else grouped(first, cause, start, end)[0],
        count=np.diff(np.append(first, len(start))).astype(np.int64),
        covered_ns=covered,
    )


class _Labels:
    """Numbers for what operations and calls are called."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._number: dict[str, int] = {}

    def of(self, lane: _WorkOfLane) -> tuple[Int32Array, Int8Array | int]:
        """Label of each row of a lane; busy cause of each, or of all (-1: a call)."""
        names = self._timeline.trace.names
        if lane.kind == "calls":
            name = self._timeline.calls.name[lane.rows]
            texts = {
                name_id: plain_name(names[name_id]) if name_id >= 0 else NAMELESS_CALL
                for name_id in unique(name).tolist()
            }
            self._number_all(texts.values())
            return self._by_name(name, texts), -1
        table = self._timeline.trace.operations
        kind, name = table.kind[lane.rows], table.name[lane.rows]
        others = np.flatnonzero(kind != OpKind.KERNEL)
        used = unique(name[kind == OpKind.KERNEL] if len(others) else name).tolist()
        kernels = {name_id: kernel_label(names[name_id]) if name_id >= 0 else NAMELESS_KERNEL for name_id in used}
        columns = (table.kind, table.name, table.direction, table.source, table.target)
        keys, of_other = factorize(*(column[lane.rows][others] for column in columns))
        key_texts = [_told(key) for key in keys.tolist()]
        self._number_all([*kernels.values(), *key_texts])
        label = self._by_name(name, kernels)
        label[others] = np.array([self._number[text] for text in key_texts], np.int32)[of_other]
        communicates = table.is_communication[lane.rows]
        if not len(others) and not communicates.any():
            return label, int(Cause.GPU_COMPUTE)
        cause = np.where(kind <= OpKind.GRAPH, int(Cause.GPU_COMPUTE), int(Cause.GPU_COPY)).astype(np.int8)
        cause[communicates] = int(Cause.GPU_COMM)
        return label, cause

    def _number_all(self, texts: Iterable[str]) -> None:
        for text in sorted(texts):  # not in the order of names, which follows that of rows
            self._number.setdefault(text, len(self._number))

    def _by_name(self, name: npt.NDArray[Any], texts: Mapping[int, str]) -> Int32Array:
        """The labels of rows of these names, which are called so."""
        numbers = np.zeros(len(self._timeline.trace.names) + 1, np.int32)  # the last one: of no name
        numbers[list(texts)] = [self._number[text] for text in texts.values()]
        return pick(numbers, name, int(numbers[-1]))

    def most_used(self, lanes: list[WorkLane]) -> tuple[tuple[str, ...], tuple[WorkLane, ...]]:
        """The labels with the most time, and the lanes with the numbers of these."""
        time = np.zeros(len(self._number), np.int64)
        for lane in lanes:
            time += group_sums(lane.name, lane.covered_ns, len(time))
        texts = list(self._number)
        best = sorted(range(len(texts)), key=lambda number: (-int(time[number]), texts[number]))
        new = np.full(len(texts), MOST_LABELS, np.int64)
        new[best[:MOST_LABELS]] = np.arange(min(len(best), MOST_LABELS))
        labels = tuple(texts[number] for number in best[:MOST_LABELS])
        names = (*labels, OTHER) if len(best) > MOST_LABELS else labels
        return names, tuple(replace(lane, name=new[lane.name]) for lane in lanes)


def _told(key: list[int]) -> str:
    """What is no kernel: ``copy HtoD, pageable to device``, ``memset``."""
    kind, _, direction, source, target = key
    if kind in (OpKind.GRAPH, OpKind.MEMSET):
        return "CUDA graph" if kind == OpKind.GRAPH else "memset"
    word = "page migration" if kind == OpKind.MIGRATION else "copy"
    way = {Direction.HTOD: "HtoD", Direction.DTOH: "DtoH", Direction.DTOD: "DtoD", Direction.PTOP: "PtoP"}
    ends = [MemoryKind(each).name.lower() for each in (source, target)]
    between = f", {ends[0]} to {ends[1]}" if "unknown" not in ends else ""
    return f"{word} {way.get(Direction(direction), '')}".strip() + between
