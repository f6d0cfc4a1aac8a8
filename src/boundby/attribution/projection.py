"""Projected ranges: from the first start to the last end of the device work launched inside each range."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.regions import Regions
from boundby.correlation.correlate import Calls
from boundby.model.arrays import (
    Int64Array,
    as_rows,
    ascend,
    compact,
    in_order,
    is_even,
    places,
    range_maximum,
    spread,
    unique,
)
from boundby.model.nesting import depths
from boundby.model.step_function import NOTHING
from boundby.trace.tables import Trace

_NEVER = np.iinfo(np.int64)

Rows = slice | npt.NDArray[np.intp]


def project(
    trace: Trace, calls: Calls, regions: Regions, launch_range: npt.NDArray[np.integer], rows: Rows = slice(None)
) -> tuple[Int64Array, Int64Array]:
    """Projected start and end of every range, by the given operations.

    ``launch_range`` is the innermost range of each operation. Ranges that launched nothing have start > end (max
    int64 and min int64). A range holds what was launched while it was open: on its own thread (a start/end range:
    in its process), and what threads that borrowed it or a range inside it launched.
    """
    first = np.full(len(trace.ranges), _NEVER.max, np.int64)
    last = np.full(len(trace.ranges), _NEVER.min, np.int64)
    _while_open(trace, calls, rows, first, last)
    if _is_one_thread(trace, calls):
        return first, last
    around = launch_range[rows]
    inside = as_rows(around != NOTHING)
    np.minimum.at(first, around[inside], trace.operations.start_ns[rows][inside])
    np.maximum.at(last, around[inside], trace.operations.end_ns[rows][inside])
    depth = depths(regions.range_parent)
    for level in range(int(depth.max(initial=0)), 0, -1):
        below = np.flatnonzero(depth == level)
        above = regions.range_parent[below]
        np.minimum.at(first, above, first[below])
        np.maximum.at(last, above, last[below])
    return first, last


def _is_one_thread(trace: Trace, calls: Calls) -> bool:
    """Whether the one thread that calls opens all ranges, which nest: each holds what those inside it hold."""
    thread = unique(np.concatenate((calls.thread[:1], trace.ranges.thread[:1])))
    is_alone = len(thread) < 2 and (is_even(calls.thread) or not len(calls)) and is_even(trace.ranges.thread)
    return is_alone and not trace.rounded_ns and not bool(trace.ranges.is_start_end.any())


def _while_open(trace: Trace, calls: Calls, rows: Rows, first: Int64Array, last: Int64Array) -> None:
    """Work launched while a range was open, however ranges overlap: by thread, for start/end ranges by process."""
    known = as_rows(calls.of_operation[rows] >= 0)
    start, end = trace.operations.start_ns[rows][known], trace.operations.end_ns[rows][known]
    if len(start) == 0 or len(trace.ranges) == 0:
        return
    ranges, launched = trace.ranges, calls.launched_ns[rows][known]
    if is_even(calls.thread):
        thread = compact(spread(int(calls.thread[0]), len(start), np.int32))
    else:
        thread = calls.thread[calls.of_operation[rows][known]]
    for of_call, of_range, kind in (
        (thread, ranges.thread, ~ranges.is_start_end),
        (trace.process_of(thread), trace.process_of(ranges.thread), ranges.is_start_end),
    ):
        for number in unique(of_range[kind]).tolist():
            chosen = as_rows(kind & (of_range == number))
            range_start, range_end = ranges.start_ns[chosen], ranges.end_ns[chosen]
            chosen = np.arange(len(ranges))[chosen]
            mine = as_rows(of_call == number)
            order = in_order(launched[mine])
            time, begin, finish = (column[mine][order] for column in (launched, start, end))
            low = places(time, range_start, side="left")
            high = places(time, range_end, side="left")
            some = high > low
            chosen, low, high = chosen[some], low[some], high[some]
            earliest = begin[low] if ascend([begin]) else -range_maximum(-begin, low, high)
            latest = finish[high - 1] if ascend([finish]) else range_maximum(finish, low, high)
            first[chosen] = np.minimum(first[chosen], earliest)
            last[chosen] = np.maximum(last[chosen], latest)
