"""Durations of every region's instances in order of time: warm-up told apart, too many thinned, all in a histogram."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import Int64Array, group_sums, median, unique
from boundby.plot_data.index import RegionIndex
from boundby.results.plot_data import InstanceSeries, Spread
from boundby.stats.instances import instance_lengths
from boundby.structure.steps import count_warm_up

# Regions with a series of their own: those with the most time.
MOST_REGIONS = 40
# Instances drawn in all series together, and in one at least.
MOST_INSTANCES = 16_000
LEAST_INSTANCES = 200
# Bars of a histogram. Instances beyond the quantile go to one last bar, so that a single outlier leaves the rest
# readable.
BARS = 40
LAST_BAR_FROM = 0.99
LEAST_FOR_LAST_BAR = 100  # instances: of fewer, one is more than that 1 %

Rows = npt.NDArray[np.intp]


def instance_series(timeline: Timeline, index: RegionIndex) -> tuple[InstanceSeries, ...]:
    """A series for every region with at least two instances, most time first."""
    ranges, regions = timeline.trace.ranges, timeline.ownership.regions
    rows = np.flatnonzero(timeline.counted_ranges)
    region = regions.of_range[rows]
    host = (ranges.end_ns - ranges.start_ns)[rows]
    launched = timeline.projected_end_ns[rows] >= timeline.projected_start_ns[rows]
    projected = np.where(launched, timeline.projected_end_ns[rows] - timeline.projected_start_ns[rows], -1)
    count = np.bincount(region, minlength=len(regions))
    time = group_sums(region, np.maximum(host, projected), len(regions))
    several = np.flatnonzero(count >= 2)
    chosen = several[np.lexsort((several, -time[several]))][:MOST_REGIONS]
    most = max(MOST_INSTANCES // max(len(chosen), 1), LEAST_INSTANCES)
    order = np.lexsort((rows, ranges.start_ns[rows], region))
    bounds = np.searchsorted(region[order], [chosen, chosen + 1])
    return tuple(
        _series(
            index.one(number),
            ranges.start_ns[rows[mine]],
            host[mine],
            projected[mine],
            count_warm_up(instance_lengths(timeline, rows[mine][~ranges.is_open[rows[mine]]])),
            most,
        )
        for number, mine in zip(chosen.tolist(), [order[low:high] for low, high in bounds.T.tolist()], strict=True)
    )


def _series(
    region: int, start: Int64Array, host: Int64Array, projected: Int64Array, warm: int, most: int
) -> InstanceSeries:
    shown = _thin(np.maximum(host, projected), most)
    launched = projected >= 0
    later = np.arange(len(host)) >= warm
    return InstanceSeries(
        region=region,
        count=len(host),
        warm_up=warm,
        thinned=len(shown) < len(host),
        index=shown.astype(np.int64),
        start_ns=start[shown],
        host_ns=host[shown],
        projected_ns=projected[shown],
        host_median_ns=float(median(host[later])),
        projected_median_ns=float(median(projected[later & launched])) if (later & launched).any() else None,
        host=_spread(host[later]),
        projected=_spread(projected[later & launched]) if (later & launched).any() else None,
    )


def _thin(duration_ns: Int64Array, most: int) -> Rows:
    """All rows, or the shortest and the longest of each run of neighbours: what a plot of all would show."""
    count = len(duration_ns)
    if count <= most:
        return np.arange(count)
    group = np.arange(count) * (most // 2) // count
    order = np.lexsort((np.arange(count), duration_ns, group))
    first = np.flatnonzero(np.append(True, np.diff(group) > 0))
    last = np.append(first[1:], count) - 1
    return unique(np.concatenate((order[first], order[last])))


def _spread(duration_ns: Int64Array) -> Spread:
    low, high = float(duration_ns.min()), float(duration_ns.max())
    top = float(np.quantile(duration_ns, LAST_BAR_FROM)) if len(duration_ns) >= LEAST_FOR_LAST_BAR else high
    if high == low:
        return Spread(np.array([low, low + 1.0]), np.array([len(duration_ns)], np.int64))
    edges = np.linspace(low, top, BARS + 1) if top > low else np.array([low])
    if high > top:
        edges = np.append(edges, high)
    counts, _ = np.histogram(duration_ns, edges)
    return Spread(edges, counts.astype(np.int64), has_last=high > top)
