"""What the rules on copies tell alike."""

from __future__ import annotations

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.devicework import Rows, device_work, operation_examples
from boundby.evidence.transfers import bandwidth_of, common_size
from boundby.model.units import bandwidth, size
from boundby.results.report import Example
from boundby.trace.tables import Direction

_WAY = {Direction.HTOD: "host to device", Direction.DTOH: "device to host"}


def copy_evidence(context: RuleContext, rows: Rows) -> dict[str, object]:
    """Counts, bytes, time, rate, the commonest size, and how much of it no kernel hides."""
    work, table = context.once(device_work), context.timeline.trace.operations
    common, times = common_size(context, rows)
    calls = context.timeline.calls
    call = np.unique(calls.of_operation[rows])
    call = call[call >= 0]
    return {
        "count": len(rows),
        "bytes": int(table.bytes[rows].sum()),
        "to_device_count": int((table.direction[rows] == Direction.HTOD).sum()),
        "total_ns": int(work.duration_ns[rows].sum()),
        "exposed_ns": int(work.exposed_ns[rows].sum()),
        "calls_ns": int((calls.end_ns - calls.start_ns)[call].sum()) if len(call) else None,
        "bandwidth_bytes_per_s": round(bandwidth_of(context, rows) * 1e9),
        "commonest_size_bytes": common,
        "commonest_size_count": times,
    }


def copy_examples(context: RuleContext, rows: Rows) -> tuple[Example, ...]:
    """The longest of these copies: way, size and rate of each."""
    table = context.timeline.trace.operations

    def what(row: int) -> str:
        way = _WAY.get(Direction(int(table.direction[row])), "copy")
        taken = max(int(table.end_ns[row] - table.start_ns[row]), 1)
        return f"{size(int(table.bytes[row]))} {way} at {bandwidth(int(table.bytes[row]) / taken * 1e9)}"

    return operation_examples(context, rows, what)


def most_common_device(context: RuleContext, rows: Rows) -> int:
    """The device that most of these copies go to or come from."""
    return int(np.bincount(context.timeline.trace.operations.device[rows]).argmax())
