"""The account as data: disjoint segments that cover a device's window, each with one cause and one region."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.model.arrays import (
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
    as_rows,
    ascend,
    group_sums,
    index_type,
    tally,
)
from boundby.model.causes import CAUSES, Cause
from boundby.model.intervals import NOTHING
from boundby.model.library import int64
from boundby.native.passes import woven

NO_THREAD = NOTHING  # in a column of threads: none


class Segments(Struct, frozen=True, dict=True):
    """Ordered by start. ``thread`` is the responsible thread of idle time (NO_THREAD: none, or busy)."""

    start_ns: Int64Array
    end_ns: Int64Array
    cause: Int8Array
    region: Int32Array
    thread: Int32Array

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def length_ns(self) -> Int64Array:
        return self.end_ns - self.start_ns

    def by_cause(self) -> npt.NDArray[np.int64]:
        """Nanoseconds of each cause, shape (causes,)."""
        return np.copy(self._by_cause)

    @cached_property
    def _by_cause(self) -> npt.NDArray[np.int64]:
        return group_sums(self.cause, self.end_ns, len(CAUSES), self.start_ns)

    def by_region_and_cause(self, regions: int) -> npt.NDArray[np.int64]:
        """Nanoseconds, shape (regions, causes), each instant in its own region only."""
        sums, total = (
            tally(self.region, self.cause, self.start_ns, self.end_ns),
            np.zeros((regions, len(CAUSES)), np.int64),
        )
        total[sums.group, sums.label] = sums.ns
        return total

    def packed(self) -> Segments:
        """With regions and threads of the narrowest type that holds them."""
        columns = {name: getattr(self, name) for name in ("region", "thread")}
        return replace(
            self, **{name: values.astype(index_type(int(values.max(initial=0)))) for name, values in columns.items()}
        )

    def by_cause_between(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """`by_cause` of the part in [low, high), which is not copied."""
        rows = self._rows(low, high)
        start, end, cause = self.start_ns[rows], self.end_ns[rows], self.cause[rows]
        time_ns = group_sums(cause, end, len(CAUSES), start)
        if len(cause):
            time_ns[cause[0]] -= max(low - int(start[0]), 0)
            time_ns[cause[-1]] -= max(int(end[-1]) - high, 0)
        return time_ns

    def _rows(self, low: int, high: int) -> slice:
        return slice(int(self.end_ns.searchsorted(low, "right")), int(self.start_ns.searchsorted(high, "left")))

    def between(self, low: int, high: int) -> Segments:
        """The part in [low, high)."""
        rows = self._rows(low, high)
        start, end = self.start_ns[rows], self.end_ns[rows]
        start = np.maximum(start, low) if len(start) and start[0] < low else start
        end = np.minimum(end, high) if len(end) and end[-1] > high else end
        return Segments(start, end, self.cause[rows], self.region[rows], self.thread[rows])

    def join_to(self, most: int) -> bool:
        """Whether no more are left if touching neighbours of one cause and region are joined."""
        parts = range(0, len(self), max(2 * most, 1))
        total = 0
        return all((total := total + int(self._begin(low, low + parts.step).sum())) <= most for low in parts)

    def _begin(self, low: int, high: int) -> BoolArray:
        """Of these rows those that cannot be joined to the one before."""
        before, rows = slice(max(low - 1, 0), min(high, len(self)) - 1), slice(max(low, 1), high)
        new = self.start_ns[rows] != self.end_ns[before]
        new |= self.cause[rows] != self.cause[before]
        new |= self.region[rows] != self.region[before]
        return new if low else np.append(True, new)

    def joined(self) -> Segments:
        """Touching neighbours of one cause and region as one; of their threads the first is kept."""
        if not len(self):
            return self
        first = np.flatnonzero(self._begin(0, len(self)))
        end = self.end_ns[np.append(first[1:], len(self)) - 1]
        return Segments(self.start_ns[first], end, self.cause[first], self.region[first], self.thread[first])


def make(
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    cause: npt.NDArray[np.int64] | Cause,
    region: npt.NDArray[np.integer],
    thread: npt.NDArray[np.int64] | int = NO_THREAD,
) -> Segments:
    """Segments from columns in any order; scalars are spread, empty pieces dropped."""
    kept = as_rows(end > start)
    size = len(start[kept])

    def column(values: npt.NDArray[np.integer] | int, kind: type[np.integer]) -> npt.NDArray[Any]:
        return values[kept].astype(kind) if isinstance(values, np.ndarray) else np.full(size, int(values), kind)

    return Segments(start[kept], end[kept], column(cause, np.int8), column(region, np.int32), column(thread, np.int32))


def nothing() -> Segments:
    """None at all."""
    empty = np.empty(0, np.int64)
    return make(empty, empty, Cause.UNATTRIBUTED, empty)


def covering(busy: Segments, idle: Segments) -> Segments:
    """Segments that leave no time out between them, in order of start, packed."""
    if len(busy) and len(idle):
        sides = [
            {name: getattr(part, name) for name in ("cause", "region", "thread")}
            | {"start": int64(part.start_ns), "end": int64(part.end_ns)}
            for part in (busy, idle)
        ]
        if (columns := woven(*sides)) is not None:
            bounds, cause, region, thread = columns
            return Segments(bounds[:-1], bounds[1:], cause, region, thread)
    return concatenate(busy, idle).packed()


def concatenate(*parts: Segments) -> Segments:
    """All segments in order of start."""
    full = [part for part in parts if len(part)] or list(parts[:1])
    if len(full) == 1 and ascend([full[0].start_ns]):
        return full[0]
    full.sort(key=lambda part: int(part.start_ns[0]) if len(part) else 0)
    start, end = (np.concatenate([getattr(part, name) for part in full]) for name in ("start_ns", "end_ns"))
    order: slice | npt.NDArray[np.intp] = slice(None)
    if not bool((start[1:] > start[:-1]).all()):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    if bool((start[1:] == end[:-1]).all()):  # nothing between them: one column of bounds is enough
        bounds = np.append(start, end[-1:])
        start, end = bounds[:-1], bounds[1:]
    return Segments(
        start,
        end,
        np.concatenate([part.cause for part in full])[order],
        np.concatenate([part.region for part in full])[order],
        np.concatenate([part.thread for part in full])[order],
    )
