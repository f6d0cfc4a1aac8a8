"""Projected ranges: from the first start to the last end of the device work launched inside each range."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.regions import Regions
from boundby.correlation.correlate import Calls
from boundby.model.arrays import Int64Array, as_rows, ascend, in_order, places, range_maximum, unique
from boundby.model.nesting import depths
from boundby.model.step_function import NOTHING
from boundby.trace.tables import Trace

_NEVER = np.iinfo(np.int64)


def project(
    trace: Trace, calls: Calls, regions: Regions, launch_range: npt.NDArray[np.integer], rows: npt.NDArray[np.intp]
) -> tuple[Int64Array, Int64Array]:
    """Projected start and end of every range, by the given operations.

    ``launch_range`` is the innermost range of each operation. Ranges that launched nothing have start > end (max
    int64 and min int64). A range holds what was launched while it was open: on its own thread (a start/end range:
    in its process), and what threads that borrowed it or a range inside it launched.
    """
    first = np.full(len(trace.ranges), _NEVER.max, np.int64)
    last = np.full(len(trace.ranges), _NEVER.min, np.int64)
    _while_open(trace, calls, rows, first, last)
    is_sole = len(rows) == len(trace.operations)
    inside = as_rows(launch_range != NOTHING) if is_sole else rows[launch_range[rows] != NOTHING]
    np.minimum.at(first, launch_range[inside], trace.operations.start_ns[inside])
    np.maximum.at(last, launch_range[inside], trace.operations.end_ns[inside])
    depth = depths(regions.range_parent)
    for level in range(int(depth.max(initial=0)), 0, -1):
        below = np.flatnonzero(depth == level)
        above = regions.range_parent[below]
        np.minimum.at(first, above, first[below])
        np.maximum.at(last, above, last[below])
    return first, last


def _while_open(trace: Trace, calls: Calls, rows: npt.NDArray[np.intp], first: Int64Array, last: Int64Array) -> None:
    """Work launched while a range was open, however ranges overlap: by thread, for start/end ranges by process."""
    rows = rows[calls.of_operation[rows] >= 0]
    if len(rows) == 0 or len(trace.ranges) == 0:
        return
    whole: slice | npt.NDArray[np.intp] = slice(None) if len(rows) == len(trace.operations) else rows
    call, start, end = (
        column[whole] for column in (calls.of_operation, trace.operations.start_ns, trace.operations.end_ns)
    )
    ranges, launched, thread = trace.ranges, calls.start_ns[call], calls.thread[call]
    for of_call, of_range, kind in (
        (thread, ranges.thread, ~ranges.is_start_end),
        (trace.process_of(thread), trace.process_of(ranges.thread), ranges.is_start_end),
    ):
        for number in unique(of_range[kind]).tolist():
            chosen = np.flatnonzero(kind & (of_range == number))
            mine = as_rows(of_call == number)
            order = in_order(launched[mine])
            time, begin, finish = (column[mine][order] for column in (launched, start, end))
            low = places(time, ranges.start_ns[chosen], side="left")
            high = places(time, ranges.end_ns[chosen], side="left")
            some = high > low
            chosen, low, high = chosen[some], low[some], high[some]
            earliest = begin[low] if ascend([begin]) else -range_maximum(-begin, low, high)
            latest = finish[high - 1] if ascend([finish]) else range_maximum(finish, low, high)
            first[chosen] = np.minimum(first[chosen], earliest)
            last[chosen] = np.maximum(last[chosen], latest)
