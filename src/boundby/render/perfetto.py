"""Report and timeline -> a trace for ui.perfetto.dev: what ran, and beside it what boundby makes of it.

The perfetto package is imported only when a trace is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int64Array
from boundby.model.causes import CAUSE_KEYS, LETTER, SHORT_LABEL
from boundby.render import sentences
from boundby.render.perfetto_packets import Slices, Value, Writer
from boundby.render.text import region_name
from boundby.trace.tables import NO_CORRELATION, Direction, MemoryKind, OpKind, Table, Trace

if TYPE_CHECKING:
    from boundby.attribution.host_account import ThreadAccount
    from boundby.attribution.timeline import DeviceTimeline, Timeline
    from boundby.results.plot_data import AccountLane, PlotData
    from boundby.results.report import Report, Verdict

NO_STREAM = 4294967295
#: The order of the tracks of a device and of a thread.
VERDICT, CAUSES, GPU_BUSY, CPU_BUSY, STREAMS = 1, 2, 3, 4, 10
RANGES, PROCESS_RANGES, CALLS, OS_CALLS = 3, 4, 5, 6
# By number; -1, for what was not told, stands last.
MEMORY_KINDS = [MemoryKind(kind).name.lower() for kind in (*range(len(MemoryKind) - 1), -1)]
DIRECTIONS = [*(Direction(way).name.replace("TO", "to") for way in range(len(Direction) - 1)), ""]
COPY_WORD = {OpKind.MEMCPY: "memcpy", OpKind.MEMSET: "memset", OpKind.MIGRATION: "migration"}


def write(file: IO[bytes], report: Report, timeline: Timeline, plot_data: PlotData | None = None) -> None:
    """Write the whole trace to a binary file, a bounded part of it in memory at a time.

    Times are the report's, on the host's clock. Where any would be negative all are moved; ``clock_offset_ns`` of the
    verdicts says by how much. ``plot_data`` adds utilization as counters. Raises UserError where the perfetto package
    is not installed.
    """
    trace = timeline.trace
    low = _earliest(timeline, report)
    writer = Writer(file, offset_ns=max(-low, 0))
    regions = _region_texts(writer, timeline)
    lanes = plot_data.lanes if plot_data is not None else ()
    _findings(writer, report, timeline, low)
    for number in np.unique(trace.operations.device).tolist():
        _device(writer, number, timeline, report, regions, lanes)
    processes: dict[int, int] = {}
    for number, thread in enumerate(trace.threads):
        if _has_content(trace, number):
            if thread.process not in processes:
                process = trace.processes[thread.process]
                processes[thread.process] = writer.process(process.pid, process.name)
            track = writer.thread(processes[thread.process], thread.pid, thread.tid, thread.name)
            _thread(writer, track, number, timeline, regions)
            _thread_account(writer, track, number, timeline, report, regions, lanes)


def _earliest(timeline: Timeline, report: Report) -> int:
    """The earliest instant of anything that is written."""
    trace = timeline.trace
    starts = [device.low_ns for device in timeline.devices] + [thread.low_ns for thread in timeline.threads]
    starts += [
        int(table.start_ns.min()) for table in (trace.operations, trace.api, trace.ranges, trace.os_calls) if len(table)
    ]
    starts += [example.start_ns for finding in report.findings for example in finding.examples]
    return min(starts, default=0)


def _region_texts(writer: Writer, timeline: Timeline) -> Int64Array:
    """The number of each region's path among the writer's texts."""
    regions = timeline.ownership.regions
    return np.array([writer.texts.add(region_name(regions.path(number))) for number in range(len(regions))], np.int64)


def _findings(writer: Writer, report: Report, timeline: Timeline, start_ns: int) -> None:
    """Each finding at its examples, or where the first window starts."""
    if not report.findings:
        return
    track = writer.track("boundby findings", told="What to change, best saving first, at examples of where it costs")
    first = min((device.low_ns for device in timeline.devices), default=start_ns)
    for rank, finding in enumerate(report.findings, 1):
        told: dict[str, Value] = {"rank": rank, "rule": finding.rule, "severity": finding.severity}
        if finding.region is not None:
            told["region"] = region_name(finding.region)
        if finding.saving_ns is not None:
            told |= {"saving_low_ns": finding.saving_ns[0], "saving_high_ns": finding.saving_ns[1]}
        told |= {f"advice {number}": text for number, text in enumerate(finding.advice, 1)}
        told["docs"] = finding.docs
        for example in finding.examples:
            shown = {**told, "example": example.what, "duration_ns": example.duration_ns}
            writer.instant(track, example.start_ns, finding.title, shown)
        if not finding.examples:
            writer.instant(track, first, finding.title, told)


def _device(
    writer: Writer,
    number: int,
    timeline: Timeline,
    report: Report,
    regions: Int64Array,
    lanes: Sequence[AccountLane],
) -> None:
    gpu = timeline.trace.gpus[number]
    track = writer.track(f"GPU {gpu.id} {gpu.name}".strip(), ordered=True)
    account = next((device for device in timeline.devices if device.index == number), None)
    judged = next((device for device in report.devices if device.id == gpu.id), None)
    if account is not None and judged is not None:
        facts = _verdict(judged.verdict, judged.window_ns) | {"clock_shift_ns": judged.clock_shift_ns}
        _account(writer, track, account, str(sentences.headline(judged.verdict, sentences.gpu(judged))), facts, regions)
    for lane in lanes:
        if lane.kind == "device" and lane.id == gpu.id:
            _utilization(writer, track, lane)
    _streams(writer, track, number, timeline, regions)


def _account(
    writer: Writer,
    parent: int,
    account: DeviceTimeline | ThreadAccount,
    sentence: str,
    facts: Mapping[str, Value],
    regions: Int64Array,
) -> None:
    """The verdict over the window, and its causes: a slice for each stretch of one cause and one region."""
    track = writer.track("verdict", parent, VERDICT)
    writer.span(track, account.low_ns, account.high_ns, sentence, {**facts, "clock_offset_ns": writer.offset_ns})
    if len(account.segments):
        joined = account.segments.joined()
        labels = np.array([writer.names.add(f"{LETTER[key]} {SHORT_LABEL[key]}") for key in CAUSE_KEYS], np.int64)
        texts = {"region": regions[joined.region]}
        slices = Slices(joined.start_ns, joined.end_ns, labels[joined.cause], texts=texts)
        writer.slices("causes", parent, CAUSES, slices, told="Each instant of the window has exactly one cause")


def _verdict(verdict: Verdict, window_ns: int) -> dict[str, Value]:
    texts = {
        "why": verdict.because,
        "outlook": sentences.outlook(verdict, window_ns),
        "next best": sentences.next_best(verdict, window_ns),
        "confidence": sentences.confidence(verdict),
    }
    return {name: text for name, text in texts.items() if text}


def _utilization(writer: Writer, parent: int, lane: AccountLane) -> None:
    """Utilization in the bins of the plot data; 0 outside the window."""
    for name, rank, value in (
        ("GPU utilization", GPU_BUSY, lane.gpu_utilization if lane.kind == "device" else None),
        ("CPU utilization", CPU_BUSY, lane.cpu_utilization),
    ):
        if value is not None:
            percent = np.append(100 * np.nan_to_num(value), 0.0)
            writer.counter(name, parent, rank, lane.bins.edges_ns, percent)


def _streams(writer: Writer, parent: int, device: int, timeline: Timeline, regions: Int64Array) -> None:
    """The operations of each stream; of each process where several have one of that number."""
    trace = timeline.trace
    table = trace.operations
    mine = np.flatnonzero(table.device == device)
    several = len(np.unique(table.process[mine])) > 1
    stream = table.stream[mine] * (len(trace.processes) + 1) + table.process[mine]
    for rank, key in enumerate(np.unique(stream).tolist()):
        rows = mine[stream == key]
        number, process = int(table.stream[rows[0]]), int(table.process[rows[0]])
        name = "no stream" if number == NO_STREAM else f"stream {number}"
        if several and process >= 0:
            name += f" (process {trace.processes[process].pid})"
        writer.slices(name, parent, STREAMS + rank, _operations(writer, rows, timeline, regions))


def _operations(writer: Writer, rows: npt.NDArray[np.intp], timeline: Timeline, regions: Int64Array) -> Slices:
    table = timeline.trace.operations.take(rows)
    direction = np.array([writer.texts.add(text or "other") for text in DIRECTIONS], np.int64)
    memory = np.array([writer.texts.add(text) for text in MEMORY_KINDS], np.int64)
    is_copy = (table.kind == OpKind.MEMCPY) | (table.kind == OpKind.MIGRATION)
    return Slices(
        start_ns=table.start_ns,
        end_ns=table.end_ns,
        name=_names(writer, timeline.trace, rows),
        texts={
            "region": regions[timeline.launch_region[rows]],
            "direction": np.where(is_copy, direction[table.direction], -1),
            "source": np.where(is_copy, memory[table.source], -1),
            "target": np.where(is_copy, memory[table.target], -1),
        },
        numbers={
            "bytes": np.where(is_copy | (table.kind == OpKind.MEMSET), np.maximum(table.bytes, 0), -1),
            "correlation": np.where(table.correlation == NO_CORRELATION, -1, table.correlation),
        },
        flow=timeline.calls.of_operation[rows] + 1,
    )


def _names(writer: Writer, trace: Trace, rows: npt.NDArray[np.intp]) -> Int64Array:
    """Kernels by their names; copies by what they are: "memcpy HtoD"."""
    table = trace.operations.take(rows)
    names = writer.names.add_all(trace.names, table.name)
    for kind, word in COPY_WORD.items():
        for direction in np.unique(table.direction[table.kind == kind]).tolist():
            chosen = (table.kind == kind) & (table.direction == direction)
            names[chosen] = writer.names.add(f"{word} {DIRECTIONS[direction]}".strip())
    return names


def _has_content(trace: Trace, thread: int) -> bool:
    return any(len(_rows(table, table.thread, thread)) for table in (trace.ranges, trace.api, trace.os_calls))


def _rows(table: Table, thread_of: npt.NDArray[np.int32], thread: int) -> npt.NDArray[np.intp]:
    """The rows of one thread; tables are ordered by thread."""
    low, high = np.searchsorted(thread_of, [thread, thread + 1]).tolist()
    return np.arange(low, min(high, len(table)), dtype=np.intp)


def _thread(writer: Writer, track: int, number: int, timeline: Timeline, regions: Int64Array) -> None:
    trace = timeline.trace
    rows = _rows(trace.ranges, trace.ranges.thread, number)
    is_start_end = trace.ranges.is_start_end[rows]
    _ranges(writer, track, rows[~is_start_end], timeline, regions)
    _ranges(writer, track, rows[is_start_end], timeline, regions)
    rows = _rows(trace.api, trace.api.thread, number)
    if len(rows):
        calls = trace.api.take(rows)
        name = writer.names.add_all(trace.names, calls.name)
        correlation = {"correlation": np.maximum(calls.correlation, 0).astype(np.int64)}
        flow = _flows(timeline, number, calls.start_ns, calls.end_ns)
        slices = Slices(calls.start_ns, calls.end_ns, name, correlation, flow=flow)
        writer.slices("CUDA API", track, CALLS, slices, nested=True)
    rows = _rows(trace.os_calls, trace.os_calls.thread, number)
    if len(rows):
        table = trace.os_calls.take(rows)
        slices = Slices(table.start_ns, table.end_ns, writer.names.add_all(trace.names, table.name))
        writer.slices("OS runtime", track, OS_CALLS, slices, nested=True)


def _ranges(writer: Writer, track: int, rows: npt.NDArray[np.intp], timeline: Timeline, regions: Int64Array) -> None:
    """Push/pop ranges nest; start/end ranges lie across each other as they like."""
    if not len(rows):
        return
    trace = timeline.trace
    table = trace.ranges.take(rows)
    domain = writer.texts.add_all(trace.domains, table.domain, unnamed="default")
    texts = {"region": regions[timeline.ownership.regions.of_range[rows]], "domain": domain}
    slices = Slices(table.start_ns, table.end_ns, writer.names.add_all(trace.names, table.name), texts=texts)
    if table.is_start_end[0]:
        writer.slices("NVTX start/end", track, PROCESS_RANGES, slices)
    else:
        writer.slices("NVTX", track, RANGES, slices, nested=True)


def _flows(timeline: Timeline, thread: int, start: Int64Array, end: Int64Array) -> Int64Array:
    """For each API row of a thread the number of the arrow to what it launched, 0 without any: the row of its
    outermost call, from 1. Nested rows (driver in runtime) carry none."""
    calls = timeline.calls
    launched = np.zeros(len(calls), bool)
    launched[calls.of_operation[calls.of_operation >= 0]] = True
    span = calls.rows_of(thread)
    flow = np.zeros(len(start), np.int64)
    if span.stop > span.start:
        # Outermost rows keep their end; their start may have been trimmed to where the call before them ended.
        place = np.minimum(np.searchsorted(calls.end_ns[span], end), span.stop - span.start - 1)
        same = (calls.end_ns[span][place] == end) & (calls.start_ns[span][place] >= start)
        flow[same & launched[span][place]] = place[same & launched[span][place]] + span.start + 1
        _, first = np.unique(flow, return_index=True)
        keep = np.zeros(len(flow), bool)
        keep[first] = True
        flow[~keep] = 0
    return flow


def _thread_account(
    writer: Writer,
    track: int,
    number: int,
    timeline: Timeline,
    report: Report,
    regions: Int64Array,
    lanes: Sequence[AccountLane],
) -> None:
    """Without GPU work: the thread's verdict and causes."""
    thread = timeline.trace.threads[number]
    account = next((account for account in timeline.threads if account.thread == number), None)
    judged = next((item for item in report.threads if (item.pid, item.tid) == (thread.pid, thread.tid)), None)
    if account is None or judged is None:
        return
    sentence = str(sentences.headline(judged.verdict, sentences.thread(judged)))
    _account(writer, track, account, sentence, _verdict(judged.verdict, judged.total_ns), regions)
    for lane in lanes:
        if lane.kind == "thread" and lane.id == thread.tid:
            _utilization(writer, track, lane)
