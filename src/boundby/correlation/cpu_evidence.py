"""What a capture shows of a thread being on a CPU or asleep: context switches and OS runtime calls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from boundby.model.intervals import EMPTY, IntervalSet, subtract, union
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.cuda import blocked_on


@dataclass(frozen=True)
class CpuEvidence:
    """When a thread is known to be on a CPU and when asleep. ``None``: this kind was not captured for it."""

    on_cpu: IntervalSet | None
    off_cpu: IntervalSet | None
    in_blocking_call: IntervalSet | None

    @property
    def is_known(self) -> bool:
        return self.off_cpu is not None or self.in_blocking_call is not None

    @cached_property
    def asleep(self) -> IntervalSet:
        """Scheduled out, or, where scheduling says nothing, in a blocking OS call."""
        calls = self.in_blocking_call or EMPTY
        if self.off_cpu is None or self.on_cpu is None:
            return calls
        both = IntervalSet(
            np.concatenate((self.off_cpu.start, subtract(calls, self.on_cpu).start)),
            np.concatenate((self.off_cpu.end, subtract(calls, self.on_cpu).end)),
        )
        return union(both.start, both.end)


def blocking_names(trace: Trace) -> npt.NDArray[np.bool_]:
    """Mask over Trace.names: OS runtime calls that block."""
    return np.array([blocked_on(name) is not None for name in trace.names] or [False], bool)


def gather_evidence(trace: Trace, thread: int, blocking: npt.NDArray[np.bool_]) -> CpuEvidence:
    """What the capture knows of one thread. ``blocking``: mask over names of OS calls that block."""
    on = off = in_call = None
    low, high = np.searchsorted(trace.schedule.thread, [thread, thread + 1])
    if high > low:
        time, is_in = trace.schedule.start_ns[low:high], trace.schedule.is_in[low:high]
        last = max(trace.span_ns[1], int(time[-1]))
        # A thread last seen leaving the CPU may have ended: it is not known to sleep after that.
        until = np.append(time[1:], last if is_in[-1] else time[-1])
        # Before the first switch the thread was in the other state, but since when is not known.
        on, off = union(time[is_in], until[is_in]), union(time[~is_in], until[~is_in])
    if trace.captured.osrt:
        low, high = np.searchsorted(trace.os_calls.thread, [thread, thread + 1])
        rows = slice(int(low), int(high))
        blocks = blocking[trace.os_calls.name[rows]]
        in_call = union(trace.os_calls.start_ns[rows][blocks], trace.os_calls.end_ns[rows][blocks])
    return CpuEvidence(on, off, in_call)


def lifetime(trace: Trace, thread: int) -> tuple[int, int] | None:
    """First and last instant at which a thread shows itself in any table; None if it never does."""
    bounds: list[int] = []
    for table in (trace.api, trace.ranges, trace.os_calls):
        low, high = np.searchsorted(table.thread, [thread, thread + 1])
        if high > low:
            bounds += [int(table.start_ns[low]), int(table.end_ns[low:high].max())]
    for events in (trace.schedule, trace.samples):
        low, high = np.searchsorted(events.thread, [thread, thread + 1])
        if high > low:
            bounds += [int(events.start_ns[low]), int(events.start_ns[high - 1])]
    low, high = np.searchsorted(trace.schedule.thread, [thread, thread + 1])
    if high > low and trace.schedule.is_in[high - 1]:
        bounds.append(trace.span_ns[1])  # still on a CPU when the trace ended
    return (min(bounds), max(bounds)) if bounds else None
