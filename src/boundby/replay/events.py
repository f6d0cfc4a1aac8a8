"""Dependencies between streams: recorded CUDA events, and the rules of the legacy default stream.

The events that a replay passes over are others: see `boundby.replay.graph.Graph.order`.

What an event meant is read from the capture's own rows where it has them. Some captures lack the records; then the
record before a wait on the same thread is taken, of the stream on which that thread had launched last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.timeline import Timeline
from boundby.model import stage
from boundby.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array, as_rows, is_any, ranked, unique
from boundby.model.late import expression
from boundby.model.scale import CLOCK_ERROR_NS, PLENTY, QUARTER, ROOM
from boundby.native.passes import NONE
from boundby.replay.streams import SWITCH_LIMIT_NS, StreamQueues
from boundby.trace.tables import StreamRole, Trace

# An event is taken to be of the stream that explains so many of the waits for it.
VOTES_FRACTION = QUARTER
# Events times streams up to which that is tried.
MOST_VOTES = 10_000_000


#: The latest operation to wait for (a row) of each stream (its key).
_Latest = dict[int, int]


class Command(IntEnum):
    """What a call does with streams and events."""

    OTHER = 0
    RECORD = 1
    STREAM_WAIT = 2
    EVENT_SYNC = 3
    STREAM_SYNC = 4
    DEVICE_SYNC = 5


_COMMANDS = (
    (Command.RECORD, expression(r"EventRecord")),
    (Command.STREAM_WAIT, expression(r"StreamWaitEvent")),
    (Command.EVENT_SYNC, expression(r"EventSynchronize")),
    (Command.STREAM_SYNC, expression(r"StreamSynchronize")),
    (Command.DEVICE_SYNC, expression(r"(?:Device|Ctx|Thread)Synchronize")),
)


def command_of(name: str) -> Command:
    """What a call of this name does."""
    return next((command for command, pattern in _COMMANDS if pattern.search(name)), Command.OTHER)


class Edges(NamedTuple):
    """Pairs: ``who`` (an operation or a call) waits for the end of operation ``what``."""

    who: npt.NDArray[np.integer]
    what: npt.NDArray[np.integer]


class Points(Struct, frozen=True):
    """What is told of each call in Calls: columns of its length; NONE where nothing is."""

    command: Int8Array
    stream: Int64Array
    event: Int64Array
    device: Int32Array
    process: Int32Array


def read_points(timeline: Timeline) -> Points:
    """Join the capture's rows on streams and events with the calls they belong to."""
    calls, trace = timeline.calls, timeline.trace
    rows = trace.stream_points
    command_of_name = np.full(len(trace.names) + 1, int(Command.OTHER), np.int8)
    numbers = unique(calls.name)
    numbers = numbers[numbers >= 0]
    command_of_name[numbers] = [int(command_of(trace.names[number])) for number in numbers.tolist()]
    command = command_of_name[calls.name]
    has_point = as_rows(calls.of_point >= 0)

    def told(values: npt.NDArray[Any], kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
        column = np.full(len(calls), NONE, kind)
        column[calls.of_point[has_point]] = values[has_point]
        return column

    process = trace.process_of(calls.thread).astype(np.int32)
    stream, event, device = told(rows.stream, np.int64), told(rows.event, np.int64), told(rows.device, np.int32)
    return Points(command, stream, event, device, process)


class Events(Struct, frozen=True):
    """``operations``: between operations of different streams. ``syncs``: calls (rows in Calls) that wait for an
    event, by what had been recorded; ``told``: the calls among them whose event the capture tells."""

    operations: Edges
    syncs: Edges
    told: BoolArray


def resolve_events(timeline: Timeline, points: Points, queues: StreamQueues) -> Events:
    """Follow records, stream waits and event syncs in the order of time, per process."""
    calls = timeline.calls
    is_read = np.zeros(len(calls), bool)
    chosen = np.flatnonzero(
        is_any(points.command, (Command.RECORD, Command.STREAM_WAIT, Command.EVENT_SYNC)) & (points.process >= 0)
    )
    if len(chosen) == 0 or queues.count == 0:
        return Events(_edges({}), _edges({}), is_read)
    chosen = chosen[np.lexsort((calls.start_ns[chosen], points.process[chosen]))]
    key = np.array(
        [
            _key(queues, int(points.device[row]), int(points.process[row]), int(points.stream[row]))
            for row in chosen.tolist()
        ],
        np.int64,
    )
    time = calls.start_ns[chosen]
    untold = (points.command[chosen] != Command.EVENT_SYNC) & (points.stream[chosen] < 0)
    if untold.any():
        is_record = points.command[chosen] == Command.RECORD
        last_key, next_key = _streams_beside(timeline, chosen, queues)
        key = np.where(untold, np.where(is_record, last_key, next_key), key)
        key = _guess_streams(timeline, points, queues, chosen, key, untold & is_record)
    tail, head = queues.tail(key, time), queues.head(key, time)
    followed = _Followed(queues)
    rows = zip(
        chosen.tolist(),
        points.command[chosen].tolist(),
        points.process[chosen].tolist(),
        calls.thread[chosen].tolist(),
        points.event[chosen].tolist(),
        key.tolist(),
        time.tolist(),
        tail.tolist(),
        head.tolist(),
        strict=True,
    )
    for number, (row, command, process, thread, event, stream, at, last, following) in enumerate(rows):
        if number % PLENTY == 0:
            stage.check()
        if command == Command.RECORD:
            followed.record(process, thread, event, stream, last)
        elif command == Command.STREAM_WAIT:
            followed.stream_wait(process, thread, event, stream, at, following)
        else:
            is_read[row] = followed.sync(row, process, event)
    return Events(_edges(followed.operations), _edges(followed.syncs), is_read)


def _guess_streams(
    timeline: Timeline,
    points: Points,
    queues: StreamQueues,
    chosen: npt.NDArray[np.intp],
    key: Int64Array,
    untold: BoolArray,
) -> Int64Array:
    """On which stream each event was recorded of which that is not told: the one whose work was done, time and again,
    just before what waits for the event began; else as given."""
    calls, table = timeline.calls, timeline.trace.operations
    position = np.where(untold, np.arange(len(chosen)), -1)
    latest = np.maximum.accumulate(position)  # the record before each command
    waits = np.flatnonzero(
        (points.command[chosen] == Command.STREAM_WAIT) & (points.event[chosen] >= 0) & (latest >= 0)
    )
    waits = waits[calls.thread[chosen[waits]] == calls.thread[chosen[latest[waits]]]]
    time = calls.start_ns[chosen]
    following = queues.head(key[waits], time[waits])
    waits, following = waits[following >= 0], following[following >= 0]
    event = points.event[chosen[waits]] * (len(timeline.trace.processes) + 1) + points.process[chosen[waits]]
    names, group = ranked(event)
    votes = np.zeros((len(names), queues.count))
    if votes.size > MOST_VOTES:
        return key
    for number in range(queues.count):
        last = queues.tail(np.full(len(waits), number, np.int64), time[latest[waits]])
        gap = table.start_ns[following] - table.end_ns[np.maximum(last, 0)]
        near = (last >= 0) & (key[waits] != number) & (gap >= -CLOCK_ERROR_NS) & (gap <= SWITCH_LIMIT_NS)
        np.add.at(votes[:, number], group[near], 1)
    best = votes.argmax(axis=1)
    sure = votes.max(axis=1, initial=0) >= VOTES_FRACTION * np.bincount(group, minlength=len(names))
    key = key.copy()
    is_sure = sure[group]
    key[latest[waits[is_sure]]] = best[group[is_sure]]
    return key


class _Followed:
    """The state of events and streams at one instant, and the edges found so far. A point to wait for is the latest
    operation of each stream: who waits for it has waited for all before it on that stream."""

    def __init__(self, queues: StreamQueues) -> None:
        self.launched = queues.launched
        self.key = queues.key
        self.recorded: dict[tuple[int, int], _Latest] = {}  # (process, event): what it waits for
        self.latest: dict[int, _Latest] = {}  # thread: its latest record
        self.unnamed: dict[int, _Latest] = {}  # thread: its latest record of an event not told
        self.pending: dict[int, tuple[int, int, _Latest]] = {}  # stream: since when, before what, for what
        self.operations: dict[int, _Latest] = defaultdict(dict)  # operation: what it waits for
        self.syncs: dict[int, _Latest] = {}  # call: what it waits for

    def record(self, process: int, thread: int, event: int, stream: int, last: int) -> None:
        point: _Latest = {stream: last} if last >= 0 else {}
        since, _, waits = self.pending.get(stream, (0, NONE, {}))
        if waits and (last < 0 or self.launched[last] < since):
            point = {**waits, **point}  # nothing was launched since the stream began to wait: so does the event
        self.latest[thread] = point
        if event >= 0:
            self.recorded[process, event] = point
        else:
            self.unnamed[thread] = point

    def stream_wait(self, process: int, thread: int, event: int, stream: int, at: int, following: int) -> None:
        point = self.latest.get(thread) if event < 0 else self.recorded.get((process, event))
        if point is None:
            point = self.unnamed.get(thread, {})
        point = {other: row for other, row in point.items() if other != stream}
        if following >= 0:
            self._add(self.operations[following], point)
        since, before, waits = self.pending.get(stream, (at, following, {}))
        if before == following:  # nothing was launched between that wait and this one
            waits = dict(waits)
            self._add(waits, point)
            self.pending[stream] = since, following, waits
        else:
            self.pending[stream] = at, following, point

    def sync(self, row: int, process: int, event: int) -> bool:
        point = self.recorded.get((process, event))
        if point is None:
            return False
        self.syncs[row] = point
        return True

    def _add(self, waits: _Latest, point: _Latest) -> None:
        """Wait for these, too: of each stream, for the one launched last."""
        for stream, row in point.items():
            if stream not in waits or self.launched[waits[stream]] <= self.launched[row]:
                waits[stream] = row


def _edges(waits: Mapping[int, _Latest]) -> Edges:
    who = np.repeat(np.array(list(waits), np.int64), [len(point) for point in waits.values()])
    what = np.fromiter(chain.from_iterable(point.values() for point in waits.values()), np.int64, len(who))
    return Edges(who, what)


def _key(queues: StreamQueues, device: int, process: int, stream: int) -> int:
    """The number of a stream; where the device is not told, the only one of the process with such a stream."""
    if stream < 0:
        return NONE
    if device >= 0:
        return queues.place.get((device, process, stream), NONE)
    numbers = [number for queue, number in queues.place.items() if queue[1:] == (process, stream)]
    return numbers[0] if len(numbers) == 1 else NONE


def _streams_beside(
    timeline: Timeline, chosen: npt.NDArray[np.intp], queues: StreamQueues
) -> tuple[Int64Array, Int64Array]:
    """For each of these calls the stream on which its thread had launched last, and the one on which it launches next;
    NONE."""
    calls = timeline.calls
    key = np.full(len(calls), NONE, np.int64)
    has_call = calls.of_operation >= 0
    key[calls.of_operation[has_call]] = queues.key[has_call]
    position = np.arange(len(calls))
    last = np.maximum.accumulate(np.where(key >= 0, position, -1))[chosen]
    following = np.minimum.accumulate(np.where(key >= 0, position, len(calls))[::-1])[::-1][chosen]

    def on_thread(found: npt.NDArray[np.intp]) -> Int64Array:
        inside = (found >= 0) & (found < len(calls))
        row = np.where(inside, found, 0)
        return np.where(inside & (calls.thread[row] == calls.thread[chosen]), key[row], NONE)

    return on_thread(last), on_thread(following)


def default_stream_edges(trace: Trace, queues: StreamQueues, before: Int64Array) -> Edges:
    """Work on the null stream waits for all that was launched before on the streams that follow it, and they for it."""
    role = {
        (process, stream): kind
        for process, stream, kind in zip(
            trace.streams.process.tolist(), trace.streams.stream.tolist(), trace.streams.kind.tolist(), strict=True
        )
    }
    groups: dict[tuple[int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for (device, process, stream), number in queues.place.items():
        kind = role.get((process, stream), StreamRole.UNKNOWN)
        if kind == StreamRole.NULL:
            groups[device, process][0].append(number)
        elif kind == StreamRole.FOLLOWS_NULL:
            groups[device, process][1].append(number)
    pairs = [_edges({})]
    for nulls, followers in groups.values():
        behind = np.concatenate([np.empty(0, np.intp), *(queues.rows[follower] for follower in followers)])
        for null in nulls:
            rows = queues.rows[null]
            together = max(ROOM // max(len(rows), 1), 1)  # streams
            for first in range(0, len(followers), together):
                part = np.array(followers[first : first + together], np.int64)
                pairs.append(_waits(queues, before, np.tile(rows, len(part)), np.repeat(part, len(rows))))
            pairs.append(_waits(queues, before, behind, np.full(len(behind), null, np.int64)))
    return Edges(np.concatenate([pair.who for pair in pairs]), np.concatenate([pair.what for pair in pairs]))


def _waits(queues: StreamQueues, before: Int64Array, rows: npt.NDArray[np.intp], other: Int64Array) -> Edges:
    """Each of these operations waits for the last of another stream (one for each row) launched before it; those for
    which an earlier operation of their own stream has waited already are left out."""
    last = queues.tail(other, queues.launched[rows])
    previous = before[rows]
    since = np.where(previous >= 0, queues.launched[np.maximum(previous, 0)], np.iinfo(np.int64).min)
    new = (last >= 0) & (queues.launched[np.maximum(last, 0)] > since)
    return Edges(rows[new].astype(np.int64), last[new])
