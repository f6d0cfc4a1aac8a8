"""What is told of each device over time: memory held, and what the GPUs' counters say, averaged: of each device's
window and busy time, of its kernels with most time, and of the work of each region."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import Int64Array, factorize, pick, unique
from boundby.model.intervals import CoveredTime, IntervalSet, nearest, union
from boundby.model.scale import CURVE, LIST
from boundby.model.units import PERCENT
from boundby.results.report import (
    Counters,
    DeviceCounters,
    KernelCounters,
    Memory,
    MemoryHeld,
    MemoryPoint,
    MetricPoint,
    RegionMemory,
)
from boundby.stats.device_figures import GRAPH, MOST_NAMES
from boundby.stats.instances import ByPlace
from boundby.trace.tables import MemoryPoints, MetricSamples, OpKind
from boundby.trace.vocabulary.kernel_names import kernel_label
from boundby.trace.vocabulary.profiler import METRIC_COLUMNS
from boundby.trace.vocabulary.range_names import fold_name

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]

#: Points kept of each device for pictures: means of stretches of equal numbers of samples; of memory, of each stretch
#: the one with most.
MOST_POINTS = CURVE


class _Sampled(Struct, frozen=True):
    """The samples of one device, and of each the part in which operations on record run."""

    table: MetricSamples
    busy_fraction: Float

    @property
    def length_ns(self) -> Int64Array:
        return self.table.end_ns - self.table.start_ns


def metrics_of(timeline: Timeline) -> ByPlace[DeviceCounters, Counters]:
    """Of devices with samples in their windows, and of regions with operations in them."""
    regions = timeline.ownership.regions
    nothing: list[Counters | None] = [None] * len(regions)
    if not len(timeline.trace.metric_samples):
        return ByPlace({}, nothing)
    devices: dict[int, DeviceCounters] = {}
    # Weight and weighted sum of each counter, weight of all samples, and of those in which the device works.
    sums = np.zeros((len(regions), 2 * len(METRIC_COLUMNS) + 2), np.float64)
    for device in timeline.devices:
        sampled = _sampled(timeline, device)
        if not len(sampled.table):
            continue
        devices[device.index] = _device(timeline, device, sampled)
        _add_regions(timeline, device, sampled, sums)
    if not devices:
        return ByPlace({}, nothing)
    every = regions.accumulate(np.rint(sums).astype(np.int64))
    return ByPlace(devices, [_counters(every[region].astype(np.float64)) for region in range(len(regions))])


def _sampled(timeline: Timeline, device: DeviceTimeline) -> _Sampled:
    samples = timeline.trace.metric_samples
    inside = (samples.device == device.index) & (samples.end_ns > device.low_ns) & (samples.start_ns < device.high_ns)
    table = samples.take(inside)
    length = np.maximum(table.end_ns - table.start_ns, 1)
    return _Sampled(table, CoveredTime(device.operations.busy()).within(table.start_ns, table.end_ns) / length)


def _device(timeline: Timeline, device: DeviceTimeline, sampled: _Sampled) -> DeviceCounters:
    window = IntervalSet(np.array([device.low_ns], np.int64), np.array([device.high_ns], np.int64))
    in_window = _covered(sampled, window)
    busy = np.minimum(_covered(sampled, device.busy), in_window)
    return DeviceCounters(
        window=_over(sampled, in_window),
        busy=_over(sampled, busy),
        idle=_over(sampled, in_window - busy),
        kernels=_kernels(timeline, device, sampled),
        points=_points(sampled),
    )


def _covered(sampled: _Sampled, intervals: IntervalSet) -> Int64Array:
    """How much of each sample lies in the intervals, nanoseconds."""
    return CoveredTime(intervals).within(sampled.table.start_ns, sampled.table.end_ns)


def _over(sampled: _Sampled, weight_ns: Int64Array) -> Counters | None:
    """The mean over samples of this weight; None where all weigh nothing."""
    sums = np.empty(2 * len(METRIC_COLUMNS) + 2, np.float64)
    for index, column in enumerate(METRIC_COLUMNS):
        values = getattr(sampled.table, column)
        covered_ns = np.where(values >= 0, weight_ns, 0)
        sums[2 * index : 2 * index + 2] = covered_ns.sum(), (covered_ns * values.astype(np.float64)).sum()
    sums[-2:] = weight_ns.sum(), (weight_ns * (weight_ns / sampled.length_ns)).sum()
    return _counters(sums)


def _counters(sums: Float) -> Counters | None:
    """``sums``: weight and weighted sum of each counter, weight of all, and of the part that is of this alone."""
    if sums[-2] <= 0:
        return None
    values = {
        column: float(sums[2 * index + 1] / sums[2 * index] / PERCENT) if sums[2 * index] > 0 else None
        for index, column in enumerate(METRIC_COLUMNS)
    }
    alone = min(max(float(sums[-1] / sums[-2]), 0.0), 1.0)  # differences of sums are not exact
    return Counters(sampled_ns=round(sums[-2]), alone_fraction=alone, **values)


def _kernels(timeline: Timeline, device: DeviceTimeline, sampled: _Sampled) -> tuple[KernelCounters, ...]:
    """Of the kernels with most time, by name: while any of that name runs."""
    table, names = device.operations.table, timeline.trace.names
    rows = np.flatnonzero((table.kind <= OpKind.GRAPH) & device.is_inside)
    used, index = factorize(table.name[rows])
    labels = [kernel_label(names[number]) if number >= 0 else GRAPH for (number,) in used.tolist()]
    distinct = sorted(set(labels))
    group = pick(np.array([distinct.index(label) for label in labels], np.int64), index, 0)
    total = np.bincount(group, (table.end_ns - table.start_ns)[rows], len(distinct)) if len(rows) else np.zeros(0)
    counters_of = []
    for place in np.lexsort((np.arange(len(distinct)), -total))[:MOST_NAMES].tolist():
        own = rows[group == place]
        counters = _over(sampled, _covered(sampled, union(table.start_ns[own], table.end_ns[own])))
        if counters is not None:
            counters_of.append(KernelCounters(distinct[place], int(total[place]), counters))
    return tuple(counters_of)


def _add_regions(timeline: Timeline, device: DeviceTimeline, sampled: _Sampled, sums: Float) -> None:
    """Add each operation's time under the samples, and what they say meanwhile, to the sums of its own region."""
    rows = np.flatnonzero(device.is_inside)
    table = device.operations.table
    start, end = (np.clip(times[rows], device.low_ns, device.high_ns) for times in (table.start_ns, table.end_ns))
    region = timeline.launch_region[device.operations.rows][rows]
    first, last = (_place(sampled, times) for times in (start, end))

    def add(column: int, values: Float) -> None:
        """``values``: of each sample, what holds throughout it."""
        before = np.append(0.0, np.cumsum(values * sampled.length_ns))
        values = np.append(values, 0.0)
        until = [before[index] + values[index] * offset for index, offset in (last, first)]
        sums[:, column] += np.bincount(region, until[0] - until[1], len(sums))

    for index, name in enumerate(METRIC_COLUMNS):
        values_here = getattr(sampled.table, name)
        add(2 * index, (values_here >= 0).astype(np.float64))
        add(2 * index + 1, np.maximum(values_here, 0).astype(np.float64))
    add(2 * len(METRIC_COLUMNS), np.ones(len(sampled.table)))
    add(2 * len(METRIC_COLUMNS) + 1, sampled.busy_fraction)


def _place(sampled: _Sampled, time: Int64Array) -> tuple[npt.NDArray[np.intp], Int64Array]:
    """Which sample each instant lies in and how far, or where it lies in none, the end of the one before."""
    index = np.searchsorted(sampled.table.start_ns, time, side="right") - 1
    offset = np.minimum(time - sampled.table.start_ns[index], sampled.length_ns[index])
    is_before = index < 0
    return np.where(is_before, 0, index), np.where(is_before, 0, offset)


def _points(sampled: _Sampled) -> tuple[MetricPoint, ...]:
    parts = np.array_split(np.arange(len(sampled.table)), min(MOST_POINTS, len(sampled.table)))
    points = []
    for part in parts:
        weight = np.zeros(len(sampled.table), np.int64)
        weight[part] = sampled.length_ns[part]
        counters = _over(sampled, weight)
        if counters is not None:
            points.append(MetricPoint(int(sampled.table.start_ns[part[0]]), counters))
    return tuple(points)


# What a framework's allocator, or CUDA's in nsys reports, held of each device over the recording, by region, where
# the trace tells it.

#: Regions named for the peak.
MOST_HELD = LIST
_NEVER = np.iinfo(np.int64).max


def memory_of(timeline: Timeline) -> ByPlace[Memory, RegionMemory]:
    """What was held where."""
    tree, points = timeline.ownership.regions, timeline.trace.memory
    nothing: list[RegionMemory | None] = [None] * len(tree)
    region = timeline.ownership.at(points.thread, points.start_ns)
    devices: dict[int, Memory] = {}
    # Allocated, kept, at most in use, held at the peak.
    columns = np.zeros((len(tree), 4), np.int64)
    for device in unique(points.device[points.device >= 0]).tolist():
        rows = np.flatnonzero(points.device == device)
        in_use = _in_use(points, rows)
        peak = int(np.argmax(in_use))
        held = _held(points, rows, peak)
        np.add.at(columns[:, 0], region[rows], np.maximum(points.delta[rows], 0))
        np.add.at(columns[:, 1], region[rows], points.delta[rows])
        np.maximum.at(columns[:, 2], region[rows], in_use)
        np.add.at(columns[:, 3], region[rows[held]], points.delta[rows[held]])
        devices[device] = _memory_of(timeline, rows, region[rows], in_use, peak, held)
    if not devices:
        return ByPlace(devices, nothing)
    allocated, kept, held_bytes = (tree.accumulate(np.ascontiguousarray(columns[:, number])) for number in (0, 1, 3))
    most = columns[:, 2]
    for number in range(len(tree) - 1, ROOT, -1):  # parents stand before their children
        most[tree.parent[number]] = max(most[tree.parent[number]], most[number])
    of_region = [
        RegionMemory(*(int(column[number]) for column in (allocated, kept, most, held_bytes)))
        if allocated[number] or kept[number]
        else None
        for number in range(len(tree))
    ]
    return ByPlace(devices, of_region)


def _in_use(points: MemoryPoints, rows: npt.NDArray[np.intp]) -> Int:
    """Bytes in use after each event; where totals are not told (2021), from the least on."""
    if points.allocated[rows].any():
        return points.allocated[rows]
    total = np.cumsum(points.delta[rows])
    held: Int = total - min(int(total.min()), 0)
    return held


def _held(points: MemoryPoints, rows: npt.NDArray[np.intp], peak: int) -> npt.NDArray[np.intp]:
    """Places of the allocations that are in use at the peak: not released between."""
    address, delta = points.address[rows], points.delta[rows]
    order = np.lexsort((np.arange(len(rows)), address))
    alike = np.append(address[order][1:] == address[order][:-1], False)
    released = np.full(len(rows), _NEVER, np.int64)
    released[order] = np.where(alike, np.append(order[1:], 0), _NEVER)  # by whatever comes next at this address
    position = np.arange(len(rows))
    return np.flatnonzero((delta > 0) & (position <= peak) & (released > peak))


def _memory_of(
    timeline: Timeline, rows: npt.NDArray[np.intp], region: Int, in_use: Int, peak: int, held: npt.NDArray[np.intp]
) -> Memory:
    points, tree = timeline.trace.memory, timeline.ownership.regions
    delta, time, reserved = points.delta[rows], points.start_ns[rows], points.reserved[rows]
    own = _outside_operators(timeline)
    by_region = np.zeros(len(tree), np.int64)
    np.add.at(by_region, own[region[held]], delta[held])
    largest = np.lexsort((np.arange(len(tree)), -by_region))[:MOST_HELD]
    parts = np.array_split(np.arange(len(rows)), min(MOST_POINTS, len(rows)))
    chosen = [int(part[np.argmax(in_use[part])]) for part in parts]
    return Memory(
        first_bytes=int(in_use[0] - delta[0]),
        last_bytes=int(in_use[-1]),
        peak_bytes=int(in_use[peak]),
        peak_ns=int(time[peak]),
        peak_path=tree.path(int(own[region[peak]])),
        peak_reserved_bytes=int(reserved.max()),
        before_bytes=max(int(in_use[peak]) - int(delta[held].sum()), 0),
        held=tuple(MemoryHeld(tree.path(number), int(by_region[number])) for number in largest if by_region[number]),
        points=tuple(MemoryPoint(int(time[row]), int(in_use[row]), int(reserved[row])) for row in chosen),
    )


def _outside_operators(timeline: Timeline) -> Int:
    """The region itself, or of an operator's the innermost one around it that is none (the outermost operator, where
    all are)."""
    tree = timeline.ownership.regions
    operators = {fold_name(name) for name in timeline.trace.operator_names}
    return nearest(tree.parent, np.array([name not in operators for name in tree.name]) | (tree.parent <= ROOT))
