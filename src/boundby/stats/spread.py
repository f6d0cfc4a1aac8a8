"""Plain figures per region: counts, sums and order statistics, of a region with all its descendants."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.regions import Regions
from boundby.model.arrays import places, range_maximum
from boundby.model.records import dataclass

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]


def sums(regions: Regions, region: npt.NDArray[np.int64], value: npt.NDArray[np.int64] | None = None) -> Int:
    """Sum of values (or count of rows) of each region and its descendants, shape (regions,)."""
    total = np.zeros(len(regions), np.int64)
    np.add.at(total, region, 1 if value is None else value)
    return regions.accumulate(total)


def quantiles(
    regions: Regions, region: npt.NDArray[np.int64], value: npt.NDArray[np.int64], wanted: tuple[float, ...]
) -> Float:
    """Quantiles (linear interpolation, as NumPy's default) of each region with its descendants.

    Shape (len(wanted), regions); NaN where a region has no rows. O(depth * n log n).
    """
    result = np.full((len(wanted), len(regions)), np.nan)
    current = region.copy()
    for level in range(int(regions.depth.max(initial=0)), -1, -1):
        rows = np.flatnonzero(regions.depth[current] == level) if len(current) else np.empty(0, np.intp)
        if len(rows):
            groups, found = group_quantiles(current[rows], value[rows], wanted)
            result[:, groups] = found
            current[rows] = np.maximum(regions.parent[current[rows]], 0)
    return result


def group_quantiles(
    group: npt.NDArray[np.int64], value: npt.NDArray[np.int64], wanted: tuple[float, ...]
) -> tuple[npt.NDArray[np.int64], Float]:
    """The distinct groups, ascending, and the quantiles of each, shape (len(wanted), groups)."""
    group, value = _in_order(group, value)
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(group) else np.empty(0, np.intp)
    size = np.diff(np.append(first, len(group)))
    found = np.empty((len(wanted), len(first)))
    for row, quantile in enumerate(wanted):
        position = quantile * (size - 1)
        low = np.floor(position).astype(np.intp)
        high = np.minimum(low + 1, size - 1)
        below, above = value[first + low].astype(float), value[first + high].astype(float)
        found[row] = below + (above - below) * (position - low)
    return group[first], found


def _in_order(
    group: npt.NDArray[np.int64], value: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Both by group, then by value."""
    if len(group) == 0:
        return group, value
    low = int(value.min())
    width = int(value.max()) - low + 1
    if int(group.min()) >= 0 and (int(group.max()) + 1) * width <= np.iinfo(np.int64).max:
        # As one number: several times faster to sort than two columns.
        key = np.sort(group.astype(np.int64) * width + (value - low))
        group = key // width
        return group, key - group * width + low
    order = np.lexsort((value, group))
    return group[order], value[order]


@dataclass(frozen=True)
class Spread:
    """Distribution of instance durations per region (of the region's own instances, not its descendants')."""

    count: Int
    total: Int
    median: Float
    p95: Float
    longest: Int


def spread(size: int, region: npt.NDArray[np.int64], duration: npt.NDArray[np.int64]) -> Spread:
    """Statistics of instance durations; ``size`` is the number of regions."""
    count, total, longest = (np.zeros(size, np.int64) for _ in range(3))
    np.add.at(count, region, 1)
    np.add.at(total, region, duration)
    np.maximum.at(longest, region, duration)
    median, p95 = np.full(size, np.nan), np.full(size, np.nan)
    groups, found = group_quantiles(region, duration, (0.5, 0.95))
    median[groups], p95[groups] = found
    return Spread(count, total, median, p95, longest)


def longest_in(
    start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]
) -> tuple[Int, Int]:
    """How many of the sorted disjoint intervals overlap each [low, high), and the longest overlap.

    The longest is exact: the two at the edges are clipped, those between come from a sparse table (n log n).
    """
    first = places(end, low, side="right")
    stop = np.maximum(places(start, high, side="left"), first)
    count = np.where(high > low, stop - first, 0).astype(np.int64)
    some = count > 0
    longest = np.zeros(len(low), np.int64)
    if not some.any():
        return count, longest
    left, right = first[some], stop[some] - 1
    edges = np.maximum(
        np.minimum(end[left], high[some]) - np.maximum(start[left], low[some]),
        np.minimum(end[right], high[some]) - np.maximum(start[right], low[some]),
    )
    longest[some] = np.maximum(edges, range_maximum(end - start, left + 1, right))
    return count, longest
