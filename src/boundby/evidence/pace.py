"""A pace that comes from outside: work arrives every so often, whatever the GPU and the host do meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from boundby.correlation.cpu_evidence import sleeps_of
from boundby.evidence.context import Int, RuleContext, once
from boundby.evidence.feeders import SATURATED
from boundby.model.arrays import median, unique
from boundby.model.intervals import CoveredTime, IntervalSet, union
from boundby.model.scale import HALF, MANY, MOST, QUARTER

# Fewer arrivals do not tell a clock from chance.
LEAST_ARRIVALS = MANY
# A step takes as long as the work in it and what that waits for, so that it varies by as much as the work does. A
# period that varies by less than this part of it keeps to something else.
FOLLOWS = QUARTER
# Of the periods: so many hold work of the GPU, else the arrivals are not what it works on.
MOST_PERIODS = MOST


class Pace(Struct, frozen=True):
    """``thread`` wakes every ``period_ns``, ``periods`` times between ``low_ns`` and ``high_ns``. Of each the GPU works
    for ``gpu_ns``, and the busiest thread on record for ``host_ns``."""

    thread: int
    period_ns: int
    periods: int
    low_ns: int
    high_ns: int
    gpu_ns: int
    host_ns: int


@once
def external_pace(context: RuleContext) -> Pace | None:
    """The pace that something outside of the program sets (a camera, a sender, a timer); None where there is none, or
    where context switches do not tell. A thread wakes ever again after the same time, though the work between two
    arrivals varies by far more; neither the GPU nor any thread fills that time, and no sleep on purpose makes it."""
    trace = context.trace
    if not context.timeline.devices or not trace.captured.cpu_scheduling:
        return None
    calling = set(unique(trace.process_of_thread[unique(context.calls.thread)]).tolist())
    threads = unique(trace.schedule.thread).tolist()
    arrivals = {thread: _arrivals(context, thread) for thread in threads if trace.threads[thread].process in calling}
    arrivals = {thread: of_thread for thread, of_thread in arrivals.items() if len(of_thread) >= LEAST_ARRIVALS}
    if not arrivals:
        return None
    on_cpu = [_on_cpu(context, thread) for thread in threads]
    found = [pace for thread, each in arrivals.items() if (pace := _pace_of(context, thread, each, on_cpu)) is not None]
    return min(found, key=lambda pace: (-pace.periods, pace.thread), default=None)


def _on_cpu(context: RuleContext, thread: int) -> IntervalSet:
    on_cpu = context.timeline.host_state.evidence(thread).on_cpu
    return on_cpu if on_cpu is not None else union(np.empty(0, np.int64), np.empty(0, np.int64))


def _pace_of(context: RuleContext, thread: int, arrivals: Int, on_cpu: Sequence[IntervalSet]) -> Pace | None:
    low, high = arrivals[:-1], arrivals[1:]
    worked = [CoveredTime(each).within(low, high) for each in on_cpu]
    gpu = np.max([CoveredTime(device.busy).within(low, high) for device in context.timeline.devices], axis=0)
    length = high - low
    whole_ns = int(length.sum())
    busiest = max(int(each.sum()) for each in worked)
    is_filled = busiest > SATURATED * whole_ns or int(gpu.sum()) > HALF * whole_ns
    if is_filled or (gpu > 0).mean() < MOST_PERIODS:
        return None
    if not _varies_by(length) < FOLLOWS * _varies_by(np.sum(worked, axis=0) + gpu):
        return None
    period_ns = round(median(length))
    return Pace(
        thread,
        period_ns,
        len(length),
        int(arrivals[0]) - period_ns,
        int(arrivals[-1]) + period_ns,
        gpu_ns=int(gpu.sum()) // len(length),
        host_ns=busiest // len(length),
    )


def _arrivals(context: RuleContext, thread: int) -> Int:
    """When a thread wakes from its long sleeps inside the devices' windows, if always after the same time; none where
    it sleeps on purpose."""
    devices = context.timeline.devices
    low, high = min(one.low_ns for one in devices), max(one.high_ns for one in devices)
    asleep = context.timeline.host_state.evidence(thread).asleep
    inside = (asleep.end > low) & (asleep.end < high)
    start, end = asleep.start[inside], asleep.end[inside]
    length = end - start
    if len(length) < LEAST_ARRIVALS:
        return length[:0]
    is_long = length >= HALF * np.sort(length)[-LEAST_ARRIVALS]
    if (on_purpose := sleeps_of(context.trace, thread).get("sleep")) is not None:
        slept_ns = CoveredTime(on_purpose).within(start[is_long], end[is_long])
        if int(slept_ns.sum()) > HALF * int(length[is_long].sum()):
            return length[:0]
    arrivals: Int = end[is_long]
    period = np.diff(arrivals)
    return arrivals if _varies_by(period) < FOLLOWS * median(period) else arrivals[:0]


def _varies_by(values: Int) -> float:
    """How far the middle one of these is off their median."""
    return float(median(np.abs(values - median(values))))
