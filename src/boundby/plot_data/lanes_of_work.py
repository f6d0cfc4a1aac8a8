"""What each stream ran and which CUDA calls each thread made, as lanes; neighbours too short to draw merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import (
    Int8Array,
    Int32Array,
    Int64Array,
    as_rows,
    factorize,
    group_sums,
    into_groups,
    pick,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.scale import LIST
from boundby.plot_data.lanes_of_ranges import grouped, groups_of, resolution_for
from boundby.results.plot_data import WorkLane
from boundby.trace.tables import Direction, MemoryKind, OpKind
from boundby.trace.vocabulary.cuda import plain_name
from boundby.trace.vocabulary.kernels import kernel_label

# Operations and calls kept apart, in all lanes together: some 20 characters each in a page.
MOST_WORK = 24_000
# Lanes beyond these, those with the least time, are left out: a page of them is not read.
MOST_STREAMS, MOST_CALLING = 16, LIST
# Labels beyond these, those with the least time, are told as OTHER.
MOST_LABELS = 600
OTHER = "(one of many short ones)"
NAMELESS_CALL, NAMELESS_KERNEL = "a call without a name", "a kernel without a name"

Rows = npt.NDArray[np.intp]


class _Lane(NamedTuple):
    kind: str  # "stream" | "calls"
    device: int
    pid: int
    number: int
    thread: str
    rows: slice | Rows  # of operations or calls, in order of start
    start_ns: Int64Array
    end_ns: Int64Array


class WorkLanes(NamedTuple):
    lanes: tuple[WorkLane, ...]
    left_out: int
    names: tuple[str, ...]


def work_lanes(timeline: Timeline, low: int, high: int) -> WorkLanes:
    """Lanes of what ran and was called in [low, high), how many were left out, and the labels they point to."""
    streams, calls = _streams(timeline, low, high), _calls(timeline, low, high)
    kept = [*_longest(streams, MOST_STREAMS), *_longest(calls, MOST_CALLING)]
    resolution = resolution_for([(lane.start_ns, lane.end_ns) for lane in kept], high - low, MOST_WORK)
    labels = _Labels(timeline)
    drawn = [_drawn(lane, resolution, labels) for lane in kept]
    names, renumbered = labels.most_used(drawn)
    return WorkLanes(renumbered, len(streams) + len(calls) - len(kept), names)


def _streams(timeline: Timeline, low: int, high: int) -> list[_Lane]:
    """Operations by device, process and stream, in this order."""
    trace, found = timeline.trace, []
    for device in timeline.devices:
        table = device.operations.table
        inside = as_rows((table.end_ns > low) & (table.start_ns < high))
        keys, of_row = factorize(table.process[inside], table.stream[inside])
        of_key: list[slice | Rows] = [inside] * len(keys)
        if len(keys) > 1:
            count = np.bincount(of_row)
            chosen = np.arange(len(table))[inside]
            of_key = [*np.split(into_groups(of_row, chosen, count), np.cumsum(count)[:-1])]
        for (process, stream), mine in zip(keys.tolist(), of_key, strict=True):
            pid = trace.processes[process].pid if 0 <= process < len(trace.processes) else -1
            times = table.start_ns[mine], table.end_ns[mine]
            lane = "stream", trace.gpus[device.index].id, pid, stream, ""
            found.append(_Lane(*lane, device.operations.at(mine), *times))
    return found


def _calls(timeline: Timeline, low: int, high: int) -> list[_Lane]:
    """Outermost calls by thread."""
    trace, calls, found = timeline.trace, timeline.calls, []
    for number in unique(calls.thread).tolist():
        rows = calls.rows_of(number)
        first = rows.start + int(np.searchsorted(calls.end_ns[rows], low, side="right"))
        mine = slice(first, rows.start + int(np.searchsorted(calls.start_ns[rows], high, side="left")))
        if mine.start < mine.stop:
            thread = trace.threads[number]
            times = calls.start_ns[mine], calls.end_ns[mine]
            found.append(_Lane("calls", -1, thread.pid, thread.tid, thread.name, mine, *times))
    return found


def _longest(lanes: list[_Lane], most: int) -> list[_Lane]:
    """Those with the most time, in their own order."""
    if len(lanes) <= most:
        return lanes
    total = [int((lane.end_ns - lane.start_ns).sum()) for lane in lanes]
    best = sorted(range(len(lanes)), key=lambda number: (-total[number], number))[:most]
    return [lanes[number] for number in sorted(best)]


def _drawn(lane: _Lane, resolution: int, labels: _Labels) -> WorkLane:
    start, end = lane.start_ns, lane.end_ns
    first = groups_of(start, end, resolution)
    label, cause = labels.of(lane)
    most, until, covered = grouped(first, label, start, end)
    return WorkLane(
        *lane[:5],
        start_ns=start[first],
        end_ns=until,
        name=most,
        cause=np.full(len(first), cause) if isinstance(cause, int) else grouped(first, cause, start, end)[0],
        count=np.diff(np.append(first, len(start))).astype(np.int64),
        covered_ns=covered,
    )


class _Labels:
    """Numbers for what operations and calls are called."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._number: dict[str, int] = {}

    def of(self, lane: _Lane) -> tuple[Int32Array, Int8Array | int]:
        """Label of each row of a lane; busy cause of each, or of all (-1: a call)."""
        names = self._timeline.trace.names
        if lane.kind == "calls":
            name = self._timeline.calls.name[lane.rows]
            texts = {one: plain_name(names[one]) if one >= 0 else NAMELESS_CALL for one in unique(name).tolist()}
            self._number_all(texts.values())
            return self._by_name(name, texts), -1
        table = self._timeline.trace.operations
        kind, name = table.kind[lane.rows], table.name[lane.rows]
        others = np.flatnonzero(kind != OpKind.KERNEL)
        used = unique(name[kind == OpKind.KERNEL] if len(others) else name).tolist()
        kernels = {one: kernel_label(names[one]) if one >= 0 else NAMELESS_KERNEL for one in used}
        columns = (table.kind, table.name, table.direction, table.source, table.target)
        keys, of_other = factorize(*(column[lane.rows][others] for column in columns))
        told = [_told(key) for key in keys.tolist()]
        self._number_all([*kernels.values(), *told])
        label = self._by_name(name, kernels)
        label[others] = np.array([self._number[text] for text in told], np.int32)[of_other]
        communicates = table.is_communication[lane.rows]
        if not len(others) and not communicates.any():
            return label, int(Cause.GPU_COMPUTE)
        cause = np.where(kind <= OpKind.GRAPH, int(Cause.GPU_COMPUTE), int(Cause.GPU_COPY)).astype(np.int8)
        cause[communicates] = int(Cause.GPU_COMM)
        return label, cause

    def _number_all(self, texts: Iterable[str]) -> None:
        for text in sorted(texts):  # not in the order of names, which follows that of rows
            self._number.setdefault(text, len(self._number))

    def _by_name(self, name: npt.NDArray[Any], texts: Mapping[int, str]) -> Int32Array:
        """The labels of rows of these names, which are called so."""
        numbers = np.zeros(len(self._timeline.trace.names) + 1, np.int32)  # the last one: of no name
        numbers[list(texts)] = [self._number[text] for text in texts.values()]
        return pick(numbers, name, int(numbers[-1]))

    def most_used(self, lanes: list[WorkLane]) -> tuple[tuple[str, ...], tuple[WorkLane, ...]]:
        """The labels with the most time, and the lanes with the numbers of these."""
        time = np.zeros(len(self._number), np.int64)
        for lane in lanes:
            time += group_sums(lane.name, lane.covered_ns, len(time))
        texts = list(self._number)
        best = sorted(range(len(texts)), key=lambda number: (-int(time[number]), texts[number]))
        new = np.full(len(texts), MOST_LABELS, np.int64)
        new[best[:MOST_LABELS]] = np.arange(min(len(best), MOST_LABELS))
        told = tuple(texts[number] for number in best[:MOST_LABELS])
        names = (*told, OTHER) if len(best) > MOST_LABELS else told
        return names, tuple(replace(lane, name=new[lane.name]) for lane in lanes)


def _told(key: list[int]) -> str:
    """What is no kernel: ``copy HtoD, pageable to device``, ``memset``."""
    kind, _, direction, source, target = key
    if kind in (OpKind.GRAPH, OpKind.MEMSET):
        return "CUDA graph" if kind == OpKind.GRAPH else "memset"
    word = "page migration" if kind == OpKind.MIGRATION else "copy"
    way = {Direction.HTOD: "HtoD", Direction.DTOH: "DtoH", Direction.DTOD: "DtoD", Direction.PTOP: "PtoP"}
    ends = [MemoryKind(each).name.lower() for each in (source, target)]
    between = f", {ends[0]} to {ends[1]}" if "unknown" not in ends else ""
    return f"{word} {way.get(Direction(direction), '')}".strip() + between
