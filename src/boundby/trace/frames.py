"""Python functions from call to return, as stacks: which are open on a thread at an instant, and which is innermost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int32Array, Int64Array, rows_of, unique
from boundby.model.intervals import IntervalSet, union
from boundby.model.nesting import Nesting, nest
from boundby.model.step_function import StepFunction
from boundby.trace.vocabulary.python import Frame, read_frame, sleeps_on

#: How far what nests in truth may overlap in PyTorch's traces: in microseconds until 2024, in a double's since.
ROUNDED_NS = 1_000


class FrameStacks:
    """The frames of a trace; columns as of `Intervals`, ordered by thread."""

    def __init__(
        self, start_ns: Int64Array, end_ns: Int64Array, thread: Int32Array, name: Int32Array, names: Sequence[str]
    ) -> None:
        self._start_ns, self._end_ns, self._thread, self._name, self._names = start_ns, end_ns, thread, name, names
        self._nestings: dict[int, Nesting] = {}

    def __len__(self) -> int:
        return len(self._start_ns)

    def rows(self, thread: int) -> slice:
        """The rows of one thread."""
        return rows_of(self._thread, thread)

    def _nesting(self, thread: int) -> Nesting:
        if thread not in self._nestings:
            rows = self.rows(thread)
            self._nestings[thread] = nest(self._start_ns[rows], self._end_ns[rows], ROUNDED_NS)
        return self._nestings[thread]

    def innermost(self, thread: int) -> StepFunction:
        """The innermost open frame over time, counted from the thread's first row; NOTHING (-1): none."""
        return self._nesting(thread).innermost

    def covered(self, thread: int) -> IntervalSet:
        """When any frame is open on a thread."""
        rows = self.rows(thread)
        return union(self._start_ns[rows], self._end_ns[rows])

    def within(self, thread: int, function: str) -> IntervalSet:
        """When a thread is in a Python function of this name, or in what it calls."""
        rows = self.rows(thread)
        used = unique(self._name[rows]).tolist()
        named = [name for name in used if (frame := read_frame(self._names[name])).line and frame.function == function]
        mine = np.isin(self._name[rows], named)
        return union(self._start_ns[rows][mine], self._end_ns[rows][mine])

    def asleep(self, thread: int) -> dict[str, IntervalSet]:
        """When a thread's innermost function is one that waits in the operating system, by what on."""
        rows, steps = self.rows(thread), self.innermost(thread)
        if not len(steps.time):
            return {}
        until = np.append(steps.time[1:], steps.time[-1:])
        kind = np.append(self._name[rows], -1)[steps.value]
        return {
            what: union(steps.time[chosen], until[chosen])
            for what, names in self._sleeps.items()
            if (chosen := np.isin(kind, names)).any()
        }

    @cached_property
    def _sleeps(self) -> dict[str, list[int]]:
        """The names in which a thread sleeps, by what on."""
        found: dict[str, list[int]] = {}
        for number in unique(self._name[self._name >= 0]).tolist():
            if what := sleeps_on(self._names[number]):
                found.setdefault(what, []).append(number)
        return found

    def at(self, thread: int, time_ns: int) -> list[Frame]:
        """The frames that are open at an instant, innermost first."""
        nesting, first = self._nesting(thread), self.rows(thread).start
        row = int(nesting.innermost.at(np.array([time_ns], np.int64))[0])
        found = []
        while row >= 0:
            found.append(read_frame(self._names[self._name[first + row]]))
            row = int(nesting.parent[row])
        return found

    def of_rows(self, thread: int, rows: npt.NDArray[Any]) -> list[Frame]:
        """For each innermost frame (as ``innermost`` counts) the frame that speaks of the program: of those open there
        the innermost of the program's own code, else of a library, else the innermost."""
        parent, first = self._nesting(thread).parent, self.rows(thread).start
        names = self._name[first : first + len(parent)]
        memo: dict[int, tuple[Frame, ...]] = {}

        def best(row: int) -> Frame:
            chain = []
            while row >= 0 and row not in memo:
                chain.append(row)
                row = int(parent[row])
            above = memo[row] if row >= 0 else ()
            for inner in reversed(chain):
                above = memo[inner] = _prefer(read_frame(self._names[names[inner]]), above)
            return above[0]

        return [best(row) for row in rows.tolist()]


def _prefer(frame: Frame, above: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frame that speaks of the program, given the one that does so around it."""
    return (frame,) if not above or frame.distance <= above[0].distance else above


def own_first(frames: list[Frame]) -> list[Frame]:
    """A stack (innermost first) from the innermost frame of the program's own code outwards, else of a library's."""
    nearest = min((frame.distance for frame in frames), default=0)
    place = next((place for place, frame in enumerate(frames) if frame.distance == nearest), 0)
    return frames[place:]
