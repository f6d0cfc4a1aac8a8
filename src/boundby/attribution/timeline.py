"""The timeline of one trace, worked out: clocks set, calls joined, ranges nested, every device accounted for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution import segments
from boundby.attribution.account import ThreadAccount, account_device, account_threads
from boundby.attribution.cuda_graphs import GraphRanges, with_graph_ranges
from boundby.attribution.gaps import CallWaits, GapTable, account_gaps, wait_table
from boundby.attribution.groundwork import DeviceOperations, TraceContext, operations_of
from boundby.attribution.host_state import HostState
from boundby.attribution.losses import Losses, Withheld, find_losses, unsure_ns
from boundby.attribution.regions import (
    MOST_DEPTH,
    MOST_RECURSION,
    MOST_REGIONS,
    ROOT,
    Ownership,
    Regions,
    build_ownership,
    project,
    too_deep,
    too_many,
)
from boundby.attribution.segments import Segments
from boundby.attribution.windows import DeviceWindow, device_window, empty_window, host_window
from boundby.correlation.correlate import (
    LEAST_LAUNCHED,
    MOST_LATENCY_NS,
    NO_SHIFT,
    Calls,
    ClockShift,
    correlate,
    estimate_shift,
    restored,
)
from boundby.correlation.logical_threads import LogicalThreads, find_logical_threads
from boundby.correlation.starting import mostly_captures
from boundby.model.arrays import (
    Int32Array,
    Int64Array,
    as_rows,
    as_slice,
    ascend,
    first_rows,
    in_order,
    index_type,
    joined,
    pick,
    places,
    running_maximum,
    shared,
    spread,
    unique,
)
from boundby.model.errors import SelectionError
from boundby.model.intervals import NOTHING, IntervalSet, clip, close_leaks, complement
from boundby.model.scale import HABIT, HALF, MANY, NOTABLE, PLENTY
from boundby.structure.found import add_found
from boundby.structure.mpi_ranks import not_ended, unmatched
from boundby.trace.facts import UNBELIEVABLE, TraceWarning
from boundby.trace.tables import Direction, OpKind, Trace
from boundby.trace.vocabulary.cuda import CallClass, is_device_wide

# Of fewer instances none is a step that an end can cut: a program's one phase begins and ends where it likes.
LEAST_INSTANCES = HABIT


class DeviceTimeline(Struct, frozen=True, dict=True):
    """One device: its window on the host's clock, its account, its busy time and its gaps."""

    index: int  # into Trace.gpus
    low_ns: int
    high_ns: int
    operations: DeviceOperations
    busy: IntervalSet
    segments: Segments
    gaps: GapTable
    shift: ClockShift
    withheld: Withheld

    @cached_property
    def is_inside(self) -> npt.NDArray[np.bool_]:
        """Per operation of the device: whether it overlaps the window; one without length at its very edge does too."""
        table = self.operations.table
        if len(table) and table.start_ns.min() >= self.low_ns and table.end_ns.max() <= self.high_ns:
            return spread(1, len(table), np.bool_)
        overlaps: npt.NDArray[np.bool_] = (table.end_ns > self.low_ns) & (table.start_ns < self.high_ns)
        is_instant = table.end_ns == table.start_ns
        overlaps |= is_instant & (table.start_ns >= self.low_ns) & (table.end_ns <= self.high_ns)
        return overlaps


class TimeSpan(Struct, frozen=True):
    """A window on the host's clock, and whose events belong to it: those of processes that work on its device."""

    low_ns: int
    high_ns: int
    threads: npt.NDArray[np.bool_]  # of Trace.threads


class Timeline(TraceContext, frozen=True, dict=True):
    """Everything the account knows."""

    devices: tuple[DeviceTimeline, ...]
    threads: tuple[ThreadAccount, ...]  # only without GPU work
    projected_start_ns: Int64Array  # per range; start > end where it launched nothing
    projected_end_ns: Int64Array
    counted_ranges: npt.NDArray[np.bool_]  # instances that belong to the windows
    window: DeviceWindow
    losses: Losses

    @cached_property
    def waits(self) -> CallWaits:
        """How long each call waited for the devices, and what that cost."""
        return wait_table(self, (device.gaps for device in self.devices))

    @cached_property
    def spans(self) -> list[TimeSpan]:
        """The windows: of the devices, or without GPU work of the threads."""
        return _spans(self.trace, self.devices, self.threads)

    @property
    def total_ns(self) -> int:
        """The length of all windows together: what causes and regions sum to."""
        if self.devices:
            return sum(device.high_ns - device.low_ns for device in self.devices)
        return sum(thread.total_ns for thread in self.threads)


def rows_in_windows(devices: Sequence[DeviceTimeline]) -> slice | npt.NDArray[np.intp]:
    """Rows of the operations that overlap their device's window."""
    parts = [device.operations.at(as_rows(device.is_inside)) for device in devices]
    if len(parts) == 1:
        return parts[0]
    rows = [np.arange(part.start, part.stop) if isinstance(part, slice) else part for part in parts]
    return as_slice(np.concatenate([np.empty(0, np.intp), *rows]))


def select(trace: Trace, devices: tuple[int, ...], processes: tuple[int, ...]) -> Trace:
    """The trace without other devices' operations and other processes' events. Raises SelectionError."""
    if devices:
        used_ids = [gpu.id for gpu in trace.gpus if gpu.used]
        if missing := sorted(set(devices) - set(used_ids)):
            raise SelectionError(
                f"The report holds no work of device {missing[0]}.",
                f"IDs of the devices with work: {', '.join(map(str, used_ids))}."
                if used_ids
                else "No device has work.",
            )
        wanted = np.array([gpu.id in devices for gpu in trace.gpus], bool)
        trace = replace(trace, operations=trace.operations.take(wanted[trace.operations.device]))
        used = {trace.processes[number].pid for number in unique(trace.operations.process).tolist() if number >= 0}
        processes = tuple(sorted(used & set(processes or used)))  # others have nothing to do with these devices
    if processes:
        pids = [process.pid for process in trace.processes]
        if missing := sorted(set(processes) - set(pids)):
            raise SelectionError(
                f"The report holds no process {missing[0]}.",
                f"IDs of its processes: {', '.join(map(str, sorted(pids)))}.",
            )
        of_process = np.array([*(pid in processes for pid in pids), False], bool)
        of_thread = np.array([of_process[thread.process] for thread in trace.threads] or [False], bool)
        trace = replace(
            trace,
            operations=trace.operations.take(of_process[trace.operations.process]),
            api=trace.api.take(of_thread[trace.api.thread]),
            ranges=trace.ranges.take(of_thread[trace.ranges.thread]),
            os_calls=trace.os_calls.take(of_thread[trace.os_calls.thread]),
            overhead=trace.overhead.take(of_thread[trace.overhead.thread]),
            schedule=trace.schedule.take(of_thread[trace.schedule.thread]),
            samples=trace.samples.take(of_thread[trace.samples.thread]),
            messages=trace.messages.take(of_thread[trace.messages.thread]),
        )
    return trace


def build_timeline(trace: Trace, window: DeviceWindow, *, fold: bool = True, find: bool = False) -> Timeline:
    """Work out the account of every device (or, without GPU work, of every annotated thread) in its window."""
    trace, calls = _whole(trace, window)
    trace, shifts = _set_clocks(trace, calls)
    context = _context(trace, calls, shifts, window, fold=fold, find=find)
    trace = context.trace
    losses = find_losses(trace, calls, context.ownership.regions.of_range)
    devices = tuple(_accounts(context, window, losses, shifts))
    threads: tuple[ThreadAccount, ...] = ()
    if len(trace.operations) and not devices:
        raise empty_window()
    if not devices:
        threads = account_threads(context, *host_window(window, context))
    start, end = context.projected
    calls.forget()
    counted = _counted(trace, window, start, end, _spans(trace, devices, threads))
    counted &= ~_gone_before(trace, calls, losses, devices, end < start)
    return Timeline(
        **{part: getattr(context, part) for part in context.__struct_fields__},
        devices=devices,
        threads=threads,
        projected_start_ns=start,
        projected_end_ns=end,
        counted_ranges=counted,
        window=window,
        losses=losses,
    )


def _whole(trace: Trace, window: DeviceWindow) -> tuple[Trace, Calls]:
    """The trace that is accounted for, with what can be restored of it and what is to be said of it, and its calls."""
    if window.kind == "gpu" and trace.main_cycle is not None:
        trace = trace.during(trace.main_cycle)
    trace = _close_leaks(trace)
    trace = _warned(trace, not_ended(trace), unmatched(trace))
    calls = correlate(trace)
    trace = _warned(trace, mostly_captures(trace, calls))
    whole = restored(trace, calls)
    return (trace, calls) if whole is trace else (whole, correlate(whole))


def _warned(trace: Trace, *warnings: TraceWarning | None) -> Trace:
    added = [warning for warning in warnings if warning is not None]
    return replace(trace, warnings=(*trace.warnings, *added)) if added else trace


class _Owners(NamedTuple):
    """A trace, and to whom the time of its threads belongs."""

    trace: Trace
    logical_threads: LogicalThreads
    ownership: Ownership

    def of(self, trace: Trace, calls: Calls, *, fold: bool) -> _Owners:
        """Who owns time in this trace with other ranges: a trace that is the same object keeps its owners."""
        if trace is self.trace:
            return self
        logical_threads = find_logical_threads(trace, calls)
        return _Owners(trace, logical_threads, build_ownership(trace, logical_threads, fold=fold))


def _context(
    trace: Trace, calls: Calls, shifts: dict[int, ClockShift], window: DeviceWindow, *, fold: bool, find: bool
) -> TraceContext:
    """The trace with its ranges as the account takes them, and whose each call and launch is."""
    logical_threads = find_logical_threads(trace, calls)
    if find and (with_found := add_found(trace, calls, logical_threads)) is not trace:
        trace, logical_threads = with_found, find_logical_threads(with_found, calls)
    owners = _Owners(trace, logical_threads, build_ownership(trace, logical_threads, fold=fold))
    graphs = with_graph_ranges(trace, calls, owners.ownership)
    owners = owners.of(graphs.trace, calls, fold=fold)
    while (bounded := _without_excess(owners.trace, owners.ownership.regions, fold=fold)) is not None:
        owners = owners.of(bounded, calls, fold=fold)
    call_range = owners.ownership.ranges_at(calls.thread, calls.start_ns)
    apart = _cut_apart(owners.trace, calls, owners.ownership, call_range, window, shifts)
    if apart is not owners.trace:
        owners = owners.of(apart, calls, fold=fold)
        call_range = owners.ownership.ranges_at(calls.thread, calls.start_ns)
    trace, logical_threads, ownership = owners
    host_state = HostState(trace, calls, logical_threads)
    regions = ownership.regions
    of_range = regions.of_range.astype(index_type(len(regions)))
    launch_range = _launch_range(calls, call_range, graphs, ownership)
    return TraceContext(
        trace,
        calls,
        logical_threads,
        ownership,
        host_state,
        call_range,
        pick(of_range, call_range, ROOT),
        launch_range,
        _launch_region(trace, calls, pick(of_range, launch_range, ROOT), host_state, ownership),
    )


def _accounts(
    context: TraceContext, window: DeviceWindow, losses: Losses, shifts: dict[int, ClockShift]
) -> Iterator[DeviceTimeline]:
    """The account of each device, but for those that have nothing to account for in the window."""
    for index in unique(context.trace.operations.device).tolist():
        operations = operations_of(context.trace, index)
        bounds = device_window(window, context, operations, shifts[index].shift_ns, losses.until(index))
        if bounds is None:
            continue
        low, high = bounds
        busy = operations.busy()
        account, gaps, withheld = account_device(context, operations, busy, low, high, losses, index)
        operations.table.keep_busy(busy := _beside(busy, gaps))
        yield DeviceTimeline(index, low, high, operations, busy, account, gaps, shifts[index], withheld)


def _launch_range(calls: Calls, call_range: Int32Array, graphs: GraphRanges, ownership: Ownership) -> Int32Array:
    """Per operation: the range of the call that launched it, or inside a graph that of its node's capture."""
    range_of_row = pick(call_range, calls.of_operation, NOTHING)
    rows, inside = graphs.of_operations(calls, ownership)
    range_of_row[rows] = inside
    return range_of_row


def _launch_region(
    trace: Trace, calls: Calls, found: Int32Array, host_state: HostState, ownership: Ownership
) -> Int32Array:
    """Per operation: the region of the range that it was launched in; of pages that migrate without a call, where the
    thread is at work that touches them."""
    table = trace.operations
    moved = np.flatnonzero((table.kind == OpKind.MIGRATION) & (calls.of_operation < 0))
    if len(moved):
        time_ns = table.start_ns[moved]
        thread = host_state.at_work(table.process[moved], time_ns)
        found = found.copy()
        found[moved] = ownership.at(thread, time_ns)
    return found


def _beside(busy: IntervalSet, gaps: GapTable) -> IntervalSet:
    """The busy time of a device in the columns of its gaps, which begin where it ends, where these reach around it."""
    first = int(np.searchsorted(gaps.start_ns, busy.end[0])) if len(busy.end) else 0
    if busy.start.base is not None and busy.start.base is gaps.end_ns.base:
        return busy  # the gaps are in its columns
    end, start = gaps.start_ns[first:][: len(busy.end)], gaps.end_ns[max(first - 1, 0) :][: len(busy.start)]
    return IntervalSet(shared(busy.start, start), shared(busy.end, end))


def _cut_apart(
    trace: Trace,
    calls: Calls,
    ownership: Ownership,
    call_range: npt.NDArray[np.int32],
    window: DeviceWindow,
    shifts: dict[int, ClockShift],
) -> Trace:
    """The trace with instances of repeated ranges that the window or the end of the recording cuts through renamed: a
    region of their own, so that figures per instance are those of whole ones. The same trace where none is."""
    ranges, regions = trace.ranges, ownership.regions
    cut = ranges.is_open & ~ranges.is_start_end & (ranges.end_ns >= trace.span_ns[1])
    inside = np.ones(len(ranges), bool)
    if window.kind == "span":
        start, end = project(trace, calls, regions, pick(call_range, calls.of_operation, NOTHING))
        launched, shift_ns = end >= start, max((shift.shift_ns for shift in shifts.values()), key=abs, default=0)
        start, end = np.where(launched, start, ranges.start_ns), np.where(launched, end, ranges.end_ns)
        for bound in (window.low_ns, window.high_ns):
            if bound is not None:
                cut |= (start < bound + shift_ns) & (end > bound + shift_ns)
        inside = end > (-np.inf if window.low_ns is None else window.low_ns + shift_ns)
        inside &= start < (np.inf if window.high_ns is None else window.high_ns + shift_ns)
    if not (cut := cut & inside).any():
        return trace
    times = np.bincount(regions.of_range[inside], minlength=len(regions))
    repeats = times - np.bincount(regions.of_range[cut], minlength=len(regions)) > 0
    repeats &= times >= LEAST_INSTANCES
    below = pick(regions.under(repeats), regions.parent, False)  # what lies in an instance goes with it
    cut &= (repeats & ~below)[regions.of_range]
    if not cut.any():
        return trace
    rows = np.flatnonzero(cut)
    texts = sorted({regions.name[region] for region in regions.of_range[rows].tolist()})
    named = [
        f"{sum(regions.name[range_row] == text for range_row in regions.of_range[rows].tolist()):,} of {text}"
        for text in texts
    ]
    number = {text: len(trace.names) + number_in_list for number_in_list, text in enumerate(texts)}
    name = ranges.name.copy()
    name[rows] = [number[regions.name[region]] for region in regions.of_range[rows].tolist()]
    what = "window" if window.kind == "span" else "recording"
    message = f"The {what} begins or ends within instances ({', '.join(named)}): kept apart from the whole ones."
    names = (*trace.names, *(f"{text} (cut)" for text in texts))
    warnings = (*trace.warnings, TraceWarning("step-cut", message))
    return replace(trace, names=names, ranges=replace(ranges, name=name), warnings=warnings)


def _without_excess(trace: Trace, regions: Regions, *, fold: bool) -> Trace | None:
    """The trace without ranges that lie too deep or, where none does, are of too many regions; None: it has neither."""
    code, left_out = "deep-ranges", too_deep(regions, fold=fold)
    what = f"lie more than {MOST_DEPTH} deep or in more than {MOST_RECURSION - 1} others of their name"
    if not left_out.any():
        code, left_out = "many-regions", too_many(regions, trace.ranges.end_ns - trace.ranges.start_ns)
        what = f"are none of the {MOST_REGIONS:,} paths that take longest (ids in names that do not fold make new ones)"
    if not left_out.any():
        return None
    count = f"{int(left_out.sum()):,} of {len(left_out):,} NVTX ranges"
    text = f"{count} {what}: they are counted with the range that they lie in."
    warnings = (*trace.warnings, TraceWarning(code, text))
    return replace(trace, ranges=trace.ranges.take(~left_out), warnings=warnings)


def part_of(timeline: Timeline, device: DeviceTimeline, low: int, high: int) -> Timeline:
    """A timeline with the account of one device alone, in [low, high) of its window: only the gaps in which that
    begins or ends are divided again."""
    whole, losses = device.gaps, timeline.losses
    near = whole.take(
        slice(int(np.searchsorted(whole.end_ns, low, "right")), int(np.searchsorted(whole.start_ns, high)))
    )
    is_cut = (near.start_ns < low) | (near.end_ns > high)  # the first, the last, or none
    cut = near.take(is_cut).intervals
    inside = near.take(slice(int(is_cut[:1].sum()), len(near) - int(is_cut[-1:].sum())))
    parts = [
        (inside, *(part.between(*span) for part in (device.segments, *device.withheld[:2])))
        for span in zip(*complement(cut, low, high), strict=True)
    ]
    if len(cut.start):
        anew, pieces, withheld = account_gaps(
            timeline, device.operations, clip(cut, low, high), (low, high), losses, device.index
        )
        parts.append((anew, pieces, *withheld[:2]))
    tables, *of_causes = zip(*parts, strict=True)
    gaps = GapTable(*(joined([getattr(table, column) for table in tables]) for column in GapTable.__struct_fields__))
    if bool((gaps.start_ns[1:] < gaps.start_ns[:-1]).any()):
        gaps = gaps.take(np.argsort(gaps.start_ns, kind="stable"))
    account, work, calls = (segments.concatenate(*columns) for columns in of_causes)
    withheld = Withheld(work, calls, unsure_ns(timeline, losses, device.index, low, high))
    part = replace(device, low_ns=low, high_ns=high, segments=account, gaps=gaps, withheld=withheld)
    return replace(timeline, devices=(part,))


def _close_leaks(trace: Trace) -> Trace:
    """End ranges that were pushed and never popped where the next of their name begins."""
    ranges = trace.ranges
    left = np.flatnonzero(ranges.is_open & ~ranges.is_start_end)
    if len(left) < 2:
        return trace
    end = ranges.end_ns.copy()
    key = ranges.name.astype(np.int64) * len(trace.domains) + ranges.domain
    for thread in unique(ranges.thread[left]).tolist():
        own = left[ranges.thread[left] == thread]
        end[own] = close_leaks(ranges.start_ns[own], end[own], key[own])
    order = np.lexsort((-end, ranges.start_ns, ranges.thread))
    return replace(trace, ranges=replace(ranges, end_ns=end).take(order))


def _set_clocks(trace: Trace, calls: Calls) -> tuple[Trace, dict[int, ClockShift]]:
    """Put every device's operations and pages on the host's clock."""
    operations, pages = trace.operations, trace.page_events
    shifts: dict[int, ClockShift] = {}
    notes: list[TraceWarning] = []
    start, end = operations.start_ns, operations.end_ns
    # Copies to the host that return when the data are there.
    holding = np.flatnonzero((operations.kind == OpKind.MEMCPY) & (operations.direction == Direction.DTOH))
    if len(holding):
        holding = holding[calls.of_operation[holding] >= 0]
        is_blocking = calls.kind[calls.of_operation[holding]] == CallClass.BLOCKING_COPY
        holding = holding[operations.take(holding).is_pageable | is_blocking]
    is_joined_at_all = calls.of_operation >= 0
    for device in unique(operations.device).tolist():
        is_own = operations.device == device
        joined_rows = as_rows(is_own & is_joined_at_all)
        call, begun = calls.of_operation[joined_rows], start[joined_rows]
        shift = NO_SHIFT
        if len(call):
            holds = holding[is_own[holding]]
            late = end[holds] - calls.end_ns[calls.of_operation[holds]]
            late = np.concatenate((late, _after_waits(trace, calls, is_own)))
            shift = estimate_shift(begun, calls.launched_ns[joined_rows], late)
            notes += _unlike_waits(trace, device, late + shift.shift_ns, int(end[is_own].max() - start[is_own].min()))
            if len(call) >= LEAST_LAUNCHED:
                shift = replace(shift, unshown_ns=_unshown_ns(begun, calls, call, shift.shift_ns))
        shifts[device] = shift
        if shift.shift_ns:
            start = np.where(is_own, start + shift.shift_ns, start)
            end = np.where(is_own, end + shift.shift_ns, end)
            late_ns = np.where(pages.device == device, shift.shift_ns, 0)
            pages = replace(pages, start_ns=pages.start_ns + late_ns, end_ns=pages.end_ns + late_ns)
    if start is not operations.start_ns:
        operations = replace(operations, start_ns=start, end_ns=end)
    return replace(trace, operations=operations, page_events=pages, warnings=(*trace.warnings, *notes)), shifts


def _unlike_waits(trace: Trace, device: int, late_ns: Int64Array, span_ns: int) -> list[TraceWarning]:
    """Whether most waits return long before the work ends that they waited for (``late_ns``), however a device's clock
    is set: then its times are no times of this host. Long is a tenth of all that the device did: of so many steps as
    waits are needed to tell, one that runs ahead of its wait is less."""
    if len(late_ns) < MANY or float((late_ns > NOTABLE * span_ns).mean()) <= HALF:
        return []
    text = (
        f"Most of {len(late_ns):,} waits for {trace.gpus[device].name} return before the work that they wait for has "
        "ended: its times may be in another unit than nanoseconds. Export or capture it again."
    )
    return [TraceWarning(UNBELIEVABLE, text)]


def _unshown_ns(begun: Int64Array, calls: Calls, call: npt.NDArray[np.integer], shift_ns: int) -> int:
    """How long after its call's end the quickest operation begins, where that is longer than any latency, else 0: with
    a healthy clock some operations are enough to tell."""
    for some in (slice(0, PLENTY), slice(None)):
        quickest_ns = int((begun[some] - pick(calls.end_ns, call[some], 0)).min()) + shift_ns
        if quickest_ns <= MOST_LATENCY_NS:
            return 0
    return quickest_ns


def _after_waits(trace: Trace, calls: Calls, mine: npt.NDArray[np.bool_]) -> Int64Array:
    """By how much the last operation (of a mask) that was launched before each wait for the whole device ends after it;
    where a process uses one stream, before each wait for that. Every wait counts that followed a launch."""
    table, waits_past = trace.operations, []
    syncs = np.flatnonzero(calls.kind == CallClass.SYNC)
    process = trace.process_of(calls.thread)[syncs]
    for number in unique(table.process[as_rows(mine)]).tolist():
        rows = as_rows(mine & (table.process == number) & (calls.of_operation >= 0))
        waits = syncs[process == number]
        if len(unique(table.stream[rows])) > 1:
            waits = waits[trace.is_named(calls.name[waits], is_device_wide)]
        launched = calls.launched_ns[rows]
        order = in_order(launched)
        ended = running_maximum(table.end_ns[rows][order])
        position = places(launched[order], calls.start_ns[waits]) - 1
        waits, position = waits[position >= 0], position[position >= 0]
        first = (
            np.flatnonzero(np.append(True, position[1:] != position[:-1]))
            if ascend([position])
            else first_rows(position)
        )
        first = first[: len(position)]
        waits_past.append(ended[position[first]] - calls.end_ns[waits[first]])
    return np.concatenate(waits_past) if waits_past else np.empty(0, np.int64)


def _spans(trace: Trace, devices: Sequence[DeviceTimeline], threads: Sequence[ThreadAccount]) -> list[TimeSpan]:
    process = trace.process_of_thread
    if not devices:
        return [TimeSpan(account.low_ns, account.high_ns, process == process[account.thread]) for account in threads]
    working = [unique(device.operations.table.process) for device in devices]
    anywhere = np.isin(process, np.concatenate(working))  # a process that uses no device is counted with all
    return [
        TimeSpan(device.low_ns, device.high_ns, np.isin(process, own) | ~anywhere)
        for device, own in zip(devices, working, strict=True)
    ]


def _gone_before(
    trace: Trace,
    calls: Calls,
    losses: Losses,
    devices: Sequence[DeviceTimeline],
    without_work: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Instances that end before the windows begin, and that launched what is not on record: no window holds anything of
    them. ``without_work``: instances that have none on record."""
    ranges, low_ns = trace.ranges, min((device.low_ns for device in devices), default=0)
    gone, rows = np.zeros(len(ranges), bool), unique(losses.call)
    start_ns, process = calls.start_ns[rows], trace.process_of(calls.thread[rows])
    may_be = without_work & (ranges.end_ns <= low_ns)
    for number in unique(process).tolist() if may_be.any() else ():
        lost_ns = np.sort(start_ns[process == number])
        launches = places(lost_ns, ranges.start_ns) < places(lost_ns, ranges.end_ns)
        gone |= may_be & launches & (trace.process_of(ranges.thread) == number)
    return gone


def _counted(
    trace: Trace, window: DeviceWindow, start: Int64Array, end: Int64Array, spans: list[TimeSpan]
) -> npt.NDArray[np.bool_]:
    """Instances that belong to the windows: all by default; in a chosen window those whose device work (or,
    without any, whose host interval) overlaps it."""
    ranges = trace.ranges
    if window.kind in ("gpu", "all") and not window.skip_first:
        return np.ones(len(ranges), bool)
    launched = end >= start
    low = np.where(launched, start, ranges.start_ns)
    high = np.where(launched, end, ranges.end_ns)
    counted = np.zeros(len(ranges), bool)
    for span in spans:
        counted |= (high > span.low_ns) & (low < span.high_ns) & pick(span.threads, ranges.thread, True)
    return counted
