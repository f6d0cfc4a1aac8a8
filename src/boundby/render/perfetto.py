"""Report and timeline -> a trace for ui.perfetto.dev: what ran, and beside it what boundby makes of it.

Tracks, slices, instants and counters go into the file a bounded part at a time. The perfetto package, which is
imported only then, makes what is rare: tracks, texts, counters, verdicts, findings. A packet made with it takes
some 4 us, half a minute for the eight million of a trace with a million kernels; so the events of slices are made
by columns: each byte of their protobuf messages is a NumPy array with a row for each event. That takes a sixth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from boundby.document import sentences
from boundby.document.blocks import clean, region_name
from boundby.model import stage
from boundby.model.arrays import Int64Array
from boundby.model.causes import CAUSE_INFO
from boundby.model.errors import UserError
from boundby.model.intervals import first_free_lanes
from boundby.model.scale import DRAWN, ROOM
from boundby.trace.tables import NO_CORRELATION, NO_STREAM, Direction, MemoryKind, OpKind
from boundby.trace.vocabulary.profiler import WORDS as METRIC_WORDS

if TYPE_CHECKING:
    from boundby.attribution.account import ThreadAccount
    from boundby.attribution.timeline import DeviceTimeline, Timeline
    from boundby.results.plot_data import AccountLane, PlotData
    from boundby.results.report import Report, Verdict


BoolArray = npt.NDArray[np.bool_]
Value = str | int | float | bool
Byte = tuple[npt.NDArray[np.uint8] | np.uint8, BoolArray]  # one byte of every message, and which messages have it


class _Sequence(IntEnum):
    """Tracks are described by one of their own: events of a writer that describes a thread would be taken for its."""

    EVENTS = 1
    DESCRIPTIONS = 2


def protos() -> Any:
    """Perfetto's message types. Raises UserError where the package is not installed."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        message = "Writing a Perfetto trace needs the perfetto package, which is not installed."
        raise UserError(message, "Run: pip install perfetto") from error
    return perfetto_trace_pb2


class InternedTexts:
    """Texts that packets name by number. ``new`` gives those added since it was last asked, to be written first."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._written = 0

    def add(self, text: str) -> int:
        """The number of a text, counted from 1."""
        return self._number.setdefault(text, len(self._number) + 1)

    def add_all(self, texts: Sequence[str], used: npt.NDArray[Any], *, unnamed: str = "(unnamed)") -> Int64Array:
        """Numbers for ``texts[used]``; only texts that are used are kept, in an order of their own, whatever that of
        ``texts``. Text from traces is made harmless."""
        distinct, inverse = np.unique(used, return_inverse=True)
        named = [(clean(texts[index]).strip() if index >= 0 else "") or unnamed for index in distinct.tolist()]
        for name in sorted(named):
            self.add(name)
        return np.array([self.add(name) for name in named], np.int64)[inverse]

    def new(self) -> list[tuple[int, str]]:
        """(number, text) of the texts not yet written."""
        added = [(number, text) for text, number in list(self._number.items())[self._written :]]
        self._written = len(self._number)
        return added


class Slices(Struct, frozen=True):
    """What is drawn on one track, in order of start, then -end; columns of equal length.

    ``numbers`` and ``texts`` (numbers of Writer.texts) are shown with each slice by name; a negative one is not. An
    arrow runs through all slices that carry the same ``flow`` (0: none), in order of start.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    name: Int64Array  # numbers of Writer.names
    numbers: Mapping[str, Int64Array] = field(default_factory=dict)
    texts: Mapping[str, Int64Array] = field(default_factory=dict)
    flow: Int64Array | None = None


class Writer(Struct, dict=True):
    """Writes one trace. ``offset_ns`` is added to all times, so that none is negative."""

    file: IO[bytes]
    offset_ns: int
    names: InternedTexts = field(default_factory=InternedTexts)
    texts: InternedTexts = field(default_factory=InternedTexts)
    _argument_names: InternedTexts = field(default_factory=InternedTexts)
    _tracks: int = 0

    def __post_init__(self) -> None:
        self._proto = protos()
        state = self._proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._put(self._packet(sequence_flags=state, first_packet_on_sequence=True))

    def track(
        self, name: str = "", parent: int = 0, rank: int = 0, *, ordered: bool = False, told: str = "", **kind: object
    ) -> int:
        """A new track under ``parent`` (0: at the top); its number. ``ordered``: its children stand by ``rank``.

        ``kind``: the descriptor of a ``process``, ``thread`` or ``counter``.
        """
        self._tracks += 1
        packet = self._proto.TracePacket(trusted_packet_sequence_id=_Sequence.DESCRIPTIONS)
        described = packet.track_descriptor
        described.uuid = self._tracks
        if name:
            described.name = clean(name)
        if parent:
            described.parent_uuid = parent
        if told:
            described.description = clean(told)
        if rank:
            described.sibling_order_rank = rank
        if ordered:
            described.child_ordering = self._proto.TrackDescriptor.EXPLICIT
        for part, descriptor in kind.items():
            getattr(described, part).CopyFrom(descriptor)
        self._put(packet)
        return self._tracks

    def process(self, pid: int, name: str) -> int:
        """The track of a process."""
        return self.track(process=self._proto.ProcessDescriptor(pid=pid, process_name=clean(name)))

    def thread(self, process: int, pid: int, tid: int, name: str) -> int:
        """The track of a thread under that of its process; its children stand by rank."""
        described = self._proto.ThreadDescriptor(pid=pid, tid=tid, thread_name=clean(name))
        return self.track("", process, ordered=True, thread=described)

    def counter(
        self, name: str, parent: int, rank: int, time_ns: Int64Array, values: npt.NDArray[np.float64], unit: str = "%"
    ) -> None:
        """A counter, in percent or another unit, from values that hold from their time on."""
        track = self.track(name, parent, rank, counter=self._proto.CounterDescriptor(unit_name=unit))
        for time, value in zip(time_ns.tolist(), values.tolist(), strict=True):
            packet = self._event(track, self._proto.TrackEvent.TYPE_COUNTER, time)
            packet.track_event.double_counter_value = value
            self._put(packet)

    def instant(self, track: int, time_ns: int, name: str, arguments: Mapping[str, Value]) -> None:
        """One instant."""
        self._put(self._event(track, self._proto.TrackEvent.TYPE_INSTANT, time_ns, name, arguments))

    def span(self, track: int, start_ns: int, end_ns: int, name: str, arguments: Mapping[str, Value]) -> None:
        """One slice, alone on its track or after the others."""
        self._put(self._event(track, self._proto.TrackEvent.TYPE_SLICE_BEGIN, start_ns, name, arguments))
        self._put(self._event(track, self._proto.TrackEvent.TYPE_SLICE_END, end_ns))

    def slices(
        self, name: str, parent: int, rank: int, slices: Slices, *, nested: bool = False, told: str = ""
    ) -> None:
        """A track of slices, and as many more of its name as slices overlap that must not: viewers draw them as one.

        ``nested``: a slice may lie inside another.
        """
        start, end = slices.start_ns, slices.end_ns
        lane = nested_lanes(start, end) if nested else first_free_lanes(start, end)
        arguments = [
            (self._argument_names.add(label), proto_field, values)
            for proto_field, columns in (("uint_value", slices.numbers), ("string_value_iid", slices.texts))
            for label, values in columns.items()
        ]
        self._put_texts()
        for number in range(int(lane.max(initial=-1)) + 1):
            track = self.track(name, parent, rank, told=told)
            rows = np.flatnonzero(lane == number)
            row, is_begin = event_order(start[rows], end[rows])
            row = rows[row]
            for low in range(0, len(row), ROOM):
                part = slice(low, low + ROOM)
                self.file.write(self._events(track, slices, arguments, row[part], is_begin[part]))

    def _events(
        self,
        track: int,
        slices: Slices,
        arguments: Sequence[tuple[int, str, Int64Array]],
        row: npt.NDArray[np.intp],
        is_begin: BoolArray,
    ) -> bytes:
        """The packets in which slices begin and end; each field as a column, shown by the events that have it."""
        proto = self._proto
        packet_type, event_type, argument_type = proto.TracePacket, proto.TrackEvent, proto.DebugAnnotation
        every = np.ones(len(row), bool)
        kind = np.where(is_begin, event_type.TYPE_SLICE_BEGIN, event_type.TYPE_SLICE_END)
        event = _number(event_type, "type", kind, every) + _number(event_type, "track_uuid", track, every)
        event += _number(event_type, "name_iid", slices.name[row], is_begin)
        for name_iid, proto_field, values in arguments:
            shown = is_begin & (values[row] >= 0)
            name_and_value = _number(argument_type, "name_iid", name_iid, shown)
            name_and_value += _number(argument_type, proto_field, np.maximum(values[row], 0), shown)
            event += _message(event_type, "debug_annotations", name_and_value, shown)
        if slices.flow is not None:
            flow = slices.flow[row]
            event += _fixed64(event_type, "flow_ids", flow, is_begin & (flow > 0))
        time = np.where(is_begin, slices.start_ns[row], slices.end_ns[row]) + self.offset_ns
        packet = _number(packet_type, "timestamp", time, every)
        packet += _number(packet_type, "trusted_packet_sequence_id", _Sequence.EVENTS, every)
        packet += _number(packet_type, "sequence_flags", packet_type.SEQ_NEEDS_INCREMENTAL_STATE, every)
        packet += _message(packet_type, "track_event", event, every)
        return _joined(_message(proto.Trace, "packet", packet, every))

    def _packet(self, **fields: object) -> Any:
        return self._proto.TracePacket(trusted_packet_sequence_id=_Sequence.EVENTS, **fields)

    def _event(
        self, track: int, kind: int, time_ns: int, name: str = "", arguments: Mapping[str, Value] | None = None
    ) -> Any:
        needs = self._proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        packet = self._packet(timestamp=time_ns + self.offset_ns, sequence_flags=needs)
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        if name:
            packet.track_event.name = clean(name)
        for key, value in (arguments or {}).items():
            annotation = packet.track_event.debug_annotations.add(name=clean(key))
            if isinstance(value, str):
                annotation.string_value = clean(value)
            else:
                kinds = {bool: "bool_value", int: "int_value", float: "double_value"}
                setattr(annotation, kinds[type(value)], value)
        return packet

    def _put_texts(self) -> None:
        packet = self._packet(sequence_flags=self._proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE)
        data = packet.interned_data
        for number, text in self.names.new():
            data.event_names.add(iid=number, name=text)
        for number, text in self._argument_names.new():
            data.debug_annotation_names.add(iid=number, name=text)
        for number, text in self.texts.new():
            data.debug_annotation_string_values.add(iid=number, str=text.encode("utf-8"))
        if data.ByteSize():
            self._put(packet)

    def _put(self, packet: Any) -> None:
        """A trace is the concatenation of traces of one packet."""
        self.file.write(self._proto.Trace(packet=[packet]).SerializeToString())


class Wire(IntEnum):
    """Protobuf's wire types."""

    VARINT = 0
    FIXED64 = 1
    LENGTH = 2


def _number(message: Any, name: str, value: Int64Array | int, shown: BoolArray) -> list[Byte]:
    """A field that is a varint, of ``message``'s type."""
    return _tag(message, name, Wire.VARINT, shown) + _varint(value, shown)


def _fixed64(message: Any, name: str, value: Int64Array, shown: BoolArray) -> list[Byte]:
    data = value.astype("<u8").view(np.uint8).reshape(-1, 8)
    return _tag(message, name, Wire.FIXED64, shown) + [(data[:, byte], shown) for byte in range(8)]


def _message(message: Any, name: str, content: Sequence[Byte], shown: BoolArray) -> list[Byte]:
    """A field that is a message of its own."""
    length = np.zeros(len(shown), np.int16)
    for _, has_it in content:
        length += has_it
    return [*_tag(message, name, Wire.LENGTH, shown), *_varint(length.astype(np.int64), shown), *content]


def _tag(message: Any, name: str, wire_type: int, shown: BoolArray) -> list[Byte]:
    return _varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | wire_type, shown)


def _varint(value: Int64Array | int, shown: BoolArray) -> list[Byte]:
    """The bytes of integers that are not negative: seven bits each, the lowest first, all but the last marked."""
    if isinstance(value, int):
        septets = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
        return [(np.uint8(septet | 0x80), shown) for septet in septets[:-1]] + [(np.uint8(septets[-1]), shown)]
    content: list[Byte] = []
    while not content or shown.any():
        more = value > 0x7F
        byte = value.astype(np.uint8)  # its lowest eight bits
        content.append((np.where(more, byte | 0x80, byte), shown))
        value, shown = value >> 7, shown & more
    return content


def _joined(content: Sequence[Byte]) -> bytes:
    """All messages, one after another."""
    data = np.empty((len(content[0][1]), len(content)), np.uint8)
    shown = np.empty(data.shape, bool)
    for column, (byte, has_it) in enumerate(content):
        data[:, column], shown[:, column] = byte, has_it
    return data[shown].tobytes()


def nested_lanes(start: Int64Array, end: Int64Array) -> Int64Array:
    """A lane for each slice (in order of start, then -end): two slices of a lane lie one inside the other or apart.

    Push/pop ranges and calls nest by nature, so that one lane nearly always does.
    """
    lane = np.zeros(len(start), np.int64)
    if len(start) < 2 or bool((start[1:] >= np.maximum.accumulate(end)[:-1]).all()):
        return lane
    stacks: list[list[int]] = []  # ends of the open slices, innermost last
    for row, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for chosen, stack in enumerate(stacks):
            while stack and stack[-1] <= begin:
                stack.pop()
            if not stack or until <= stack[-1]:
                stack.append(until)
                lane[row] = chosen
                break
        else:
            lane[row] = len(stacks)
            stacks.append([until])
    return lane


def event_order(start: Int64Array, end: Int64Array) -> tuple[npt.NDArray[np.intp], BoolArray]:
    """In what order the slices of a lane (in order of start, then -end; properly nested) begin and end: the row of
    each event, and whether it begins.

    At one instant the inner ends come before the outer ones, both before what begins there, and a slice without
    length begins and ends at once.
    """
    rows = np.arange(len(start))
    instant = end <= start
    late = np.concatenate((np.ones(len(rows), bool), instant))
    within = np.concatenate((2 * rows, np.where(instant, 2 * rows + 1, -rows)))
    order = np.lexsort((within, late, np.concatenate((start, end))))
    return np.concatenate((rows, rows))[order], order < len(rows)


# What of a report is written on which track.

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
                is_known = percent >= 0
                self.writer.counter(
                    name, parent, _Track.COUNTED, samples.start_ns[rows][is_known], percent[is_known].astype(float)
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
        index = np.minimum(np.searchsorted(calls.end_ns[span], end), span.stop - span.start - 1)
        same = (calls.end_ns[span][index] == end) & (calls.start_ns[span][index] >= start)
        flow[same & launched[span][index]] = index[same & launched[span][index]] + span.start + 1
        _, first = np.unique(flow, return_index=True)
        keep = np.zeros(len(flow), bool)
        keep[first] = True
        flow[~keep] = 0
    return flow
