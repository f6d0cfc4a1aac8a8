"""The longest gaps of every device with what brought them about, and which wait is behind each gap's sync time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.attribution.gaps import Gaps
from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import Int64Array, group_sums, heaviest, largest
from boundby.model.causes import BUSY_CAUSES, CAUSES, Cause
from boundby.model.step_function import NOTHING
from boundby.plot_data.index import RegionIndex, name_of
from boundby.results.plot_data import Gap
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import plain_name

# The longest gaps that are told one by one, of all devices together.
MOST_GAPS = 400
# Pieces of a gap that are added up one by one: for NumPy they are too few.
FEW = 64


def longest_gaps(timeline: Timeline, index: RegionIndex) -> tuple[tuple[Gap, ...], int]:
    """The longest gaps of all devices in order of time, and how many there are in all."""
    longest: list[tuple[int, int, int, int, DeviceTimeline]] = []  # -length, device, row of its gaps, operation before
    for device in timeline.devices:
        gaps = device.gaps
        rows = largest(gaps.length_ns, MOST_GAPS)
        before = _ended_at(device, gaps.start_ns[rows])
        columns = (-gaps.length_ns[rows]).tolist(), rows.tolist(), before.tolist()
        longest += [(length, device.index, row, ended, device) for length, row, ended in zip(*columns, strict=True)]
    longest.sort(key=lambda item: item[:3])
    described = [_describe(timeline, device, row, ended, index) for *_, row, ended, device in longest[:MOST_GAPS]]
    total = sum(len(device.gaps) for device in timeline.devices)
    return tuple(sorted(described, key=lambda gap: (gap.start_ns, gap.device, gap.end_ns))), total


def _describe(timeline: Timeline, device: DeviceTimeline, row: int, before: int, index: RegionIndex) -> Gap:
    trace, segments, gaps = timeline.trace, device.segments, device.gaps
    start, end = int(gaps.start_ns[row]), int(gaps.end_ns[row])
    first, stop = np.searchsorted(segments.start_ns, [start, end])
    part = slice(int(first), int(stop))
    length = segments.end_ns[part] - segments.start_ns[part]
    by_cause = group_sums(segments.cause[part], length, len(CAUSES))
    by_cause[[int(cause) for cause in BUSY_CAUSES]] = 0  # none can be there
    dominant = int(by_cause.argmax())
    mine = segments.cause[part] == dominant
    thread = _most(segments.thread[part][mine], length[mine], int(gaps.thread[row]))
    known = thread if thread >= 0 else None
    return Gap(
        device=trace.gpus[device.index].id,
        start_ns=start,
        end_ns=end,
        cause=dominant,
        cause_ns=tuple(by_cause.tolist()),
        call=_call(timeline, gaps, row, known, dominant),
        thread=trace.threads[known].name if known is not None else "",
        tid=trace.threads[known].tid if known is not None else None,
        region=index.one(_most(segments.region[part], length, ROOT)),
        before=_operation(timeline, before),
        after=_operation(timeline, int(gaps.operation[row])),
    )


def _most(value: npt.NDArray[Any], weight: Int64Array, otherwise: int) -> int:
    """The value that holds most of the weight."""
    if len(value) > FEW:
        return int(heaviest(np.zeros(len(value), np.int64), value, weight, 1)[0])
    total: dict[int, int] = {}
    for one, ns in zip(value.tolist(), weight.tolist(), strict=True):
        total[one] = total.get(one, 0) + ns
    return min(total, key=lambda one: (-total[one], one), default=otherwise)


def _call(timeline: Timeline, gaps: Gaps, row: int, thread: int | None, dominant: int) -> str:
    """The call to blame for a gap: see results.plot_data.Gap."""
    calls = timeline.calls
    if dominant == Cause.SYNC and gaps.wait[row] != NOTHING:
        return plain_name(name_of(timeline.trace, int(calls.name[gaps.wait[row]])))
    if thread is None:
        return ""
    start, end = int(gaps.start_ns[row]), int(gaps.end_ns[row])
    rows = calls.rows_of(thread)
    first = rows.start + int(np.searchsorted(calls.end_ns[rows], start, side="right"))
    stop = rows.start + int(np.searchsorted(calls.start_ns[rows], end, side="left"))
    inside = np.minimum(calls.end_ns[first:stop], end) - np.maximum(calls.start_ns[first:stop], start)
    name = _most(calls.name[first:stop], inside, NOTHING)
    return plain_name(name_of(timeline.trace, name)) if name != NOTHING else ""


def _ended_at(device: DeviceTimeline, time_ns: Int64Array) -> npt.NDArray[np.intp]:
    """The last operation that ended at each instant, rows of Trace.operations; NOTHING for none."""
    end = device.operations.table.end_ns
    if len(end) == 0:
        return np.full(len(time_ns), NOTHING, np.intp)
    by_end = np.argsort(end, kind="stable")
    last = by_end[np.maximum(np.searchsorted(end[by_end], time_ns, side="right") - 1, 0)]
    return np.where(end[last] == time_ns, device.operations.rows[last], NOTHING)


_KIND = {
    OpKind.KERNEL: "kernel",
    OpKind.GRAPH: "CUDA graph",
    OpKind.MEMCPY: "copy",
    OpKind.MEMSET: "memset",
    OpKind.MIGRATION: "page migration",
}


def _operation(timeline: Timeline, row: int) -> str:
    """A kernel's name, else what the operation is."""
    if row == NOTHING:
        return ""
    operations = timeline.trace.operations
    kind = OpKind(int(operations.kind[row]))
    name = name_of(timeline.trace, int(operations.name[row])) if kind == OpKind.KERNEL else ""
    return name or _KIND[kind]
