"""Uploads with which a step begins: what the GPU waits for until then is its input, with ranges and without."""

from __future__ import annotations

import numpy as np

from boundby.attribution.timeline import DeviceTimeline
from boundby.evidence.context import Int, RuleContext
from boundby.evidence.device_work import device_work
from boundby.model.arrays import pick, scattered, spread
from boundby.model.intervals import NOTHING
from boundby.model.scale import HABIT, MOST
from boundby.trace.tables import Direction, OpKind

# A scalar, a flag or a few indices are no batch.
LEAST_BATCH_BYTES = 1 << 10
# Fewer steps are no habit.
LEAST_STEPS = HABIT


def batch_uploads(context: RuleContext, device: DeviceTimeline) -> Int:
    """By gap of a device: the bytes of the upload that ends it, where gaps end in uploads step after step: kernels run
    between one and the next, and less is read back than goes up (what the host makes of results is no input). Else 0.
    Shape (gaps,)."""
    table, gaps = context.operations, device.gaps
    none = spread(0, len(gaps))
    if not len(gaps):
        return none
    operation = gaps.operation.astype(np.int64)
    is_upload = (table.kind == OpKind.MEMCPY) & (table.direction == Direction.HTOD) & (table.bytes >= LEAST_BATCH_BYTES)
    ends = np.flatnonzero(pick(is_upload, operation, False) & (operation != NOTHING))
    if len(ends) < LEAST_STEPS:
        return none
    rows, of_device = operation[ends], table.device == device.index
    kernels = np.flatnonzero(device_work(context).is_kernel & of_device)
    since = np.searchsorted(np.sort(table.start_ns[kernels]), table.start_ns[rows])
    is_first = np.append(True, since[1:] > since[:-1])  # of several copies with no kernel between them: one batch
    ends, rows, since = ends[is_first], rows[is_first], since[is_first]
    back = np.flatnonzero((table.direction == Direction.DTOH) & of_device)
    back = back[np.argsort(table.start_ns[back], kind="stable")]
    read = np.append(0, np.cumsum(table.bytes[back], dtype=np.int64))
    read_before = read[np.searchsorted(table.start_ns[back], table.start_ns[rows])]
    is_step = np.diff(read_before, prepend=read_before[:1]) < table.bytes[rows]
    if len(ends) < LEAST_STEPS or is_step.mean() < MOST:  # uploads come for other reasons
        return none
    return scattered(len(gaps), ends, table.bytes[rows])
