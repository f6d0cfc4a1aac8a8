"""Waits whose call is not on record while the capture's own row of the wait is: put back where that row lies.

A profiler writes a wait for the device twice, as a call and as a row of its table of waits, which has the same time to
within a microsecond. Where only the row is left, the host would seem to work on its own all that time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.correlation.correlate import Calls
from boundby.model.arrays import BoolArray, Int64Array, unique
from boundby.model.units import plural
from boundby.trace.facts import TraceWarning
from boundby.trace.tables import ApiCalls, Trace


def restored(trace: Trace, calls: Calls) -> Trace:
    """The trace with the calls of such waits; itself where there are none. Only where it is plain what call it was (all
    on record that name streams and events as it does are of one class) and which thread made it (see ``_threads``)."""
    points, api = trace.stream_points, trace.api
    inside = (points.start_ns >= trace.span_ns[0]) & (points.end_ns <= trace.span_ns[1])
    rows = np.flatnonzero(inside & ~points.is_record & (points.end_ns > points.start_ns) & (points.process >= 0))
    if not len(rows) or not len(api) or not bool((calls.of_point[rows] < 0).any()):
        return trace
    stride = int(max(api.correlation.max(), points.correlation[rows].max())) + 1
    key = trace.process_of_thread[api.thread] * stride + api.correlation
    order = np.argsort(key, kind="stable")
    wanted = points.process[rows].astype(np.int64) * stride + points.correlation[rows]
    place = np.searchsorted(key[order], wanted)
    call = order[np.minimum(place, len(order) - 1)]
    is_known = key[call] == wanted
    lost = np.flatnonzero(~is_known)
    if not len(lost):
        return trace
    shape = (points.stream[rows] >= 0) * 2 + (points.event[rows] >= 0)
    name = np.full(len(rows), -1, np.int32)
    for each in unique(shape[lost]).tolist():
        names = api.name[call[is_known & (shape == each)]]
        if len(names) and len(unique(trace.call_class[names])) == 1:
            name[shape == each] = np.bincount(names[names >= 0], minlength=1).argmax()
    lost = lost[name[lost] >= 0]
    start, end = points.start_ns[rows[lost]], points.end_ns[rows[lost]]
    thread = _threads(trace, key[order], order, wanted[lost], points.process[rows[lost]])
    found = np.flatnonzero(_is_free(api, thread, start, end))
    if not len(found):
        return trace
    columns: dict[str, npt.NDArray[Any]] = {
        "start_ns": start[found],
        "end_ns": end[found],
        "thread": thread[found],
        "correlation": points.correlation[rows[lost[found]]],
        "name": name[lost[found]],
        "has_failed": np.zeros(len(found), bool),
    }
    text = (
        f"{plural(len(found), 'call')} that wait for the device {'is' if len(found) == 1 else 'are'} missing, but not "
        "what the profiler wrote of the waits: put back from there."
    )
    warnings = (*trace.warnings, TraceWarning("waits-restored", text))
    return replace(trace, api=ApiCalls(**api.grown(columns)).sorted(trace.names), warnings=warnings)


def _threads(
    trace: Trace,
    key: Int64Array,
    order: npt.NDArray[np.intp],
    wanted: Int64Array,
    process: npt.NDArray[np.int32],
) -> npt.NDArray[np.int64]:
    """The thread of each lost call: that of the calls before and after it, since a process numbers its calls in order,
    or the only one of the process that calls; -1 where that is not plain. One after all calls on record is the
    profiler's own: it waits for the device before it stops. ``key``: of all calls, as ``order`` sorts them."""
    thread, place = np.append(trace.api.thread[order].astype(np.int64), -1), np.searchsorted(key, wanted)
    before, after = (np.where(_process(trace, thread[at]) == process, thread[at], -1) for at in (place - 1, place))
    callers = unique(trace.api.thread)
    alone = np.bincount(_process(trace, callers), minlength=len(trace.processes))[process] == 1
    return np.where(alone | (before == after), after, -1)


def _process(trace: Trace, thread: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = np.append(trace.process_of_thread, -1)[thread]
    return found


def _is_free(api: ApiCalls, thread: npt.NDArray[np.int64], start: Int64Array, end: Int64Array) -> BoolArray:
    """Whether each thread is in none of its recorded calls from start to end."""
    free: BoolArray = thread >= 0
    for each in unique(thread[free]).tolist():
        mine, own = np.flatnonzero(thread == each), api.rows_of(each)
        ended = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(api.end_ns[own]))
        free[mine] = ended[np.searchsorted(api.start_ns[own], end[mine])] <= start[mine]
    return free
