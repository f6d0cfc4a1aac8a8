"""What a program does once and what it repeats: its steady steps, judged alone, and what lies before them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.regions import ROOT, Regions
from boundby.attribution.timeline import DeviceTimeline, Timeline, part_of
from boundby.claims.phases import Describe, replayed_case
from boundby.claims.verdict import judge
from boundby.correlation.starting import find_searches
from boundby.evidence.initialization import WARM_NAME
from boundby.model.arrays import Int64Array, group_counts, group_sums, median, merged, unique
from boundby.model.causes import Cause
from boundby.model.intervals import cut, inside
from boundby.model.scale import HALF, NOTABLE, SMALL
from boundby.model.statistics import FEWEST
from boundby.replay.predictor import Predictor
from boundby.results.report import OneTimePart, Steady, Window
from boundby.structure.steps import Candidate, count_warm_up, find_steps
from boundby.trace.tables import Direction, OpKind

# Fewer steps than this are no pace.
LEAST_STEPS = FEWEST
# What lies before the steady steps is worth a line if it takes so much of the window; they are if they take so much.
LEAST_ONCE, LEAST_STEADY = SMALL, NOTABLE
_NAMES = {
    Cause.INIT: "initialization",
    Cause.CPU: "host code",
    Cause.HOST_BLOCKED: "blocked",
    Cause.GPU_COMPUTE: "kernels",
}
_OTHER = "other"


class Split(Struct, frozen=True):
    """A device's window, cut where its steady part begins. Times are on the host's clock."""

    region: int  # the step's; ROOT: none is known to repeat
    begin_ns: int
    steady_ns: int
    end_ns: int
    period_ns: Int64Array  # of the steady steps, from one begin on the device to the next
    is_judged: bool  # the steady part is long enough for a verdict of its own


def split(timeline: Timeline, device: DeviceTimeline) -> Split | None:
    """Where the steady part begins: behind what the program calls set-up or warm-up, and behind the first of its steps
    that take longer; None: it has neither, or nothing before it that counts, or does something else for longer after
    its steps."""
    named_ns = _named_until(timeline, device)
    region = timeline.step_region if named_ns is None else _step_after(timeline, named_ns)
    since_ns = device.low_ns if named_ns is None else named_ns
    steady_ns, end, period = _steady_steps(timeline, device, region, since_ns)
    if named_ns is None and not len(period):
        return None
    window_ns = device.high_ns - device.low_ns
    is_judged = end - steady_ns >= LEAST_STEADY * window_ns
    if steady_ns - device.low_ns < LEAST_ONCE * window_ns or not (is_judged or named_ns is not None):
        return None
    step = ROOT if region is None or not len(period) else region
    return Split(step, device.low_ns, steady_ns, end, period, is_judged)


def _steady_steps(
    timeline: Timeline, device: DeviceTimeline, region: int | None, since_ns: int
) -> tuple[int, int, Int64Array]:
    """When the steps of ``region`` are warm, when the last one ends, and how long each of them takes; without enough of
    them, or with something else for longer after them, all since ``since_ns``, and no step."""
    if region is not None:
        begins, last_ns = _steps(timeline, device, region, since_ns)
        periods = np.diff(np.append(begins, last_ns))
        first = count_warm_up(periods)
        if len(periods) - first >= LEAST_STEPS and device.high_ns - last_ns <= last_ns - int(begins[first]):
            return int(begins[first]), last_ns, periods[first:]
    return since_ns, device.high_ns, np.empty(0, np.int64)


def _named_until(timeline: Timeline, device: DeviceTimeline) -> int | None:
    """When the last ends on the device that the program calls set-up or warm-up; None: nothing is, or most of what lies
    before that is something else."""
    warm = timeline.ownership.regions.where(WARM_NAME.search)
    rows = np.flatnonzero(warm[device.segments.region])
    if not len(rows):
        return None
    until_ns = int(device.segments.end_ns[rows[-1]])
    is_most = int(device.segments.length_ns[rows].sum()) > HALF * (until_ns - device.low_ns)
    return until_ns if is_most else None


def _step_after(timeline: Timeline, since_ns: int) -> int | None:
    """The region that is plainly the step of what is launched from an instant on; None: none is."""
    tree, ranges = timeline.ownership.regions, timeline.trace.ranges
    begun = timeline.projected_start_ns >= since_ns
    begun &= timeline.projected_start_ns < timeline.projected_end_ns
    late = timeline.trace.operations.start_ns >= since_ns
    instances = np.bincount(tree.of_range[begun], minlength=len(tree))
    time_ns = group_sums(tree.of_range[begun], ranges.end_ns[begun], len(tree), ranges.start_ns[begun])
    launches = tree.accumulate(group_counts(timeline.launch_region[late], len(tree)))
    columns = zip(instances.tolist(), time_ns.tolist(), launches.tolist(), strict=True)
    candidates = [Candidate(tree.path(number), *each) for number, each in enumerate(columns)]
    return find_steps(candidates, candidates[ROOT])


def _steps(timeline: Timeline, device: DeviceTimeline, step: int, since_ns: int) -> tuple[Int64Array, int]:
    """When each of the program's steps begins on the device from an instant on, in order, and when the last one ends;
    of several processes that work on it none."""
    begin, end = timeline.projected_start_ns, timeline.projected_end_ns
    rows = np.flatnonzero((timeline.ownership.regions.of_range == step) & (begin < end))
    rows = rows[(begin[rows] >= since_ns) & (end[rows] <= device.high_ns)]
    process = timeline.trace.process_of_thread[timeline.trace.ranges.thread[rows]]
    if not len(rows) or len(unique(process)) > 1 or process[0] not in unique(device.operations.table.process):
        return np.empty(0, np.int64), since_ns
    return merged(begin[rows]), int(end[rows].max())


def judge_steady(
    timeline: Timeline, device: DeviceTimeline, found: Split, predictor: Predictor | None, case_of: Describe
) -> Steady:
    """The steady part, with a verdict of its own; ``case_of`` describes a part of the window."""
    part = part_of(timeline, device, found.steady_ns, found.end_ns)
    verdict = judge(replayed_case(part, case_of(part, part.devices[0], None), predictor, case_of))
    shift_ns, steps = device.shift.shift_ns, len(found.period_ns)
    step_ns = round(float(median(found.period_ns))) if steps else None
    span = Window(found.steady_ns - shift_ns, found.end_ns - shift_ns)
    path = timeline.ownership.regions.path(found.region)
    return Steady(path, span, steps, step_ns, verdict.bound, verdict.confidence, verdict.saving_ns)


def once(timeline: Timeline, device: DeviceTimeline, found: Split) -> tuple[OneTimePart, ...]:
    """What lies before the steady part, by what the program calls it, else by what it is, longest first; the parts sum
    to it."""
    low, high = found.begin_ns, found.steady_ns
    account = device.segments.between(low, high)
    searches = find_searches(timeline.trace, timeline.calls, timeline.call_range)
    start, end, row, searched = cut(account.start_ns, account.end_ns, inside(searches))
    names = {**_NAMES, Cause.GPU_COPY: "uploads" if _all_uploads(device, low, high) else "copies"}
    of_cause = np.array([names.get(cause, _OTHER) for cause in Cause], object)[account.cause[row]]
    of_region = _names_of(timeline.ownership.regions)[account.region[row]]
    name = np.where(of_region != "", of_region, np.where(searched >= 0, "autotuning", of_cause))
    parts = [(one, np.flatnonzero(name == one)) for one in sorted(set(name.tolist()))]
    shift_ns = device.shift.shift_ns
    told = [
        OneTimePart(
            one, Window(int(start[rows[0]]) - shift_ns, int(end[rows[-1]]) - shift_ns), _total(start, end, rows)
        )
        for one, rows in parts
    ]
    return tuple(sorted(told, key=lambda part: (part.name == _OTHER, -part.ns, part.name)))


def _total(start: Int64Array, end: Int64Array, rows: npt.NDArray[np.intp]) -> int:
    return int((end[rows] - start[rows]).sum())


def _names_of(regions: Regions) -> npt.NDArray[np.object_]:
    """Of each region the outermost name around it that says set-up or warm-up; empty: none does."""
    found = [""]
    for parent, name in zip(regions.parent[1:].tolist(), regions.name[1:], strict=True):
        found.append(found[parent] or (name if WARM_NAME.search(name) else ""))
    return np.array(found, object)


def _all_uploads(device: DeviceTimeline, low: int, high: int) -> bool:
    """Whether all copies in this span go to the device."""
    table = device.operations.table
    copies = (table.kind >= OpKind.MEMCPY) & (table.start_ns < high) & (table.end_ns > low)
    up = (table.direction[copies] == Direction.HTOD) & (table.kind[copies] == OpKind.MEMCPY)
    return bool(up.all())
