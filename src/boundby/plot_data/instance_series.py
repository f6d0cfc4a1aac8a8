"""Durations of every region's instances in order of time: warm-up told apart, too many thinned, all in a histogram."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import (
    Int64Array,
    as_rows,
    group_counts,
    group_sums,
    in_order,
    into_groups,
    narrow,
    quantile,
    unique,
)
from boundby.model.scale import TABLE
from boundby.plot_data.index import RegionIndex
from boundby.results.plot_data import InstanceSeries, Spread
from boundby.stats.instances import lengths_of, projected
from boundby.structure.steps import count_warm_up

# Regions with a series of their own: those with the most time.
MOST_REGIONS = TABLE
# Instances drawn in all series together, and in one at least.
MOST_INSTANCES = 16_000
LEAST_INSTANCES = 200
# Bars of a histogram. Instances beyond the quantile go to one last bar, so that a single outlier leaves the rest
# readable.
BARS = TABLE
LAST_BAR_FROM = 0.99
LEAST_FOR_LAST_BAR = 100  # instances: of fewer, one is more than that 1 %

Rows = npt.NDArray[np.intp]


def instance_series(timeline: Timeline, index: RegionIndex) -> tuple[InstanceSeries, ...]:
    """A series for every region with at least two instances, most time first."""
    ranges, regions = timeline.trace.ranges, timeline.ownership.regions
    rows = as_rows(timeline.counted_ranges)
    region, start, end = regions.of_range[rows], ranges.start_ns[rows], ranges.end_ns[rows]
    host, is_open = end - start, ranges.is_open[rows]
    device, over = projected(timeline, rows, end)
    count = group_counts(region, len(regions))
    time = group_sums(region, np.maximum(host, device), len(regions))
    several = np.flatnonzero(count >= 2)
    chosen = several[np.lexsort((several, -time[several]))][:MOST_REGIONS]
    most = max(MOST_INSTANCES // max(len(chosen), 1), LEAST_INSTANCES)
    by_time = in_order(start)
    order = into_groups(region[by_time], np.arange(len(start))[by_time], count)
    stop = np.cumsum(count)[chosen]
    bounds = np.stack((stop - count[chosen], stop), axis=1)
    found, is_any_open = [], bool(is_open.any())
    for number, mine in zip(chosen.tolist(), [order[low:high] for low, high in bounds.tolist()], strict=True):
        closed = mine[~is_open[mine]] if is_any_open else mine
        warm = count_warm_up(lengths_of(host[closed], device[closed], over[closed]))
        found.append(_series(index.one(number), start[mine], host[mine], device[mine], warm, most))
    return tuple(found)


def _series(
    region: int, start: Int64Array, host: Int64Array, device: Int64Array, warm: int, most: int
) -> InstanceSeries:
    shown = _thin(np.maximum(host, device), most)
    launched = device >= 0
    usual = np.sort(narrow(host[warm:]))  # half as wide, they take half as long
    usual_projected = np.sort(narrow(device[warm:][launched[warm:]]))
    return InstanceSeries(
        region=region,
        count=len(host),
        warm_up=warm,
        thinned=len(shown) < len(host),
        index=shown.astype(np.int64),
        start_ns=start[shown],
        host_ns=host[shown],
        projected_ns=device[shown],
        host_median_ns=_middle(usual),
        projected_median_ns=_middle(usual_projected) if len(usual_projected) else None,
        host=_spread(usual),
        projected=_spread(usual_projected) if len(usual_projected) else None,
    )


def _thin(duration_ns: Int64Array, most: int) -> Rows:
    """All rows, or the shortest and the longest of each run of neighbours: what a plot of all would show."""
    count = len(duration_ns)
    if count <= most:
        return np.arange(count)
    group = np.arange(count) * (most // 2) // count
    first = np.flatnonzero(np.append(True, np.diff(group) > 0))
    size = np.diff(np.append(first, count))
    least, greatest = (np.repeat(of.reduceat(duration_ns, first), size) for of in (np.minimum, np.maximum))
    shortest, longest = np.flatnonzero(duration_ns == least), np.flatnonzero(duration_ns == greatest)
    is_first, is_last = np.append(True, np.diff(group[shortest]) > 0), np.append(np.diff(group[longest]) > 0, True)
    return unique(np.concatenate((shortest[is_first], longest[is_last])))


def _middle(duration_ns: Int64Array) -> float:
    """The median of durations that ascend."""
    half = len(duration_ns) // 2
    return (float(duration_ns[half]) + float(duration_ns[(len(duration_ns) - 1) // 2])) / 2


def _spread(duration_ns: Int64Array) -> Spread:
    """Of durations that ascend."""
    low, high = float(duration_ns[0]), float(duration_ns[-1])
    top = quantile(duration_ns, LAST_BAR_FROM, ascend=True) if len(duration_ns) >= LEAST_FOR_LAST_BAR else high
    if high == low:
        return Spread(np.array([low, low + 1.0]), np.array([len(duration_ns)], np.int64))
    edges = np.linspace(low, top, BARS + 1) if top > low else np.array([low])
    if high > top:
        edges = np.append(edges, high)
    below = np.append(np.searchsorted(duration_ns, edges[:-1]), len(duration_ns))
    return Spread(edges, np.diff(below).astype(np.int64), has_last=high > top)
