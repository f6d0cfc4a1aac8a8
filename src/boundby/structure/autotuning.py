"""Searches for the fastest kernel: known by what they do, whatever library does it.

cuDNN, Triton and others run one candidate after the other and time each with events: three and more in a row of which
each runs another kernel, inside one operator. XLA checks after each candidate whether it wrote beyond its output.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.correlation.correlate import Calls
from boundby.model.arrays import Int32Array, Int64Array, is_any, pick, places, unique
from boundby.model.expressions import expression
from boundby.model.intervals import IntervalSet, union
from boundby.model.scale import HABIT, MANY
from boundby.trace.tables import OpKind, Trace
from boundby.trace.vocabulary.cuda import CallClass

# A wait for an event after each of fewer launches is what programs do that time two of their parts.
LEAST_CANDIDATES = HABIT
# Between two checks lie a candidate's kernels and what fills its buffers: this many operations at most.
MOST_BETWEEN_CHECKS = MANY
_WAITS_FOR_EVENT = expression(r"EventSynchronize")
_CHECKS_OUTPUT = expression(r"(?i)redzone_?checker")


def find_searches(trace: Trace, calls: Calls, call_range: Int32Array) -> IntervalSet:
    """When the program searches; ``call_range`` has the innermost range of each call."""
    waiting = [name for name in calls.names.tolist() if _WAITS_FOR_EVENT.search(trace.names[name])]
    checking = [number for number, name in enumerate(trace.names) if _CHECKS_OUTPUT.search(name)]
    found = [np.empty((2, 0), np.int64)]
    if waiting:
        rows = np.flatnonzero(is_any(calls.name, waiting) & (calls.kind == CallClass.SYNC))
        found += [
            _timed(trace, calls, call_range, rows[calls.thread[rows] == one]) for one in unique(calls.thread[rows])
        ]
    if checking:
        found.append(_checked(trace, calls, np.flatnonzero(is_any(trace.operations.name, checking))))
    start, end = np.concatenate(found, axis=1)
    return union(start, end)


def _timed(trace: Trace, calls: Calls, call_range: Int32Array, waits: npt.NDArray[np.intp]) -> Int64Array:
    """From these waits of one thread for events: runs in which each candidate's longest kernel differs from that of the
    one before it, inside one range. Shape (2, runs): from the first launch to the last wait's end."""
    table = trace.operations
    kernels = np.flatnonzero((table.kind == OpKind.KERNEL) & (calls.of_operation >= 0))
    kernels = kernels[calls.thread[calls.of_operation[kernels]] == calls.thread[waits[0]]]
    launched = calls.launched_ns[kernels]
    trial = places(calls.end_ns[waits], launched)  # the wait that ends it
    kernels, launched, trial = (column[trial < len(waits)] for column in (kernels, launched, trial))
    kernels, launched, trial = (
        column[is_any(call_range[calls.of_operation[kernels]], unique(call_range[waits]))]
        for column in (kernels, launched, trial)
    )
    if not len(kernels):
        return np.empty((2, 0), np.int64)
    longest = np.lexsort((table.end_ns[kernels] - table.start_ns[kernels], trial))
    is_last = np.append(np.diff(trial[longest]) > 0, True)
    tried, name = trial[longest][is_last], table.name[kernels][longest][is_last]
    first = np.full(len(waits), np.iinfo(np.int64).max)
    np.minimum.at(first, trial, launched)
    of_range = call_range[waits[tried]]
    begins = np.append(True, (np.diff(tried) != 1) | (np.diff(of_range) != 0) | (name[1:] == name[:-1]))
    low = np.flatnonzero(begins)
    high = np.append(low[1:], len(tried))
    some = high - low >= LEAST_CANDIDATES
    return np.stack((first[tried[low[some]]], calls.end_ns[waits[tried[high[some] - 1]]]))


def _checked(trace: Trace, calls: Calls, checks: npt.NDArray[np.intp]) -> Int64Array:
    """From these checks of outputs: runs of checks that follow each other. Shape (2, runs)."""
    table = trace.operations
    begins = np.append(True, np.diff(checks) > MOST_BETWEEN_CHECKS)
    low = np.flatnonzero(begins)
    high = np.append(low[1:], len(checks))
    some = high - low >= LEAST_CANDIDATES
    launched = pick(calls.start_ns, calls.of_operation, 0)[checks]
    start = np.where(launched > 0, launched, table.start_ns[checks])
    return np.stack((start[low[some]], table.end_ns[checks][high[some] - 1]))
