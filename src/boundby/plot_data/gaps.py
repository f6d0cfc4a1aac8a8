"""The longest gaps of every device with what brought them about, and which wait is behind each gap's sync time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.gaps import Gaps
from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import Int64Array
from boundby.model.causes import BUSY_CAUSES, CAUSES, Cause
from boundby.model.step_function import NOTHING
from boundby.plot_data.index import RegionIndex, name_of
from boundby.results.plot_data import Gap
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import plain_name

# The longest gaps that are told one by one, of all devices together.
MOST_GAPS = 400


def longest_gaps(timeline: Timeline, index: RegionIndex) -> tuple[tuple[Gap, ...], int]:
    """The longest gaps of all devices in order of time, and how many there are in all."""
    longest: list[tuple[int, int, DeviceTimeline]] = []  # -length, row of the device's gaps
    for device in timeline.devices:
        length = device.gaps.length_ns
        rows = np.lexsort((device.gaps.start_ns, -length))[:MOST_GAPS]
        longest += [(-int(length[row]), row, device) for row in rows.tolist()]
    longest.sort(key=lambda item: (item[0], item[2].index, item[1]))
    gaps = [_describe(timeline, device, row, index) for _, row, device in longest[:MOST_GAPS]]
    total = sum(len(device.gaps) for device in timeline.devices)
    return tuple(sorted(gaps, key=lambda gap: (gap.start_ns, gap.device, gap.end_ns))), total


def _describe(timeline: Timeline, device: DeviceTimeline, row: int, index: RegionIndex) -> Gap:
    trace, segments, gaps = timeline.trace, device.segments, device.gaps
    start, end = int(gaps.start_ns[row]), int(gaps.end_ns[row])
    first, stop = np.searchsorted(segments.start_ns, [start, end])
    part = slice(int(first), int(stop))
    length = segments.end_ns[part] - segments.start_ns[part]
    by_cause = np.zeros(len(CAUSES), np.int64)
    np.add.at(by_cause, segments.cause[part], length)
    by_cause[[int(cause) for cause in BUSY_CAUSES]] = 0  # none can be there
    dominant = int(by_cause.argmax())
    numbers, of_row = np.unique(segments.region[part], return_inverse=True)
    by_region = np.zeros(len(numbers), np.int64)
    np.add.at(by_region, of_row.reshape(-1), length)
    region = int(numbers[by_region.argmax()]) if len(numbers) else ROOT
    thread = _thread(int(gaps.thread[row]), segments.cause[part], segments.thread[part], length, dominant)
    known = thread if thread >= 0 else None
    before, after = _neighbours(device, start, end)
    return Gap(
        device=trace.gpus[device.index].id,
        start_ns=start,
        end_ns=end,
        cause=dominant,
        cause_ns=tuple(by_cause.tolist()),
        call=_call(timeline, gaps, row, known, dominant),
        thread=trace.threads[known].name if known is not None else "",
        tid=trace.threads[known].tid if known is not None else None,
        region=index.one(region),
        before=_operation(timeline, before),
        after=_operation(timeline, after),
    )


def _thread(
    responsible: int,
    cause: npt.NDArray[np.int8],
    thread: npt.NDArray[np.int32],
    length: Int64Array,
    dominant: int,
) -> int:
    """The thread responsible for most of the dominant cause."""
    mine = cause == dominant
    if not mine.any():
        return responsible
    numbers, of_row = np.unique(thread[mine], return_inverse=True)
    weight = np.zeros(len(numbers), np.int64)
    np.add.at(weight, of_row.reshape(-1), length[mine])
    return int(numbers[weight.argmax()])


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
    if stop <= first:
        return ""
    inside = np.minimum(calls.end_ns[first:stop], end) - np.maximum(calls.start_ns[first:stop], start)
    names, of_row = np.unique(calls.name[first:stop], return_inverse=True)
    weight = np.zeros(len(names), np.int64)
    np.add.at(weight, of_row.reshape(-1), inside)
    return plain_name(name_of(timeline.trace, int(names[weight.argmax()])))


def _neighbours(device: DeviceTimeline, start: int, end: int) -> tuple[int, int]:
    """Rows of the trace's operations: the last to end by the gap's start, the first to start at its end."""
    table = device.operations.table
    following = int(np.searchsorted(table.start_ns, end, side="left"))
    after = int(device.operations.rows[following]) if following < len(table) else NOTHING
    ended = np.flatnonzero(table.end_ns[:following] == start)
    before = int(device.operations.rows[ended[-1]]) if len(ended) else NOTHING
    return before, after


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
