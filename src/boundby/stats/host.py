"""Host-side figures per region: CPU time, waiting, sleeping, and when the launching logical thread was active."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.account import sample_period
from boundby.attribution.host_state import where
from boundby.attribution.segments import Segments
from boundby.attribution.timeline import DeviceTimeline, Timeline, TimeSpan
from boundby.correlation.correlate import Calls
from boundby.correlation.cpu_evidence import sleeps_of
from boundby.model.arrays import (
    BoolArray,
    Tally,
    as_rows,
    ascend,
    group_counts,
    group_sums,
    is_any,
    is_even,
    pick,
    places,
    ranked,
    spread,
    tally,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.intervals import (
    EMPTY,
    NOTHING,
    CoveredTime,
    IntervalSet,
    any_of,
    clip,
    complement,
    intersect,
    overlay,
    union,
)
from boundby.model.scale import SMALL
from boundby.results.report import Meanwhile
from boundby.trace.tables import OpKind, Paging, Trace
from boundby.trace.vocabulary.os import HAND_OVER, SLEEPS, WAITING, WAKE_LIMIT_NS

Int = npt.NDArray[np.int64]


class HostFigures(Struct, frozen=True):
    """Arrays of one entry per region, descendants included, except those from ``cpu_ns`` on, which are of the region's
    own instances (their host intervals hold their descendants')."""

    api_calls: Int
    api_ns: Int
    window_calls: Int  # of the calls those that start in a device's window
    window_ns: Int
    syncs: Int
    blocked_ns: Int  # waiting for the device
    os_blocked_ns: dict[str, Int]  # the region's own threads asleep in the operating system, by what for
    idle_on_ns: dict[str, Int]  # of the account's host_blocked time: what the responsible thread slept on
    cpu_ns: Int
    cpu_of_ns: Int  # host time for which it is known whether the thread ran; 0: not captured
    active_ns: Int  # the logical thread neither waits for the device nor sleeps
    starting_ns: Int  # the thread compiles, or starts or ends a library or message passing
    threads: Int
    preempted_ns: Int  # with descendants, as all from here on: see `preempted`
    unwoken_ns: Int
    paging_ns: Int


def logical_thread_active(timeline: Timeline, thread: int, low: int, high: int) -> IntervalSet:
    """When at least one member of a logical thread neither waits for the device nor sleeps, inside [low, high)."""
    sets = []
    for member in timeline.logical_threads.members(thread).tolist():
        hosts, calls = timeline.host_state, timeline.calls
        first, last = low, high
        if member != thread:  # a helper exists only between its first and last call
            rows = calls.rows_of(member)
            if rows.start == rows.stop:
                continue
            first, last = max(low, int(calls.start_ns[rows.start])), min(high, int(calls.end_ns[rows.stop - 1]))
        if last > first:
            sets.append(complement(hosts.idle(member), first, last))
    return any_of(sets)


def cpu_time(timeline: Timeline, thread: int, low: int, high: int) -> tuple[int, int] | None:
    """(on-CPU, known) nanoseconds of a thread in [low, high): by context switches, else by samples."""
    start, end = np.array([low], np.int64), np.array([high], np.int64)
    used = _cpu(timeline, thread, start, end)
    return None if used is None else (int(used[0][0]), int(used[1][0]))


def cpu_time_inside(timeline: Timeline, thread: int, inside: IntervalSet) -> tuple[int, int] | None:
    """CPU time of a thread inside several intervals together, as ``cpu_time`` returns it."""
    used = _cpu(timeline, thread, inside.start, inside.end)
    return None if used is None else (int(used[0].sum()), int(used[1].sum()))


def logical_thread_cpu_time(timeline: Timeline, thread: int, low: int, high: int) -> tuple[int, int] | None:
    """CPU time of a logical thread, as ``cpu_time`` returns it: when one of its threads is on a CPU, by switches."""
    members = [timeline.host_state.evidence(member) for member in timeline.logical_threads.members(thread).tolist()]
    on = [evidence.on_cpu for evidence in members if evidence.on_cpu is not None]
    if len(members) == 1 or not on:
        return cpu_time(timeline, thread, low, high)
    return clip(any_of(on), low, high).total, high - low


def _cpu(timeline: Timeline, thread: int, start: Int, end: Int) -> tuple[Int, Int] | None:
    evidence = timeline.host_state.evidence(thread)
    if evidence.on_cpu is not None and evidence.off_cpu is not None:
        on, off = CoveredTime(evidence.on_cpu).within(start, end), CoveredTime(evidence.off_cpu).within(start, end)
        return on, on + off
    period = sample_period(timeline.trace) if len(timeline.trace.samples) else None
    time = timeline.trace.samples.of_thread(thread).start_ns
    if period is None or len(time) == 0:
        return None
    count = places(time, end) - places(time, start)
    return np.minimum(count * period, end - start).astype(np.int64), end - start


def host_figures(timeline: Timeline, shown: Tally) -> HostFigures:
    """Walk the threads once and collect every host figure; ``shown``: the calls in the devices' windows, by region."""
    trace = timeline.trace
    regions = timeline.ownership.regions
    size = len(regions)
    cpu, cpu_of, active, starting, threads = (np.zeros(size, np.int64) for _ in range(5))
    own_os = {what: np.zeros(size, np.int64) for what in SLEEPS}
    spans = _spans(timeline)
    bounds = [trace.span_ns, *((span.low_ns, span.high_ns) for span in spans)]
    calls = _calls_by_region(timeline, calls_in_windows(timeline))
    window_calls, window_ns = shown.by_group(size)
    low, high = min(first for first, _ in bounds), max(last for _, last in bounds)
    active_of: dict[int, CoveredTime] = {}
    for thread in _active_threads(trace):
        _count_os_calls(timeline, thread, spans, own_os)
        rows = np.flatnonzero((trace.ranges.thread == thread) & timeline.counted_ranges)
        if len(rows) == 0:
            continue
        region = regions.of_range[rows]
        start, end = trace.ranges.start_ns[rows], trace.ranges.end_ns[rows]
        np.add.at(threads, unique(region), 1)
        used = _cpu(timeline, thread, start, end)
        if used is not None:
            np.add.at(cpu, region, used[0])
            np.add.at(cpu_of, region, used[1])
        leader = int(timeline.logical_threads.leader[thread])
        if leader not in active_of:
            active_of[leader] = CoveredTime(logical_thread_active(timeline, leader, low, high))
        np.add.at(active, region, active_of[leader].within(start, end))
        np.add.at(starting, region, CoveredTime(timeline.host_state.initializing(thread)).within(start, end))
    return HostFigures(
        api_calls=calls[0],
        api_ns=calls[1],
        window_calls=regions.accumulate(window_calls),
        window_ns=regions.accumulate(window_ns),
        syncs=calls[2],
        blocked_ns=calls[3],
        os_blocked_ns={what: regions.accumulate(values) for what, values in own_os.items()},
        idle_on_ns={what: regions.accumulate(values) for what, values in _idle_on(timeline).items()},
        cpu_ns=cpu,
        cpu_of_ns=cpu_of,
        active_ns=active,
        starting_ns=starting,
        threads=threads,
        preempted_ns=_of_accounts(timeline, preempted),
        unwoken_ns=_of_accounts(timeline, unwoken),
        paging_ns=_of_accounts(timeline, paging),
    )


class WindowCalls(Struct, frozen=True):
    """Calls of which a part lies in a window: their rows, and from when to when each is in it. One that begins before
    the window counts, as what it copies there does."""

    rows: slice | npt.NDArray[np.intp]
    start_ns: Int
    end_ns: Int

    @property
    def length_ns(self) -> Int:
        """How much of each lies in the window."""
        length: Int = self.end_ns - self.start_ns
        return length

    def lengths(self, size: int) -> Int:
        """The same for each of ``size`` calls; -1: the call is none of these."""
        lengths = np.full(size, -1, np.int64)
        if isinstance(self.rows, slice):
            np.subtract(self.end_ns, self.start_ns, out=lengths[self.rows])
        else:
            lengths[self.rows] = self.length_ns
        return lengths


def calls_in_windows(timeline: Timeline) -> slice | npt.NDArray[np.intp]:
    """Rows of the calls that regions count: with their instances, of which some begin before the first GPU work."""
    return as_rows(_within(timeline.calls.start_ns, timeline.calls.thread, _spans(timeline)))


def calls_of_devices(timeline: Timeline) -> WindowCalls:
    """The calls in the devices' windows, as sums of the window count them; of a trace without GPU work, in its own."""
    calls = timeline.calls
    low, high = np.full(len(calls), np.iinfo(np.int64).max), np.full(len(calls), np.iinfo(np.int64).min)
    for span in timeline.spans if timeline.devices else _spans(timeline):
        here = _overlaps(calls, span.low_ns, span.high_ns)
        here = here if span.threads.all() else here & pick(span.threads, calls.thread, False)
        low[here] = np.minimum(low[here], span.low_ns)
        high[here] = np.maximum(high[here], span.high_ns)
    rows = as_rows(low <= high)
    return WindowCalls(rows, np.maximum(calls.start_ns[rows], low[rows]), np.minimum(calls.end_ns[rows], high[rows]))


def _overlaps(calls: Calls, low_ns: int, high_ns: int) -> BoolArray:
    """Whether a part of each call lies in a window; one that takes no time may lie at its begin."""
    overlaps: BoolArray = (calls.start_ns <= high_ns) & ((calls.end_ns > low_ns) | (calls.start_ns >= low_ns))
    return overlaps


def _spans(timeline: Timeline) -> list[TimeSpan]:
    """The windows on the host's clock; everything, where the default window is analysed."""
    window, trace = timeline.window, timeline.trace
    if (window.kind in ("gpu", "all") and not window.skip_first) or not timeline.spans:
        return [TimeSpan(*trace.span_ns, np.ones(len(trace.threads), bool))]
    return timeline.spans


def _active_threads(trace: Trace) -> list[int]:
    """Threads that call CUDA or open ranges: only they have regions of interest."""
    return sorted({*unique(trace.api.thread).tolist(), *unique(trace.ranges.thread).tolist()})


def _within(time: Int, thread: npt.NDArray[np.integer] | int, spans: list[TimeSpan]) -> npt.NDArray[np.bool_]:
    """Whether each event, of its thread, begins in a window that it belongs to."""
    whole_span = spans[0]
    if (
        len(time)
        and len(spans) == 1
        and whole_span.threads.all()
        and time.min() >= whole_span.low_ns
        and time.max() <= whole_span.high_ns
    ):
        return np.ones(len(time), bool)
    inside = np.zeros(len(time), bool)
    for span in spans:
        here = (time >= span.low_ns) & (time <= span.high_ns)
        inside |= here if span.threads.all() else here & span.threads[thread]
    return inside


def _calls_by_region(timeline: Timeline, rows: slice | npt.NDArray[np.intp]) -> tuple[Int, Int, Int, Int]:
    """Of these calls by region: their number, their time, the blocking syncs among them, the time waited in those."""
    calls, waits, regions = timeline.calls, timeline.waits, timeline.ownership.regions
    tallied = tally(timeline.call_region[rows], waits.is_sync[rows], calls.start_ns[rows], calls.end_ns[rows])
    syncs, _ = tallied.by_group(len(regions), tallied.label > 0)
    is_counted = np.zeros(len(calls), bool)
    is_counted[rows] = waits.is_sync[rows]
    blocked = is_counted[waits.rows]
    blocked_ns = group_sums(timeline.call_region[waits.rows[blocked]], waits.ns[0][blocked], len(regions))
    number, total, syncs, blocked_ns = map(regions.accumulate, (*tallied.by_group(len(regions)), syncs, blocked_ns))
    return number, total, syncs, blocked_ns


def _count_os_calls(timeline: Timeline, thread: int, spans: list[TimeSpan], own: dict[str, Int]) -> None:
    """Add a thread's sleeps to the regions of its own ranges; a thread that only borrows a range adds nothing."""
    evidence, ranges = timeline.host_state.evidence(thread), timeline.trace.ranges
    for what, asleep in sleeps_of(timeline.trace, thread).items():
        if evidence.off_cpu is not None:
            asleep = intersect(asleep, evidence.asleep)
        row = timeline.ownership.ranges_at(thread, asleep.start)
        is_own = (row >= 0) & (ranges.thread[np.maximum(row, 0)] == thread) if len(ranges) else row >= 0
        is_own &= _within(asleep.start, thread, spans)
        np.add.at(own[what], timeline.ownership.region_of(row[is_own]), (asleep.end - asleep.start)[is_own])


def _idle_on(timeline: Timeline) -> dict[str, Int]:
    """What the responsible threads slept on while devices idled for it, by kind and region."""
    kinds = (*SLEEPS, "unknown")
    total = {what: np.zeros(len(timeline.ownership.regions), np.int64) for what in kinds}
    for segments in (*(d.segments for d in timeline.devices), *(t.segments for t in timeline.threads)):
        blocked = np.flatnonzero(segments.cause == Cause.HOST_BLOCKED)
        for thread in unique(segments.thread[blocked]).tolist():
            own = blocked[segments.thread[blocked] == thread]
            idle = IntervalSet(segments.start_ns[own], segments.end_ns[own])
            rest = idle.end - idle.start
            for what, asleep in sleeps_of(timeline.trace, thread).items():
                pieces = overlay(idle, asleep)
                region = segments.region[own[pieces.left]].astype(np.int64)
                np.add.at(total[what], region, pieces.end - pieces.start)
                np.subtract.at(rest, pieces.left, pieces.end - pieces.start)
            np.add.at(
                total["unknown"],
                segments.region[own].astype(np.int64),
                np.maximum(rest, 0),
            )
    return total


def waited_in(timeline: Timeline, segments: Segments) -> dict[str, int]:
    """Of an account's blocked time, nanoseconds in calls that wait for other ranks, by their names, longest first."""
    trace, times = timeline.trace, dict[str, int]()
    blocked = np.flatnonzero(segments.cause == Cause.HOST_BLOCKED)
    for thread in unique(segments.thread[blocked]).tolist() if len(trace.messages) else ():
        own = blocked[segments.thread[blocked] == thread]
        inside = CoveredTime(union(segments.start_ns[own], segments.end_ns[own]))
        calls = trace.messages.of_thread(thread)
        waits = calls.take(is_any(trace.message_kind[calls.name], WAITING))
        used, which = ranked(waits.name)
        spent = group_sums(which, inside.within(waits.start_ns, waits.end_ns), len(used))
        for number, ns in zip(used.tolist(), spent.tolist(), strict=True):
            times[trace.names[number]] = times.get(trace.names[number], 0) + ns
    return dict(sorted(((name, ns) for name, ns in times.items() if ns), key=lambda item: (-item[1], item[0])))


def launching_thread(calls: Calls, device: DeviceTimeline) -> int | None:
    """The thread that launched most of a device's operations."""
    call = calls.of_operation[device.operations.rows]
    if len(calls) and calls.thread[0] == calls.thread[-1]:  # the only one
        return int(calls.thread[0]) if bool((call >= 0).any()) else None
    thread = pick(calls.thread, call, -1)
    launchers = group_counts(thread + 1, int(thread.max(initial=-1)) + 2)[1:]
    return int(launchers.argmax()) if len(launchers) else None


class CallFigures(Struct, frozen=True):
    count: int
    total_ns: int
    syncs: int
    blocked_ns: int


def calls_of(timeline: Timeline, device: DeviceTimeline) -> WindowCalls:
    """The calls of the processes that work on a device in its window. Of a process that drives several devices each
    call is of one."""
    calls = timeline.calls
    is_mine = np.isin(timeline.trace.process_of_thread, unique(device.operations.table.process))
    inside = _overlaps(calls, device.low_ns, device.high_ns)
    if len(timeline.devices) > 1:
        inside &= is_any(timeline.losses.device_of_call, (device.index, NOTHING))
    rows = as_rows(inside if is_mine.all() else inside & pick(is_mine, calls.thread, False))
    start, end = calls.start_ns[rows], calls.end_ns[rows]
    if start.min(initial=device.low_ns) < device.low_ns:
        start = np.maximum(start, device.low_ns)
    if end.max(initial=device.high_ns) > device.high_ns:
        end = np.minimum(end, device.high_ns)
    return WindowCalls(rows, start, np.maximum(start, end) if (end < start).any() else end)


def figures_of_calls(timeline: Timeline, chosen: WindowCalls) -> CallFigures:
    """API calls and blocking syncs among these, and their time in the window."""
    waits, lengths = timeline.waits, chosen.lengths(len(timeline.calls))
    is_sync = (lengths >= 0) & waits.is_sync
    of_sync = waits.rows[is_sync[waits.rows]]
    blocked_ns = int(np.minimum(waits.ns[0][is_sync[waits.rows]], lengths[of_sync]).sum())
    count = int(np.count_nonzero(lengths >= 0))
    return CallFigures(count, int(chosen.length_ns.sum()), int(np.count_nonzero(is_sync)), blocked_ns)


def staging(timeline: Timeline, chosen: WindowCalls) -> int:
    """Host time (ns) in those of these calls that copy pageable memory, beyond what `figures_of_calls` counts as
    blocked: an ``Async`` copy of pageable memory returns when the host has staged it."""
    waits, lengths = timeline.waits, chosen.lengths(len(timeline.calls))
    is_asked = (lengths >= 0) & timeline.host_state.copies_pageable
    waited = np.minimum(waits.ns[0], lengths[waits.rows])[is_asked[waits.rows]]
    return int(lengths[is_asked].sum()) - int(waited.sum())


def preempted(timeline: Timeline, segments: Segments) -> Int:
    """Of this account, nanoseconds by region in which the responsible thread was runnable and waited for a core."""
    return _of_account(timeline, segments, Cause.CPU, lambda thread: timeline.host_state.evidence(thread).preempted)


def _of_accounts(timeline: Timeline, part: Callable[[Timeline, Segments], Int]) -> Int:
    """A sum per region over the accounts of all devices (without GPU work: of all threads), with descendants."""
    regions, total = timeline.ownership.regions, np.zeros(len(timeline.ownership.regions), np.int64)
    for segments in [account.segments for account in timeline.devices] + [
        account.segments for account in timeline.threads
    ]:
        total += part(timeline, segments)
    return regions.accumulate(total)


def unwoken(timeline: Timeline, segments: Segments) -> Int:
    """Time per region in which a thread waited for another one of its process, and no thread on record can have ended
    the wait: who did was at work, or asleep, and is not on record."""
    return _of_account(timeline, segments, Cause.HOST_BLOCKED, lambda thread: _waits_for_nobody(timeline, thread))


def paged_gaps(timeline: Timeline, device: DeviceTimeline) -> BoolArray:
    """Mask over a device's gaps: those between two pages of managed memory that the host touched and so took back. A
    long one is what the host does before it touches the next page."""
    gaps, trace = device.gaps, timeline.trace
    if not len(trace.page_events):
        return spread(False, len(gaps), np.bool_)
    read_back = np.zeros(len(trace.operations), bool)
    read_back[trace.migrations(Paging.READ_BACK)] = True
    ends_it = pick(read_back, gaps.operation, False)
    follows = np.append(False, ends_it[:-1])[: len(ends_it)]
    longest_ns = max(gpu.high_ns - gpu.low_ns for gpu in timeline.devices)
    is_paged: BoolArray = ends_it & follows & (gaps.length_ns < SMALL * longest_ns)
    return is_paged


def paging(timeline: Timeline, segments: Segments) -> Int:
    """Of this account, nanoseconds by region of the host's time in which it touches managed memory that lies on a
    device, page after page: its own, and what it sleeps until a page is there."""
    stretches = EMPTY
    for device in timeline.devices if len(timeline.trace.page_events) else ():
        rows, gaps = np.flatnonzero(paged_gaps(timeline, device)), device.gaps
        ends = np.append(stretches.end, gaps.start_ns[rows] + gaps.length_ns[rows])
        stretches = union(np.append(stretches.start, gaps.start_ns[rows]), ends)
    of_host = (Cause.CPU, Cause.HOST_BLOCKED)
    total: Int = np.sum([_of_account(timeline, segments, cause, lambda _: stretches) for cause in of_host], axis=0)
    return total


def spent_within(timeline: Timeline, thread: int, low: int, high: int) -> dict[Cause, int]:
    """For how long in [low, high) a thread computes, and sleeps while none works for it; whether the device works
    meanwhile or not."""
    doing = timeline.host_state.doing(thread)
    return {cause: clip(where(doing, cause), low, high).total for cause in (Cause.CPU, Cause.HOST_BLOCKED)}


def preempted_within(timeline: Timeline, thread: int, low: int, high: int) -> int:
    """For how long in [low, high) a thread waits for a core, as it seems, whether the device works or not."""
    return clip(timeline.host_state.evidence(thread).preempted, low, high).total


def asleep_for_nobody(timeline: Timeline, thread: int, low: int, high: int) -> int:
    """Nanoseconds of all such waits of this thread in [low, high), whether the device worked meanwhile or not."""
    return clip(_waits_for_nobody(timeline, thread), low, high).total


def _of_account(timeline: Timeline, segments: Segments, cause: Cause, of: Callable[[int], IntervalSet]) -> Int:
    total = np.zeros(len(timeline.ownership.regions), np.int64)
    if not segments.by_cause()[cause]:
        return total
    own = np.flatnonzero(segments.cause == cause)
    for thread in unique(segments.thread[own]).tolist():
        if thread < 0 or not len((spans := of(thread)).start):
            continue
        own_pieces = own[segments.thread[own] == thread]
        pieces = overlay(IntervalSet(segments.start_ns[own_pieces], segments.end_ns[own_pieces]), spans)
        np.add.at(total, segments.region[own_pieces[pieces.left]], pieces.end - pieces.start)
    return total


def _waits_for_nobody(timeline: Timeline, thread: int) -> IntervalSet:
    """Condition waits without a time limit at whose end all other threads of the process slept, or were not there."""
    trace = timeline.trace
    if not trace.captured.osrt or trace.is_told_by_frames:
        return EMPTY
    calls = trace.os_calls.of_thread(thread)
    hands = [name for name in unique(calls.name).tolist() if HAND_OVER.search(trace.names[name])]
    handed = np.isin(calls.name, hands)
    begin, end = calls.start_ns[handed], calls.end_ns[handed]
    alone = end > begin
    for other in np.flatnonzero(trace.process_of_thread == trace.threads[thread].process).tolist():
        life = timeline.host_state.lifetime(other)
        if other == thread or life is None or not alone.any():
            continue
        evidence = timeline.host_state.evidence(other)
        since = np.maximum(end - WAKE_LIMIT_NS, life[0])
        until = np.minimum(end, life[1])
        alone &= (until < since) | (CoveredTime(evidence.away).within(since, np.maximum(until, since)) >= until - since)
    return union(begin[alone], end[alone])


def blocked_inside(timeline: Timeline, thread: int, covered: IntervalSet) -> dict[str, int]:
    """How long a thread slept inside the given times, by what for, longest first."""
    evidence = timeline.host_state.evidence(thread)
    times = {}
    for what, asleep in sleeps_of(timeline.trace, thread).items():
        if evidence.off_cpu is not None:
            asleep = intersect(asleep, evidence.asleep)
        times[what] = intersect(asleep, covered).total
    asleep_ns = intersect(evidence.asleep, covered).total
    if asleep_ns > sum(times.values()):
        times["unknown"] = asleep_ns - sum(times.values())
    return dict(sorted(((k, v) for k, v in times.items() if v), key=lambda item: (-item[1], item[0])))


# What all threads of a process do from a region's first instance to the end of its last: of a step more than lies
# inside its ranges, such as copies by threads that make its input.


def meanwhile(timeline: Timeline) -> list[Meanwhile | None]:
    """Of each region; None where it has no instance."""
    regions, ranges = timeline.ownership.regions, timeline.trace.ranges
    rows = np.flatnonzero(timeline.counted_ranges)
    process = timeline.trace.process_of_thread[ranges.thread[rows]]
    total, seen = np.zeros((len(regions), 4), np.int64), np.zeros(len(regions), bool)
    for number in unique(process).tolist():
        own = rows[process == number]
        region = regions.of_range[own]
        first, last = np.full(len(regions), np.iinfo(np.int64).max), np.full(len(regions), np.iinfo(np.int64).min)
        np.minimum.at(first, region, ranges.start_ns[own])
        np.maximum.at(last, region, ranges.end_ns[own])
        there = unique(region)
        for index, times in enumerate(_times(timeline, number)):
            upto = np.searchsorted(times, last[there], side="left")
            total[there, index] += upto - np.searchsorted(times, first[there], side="left")
        seen[there] = True
    return [
        Meanwhile(*counts) if is_seen else None for counts, is_seen in zip(total.tolist(), seen.tolist(), strict=True)
    ]


def _times(timeline: Timeline, process: int) -> Iterator[Int]:
    """When the calls of a process began, those of them that are syncs, and the calls that launched its kernels and its
    copies (or these, without a call), each in order."""
    calls, table, of_thread = timeline.calls, timeline.trace.operations, timeline.trace.process_of_thread
    alone = is_even(of_thread)
    is_mine = None if alone else pick(of_thread == process, calls.thread, False)
    for chosen in (None, timeline.waits.is_sync):
        both = chosen if is_mine is None else is_mine if chosen is None else is_mine & chosen
        yield _ordered(calls.start_ns if both is None else calls.start_ns[as_rows(both)])
    for kind in (OpKind.KERNEL, OpKind.MEMCPY):
        rows = as_rows(table.kind == kind if alone else (table.kind == kind) & (table.process == process))
        call = calls.of_operation[rows]
        begun = pick(calls.start_ns, call, 0)
        lost = np.flatnonzero(call < 0)
        begun[lost] = table.start_ns[rows][lost]
        yield _ordered(begun)


def _ordered(times: Int) -> Int:
    return times if ascend([times]) else np.sort(times)
