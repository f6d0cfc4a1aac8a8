"""Projected ranges: from the first start to the last end of the device work launched inside each range."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model.trace import Int64Array, Trace
from boundby.timeline.correlate import Calls
from boundby.timeline.nesting import depths
from boundby.timeline.regions import Ownership, Regions
from boundby.timeline.steps import NOTHING


def range_of_operations(trace: Trace, calls: Calls, ownership: Ownership) -> npt.NDArray[np.int64]:
    """The innermost range around the launching call of each operation; NOTHING where there is none."""
    found = np.full(len(trace.operations), NOTHING, np.int64)
    known = np.flatnonzero(calls.of_operation >= 0)
    call = calls.of_operation[known]
    for thread in np.unique(calls.thread[call]).tolist():
        mine = calls.thread[call] == thread
        found[known[mine]] = ownership.ranges_at(thread, calls.start_ns[call[mine]])
    return found


def project(
    regions: Regions, range_of: npt.NDArray[np.int64], start: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Projected start and end of every range, from the innermost range of each operation.

    Ranges that launched nothing have start > end (max int64 and min int64).
    """
    limits = np.iinfo(np.int64)
    first = np.full(len(regions.of_range), limits.max, np.int64)
    last = np.full(len(regions.of_range), limits.min, np.int64)
    inside = range_of != NOTHING
    np.minimum.at(first, range_of[inside], start[inside])
    np.maximum.at(last, range_of[inside], end[inside])
    depth = depths(regions.range_parent)
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero(depth == level)
        above = regions.range_parent[rows]
        np.minimum.at(first, above, first[rows])
        np.maximum.at(last, above, last[rows])
    return first, last
