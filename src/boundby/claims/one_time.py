"""What a program does once and what it repeats: its steady steps, judged alone, and what lies before them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from boundby.attribution import segments
from boundby.attribution.timeline import DeviceTimeline, Timeline, part_of
from boundby.claims.phases import Describe, replayed_case
from boundby.claims.verdict import judge
from boundby.correlation.starting import find_searches
from boundby.model.arrays import Int64Array, median, merged, unique
from boundby.model.causes import Cause
from boundby.model.intervals import clip, complement
from boundby.model.scale import NOTABLE, SMALL
from boundby.model.statistics import FEWEST
from boundby.replay.predictor import Predictor
from boundby.results.report import OneTimePart, Steady, Window
from boundby.structure.steps import count_warm_up
from boundby.trace.tables import Direction, OpKind

# Fewer steps than this are no pace.
LEAST_STEPS = FEWEST
# What lies before the steady steps is worth a line if it takes so much of the window; they are if they take so much.
LEAST_ONCE, LEAST_STEADY = SMALL, NOTABLE
# All copies to the device but for this part: then the time of copies is that of uploads.
OTHER_COPIES = NOTABLE
_NAMES = {Cause.INIT: "initialization", Cause.CPU: "host code", Cause.HOST_BLOCKED: "blocked"}


class Split(Struct, frozen=True):
    """A device's window, cut where the steady steps begin. Times are on the host's clock."""

    region: int
    begin_ns: int
    steady_ns: int
    end_ns: int
    period_ns: Int64Array  # of the steady steps, from one begin on the device to the next


def split(timeline: Timeline, device: DeviceTimeline) -> Split | None:
    """Where the steady steps begin; None: the program has no steps that repeat, or nothing before them that counts, or
    does something else after them for longer."""
    if (region := timeline.step_region) is None:
        return None
    begins, end = _steps(timeline, device, region)
    period = np.diff(np.append(begins, end))
    first = count_warm_up(period)
    if len(period) - first < LEAST_STEPS:
        return None
    steady_ns, window_ns = int(begins[first]), device.high_ns - device.low_ns
    once_ns, steady_length_ns = steady_ns - device.low_ns, end - steady_ns
    if once_ns < LEAST_ONCE * window_ns or steady_length_ns < max(LEAST_STEADY * window_ns, device.high_ns - end):
        return None
    return Split(region, device.low_ns, steady_ns, end, period[first:])


def _steps(timeline: Timeline, device: DeviceTimeline, step: int) -> tuple[Int64Array, int]:
    """When each of the program's steps begins on the device, in order, and when the last one ends; of several processes
    that work on it none."""
    begin, end = timeline.projected_start_ns, timeline.projected_end_ns
    rows = np.flatnonzero((timeline.ownership.regions.of_range == step) & (begin < end))
    rows = rows[(begin[rows] >= device.low_ns) & (end[rows] <= device.high_ns)]
    process = timeline.trace.process_of_thread[timeline.trace.ranges.thread[rows]]
    if not len(rows) or len(unique(process)) > 1 or process[0] not in unique(device.operations.table.process):
        return np.empty(0, np.int64), device.low_ns
    return merged(begin[rows]), int(end[rows].max())


def judge_steady(
    timeline: Timeline, device: DeviceTimeline, found: Split, predictor: Predictor | None, case_of: Describe
) -> Steady:
    """The steady steps, with a verdict of their own; ``case_of`` describes a part of the window."""
    part = part_of(timeline, device, found.steady_ns, found.end_ns)
    verdict = judge(replayed_case(part, case_of(part, part.devices[0], None), predictor, case_of))
    shift_ns, step_ns = device.shift.shift_ns, round(float(median(found.period_ns)))
    span = Window(found.steady_ns - shift_ns, found.end_ns - shift_ns)
    path = timeline.ownership.regions.path(found.region)
    return Steady(path, span, len(found.period_ns), step_ns, verdict.bound, verdict.confidence, verdict.saving_ns)


def once(timeline: Timeline, device: DeviceTimeline, found: Split) -> tuple[OneTimePart, ...]:
    """What lies before the steady steps, by what it is, longest first; the parts sum to it."""
    low, high = found.begin_ns, found.steady_ns
    searches = clip(find_searches(timeline.trace, timeline.calls, timeline.call_range), low, high)
    between = complement(searches, low, high)
    parts = [device.segments.between(*span) for span in zip(between.start.tolist(), between.end.tolist(), strict=True)]
    account = segments.concatenate(segments.nothing(), *parts)
    of_cause = account.by_cause()
    names = {**_NAMES, Cause.GPU_COPY: "uploads" if _mostly_uploads(device, low, high) else "copies"}
    lengths = {"autotuning": searches.total}
    spans = {"autotuning": (low, high)}
    if len(searches.start):
        spans["autotuning"] = int(searches.start[0]), int(searches.end[-1])
    for cause, name in names.items():
        own = np.flatnonzero(account.cause == cause)
        if len(own):
            lengths[name] = int(of_cause[cause])
            spans[name] = int(account.start_ns[own[0]]), int(account.end_ns[own[-1]])
    lengths["other"], spans["other"] = high - low - sum(lengths.values()), (low, high)
    shift_ns = device.shift.shift_ns
    order = sorted(
        (name for name in lengths if lengths[name]), key=lambda name: (name == "other", -lengths[name], name)
    )
    return tuple(
        OneTimePart(name, Window(spans[name][0] - shift_ns, spans[name][1] - shift_ns), lengths[name]) for name in order
    )


def _mostly_uploads(device: DeviceTimeline, low: int, high: int) -> bool:
    """Whether copies in this span go to the device, by their time."""
    table = device.operations.table
    copies = (table.kind >= OpKind.MEMCPY) & (table.start_ns < high) & (table.end_ns > low)
    length = (table.end_ns - table.start_ns)[copies]
    up = (table.direction[copies] == Direction.HTOD) & (table.kind[copies] == OpKind.MEMCPY)
    return int(length[~up].sum()) <= OTHER_COPIES * int(length.sum())
