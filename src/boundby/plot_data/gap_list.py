"""The longest gaps of every device with what brought them about, and which wait is behind each gap's sync time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import Int64Array, in_order, largest, tally, unique
from boundby.model.causes import BUSY_CAUSES, CAUSES, Cause
from boundby.model.intervals import expand
from boundby.model.step_function import NOTHING
from boundby.plot_data.index import RegionIndex, name_of
from boundby.results.plot_data import Gap
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import plain_name

# The longest gaps that are told one by one, of all devices together.
MOST_GAPS = 400

Rows = npt.NDArray[np.intp]


def longest_gaps(timeline: Timeline, index: RegionIndex) -> tuple[tuple[Gap, ...], int]:
    """The longest gaps of all devices in order of time, and how many there are in all."""
    longest: list[tuple[int, int, int, Gap]] = []  # -length, device, row of its gaps
    for device in timeline.devices:
        rows = largest(device.gaps.length_ns, MOST_GAPS)
        described = _describe(timeline, device, rows)
        longest += [
            (gap.start_ns - gap.end_ns, device.index, row, gap)
            for row, gap in zip(rows.tolist(), described, strict=True)
        ]
    longest.sort(key=lambda item: item[:3])
    told = [replace(gap, region=index.one(gap.region)) for *_, gap in longest[:MOST_GAPS]]
    total = sum(len(device.gaps) for device in timeline.devices)
    return tuple(sorted(told, key=lambda gap: (gap.start_ns, gap.device, gap.end_ns))), total


def _describe(timeline: Timeline, device: DeviceTimeline, rows: Rows) -> list[Gap]:
    """Of these gaps what they are; regions by the trace's own numbers."""
    trace, segments, gaps = timeline.trace, device.segments, device.gaps
    start, end = gaps.start_ns[rows], gaps.end_ns[rows]
    gap, piece = expand(np.searchsorted(segments.start_ns, start), np.searchsorted(segments.start_ns, end))
    begin, until, cause = segments.start_ns[piece], segments.end_ns[piece], segments.cause[piece]
    found, by_cause = tally(gap, cause, begin, until), np.zeros((len(rows), len(CAUSES)), np.int64)
    by_cause[found.group, found.label] = found.ns
    by_cause[:, [int(cause) for cause in BUSY_CAUSES]] = 0  # none can be there
    dominant = by_cause.argmax(axis=1)
    mine = cause == dominant[gap]
    thread = tally(gap[mine], segments.thread[piece[mine]], begin[mine], until[mine]).prevailing(gaps.thread[rows])
    region = tally(gap, segments.region[piece], begin, until).prevailing(np.full(len(rows), ROOT))
    call = _calls(timeline, start, end, thread)
    is_wait = (dominant == Cause.SYNC) & (gaps.wait[rows] != NOTHING)
    call[is_wait] = timeline.calls.name[gaps.wait[rows[is_wait]]]
    texts = {name: plain_name(name_of(trace, name)) if name != NOTHING else "" for name in set(call.tolist())}
    columns = (start, end, dominant, by_cause, call, thread, region, _ended_at(device, start), gaps.operation[rows])
    return [
        Gap(
            device=trace.gpus[device.index].id,
            start_ns=low,
            end_ns=high,
            cause=main,
            cause_ns=tuple(cause_ns),
            call=texts[name],
            thread=trace.threads[of].name if of >= 0 else "",
            tid=trace.threads[of].tid if of >= 0 else None,
            region=place,
            before=_operation(timeline, before),
            after=_operation(timeline, after),
        )
        for low, high, main, cause_ns, name, of, place, before, after in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


def _calls(timeline: Timeline, start: Int64Array, end: Int64Array, thread: Int64Array) -> Int64Array:
    """The names of the calls that these threads (NO_THREAD: none) were in for the longest, meanwhile; NOTHING."""
    calls, name = timeline.calls, np.full(len(start), NOTHING, np.int64)
    for one in unique(thread[thread >= 0]).tolist():
        mine, rows = np.flatnonzero(thread == one), calls.rows_of(one)
        first = rows.start + np.searchsorted(calls.end_ns[rows], start[mine], side="right")
        stop = rows.start + np.searchsorted(calls.start_ns[rows], end[mine], side="left")
        gap, call = expand(first, np.maximum(stop, first))
        inside = np.maximum(calls.start_ns[call], start[mine][gap]), np.minimum(calls.end_ns[call], end[mine][gap])
        name[mine] = tally(gap, calls.name[call], *inside).prevailing(name[mine])
    return name


def _ended_at(device: DeviceTimeline, time_ns: Int64Array) -> npt.NDArray[np.intp]:
    """The last operation that ended at each instant, rows of Trace.operations; NOTHING for none."""
    end = device.operations.table.end_ns
    if len(end) == 0:
        return np.full(len(time_ns), NOTHING, np.intp)
    by_end = in_order(end)
    last = np.maximum(np.searchsorted(end[by_end], time_ns, side="right") - 1, 0)
    if not isinstance(by_end, slice):
        last = by_end[last]
    return np.where(end[last] == time_ns, device.operations.rows.start + last, NOTHING)


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
