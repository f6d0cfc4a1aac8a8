"""What each stream ran and which CUDA calls each thread made, as lanes; neighbours too short to draw merged."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import Int64Array, factorize, group_sums, into_groups
from boundby.model.causes import Cause
from boundby.model.records import replace
from boundby.plot_data.ranges import groups_of, heaviest_of, resolution_for
from boundby.results.plot_data import WorkLane
from boundby.trace.tables import Direction, MemoryKind, OpKind
from boundby.trace.vocabulary.cuda import plain_name
from boundby.trace.vocabulary.kernels import kernel_label

# Operations and calls kept apart, in all lanes together: some 20 characters each in a page.
MOST_WORK = 24_000
# Lanes beyond these, those with the least time, are left out: a page of them is not read.
MOST_STREAMS, MOST_CALLING = 16, 8
# Labels beyond these, those with the least time, are told as OTHER.
MOST_LABELS = 600
OTHER = "(one of many short ones)"

Rows = npt.NDArray[np.intp]


class _Lane(NamedTuple):
    kind: str  # "stream" | "calls"
    device: int
    pid: int
    number: int
    thread: str
    rows: Rows  # of operations or calls, in order of start
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
        table, rows = device.operations.table, device.operations.rows
        inside = np.flatnonzero((table.end_ns > low) & (table.start_ns < high))
        keys, of_row = factorize(table.process[inside], table.stream[inside])
        of_key = np.split(into_groups(of_row, inside, count := np.bincount(of_row)), np.cumsum(count)[:-1])
        for (process, stream), mine in zip(keys.tolist(), of_key, strict=True):
            pid = trace.processes[process].pid if 0 <= process < len(trace.processes) else -1
            times = table.start_ns[mine], table.end_ns[mine]
            found.append(_Lane("stream", trace.gpus[device.index].id, pid, stream, "", rows[mine], *times))
    return found


def _calls(timeline: Timeline, low: int, high: int) -> list[_Lane]:
    """Outermost calls by thread."""
    trace, calls, found = timeline.trace, timeline.calls, []
    inside = np.flatnonzero((calls.end_ns > low) & (calls.start_ns < high))
    first = np.flatnonzero(np.diff(calls.thread[inside], prepend=-1))
    for mine in np.split(inside, first[1:]) if len(inside) else []:
        thread = trace.threads[int(calls.thread[mine[0]])]
        times = calls.start_ns[mine], calls.end_ns[mine]
        found.append(_Lane("calls", -1, thread.pid, thread.tid, thread.name, mine, *times))
    return found


def _longest(lanes: list[_Lane], most: int) -> list[_Lane]:
    """Those with the most time, in their own order."""
    total = [int((lane.end_ns - lane.start_ns).sum()) for lane in lanes]
    best = sorted(range(len(lanes)), key=lambda number: (-total[number], number))[:most]
    return [lanes[number] for number in sorted(best)]


def _drawn(lane: _Lane, resolution: int, labels: _Labels) -> WorkLane:
    first = groups_of(lane.start_ns, lane.end_ns, resolution)
    count = np.diff(np.append(first, len(lane.rows)))
    length = lane.end_ns - lane.start_ns
    label, cause = labels.of(lane)
    return WorkLane(
        *lane[:5],
        start_ns=lane.start_ns[first],
        end_ns=np.maximum.reduceat(lane.end_ns, first) if len(first) else lane.end_ns,
        name=heaviest_of(first, label, length),
        cause=heaviest_of(first, cause, length),
        count=count.astype(np.int64),
        covered_ns=np.add.reduceat(length, first) if len(first) else length,
    )


class _Labels:
    """Numbers for what operations and calls are called."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._number: dict[str, int] = {}

    def of(self, lane: _Lane) -> tuple[Int64Array, Int64Array]:
        """Label and busy cause (-1: a call) of each row of a lane."""
        names = self._timeline.trace.names
        if lane.kind == "calls":
            keys, of_row = factorize(self._timeline.calls.name[lane.rows])
            texts = [plain_name(names[name]) if name >= 0 else "a call without a name" for (name,) in keys.tolist()]
            return self._numbers(texts)[of_row], np.full(len(lane.rows), -1, np.int64)
        table = self._timeline.trace.operations
        columns = (table.kind, table.name, table.direction, table.source, table.target)
        keys, of_row = factorize(*(column[lane.rows] for column in columns))
        cause = np.where(table.kind[lane.rows] <= OpKind.GRAPH, int(Cause.GPU_COMPUTE), int(Cause.GPU_COPY))
        cause[table.is_communication[lane.rows]] = int(Cause.GPU_COMM)
        return self._numbers([_told(key, names) for key in keys.tolist()])[of_row], cause.astype(np.int64)

    def _numbers(self, texts: list[str]) -> Int64Array:
        for text in sorted(texts):  # not in the order of names, which follows that of rows
            self._number.setdefault(text, len(self._number))
        return np.array([self._number[text] for text in texts], np.int64)

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


def _told(key: list[int], names: tuple[str, ...]) -> str:
    """``gemm``, ``copy HtoD, pageable to device``, ``memset``."""
    kind, name, direction, source, target = key
    if kind == OpKind.KERNEL:
        return kernel_label(names[name]) if name >= 0 else "a kernel without a name"
    if kind in (OpKind.GRAPH, OpKind.MEMSET):
        return "CUDA graph" if kind == OpKind.GRAPH else "memset"
    word = "page migration" if kind == OpKind.MIGRATION else "copy"
    way = {Direction.HTOD: "HtoD", Direction.DTOH: "DtoH", Direction.DTOD: "DtoD", Direction.PTOP: "PtoP"}
    ends = [MemoryKind(each).name.lower() for each in (source, target)]
    between = f", {ends[0]} to {ends[1]}" if "unknown" not in ends else ""
    return f"{word} {way.get(Direction(direction), '')}".strip() + between
