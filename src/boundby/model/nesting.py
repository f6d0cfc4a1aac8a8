"""Which range lies in which, and which is innermost at any instant of a thread."""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int64Array
from boundby.model.library import int64, run
from boundby.model.step_function import CONSTANT_NOTHING, NOTHING, StepFunction, simplify


class Nesting(NamedTuple):
    """``parent`` is a row of the same ranges or NOTHING; ``innermost`` steps through rows."""

    parent: npt.NDArray[np.int64]
    innermost: StepFunction


def do_nest(start: Int64Array, end: Int64Array) -> bool:
    """Whether ranges that all have a length, in order of start, then -end, lie in one another or apart."""
    parent, time, innermost = np.empty((3, 2 * len(start)), np.int64)
    return run("boundby_nest", int64(start), int64(end), len(start), parent, time, innermost) >= 0


# Ends this near to each other are looked through for what rounding has put in the wrong order.
_MOST_NEAR = 64


def nest(start: npt.NDArray[Any], end: npt.NDArray[Any], rounded_ns: int = 0) -> Nesting:
    """Nest the ranges of one thread, given in order of start, then -end.

    The innermost range at an instant is the one that started last and has not ended. Push/pop ranges nest
    properly within a domain; across domains they may overlap, and a range that only overlaps an open one is
    a sibling of it, not a child. ``rounded_ns``: times are off by up to so much, and overlaps of that size are none.
    """
    if len(start) == 0:
        return Nesting(np.empty(0, np.int64), CONSTANT_NOTHING)
    found = _nested(start, end)
    if found is None and rounded_ns:
        found = _nested(start, _unrounded(start, end, rounded_ns))
    return found or _nest_by_stack(start, end)


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
        rows, place = np.arange(len(start)), np.searchsorted(bound[order], end, side="left")
        for back in range(1, _MOST_NEAR):
            rows = rows[place[rows] >= back]
            other = order[place[rows] - back]
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
    """The same for any overlap, by one pass over events. O(n log n)."""
    parent = np.full(len(start), NOTHING, np.int64)
    starts, ends = start.tolist(), end.tolist()
    open_rows: list[int] = []
    for row in range(len(starts)):
        open_rows = [other for other in open_rows if ends[other] > starts[row]]
        containing = [other for other in open_rows if ends[other] >= ends[row]]
        if containing:
            parent[row] = containing[-1]
        open_rows.append(row)
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
