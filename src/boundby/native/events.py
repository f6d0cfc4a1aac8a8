"""The events of a Chrome trace in JSON, from its text into columns, piece by piece, so that no piece stays in memory.

Numbers of microseconds become exact nanoseconds: a float would lose them, since 2024's times have 19 digits.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from boundby.model.arrays import MISSING, Int8Array, Int32Array, Int64Array
from boundby.model.library import run, struct

#: What an argument's value is.
NUMBER, TEXT, RAW, NOTHING = range(4)
PHASES = "XiIM"  # intervals, instants, metadata; others (flows, counters) are not kept
_START, _TOP, _EVENTS, _LIST, _DONE = range(5)
_MOST_TEXTS = 1 << 15  # distinct ones that a piece is read for at a time
_MOST_TOPS = 1 << 12
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


class Events(Struct, frozen=True, eq=False):
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
        rooms |= {name: np.empty(_MOST_TEXTS, np.int64) for name in ("text_at", "text_length", "text_hash")}
        rooms |= {name: np.empty(_MOST_TOPS, np.int64) for name in _TOPS}
        piece = rooms | {
            "text": np.frombuffer(self._rest, np.int8),
            "length": count,
            "key_text": self._key_text,
            "key_at": self._key_at,
            "keys": len(self._keys),
            "key_slot": np.zeros(_KEY_SLOTS, np.int32),
            "most_rows": most_rows,
            "most_entries": most_entries,
            "slots": 4 * _MOST_TEXTS,
            "most_texts": _MOST_TEXTS,
            "slot": np.zeros(4 * _MOST_TEXTS, np.int32),
            "most_tops": _MOST_TOPS,
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
        for place in (1, 2):
            named = columns[place] >= 0
            columns[place][named] = numbers[columns[place][named]]
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

    def finish(self) -> Events:
        """The events, once all pieces have been fed."""
        if self._found[0] != _DONE:
            raise NotJsonError(self._before, is_cut=True)
        if self._rest.strip(b" \t\r\n\0"):
            raise NotJsonError(self._before, is_cut=False)
        texts = tuple(map(_unescape, self._index))
        self._index.clear()  # what is put together is given back at once: twice is not to be in memory
        arguments = _by_key(self._keys, [_joined(self._entries) for _ in _ENTRIES])
        columns = {name: _joined(self._columns) for name in _COLUMNS}
        return Events(**columns, texts=texts, top=self._top, _arguments=arguments)


def _joined(parts: Sequence[list[np.ndarray[Any, Any]]]) -> Any:
    """The first column of all parts, which is taken from them."""
    return np.concatenate([part.pop(0) for part in parts])


def _by_key(keys: Sequence[str], entries: Sequence[np.ndarray[Any, Any]]) -> dict[str, Any]:
    row, key, kind, value = entries
    order = np.argsort(key, kind="stable")
    bounds = np.searchsorted(key[order], np.arange(len(keys) + 1)).tolist()
    found = {}
    for number, name in enumerate(keys):
        rows = order[bounds[number] : bounds[number + 1]]
        if len(rows):
            found[name] = (row[rows], kind[rows], value[rows])
    return found


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
