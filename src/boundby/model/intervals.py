"""Sets of intervals, step functions and nested ranges, on sorted int64 arrays. Intervals are half open; every function
is O(n log n) or better.

A *set* is a pair (start, end) of equally long arrays, sorted, disjoint, without empty intervals: what
``union`` returns. Everything else takes sets and returns sets. Passes over them run natively (``native/intervals.c``).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model.arrays import Int64Array, as_rows, pick, places, sorted_distinct
from boundby.model.library import int64, run
from boundby.model.scale import DEEPEST, PLENTY

#: Threads of a process, and streams of a device, beyond which those that take turns are no more told apart: twice
#: what any trace seen so far has. What is worked out for each takes a thousandth of a second and more.
MOST_APART = PLENTY


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
    merged_set = IntervalSet(np.empty(len(starts), np.int64), np.empty(len(starts), np.int64))
    count = run("boundby_union", starts, ends, len(starts), *merged_set)
    if count < 0:
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        count = run("boundby_union", starts, ends, len(starts), *merged_set)
    if count == len(starts):  # as they are, in the columns that were given
        return IntervalSet(starts, ends)
    return IntervalSet(*(_fitted(column, count) for column in merged_set)) if count else EMPTY


def any_of(sets: Iterable[IntervalSet]) -> IntervalSet:
    """Instants in any of these sets."""
    parts = [part for part in sets if len(part.start)]
    if len(parts) < 2:
        return parts[0] if parts else EMPTY
    return union(np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts]))


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
        pieces = Overlay(*(np.empty(room, np.int64) for _ in range(4)))
        count = run("boundby_overlay", *sides[:2], size, *sides[2:], others, room, *pieces)
        if count <= room:
            return Overlay(*(_fitted(column, count) for column in pieces))
        room = count


def expand(first: npt.NDArray[Any], stop: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Write out index runs: (row, index) for every index in ``[first[row], stop[row])``."""
    count = (stop - first).astype(np.intp)
    row = np.repeat(np.arange(len(count), dtype=np.intp), count)
    offset = np.arange(len(row), dtype=np.intp) - np.repeat(np.cumsum(count) - count, count)
    return row, np.repeat(first.astype(np.intp), count) + offset


class CoveredTime:
    """Answers "how much of the set lies before t" and so "how much of [a, b) is covered", in O(log n)."""

    def __init__(self, intervals: IntervalSet) -> None:
        self._start = intervals.start
        self._end = intervals.end
        self._before = np.concatenate(([0], np.cumsum(intervals.end - intervals.start))).astype(np.int64)

    def until(self, time: npt.NDArray[Any]) -> Int64Array:
        """Covered nanoseconds before each instant."""
        covered: Int64Array = np.empty(len(time), np.int64)
        arguments = int64(self._start), int64(self._end), self._before
        run("boundby_covered", *arguments, len(self._start), int64(time), len(time), covered)
        return covered

    def within(self, start: npt.NDArray[Any], end: npt.NDArray[Any]) -> Int64Array:
        """Covered nanoseconds inside each [start, end)."""
        return self.until(end) - self.until(start)


def inside(intervals: IntervalSet) -> StepFunction:
    """0 within the intervals, NOTHING outside."""
    edges = np.stack((intervals.start, intervals.end), axis=1).reshape(-1)
    return StepFunction(edges, np.tile([0, NOTHING], len(intervals.start)))


def contains(intervals: IntervalSet, time: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Index of the interval that holds each instant, else -1."""
    index = np.empty(len(time), np.int64)
    arguments = int64(intervals.start), int64(intervals.end), len(intervals.start)
    run("boundby_contains", *arguments, int64(time), len(time), index)
    return index


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


def taking_turns(who: npt.NDArray[np.integer[Any]], count: int, start: Int64Array, end: Int64Array) -> Int64Array:
    """A lane for each of ``count`` that ``who`` numbers, by all that is on record of it: its own, unless they are more
    than `MOST_APART`; then those of which one ends before the other begins share one, and if need be others too."""
    if count <= MOST_APART:
        return np.arange(count)
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, who, start)
    np.maximum.at(last, who, end)
    order, lane = np.lexsort((last, first)), np.empty(count, np.int64)
    lane[order] = first_free_lanes(first[order], last[order]) % MOST_APART
    return lane


# Piecewise constant functions of time: which range, which state, at any instant.

NOTHING = -1


class StepFunction(NamedTuple):
    """``value[i]`` holds from ``time[i]`` up to ``time[i + 1]``; before ``time[0]`` the value is NOTHING."""

    time: Int64Array
    value: npt.NDArray[np.int64]

    def at(self, time: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The value at each instant."""
        return pick(self.value, places(self.time, time, side="right") - 1, NOTHING)


CONSTANT_NOTHING = StepFunction(np.empty(0, np.int64), np.empty(0, np.int64))


def otherwise(first: StepFunction, second: StepFunction) -> StepFunction:
    """``first`` where it has a value, else ``second``."""
    if len(first.time) == 0:
        return second
    if len(second.time) == 0:
        return first
    time = sorted_distinct(first.time, second.time)
    value = first.at(time)
    return simplify(StepFunction(time, np.where(value != NOTHING, value, second.at(time))))


def first_of(functions: Sequence[StepFunction]) -> StepFunction:
    """At each instant the value of the first of these functions that has one."""
    while len(functions) > 1:  # each of them is merged as often as a tree of them is deep
        last = functions[-1:] if len(functions) % 2 else []
        functions = [*(otherwise(*pair) for pair in zip(functions[::2], functions[1::2], strict=False)), *last]
    return functions[0] if functions else CONSTANT_NOTHING


def during(inside: IntervalSet, within: StepFunction, outside: StepFunction) -> StepFunction:
    """One function inside a set, another one outside of it."""
    if not len(inside.start):
        return outside
    time = sorted_distinct(within.time, outside.time, *inside)
    return StepFunction(time, np.where(contains(inside, time) >= 0, within.at(time), outside.at(time)))


def simplify(steps: StepFunction) -> StepFunction:
    """Drop steps that change nothing, and all but the last of several at one instant."""
    if len(steps.time) == 0:
        return steps
    last = np.append(steps.time[1:] != steps.time[:-1], True)
    time, value = steps.time[last], steps.value[last]
    changes = np.concatenate(([value[0] != NOTHING], value[1:] != value[:-1]))
    return StepFunction(time[changes], value[changes])


def cut(
    start: npt.NDArray[Any], end: npt.NDArray[Any], steps: StepFunction
) -> tuple[Int64Array, Int64Array, npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """Cut intervals (any order, may overlap) where the function steps.

    Returns start, end, the row each piece came from (rows stay in order), and the function's value on it.
    """
    start, end, time, value = int64(start), int64(end), int64(steps.time), int64(steps.value)
    room = len(start) + len(time)
    while True:
        columns = [np.empty(room, np.int64) for _ in range(4)]
        count = run("boundby_cut", start, end, len(start), time, value, len(time), room, *columns)
        if count <= room:
            begin, finish, row, value = (column[:count] for column in columns)
            return begin, finish, row, value
        room = count


# Which range lies in which, and which is innermost at any instant of a thread.


class Nesting(Struct, frozen=True):
    """``parent`` is a row of the same ranges or NOTHING; ``innermost`` steps through rows."""

    parent: npt.NDArray[np.int64]
    innermost: StepFunction


def do_nest(start: Int64Array, end: Int64Array) -> bool:
    """Whether ranges that all have a length, in order of start, then -end, lie in one another or apart."""
    parent, time, innermost = np.empty((3, 2 * len(start)), np.int64)
    return run("boundby_nest", int64(start), int64(end), len(start), parent, time, innermost) >= 0


def nest(start: npt.NDArray[Any], end: npt.NDArray[Any], rounded_ns: int = 0) -> Nesting:
    """Nest the ranges of one thread, given in order of start, then -end.

    The innermost range at an instant is the one that started last and has not ended. Push/pop ranges nest
    properly within a domain; across domains they may overlap, and a range that only overlaps an open one is
    a sibling of it, not a child. ``rounded_ns``: times are off by up to so much, and overlaps of that size are none.
    """
    if len(start) == 0:
        return Nesting(np.empty(0, np.int64), CONSTANT_NOTHING)
    nested = _nested(start, end)
    if nested is None and rounded_ns:
        nested = _nested(start, _unrounded(start, end, rounded_ns))
    return nested or _nest_by_stack(start, end)


def _nested(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> Nesting | None:
    """None where ranges overlap without nesting."""
    above, time, value = np.empty((3, 2 * len(start)), np.int64)
    count = run("boundby_nest", int64(start), int64(end), len(start), above, time, value)
    if count < 0:
        return None
    return Nesting(above[: len(start)].copy(), StepFunction(time[:count].copy(), value[:count].copy()))


def _unrounded(start: npt.NDArray[Any], end: npt.NDArray[Any], rounded_ns: int) -> Int64Array:
    """Ends of ranges that nest in truth and overlap by no more than rounding: what lies mostly inside another ends with
    it, and what only reaches into the next ends where that begins."""
    settled: Int64Array = end.copy()
    for bound in (end, start):
        order = np.argsort(bound, kind="stable")
        rows, position = np.arange(len(start)), np.searchsorted(bound[order], end, side="left")
        for back in range(1, DEEPEST):
            rows = rows[position[rows] >= back]
            other = order[position[rows] - back]
            near = bound[other] >= end[rows] - rounded_ns
            rows, other = rows[near], other[near]
            if not len(rows):
                break
            over = end[rows] - bound[other]
            if bound is end:
                wrong = (start[other] < start[rows]) & (end[other] - start[rows] >= over)
            else:
                wrong = (start[other] > start[rows]) & (end[other] - end[rows] > over)
            np.minimum.at(settled, rows[wrong], bound[other[wrong]])
    return settled


def _nest_by_stack(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> Nesting:
    """Nesting of intervals that may overlap in any way, by one pass over their ends. O(n log n)."""
    parent = np.full(len(start), NOTHING, np.int64)
    around: list[int] = []  # rows before, each with its end (negative) beside it: none ends before a later one does
    minus: list[int] = []
    for row, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while minus and -minus[-1] < until:
            minus.pop()
            around.pop()
        # Who ends as it begins is not around it: of others that takes no look, since they end no sooner than it.
        index = len(minus) if until > begin else bisect_left(minus, -begin)
        if index:
            parent[row] = around[index - 1]
        minus.append(-until)
        around.append(row)
    return Nesting(parent, latest_open(start, end))


def latest_open(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> StepFunction:
    """The latest started of the ranges open at each instant, for ranges (in order of start) that overlap freely."""
    if len(start) == 0:
        return CONSTANT_NOTHING
    ends = end.tolist()
    open_rows: list[int] = []  # a heap of -row: the latest started is on top
    times: list[int] = []
    values: list[int] = []

    def close_until(limit: float) -> None:
        while open_rows and ends[-open_rows[0]] <= limit:
            closed_at = ends[-heapq.heappop(open_rows)]
            while open_rows and ends[-open_rows[0]] <= closed_at:
                heapq.heappop(open_rows)
            times.append(closed_at)
            values.append(-open_rows[0] if open_rows else NOTHING)

    for row, begin in enumerate(start.tolist()):
        close_until(begin)
        if ends[row] > begin:
            heapq.heappush(open_rows, -row)
            times.append(begin)
            values.append(row)
    close_until(float("inf"))
    return simplify(StepFunction(np.array(times, np.int64), np.array(values, np.int64)))


def depths(parent: npt.NDArray[np.int64]) -> Int64Array:
    """How many ranges enclose each (roots: 0). Parents may stand anywhere in the table."""
    depth, ancestor = (parent >= 0).astype(np.int64), parent
    while (inside := ancestor >= 0).any():  # each look goes twice as far up
        above = np.maximum(ancestor, 0)
        depth += np.where(inside, depth[above], 0)
        ancestor = np.where(inside, ancestor[above], NOTHING)
    return depth


def nearest(parent: npt.NDArray[np.integer], is_so: npt.NDArray[np.bool_]) -> Int64Array:
    """Of each row the innermost at or around it of which this is so; NOTHING: of none. Parents may stand anywhere."""
    ancestor = np.append(np.where(is_so, np.arange(len(parent)), parent), NOTHING)
    while len(higher := np.flatnonzero(ancestor[ancestor] != ancestor)):  # each look goes twice as far up
        ancestor[higher] = ancestor[ancestor[higher]]
    return ancestor[:-1]


def close_leaks(start: Int64Array, end: Int64Array, key: npt.NDArray[np.int64]) -> Int64Array:
    """Ends for ranges that never closed (one thread's, in order of start): a forgotten pop in a loop.

    A range that opens again under the same key (name and domain) shows that the one before it, and all that was
    opened inside that one, had been left: they end there. Without this each step would nest in the last.
    """
    ends: Int64Array = end.copy()
    stack: list[int] = []
    depth_of: dict[int, int] = {}
    for row, number in enumerate(key.tolist()):
        if number in depth_of:
            for left in stack[depth_of[number] :]:
                ends[left] = start[row]
                del depth_of[int(key[left])]
            del stack[len(depth_of) :]
        depth_of[number] = len(stack)
        stack.append(row)
    return ends
