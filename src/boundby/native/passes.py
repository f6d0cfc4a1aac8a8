"""Texts that lie one after the other in one array of bytes, as columns of texts do."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model import intervals
from boundby.model.arrays import (
    MISSING,
    BoolArray,
    ByteArray,
    FloatArray,
    Int8Array,
    Int32Array,
    Int64Array,
    as_rows,
    blank,
    compact,
    group_counts,
    in_order,
    index_type,
    into_groups,
    is_in,
    offsets,
    spread,
)
from boundby.model.intervals import IntervalSet, StepFunction
from boundby.model.library import CStruct, address, constant, int64, integers, run, struct
from boundby.model.scale import DENSE, ROOM
from boundby.model.units import EXACT_NS, FURTHEST_NS

Bytes = npt.NDArray[np.uint8]

_END = ord("\n")  # what texts are joined with to be decoded all at once


def distinct_texts(written: Bytes, offset: Int32Array) -> tuple[Int32Array, Int32Array]:
    """The number of each text among the distinct ones, in order of first sight, and where each of these stands first.
    Text ``row`` reaches from ``offset[row]`` to ``offset[row + 1]``, which the caller has looked at."""
    rows = len(offset) - 1
    number, first = np.empty(rows, np.int32), np.empty(rows, np.int32)
    size = ROOM
    while True:
        slots = np.full(size, -1, np.int32)
        distinct = run("boundby_distinct_texts", written, offset, rows, slots, size, number, first)
        if distinct >= 0:
            return number, first[:distinct].copy()
        size *= 2


def texts_at(written: Bytes, begin: npt.NDArray[Any], end: npt.NDArray[Any]) -> list[str]:
    """The texts that reach from here to there; what is not UTF-8 in them is replaced."""
    size: Int64Array = (end - begin).astype(np.int64) + 1
    after = np.cumsum(size)
    position = np.repeat(begin - (after - size), size) + np.arange(after[-1] if len(after) else 0)
    position[after - 1] = 0  # not of the text
    together = written[position] if len(written) else np.zeros(len(position), np.uint8)
    together[after - 1] = _END
    try:
        texts = together.tobytes().decode("utf-8").split(chr(_END))
    except UnicodeDecodeError:
        texts = []
    if len(texts) == len(size) + 1:  # else a text holds the byte that they were joined with
        return texts[:-1]
    whole = written.tobytes()
    return [whole[low:high].decode("utf-8", "replace") for low, high in zip(begin.tolist(), end.tolist(), strict=True)]


# The intervals before the nodes of the replay's graph, cut in one pass by ``pieces.c``.

#: Columns of equal length, by the field that tells it.
TABLES = {
    "count": ("low", "high", "node"),
    "steps": ("step_time", "step_range"),
    "ranges": ("region_of_range",),
    "states": ("state_time", "state"),
}


def cut_intervals(
    columns: dict[str, Int64Array], settings: dict[str, int]
) -> tuple[Int32Array, Int32Array, Int8Array, Int32Array]:
    """Node, nanoseconds, cause and region of each piece, in order of the intervals; what 32 bits do not hold is several
    pieces. The library must be there. Raises ValueError for columns that do not fit together."""
    fields: dict[str, Any] = {**settings, **{name: int64(column) for name, column in columns.items()}}
    for table, names in TABLES.items():
        lengths = {len(fields[name]) for name in names}
        fields[table] = lengths.pop()
        if lengths:
            raise ValueError("columns do not fit together")
    room = 2 * fields["count"] + ROOM
    while True:
        node, ns = np.empty(room, np.int32), np.empty(room, np.int32)
        cause, region = np.empty(room, np.int8), np.empty(room, np.int32)
        fields |= {"piece_node": node, "piece_ns": ns, "piece_cause": cause, "piece_region": region}
        count = run("boundby_pieces", struct("Intervals", {**fields, "room": room}))
        if count < 0:
            raise ValueError("a range is not known")
        if count <= room:
            for column in (node, ns, cause, region):
                column.resize(count, refcheck=False)  # gives back what was not used, without a copy
            return node, ns, cause, region
        room = count


# The ranks of a job replayed together: when would each end, with this much work and these transfers?
#
# A rank's own time passes; at an arrival its part of the collective begins, once its stream's last one is over; the
# collective ends on all ranks its transfer after the last has arrived; a rank that waits for it goes on then. Variants
# run side by side.

NONE = intervals.NOTHING


class Course(CStruct, Struct, frozen=True, eq=False):
    """Events of all ranks, rank by rank, and the work before each. *Slots* are events with, behind each rank's last,
    its tail: event + rank."""

    order: Int32Array  # in which events can be worked out
    turn_at: Int32Array  # order[turn_at[n]:turn_at[n + 1]] need nothing of each other
    rank: Int32Array  # per event
    instance: Int32Array  # the collective it is of; NONE: one that nobody else holds
    queue: Int32Array  # the collective before it on its stream, where it queued behind that
    is_join: BoolArray  # it ends a wait; else it is an arrival
    lag_ns: FloatArray  # how long after the end of ``queue`` it began; a wait: after that of ``instance`` it was over
    fixed_ns: FloatArray  # what is as long as measured whatever changes
    work_at: Int64Array  # work_at[slot]:work_at[slot + 1] are the rows of its work
    cell: Int32Array  # per row of work: which of the factors it is multiplied by
    work_ns: FloatArray
    tail: Int32Array  # per rank: its slot
    ranks: int


def replay(course: Course, factor: FloatArray, transfer_ns: FloatArray, begin_ns: Int64Array) -> FloatArray:
    """When each rank ends, shape (ranks, variants). ``factor``: (cells, variants); ``transfer_ns``: (collectives,
    variants)."""
    variants = factor.shape[1]
    time = np.repeat(begin_ns.astype(np.float64)[:, None], variants, axis=1)
    latest = np.full(transfer_ns.shape, -np.inf)
    columns = {
        "factor": np.ascontiguousarray(factor),
        "transfer_ns": np.ascontiguousarray(transfer_ns),
        "time_ns": time,
        "latest_ns": latest,
        "own_ns": np.zeros(variants),
        "events": len(course.order),
        "variants": variants,
    }
    run("boundby_chain", course.structure, struct("Variants", columns))
    return time


# Rows from the leaf pages of an SQLite table: `Leaves` is what ``pages.c`` is asked. SQLite itself judges it.

MOST_OUTPUTS = constant("MOST_OUTPUTS")
#: A leaf page of 64 KiB tells of at most this many rows, whatever is damaged; there must be room for them.
MOST_ROWS_OF_PAGE = 1 << 15


class Found(IntEnum):
    """How a call ended: all pages read, something in them that SQLite must be asked about, or no more room."""

    DONE = 0
    NOT_PLAIN = 1
    NO_ROOM = 2
    NO_TEXT_ROOM = 3


class At(IntEnum):
    """Places in ``Leaves.state``."""

    NEXT_PAGE = 0
    ROWS = 1
    DEFERRED = 2
    TEXTS = 3
    HASHED = 4  # of which so many stand in ``slots``
    HAS_LAST = 5
    LAST_ROWID = 6


class Leaves(CStruct, Struct, frozen=True, eq=False):
    """Some leaf pages and which columns of their rows are wanted; ``state`` says how far it is, and moves on."""

    pages: Int8Array  # one after the other
    count: int
    page_size: int
    usable: int  # bytes of each page that SQLite uses
    output: Int32Array  # of each column of the table, its row in ``values``; NONE: not wanted
    columns: int
    outputs: int
    rowid_column: int  # the column that is the row's number; NONE
    text_column: int  # the column that holds texts, of which numbers come out; NONE
    has_default: BoolArray  # rows that lack the column hold something else than NULL in it
    is_decimal: BoolArray  # columns of decimals, of which the bits come out, of whole ones the number itself
    values: Int64Array  # of each output the address of its column, which must live as long; 0: none while it is even
    is_even: BoolArray  # of each output: rows so far hold one value, ``first``, and are not written
    first: Int64Array
    capacity: int
    deferred_row: Int64Array  # rows of which something wanted lies on another page
    deferred_rowid: Int64Array
    deferred_room: int
    slots: Int32Array  # hash table of the distinct texts
    slots_size: int  # a power of two
    text_end: Int64Array  # of each distinct text, where it ends in ``texts``
    texts: Int8Array
    texts_size: int
    state: Int64Array

    def read(self) -> Found:
        """Read on from ``state``. The library must be there."""
        self._check()
        return Found(run("boundby_leaves", self.structure))

    def _check(self) -> None:
        """Raise ValueError where an array is shorter than what is told of it: the C side trusts these lengths."""
        fits = (
            len(self.pages) >= self.count * self.page_size
            and 0 < self.usable <= self.page_size
            and len(self.output) == len(self.has_default) == len(self.is_decimal) == self.columns
            and self.values.shape == self.is_even.shape == self.first.shape == (self.outputs,)
            and bool((self.is_even | (self.values != 0)).all())
            and bool((self.output < self.outputs).all())
            and len(self.deferred_row) == len(self.deferred_rowid) == self.deferred_room >= MOST_ROWS_OF_PAGE
            and len(self.slots) == self.slots_size == 1 << (self.slots_size.bit_length() - 1)
            and len(self.text_end) * 2 >= self.slots_size
            and len(self.texts) == self.texts_size
            and len(self.state) == len(At)
        )
        if not fits or self.outputs > MOST_OUTPUTS or max(self.rowid_column, self.text_column) >= self.columns:
            raise ValueError("arrays and lengths do not fit")


def empty_slots(size: int) -> Int32Array:
    """A hash table without texts."""
    return np.full(size, NONE, np.int32)


# The events of a Chrome trace in JSON, from its text into columns, piece by piece, so that no piece stays in memory.
#
# Numbers of microseconds become exact nanoseconds: a float would lose them, since 2024's times have 19 digits.

#: What an argument's value is.
NUMBER, TEXT, RAW, NOTHING = range(4)
PHASES = "XiIM"  # intervals, instants, metadata; others (flows, counters) are not kept
_START, _TOP, _EVENTS, _LIST, _DONE = range(5)
_KEY_SLOTS = 1024  # of the table of keys in events.c


class NotJsonError(ValueError):
    """The text is no JSON, or ends before it is complete. ``at``: how many bytes were understood."""

    def __init__(self, at: int, *, is_cut: bool) -> None:
        super().__init__("cut short" if is_cut else f"no JSON after byte {at}")
        self.at, self.is_cut = at, is_cut


_COLUMNS = ("phase", "category", "name", "pid", "tid", "start_ns", "duration_ns")
_COLUMN_TYPES: tuple[Any, ...] = (np.int8, np.int32, np.int32, np.int64, np.int64, np.int64, np.int64)
_ENTRIES = ("entry_row", "entry_key", "entry_kind", "entry_value")
_ENTRY_TYPES: tuple[Any, ...] = (np.int32, np.int8, np.int8, np.int64)
_TOPS = ("top_key", "top_key_length", "top_value", "top_value_length")


class JsonEvents(Struct, frozen=True, eq=False):
    """All events, in the order of the file. Times are ns, MISSING where there is none; ``pid`` and ``tid`` are numbers,
    or the first number in a text ("stream 7").

    ``category`` and ``name`` (-1: none), and the values of arguments that are texts, lists or objects (RAW: as JSON),
    index ``texts``. ``top`` is what stands beside the events.
    """

    phase: Int8Array  # ord() of one of PHASES
    category: Int32Array
    name: Int32Array
    pid: Int64Array
    tid: Int64Array
    start_ns: Int64Array
    duration_ns: Int64Array
    texts: tuple[str, ...]
    top: dict[str, Any]
    _arguments: dict[str, tuple[Int32Array, Int8Array, Int64Array]]

    def __len__(self) -> int:
        return len(self.phase)

    def argument(self, key: str) -> tuple[Int8Array, Int64Array]:
        """Of every event: what its argument of that name is (NOTHING: it has none) and its value. Of several the last
        counts, as in JSON. A number is to the nearest integer."""
        kind, value = np.full(len(self), NOTHING, np.int8), np.full(len(self), MISSING, np.int64)
        if key in self._arguments:
            row, kinds, values = self._arguments[key]
            kind[row], value[row] = kinds, values
        return kind, value

    def has(self, key: str) -> bool:
        return key in self._arguments


class EventScanner:
    """Is fed with pieces of a text; ``finish`` gives the events. Raises NotJsonError."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)
        encoded = [key.encode() for key in keys]
        self._key_text = np.frombuffer(b"".join(encoded), np.int8)
        self._key_at = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
        self._found = np.zeros(7, np.int64)
        self._rest = b""
        self._before = 0  # bytes understood before the rest
        self._rows = 0
        self._index: dict[bytes, int] = {}
        self._columns: list[list[np.ndarray[Any, Any]]] = []
        self._entries: list[list[np.ndarray[Any, Any]]] = []
        self._top: dict[str, Any] = {}

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the text."""
        self._rest += piece
        while self._rest and self._found[0] != _DONE:
            used = self._scan()
            self._before += used
            self._rest = self._rest[used:]
            if not used or self._found[3] == 0 == self._found[6]:
                return

    def _scan(self) -> int:
        """Understand as much of the rest as is whole; how many bytes that was."""
        count = len(self._rest)
        most_rows, most_entries = count // 10 + 1, count // 4 + 1
        rooms: dict[str, Any] = {}
        for names, kinds, room in ((_COLUMNS, _COLUMN_TYPES, most_rows), (_ENTRIES, _ENTRY_TYPES, most_entries)):
            rooms |= {name: np.empty(room, kind) for name, kind in zip(names, kinds, strict=True)}
        rooms |= {name: np.empty(ROOM, np.int64) for name in ("text_at", "text_length", "text_hash")}
        rooms |= {name: np.empty(ROOM, np.int64) for name in _TOPS}
        piece = rooms | {
            "text": np.frombuffer(self._rest, np.int8),
            "length": count,
            "key_text": self._key_text,
            "key_at": self._key_at,
            "keys": len(self._keys),
            "key_slot": np.zeros(_KEY_SLOTS, np.int32),
            "most_rows": most_rows,
            "most_entries": most_entries,
            "slots": DENSE * ROOM,
            "most_texts": ROOM,
            "slot": np.zeros(DENSE * ROOM, np.int32),
            "most_tops": ROOM,
            "found": self._found,
        }
        self._found[1:] = 0
        run("boundby_events", struct("Piece", piece))
        _, used, bad, rows, entries, texts, tops = self._found.tolist()
        if bad:
            raise NotJsonError(self._before + used, is_cut=False)
        spans = zip(piece["text_at"][:texts].tolist(), piece["text_length"][:texts].tolist(), strict=True)
        index = self._index
        numbers = np.array(
            [index.setdefault(self._rest[at : at + length], len(index)) for at, length in spans] or [0], np.int64
        )
        columns = [piece[name][:rows].copy() for name in _COLUMNS]
        for side in (1, 2):
            named = columns[side] >= 0
            columns[side][named] = numbers[columns[side][named]]
        values = [piece[name][:entries].copy() for name in _ENTRIES]
        is_text = (values[2] == TEXT) | (values[2] == RAW)
        values[3][is_text] = numbers[values[3][is_text]]
        values[0] += np.int32(self._rows)
        self._rows += rows
        self._columns.append(columns)
        self._entries.append(values)
        for key, key_length, value, value_length in zip(*(piece[name][:tops].tolist() for name in _TOPS), strict=True):
            name, what = self._rest[key : key + key_length], self._rest[value : value + value_length]
            self._top[_unescape(name)] = _lenient(what)
        return int(used)

    def finish(self) -> JsonEvents:
        """The events, once all pieces have been fed."""
        if self._found[0] != _DONE:
            raise NotJsonError(self._before, is_cut=True)
        if self._rest.strip(b" \t\r\n\0"):
            raise NotJsonError(self._before, is_cut=False)
        texts = tuple(map(_unescape, self._index))
        self._index.clear()  # what is put together is given back at once: twice is not to be in memory
        arguments = _by_key(self._keys, [_joined(self._entries) for _ in _ENTRIES])
        columns = {name: _joined(self._columns) for name in _COLUMNS}
        return JsonEvents(**columns, texts=texts, top=self._top, _arguments=arguments)


def _joined(parts: Sequence[list[np.ndarray[Any, Any]]]) -> Any:
    """The first column of all parts, which is taken from them."""
    return np.concatenate([part.pop(0) for part in parts])


def _by_key(keys: Sequence[str], entries: Sequence[np.ndarray[Any, Any]]) -> dict[str, Any]:
    row, key, kind, value = entries
    order = np.argsort(key, kind="stable")
    bounds = np.searchsorted(key[order], np.arange(len(keys) + 1)).tolist()
    by_name = {}
    for number, name in enumerate(keys):
        rows = order[bounds[number] : bounds[number + 1]]
        if len(rows):
            by_name[name] = (row[rows], kind[rows], value[rows])
    return by_name


_WRONG_BACKSLASH = re.compile(r'\\(?!["\\/bfnrtu])|\\u(?![0-9a-fA-F]{4})')


def _unescape(raw: bytes) -> str:
    """The text that stands between the quotes of a JSON string (or a list or object as it stands)."""
    text = raw.decode("utf-8", "replace")
    if "\\" not in text or text[:1] in "[{":
        return text
    with contextlib.suppress(ValueError):
        return str(json.loads(f'"{_WRONG_BACKSLASH.sub(_double, text)}"', strict=False))
    return text


def _double(match: re.Match[str]) -> str:
    return "\\" + match.group()


def _lenient(raw: bytes) -> Any:
    """A JSON value; None for what cannot be read."""
    text = raw.decode("utf-8", "replace")
    for attempt in (text, _WRONG_BACKSLASH.sub(_double, text)):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(attempt, strict=False)
    return None


# The account's passes over events: `states` and `divide` are what ``account.c`` is asked.

#: Bounds of a layer's first and last interval that are no instants at which anything changes.
FIRST_INSTANT, LAST_INSTANT = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
MOST_LAYERS = constant("MOST_LAYERS")


class Layer(NamedTuple):
    """Intervals, disjoint and in order, that set a state (one, or one for each), but over ``spared``."""

    start: Int64Array
    end: Int64Array
    state: Int64Array | int
    spared: int = NONE


def states(layers: Sequence[Layer], otherwise: int, extra: Int64Array) -> StepFunction:
    """The latest layer's state at any instant from the first bound on, ``otherwise`` where there is none. ``extra``:
    other instants to begin at, ascending. Raises ValueError for columns that do not fit, or are in no order."""
    full = [layer for layer in layers if len(layer.start)]
    columns = [[int64(column) for column in layer[:3] if isinstance(column, np.ndarray)] for layer in full]
    if len(full) > MOST_LAYERS or any(len({*map(len, of_layer)}) > 1 for of_layer in columns):
        raise ValueError("too many layers, or columns that do not fit")
    room = len(extra) + 2 * sum(len(layer.start) for layer in full)
    time, value = np.empty(room, np.int64), np.empty(room, np.int64)
    tables = [[of_layer[part] if part < len(of_layer) else None for of_layer in columns] for part in range(3)]
    count = run(
        "boundby_states",
        *map(_addresses, tables),
        np.array([len(layer.start) for layer in full], np.int64),
        np.array([NONE if isinstance(layer.state, np.ndarray) else layer.state for layer in full], np.int64),
        np.array([layer.spared for layer in full], np.int64),
        len(full),
        otherwise,
        int64(extra),
        len(extra),
        time,
        value,
    )
    if count < 0:
        raise ValueError("intervals are not in order")
    return StepFunction(time[:count].copy(), value[:count].copy())


def _addresses(columns: Sequence[Int64Array | None]) -> Int64Array:
    return np.array([0 if column is None else column.ctypes.data for column in columns], np.int64)


class Divided(NamedTuple):
    """Pieces of gaps, each with its cause, region and thread; per gap the call to blame and its cost."""

    start: Int64Array
    end: Int64Array
    cause: Int8Array
    region: Int32Array
    thread: Int32Array
    wait: Int32Array
    sync: Int64Array
    asleep: int  # pieces in which every thread that was asked about sleeps


# Room for the pieces of each gap, and for those of the longest: where it is not enough there is more the next time.


def divide(
    gaps: dict[str, npt.NDArray[Any]],
    calls: dict[str, npt.NDArray[Any]],
    states: StepFunction,
    others: Sequence[tuple[int, StepFunction]],
    owners: dict[int, StepFunction],
    region_of_range: Int64Array,
    blocked: tuple[Int64Array, Int64Array, Int64Array],
    waits: dict[str, Int64Array],
    settings: dict[str, int],
) -> Divided:
    """The pieces of the gaps of the thread that stands first in ``owners`` (by thread: its ranges over time), which
    holds every thread that is named elsewhere. ``calls``: when they are made and, of each operation, the region of its
    call. Raises ValueError for columns that do not fit."""
    number_of = {thread: number for number, thread in enumerate(owners)}
    count, waiting = len(gaps["start"]), len(waits["wait_start"])
    columns = [[int64(column) for column in steps] for steps in (states, *(s for _, s in others), *owners.values())]
    of_others, of_owners = columns[1 : 1 + len(others)], columns[1 + len(others) :]
    steps = sum(len(time) for time, _ in columns)
    rooms = ((min(steps + 4, ROOM), 2 * count + ROOM), (steps + 4, 5 * count + steps))
    fits = (
        len(calls["call_start"]) == len(calls["call_end"]) > int(gaps["launch"].max(initial=NONE))
        and len(calls["launch_region"]) > int(gaps["operation"].max(initial=NONE))
        and all(len(column) == count for column in gaps.values())
        and all(len(column) == waiting for column in waits.values())
        and all(len(time) == len(value) for time, value in columns)
        and len(blocked[0]) == len(blocked[1]) == len(blocked[2]) - 1
        and number_of.keys() >= {thread for thread, _ in others}
        and bool(is_in(waits["wait_owner"], number_of).all())
    )
    if not fits:
        raise ValueError("columns do not fit together")
    fields: dict[str, Any] = {name: integers(column) for name, column in {**gaps, **calls, **waits}.items()}
    threads = np.array(list(number_of), np.int64)
    owner_of = np.argsort(threads, kind="stable")
    fields["wait_owner"] = owner_of[np.searchsorted(threads[owner_of], fields["wait_owner"])].astype(np.int64)
    idle: dict[str, Any] = {
        "gaps": count,
        **fields,
        **settings,
        "states": len(columns[0][0]),
        "state_time": columns[0][0],
        "state": columns[0][1],
        "others": len(others),
        "other_times": _addresses([time for time, _ in of_others]),
        "other_states": _addresses([value for _, value in of_others]),
        "other_steps": np.array([len(time) for time, _ in of_others], np.int64),
        "other_owner": np.array([number_of[thread] for thread, _ in others], np.int64),
        "other_near": np.zeros(len(others), np.int64),
        "owners": len(owners),
        "owner_times": _addresses([time for time, _ in of_owners]),
        "owner_ranges": _addresses([value for _, value in of_owners]),
        "owner_steps": np.array([len(time) for time, _ in of_owners], np.int64),
        "owner_thread": threads,
        "owner_near": np.zeros(len(owners), np.int64),
        "ranges": len(region_of_range),
        "region_of_range": int64(region_of_range),
        "blocks": len(blocked[0]),
        "block_start": int64(blocked[0]),
        "block_end": int64(blocked[1]),
        "block_before": int64(blocked[2]),
        "waits": waiting,
        **_room_for(*rooms[0]),
        "blamed": np.empty(count, np.int32),
        "cost": np.empty(count, np.int64),
        "found": np.zeros(2, np.int64),
    }
    if run("boundby_idle", struct("Idle", idle)):
        idle["other_near"][:] = idle["owner_near"][:] = 0
        idle |= _room_for(*rooms[1])
        if run("boundby_idle", struct("Idle", idle)):
            raise ValueError("gaps overlap or steps are not in order")
    count, asleep = idle["found"].tolist()
    pieces = [idle[f"piece_{name}"] for name in ("start", "end", "cause", "region", "thread")]
    for column in pieces:
        column.resize(count, refcheck=False)  # what is left goes back, and nothing is copied
    start, end, cause, region, thread = pieces
    return Divided(start, end, cause, region, thread, idle["blamed"], idle["cost"], asleep)


def _room_for(raw: int, pieces: int) -> dict[str, Any]:
    """Columns for so many pieces, and for so many of one gap before its wait is known."""
    names = ("raw_start", "raw_end", "raw_state", "raw_owner", "raw_region")
    return {name: np.empty(raw, np.int64) for name in names} | {
        "raw_room": raw,
        "room": pieces,
        "piece_start": np.empty(pieces, np.int64),
        "piece_end": np.empty(pieces, np.int64),
        "piece_cause": np.empty(pieces, np.int8),
        "piece_region": np.empty(pieces, np.int32),
        "piece_thread": np.empty(pieces, np.int32),
    }


def around(
    gaps: IntervalSet, start: Int64Array, end: Int64Array, launched: Int64Array, low: int
) -> tuple[Int32Array, Int32Array, Int64Array]:
    """Of each gap, by the operations of its device: the one that follows (NONE), the one that tells who is responsible,
    and when the one before it was launched (``low`` without one)."""
    order, count = in_order(end, launched), len(gaps.start)
    following, telling, since = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int64)
    by_end = np.empty(0, np.int64) if isinstance(order, slice) else int64(order)
    arguments = int64(start), int64(end[order]), by_end, isinstance(order, slice), len(start), int64(launched), low
    run("boundby_gaps", int64(gaps.start), int64(gaps.end), count, *arguments, following, telling, since)
    return following, telling, since


def woven(
    one: Mapping[str, npt.NDArray[Any]], other: Mapping[str, npt.NDArray[Any]]
) -> tuple[Int64Array, Int8Array, Int32Array, Int32Array] | None:
    """Two tables of segments in order of time as one: the bounds of its segments (one more than there are), their
    causes, regions and threads (of the narrowest types that hold them). None where they leave time between them, or
    overlap."""
    sides = [struct("Side", {"count": len(side["start"]), **side}) for side in (one, other)]
    size = len(one["start"]) + len(other["start"])

    def room(name: str) -> npt.NDArray[Any]:
        return np.empty(size, index_type(max(int(side[name].max(initial=0)) for side in (one, other))))

    region, thread = room("region"), room("thread")
    bounds, cause = np.empty(size + 1, np.int64), np.empty(size, np.int8)
    is_whole = run("boundby_weave", *sides, bounds, cause, region, region.itemsize, thread, thread.itemsize)
    return (bounds, cause, region, thread) if is_whole else None


# The forward pass of the replay: when would everything have happened, with these costs?
#
# ``forward.c`` works it out; ``tests/native/twins.py`` says the same in Python. Times are nanoseconds, rows of nodes
# and operations as in `boundby.replay.graph`, NONE (-1) in an index means that there is none.

NEVER = -FURTHEST_NS
FIRST_KERNEL = constant("FIRST_KERNEL")  # kinds of operations from here on are kernels
BLOCK = constant("BLOCK")  # lanes that are looked at as one
AT_ONCE, SOME = 16, 8  # passes that run as one; some of them, or two, are quicker by themselves

T = TypeVar("T", bound=CStruct)


class Links(CStruct, Struct, frozen=True, eq=False, dict=True):
    """What comes after what. Columns of nodes, then of operations, then of lanes (streams that share a device)."""

    chain: Int32Array
    node_begin_ns: Int64Array  # as measured: where chains begin that follow nothing
    node_end_ns: Int64Array  # as measured
    follows: Int32Array  # the node that woke this one's thread
    follow_lag_ns: Int64Array
    wait_at: Int32Array  # wait_at[node]:wait_at[node + 1] of wait_for are the operations it waits for
    wait_for: Int32Array
    waits_for_start: BoolArray
    queue_slot: Int32Array  # the operation whose end makes room in the stream's queue
    queue_slot_lag_ns: Int64Array
    launch: Int32Array  # the node that launched each operation
    from_call_end: BoolArray  # that node's call had to finish first
    before: Int32Array  # the operation before it on its stream
    after_at: Int32Array  # after_at[row]:after_at[row + 1] of after_what are operations of other streams
    after_what: Int32Array
    start_ns: Int64Array  # as measured
    unexplained_lead_ns: Int64Array  # by how much it was seen to start before its device should have had room
    lane: Int32Array  # NONE: alone on its device
    lane_first: Int32Array  # lanes of the same device, per lane: lane_first:lane_stop
    lane_stop: Int32Array
    kind: Int32Array  # what each operation is to others
    excludes: BoolArray  # kind * kinds + kind: these two cannot run at once
    kinds: int

    @property
    def nodes(self) -> int:
        return len(self.chain)

    @property
    def operations(self) -> int:
        return len(self.launch)

    @cached_property
    def chains(self) -> int:
        return int(self.chain.max(initial=-1)) + 1

    @cached_property
    def origin_ns(self) -> int:
        """The first time that was measured."""
        return min(int(time.min(initial=-NEVER)) for time in (self.node_begin_ns, self.start_ns))

    @cached_property
    def reach_ns(self) -> float:
        """From the first to the last time that was measured, and all lags of edges."""
        latest = max(int(time.max(initial=NEVER)) for time in (self.node_begin_ns, self.start_ns))
        lags = (self.follow_lag_ns, self.queue_slot_lag_ns, self.unexplained_lead_ns)
        return latest - self.origin_ns + sum(map(_total_ns, lags))

    @cached_property
    def waiting(self) -> Int32Array:
        """Of each entry of ``wait_for``: the node that waits."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), np.diff(self.wait_at))

    @cached_property
    def follows_on(self) -> tuple[Int64Array, Int64Array]:
        """Pairs of operations of which the second starts after the first."""
        every = np.arange(len(self.launch))
        follower = np.concatenate((every, np.repeat(every, np.diff(self.after_at))))
        leader = np.concatenate((self.before, self.after_what)).astype(np.int64)
        return leader[leader >= 0], follower[leader >= 0]

    def check(self, order: Int32Array) -> None:
        """Raise ValueError for an index, in a column or in an order of events, that points nowhere."""
        nodes, operations, lanes = self.nodes, self.operations, len(self.lane_first)
        per_node = (self.node_begin_ns, self.node_end_ns, self.follows, self.follow_lag_ns, self.waits_for_start)
        per_operation = (self.from_call_end, self.before, self.start_ns, self.unexplained_lead_ns, self.lane, self.kind)
        good = [
            all(len(column) == nodes for column in (*per_node, self.queue_slot, self.queue_slot_lag_ns)),
            all(len(column) == operations for column in per_operation),
            _are_offsets(self.wait_at, nodes, self.wait_for),
            _are_offsets(self.after_at, operations, self.after_what),
            len(self.lane_stop) == lanes and len(self.excludes) == self.kinds**2,
            _is_within(self.chain, 0, self.chains),
            _is_within(self.follows, NONE, nodes) and _is_within(self.launch, NONE, nodes),
            *(_is_within(column, NONE, operations) for column in (self.queue_slot, self.before)),
            *(_is_within(column, 0, operations) for column in (self.wait_for, self.after_what)),
            _is_within(self.lane, NONE, lanes) and _is_within(self.kind, 0, self.kinds),
            _is_within(self.lane_first, 0, lanes) and _is_within(self.lane_stop, 0, lanes + 1),
            _is_within(order, -operations, 2 * nodes),
        ]
        if not all(good):
            raise ValueError(f"a graph's columns do not fit together (check {good.index(False)})")


def _total_ns(column: Int64Array) -> float:
    """All of them together, or what they cannot be more than, if that is little."""
    at_most = max(float(column.max(initial=0)), -float(column.min(initial=0))) * len(column)
    return at_most if at_most < EXACT_NS / 64 else float(np.abs(column).sum(dtype=np.float64))  # it cannot overflow


def _are_offsets(at: Int32Array, count: int, flat: Int32Array) -> bool:
    return len(at) == count + 1 and at[0] == 0 and at[-1] == len(flat) and bool((at[1:] >= at[:-1]).all())


def _is_within(column: Int32Array, low: int, stop: int) -> bool:
    return len(column) == 0 or (int(column.min()) >= low and int(column.max()) < stop)


class Costs(CStruct):
    """What scenarios change: columns of nodes, then of operations. Unchanged they replay the trace."""

    interval_ns: Int64Array  # before each node
    call_ns: Int64Array  # the call's own time, without waiting
    waits: BoolArray
    wait_lag_ns: Int64Array  # from the end of what it waits for to its return
    launch_latency_ns: Int64Array  # from the launching call to the start at the earliest
    switch_ns: Int64Array  # from the end of what it comes after
    unexplained_delay_ns: Int64Array
    duration_ns: Int64Array
    has_queue_limit: bool

    def __init__(self, *, has_queue_limit: bool = True, **columns: Column | BoolArray) -> None:
        """All columns by name. Those of which less is left are written out when somebody asks for them."""
        self.has_queue_limit = has_queue_limit
        self._less = {name: column for name, column in columns.items() if isinstance(column, Less)}
        vars(self).update({name: column for name, column in columns.items() if name not in self._less})

    def __getattr__(self, name: str) -> Any:
        """A column of which less is left, written out now that somebody asks for it."""
        less = vars(self).get("_less", {}).get(name)
        if less is None:
            raise AttributeError(name)
        vars(self)[name] = column = less.column
        return column

    def column(self, name: str) -> Column:
        """A column, as it was given to `changed`."""
        less: Column | None = self._less.get(name)
        return getattr(self, name) if less is None else less

    def changed(self, *, has_queue_limit: bool | None = None, **columns: Column | BoolArray) -> Costs:
        """These costs with other columns."""
        is_limited = self.has_queue_limit if has_queue_limit is None else has_queue_limit
        return Costs(has_queue_limit=is_limited, **{name: self.column(name) for name in COLUMNS} | columns)

    def blanked(self, name: str, where: BoolArray) -> Column:
        """A column of which in these places nothing is left."""
        column = self.column(name)
        if isinstance(column, Less) and column.left is None and column.pieces is None:
            return column._replace(where=column.where | where)
        return Less(column.column if isinstance(column, Less) else column, where)

    def check(self, links: Links) -> None:
        """Raise ValueError where columns are not those of these links."""
        columns = [self.column(name) for name in COLUMNS]
        lengths = [len(column.measured if isinstance(column, Less) else column) for column in columns]
        if lengths != [links.nodes] * 4 + [links.operations] * 4:
            raise ValueError("costs are of another graph")

    def is_same(self, other: Costs) -> bool:
        """Whether nothing differs."""
        pairs = [(getattr(self, name), getattr(other, name)) for name in COLUMNS]
        same = all(left is two or np.array_equal(left, two) for left, two in pairs)
        return same and self.has_queue_limit == other.has_queue_limit

    @cached_property
    def total_ns(self) -> float:
        """All of them, one after the other."""
        return sum(_total_ns(getattr(self, name)) for name in COSTS)


class Pieces(Struct, frozen=True):
    """What the intervals before nodes are made of: ``at[node]:at[node + 1]`` of ``ns``."""

    at: Int32Array
    ns: Int32Array


class Less(NamedTuple):
    """A column of costs of which in some places (``where``) only ``left`` is left; None: nothing; or, of the intervals
    before nodes, one without some of the pieces. Written out only where somebody asks for it."""

    measured: Int64Array
    where: BoolArray
    left: Int64Array | None = None
    pieces: Pieces | None = None

    @property
    def column(self) -> Int64Array:
        """All of it."""
        if self.pieces is not None:
            return shorten(self.measured, self.pieces, self.where)
        return blank(self.measured, self.where) if self.left is None else np.where(self.where, self.left, self.measured)


Column = Int64Array | Less
#: Columns of `Costs`: of nodes, then of operations.
COLUMNS = (
    *("interval_ns", "call_ns", "waits", "wait_lag_ns"),
    *("launch_latency_ns", "switch_ns", "unexplained_delay_ns", "duration_ns"),
)
#: Columns of `Costs` in nanoseconds, in the order of forward.c.
COSTS = (
    *("interval_ns", "call_ns", "wait_lag_ns", "launch_latency_ns"),
    *("switch_ns", "unexplained_delay_ns", "duration_ns"),
)


class Pass(CStruct, Struct, frozen=True, eq=False):
    """One pass over the events in an order, and what it found out.

    ``order``: 2 * node begins it, 2 * node + 1 ends one that waits, ~row is an operation. ``calibrates``: everything
    happens when it was measured. What its dependencies leave unexplained of that is not replayed but written down
    (``delay_ns`` and ``lead_ns`` of operations), or added to the columns of costs and links themselves (of nodes).
    """

    order: Int32Array
    events: int
    calibrates: bool
    keeps_turns: bool
    delay_ns: Int64Array
    lead_ns: Int64Array
    interval_ns: Int64Array
    call_ns: Int64Array
    wait_lag_ns: Int64Array
    follow_lag_ns: Int64Array
    queue_slot_lag_ns: Int64Array
    call_start: Int64Array
    call_end: Int64Array
    start: Int64Array
    end: Int64Array
    turn: Int64Array  # when each operation has its turn on its device; empty where all have one of their own
    clock: Int64Array  # the state on the way: of chains, then of lanes
    begun: BoolArray
    lane_end: Int64Array
    lane_kind: Int32Array
    block_end: Int64Array  # of BLOCK lanes side by side: none ends later (forward.c skips those that hold up nobody)
    front: Int64Array  # of each device (by its first lane) when the last kernel that waited for room began


def forward(links: Links, costs: Costs, order: Int32Array, *, calibrates: bool = False) -> Pass:
    """Run the events in this order. The links and the order must have been checked (`Links.check`). ``calibrates``
    changes columns of both: see `Pass`."""
    one_pass = _new(links, costs, order, calibrates)
    run("boundby_forward", links.structure, costs.structure, one_pass.structure)
    return one_pass


def assign_slots(links: Links, order: Int32Array, told: Int32Array) -> tuple[Int32Array, Int32Array, int] | None:
    """Of each node and of each operation its slot, and how many there are; ``told``: nodes whose slots hold their times
    in the end. None where an event needs what happens only
    after it in the order, or does not happen in it once."""
    nodes, rows = links.nodes, links.operations
    node, row = (np.full(size, NONE, np.int32) for size in (nodes, rows))
    node[told] = -2 - np.arange(len(told))
    slots = struct("Slots", {"spare": np.empty(nodes + rows, np.int32), "node": node, "row": row})
    count = run("boundby_slots", links.structure, order, len(order), nodes, rows, slots, len(told))
    return None if count < 0 else (node, row, count)


class Windows(Struct, frozen=True):
    """Of each operation the window that it counts for, of ``size``; NONE: of none. Those that are told themselves have
    -2 - n (the n-th), and so are these ``nodes``."""

    of: Int32Array
    size: int
    nodes: Int32Array

    @property
    def told(self) -> int:
        """How many are told themselves."""
        return max(-1 - int(self.of.min(initial=NONE)), 0)

    def spans(self, start: Int64Array, end: Int64Array, begun: Int64Array) -> Spans:
        """Of a pass whose times are there: of operations, and when nodes begin."""
        first, last = np.full(self.size, -NEVER), np.full(self.size, NEVER)
        spans_of = Spans(first, last, np.zeros((self.told, 2), np.int64), begun[self.nodes])
        for number in range(self.size):
            rows = as_rows(self.of == number)
            spans_of.first[number], spans_of.last[number] = (
                start[rows].min(initial=-NEVER),
                end[rows].max(initial=NEVER),
            )
        rows = np.flatnonzero(self.of < NONE)
        spans_of.kept[-2 - self.of[rows]] = np.stack((start[rows], end[rows]), axis=1)
        return spans_of


class Spans(NamedTuple):
    """The earliest start and the latest end in each window, shape (windows,); of operations that are told themselves
    both times, shape (operations, 2), and when nodes begin that are, shape (nodes,)."""

    first: Int64Array
    last: Int64Array
    kept: Int64Array
    begun: Int64Array


@cache
def _is_wide() -> bool:
    """Whether the processor's registers hold four numbers. Asked once: a virtual machine's host is slow to answer."""
    return run("boundby_is_wide") > 0


class _AtOnce:
    """Up to AT_ONCE costs that differ from those measured by less in some places, of each column in one way. Of each
    of them only that is kept: in which places."""

    def __init__(self, measured: Costs, room_ns: float) -> None:
        """``room_ns``: no pass may last that long, however much happens one after the other."""
        self.measured = measured
        self._room_ns = room_ns - measured.total_ns
        self.members: list[int] = []
        self._most = AT_ONCE if _is_wide() else SOME
        self._left: dict[str, Int64Array | None] = {}  # by column
        self._passes: dict[str, list[ByteArray]] = {}  # by column (of costs, "waits" and "pieces"), for eight each
        self._marked: dict[str, tuple[BoolArray, int]] = {}  # what comes to that, once it is known of which passes
        self._pieces: Pieces | None = None
        self._unlimited = 0

    def add(self, number: int, costs: Costs) -> bool:
        """Whether these could join."""
        less = {name: column for name in COSTS if (column := self._less_of(costs, name)) is not None}
        left = {name: column.left for name, column in less.items() if column.pieces is None}
        is_other = any(self._left.get(name, column) is not column for name, column in left.items())
        new_ns = sum(_total_ns(ns) for name, ns in left.items() if ns is not None and name not in self._left)
        if is_other or new_ns >= self._room_ns or len(self.members) == self._most:
            return False
        self._left |= left
        self._room_ns -= new_ns
        self._unlimited |= (not costs.has_queue_limit) << len(self.members)
        self._mark("waits", costs.waits)
        for name, column in less.items():
            self._pieces = column.pieces or self._pieces
            self._mark(name if column.pieces is None else "pieces", column.where)
        self.members.append(number)
        return True

    def _mark(self, name: str, where: BoolArray) -> None:
        """The next pass is one of those in which there is less of a column in these places. Neighbours often share
        them."""
        marked, bits = self._marked.get(name, (where, 0))
        if marked is not where:
            self._note(name)
            bits = 0
        self._marked[name] = where, bits | 1 << len(self.members)

    def _note(self, name: str) -> None:
        where, bits = self._marked.pop(name)
        passes = self._passes.setdefault(name, [np.zeros(0, np.uint8)] * 2)
        for block in (0, 1):
            if of_block := bits >> 8 * block & 255:
                own = where.view(np.uint8) * np.uint8(of_block)  # shifting takes 25 times as long
                passes[block] = np.bitwise_or(passes[block], own, out=own) if len(passes[block]) else own

    def _less_of(self, costs: Costs, name: str) -> Less | None:
        column, measured = costs.column(name), getattr(self.measured, name)
        if column is measured:
            return None
        if isinstance(column, Less) and column.measured is measured:
            return column
        return Less(measured, np.ones(len(measured), np.bool_), getattr(costs, name))

    def spans(
        self, links: Links, order: Int32Array, slots: tuple[Int32Array, Int32Array, int], windows: Windows
    ) -> list[Spans]:
        """All in one pass."""
        for name in [*self._marked]:
            self._note(name)
        lanes, (node_slot, row_slot, room) = len(links.lane_first), slots
        pieces = self._pieces or Pieces(np.zeros(0, np.int32), np.zeros(0, np.int32))
        measured = {**{name: getattr(self.measured, name) for name in COSTS}, "waits": None, "pieces": pieces.ns}
        columns = [
            (column, self._left.get(name), *self._passes.get(name, (None, None))) for name, column in measured.items()
        ]
        at_once = next(size for size in (2, SOME, AT_ONCE) if len(self.members) <= size)
        shape = windows.size, at_once
        many: dict[str, Any] = {
            "order": order,
            "events": len(order),
            "origin": links.origin_ns,
            "columns": np.array([[_address(column) for column in each] for each in columns], np.int64),
            "unlimited": self._unlimited,
            "pieces": len(pieces.ns),
            "piece_at": pieces.at,
            "node_slot": node_slot,
            "row_slot": row_slot,
            "times": np.empty(2 * room * at_once),
            "clock": np.zeros(links.chains * at_once),
            "begun": np.zeros(links.chains, np.bool_),
            "lane_kind": np.zeros(lanes * at_once, np.int32),
            **{name: np.full(lanes * at_once, NEVER) for name in ("lane_end", "block_end", "front")},
            "lanes": lanes,
            "window": windows.of,
            "first": np.full(shape, float(-NEVER)),
            "last": np.full(shape, float(NEVER)),
            "kept": np.zeros((windows.told, 2, at_once)),
            "at_once": at_once,
            "is_wide": _is_wide(),
        }
        run("boundby_forward_many", links.structure, struct("Many", many))
        begun = many["times"].reshape(room, 2, at_once)[node_slot[windows.nodes], 0]
        at = [
            np.where(np.abs(time) < -NEVER, time.astype(np.int64) + links.origin_ns, time.astype(np.int64))
            for time in (many["first"], many["last"], many["kept"], begun)
        ]
        return [Spans(at[0][:, n], at[1][:, n], at[2][:, :, n], at[3][:, n]) for n in range(len(self.members))]


def _address(column: Int64Array | Int32Array | ByteArray | None) -> int:
    return 0 if column is None or not len(column) else address(column)


def spans(
    links: Links,
    measured: Costs,
    costs: Iterable[Costs],
    order: Int32Array,
    slots: tuple[Int32Array, Int32Array, int],
    windows: Windows,
) -> list[Spans]:
    """What `Windows.spans` says of a pass with each of these costs, in as few passes as may be; see `assign_slots`.
    ``measured``: what most of their columns are, but for what is less of them. Costs are let go one after the other."""
    measured.check(links)
    if len(windows.of) != links.operations:
        raise ValueError("windows are of another graph")
    parts: list[_AtOnce] = []
    by_number: dict[int, Spans] = {}
    for number, each in enumerate(costs):
        each.check(links)
        if not any(part.add(number, each) for part in parts):
            part = _AtOnce(measured, EXACT_NS - links.reach_ns)
            if part.add(number, each):
                parts.append(part)
            else:
                outcome = forward(links, each, order)
                by_number[number] = windows.spans(outcome.start, outcome.end, outcome.call_start)
    for part in parts:
        by_number |= dict(zip(part.members, part.spans(links, order, slots, windows), strict=True))
    return [by_number[number] for number in range(len(by_number))]


def shorten(interval_ns: Int64Array, pieces: Pieces, mine: BoolArray) -> Int64Array:
    """The intervals before nodes without these pieces of theirs (``mine``: which)."""
    left: Int64Array = interval_ns.copy()
    if not _are_offsets(pieces.at, len(left), pieces.ns):
        raise IndexError("a piece is of no node")
    run("boundby_shorten", left, len(left), pieces.at, pieces.ns, mine)
    return left


class Following(NamedTuple):
    """What comes after each event of an order: columns of ``Turns``."""

    next_at: Int32Array
    next: Int32Array
    after: Int32Array
    after_nodes: Int32Array
    is_whole: bool


def in_turns(links: Links, costs: Costs, order: Int32Array, following: Following) -> Pass:
    """Run each event in its turn: of those of which all that they come after has happened the one that comes first, of
    several at one time the first of the order. ``following``: see `follow`."""
    one_pass, count = _new(links, costs, order, False), len(order)
    state = {"pending": np.empty(count, np.int32), "key": np.empty(count, np.int64), "heap": np.empty(count, np.int32)}
    turns = struct("Turns", {**following._asdict(), **state})
    run("boundby_in_turns", links.structure, costs.structure, one_pass.structure, turns)
    return one_pass


def follow(links: Links, order: Int32Array) -> Following:
    """What comes after each event of this order, as far as it does in the order: the events of a chain, and all that
    the links tell."""
    position = np.arange(len(order), dtype=np.int32)  # a call that waits for hundreds of streams has as many pairs
    is_operation, is_end = order < 0, (order >= 0) & (order & 1 == 1)
    row, node = ~order[is_operation], order[~is_operation] >> 1
    of_operation, begin = np.zeros(links.operations, np.int32), np.zeros(links.nodes, np.int32)
    of_operation[row], begin[order[~is_operation & ~is_end] >> 1] = (
        position[is_operation],
        position[~is_operation & ~is_end],
    )
    end = begin.copy()
    end[order[is_end] >> 1] = position[is_end]
    of_chain = group_counts(links.chain[node], links.chains)
    by_chain = into_groups(links.chain[node], position[~is_operation], of_chain).astype(np.int32)
    chain = links.chain[order[by_chain] >> 1]
    same = chain[1:] == chain[:-1]
    woken, held = np.flatnonzero(links.follows >= 0), np.flatnonzero(links.queue_slot >= 0)
    launched = np.flatnonzero(links.launch >= 0)
    leader, follower = links.follows_on
    launch, after_call = links.launch[launched], links.from_call_end[launched]
    pairs = [
        (by_chain[:-1][same], by_chain[1:][same]),
        (end[links.follows[woken]], begin[woken]),
        (of_operation[links.queue_slot[held]], begin[held]),
        (of_operation[links.wait_for], end[links.waiting]),
        (np.where(after_call, end[launch], begin[launch]), of_operation[launched]),
        (of_operation[leader], of_operation[follower]),
    ]
    first, second = (np.concatenate(column) for column in zip(*pairs, strict=True))
    del pairs
    is_ordered = first < second
    is_whole = bool(is_ordered.all())
    if not is_whole:
        first, second = first[is_ordered], second[is_ordered]
    at = offsets(first, len(order))
    after, after_nodes = (group_counts(each, len(order)) for each in (second, second[~is_operation[first]]))
    following = into_groups(first, second, np.diff(at)).astype(np.int32)
    return Following(at.astype(np.int32), following, after.astype(np.int32), after_nodes.astype(np.int32), is_whole)


def _new(links: Links, costs: Costs, order: Int32Array, calibrates: bool) -> Pass:
    costs.check(links)
    nodes, operations, lanes, none = links.nodes, links.operations, len(links.lane_first), np.zeros(0, np.int64)
    return Pass(
        order=order,
        events=len(order),
        calibrates=calibrates,
        keeps_turns=lanes > 0,
        delay_ns=np.zeros(operations if calibrates else 0, np.int64),
        # Without lanes nothing is written to it.
        lead_ns=np.zeros(operations * calibrates, np.int64) if lanes else compact(spread(0, operations * calibrates)),
        **{name: getattr(costs, name) if calibrates else none for name in ("interval_ns", "call_ns", "wait_lag_ns")},
        **{name: getattr(links, name) if calibrates else none for name in ("follow_lag_ns", "queue_slot_lag_ns")},
        **{name: np.zeros(nodes, np.int64) for name in ("call_start", "call_end")},
        **{name: np.zeros(operations, np.int64) for name in ("start", "end")},
        turn=np.zeros(operations if lanes else 0, np.int64),
        clock=np.zeros(links.chains, np.int64),
        begun=np.zeros(links.chains, np.bool_),
        lane_kind=np.zeros(lanes, np.int32),
        **{name: np.full(lanes, NEVER) for name in ("lane_end", "block_end", "front")},
    )


def find_late(
    links: Links, costs: Costs, call_start: Int64Array, call_end: Int64Array, turn: Int64Array
) -> npt.NDArray[np.intp]:
    """Entries of ``wait_for`` for operations that have their turn only after the wait is over, though launched
    before."""
    if len(turn) != links.operations:
        raise ValueError("every operation has a turn")
    is_late = np.zeros(len(links.wait_for), np.bool_)
    columns = {"call_start": call_start, "call_end": call_end, "turn": turn, "is_late": is_late, "nodes": links.nodes}
    run("boundby_find_late", links.structure, costs.structure, struct("Late", columns))
    return np.flatnonzero(is_late)
