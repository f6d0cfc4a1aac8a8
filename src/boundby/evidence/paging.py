"""Pages of managed memory: who waits for them, and why they move."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from boundby.evidence.context import Bool, Rows, RuleContext, once
from boundby.evidence.device_work import device_work
from boundby.model.arrays import is_in
from boundby.model.intervals import CoveredTime, IntervalSet, clip, union
from boundby.trace.tables import Paging


class Paged(Struct, frozen=True):
    """``kernels``: those that run while their GPU waits for pages, for ``stalled_ns`` together; ``faults`` of GPUs in
    the window; ``evictions``. Masks over operations: ``ahead``, migrations that the program asked for before anybody
    waited, and ``read_back``, those to the host because it touched the pages."""

    kernels: Rows
    stalled_ns: int
    faults: int
    ahead: Bool
    read_back: Bool
    evictions: int


@once
def paged(context: RuleContext) -> Paged:
    """What the page events of the trace say of its kernels and migrations."""
    table = context.operations
    kernels, stalled_ns, faults, evictions = [np.zeros(0, np.intp)], 0, 0, 0
    ahead, read_back = np.zeros(len(table), bool), np.zeros(len(table), bool)
    if not len(context.trace.page_events):
        return Paged(kernels[0], 0, 0, ahead, read_back, 0)
    for mask, kind in ((ahead, Paging.PREFETCHED), (read_back, Paging.READ_BACK)):
        mask[context.trace.migrations(kind)] = True
    work = device_work(context)
    for device in context.timeline.devices:
        events = context.trace.page_events
        in_window = (events.end_ns > device.low_ns) & (events.start_ns < device.high_ns)
        events = events.take(in_window & (events.device == device.index))
        waits = is_in(events.kind, (Paging.FAULT, Paging.FETCHED))
        waiting = clip(union(events.start_ns[waits], events.end_ns[waits]), device.low_ns, device.high_ns)
        if len(waiting.start):
            rows = np.flatnonzero(work.is_kernel & (table.device == device.index))
            held_ns = CoveredTime(waiting).within(table.start_ns[rows], table.end_ns[rows])
            kernels.append(rows[held_ns > 0])
            running: IntervalSet = union(table.start_ns[rows], table.end_ns[rows])
            stalled_ns += int(CoveredTime(waiting).within(running.start, running.end).sum())
        faults += int(events.count[events.kind == Paging.FAULT].sum())
        evictions += int((events.kind == Paging.EVICTED).sum())
    return Paged(np.concatenate(kernels), stalled_ns, faults, ahead, read_back, evictions)
