"""Device-side figures per region: kernels, copies, launch latency, utilization and gaps of projected ranges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from boundby.attribution.projection import project
from boundby.attribution.regions import Regions
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import as_rows, joined, pick, queue_depth, unique
from boundby.model.intervals import Coverage
from boundby.model.records import dataclass
from boundby.results.report import Copies, Gaps
from boundby.stats.spread import longest_in, quantiles, sums
from boundby.trace.tables import Direction, MemoryKind, OpKind

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


@dataclass(frozen=True)
class OperationSet:
    """The operations that lie in the windows, with what is known of each."""

    rows: npt.NDArray[np.intp]  # into Trace.operations
    region: npt.NDArray[np.integer]
    latency_ns: Int  # -1 where the launching call is unknown
    queue: Int  # launched and not yet started at the launch; -1 where unknown


def operations_in_windows(timeline: Timeline, devices: Sequence[DeviceTimeline]) -> OperationSet:
    """Operations of these devices that overlap their device's window."""
    operations, calls = timeline.trace.operations, timeline.calls
    parts, depths = [np.empty(0, np.intp)], [np.empty(0, np.int64)]
    for device in devices:
        rows, table = device.operations.rows, device.operations.table
        call = calls.of_operation[rows]
        known, inside = as_rows(call >= 0), as_rows(device.is_inside)
        depth = np.full(len(rows), -1, np.int64)
        depth[known] = queue_depth(calls.start_ns[call[known]], table.start_ns[known])
        parts.append(rows[inside])
        depths.append(depth[inside])
    rows = joined(parts)
    call = calls.of_operation[rows]
    launch = pick(calls.start_ns, call, 0)
    latency = np.where(call >= 0, np.maximum(operations.start_ns[rows] - launch, 0), -1)
    return OperationSet(rows, timeline.launch_region[rows], latency, joined(depths))


@dataclass(frozen=True)
class KernelFigures:
    """Per region with descendants: kernels, and graphs traced as one operation each."""

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
    regions = timeline.ownership.regions
    table = timeline.trace.operations
    duration = (table.end_ns - table.start_ns)[chosen.rows]
    kind = table.kind[chosen.rows]
    kernel, graph, launched = (
        as_rows(which) for which in (kind == OpKind.KERNEL, kind == OpKind.GRAPH, chosen.latency_ns >= 0)
    )
    latency = quantiles(regions, chosen.region[launched], chosen.latency_ns[launched], (0.5, 0.95))
    return KernelFigures(
        count=sums(regions, chosen.region[kernel]),
        total_ns=sums(regions, chosen.region[kernel], duration[kernel]),
        median_ns=quantiles(regions, chosen.region[kernel], duration[kernel], (0.5,))[0],
        graphs=sums(regions, chosen.region[graph]),
        graph_ns=sums(regions, chosen.region[graph], duration[graph]),
        graph_median_ns=quantiles(regions, chosen.region[graph], duration[graph], (0.5,))[0],
        latency_median_ns=latency[0],
        latency_p95_ns=latency[1],
        queue_median=quantiles(regions, chosen.region[launched], chosen.queue[launched], (0.5,))[0],
        queue_most=int(chosen.queue.max()) if (chosen.queue >= 0).any() else None,
    )


def copies_by_region(timeline: Timeline, chosen: OperationSet) -> list[dict[str, Copies]]:
    """Copies and migrations of every region (with descendants) by direction."""
    regions = timeline.ownership.regions
    kind = timeline.trace.operations.kind[chosen.rows]
    copies = (kind == OpKind.MEMCPY) | (kind == OpKind.MIGRATION)
    table, of_copy = timeline.trace.operations.take(chosen.rows[copies]), chosen.region[copies]
    result: list[dict[str, Copies]] = [{} for _ in range(len(regions))]
    for direction, key in DIRECTION_KEY.items():
        mine = table.direction == direction
        if not mine.any():
            continue
        part, region = table.take(mine), of_copy[mine]
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
    found = {}
    for kind in MemoryKind:
        for other in MemoryKind:
            mine = (source == kind) & (target == other)
            if mine.any():
                label = f"{kind.name.lower()} -> {other.name.lower()}"
                found[label] = sums(regions, region[mine], size[mine])
    return found


@dataclass(frozen=True)
class ProjectedFigures:
    """Per region, of its own instances: busy time and gaps inside their intervals, summed over devices."""

    projected_busy_ns: Int
    projected_ns: Int  # summed over the devices that the instance's process used inside it
    host_busy_ns: Int
    host_ns: Int
    gap_count: Int
    gap_ns: Int
    longest_gap_ns: Int


def projected_figures(timeline: Timeline) -> ProjectedFigures:
    """Busy time and gaps of every instance's projected interval and host interval, per device it ran on."""
    regions = timeline.ownership.regions
    ranges = timeline.trace.ranges
    size = len(regions)
    names = ("projected_busy_ns", "projected_ns", "host_busy_ns", "host_ns", "gap_count", "gap_ns", "longest_gap_ns")
    total = {name: np.zeros(size, np.int64) for name in names}
    rows = np.flatnonzero(timeline.counted_ranges)
    region = regions.of_range[rows]
    process = timeline.trace.process_of_thread[ranges.thread[rows]]
    for device in timeline.devices:
        busy, table = Coverage(device.busy), device.operations.table
        rows_here = device.operations.rows
        start, end = timeline.projected_start_ns, timeline.projected_end_ns
        if len(rows_here) < len(timeline.trace.operations):
            start, end = project(timeline.trace, timeline.calls, regions, timeline.launch_range, rows_here)
        low, high = np.maximum(start[rows], device.low_ns), np.minimum(end[rows], device.high_ns)
        some = high > low
        where, low, high = region[some], low[some], high[some]
        covered = busy.within(low, high)
        idle = device.gaps.intervals
        count, longest = longest_in(idle.start, idle.end, low, high)
        np.add.at(total["projected_busy_ns"], where, covered)
        np.add.at(total["projected_ns"], where, high - low)
        np.add.at(total["gap_count"], where, count)
        np.add.at(total["gap_ns"], where, high - low - covered)
        np.maximum.at(total["longest_gap_ns"], where, longest)
        low = np.maximum(ranges.start_ns[rows], device.low_ns)
        high = np.minimum(ranges.end_ns[rows], device.high_ns)
        some = (high > low) & np.isin(process, unique(table.process))
        np.add.at(total["host_busy_ns"], region[some], busy.within(low[some], high[some]))
        np.add.at(total["host_ns"], region[some], high[some] - low[some])
    return ProjectedFigures(**total)


def device_gaps(device: DeviceTimeline) -> Gaps:
    """Gaps of a device's window."""
    length = device.gaps.length_ns
    return Gaps(len(length), int(length.sum()), int(length.max(initial=0)))
