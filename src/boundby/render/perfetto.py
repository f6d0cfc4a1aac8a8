"""Report and timeline -> a trace for ui.perfetto.dev: what ran, and beside it what boundby makes of it.

The perfetto package is imported only when a trace is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.document import sentences
from boundby.document.blocks import region_name
from boundby.model import stage
from boundby.model.arrays import Int64Array
from boundby.model.causes import CAUSE_INFO
from boundby.model.scale import DRAWN
from boundby.render.perfetto_packets import Slices, Value, Writer
from boundby.trace.tables import NO_CORRELATION, NO_STREAM, Direction, MemoryKind, OpKind
from boundby.trace.vocabulary.profiler import WORDS as METRIC_WORDS

if TYPE_CHECKING:
    from boundby.attribution.account import ThreadAccount
    from boundby.attribution.timeline import DeviceTimeline, Timeline
    from boundby.results.plot_data import AccountLane, PlotData
    from boundby.results.report import Report, Verdict

# By number; -1, for what was not told, stands last.
MEMORY_KINDS = [MemoryKind(kind).name.lower() for kind in (*range(len(MemoryKind) - 1), -1)]
DIRECTIONS = [*(Direction(way).name.replace("TO", "to") for way in range(len(Direction) - 1)), ""]
COPY_WORD = {OpKind.MEMCPY: "memcpy", OpKind.MEMSET: "memset", OpKind.MIGRATION: "migration"}


class _Track(IntEnum):
    """The order of the tracks of a device and of a thread. Streams come last: there are many."""

    VERDICT = 1
    CAUSES = 2
    GPU_BUSY = 3
    CPU_BUSY = 4
    RANGES = 5
    PROCESS_RANGES = 6
    CALLS = 7
    OS_CALLS = 8
    COUNTED = 9
    STREAMS = 10


def write(file: IO[bytes], report: Report, timeline: Timeline, plot_data: PlotData | None = None) -> None:
    """Write the whole trace to a binary file, a bounded part of it in memory at a time.

    Times are the report's, on the host's clock. Where any would be negative all are moved; ``clock_offset_ns`` of the
    verdicts says by how much. ``plot_data`` adds utilization as counters. Raises UserError where the perfetto package
    is not installed.
    """
    earliest_ns = _earliest(timeline, report)
    writer = Writer(file, offset_ns=max(-earliest_ns, 0))
    paths = timeline.ownership.regions
    regions = np.array([writer.texts.add(region_name(paths.path(number))) for number in range(len(paths))], np.int64)
    lanes = {(lane.kind, lane.id): lane for lane in plot_data.lanes} if plot_data is not None else {}
    _Tracks(writer, report, timeline, regions, lanes).write(earliest_ns)


def _earliest(timeline: Timeline, report: Report) -> int:
    """The earliest instant of anything that is written."""
    trace = timeline.trace
    starts = [device.low_ns for device in timeline.devices] + [thread.low_ns for thread in timeline.threads]
    starts += [
        int(table.start_ns.min()) for table in (trace.operations, trace.api, trace.ranges, trace.os_calls) if len(table)
    ]
    starts += [example.start_ns for finding in report.findings for example in finding.examples]
    return min(starts, default=0)


def _verdict(verdict: Verdict, window_ns: int, left: sentences.Left | None = None) -> dict[str, Value]:
    texts = {
        "why": verdict.because,
        "outlook": sentences.outlook(verdict, window_ns, left),
        "next best": sentences.next_best(verdict, window_ns, left),
        "confidence": sentences.confidence(verdict, left),
    }
    return {name: text for name, text in texts.items() if text}


class _Tracks(Struct, frozen=True):
    """What is written on which track."""

    writer: Writer
    report: Report
    timeline: Timeline
    regions: Int64Array  # the number of each region's path among the writer's texts
    lanes: Mapping[tuple[str, int], AccountLane]  # by kind and id

    def write(self, earliest_ns: int) -> None:
        trace = self.timeline.trace
        self._findings(min((device.low_ns for device in self.timeline.devices), default=earliest_ns))
        for number in np.unique(trace.operations.device).tolist():
            self._device(number)
        processes: dict[int, int] = {}
        for number, thread in enumerate(trace.threads):
            stage.check()
            ranges, calls, os_calls = (table.rows_of(number) for table in (trace.ranges, trace.api, trace.os_calls))
            if all(rows.start == rows.stop for rows in (ranges, calls, os_calls)):
                continue
            if thread.process not in processes:
                process = trace.processes[thread.process]
                processes[thread.process] = self.writer.process(process.pid, process.name)
            track = self.writer.thread(processes[thread.process], thread.pid, thread.tid, thread.name)
            self._ranges(track, ranges)
            self._calls(track, number)
            os_table = trace.os_calls.take(os_calls)
            if len(os_table):
                name = self.writer.names.add_all(trace.names, os_table.name)
                slices = Slices(os_table.start_ns, os_table.end_ns, name)
                self.writer.slices("OS runtime", track, _Track.OS_CALLS, slices, nested=True)
            self._thread_account(track, number)

    def _findings(self, otherwise_ns: int) -> None:
        """Each finding at its examples, or where the first window starts."""
        if not self.report.findings:
            return
        what = "What to change, best saving first, at examples of where it costs"
        track = self.writer.track("boundby findings", told=what)
        for rank, finding in enumerate(self.report.findings, 1):
            facts: dict[str, Value] = {"rank": rank, "rule": finding.rule, "severity": finding.severity}
            if finding.region is not None:
                facts["region"] = region_name(finding.region)
            if finding.saving_ns is not None:
                facts |= {"saving_low_ns": finding.saving_ns[0], "saving_high_ns": finding.saving_ns[1]}
            facts |= {f"advice {number}": text for number, text in enumerate(finding.advice, 1)}
            facts["docs"] = finding.docs
            for example in finding.examples:
                shown = {**facts, "example": example.what, "duration_ns": example.duration_ns}
                self.writer.instant(track, example.start_ns, finding.title, shown)
            if not finding.examples:
                self.writer.instant(track, otherwise_ns, finding.title, facts)

    def _device(self, number: int) -> None:
        gpu = self.timeline.trace.gpus[number]
        track = self.writer.track(f"GPU {gpu.id} {gpu.name}".strip(), ordered=True)
        account = next((device for device in self.timeline.devices if device.index == number), None)
        judged = next((device for device in self.report.devices if device.id == gpu.id), None)
        if account is not None and judged is not None:
            left = sentences.left(self.report, judged)
            facts = _verdict(judged.verdict, judged.window_ns, left) | {"clock_shift_ns": judged.clock_shift_ns}
            self._account(track, account, str(sentences.headline(judged.verdict, sentences.gpu(judged))), facts)
        self._utilization(track, ("device", gpu.id))
        self._counters(track, number)
        self._streams(track, number)

    def _thread_account(self, track: int, number: int) -> None:
        """Without GPU work: the thread's verdict and causes."""
        thread = self.timeline.trace.threads[number]
        account = next((account for account in self.timeline.threads if account.thread == number), None)
        judged = next((item for item in self.report.threads if (item.pid, item.tid) == (thread.pid, thread.tid)), None)
        if account is not None and judged is not None:
            sentence = str(sentences.headline(judged.verdict, sentences.thread(judged)))
            self._account(track, account, sentence, _verdict(judged.verdict, judged.total_ns))
            self._utilization(track, ("thread", thread.tid))

    def _account(
        self, parent: int, account: DeviceTimeline | ThreadAccount, sentence: str, facts: Mapping[str, Value]
    ) -> None:
        """The verdict over the window, and its causes: a slice for each stretch of one cause and one region."""
        track = self.writer.track("verdict", parent, _Track.VERDICT)
        facts = {**facts, "clock_offset_ns": self.writer.offset_ns}
        self.writer.span(track, account.low_ns, account.high_ns, sentence, facts)
        if len(account.segments):
            joined = account.segments.joined()
            labels = [self.writer.names.add(f"{row.letter} {row.label}") for row in CAUSE_INFO.values()]
            texts = {"region": self.regions[joined.region]}
            slices = Slices(joined.start_ns, joined.end_ns, np.array(labels, np.int64)[joined.cause], texts=texts)
            what = "Each instant of the window has exactly one cause"
            self.writer.slices("causes", parent, _Track.CAUSES, slices, told=what)

    def _utilization(self, parent: int, key: tuple[str, int]) -> None:
        """Utilization in the bins of the plot data; 0 outside the window."""
        lane = self.lanes.get(key)
        if lane is None:
            return
        for name, rank, value in (
            ("GPU utilization", _Track.GPU_BUSY, lane.gpu_utilization if lane.kind == "device" else None),
            ("CPU utilization", _Track.CPU_BUSY, lane.cpu_utilization),
        ):
            if value is not None:
                percent = np.append(100 * np.nan_to_num(value), 0.0)
                self.writer.counter(name, parent, rank, lane.bins.edges_ns, percent)

    def _counters(self, parent: int, device: int) -> None:
        """The GPU's counters, sample by sample, and what is allocated; of very many, every so many."""
        samples = self.timeline.trace.metric_samples
        rows = np.flatnonzero(samples.device == device)
        rows = rows[:: max(-(-len(rows) // DRAWN), 1)]
        for column, name in METRIC_WORDS.items():
            percent = getattr(samples, column)[rows]
            if (percent >= 0).any():
                told = percent >= 0
                self.writer.counter(
                    name, parent, _Track.COUNTED, samples.start_ns[rows][told], percent[told].astype(float)
                )
        points = self.timeline.trace.memory
        rows = np.flatnonzero(points.device == device)
        rows = rows[:: max(-(-len(rows) // DRAWN), 1)]
        if len(rows):
            megabytes = points.allocated[rows] / 1e6
            self.writer.counter("memory in use", parent, _Track.COUNTED, points.start_ns[rows], megabytes, "MB")

    def _streams(self, parent: int, device: int) -> None:
        """The operations of each stream; of each process where several have one of that number."""
        trace = self.timeline.trace
        table = trace.operations
        of_device = np.flatnonzero(table.device == device)
        several = len(np.unique(table.process[of_device])) > 1
        stream = table.stream[of_device].astype(np.int64) * (len(trace.processes) + 1) + table.process[of_device]
        for rank, key in enumerate(np.unique(stream).tolist()):
            rows = of_device[stream == key]
            number, process = int(table.stream[rows[0]]), int(table.process[rows[0]])
            name = "no stream" if number == NO_STREAM else f"stream {number}"
            if several and process >= 0:
                name += f" (process {trace.processes[process].pid})"
            self.writer.slices(name, parent, _Track.STREAMS + rank, self._operations(rows))

    def _operations(self, rows: npt.NDArray[np.intp]) -> Slices:
        """Kernels by their names; copies by what they are: "memcpy HtoD"."""
        table = self.timeline.trace.operations.take(rows)
        name = self.writer.names.add_all(self.timeline.trace.names, table.name)
        for kind, word in COPY_WORD.items():
            for direction in np.unique(table.direction[table.kind == kind]).tolist():
                chosen = (table.kind == kind) & (table.direction == direction)
                name[chosen] = self.writer.names.add(f"{word} {DIRECTIONS[direction]}".strip())
        direction_text = np.array([self.writer.texts.add(text or "other") for text in DIRECTIONS], np.int64)
        memory_text = np.array([self.writer.texts.add(text) for text in MEMORY_KINDS], np.int64)
        is_copy = (table.kind == OpKind.MEMCPY) | (table.kind == OpKind.MIGRATION)
        return Slices(
            start_ns=table.start_ns,
            end_ns=table.end_ns,
            name=name,
            texts={
                "region": self.regions[self.timeline.launch_region[rows]],
                "direction": np.where(is_copy, direction_text[table.direction], -1),
                "source": np.where(is_copy, memory_text[table.source], -1),
                "target": np.where(is_copy, memory_text[table.target], -1),
            },
            numbers={
                "bytes": np.where(is_copy | (table.kind == OpKind.MEMSET), np.maximum(table.bytes, 0), -1),
                "correlation": np.where(table.correlation == NO_CORRELATION, -1, table.correlation),
            },
            flow=self.timeline.calls.of_operation[rows].astype(np.int64) + 1,
        )

    def _ranges(self, track: int, rows: slice) -> None:
        """Push/pop ranges nest; start/end ranges lie across each other as they like."""
        trace = self.timeline.trace
        every = trace.ranges.take(rows)
        region = self.regions[self.timeline.ownership.regions.of_range[rows]]
        for name, rank, is_start_end in (
            ("NVTX", _Track.RANGES, False),
            ("NVTX start/end", _Track.PROCESS_RANGES, True),
        ):
            chosen = every.is_start_end == is_start_end
            if chosen.any():
                table = every.take(chosen)
                domain = self.writer.texts.add_all(trace.domains, table.domain, unnamed="default")
                label = self.writer.names.add_all(trace.names, table.name)
                texts = {"region": region[chosen], "domain": domain}
                slices = Slices(table.start_ns, table.end_ns, label, texts=texts)
                self.writer.slices(name, track, rank, slices, nested=not is_start_end)

    def _calls(self, track: int, thread: int) -> None:
        calls = self.timeline.trace.api.of_thread(thread)
        if len(calls):
            name = self.writer.names.add_all(self.timeline.trace.names, calls.name)
            correlation = {"correlation": np.maximum(calls.correlation, 0).astype(np.int64)}
            flow = _flows(self.timeline, thread, calls.start_ns, calls.end_ns)
            slices = Slices(calls.start_ns, calls.end_ns, name, correlation, flow=flow)
            self.writer.slices("CUDA API", track, _Track.CALLS, slices, nested=True)


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
