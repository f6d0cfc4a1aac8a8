"""What all threads of a process do from a region's first instance to the end of its last: of a step more than lies
inside its ranges, such as copies by threads that make its input."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import as_rows, ascend, is_even, pick, unique
from boundby.results.report import Meanwhile
from boundby.trace.tables import OpKind

Int = npt.NDArray[np.int64]


def meanwhile(timeline: Timeline) -> list[Meanwhile | None]:
    """Of each region; None where it has no instance."""
    regions, ranges = timeline.ownership.regions, timeline.trace.ranges
    rows = np.flatnonzero(timeline.counted_ranges)
    process = timeline.trace.process_of_thread[ranges.thread[rows]]
    total, seen = np.zeros((len(regions), 4), np.int64), np.zeros(len(regions), bool)
    for number in unique(process).tolist():
        mine = rows[process == number]
        region = regions.of_range[mine]
        first, last = np.full(len(regions), np.iinfo(np.int64).max), np.full(len(regions), np.iinfo(np.int64).min)
        np.minimum.at(first, region, ranges.start_ns[mine])
        np.maximum.at(last, region, ranges.end_ns[mine])
        there = unique(region)
        for place, times in enumerate(_times(timeline, number)):
            upto = np.searchsorted(times, last[there], side="left")
            total[there, place] += upto - np.searchsorted(times, first[there], side="left")
        seen[there] = True
    return [
        Meanwhile(*counts) if is_seen else None for counts, is_seen in zip(total.tolist(), seen.tolist(), strict=True)
    ]


def _times(timeline: Timeline, process: int) -> Iterator[Int]:
    """When the calls of a process began, those of them that are syncs, and the calls that launched its kernels and its
    copies (or these, without a call), each in order."""
    calls, table, of_thread = timeline.calls, timeline.trace.operations, timeline.trace.process_of_thread
    alone = is_even(of_thread)
    is_mine = None if alone else pick(of_thread == process, calls.thread, False)
    for chosen in (None, timeline.waits.is_sync):
        both = chosen if is_mine is None else is_mine if chosen is None else is_mine & chosen
        yield _ordered(calls.start_ns if both is None else calls.start_ns[as_rows(both)])
    for kind in (OpKind.KERNEL, OpKind.MEMCPY):
        rows = as_rows(table.kind == kind if alone else (table.kind == kind) & (table.process == process))
        call = calls.of_operation[rows]
        begun = pick(calls.start_ns, call, 0)
        lost = np.flatnonzero(call < 0)
        begun[lost] = table.start_ns[rows][lost]
        yield _ordered(begun)


def _ordered(times: Int) -> Int:
    return times if ascend([times]) else np.sort(times)
