"""Plain figures per region: counts, sums and order statistics, of a region with all its descendants."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.regions import Regions
from boundby.model.arrays import (
    group_counts,
    group_sums,
    into_groups,
    order_statistics,
    room_for_blocks,
)
from boundby.model.intervals import IntervalSet
from boundby.model.library import int64, run

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]


def sums(regions: Regions, region: npt.NDArray[np.integer], value: npt.NDArray[np.int64] | None = None) -> Int:
    """Sum of values (or count of rows) of each region and its descendants, shape (regions,)."""
    size = len(regions)
    if value is None:
        return regions.accumulate(group_counts(region, size))
    return regions.accumulate(group_sums(region, value, size))


class Grouped:
    """Rows by region, of which several columns are asked for."""

    def __init__(self, regions: Regions, region: npt.NDArray[np.integer]) -> None:
        self._regions, self._region = regions, region
        self._count = group_counts(region, len(regions))
        place, after = regions.preorder
        at_place = np.zeros(len(regions), np.int64)
        at_place[place] = self._count
        begins = np.append(0, np.cumsum(at_place))
        self._first, self._stop = begins[place], begins[after]

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
    found = order_statistics(value, first, stop, ranks).reshape(*low.shape, 2).astype(float)
    below, above = found[..., 0], found[..., 1]
    return np.asarray((below + (above - below) * (position - low)).T)


def quantiles(
    group: npt.NDArray[np.integer], value: npt.NDArray[np.int64], count: Int, wanted: tuple[float, ...]
) -> Float:
    """Quantiles of groups, of which each has so many rows, shape (len(wanted), groups); NaN for empty ones."""
    stop, some = np.cumsum(count), np.flatnonzero(count)
    result = np.full((len(wanted), len(count)), np.nan)
    result[:, some] = _of_slices(into_groups(group, value, count), (stop - count)[some], stop[some], wanted)
    return result


class Spread(Struct, frozen=True):
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
    median, p95 = quantiles(region, duration, count, (0.5, 0.95))
    return Spread(count, total, median, p95, longest)


def intervals_in(
    intervals: IntervalSet, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]
) -> tuple[Int, Int, Int]:
    """How many of the intervals overlap each [low, high), for how long together, and the longest overlap.

    The longest is exact: the two at the edges are clipped, those between come from a sparse table (n log n).
    """
    start, end = intervals
    found = tuple(np.empty(len(low), np.int64) for _ in range(3))
    known = int64(start), int64(end), len(start), int64(low), int64(high), len(low)
    run("boundby_inside", *known, room_for_blocks(len(start)), *found)
    return found[0], found[1], found[2]
