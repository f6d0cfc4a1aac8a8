"""What a capture shows of a thread being on a CPU or asleep: context switches and OS runtime calls."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from boundby.model.arrays import Int8Array, is_in, unique
from boundby.model.intervals import EMPTY, CoveredTime, IntervalSet, any_of, contains, subtract, union
from boundby.model.scale import DISPATCH_NS, MARGIN, NEGLIGIBLE, NO_LAUNCH_NS, NOTABLE, SLIGHT, TENFOLD
from boundby.trace.facts import CLOCKS_APART_NS
from boundby.trace.tables import Schedule, Trace
from boundby.trace.vocabulary.os import MESSAGES, SLEEPS, WAITING
from boundby.trace.vocabulary.python import LOADER, WAITS_FOR_WORKERS

# A runnable thread gets a core after some time slices of others, in turn, and keeps it for a slice (Linux's
# sched_min_granularity). Who is away for longer, or many times as long as it runs while it runs for less than that each
# time, waits in a call not seen: OpenMP's runtime, Rust and Go ask the kernel themselves.
LONGEST_PREEMPTED_NS, SLICE_NS = 200_000_000, 750_000
# Of a thread's context switches, so many may repeat the one before: a lost row or two.
MOST_REPEATED = SLIGHT
# Of its CUDA calls (and samples), so many may lie where it is off the CPU; of OS calls that it sleeps in, for longer
# than a spin lasts, so much of the time may be spent on it, or so much of its time on the CPU. (Measured on whole
# traces: no call, and 0.05 %.) A wait may begin as its thread leaves the CPU, and switches and calls are stamped by two
# clocks: up to 8 us apart on whole traces.
MOST_OFF_CPU, MOST_SLEPT_ON_CPU, LEAST_SLEPT_ON_CPU = MARGIN, NOTABLE, NEGLIGIBLE
LEAST_SLEEP_NS, SWITCH_NS = DISPATCH_NS, CLOCKS_APART_NS
#: Whoever reads what lies in memory, or writes to it, works in such a call and leaves no CPU.
_FILE = SLEEPS.index("file")
_POLL = SLEEPS.index("poll")


class CpuEvidence(Struct, frozen=True, dict=True):
    """When a thread is known to be on a CPU and when asleep. ``None``: this kind was not captured for it."""

    on_cpu: IntervalSet | None
    off_cpu: IntervalSet | None
    in_blocking_call: IntervalSet | None
    shown: IntervalSet | None = None  # all the time of which anything is known; None: that is not told
    preempted: IntervalSet = EMPTY  # off the CPU, but in no OS call: runnable, and waiting for a core
    is_thinned: bool = False  # context switches are missing: it leaves the CPU twice, or calls while it is off it
    awaiting: IntervalSet = EMPTY  # in a call of message passing that waits for another rank, asleep or polling

    @property
    def is_known(self) -> bool:
        return self.off_cpu is not None or self.in_blocking_call is not None

    @cached_property
    def away(self) -> IntervalSet:
        """Off the CPU for whatever reason, or, where scheduling says nothing, in a blocking OS call."""
        return any_of((self.asleep, self.preempted))

    @cached_property
    def asleep(self) -> IntervalSet:
        """Scheduled out for something, or, where scheduling says nothing, in a blocking OS call; or waiting for another
        rank, whatever the CPU does meanwhile."""
        calls = self.in_blocking_call or EMPTY
        parts = [calls, self.awaiting]
        if self.off_cpu is not None and self.on_cpu is not None:
            parts = [subtract(self.off_cpu, self.preempted), subtract(calls, self.on_cpu), self.awaiting]
        return any_of(parts)


def _scheduled(trace: Trace, thread: int, switches: Schedule) -> tuple[IntervalSet, IntervalSet, bool]:
    """When a thread is on a CPU and when off it, and whether some of its switches are missing."""
    time, is_in = switches.start_ns, switches.is_in
    last = max(trace.span_ns[1], int(time[-1]))
    # A thread last seen leaving the CPU may have ended: it is not known to sleep after that.
    until = np.append(time[1:], last if is_in[-1] else time[-1])
    was_in = np.array([] if is_in[0] else [_on_since(trace, thread, int(time[0]))], np.int64)
    on = union(np.append(was_in, time[is_in]), np.append(time[: len(was_in)], until[is_in]))
    repeated = np.count_nonzero(is_in[1:] == is_in[:-1])
    return on, union(time[~is_in], until[~is_in]), bool(repeated > max(MOST_REPEATED * (len(is_in) - 1), 1))


def _preempted(on: IntervalSet | None, rest: IntervalSet) -> IntervalSet:
    """Of what a thread is off the CPU outside of OS calls, that in which it waits for a core."""
    short = rest.end - rest.start <= LONGEST_PREEMPTED_NS
    preempted = IntervalSet(rest.start[short], rest.end[short])
    is_seldom = on is not None and TENFOLD * on.total < preempted.total and on.total <= SLICE_NS * len(on.start)
    return EMPTY if is_seldom else preempted


def gather_evidence(trace: Trace, thread: int) -> CpuEvidence:
    """What the capture knows of one thread."""
    on = off = in_call = None
    preempted, is_thinned = EMPTY, False
    if trace.is_told_by_frames:
        return _told_by_frames(trace, thread)
    awaiting = trace.in_messages(thread, WAITING)
    switches = trace.schedule.of_thread(thread)
    if len(switches):
        on, off, is_thinned = _scheduled(trace, thread, switches)
    if trace.captured.osrt:
        calls = trace.os_calls.of_thread(thread)
        blocks = sleep_kinds(trace, thread) >= 0
        in_call = union(calls.start_ns[blocks], calls.end_ns[blocks])
        if off is not None and len(calls):  # whoever makes OS calls that are seen sleeps in one
            preempted = _preempted(on, subtract(off, union(calls.start_ns, calls.end_ns)))
        if on is not None and not is_thinned:
            is_thinned = _contradicts(trace, thread, on, switches)
    if len(awaiting.start) and len(preempted.start):
        preempted = subtract(preempted, awaiting)
    return CpuEvidence(on, off, in_call, None, preempted, is_thinned, awaiting)


def sleep_kinds(trace: Trace, thread: int) -> Int8Array:
    """What each OS call of a thread sleeps on, as a place in `SLEEPS`; -1 where it does not. Of a thread that never
    calls CUDA a long ``ioctl`` waits for a device (a camera's next frame), else it is the driver of the GPU at work."""
    calls = trace.os_calls.of_thread(thread)
    kind: Int8Array = trace.sleep_kind[calls.name]
    asks = is_in(calls.name, [name for name in unique(calls.name).tolist() if trace.names[name] == "ioctl"])
    asks &= calls.end_ns - calls.start_ns >= NO_LAUNCH_NS
    return np.where(asks, np.int8(_POLL), kind) if asks.any() and not len(trace.api.of_thread(thread)) else kind


def _contradicts(trace: Trace, thread: int, on: IntervalSet, switches: Schedule) -> bool:
    """Whether a thread does what its context switches exclude: it calls CUDA or is sampled while it is off the CPU, or
    sleeps while it is on it."""
    for begins in (trace.api.of_thread(thread).start_ns, trace.samples.of_thread(thread).start_ns):
        before = np.searchsorted(switches.start_ns, begins, side="right") - 1  # the switch before each
        is_off = (before >= 0) & (before < len(switches) - 1) & ~switches.is_in[before]
        is_off &= begins - switches.start_ns[before] >= SWITCH_NS
        if np.count_nonzero(is_off) > max(MOST_OFF_CPU * len(begins), 1):
            return True
    calls, samples = trace.os_calls.of_thread(thread), trace.samples.of_thread(thread).start_ns
    kind = trace.sleep_kind[calls.name]
    sleeps = (kind >= 0) & (kind != _FILE) & (calls.end_ns - calls.start_ns >= LEAST_SLEEP_NS)
    slept_ns = int((calls.end_ns - calls.start_ns)[sleeps].sum())
    # A call in which the thread was sampled ran.
    sleeps &= np.searchsorted(samples, calls.start_ns) == np.searchsorted(samples, calls.end_ns)
    slept_on_ns = int(CoveredTime(on).within(calls.start_ns[sleeps], calls.end_ns[sleeps]).sum())
    return slept_on_ns > max(MOST_SLEPT_ON_CPU * slept_ns, LEAST_SLEPT_ON_CPU * on.total)


def _on_since(trace: Trace, thread: int, first_ns: int) -> int:
    """Since when a thread was on the CPU that is first seen leaving it at ``first_ns``: since the recording began, as
    one that is new comes to it first; or since its last OS call on record that blocks."""
    calls = trace.os_calls.of_thread(thread)
    ends = calls.end_ns[(sleep_kinds(trace, thread) >= 0) & (calls.end_ns <= first_ns)]
    return max(trace.schedule.begin_ns, int(ends.max(initial=trace.schedule.begin_ns)))


def _told_by_frames(trace: Trace, thread: int) -> CpuEvidence:
    """A thread inside an operator or a Python function runs, unless that function is one that sleeps; inside a loader
    that has workers it waits for them."""
    ranges, frames = trace.ranges.of_thread(thread), trace.frames
    used = unique(ranges.name).tolist()
    tells = [name for name in used if trace.names[name] in trace.operator_names or LOADER.match(trace.names[name])]
    is_telling = is_in(ranges.name, tells)
    waits = is_in(ranges.name, [name for name in used if WAITS_FOR_WORKERS.match(trace.names[name])])
    covered, asleep = frames.covered(thread), frames.asleep(thread).values()
    shown = any_of((covered, union(ranges.start_ns[is_telling], ranges.end_ns[is_telling])))
    sleeps = any_of(asleep)
    # Who waits for autograd's engine may be the one whose operators it runs.
    works = is_telling & (contains(sleeps, ranges.start_ns) >= 0)
    sleeps = subtract(sleeps, union(ranges.start_ns[works], ranges.end_ns[works]))
    blocked = any_of((sleeps, union(ranges.start_ns[waits], ranges.end_ns[waits])))
    return CpuEvidence(None, None, blocked if len(covered.start) or waits.any() else None, shown)


def sleeps_of(trace: Trace, thread: int) -> dict[str, IntervalSet]:
    """When a thread was in an OS call (or a Python function) that blocks, by what on (`SLEEPS`). A wait for a rank
    is that, whatever OS calls it makes."""
    if trace.is_told_by_frames:
        return trace.frames.asleep(thread)
    calls, kind = trace.os_calls.of_thread(thread), sleep_kinds(trace, thread)
    sleeps = {
        SLEEPS[number]: union(calls.start_ns[kind == number], calls.end_ns[kind == number])
        for number in unique(kind[kind >= 0]).tolist()
    }
    awaiting = trace.in_messages(thread, WAITING)
    if not len(awaiting.start):
        return sleeps
    return {MESSAGES: awaiting} | {what: subtract(asleep, awaiting) for what, asleep in sleeps.items()}


def lifetime(trace: Trace, thread: int) -> tuple[int, int] | None:
    """First and last instant at which a thread shows itself in any table; None if it never does."""
    bounds: list[int] = []
    for table in (trace.api, trace.ranges, trace.os_calls, trace.python_frames, trace.messages):
        rows = table.rows_of(thread)
        if rows.stop > rows.start:
            bounds += [int(table.start_ns[rows.start]), int(table.end_ns[rows].max())]
    for events in (trace.schedule, trace.samples):
        rows = events.rows_of(thread)
        if rows.stop > rows.start:
            bounds += [int(events.start_ns[rows.start]), int(events.start_ns[rows.stop - 1])]
    switches = trace.schedule.rows_of(thread)
    if switches.stop > switches.start and trace.schedule.is_in[switches.stop - 1]:
        bounds.append(trace.span_ns[1])  # still on a CPU when the trace ended
    if switches.stop > switches.start and not trace.schedule.is_in[switches.start]:
        bounds.append(_on_since(trace, thread, int(trace.schedule.start_ns[switches.start])))
    return (min(bounds), max(bounds)) if bounds else None
