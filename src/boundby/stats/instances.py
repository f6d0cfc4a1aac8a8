"""How long each instance of a region took, in order of time: what a comparison of two runs tests its changes with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import group_counts, in_order, into_groups, spread
from boundby.results.report import Instances

Int = npt.NDArray[np.int64]

#: Durations kept of each region. A shift of a tenth of the spread shows with so many; more only fill the file.
KEPT = 240
#: And of a region below SMALL_SHARE of the time, of which a trace with operator ranges holds thousands.
KEPT_OF_SMALL, SMALL_SHARE = 60, 0.002


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


class Series(Struct, frozen=True):
    """Durations grouped by region, in each group in order of start: region r has ``first[r]:first[r + 1]``."""

    duration_ns: Int
    first: npt.NDArray[np.intp]

    def of(self, region: int, kept: int) -> tuple[int, ...]:
        """At most ``kept`` durations of one region, taken evenly over time."""
        low, high = int(self.first[region]), int(self.first[region + 1])
        every = self.duration_ns[low:high]
        return tuple((every if len(every) <= kept else every[_evenly(len(every), kept)]).tolist())


def host_series(timeline: Timeline, rows: npt.NDArray[np.intp]) -> Series:
    """Host durations of these ranges."""
    ranges = timeline.trace.ranges
    return _series(timeline, rows, ranges.start_ns[rows], (ranges.end_ns - ranges.start_ns)[rows])


def projected_series(timeline: Timeline, rows: npt.NDArray[np.intp]) -> Series:
    """Projected durations of these ranges, all of which launched work."""
    start = timeline.projected_start_ns[rows]
    return _series(timeline, rows, start, timeline.projected_end_ns[rows] - start)


def instances(host: Series, projected: Series, region: int, share: float) -> Instances:
    """What the report keeps of a region that takes ``share`` of all time."""
    kept = KEPT if share >= SMALL_SHARE else KEPT_OF_SMALL
    return Instances(host.of(region, kept), projected.of(region, kept))


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


def _evenly(count: int, kept: int) -> npt.NDArray[np.intp]:
    """Places of at most ``kept`` of ``count`` items: from the middle of equal parts, so that no end is favoured."""
    return ((2 * np.arange(kept) + 1) * count // (2 * kept)).astype(np.intp)
