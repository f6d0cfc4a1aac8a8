"""NVTX ranges as lanes: one per thread and nesting depth, neighbours too short to be drawn apart merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import Int64Array, factorize, heaviest, unique
from boundby.model.intervals import first_free_lanes
from boundby.model.library import core, int64, run
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
    same = (parent >= 0) & (ranges.thread[np.maximum(parent, 0)] == ranges.thread)
    depth = depths(np.where(same, parent, NOTHING))[rows]
    keys, of_row = factorize(ranges.thread[rows], depth)
    lanes = []
    order = np.argsort(of_row, kind="stable")
    bounds = np.searchsorted(of_row[order], np.arange(len(keys) + 1))
    for number, (thread, level) in enumerate(keys.tolist()):
        mine = rows[order[bounds[number] : bounds[number + 1]]]
        lanes.append(_Lane(trace.threads[thread].process, thread, level, mine))

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
    length = end - start
    return RangeLane(
        pid=trace.processes[lane.process].pid if 0 <= lane.process < len(trace.processes) else -1,
        tid=thread.tid if thread else None,
        thread=thread.name if thread else "",
        depth=lane.depth,
        start_ns=start[first],
        end_ns=np.maximum.reduceat(end, first),
        region=index.of(heaviest_of(first, region, length)),
        count=np.diff(np.append(first, len(start))).astype(np.int64),
        covered_ns=np.add.reduceat(length, first),
    )


def resolution_for(columns: Sequence[tuple[Int64Array, Int64Array]], span: int, most: int) -> int:
    """The finest resolution at which starts and ends of all lanes fall into at most ``most`` groups; 0: all alone."""
    if sum(len(start) for start, _ in columns) <= most:
        return 0
    finest = max(span >> 24, 1)
    least, enough = 0, 62 - finest.bit_length()  # doublings of that: each leaves groups whole
    while least < enough:
        middle, groups = (least + enough) // 2, 0
        for start, end in columns:
            groups += len(groups_of(start, end, finest << middle, most + 1 - groups))
        least, enough = (middle + 1, enough) if groups > most else (least, middle)
    return finest << least


def groups_of(start: Int64Array, end: Int64Array, resolution: int, most: int | None = None) -> Rows:
    """Where groups of rows begin: a row at least as long as the resolution stands alone, short ones join those of
    the same stretch of time. ``most``: as many of them are enough."""
    most = len(start) if most is None else most
    if resolution and core() is not None:
        first = np.empty(min(len(start), most), np.int64)
        return first[: run("boundby_groups", int64(start), int64(end), len(start), resolution, most, first)]
    new = np.ones(len(start), bool)
    if resolution:
        alone = end - start >= resolution
        stretch = start // resolution
        new[1:] = alone[1:] | alone[:-1] | (stretch[1:] != stretch[:-1])
    return np.flatnonzero(new)[:most]


def heaviest_of(first: Rows, value: npt.NDArray[Any], weight: Int64Array) -> Int64Array:
    """The value that holds most of the weight of each group; see `groups_of` and `heaviest`."""
    if len(value) and (value == value[0]).all():
        return np.full(len(first), value[0], np.int64)
    if core() is None:
        return heaviest(
            np.repeat(np.arange(len(first)), np.diff(np.append(first, len(value)))), value, weight, len(first)
        )
    size, found = int(value.max(initial=-1)) + 1, np.empty(len(first), np.int64)
    columns = len(first), len(value), int64(value), int64(weight)
    if run("boundby_heaviest", int64(first), *columns, size, np.zeros(size, np.int64), found) < 0:
        raise IndexError("a group has no rows, or a value below 0")
    return found
