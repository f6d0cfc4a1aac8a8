"""NVTX ranges as lanes: one per thread and nesting depth, neighbours too short to be drawn apart merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import Int64Array, bounds, factorize, group_counts, into_groups, is_even, unique
from boundby.model.intervals import first_free_lanes
from boundby.model.library import int64, integers, run
from boundby.model.nesting import depths
from boundby.model.step_function import NOTHING
from boundby.plot_data.index import RegionIndex
from boundby.results.plot_data import RangeLane
from boundby.trace.tables import Trace

# Ranges kept apart, in all lanes together: some 25 characters each in a page.
MOST_RANGES = 16_000
# Lanes beyond these, those that cover least, are left out: a page of them is not read.
MOST_LANES = 48
# Start/end ranges of a process that overlap go to lanes of their own, up to this many.
MOST_OVERLAPS = 8

Rows = npt.NDArray[np.intp]


class _Lane(NamedTuple):
    process: int
    thread: int  # NOTHING: start/end ranges of the process
    depth: int
    rows: Rows  # in order of start


def range_lanes(timeline: Timeline, low: int, high: int, index: RegionIndex) -> tuple[tuple[RangeLane, ...], int]:
    """Lanes of the ranges that overlap [low, high), and how many lanes were left out."""
    trace = timeline.trace
    ranges = trace.ranges
    shown = np.flatnonzero((ranges.end_ns > low) & (ranges.start_ns < high) & (ranges.end_ns > ranges.start_ns))
    pushed = shown[~ranges.is_start_end[shown]]
    lanes = [*_nested(timeline, pushed), *_overlapping(trace, shown[ranges.is_start_end[shown]])]
    kept = lanes
    if len(lanes) > MOST_LANES:
        covered = [int((ranges.end_ns - ranges.start_ns)[lane.rows].sum()) for lane in lanes]
        best = sorted(range(len(lanes)), key=lambda number: (-covered[number], number))[:MOST_LANES]
        kept = [lanes[number] for number in sorted(best)]
    resolution = _resolution(trace, kept, high - low)
    return tuple(_drawn(timeline, lane, resolution, index) for lane in kept), len(lanes) - len(kept)


def _resolution(trace: Trace, lanes: list[_Lane], span: int) -> int:
    """The finest resolution at which the lanes hold no more than MOST_RANGES; 0: every range can stand alone."""
    columns = [(trace.ranges.start_ns[lane.rows], trace.ranges.end_ns[lane.rows]) for lane in lanes]
    return resolution_for(columns, span, MOST_RANGES)


def _nested(timeline: Timeline, rows: Rows) -> list[_Lane]:
    """Push/pop ranges by thread and by how many ranges of the same thread hold them."""
    trace = timeline.trace
    ranges, parent = trace.ranges, timeline.ownership.regions.range_parent
    if len(rows) == 0:
        return []
    depth = timeline.ownership.regions.range_depth
    if not is_even(ranges.thread):
        same = (parent >= 0) & (ranges.thread[np.maximum(parent, 0)] == ranges.thread)
        depth = depths(np.where(same, parent, NOTHING))
    depth = depth[rows]
    keys, of_row = factorize(ranges.thread[rows], depth)
    ends = np.cumsum(count := group_counts(of_row, len(keys)))
    in_lanes = np.split(into_groups(of_row, rows, count), ends[:-1])
    lanes = [
        _Lane(trace.threads[thread].process, thread, level, mine)
        for (thread, level), mine in zip(keys.tolist(), in_lanes, strict=True)
    ]

    def place(lane: _Lane) -> tuple[int, bool, int, int]:
        thread = trace.threads[lane.thread]
        return lane.process, thread.pid != thread.tid, thread.tid, lane.depth

    return sorted(lanes, key=place)


def _overlapping(trace: Trace, rows: Rows) -> list[_Lane]:
    """Start/end ranges by process, each in the first lane that is free when it starts."""
    process = trace.process_of_thread[trace.ranges.thread[rows]]
    lanes = []
    for number in unique(process).tolist():
        mine = rows[process == number]
        mine = mine[np.lexsort((mine, trace.ranges.start_ns[mine]))]
        level = first_free_lanes(trace.ranges.start_ns[mine], trace.ranges.end_ns[mine], MOST_OVERLAPS)
        lanes += [_Lane(number, NOTHING, depth, mine[level == depth]) for depth in unique(level).tolist()]
    return lanes


def _drawn(timeline: Timeline, lane: _Lane, resolution: int, index: RegionIndex) -> RangeLane:
    trace = timeline.trace
    start, end = trace.ranges.start_ns[lane.rows], trace.ranges.end_ns[lane.rows]
    region = timeline.ownership.regions.of_range[lane.rows]
    thread = trace.threads[lane.thread] if lane.thread != NOTHING else None
    first = groups_of(start, end, resolution)
    most, until, covered = grouped(first, region, start, end)
    return RangeLane(
        pid=trace.processes[lane.process].pid if 0 <= lane.process < len(trace.processes) else -1,
        tid=thread.tid if thread else None,
        thread=thread.name if thread else "",
        depth=lane.depth,
        start_ns=start[first],
        end_ns=until,
        region=index.of(most),
        count=np.diff(np.append(first, len(start))).astype(np.int64),
        covered_ns=covered,
    )


def resolution_for(columns: Sequence[tuple[Int64Array, Int64Array]], span: int, most: int) -> int:
    """The finest resolution at which starts and ends of all lanes fall into at most ``most`` groups; 0: all alone."""
    if sum(len(start) for start, _ in columns) <= most:
        return 0
    finest = max(span >> 24, 1)
    least, enough = 0, 62 - finest.bit_length()  # doublings of that: each leaves groups whole
    likely = (len(columns) * span // (most * finest)).bit_length()  # rows everywhere, and none that stands alone
    tried = [likely - 1, likely]
    while least < enough:
        middle, groups = tried.pop() if tried else (least + enough) // 2, 0
        if not least <= middle < enough:
            continue
        for start, end in columns:
            groups += len(groups_of(start, end, finest << middle, most + 1 - groups))
        least, enough = (middle + 1, enough) if groups > most else (least, middle)
    return finest << least


def groups_of(start: Int64Array, end: Int64Array, resolution: int, most: int | None = None) -> Rows:
    """Where groups of rows begin: a row at least as long as the resolution stands alone, short ones join those of
    the same stretch of time. ``most``: as many of them are enough."""
    most = len(start) if most is None else most
    if not resolution:
        return np.arange(min(len(start), most))
    first = np.empty(min(len(start), most), np.int64)
    return first[: run("boundby_groups", int64(start), int64(end), len(start), resolution, most, first)]


def grouped(
    first: Rows, value: npt.NDArray[Any], start: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Of each group (see `groups_of`) the value that holds most of its time (of equals the smallest), when the last of
    its rows ends, and how long they take together. Values: from 0 on."""
    if not len(first):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    size, found = bounds(value)[1] + 1, np.empty((3, len(first)), np.int64)
    known = integers(value)
    columns = len(first), len(value), known, known.itemsize, int64(start), int64(end)
    if run("boundby_heaviest", int64(first), *columns, size, np.zeros(size, np.int64), *found) < 0:
        raise IndexError("a group has no rows, or a value below 0")
    return found[0], found[1], found[2]
