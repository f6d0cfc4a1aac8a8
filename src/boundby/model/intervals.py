"""Interval algebra on sorted int64 arrays. Intervals are half open; every function is O(n log n) or better.

A *set* is a pair (start, end) of equally long arrays, sorted, disjoint, without empty intervals: what
``union`` returns. Everything else takes sets and returns sets. Passes over them run natively (``native/intervals.c``).
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int64Array, as_rows
from boundby.model.library import int64, run


class IntervalSet(NamedTuple):
    """Sorted, disjoint, non-empty half-open intervals."""

    start: Int64Array
    end: Int64Array

    @property
    def total(self) -> int:
        return int((self.end - self.start).sum())


EMPTY = IntervalSet(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> IntervalSet:
    """Merge intervals in any order into a set; touching ones join, empty and negative ones vanish."""
    if len(start) == 0:
        return EMPTY
    starts, ends = int64(start), int64(end)
    found = IntervalSet(np.empty(len(starts), np.int64), np.empty(len(starts), np.int64))
    count = run("boundby_union", starts, ends, len(starts), *found)
    if count < 0:
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        count = run("boundby_union", starts, ends, len(starts), *found)
    if count == len(starts):  # as they are, in the columns that were given
        return IntervalSet(starts, ends)
    return IntervalSet(*(_fitted(column, count) for column in found)) if count else EMPTY


def _fitted(column: Int64Array, count: int) -> Int64Array:
    """The first values of a column, without the room behind them where that is much."""
    return column[:count].copy() if count < len(column) // 2 else column[:count]


def clip(intervals: IntervalSet, low: int, high: int) -> IntervalSet:
    """The part of a set inside [low, high)."""
    if len(intervals.start) and intervals.start[0] >= low and intervals.end[-1] <= high:
        return intervals
    start = np.maximum(intervals.start, low)
    end = np.minimum(intervals.end, high)
    kept = end > start
    return IntervalSet(start[kept], end[kept])


def complement(intervals: IntervalSet, low: int, high: int) -> IntervalSet:
    """The part of [low, high) outside a set."""
    inside = clip(intervals, low, high)
    if len(inside.start) and inside.start[0] == low and inside.end[-1] == high:  # parts of the same columns
        start, end = inside.end[:-1], inside.start[1:]
    else:
        start, end = np.append(np.int64(low), inside.end), np.append(inside.start, np.int64(high))
    kept = as_rows(end > start)
    return IntervalSet(start[kept], end[kept])


def intersect(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """Instants in both sets."""
    if len(a.start) == 0 or len(b.start) == 0:
        return EMPTY
    pieces = overlay(a, b)
    return IntervalSet(pieces.start, pieces.end)


def subtract(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """Instants of ``a`` outside ``b``."""
    if len(a.start) == 0:
        return EMPTY
    return intersect(a, complement(b, int(a.start[0]), int(a.end[-1])))


class Overlay(NamedTuple):
    """Pieces of one interval list that lie in another: ``[start, end)`` in ``a[left]`` and ``b[right]``."""

    start: Int64Array
    end: Int64Array
    left: npt.NDArray[np.intp]
    right: npt.NDArray[np.intp]


def overlay(a: IntervalSet, b: IntervalSet) -> Overlay:
    """Every non-empty piece of ``a``'s intervals in ``b``'s, with the index of each parent.

    Both are sorted and disjoint in themselves, so there are at most len(a) + len(b) pieces.
    """
    sides = [int64(column) for column in (*a, *b)]
    size, others = len(sides[0]), len(sides[2])
    room = size + others
    while True:
        found = Overlay(*(np.empty(room, np.int64) for _ in range(4)))
        count = run("boundby_overlay", *sides[:2], size, *sides[2:], others, room, *found)
        if count <= room:
            return Overlay(*(_fitted(column, count) for column in found))
        room = count


def expand(first: npt.NDArray[Any], stop: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Write out index runs: (row, index) for every index in ``[first[row], stop[row])``."""
    count = (stop - first).astype(np.intp)
    row = np.repeat(np.arange(len(count), dtype=np.intp), count)
    offset = np.arange(len(row), dtype=np.intp) - np.repeat(np.cumsum(count) - count, count)
    return row, np.repeat(first.astype(np.intp), count) + offset


class Coverage:
    """Answers "how much of the set lies before t" and so "how much of [a, b) is covered", in O(log n)."""

    def __init__(self, intervals: IntervalSet) -> None:
        self._start = intervals.start
        self._end = intervals.end
        self._before = np.concatenate(([0], np.cumsum(intervals.end - intervals.start))).astype(np.int64)

    def until(self, time: npt.NDArray[Any]) -> Int64Array:
        """Covered nanoseconds before each instant."""
        covered: Int64Array = np.empty(len(time), np.int64)
        known = int64(self._start), int64(self._end), self._before
        run("boundby_covered", *known, len(self._start), int64(time), len(time), covered)
        return covered

    def within(self, start: npt.NDArray[Any], end: npt.NDArray[Any]) -> Int64Array:
        """Covered nanoseconds inside each [start, end)."""
        return self.until(end) - self.until(start)


def contains(intervals: IntervalSet, time: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Index of the interval that holds each instant, else -1."""
    found = np.empty(len(time), np.int64)
    known = int64(intervals.start), int64(intervals.end), len(intervals.start)
    run("boundby_contains", *known, int64(time), len(time), found)
    return found


def exposed(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> tuple[IntervalSet, npt.NDArray[np.intp]]:
    """Split a union among its members: each instant goes to the earliest started member that covers it.

    ``start`` is sorted. Returns disjoint pieces, in order, and the row that owns each. A row that is wholly
    covered by earlier ones owns nothing: it is hidden.
    """
    if len(start) == 0:
        return EMPTY, np.empty(0, np.intp)
    if bool((start[1:] >= end[:-1]).all()) and bool((end > start).all()):
        return IntervalSet(start, end), np.arange(len(start))
    reach = np.maximum.accumulate(end)
    begin = start.copy()
    begin[1:] = np.maximum(start[1:], reach[:-1])
    owner = as_rows(end > begin)
    return IntervalSet(begin[owner], end[owner]), np.arange(len(start))[owner]


def first_free_lanes(start: Int64Array, end: Int64Array, most: int | None = None) -> Int64Array:
    """A lane for each interval (in order of start), the first that is free: no two of a lane overlap. O(n log n).

    Of ``most`` lanes the last takes what fits nowhere.
    """
    lane: Int64Array = np.zeros(len(start), np.int64)
    if len(start) < 2 or bool((start[1:] >= np.maximum.accumulate(end)[:-1]).all()):
        return lane
    busy: list[tuple[int, int]] = []  # (end, lane)
    free: list[int] = []
    lanes = 0
    for row, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free and lanes == most:
            lane[row] = lanes - 1
            continue
        if not free:
            free.append(lanes)
            lanes += 1
        lane[row] = heapq.heappop(free)
        heapq.heappush(busy, (until, int(lane[row])))
    return lane
