"""The account of one device: every nanosecond of its window gets one cause and one owner region.

What of it is busy is decided here, what is idle (``sync`` among it) in `boundby.attribution.gaps`.
"""

from __future__ import annotations

import numpy as np

from boundby.attribution import segments
from boundby.attribution.context import DeviceOperations, TraceContext
from boundby.attribution.gaps import Gaps, account_gaps
from boundby.attribution.losses import Losses, Withheld
from boundby.attribution.segments import Segments
from boundby.model.arrays import as_rows, as_slice
from boundby.model.causes import Cause
from boundby.model.intervals import IntervalSet, Overlay, clip, complement, exposed, overlay, union
from boundby.trace.tables import OpKind


def account_device(
    context: TraceContext,
    operations: DeviceOperations,
    busy: IntervalSet,
    low: int,
    high: int,
    losses: Losses,
    device: int,
) -> tuple[Segments, Gaps, Withheld]:
    """Segments that cover [low, high) exactly, the table of the gaps among them, and what of these is withheld because
    records are missing. ``device``: index into Trace.gpus."""
    gaps, pieces, withheld = account_gaps(context, operations, complement(busy, low, high), (low, high), losses, device)
    return segments.covering(_busy_segments(context, operations, low, high), pieces), gaps, withheld


def _busy_segments(context: TraceContext, operations: DeviceOperations, low: int, high: int) -> Segments:
    """Compute before communication before copies; within a class the earliest started operation owns."""
    table = operations.table
    communicates = table.is_communication
    computes = (table.kind <= OpKind.GRAPH) & ~communicates
    parts = []
    free = IntervalSet(np.array([low], np.int64), np.array([high], np.int64))
    classes = [
        (Cause.GPU_COMPUTE, as_rows(computes)),
        (Cause.GPU_COMM, as_rows(communicates)),
        (Cause.GPU_COPY, as_rows(table.kind >= OpKind.MEMCPY)),
    ]
    for number, (cause, rows) in enumerate(classes):
        pieces, owner = exposed(table.start_ns[rows], table.end_ns[rows])
        is_inside = len(free.start) == 1 and clip(pieces, int(free.start[0]), int(free.end[0])) is pieces
        every = np.arange(len(owner))
        shown = Overlay(*pieces, every, np.zeros_like(every)) if is_inside else overlay(pieces, free)
        is_whole = len(free.start) == 1 and len(shown.left) == len(owner)  # each is shown once
        row = owner if is_whole else owner[shown.left]
        shown_rows = as_slice(row if isinstance(rows, slice) and not rows.start else np.arange(len(table))[rows][row])
        region = context.launch_region[operations.rows][shown_rows]
        parts.append(segments.make(shown.start, shown.end, cause, region))
        if not any(len(table.start_ns[others]) for _, others in classes[number + 1 :]):
            break
        taken = union(table.start_ns[rows], table.end_ns[rows])
        if len(free.start):
            rest = complement(taken, low, high)
            both = overlay(free, rest)
            free = IntervalSet(both.start, both.end)
    return segments.concatenate(*parts)
