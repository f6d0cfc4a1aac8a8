"""Device-side figures per region: kernels, copies, launch latency, utilization and gaps of projected ranges."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import fields

from boundby.attribution.host_state import DISPATCH_LIMIT_NS
from boundby.attribution.regions import Regions, project
from boundby.attribution.timeline import DeviceTimeline, Timeline, rows_in_windows
from boundby.model.arrays import (
    Tally,
    as_rows,
    factorize,
    group_sums,
    is_any,
    joined,
    pick,
    queue_depth,
    ranked,
    tally,
    unique,
)
from boundby.model.intervals import IntervalSet
from boundby.model.scale import RANKING
from boundby.results.report import Copies, Gaps, Top
from boundby.stats.host import WindowCalls
from boundby.stats.instances import Grouped, intervals_in, sums, with_ancestors
from boundby.trace.tables import Direction, MemoryKind, OpKind
from boundby.trace.vocabulary.cuda import plain_name
from boundby.trace.vocabulary.kernel_names import kernel_label

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

# A copy this small moves a scalar, a flag or a length: the sign of a value read back (.item(), if tensor: ...).
SMALL_COPY_BYTES = 1024

DIRECTION_KEY = {
    Direction.HTOD: "HtoD",
    Direction.DTOH: "DtoH",
    Direction.DTOD: "DtoD",
    Direction.PTOP: "PtoP",
    Direction.HTOH: "HtoH",
    Direction.OTHER: "other",
}


class OperationSet(Struct, frozen=True):
    """The operations that lie in the windows, with what is known of each."""

    rows: slice | npt.NDArray[np.integer]  # into Trace.operations
    region: npt.NDArray[np.integer]
    latency_ns: Int  # -1 where the launching call is unknown
    queue: Int  # launched and not yet started at the launch; -1 where unknown


def operations_in_windows(timeline: Timeline, devices: Sequence[DeviceTimeline]) -> OperationSet:
    """Operations of these devices that overlap their device's window."""
    calls = timeline.calls
    latencies, depths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for device in devices:
        rows, table = device.operations.rows, device.operations.table
        call = calls.of_operation[rows]
        launch, has_call, inside = pick(calls.start_ns, call, 0), as_rows(call >= 0), as_rows(device.is_inside)
        depth = queue_depth(launch[has_call], table.start_ns[has_call])
        latency = np.subtract(table.start_ns, launch, out=launch)
        np.maximum(latency, 0, out=latency)
        if len(depth) < len(latency):
            some, depth = depth, np.full(len(latency), -1, np.int64)
            depth[has_call] = some
            latency[call < 0] = -1
        latencies.append(latency[inside])
        depths.append(depth[inside])
    chosen = rows_in_windows(devices)
    return OperationSet(chosen, timeline.launch_region[chosen], joined(latencies), joined(depths))


class KernelFigures(Struct, frozen=True):
    """Per region with descendants: kernels, and graphs traced as one operation each."""

    operations: Int  # of any kind
    count: Int
    total_ns: Int
    median_ns: Float
    graphs: Int
    graph_ns: Int
    graph_median_ns: Float
    latency_median_ns: Float
    latency_p95_ns: Float
    queue_median: Float
    queue_most: int | None  # of all


def kernel_figures(timeline: Timeline, chosen: OperationSet) -> KernelFigures:
    """Counts, sums and medians by region."""
    regions, table = timeline.ownership.regions, timeline.trace.operations
    kind, start, end = table.kind[chosen.rows], table.start_ns[chosen.rows], table.end_ns[chosen.rows]
    kernel, graph, launched = (
        as_rows(which) for which in (kind == OpKind.KERNEL, kind == OpKind.GRAPH, chosen.latency_ns >= 0)
    )
    tallied = tally(chosen.region, kind, start, end)
    (operations, _), (count, total), (graphs, graph_ns) = (
        [regions.accumulate(values) for values in tallied.by_group(len(regions), which)]
        for which in (slice(None), tallied.label == OpKind.KERNEL, tallied.label == OpKind.GRAPH)
    )
    of_launched = Grouped(regions, chosen.region[launched])
    is_same = isinstance(kernel, slice) and isinstance(launched, slice) and kernel == launched
    of_kernel = of_launched if is_same else Grouped(regions, chosen.region[kernel])
    latency = of_launched.quantiles(chosen.latency_ns[launched], (0.5, 0.95))
    return KernelFigures(
        operations=operations,
        count=count,
        total_ns=total,
        median_ns=of_kernel.quantiles(end[kernel] - start[kernel], (0.5,))[0],
        graphs=graphs,
        graph_ns=graph_ns,
        graph_median_ns=Grouped(regions, chosen.region[graph]).quantiles(end[graph] - start[graph], (0.5,))[0],
        latency_median_ns=latency[0],
        latency_p95_ns=latency[1],
        queue_median=of_launched.quantiles(chosen.queue[launched], (0.5,))[0],
        queue_most=int(chosen.queue.max(initial=-1)) if (chosen.queue >= 0).any() else None,
    )


def copies_by_region(timeline: Timeline, chosen: OperationSet) -> list[dict[str, Copies]]:
    """Copies and migrations of every region (with descendants) by direction."""
    regions = timeline.ownership.regions
    result: list[dict[str, Copies]] = [{} for _ in range(len(regions))]
    kind = timeline.trace.operations.kind[chosen.rows]
    copies = as_rows(is_any(kind, (OpKind.MEMCPY, OpKind.MIGRATION)))
    if not len(kind[copies]):
        return result
    rows = (
        chosen.rows[copies]
        if isinstance(chosen.rows, np.ndarray)
        else np.arange(chosen.rows.start, chosen.rows.stop)[copies]
    )
    table, of_copy = timeline.trace.operations.take(rows), chosen.region[copies]
    for direction, key in DIRECTION_KEY.items():
        is_own = table.direction == direction
        if not is_own.any():
            continue
        part, region = table.take(is_own), of_copy[is_own]
        small = part.bytes <= SMALL_COPY_BYTES
        count, size = sums(regions, region), sums(regions, region, part.bytes)
        time = sums(regions, region, part.end_ns - part.start_ns)
        of_pageable, of_small = sums(regions, region[part.is_pageable]), sums(regions, region[small])
        by_memory = _bytes_by_memory(regions, region, part.source, part.target, part.bytes)
        for number in np.flatnonzero(count).tolist():
            total = int(time[number])
            result[number][key] = Copies(
                count=int(count[number]),
                bytes=int(size[number]),
                total_ns=total,
                pageable_count=int(of_pageable[number]),
                small_count=int(of_small[number]),
                bandwidth_bytes_per_s=int(size[number]) / total * 1e9 if total else None,
                by_memory={label: int(values[number]) for label, values in by_memory.items() if values[number]},
            )
    return result


def _bytes_by_memory(
    regions: Regions, region: Int, source: npt.NDArray[np.int8], target: npt.NDArray[np.int8], size: Int
) -> dict[str, Int]:
    by_memory = {}
    for kind in MemoryKind:
        for other in MemoryKind:
            is_own = (source == kind) & (target == other)
            if is_own.any():
                label = f"{kind.name.lower()} -> {other.name.lower()}"
                by_memory[label] = sums(regions, region[is_own], size[is_own])
    return by_memory


class ProjectedFigures(Struct, frozen=True):
    """Per region, of its own instances: busy time and gaps inside their intervals, summed over devices."""

    projected_busy_ns: Int
    projected_ns: Int  # summed over the devices that the instance's process used inside it
    host_busy_ns: Int
    host_ns: Int
    gap_count: Int
    gap_ns: Int
    longest_gap_ns: Int
    short_gap_ns: Int  # in gaps of at most `DISPATCH_LIMIT_NS`


def projected_figures(timeline: Timeline) -> ProjectedFigures:
    """Busy time and gaps of every instance's projected interval and host interval, per device it ran on."""
    regions = timeline.ownership.regions
    ranges = timeline.trace.ranges
    size = len(regions)
    total = {field.name: np.zeros(size, np.int64) for field in fields(ProjectedFigures)}
    rows = np.flatnonzero(timeline.counted_ranges)
    region = regions.of_range[rows]
    process = timeline.trace.process_of_thread[ranges.thread[rows]]
    for device in timeline.devices:
        table, idle = device.operations.table, device.gaps.intervals
        start, end = timeline.projected_start_ns, timeline.projected_end_ns
        if len(table) < len(timeline.trace.operations):
            rows_here = device.operations.rows
            start, end = project(timeline.trace, timeline.calls, regions, timeline.launch_range, rows_here)
        low, high = np.maximum(start[rows], device.low_ns), np.minimum(end[rows], device.high_ns)
        host_low = np.maximum(ranges.start_ns[rows], device.low_ns)
        host_high = np.minimum(ranges.end_ns[rows], device.high_ns)
        some, on_host = high > low, (host_high > host_low) & np.isin(process, unique(table.process))
        where, low, high = region[some], low[some], high[some]
        host_low, host_high = host_low[on_host], host_high[on_host]
        inside = intervals_in(idle, np.append(low, host_low), np.append(high, host_high))
        count, gap_ns, longest = (column[: len(low)] for column in inside)
        total["projected_busy_ns"] += group_sums(where, high - low - gap_ns, size)
        total["projected_ns"] += group_sums(where, high - low, size)
        total["gap_count"] += group_sums(where, count, size)
        total["gap_ns"] += group_sums(where, gap_ns, size)
        np.maximum.at(total["longest_gap_ns"], where, longest)
        total["short_gap_ns"] += group_sums(where, intervals_in(_short(device), low, high)[1], size)
        idle_ns = inside[1][len(low) :]
        total["host_busy_ns"] += group_sums(region[on_host], host_high - host_low - idle_ns, size)
        total["host_ns"] += group_sums(region[on_host], host_high - host_low, size)
    return ProjectedFigures(**total)


def device_gaps(device: DeviceTimeline) -> Gaps:
    """Gaps of a device's window."""
    length = device.gaps.length_ns
    short_ns = int(length.sum(where=length <= DISPATCH_LIMIT_NS))
    return Gaps(len(length), int(length.sum()), int(length.max(initial=0)), short_ns)


def _short(device: DeviceTimeline) -> IntervalSet:
    """Gaps no longer than what a launch and a framework's dispatch fill."""
    is_short = device.gaps.length_ns <= DISPATCH_LIMIT_NS
    return IntervalSet(device.gaps.start_ns[is_short], device.gaps.end_ns[is_short])


# What ran or was called longest, by name: kernels and CUDA API calls of every region with its descendants.

MOST_NAMES = RANKING  # of each region; the rest is small beside them
GRAPH = "graph (recorded as a whole)"  # what has no name: a graph launch at graph level


def top_kernels(timeline: Timeline, chosen: OperationSet) -> list[tuple[Top, ...]]:
    """Of every region, the kernels (and graphs traced as one operation) with most time."""
    table, region = timeline.trace.operations, chosen.region
    name, start, end = table.name[chosen.rows], table.start_ns[chosen.rows], table.end_ns[chosen.rows]
    is_kernel = as_rows(table.kind[chosen.rows] <= OpKind.GRAPH)
    return _tops(timeline, tally(region[is_kernel], name[is_kernel], start[is_kernel], end[is_kernel]), kernel_label)


def top_calls(timeline: Timeline, called: Tally) -> list[tuple[Top, ...]]:
    """Of every region, the CUDA API calls (by name, see `calls_by_name`) with most time, what they waited included."""
    return _tops(timeline, called, plain_name)


def calls_by_name(timeline: Timeline, chosen: WindowCalls, region: npt.NDArray[np.integer] | None = None) -> Tally:
    """These calls by region (their own) and name, and their time in the window."""
    region = timeline.call_region[chosen.rows] if region is None else region
    return tally(region, timeline.calls.name[chosen.rows], chosen.start_ns, chosen.end_ns)


def _tops(timeline: Timeline, found: Tally, label: Callable[[str], str]) -> list[tuple[Top, ...]]:
    """Totals by region (with descendants) and label, the longest first; ``found``: by region and name."""
    tops: list[tuple[Top, ...]] = [()] * len(timeline.ownership.regions)
    if len(found.group) == 0:
        return tops
    used, index = ranked(found.label)
    names = [timeline.trace.names[number] if number >= 0 else "" for number in used.tolist()]
    labels = [label(text) if text else GRAPH for text in names]
    distinct = sorted(set(labels))
    number_of = {text: number for number, text in enumerate(distinct)}
    of_row = pick(np.array([number_of[text] for text in labels], np.int64), index, 0)
    inside, which = with_ancestors(timeline.ownership.regions, found.group)
    pairs, of_pair = factorize(inside, of_row[which])
    region, of_row = pairs.T
    count, total = (group_sums(of_pair, values[which], len(pairs)) for values in (found.rows, found.ns))
    order = np.lexsort((of_row, -total, region))
    region, of_row, count, total = region[order], of_row[order], count[order], total[order]
    first = np.flatnonzero(np.append(True, region[1:] != region[:-1])) if len(region) else np.empty(0, np.intp)
    for low, high in itertools.pairwise([*first.tolist(), len(region)]):
        shown = slice(low, min(high, low + MOST_NAMES))
        columns = (of_row[shown].tolist(), count[shown].tolist(), total[shown].tolist())
        tops[int(region[low])] = tuple(Top(distinct[row], times, ns) for row, times, ns in zip(*columns, strict=True))
    return tops
