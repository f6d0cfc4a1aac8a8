"""Piecewise constant functions of time: which range, which state, at any instant."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int64Array, pick, places, sorted_distinct
from boundby.model.library import int64, run

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
    mine = first.at(time)
    return simplify(StepFunction(time, np.where(mine != NOTHING, mine, second.at(time))))


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
        found = [np.empty(room, np.int64) for _ in range(4)]
        count = run("boundby_cut", start, end, len(start), time, value, len(time), room, *found)
        if count <= room:
            begin, finish, row, value = (column[:count] for column in found)
            return begin, finish, row, value
        room = count
