"""What all threads of a process do from a region's first instance to the end of its last: of a step more than lies
inside its ranges, such as copies by threads that make its input."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import unique
from boundby.results.report import Meanwhile
from boundby.trace.tables import OpKind

Int = npt.NDArray[np.int64]


def meanwhile(timeline: Timeline) -> list[Meanwhile | None]:
    """Of each region; None where it has no instance."""
    calls, table = timeline.calls, timeline.trace.operations
    regions, ranges = timeline.ownership.regions, timeline.trace.ranges
    of_thread = timeline.trace.process_of_thread
    launched_ns = np.append(calls.start_ns, 0)[calls.of_operation]
    begun_ns = np.where(calls.of_operation >= 0, launched_ns, table.start_ns)
    is_kernel, is_copy = table.kind == OpKind.KERNEL, table.kind == OpKind.MEMCPY
    rows = np.flatnonzero(timeline.counted_ranges)
    region, process = regions.of_range[rows], of_thread[ranges.thread[rows]]
    total, seen = np.zeros((len(regions), 4), np.int64), np.zeros(len(regions), bool)
    for number in unique(process).tolist():
        mine = rows[process == number]
        first, last = np.full(len(regions), np.iinfo(np.int64).max), np.full(len(regions), np.iinfo(np.int64).min)
        np.minimum.at(first, regions.of_range[mine], ranges.start_ns[mine])
        np.maximum.at(last, regions.of_range[mine], ranges.end_ns[mine])
        there = unique(region[process == number])
        is_call, is_operation = of_thread[calls.thread] == number, table.process == number
        columns = (
            calls.start_ns[is_call],
            calls.start_ns[is_call & timeline.waits.is_sync],
            begun_ns[is_operation & is_kernel],
            begun_ns[is_operation & is_copy],
        )
        for place, times in enumerate(map(np.sort, columns)):
            upto = np.searchsorted(times, last[there], side="left")
            total[there, place] += upto - np.searchsorted(times, first[there], side="left")
        seen[there] = True
    return [
        Meanwhile(*counts) if is_seen else None for counts, is_seen in zip(total.tolist(), seen.tolist(), strict=True)
    ]
