"""The longest gaps of every device with what brought them about, and which wait is behind each gap's sync time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.attribution.account import find_gaps
from boundby.attribution.gaps import GAPS_AT_ONCE, longest_waits
from boundby.attribution.gaps import Gap as Gaps
from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import Int64Array
from boundby.model.causes import BUSY_CAUSES, CAUSES, Cause
from boundby.model.intervals import complement
from boundby.model.step_function import NOTHING
from boundby.plot_data.index import RegionIndex, name_of
from boundby.results.plot_data import Gap
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import plain_name

# The longest gaps that are told one by one, of all devices together.
MOST_GAPS = 400


class IdleWaits(NamedTuple):
    """One device's gaps, and the call behind the waiting that delayed each (NOTHING: none); columns of equal length."""

    gaps: Gaps
    call: npt.NDArray[np.int64]  # row of the timeline's calls
    sync_ns: Int64Array  # of the account


def idle_waits(timeline: Timeline, device: DeviceTimeline) -> IdleWaits:
    """Every gap of a device, its sync time, and the call that waited longest since the operation before it."""
    idle = complement(device.busy, device.low_ns, device.high_ns)
    gaps = find_gaps(timeline, device.operations, idle, device.low_ns)
    segments = device.segments
    rows = np.flatnonzero(segments.cause == Cause.SYNC)
    sync = np.zeros(len(idle.start), np.int64)
    gap = np.searchsorted(idle.start, segments.start_ns[rows], side="right") - 1
    np.add.at(sync, gap, segments.length_ns[rows])
    call = np.full(len(idle.start), NOTHING, np.int64)
    waited = np.flatnonzero((sync > 0) & (gaps.thread >= 0))
    for thread in np.unique(gaps.thread[waited]).tolist():
        mine = waited[gaps.thread[waited] == thread]
        for first in range(0, len(mine), GAPS_AT_ONCE):
            block = mine[first : first + GAPS_AT_ONCE]
            part = gaps.take(block)
            until = np.maximum(np.minimum(part.launch_start, part.end), part.since)
            call[block] = _calls_at(timeline, *longest_waits(timeline, thread, part, until))
    return IdleWaits(gaps, call, sync)


def _calls_at(timeline: Timeline, thread: npt.NDArray[np.int64], time: Int64Array) -> npt.NDArray[np.int64]:
    """The call a thread was in at an instant, or the last before it; NOTHING where there is no thread."""
    calls = timeline.calls
    found = np.full(len(thread), NOTHING, np.int64)
    for number in np.unique(thread[thread >= 0]).tolist():
        mine, rows = thread == number, calls.rows_of(number)
        place = np.searchsorted(calls.start_ns[rows], time[mine], side="right") - 1
        found[mine] = np.where(place >= 0, rows.start + place, NOTHING)
    return found


def longest_gaps(timeline: Timeline, index: RegionIndex) -> tuple[tuple[Gap, ...], int]:
    """The longest gaps of all devices in order of time, and how many there are in all."""
    found: list[tuple[int, DeviceTimeline, IdleWaits, int]] = []  # length, ..., gap
    total = 0
    for device in timeline.devices:
        waits = idle_waits(timeline, device)
        length = waits.gaps.end - waits.gaps.start
        total += len(length)
        longest = np.lexsort((waits.gaps.start, -length))[:MOST_GAPS]
        found += [(int(length[row]), device, waits, row) for row in longest.tolist()]
    found.sort(key=lambda item: (-item[0], item[1].index, item[3]))
    gaps = [_describe(timeline, device, waits, row, index) for _, device, waits, row in found[:MOST_GAPS]]
    return tuple(sorted(gaps, key=lambda gap: (gap.start_ns, gap.device, gap.end_ns))), total


def _describe(timeline: Timeline, device: DeviceTimeline, waits: IdleWaits, row: int, index: RegionIndex) -> Gap:
    trace, segments = timeline.trace, device.segments
    start, end = int(waits.gaps.start[row]), int(waits.gaps.end[row])
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
    thread = _thread(waits, row, segments.cause[part], segments.thread[part], length, dominant)
    known = thread if thread is not None and thread >= 0 else None
    before, after = _neighbours(device, start, end)
    return Gap(
        device=trace.gpus[device.index].id,
        start_ns=start,
        end_ns=end,
        cause=dominant,
        cause_ns=tuple(by_cause.tolist()),
        call=_call(timeline, waits, row, known, dominant),
        thread=trace.threads[known].name if known is not None else "",
        tid=trace.threads[known].tid if known is not None else None,
        region=index.one(region),
        before=_operation(timeline, before),
        after=_operation(timeline, after),
    )


def _thread(
    waits: IdleWaits,
    row: int,
    cause: npt.NDArray[np.int8],
    thread: npt.NDArray[np.int32],
    length: Int64Array,
    dominant: int,
) -> int | None:
    """The thread responsible for most of the dominant cause."""
    mine = cause == dominant
    if not mine.any():
        return int(waits.gaps.thread[row])
    numbers, of_row = np.unique(thread[mine], return_inverse=True)
    weight = np.zeros(len(numbers), np.int64)
    np.add.at(weight, of_row.reshape(-1), length[mine])
    return int(numbers[weight.argmax()])


def _call(timeline: Timeline, waits: IdleWaits, row: int, thread: int | None, dominant: int) -> str:
    """The call to blame for a gap: see results.plot_data.Gap."""
    calls = timeline.calls
    if dominant == Cause.SYNC and waits.call[row] != NOTHING:
        return plain_name(name_of(timeline.trace, int(calls.name[waits.call[row]])))
    if thread is None:
        return ""
    start, end = int(waits.gaps.start[row]), int(waits.gaps.end[row])
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
