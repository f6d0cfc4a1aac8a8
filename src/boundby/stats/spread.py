"""Plain figures per region: counts, sums and order statistics, of a region with all its descendants."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.regions import Regions
from boundby.model.arrays import (
    group_counts,
    group_sums,
    into_groups,
    order_statistics,
    pick,
    places,
    range_maximum,
    ranked,
)
from boundby.model.records import dataclass

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]


def sums(regions: Regions, region: npt.NDArray[np.integer], value: npt.NDArray[np.int64] | None = None) -> Int:
    """Sum of values (or count of rows) of each region and its descendants, shape (regions,)."""
    size = len(regions)
    if value is None:
        return regions.accumulate(group_counts(region, size))
    return regions.accumulate(group_sums(region, value, size))


def quantiles(
    regions: Regions, region: npt.NDArray[np.integer], value: npt.NDArray[np.int64], wanted: tuple[float, ...]
) -> Float:
    """Quantiles (linear interpolation, as NumPy's default) of each region with its descendants.

    Shape (len(wanted), regions); NaN where a region has no rows.
    """
    place, after = regions.preorder
    of_row = pick(place, region, 0)
    count = group_counts(of_row, len(regions))
    begins = np.append(0, np.cumsum(count))
    first, stop = begins[place], begins[after]
    rows = np.lexsort((-place, -regions.depth))  # a region's values lie among those of the region around it
    rows = rows[stop[rows] > first[rows]]
    result = np.full((len(wanted), len(regions)), np.nan)
    result[:, rows] = _of_slices(into_groups(of_row, value, count), first[rows], stop[rows], wanted)
    return result


def _of_slices(
    value: npt.NDArray[np.int64], first: npt.NDArray[np.intp], stop: npt.NDArray[np.intp], wanted: tuple[float, ...]
) -> Float:
    """Quantiles of each ``value[first:stop]``, none of which is empty, shape (len(wanted), slices)."""
    position = np.multiply.outer(stop - first - 1, np.array(wanted))
    low = np.floor(position).astype(np.intp)
    high = np.minimum(low + 1, (stop - first - 1)[:, np.newaxis])
    ranks = np.stack((low, high), axis=2).reshape(len(first), 2 * len(wanted))
    found = order_statistics(value, first, stop, ranks).reshape(*low.shape, 2).astype(float)
    below, above = found[..., 0], found[..., 1]
    return np.asarray((below + (above - below) * (position - low)).T)


def group_quantiles(
    group: npt.NDArray[np.int64], value: npt.NDArray[np.int64], wanted: tuple[float, ...]
) -> tuple[npt.NDArray[np.int64], Float]:
    """The distinct groups, ascending, and the quantiles of each, shape (len(wanted), groups)."""
    groups, index = ranked(group)
    count = group_counts(index, len(groups))
    stop = np.cumsum(count)
    return groups, _of_slices(into_groups(index, value, count), stop - count, stop, wanted)


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
    count, total = group_counts(region, size), group_sums(region, duration, size)
    longest = np.zeros(size, np.int64)
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
