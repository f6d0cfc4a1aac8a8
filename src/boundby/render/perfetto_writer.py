"""Tracks, slices, instants and counters into a Perfetto trace file, a bounded part of it in memory at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from boundby.render.perfetto_lanes import disjoint_lanes, events, nested_lanes
from boundby.render.perfetto_packets import (
    DESCRIPTIONS,
    SEQUENCE,
    Marks,
    Template,
    Texts,
    framed,
    interleave,
    protos,
    width_of,
)
from boundby.render.text import clean, valid
from boundby.trace.tables import Process, Thread

Int = npt.NDArray[np.int64]
Value = str | int | float | bool

CHUNK = 100_000  # events stamped at once: some 50 MB


@dataclass(frozen=True)
class Argument:
    """A column of values shown with each slice: numbers, or numbers of texts (``is_text``)."""

    name: str
    value: Int
    is_text: bool = False


@dataclass(frozen=True)
class Slices:
    """What is drawn on one track, in order of start, then -end; columns of equal length.

    ``kind`` chooses the arguments that a slice carries: ``kinds[kind]`` are their names. An arrow runs through all
    slices that carry the same ``flow`` (0: none), in order of start.
    """

    start_ns: Int
    end_ns: Int
    name: Int  # numbers of Writer.names
    kind: Int
    kinds: tuple[tuple[str, ...], ...]
    arguments: Mapping[str, Argument]
    flow: Int

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, rows: npt.NDArray[Any]) -> Slices:
        chosen = {
            key: Argument(column.name, column.value[rows], column.is_text) for key, column in self.arguments.items()
        }
        columns = (self.start_ns[rows], self.end_ns[rows], self.name[rows], self.kind[rows])
        return Slices(*columns, self.kinds, chosen, self.flow[rows])


@dataclass
class Writer:
    """Writes one trace. ``offset_ns`` is added to all times, so that none is negative; ``latest_ns`` bounds them."""

    file: IO[bytes]
    offset_ns: int
    latest_ns: int
    names: Texts = field(default_factory=Texts)
    texts: Texts = field(default_factory=Texts)
    _argument_names: Texts = field(default_factory=Texts)
    _tracks: int = 0

    def __post_init__(self) -> None:
        self._proto = protos()
        self._time_width = width_of(self.latest_ns + self.offset_ns)
        first = self._packet()
        first.sequence_flags = self._proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        first.first_packet_on_sequence = True
        self._put(first)

    def track(self, name: str = "", parent: int = 0, rank: int = 0, *, ordered: bool = False, told: str = "") -> int:
        """A new track under ``parent`` (0: at the top); its number. ``ordered``: its children stand by ``rank``."""
        return self._describe(name, parent, rank, ordered=ordered, told=told)

    def process(self, process: Process) -> int:
        """The track of a process."""
        described = self._proto.ProcessDescriptor(pid=process.pid, process_name=clean(process.name))
        return self._describe("", 0, 0, ordered=False, process=described)

    def thread(self, process: int, thread: Thread) -> int:
        """The track of a thread of a process, whose children stand by rank."""
        described = self._proto.ThreadDescriptor(pid=thread.pid, tid=thread.tid, thread_name=clean(thread.name))
        return self._describe("", process, 0, ordered=True, thread=described)

    def counter(self, name: str, parent: int, rank: int, time_ns: Int, value: npt.NDArray[np.float64]) -> None:
        """A counter in percent, from values that hold from their time on."""
        described = self._proto.CounterDescriptor(unit_name="%")
        track = self._describe(name, parent, rank, ordered=False, counter=described)
        for time, number in zip(time_ns.tolist(), value.tolist(), strict=True):
            packet = self._event(track, self._proto.TrackEvent.TYPE_COUNTER, time)
            packet.track_event.double_counter_value = number
            self._put(packet)

    def instant(self, track: int, time_ns: int, name: str, arguments: Mapping[str, Value]) -> None:
        """One instant."""
        packet = self._event(track, self._proto.TrackEvent.TYPE_INSTANT, time_ns)
        self._tell(packet, name, arguments)
        self._put(packet)

    def span(self, track: int, start_ns: int, end_ns: int, name: str, arguments: Mapping[str, Value]) -> None:
        """One slice, alone on its track or after the others."""
        packet = self._event(track, self._proto.TrackEvent.TYPE_SLICE_BEGIN, start_ns)
        self._tell(packet, name, arguments)
        self._put(packet)
        self._put(self._event(track, self._proto.TrackEvent.TYPE_SLICE_END, end_ns))

    def slices(
        self, name: str, parent: int, rank: int, slices: Slices, overlap: Literal["nest", "apart"], told: str = ""
    ) -> None:
        """A track of slices, and as many more of its name as slices overlap that must not: viewers draw them as one.

        ``nest``: a slice may lie inside another; ``apart``: it may not.
        """
        lane = (nested_lanes if overlap == "nest" else disjoint_lanes)(slices.start_ns, slices.end_ns)
        for number in range(int(lane.max(initial=-1)) + 1):
            track = self._describe(name, parent, rank, ordered=False, told=told)
            self._lane(track, slices if lane.max() == 0 else slices.take(np.flatnonzero(lane == number)))

    def _lane(self, track: int, slices: Slices) -> None:
        ends = self._end_template(track)
        begins: dict[tuple[int, bool], Template] = {}
        order = events(slices.start_ns, slices.end_ns)
        key = slices.kind * 2 + (slices.flow != 0)
        numbers = {name: self._argument_names.add(column.name) for name, column in slices.arguments.items()}
        self._put_texts()
        for low in range(0, len(order.time), CHUNK):
            time, row = order.time[low : low + CHUNK] + self.offset_ns, order.row[low : low + CHUNK]
            is_begin = order.is_begin[low : low + CHUNK]
            places = np.flatnonzero(~is_begin)
            parts = [(places, ends.stamp({"time": time[places]}, len(places)))]
            for group in np.unique(key[row[is_begin]]).tolist():
                kind, flows = group // 2, bool(group % 2)
                if (kind, flows) not in begins:
                    begins[kind, flows] = self._begin_template(track, slices, kind, flows, numbers)
                places = np.flatnonzero(is_begin & (key[row] == group))
                rows = row[places]
                columns = {name: slices.arguments[name].value[rows] for name in slices.kinds[kind]}
                columns |= {"time": time[places], "name": slices.name[rows], "flow": slices.flow[rows]}
                parts.append((places, begins[kind, flows].stamp(columns, len(places))))
            self.file.write(interleave(len(time), parts))

    def _begin_template(
        self, track: int, slices: Slices, kind: int, flows: bool, numbers: Mapping[str, int]
    ) -> Template:
        marks = Marks()
        packet = self._event(track, self._proto.TrackEvent.TYPE_SLICE_BEGIN, marks.varint("time", self._time_width))
        packet.timestamp -= self.offset_ns
        event = packet.track_event
        event.name_iid = marks.varint("name", width_of(int(slices.name.max())))
        for name in slices.kinds[kind]:
            column = slices.arguments[name]
            mark = marks.varint(name, width_of(int(column.value.max())))
            annotation = event.debug_annotations.add(name_iid=numbers[name])
            if column.is_text:
                annotation.string_value_iid = mark
            else:
                annotation.uint_value = mark
        if flows:
            event.flow_ids.append(marks.fixed("flow"))
        return Template(packet, marks)

    def _end_template(self, track: int) -> Template:
        marks = Marks()
        packet = self._event(track, self._proto.TrackEvent.TYPE_SLICE_END, marks.varint("time", self._time_width))
        packet.timestamp -= self.offset_ns
        return Template(packet, marks)

    def _describe(self, name: str, parent: int, rank: int, *, ordered: bool, told: str = "", **special: object) -> int:
        self._tracks += 1
        packet = self._proto.TracePacket(trusted_packet_sequence_id=DESCRIPTIONS)
        described = packet.track_descriptor
        described.uuid = self._tracks
        if name:
            described.name = clean(name)
        if told:
            described.description = clean(told)
        if parent:
            described.parent_uuid = parent
        if rank:
            described.sibling_order_rank = rank
        if ordered:
            described.child_ordering = self._proto.TrackDescriptor.EXPLICIT
        for part, value in special.items():
            getattr(described, part).CopyFrom(value)
        self._put(packet)
        return self._tracks

    def _packet(self) -> Any:
        return self._proto.TracePacket(trusted_packet_sequence_id=SEQUENCE)

    def _event(self, track: int, kind: int, time_ns: int) -> Any:
        packet = self._packet()
        packet.timestamp = time_ns + self.offset_ns
        packet.sequence_flags = self._proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet

    def _tell(self, packet: Any, name: str, arguments: Mapping[str, Value]) -> None:
        packet.track_event.name = clean(name)
        for key, value in arguments.items():
            annotation = packet.track_event.debug_annotations.add(name=valid(key))
            if isinstance(value, bool):
                annotation.bool_value = value
            elif isinstance(value, int):
                annotation.int_value = value
            elif isinstance(value, float):
                annotation.double_value = value
            else:
                annotation.string_value = valid(value)

    def _put_texts(self) -> None:
        packet = self._packet()
        packet.sequence_flags = self._proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
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
        self.file.write(framed(packet))


def plain_slices(
    start_ns: Int, end_ns: Int, name: Int, arguments: Sequence[Argument] = (), *, flow: Int | None = None
) -> Slices:
    """Slices that all carry the same arguments."""
    named = {argument.name: argument for argument in arguments}
    nothing = np.zeros(len(start_ns), np.int64)
    return Slices(start_ns, end_ns, name, nothing, (tuple(named),), named, nothing if flow is None else flow)
