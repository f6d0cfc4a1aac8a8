"""The program's steps on each device: when each begins and ends, what the device and the host do in it, and how many
operations are queued.

A step begins with its range on the host, or when the step before is over on the device, and ends with its range or
its work, whichever is later. What lies between two steps is in neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.regions import project
from boundby.attribution.segments import Segments
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import Int64Array, is_any, unique
from boundby.model.causes import BUSY_CAUSES, Cause
from boundby.model.intervals import NOTHING, CoveredTime, IntervalSet
from boundby.results.report import StepBreakdown
from boundby.stats.device_figures import OperationSet
from boundby.stats.instances import KEPT, evenly, quantiles

_Rows = npt.NDArray[np.intp]
#: Why the device idles, as people who read step times ask: for input, for the host, for compilers and loading.
_PARTS = {
    "device_ns": tuple(BUSY_CAUSES),
    "input_ns": (Cause.HOST_BLOCKED,),
    "host_ns": (Cause.CPU, Cause.CUDA_API, Cause.SYNC),
    "compile_ns": (Cause.INIT,),
}


def program_steps(timeline: Timeline) -> _Rows:
    """The program's steps, in order of time: rows of its ranges; none where nothing is plainly the step."""
    region = timeline.step_region
    if region is None:
        return np.empty(0, np.intp)
    ranges = timeline.trace.ranges
    rows = np.flatnonzero((timeline.ownership.regions.of_range == region) & timeline.counted_ranges)
    return rows[np.lexsort((rows, ranges.start_ns[rows]))]


def step_of(timeline: Timeline, rows: _Rows, steps: _Rows) -> Int64Array:
    """The step that launched each operation (rows of the trace's), as its place among them; NOTHING: none did."""
    parent = timeline.ownership.regions.range_parent
    index_of = np.full(len(parent) + 1, NOTHING, np.int64)
    index_of[steps] = np.arange(len(steps))
    launched = timeline.launch_range[rows]
    used = unique(launched)  # of millions of operations many have one range
    above, step_index = used.astype(np.int64), np.full(len(used), NOTHING, np.int64)
    while (is_open := (above >= 0) & (step_index < 0)).any():  # as many turns as ranges are deep
        step_index[is_open] = index_of[above[is_open]]
        above[is_open] = parent[above[is_open]]
    of_range = np.full(len(parent) + 1, NOTHING, np.int64)  # the last: of no range
    of_range[used] = step_index
    return of_range[launched]


class MeasuredPace(Struct, frozen=True):
    """The steps of each device, in order of time; of many as many as are kept, evenly. ``total_ns``: of all of them;
    ``region``: theirs, NOTHING where nothing is plainly the step."""

    kept: tuple[StepBreakdown, ...] = ()
    total_ns: int = 0
    region: int = NOTHING


def steps_by_parts(timeline: Timeline, chosen: OperationSet) -> MeasuredPace:
    """Where the time of the program's steps goes. ``chosen``: all operations in the windows."""
    steps = program_steps(timeline)
    if not len(steps):
        return MeasuredPace()
    measured = [_of_device(timeline, device, steps, chosen) for device in timeline.devices]
    return MeasuredPace(
        tuple(step for kept, _ in measured for step in kept),
        sum(total_ns for _, total_ns in measured),
        int(timeline.ownership.regions.of_range[steps[0]]),
    )


def _of_device(
    timeline: Timeline, device: DeviceTimeline, steps: _Rows, chosen: OperationSet
) -> tuple[Sequence[StepBreakdown], int]:
    """Steps that are kept, and the time of all of them."""
    ranges = timeline.trace.ranges
    first, last = (time[steps] for time in _projected(timeline, device))
    kept = np.flatnonzero(last >= first)
    if not len(kept):
        return (), 0
    begin, end = bounds_of(ranges.start_ns[steps[kept]], ranges.end_ns[steps[kept]], first[kept], last[kept])
    begin, end = (np.clip(time, device.low_ns, device.high_ns) for time in (begin, end))
    parts = {name: _within(device.segments, causes, begin, end) for name, causes in _PARTS.items()}
    queued = _queued(timeline, device, chosen, steps)[kept]
    shown = np.flatnonzero(end > begin)
    shown = shown if len(shown) <= KEPT else shown[evenly(len(shown), KEPT)]
    made = [
        StepBreakdown(
            device=timeline.trace.gpus[device.index].id,
            start_ns=int(begin[at]) - device.shift.shift_ns,
            length_ns=int(end[at] - begin[at]),
            **{name: int(values[at]) for name, values in parts.items()},
            queue_median=None if np.isnan(queued[at]) else float(queued[at]),
        )
        for at in shown.tolist()
    ]
    return made, int((end - begin).sum())


def _projected(timeline: Timeline, device: DeviceTimeline) -> tuple[Int64Array, Int64Array]:
    """When the first and the last operation of each range begin and end on a device; the last before the first where it
    has none."""
    if len(device.operations.table) == len(timeline.trace.operations):
        return timeline.projected_start_ns, timeline.projected_end_ns
    rows = device.operations.rows
    return project(timeline.trace, timeline.calls, timeline.ownership.regions, timeline.launch_range, rows)


def bounds_of(
    begun: Int64Array, done: Int64Array, first: Int64Array, last: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """When steps begin and end: by their ranges on the host, and their first and last operations. Shape: (steps,)."""
    before = np.append(begun[:1], np.maximum.accumulate(last)[:-1])
    begin = np.minimum(np.maximum.accumulate(np.maximum(begun, before)), np.maximum(first, before))
    following = np.append(begin[1:], np.iinfo(np.int64).max)
    return begin, np.minimum(np.maximum(np.maximum(done, last), begin), np.maximum(following, begin))


def _within(segments: Segments, causes: Sequence[Cause], begin: Int64Array, end: Int64Array) -> Int64Array:
    chosen = is_any(segments.cause, [int(cause) for cause in causes])
    return CoveredTime(IntervalSet(segments.start_ns[chosen], segments.end_ns[chosen])).within(begin, end)


def _queued(timeline: Timeline, device: DeviceTimeline, chosen: OperationSet, steps: _Rows) -> npt.NDArray[np.float64]:
    """Operations launched and not yet begun: median over the launches of each step."""
    own = (timeline.trace.operations.device[chosen.rows] == device.index) & (chosen.queue >= 0)
    rows = np.arange(len(timeline.trace.operations))[chosen.rows][own]
    step = step_of(timeline, rows, steps)
    inside = step >= 0
    group, depth = step[inside], chosen.queue[own][inside]
    middle: npt.NDArray[np.float64]
    (middle,) = quantiles(group, depth, np.bincount(group, minlength=len(steps)), (0.5,))
    return middle
