"""What of the device's work and of the host's calls was not recorded, where it lay in time, and whose it was.

A profiler loses records without a word. A launch on record whose operation is not, an operation or a sync whose call is
not, and counters of a GPU at work without an operation show it. In between, a device that looks idle may have worked,
and a thread that looks busy with its own code may have been in a call: such time is ``unattributed``, and verdicts must
hold whichever it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution import segments
from boundby.attribution.cuda_graphs import LostNodes, lost_nodes
from boundby.attribution.groundwork import TraceContext
from boundby.attribution.segments import NO_THREAD, Segments
from boundby.correlation.correlate import Calls
from boundby.correlation.starting import stream_captures
from boundby.model.arrays import (
    BoolArray,
    Int32Array,
    Int64Array,
    as_rows,
    ascend,
    compact,
    in_order,
    is_any,
    is_in,
    marked,
    pick,
    places,
    running_maximum,
    sorted_distinct,
    spread,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.intervals import (
    EMPTY,
    NOTHING,
    CoveredTime,
    IntervalSet,
    StepFunction,
    any_of,
    clip,
    contains,
    cut,
    inside,
    union,
)
from boundby.model.scale import HABIT, HALF, NEARLY_ALL, SMALL
from boundby.model.units import PERCENT
from boundby.trace.tables import NO_CORRELATION, OpKind, Trace
from boundby.trace.vocabulary.cuda import CallClass, CallWork, is_device_wide, work_of_call

# Streams of one process and device that are told apart to find when a lost operation ran; where there are more, any of
# them may have held it, and only a wait for the device ends its time.
MOST_STREAMS = 16
# A range that so much of its like launch in is one that launches: an instance without any lacks its records.
USUALLY_LAUNCHES = NEARLY_ALL
# Stretches of so many instances without a call, at the end of a region that launches, are no chance.
LEAST_SILENT = HABIT
# Of a sample of a GPU's counters: multiprocessors that work for less may be those of a display.
AT_WORK = HALF
# Of the numbers of a process's calls: where fewer are followed by one that is not on record, such a place is a sign. In
# real traces it is up to 2 % (4 % of 24 calls) where all kinds of calls are recorded, 7 % and more where some are not.
SELDOM = SMALL

_HOST_OWN = (Cause.CPU, Cause.HOST_BLOCKED)
_RECORDED = tuple(cause for cause in Cause if cause != Cause.UNATTRIBUTED)
_NEVER, _EVER = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Losses(Struct, frozen=True):
    """``expected`` and ``lost`` are masks over Calls: launches whose work should be on record, and those of which none
    is, or of a graph not all. The columns of lost work have a row for each lost launch, in order of its start, and for
    each device on which it may have run: of a thread that turns from device to device the records around a launch do
    not tell which. Of a graph they have a row for each stretch without its nodes."""

    expected: BoolArray
    lost: BoolArray
    device_of_call: Int32Array  # per call: where its work runs, index into Trace.gpus; NOTHING: not known
    call: npt.NDArray[np.int64]  # row of Calls
    work: npt.NDArray[np.int8]  # Work
    device: Int32Array  # on which it ran, or may have run
    stream: Int64Array  # NOTHING: not known
    begin_ns: Int64Array  # the work ran at some time from here
    until_ns: Int64Array  # to here
    of_graphs: LostNodes  # which of these are nodes of graphs
    dark: tuple[IntervalSet, ...]  # per process: when calls were made that are not on record
    unnumbered: tuple[IntervalSet, ...]  # per process: between calls whose numbers leave some out, where that is a sign
    calls_lost_fraction: tuple[float, ...]  # per process: of its calls that left other records
    waits_lost_fraction: tuple[float, ...]  # of these: of those that wait for streams or events
    uncalled: tuple[int, ...]  # per process: operations and waits that were called after its last call on record
    silent_from_ns: tuple[int | None, ...]  # per process: its calls stop on record here, while its ranges go on
    unseen: tuple[IntervalSet, ...]  # per GPU: its counters show it at work, and no operation is on record

    def of_device(self, device: int) -> npt.NDArray[np.intp]:
        """Rows of the lost work of one device."""
        return np.flatnonzero(self.device == device)

    def launches_of(self, device: int) -> int:
        """Launches of one device that should be on record, those included that may be another one's."""
        seen = self.expected & ~self.lost & (self.device_of_call == device)
        return int(seen.sum()) + self.lost_of(device)

    def lost_of(self, device: int) -> int:
        """Launches of one device whose work, or part of it, is not on record."""
        return len(unique(self.call[self.of_device(device)]))

    def until(self, device: int) -> int | None:
        """When the last lost work of one device has ended."""
        rows = self.of_device(device)
        return int(self.until_ns[rows].max()) if len(rows) else None

    def spans(self, device: int) -> IntervalSet:
        """When work that is not on record may have run on a device."""
        rows = self.of_device(device)
        return union(self.begin_ns[rows], self.until_ns[rows])


class Withheld(NamedTuple):
    """What may lie in the unattributed time of one device, as the account would have it otherwise."""

    work: Segments  # the device's, by what the gap would be if it had not worked
    calls: Segments  # the host's, by what the thread would do if it had not called
    unsure_ns: int  # while the device was busy or not: when calls were made that are not on record


def find_losses(trace: Trace, calls: Calls, region: npt.NDArray[np.int64]) -> Losses:
    """What of a trace (its operations on the host's clock) was not recorded. ``region``: of each range."""
    work = _work_of_calls(trace, calls)
    expected = _expected(trace, calls, work)
    lost = expected & ~marked(calls.of_operation, len(calls))
    rows = np.flatnonzero(lost)
    # A set of no byte leaves no record either: sets are lost only where kernels or copies are.
    process, is_set = trace.process_of(calls.thread[rows]), work[rows] == CallWork.SET
    empty = rows[is_set & ~np.isin(process, unique(process[~is_set]))]
    lost[empty] = expected[empty] = False
    rows = np.flatnonzero(lost)
    rows = rows[np.lexsort((rows, calls.start_ns[rows]))]
    lost = compact(lost)
    device_of_call, is_open = _devices(trace, calls)
    rows, device = _where(calls, rows, device_of_call, is_open)
    begin, until, stream = _when(trace, calls, rows, device)
    nodes = lost_nodes(trace, calls)
    if len(nodes.call):
        lost = marked(np.append(np.flatnonzero(lost), nodes.call), len(calls))
        expected = expected | lost
        rows, device = np.append(rows, nodes.call), np.append(device, nodes.device.astype(np.int32))
        begin, until = np.append(begin, nodes.begin_ns), np.append(until, nodes.until_ns)
        stream = np.append(stream, nodes.stream)
        order = np.lexsort((begin, device, rows, calls.start_ns[rows]))
        rows, device, begin, until, stream = (rows[order], device[order], begin[order], until[order], stream[order])
    dark, fraction, of_waits, uncalled = _dark(trace, calls)
    unnumbered = _unnumbered(trace, every=any(fraction))
    return Losses(
        expected,
        lost,
        device_of_call,
        rows,
        work[rows],
        device,
        stream,
        begin,
        until,
        nodes,
        dark,
        unnumbered,
        fraction,
        of_waits,
        uncalled,
        _silences(trace, calls, region),
        tuple(_unseen(trace, gpu) for gpu in range(len(trace.gpus))),
    )


def _work_of_calls(trace: Trace, calls: Calls) -> npt.NDArray[np.int8]:
    kinds = np.zeros(len(trace.names) + 1, np.int8)
    used = _used(calls)
    kinds[used] = [int(work_of_call(trace.names[number])) for number in used]
    return pick(kinds[:-1], calls.name, kinds[-1])


def _used(calls: Calls) -> list[int]:
    """The names that calls have."""
    return [number for number in calls.names.tolist() if number >= 0]


def _expected(trace: Trace, calls: Calls, work: npt.NDArray[np.int8]) -> BoolArray:
    """Successful calls that put work on a device which a capture of kernels and copies records."""
    expected: BoolArray = is_any(calls.kind, (CallClass.LAUNCH, CallClass.BLOCKING_COPY))
    expected &= (work != CallWork.NONE) & ~calls.has_failed
    for process, captures in stream_captures(trace, calls).items():
        of_process = np.flatnonzero(expected & (trace.process_of(calls.thread) == process))
        expected[of_process[contains(captures, calls.start_ns[of_process]) >= 0]] = False
    return expected


def _devices(trace: Trace, calls: Calls) -> tuple[Int32Array, BoolArray]:
    """The device that each call's work ran on, or would have, or whose stream it waits for; else that of the call
    before it on its thread, else of the one after it, else of its process; NOTHING where none is known. And whether
    it may be another one: the calls before and after it do not both say so."""
    used = unique(trace.operations.device)
    if len(used) == 1:
        return compact(spread(int(used[0]), len(calls), np.int32)), spread(False, len(calls), np.bool_)
    device = np.full(len(calls), NOTHING, np.int32)
    joined = np.flatnonzero(calls.of_operation >= 0)
    device[calls.of_operation[joined]] = trace.operations.device[joined]
    with_point = np.flatnonzero((calls.of_point >= 0) & is_in(trace.stream_points.device, used.tolist()))
    device[calls.of_point[with_point]] = trace.stream_points.device[with_point]
    has_device = device >= 0
    position = np.arange(len(calls))
    before = np.maximum.accumulate(np.where(has_device, position, -1)) if len(calls) else position
    after = np.minimum.accumulate(np.where(has_device, position, len(calls))[::-1])[::-1] if len(calls) else position
    beside = []
    for source in (before, after):
        usable = (source >= 0) & (source < len(calls))
        usable[usable] = calls.thread[source[usable]] == calls.thread[usable]
        beside.append(np.where(usable, device[np.where(usable, source, 0)], NOTHING))
    is_open = beside[0] != beside[1]
    device = np.where(beside[0] >= 0, beside[0], beside[1])
    process = trace.process_of(calls.thread)
    main = np.full(len(trace.processes) + 1, NOTHING, np.int32)
    for number in unique(trace.operations.process).tolist():
        main[number] = np.bincount(trace.operations.device[trace.operations.process == number]).argmax()
    return np.where(device >= 0, device, main[process]).astype(np.int32), is_open


def _where(
    calls: Calls, rows: npt.NDArray[np.intp], device: Int32Array, is_open: BoolArray
) -> tuple[npt.NDArray[np.intp], Int32Array]:
    """These calls, each as often as there are devices on which its work may have run, and those: where that is open,
    all that its thread is known to use."""
    with_work = calls.of_operation[calls.of_operation >= 0]
    with_work = with_work[is_in(calls.thread[with_work], unique(calls.thread[rows[is_open[rows]]]).tolist())]
    parts = [(rows, device[rows])]
    for thread in unique(calls.thread[with_work]).tolist():
        own = rows[is_open[rows] & (calls.thread[rows] == thread)]
        for number in unique(device[with_work[calls.thread[with_work] == thread]]).tolist():
            other = own[device[own] != number]
            parts.append((other, np.full(len(other), number, np.int32)))
    calls_of, devices = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((devices, calls_of, calls.start_ns[calls_of]))
    return calls_of[order], devices[order].astype(np.int32)


def _when(
    trace: Trace, calls: Calls, rows: npt.NDArray[np.int64], device: Int32Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """From when to when the work of each lost launch can have run, and its stream where only one comes into question.

    Work of a stream runs in the order of its launches: after the last recorded operation that was launched before it,
    before the first that was launched after it, and before the end of a wait for the device.
    """
    begin, until = calls.start_ns[rows].copy(), np.full(len(rows), _NEVER)
    stream = np.full(len(rows), NOTHING, np.int64)
    process = trace.process_of(calls.thread[rows])
    table = trace.operations
    if not len(rows):
        return begin, until, stream
    call_process = trace.process_of(calls.thread)
    launched = np.where(calls.of_operation >= 0, pick(calls.start_ns, calls.of_operation, 0), table.start_ns)
    for number, gpu in sorted(set(zip(process.tolist(), device.tolist(), strict=True))):
        here = np.flatnonzero((process == number) & (device == gpu))
        ours = np.flatnonzero((table.process == number) & (table.device == gpu) & (table.correlation != NO_CORRELATION))
        streams = unique(table.stream[ours]).tolist()
        time = begin[here]
        if len(streams) == 1:
            stream[here] = streams[0]
        if 0 < len(streams) <= MOST_STREAMS:
            earliest, latest = np.full(len(here), _NEVER), np.full(len(here), _EVER)
            for each in streams:
                inside = ours[table.stream[ours] == each]
                inside = inside[np.argsort(launched[inside], kind="stable")]
                position = places(launched[inside], time, side="right")
                ended = np.append(_EVER, np.maximum.accumulate(table.end_ns[inside]))
                begins = np.append(np.minimum.accumulate(table.start_ns[inside][::-1])[::-1], _NEVER)
                earliest, latest = np.minimum(earliest, ended[position]), np.maximum(latest, begins[position])
            begin[here], until[here] = np.maximum(time, earliest), latest
        own = np.flatnonzero(call_process == number)
        waits = own[calls.kind[own] == CallClass.SYNC]
        everything = waits if len(streams) <= 1 else waits[trace.is_named(calls.name[waits], is_device_wide)]
        until[here] = np.minimum(until[here], _next_end(calls, everything, time, _NEVER))
        last = int(calls.end_ns[own].max())
        until[here] = np.where(until[here] == _NEVER, _next_end(calls, waits, time, last), until[here])
    holding = calls.kind[rows] == CallClass.BLOCKING_COPY
    until = np.where(holding, np.minimum(until, calls.end_ns[rows]), until)
    return begin, np.maximum(until, begin), stream


def _next_end(calls: Calls, rows: npt.NDArray[np.intp], time: Int64Array, otherwise: int) -> Int64Array:
    """The end of the first of these calls that begins at or after each instant."""
    rows = rows[np.argsort(calls.start_ns[rows], kind="stable")]
    first = np.minimum.accumulate(calls.end_ns[rows][::-1])[::-1]
    return np.append(first, otherwise)[places(calls.start_ns[rows], time)]


def _dark(
    trace: Trace, calls: Calls
) -> tuple[tuple[IntervalSet, ...], tuple[float, ...], tuple[float, ...], tuple[int, ...]]:
    """Per process: when the calls were made whose operations or syncs are on record and they are not; which part of all
    such calls these are, and of those that wait; how many were made after the last one on record. Where all after (or
    before) some instant are missing, that is no part: of the time that has calls nothing is.

    A process numbers its calls in order, so a lost one begins between the recorded ones of the numbers around it: after
    the one before has ended, if no other thread calls. One that launches ends before its work begins, unless it holds
    the host until that has ended, as copies do that are like those on record that do, or like none on record.
    """
    table, points = trace.operations, trace.stream_points
    without = np.flatnonzero(calls.of_operation < 0)
    without = without[table.correlation[without] != NO_CORRELATION]
    holds = _may_hold(trace, calls)[without] if len(without) else np.empty(0, bool)
    api_process = trace.process_of(trace.api.thread)
    dark, fractions, of_waits, uncalled = [], [], [], []
    for number in range(len(trace.processes)):
        of_process = table.process[without] == number
        orphans = without[of_process]
        waits = (points.process == number) & (points.correlation > 0) & ~points.is_record
        syncs = waits & (calls.of_point < 0)
        wanted = np.concatenate((table.correlation[orphans], points.correlation[syncs]))
        ours = np.flatnonzero(api_process == number) if len(wanted) else np.empty(0, np.intp)
        if not len(ours):
            dark.append(EMPTY)
            fractions.append(0.0)
            of_waits.append(0.0)
            uncalled.append(len(wanted))
            continue
        ours = ours[np.argsort(trace.api.correlation[ours], kind="stable")]
        position = places(trace.api.correlation[ours], wanted)
        alone = len(unique(trace.api.thread[ours])) == 1
        ended = np.append(_EVER, np.maximum.accumulate((trace.api.end_ns if alone else trace.api.start_ns)[ours]))
        starts = np.append(np.minimum.accumulate(trace.api.start_ns[ours][::-1])[::-1], trace.span_ns[1])
        until = np.where(holds[of_process], table.end_ns[orphans], table.start_ns[orphans])
        begun = np.append(until, np.full(int(syncs.sum()), _NEVER))
        low = np.maximum(ended[position], trace.span_ns[0])
        is_last = position == len(ours)  # whatever else was called then is not on record either
        dark.append(union(low, np.where(is_last, trace.span_ns[1], np.minimum(starts[position], begun))))
        seen = int(((table.process == number) & (calls.of_operation >= 0)).sum())
        within = (position > 0) & ~is_last  # one before or after all calls on record held up none of them
        lost = int(within.sum())
        fractions.append(lost / max(lost + seen + int(((points.process == number) & ~syncs).sum()), 1))
        of_waits.append(int(within[len(orphans) :].sum()) / max(int(waits.sum()), 1))
        uncalled.append(int(is_last.sum()))
    return tuple(dark), tuple(fractions), tuple(of_waits), tuple(uncalled)


def _unnumbered(trace: Trace, every: bool) -> tuple[IntervalSet, ...]:
    """Per process: when nothing is on record between two calls whose numbers leave some out. Calls that are never
    recorded take numbers too, so this is a sign only where calls were lost (``every`` process then), or hardly a number
    is missing otherwise."""
    dark_parts = []
    process = trace.process_of(trace.api.thread)
    for number in range(len(trace.processes)):
        ours = as_rows(process == number)
        start, end, correlation = (
            column[ours] for column in (trace.api.start_ns, trace.api.end_ns, trace.api.correlation)
        )
        order = in_order(correlation)
        left_out = np.flatnonzero(np.diff(correlation[order]) > 1)
        if not every and len(left_out) > SELDOM * max(len(correlation) - 1, 0):
            left_out = left_out[:0]
        if not len(left_out):
            dark_parts.append(EMPTY)
            continue
        begin = running_maximum(end[order])[left_out]
        end = np.minimum.accumulate(start[order][::-1])[::-1][left_out + 1]
        dark_parts.append(IntervalSet(begin[begin < end], end[begin < end]))
    return tuple(dark_parts)


def _may_hold(trace: Trace, calls: Calls) -> BoolArray:
    """Per operation: a copy whose call may not return before it has ended, or nearly so: the last of pageable memory is
    on its way when the call returns."""
    table = trace.operations
    if not (table.kind == OpKind.MEMCPY).any():
        return np.zeros(len(table), bool)
    kind = (table.direction.astype(np.int64) * 8 + table.source) * 8 + table.target
    is_copy, has_work = table.kind == OpKind.MEMCPY, calls.of_operation >= 0
    middle = table.start_ns + (table.end_ns - table.start_ns) // 2
    held = has_work & (pick(calls.end_ns, calls.of_operation, _EVER) >= middle)
    may_hold: BoolArray = is_copy & (np.isin(kind, kind[is_copy & held]) | ~np.isin(kind, kind[is_copy & has_work]))
    return may_hold


def _silences(trace: Trace, calls: Calls, region: npt.NDArray[np.int64]) -> tuple[int | None, ...]:
    """Per process: from when on calls are missing, though ranges of regions in which it nearly always calls go on: to
    the end of the trace nothing is left of its calls. Records stop thread by thread: the first to stop counts."""
    silences: list[int | None] = []
    process, call_process = trace.process_of(trace.ranges.thread), trace.process_of(calls.thread)
    for number in range(len(trace.processes)):
        ranges, own = np.flatnonzero(process == number), as_rows(call_process == number)
        silent = _silence(trace, calls, ranges, region[ranges], own)
        if silent is not None:
            own = np.arange(len(calls))[own]
            threads = unique(calls.thread[own]).tolist()
            each = [
                _silence(trace, calls, ranges, region[ranges], own[calls.thread[own] == thread]) for thread in threads
            ]
            silent = min((time for time in each if time is not None), default=silent)
        silences.append(silent)
    return tuple(silences)


def _silence(
    trace: Trace,
    calls: Calls,
    ranges: npt.NDArray[np.intp],
    region: npt.NDArray[np.int64],
    own: npt.NDArray[np.intp] | slice,
) -> int | None:
    """The end of the last of these calls, where instances go on of a region in which there nearly always was one."""
    if not len(calls.start_ns[own]) or not len(ranges):
        return None
    start, end, last = trace.ranges.start_ns[ranges], trace.ranges.end_ns[ranges], int(calls.end_ns[own].max())
    if not (start >= last).any():
        return None
    times = calls.start_ns[own]
    times = times if ascend([times]) else np.sort(times)
    called = places(times, end) > places(times, start)
    late = np.bincount(region[start >= last], minlength=1)
    for number in np.flatnonzero(late >= LEAST_SILENT).tolist():
        earlier = (region == number) & (end <= last)
        if int(earlier.sum()) >= LEAST_SILENT and float(called[earlier].mean()) >= USUALLY_LAUNCHES:
            return last
    return None


def _unseen(trace: Trace, gpu: int) -> IntervalSet:
    """When a GPU's counters show it at work while no operation is on record, and none within the length of a sample:
    closer than that the times of samples and operations are not known to agree."""
    samples, table = trace.metric_samples, trace.operations
    shown = np.flatnonzero((samples.device == gpu) & (samples.sm_active >= AT_WORK * PERCENT))
    if not len(shown):
        return EMPTY
    start, end, own = samples.start_ns[shown], samples.end_ns[shown], table.device == gpu
    busy = CoveredTime(union(table.start_ns[own], table.end_ns[own]))
    alone = busy.within(2 * start - end, 2 * end - start) == 0
    return union(start[alone], end[alone])


def filled(trace: Trace, calls: Calls, losses: Losses, begins_ns: Mapping[int, int]) -> Trace:
    """The trace with the device busy all the time in which lost work may have run: an operation for each lost launch,
    one after the other where several share a time. The opposite of the trace as it is, in which it did nothing.
    ``begins_ns``: each device's window, before which nothing is filled: what was launched before it ran before it."""
    least = np.full(len(trace.gpus) + 1, _EVER)
    least[list(begins_ns)] = list(begins_ns.values())
    rows = np.flatnonzero((losses.device >= 0) & (losses.begin_ns >= least[losses.device]))
    rows = rows[np.lexsort((losses.call[rows], losses.until_ns[rows], losses.device[rows]))]
    begin, until, call = losses.begin_ns[rows], losses.until_ns[rows], losses.call[rows]
    process = trace.process_of(calls.thread[call])
    stream = np.where(
        losses.stream[rows] >= 0, losses.stream[rows], _usual_streams(trace, process, losses.device[rows])
    )
    # Those that end together take turns in that time, each from when it was launched.
    new = np.append(True, np.diff(until) != 0) if len(rows) else np.empty(0, bool)
    group = np.cumsum(new) - 1
    size = np.bincount(group)[group] if len(rows) else group
    position = np.arange(len(rows)) - np.flatnonzero(new)[group] if len(rows) else group
    first = begin[np.flatnonzero(new)][group] if len(rows) else begin
    start = np.maximum(begin, first + (until - first) * position // np.maximum(size, 1))
    end = np.maximum(np.minimum(until, first + (until - first) * (position + 1) // np.maximum(size, 1)), start + 1)
    kind = np.array([OpKind.KERNEL, OpKind.KERNEL, OpKind.GRAPH, OpKind.MEMCPY, OpKind.MEMSET])[losses.work[rows]]
    plain = np.full(len(rows), -1, np.int8)
    table = trace.operations
    columns = {
        "start_ns": start,
        "end_ns": end,
        "device": losses.device[rows],
        "process": process,
        "stream": stream,
        "correlation": calls.correlation[call],
        "kind": kind,
        "name": plain,
        "bytes": np.zeros(len(rows), np.int64),
        "direction": plain,
        "source": plain,
        "target": plain,
        "is_communication": np.zeros(len(rows), bool),
        "shape": plain,
    }
    return replace(trace, operations=table.and_more(columns).sorted(trace.names))


def _usual_streams(trace: Trace, process: npt.NDArray[np.integer], device: npt.NDArray[np.integer]) -> Int64Array:
    """The stream that holds most operations of each process and device."""
    usual = np.zeros(len(process), np.int64)
    table = trace.operations
    for number, gpu in sorted(set(zip(process.tolist(), device.tolist(), strict=True))):
        streams = table.stream[(table.process == number) & (table.device == gpu)]
        values, counts = np.unique(streams, return_counts=True)
        if len(values):
            usual[(process == number) & (device == gpu)] = values[counts.argmax()]
    return usual


def withhold(
    context: TraceContext, losses: Losses, device: int, pieces: Segments, span: tuple[int, int]
) -> tuple[Segments, Withheld]:
    """Idle pieces of a device's account in its window, ``span``, ``unattributed`` where records of its work or of the
    calls are missing; and what these were said to be. Time in which work was lost belongs to the region of the latest
    launch that lost it."""
    pieces, work = _replace(pieces, _lost_work(context, losses, device), tuple(Cause))
    if len((unseen := losses.unseen[device]).start):
        every = np.ones(max(len(context.trace.threads), 1), bool)
        pieces, beside = _replace(pieces, inside(unseen), _RECORDED, every)
        work = segments.concatenate(work, beside)
    called: list[Segments] = []
    for number, dark in enumerate(losses.dark):
        if len(dark.start):
            threads = np.array([thread.process == number for thread in context.trace.threads] or [False], bool)
            pieces, taken = _replace(pieces, inside(dark), _HOST_OWN, threads)
            called.append(taken)
    of_calls = segments.concatenate(_nothing(), *called)
    return pieces, Withheld(work, of_calls, unsure_ns(context, losses, device, *span))


def unsure_ns(context: TraceContext, losses: Losses, device: int, low: int, high: int) -> int:
    """Nanoseconds of [low, high) in which the processes of a device made calls that are not on record, or, of each
    process, in which one call may have run that is not: in the longest stretch between two with numbers left out."""
    if not any(len(part.start) for part in (*losses.dark, *losses.unnumbered)):
        return 0
    processes = unique(context.trace.operations.process[context.trace.operations.device == device]).tolist()
    real = [number for number in processes if number >= 0]
    dark = [losses.dark[number] for number in real]
    for number in real:
        open_ns = clip(losses.unnumbered[number], low, high)
        longest = np.argmax(open_ns.end - open_ns.start) if len(open_ns.start) else 0
        dark.append(IntervalSet(open_ns.start[longest : longest + 1], open_ns.end[longest : longest + 1]))
    return clip(any_of(dark), low, high).total


def _nothing() -> Segments:
    empty = np.empty(0, np.int64)
    return segments.make(empty, empty, Cause.UNATTRIBUTED, empty)


def _lost_work(context: TraceContext, losses: Losses, device: int) -> StepFunction:
    """Over time: the region whose lost work may run on the device; NOTHING where none may."""
    rows = losses.of_device(device)
    spans = losses.spans(device)
    begin, region = losses.begin_ns[rows], context.call_region[losses.call[rows]]
    order = np.argsort(begin, kind="stable")
    time = sorted_distinct(begin, spans.start, spans.end)
    latest = places(begin[order], time, side="right") - 1
    inside = contains(spans, time) >= 0
    owner = region[order][np.maximum(latest, 0)] if len(rows) else np.empty(0, np.int64)
    return StepFunction(time, np.where(inside, owner, NOTHING))


def _replace(
    pieces: Segments, inside: StepFunction, causes: Sequence[Cause], threads: BoolArray | None = None
) -> tuple[Segments, Segments]:
    """Pieces of these causes (of these threads) made ``unattributed`` where the function has a value, and what was
    replaced, with the region that it has now. Without ``threads`` the value is that region."""
    if not len(inside.time) or not len(pieces):
        return pieces, _nothing()
    chosen = np.isin(pieces.cause, [int(cause) for cause in causes])
    if threads is not None:
        chosen &= (pieces.thread != NO_THREAD) & threads[pieces.thread]
    start, end, row, value = cut(pieces.start_ns, pieces.end_ns, inside)
    taken = chosen[row] & (value != NOTHING)
    if not taken.any():
        return pieces, _nothing()
    region = np.where(taken & (threads is None), value, pieces.region[row])
    cause = pieces.cause[row].astype(np.int64)
    thread = pieces.thread[row].astype(np.int64)
    kept = segments.make(start, end, np.where(taken, int(Cause.UNATTRIBUTED), cause), region, thread)
    was = segments.make(start[taken], end[taken], cause[taken], region[taken], thread[taken])
    return segments.concatenate(kept), segments.concatenate(was)
