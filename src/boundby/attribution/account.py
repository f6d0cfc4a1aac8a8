"""The account of one device: every nanosecond of its window gets one cause and one owner region."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.attribution import segments
from boundby.attribution.context import TraceContext
from boundby.attribution.gaps import Gap, attribute_gaps
from boundby.attribution.regions import ROOT
from boundby.attribution.segments import Segments
from boundby.model.arrays import Int64Array
from boundby.model.causes import Cause
from boundby.model.intervals import IntervalSet, complement, exposed, overlay, union
from boundby.trace.tables import Operations, OpKind, Trace


class DeviceOperations(NamedTuple):
    """One device's operations in order of start, and their rows in the trace."""

    rows: npt.NDArray[np.intp]
    table: Operations

    def busy(self) -> IntervalSet:
        """When at least one operation runs."""
        return union(self.table.start_ns, self.table.end_ns)


def operations_of(trace: Trace, device: int) -> DeviceOperations:
    """The operations of one device (they are stored in that order)."""
    rows = np.flatnonzero(trace.operations.device == device)
    is_sole = len(rows) == len(trace.operations)  # its table needs no copy
    return DeviceOperations(rows, trace.operations if is_sole else trace.operations.take(rows))


def account_device(context: TraceContext, operations: DeviceOperations, low: int, high: int) -> Segments:
    """Segments that cover [low, high) exactly."""
    busy = _busy_segments(context, operations, low, high)
    idle = complement(operations.busy(), low, high)
    return segments.concatenate(busy, attribute_gaps(context, find_gaps(context, operations, idle, low)))


def _busy_segments(context: TraceContext, operations: DeviceOperations, low: int, high: int) -> Segments:
    """Compute before communication before copies; within a class the earliest started operation owns."""
    table = operations.table
    communicates = table.is_communication
    computes = (table.kind <= OpKind.GRAPH) & ~communicates
    parts = []
    free = IntervalSet(np.array([low], np.int64), np.array([high], np.int64))
    for cause, rows in (
        (Cause.GPU_COMPUTE, np.flatnonzero(computes)),
        (Cause.GPU_COMM, np.flatnonzero(communicates)),
        (Cause.GPU_COPY, np.flatnonzero(table.kind >= OpKind.MEMCPY)),
    ):
        pieces, owner = exposed(table.start_ns[rows], table.end_ns[rows])
        shown = overlay(pieces, free)
        region = context.launch_region[operations.rows[rows[owner[shown.left]]]]
        parts.append(segments.make(shown.start, shown.end, cause, region))
        taken = union(table.start_ns[rows], table.end_ns[rows])
        if len(free.start):
            rest = complement(taken, low, high)
            both = overlay(free, rest)
            free = IntervalSet(both.start, both.end)
    return segments.concatenate(*parts)


def find_gaps(context: TraceContext, operations: DeviceOperations, idle: IntervalSet, low: int) -> Gap:
    """For each idle interval: who is responsible, when the next operation was launched, since when syncs count."""
    calls, table = context.calls, operations.table
    call_of = context.calls.of_operation[operations.rows]
    none = np.iinfo(np.int64).max
    count = len(table)
    gaps = len(idle.start)
    if count == 0:
        nobody = np.full(gaps, -1, np.int64)
        far = np.full(gaps, none, np.int64)
        return Gap(idle.start, idle.end, nobody, far, far, np.full(gaps, low, np.int64), np.full(gaps, ROOT, np.int64))
    launch = np.where(call_of >= 0, calls.start_ns[np.maximum(call_of, 0)] if len(calls) else none, table.start_ns)
    following = np.searchsorted(table.start_ns, idle.end, side="left")
    previous = _last_ended(table.end_ns, launch, idle.start)
    has_next = following < count
    following = np.minimum(following, count - 1)
    next_call = np.where(has_next, call_of[following], -1)
    responsible = np.where(has_next, following, np.maximum(previous, 0))
    thread = _thread_of(context, operations, call_of, responsible)
    known = next_call >= 0
    launch_start: Int64Array = np.where(known, calls.start_ns[np.maximum(next_call, 0)] if len(calls) else none, none)
    launch_end: Int64Array = np.where(known, calls.end_ns[np.maximum(next_call, 0)] if len(calls) else none, none)
    return Gap(
        start=idle.start,
        end=idle.end,
        thread=thread,
        launch_start=launch_start,
        launch_end=launch_end,
        since=np.where(previous >= 0, launch[np.maximum(previous, 0)], low),
        region=np.where(has_next, context.launch_region[operations.rows[following]], ROOT),
    )


def _last_ended(end_ns: Int64Array, launch_ns: Int64Array, time_ns: Int64Array) -> npt.NDArray[np.intp]:
    """The operation that ended last at or before each instant, of equals the one launched last; -1 for none."""
    by_end = np.lexsort((launch_ns, end_ns))
    place = np.searchsorted(end_ns[by_end], time_ns, side="right") - 1
    return np.where(place >= 0, by_end[np.maximum(place, 0)], -1)


def _thread_of(
    context: TraceContext, operations: DeviceOperations, call_of: npt.NDArray[np.int64], rows: npt.NDArray[np.intp]
) -> npt.NDArray[np.int64]:
    """The thread that launched each operation; without a known call the only thread of its process that calls
    CUDA; -1 where there are several or none."""
    calls = context.calls
    if len(calls) == 0:
        return np.full(len(rows), -1, np.int64)
    process = np.array([thread.process for thread in context.trace.threads], np.int64)
    callers = np.unique(calls.thread)
    sole = np.full(len(context.trace.processes) + 1, -1, np.int64)
    for number in np.unique(process[callers]).tolist():
        mine = callers[process[callers] == number]
        sole[number] = mine[0] if len(mine) == 1 else -1
    call = call_of[rows]
    fallback = sole[operations.table.process[rows]]
    return np.where(call >= 0, calls.thread[np.maximum(call, 0)], fallback)
