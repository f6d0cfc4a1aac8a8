"""Each instance of a region: how long it took, what it carried, and the order statistics of a region with all its
descendants.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.regions import Regions
from boundby.attribution.timeline import Timeline
from boundby.model.arrays import (
    group_counts,
    group_sums,
    in_order,
    into_groups,
    median,
    order_statistics,
    room_for_blocks,
    spread,
    unique,
)
from boundby.model.intervals import IntervalSet
from boundby.model.library import int64, run
from boundby.model.scale import CURVE
from boundby.results.report import Instances, Payload

# Plain figures per region: counts, sums and order statistics, of a region with all its descendants.

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]


def sums(regions: Regions, region: npt.NDArray[np.integer], value: npt.NDArray[np.int64] | None = None) -> Int:
    """Sum of values (or count of rows) of each region and its descendants, shape (regions,)."""
    size = len(regions)
    if value is None:
        return regions.accumulate(group_counts(region, size))
    return regions.accumulate(group_sums(region, value, size))


def with_ancestors(regions: Regions, region: npt.NDArray[np.integer]) -> tuple[Int, npt.NDArray[np.intp]]:
    """Of each row its region and those around it, and which row it is; first each row's own."""
    which = np.arange(len(region))
    columns = [(region, which)]
    while len(region):
        region = regions.parent[region].astype(np.int64)
        inside = region >= 0
        region, which = region[inside], which[inside]
        columns.append((region, which))
    return np.concatenate([column for column, _ in columns]), np.concatenate([column for _, column in columns])


class Grouped:
    """Rows by region, of which several columns are asked for."""

    def __init__(self, regions: Regions, region: npt.NDArray[np.integer]) -> None:
        self._regions, self._region = regions, region
        self._count = group_counts(region, len(regions))
        position, after = regions.preorder
        at_place = np.zeros(len(regions), np.int64)
        at_place[position] = self._count
        begins = np.append(0, np.cumsum(at_place))
        self._first, self._stop = begins[position], begins[after]

    def quantiles(self, value: npt.NDArray[np.int64], wanted: tuple[float, ...]) -> Float:
        """Quantiles (linear interpolation, as NumPy's default) of each region with its descendants.

        Shape (len(wanted), regions); NaN where a region has no rows.
        """
        rows = np.flatnonzero(self._stop > self._first)
        first, stop = self._first[rows], self._stop[rows]
        inner_first = np.lexsort((first, stop - first))  # a region's values lie among those of the region around it
        rows, first, stop = rows[inner_first], first[inner_first], stop[inner_first]
        new = np.append(True, (first[1:] != first[:-1]) | (stop[1:] != stop[:-1]))[: len(rows)]  # else like the last
        values = into_groups(self._region, value, self._count, self._first)
        result = np.full((len(wanted), len(self._regions)), np.nan)
        result[:, rows] = _of_slices(values, first[new], stop[new], wanted)[:, np.cumsum(new) - 1]
        return result


def _of_slices(
    value: npt.NDArray[np.int64], first: npt.NDArray[np.intp], stop: npt.NDArray[np.intp], wanted: tuple[float, ...]
) -> Float:
    """Quantiles of each ``value[first:stop]``, none of which is empty, shape (len(wanted), slices)."""
    position = np.multiply.outer(stop - first - 1, np.array(wanted))
    low = np.floor(position).astype(np.intp)
    high = low + (position > low)
    ranks = np.stack((low, high), axis=2).reshape(len(first), 2 * len(wanted))
    bounds_of = order_statistics(value, first, stop, ranks).reshape(*low.shape, 2).astype(float)
    below, above = bounds_of[..., 0], bounds_of[..., 1]
    return np.asarray((below + (above - below) * (position - low)).T)


def quantiles(
    group: npt.NDArray[np.integer], value: npt.NDArray[np.int64], count: Int, wanted: tuple[float, ...]
) -> Float:
    """Quantiles of groups, of which each has so many rows, shape (len(wanted), groups); NaN for empty ones."""
    stop, some = np.cumsum(count), np.flatnonzero(count)
    result = np.full((len(wanted), len(count)), np.nan)
    result[:, some] = _of_slices(into_groups(group, value, count), (stop - count)[some], stop[some], wanted)
    return result


OfDevice = TypeVar("OfDevice")
OfRegion = TypeVar("OfRegion")


class ByPlace(NamedTuple, Generic[OfDevice, OfRegion]):
    """Of each device (by its index into Trace.gpus) and of each region with its descendants; no device, and None:
    nothing is told of it."""

    of_device: dict[int, OfDevice]
    of_region: list[OfRegion | None]


class RegionSpread(Struct, frozen=True):
    """Distribution of instance durations per region (of the region's own instances, not its descendants')."""

    count: Int
    total: Int
    median: Float
    p95: Float
    longest: Int


def region_spread(size: int, region: npt.NDArray[np.int64], duration: npt.NDArray[np.int64]) -> RegionSpread:
    """Statistics of instance durations; ``size`` is the number of regions."""
    count, total = group_counts(region, size), group_sums(region, duration, size)
    longest = np.zeros(size, np.int64)
    np.maximum.at(longest, region, duration)
    median, p95 = quantiles(region, duration, count, (0.5, 0.95))
    return RegionSpread(count, total, median, p95, longest)


def intervals_in(
    intervals: IntervalSet, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]
) -> tuple[Int, Int, Int]:
    """How many of the intervals overlap each [low, high), for how long together, and the longest overlap.

    The longest is exact: the two at the edges are clipped, those between come from a sparse table (n log n).
    """
    start, end = intervals
    inside = tuple(np.empty(len(low), np.int64) for _ in range(3))
    arguments = int64(start), int64(end), len(start), int64(low), int64(high), len(low)
    run("boundby_inside", *arguments, room_for_blocks(len(start)), *inside)
    return inside[0], inside[1], inside[2]


# How long each instance of a region took, in order of time: what a comparison of two runs tests its changes with.

#: Durations kept of each region. A shift of a tenth of the spread shows with so many; more only fill the file.
KEPT = CURVE
#: And of a region below SMALL_SHARE of the time, of which a trace with operator ranges holds thousands.
KEPT_OF_SMALL = KEPT // 4
SMALL_SHARE = 0.002


def instance_lengths(timeline: Timeline, rows: npt.NDArray[np.intp]) -> Int:
    """How long each of these ranges (of one region, in order of start) took.

    As long as the range was open, or its work on the device lasted; but where instances overlap on the device because
    the host runs ahead, no longer than from the end of the one before to its own.
    """
    ranges = timeline.trace.ranges
    end = ranges.end_ns[rows]
    return lengths_of(end - ranges.start_ns[rows], *projected(timeline, rows, end))


def projected(timeline: Timeline, rows: slice | npt.NDArray[np.intp], end: Int) -> tuple[Int, Int]:
    """Of these ranges, which end then, how long their work on the device lasted, -1 for those that launched none; and
    when each was over, its work with it."""
    if not len(timeline.trace.operations):
        return spread(-1, len(end)), end
    first, last = timeline.projected_start_ns[rows], timeline.projected_end_ns[rows]
    launched = last >= first  # elsewhere both are the ends of the number range, whose difference overflows
    return np.where(launched, last - first, -1), np.where(launched, last, end)


def lengths_of(host: Int, device: Int, over: Int) -> Int:
    """`instance_lengths`, from how long each was open and worked on the device (else -1), and when it was over."""
    length = np.maximum(host, device)
    length[1:] = np.clip(np.diff(over), 0, length[1:])
    return length


class InstanceFigures(Struct, frozen=True):
    """Of each region's own instances: how long they were open and their work on the device lasted, how many never
    closed, and what they carry."""

    host_spread: RegionSpread
    projected_spread: RegionSpread
    host_series: Series
    projected_series: Series
    open: Int
    payloads: list[Payload | None]


def instance_figures(timeline: Timeline) -> InstanceFigures:
    """Of the instances that count."""
    ranges, of_range = timeline.trace.ranges, timeline.ownership.regions.of_range
    size, begun_ns, done_ns = len(timeline.ownership.regions), timeline.projected_start_ns, timeline.projected_end_ns
    counted = np.flatnonzero(timeline.counted_ranges)
    launched = counted[done_ns[counted] >= begun_ns[counted]]
    return InstanceFigures(
        host_spread=region_spread(size, of_range[counted], (ranges.end_ns - ranges.start_ns)[counted]),
        projected_spread=region_spread(size, of_range[launched], (done_ns - begun_ns)[launched]),
        host_series=host_series(timeline, counted),
        projected_series=projected_series(timeline, launched),
        open=group_counts(of_range[counted[ranges.is_open[counted]]], size),
        payloads=payloads(timeline),
    )


class Series(Struct, frozen=True):
    """Durations grouped by region, in each group in order of start: region r has ``first[r]:first[r + 1]``."""

    duration_ns: Int
    first: npt.NDArray[np.intp]

    def of(self, region: int, kept: int) -> tuple[int, ...]:
        """At most ``kept`` durations of one region, taken evenly over time."""
        low, high = int(self.first[region]), int(self.first[region + 1])
        every = self.duration_ns[low:high]
        return tuple((every if len(every) <= kept else every[evenly(len(every), kept)]).tolist())


def host_series(timeline: Timeline, rows: npt.NDArray[np.intp]) -> Series:
    """Host durations of these ranges."""
    ranges = timeline.trace.ranges
    return _series(timeline, rows, ranges.start_ns[rows], (ranges.end_ns - ranges.start_ns)[rows])


def projected_series(timeline: Timeline, rows: npt.NDArray[np.intp]) -> Series:
    """Projected durations of these ranges, all of which launched work."""
    start = timeline.projected_start_ns[rows]
    return _series(timeline, rows, start, timeline.projected_end_ns[rows] - start)


def instances(figures: InstanceFigures, region: int, share: float) -> Instances:
    """What the report keeps of a region that takes ``share`` of all time."""
    kept = KEPT if share >= SMALL_SHARE else KEPT_OF_SMALL
    return Instances(figures.host_series.of(region, kept), figures.projected_series.of(region, kept))


def _series(timeline: Timeline, rows: npt.NDArray[np.intp], start: Int, duration: Int) -> Series:
    regions = timeline.ownership.regions
    region = regions.of_range[rows]
    count = group_counts(region, len(regions))
    first = np.append(0, np.cumsum(count))
    begun, grouped = into_groups(region, start, count), into_groups(region, duration, count)
    is_late = begun[1:] > begun[:-1]
    is_late[first[1:-1][(first[1:-1] > 0) & (first[1:-1] < len(begun))] - 1] = True  # the first of a region
    if not is_late.all():
        by_time = in_order(start, duration)
        grouped = into_groups(region[by_time], duration[by_time], count)
    return Series(grouped, first)


def evenly(count: int, kept: int) -> npt.NDArray[np.intp]:
    """Places of at most ``kept`` of ``count`` items: from the middle of equal parts, so that no end is favoured."""
    return ((2 * np.arange(kept) + 1) * count // (2 * kept)).astype(np.intp)


# What the ranges of a region carry (a batch size, tokens), and how long the region takes for each of it.


def payloads(timeline: Timeline) -> list[Payload | None]:
    """Of each region; None where its ranges carry no number."""
    ranges, regions = timeline.trace.ranges, timeline.ownership.regions
    of_region: list[Payload | None] = [None] * len(regions)
    carrying = np.isfinite(ranges.payload) & timeline.counted_ranges & ~ranges.is_open
    for region in unique(regions.of_range[carrying]).tolist():
        rows = np.flatnonzero(carrying & (regions.of_range == region))
        rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
        number = ranges.payload[rows]
        counts = number > 0
        each_ns = instance_lengths(timeline, rows)[counts] / number[counts]
        names_of = {
            timeline.trace.names[name] if name >= 0 else "" for name in unique(ranges.payload_name[rows]).tolist()
        }
        of_region[region] = Payload(
            count=len(rows),
            total=float(number.sum()),
            least=float(number.min()),
            most=float(number.max()),
            ns_per_unit=median(each_ns) if len(each_ns) else None,
            name=names_of.pop() if len(names_of) == 1 else "",
        )
    return of_region
