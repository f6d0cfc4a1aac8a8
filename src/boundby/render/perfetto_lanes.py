"""Slices that overlap, dealt out to lanes that a track viewer can draw; and in what order they begin and end there.

Pure array code."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]


def disjoint_lanes(start: Int, end: Int) -> Int:
    """A lane for each slice (in order of start), the first that is free: no two slices of a lane overlap.

    For GPU operations, where one that lies inside another is not a part of it. O(n log n).
    """
    lane = np.zeros(len(start), np.int64)
    if len(start) < 2 or bool((start[1:] >= np.maximum.accumulate(end)[:-1]).all()):
        return lane
    busy: list[tuple[int, int]] = []  # (end, lane)
    free: list[int] = []
    lanes = 0
    for row, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            chosen = heapq.heappop(free)
        else:
            chosen, lanes = lanes, lanes + 1
        lane[row] = chosen
        heapq.heappush(busy, (until, chosen))
    return lane


def nested_lanes(start: Int, end: Int) -> Int:
    """A lane for each slice (in order of start, then -end): two slices of a lane lie one inside the other or apart.

    Push/pop ranges and calls nest by nature, so that one lane nearly always does.
    """
    lane = np.zeros(len(start), np.int64)
    if len(start) < 2 or bool((start[1:] >= np.maximum.accumulate(end)[:-1]).all()):
        return lane
    stacks: list[list[int]] = []  # ends of the open slices, innermost last
    for row, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for chosen, stack in enumerate(stacks):
            while stack and stack[-1] <= begin:
                stack.pop()
            if not stack or until <= stack[-1]:
                stack.append(until)
                lane[row] = chosen
                break
        else:
            lane[row] = len(stacks)
            stacks.append([until])
    return lane


class Events(NamedTuple):
    """Begins and ends of a lane's slices in the order in which a viewer must read them."""

    time: Int
    row: Int
    is_begin: npt.NDArray[np.bool_]


def events(start: Int, end: Int) -> Events:
    """The events of one lane's slices (in order of start, then -end; properly nested).

    At one instant the inner ends come before the outer ones, both before what begins there, and a slice without
    length begins and ends at once.
    """
    rows = np.arange(len(start), dtype=np.int64)
    instant = (end <= start).astype(np.int64)
    time = np.concatenate((start, end))
    late = np.concatenate((np.ones(len(rows), np.int64), instant))
    within = np.concatenate((2 * rows, np.where(instant == 1, 2 * rows + 1, -rows)))
    order = np.lexsort((within, late, time))
    return Events(time[order], np.concatenate((rows, rows))[order], order < len(rows))
