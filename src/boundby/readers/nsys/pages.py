"""Columns of an SQLite table from its pages, without SQLite: some twenty times as fast, for the tables that are plain.

The format is https://www.sqlite.org/fileformat2.html. A table is a B-tree: interior pages lead, in order of the rows'
numbers, to leaf pages, which `boundby.native.passes` reads. Whatever is not as SQLite writes it, or not understood
here, gives None, and the caller asks SQLite. The file must be open in a read transaction of SQLite, so that nobody
changes it meanwhile.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.model.arrays import (
    MISSING,
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
    is_any,
    is_even,
    spread,
    unique,
)
from boundby.model.scale import CROWD, DEEPEST, PIECE_BYTES, ROOM, SLIGHT
from boundby.model.units import EXACT_NS
from boundby.native.passes import MOST_OUTPUTS, MOST_ROWS_OF_PAGE, NONE, At, Found, Leaves, empty_slots


class _Page(IntEnum):
    """What SQLite's format says of a page of a table: its kinds, and where the pointers of an interior one begin."""

    LEAF = 13
    INTERIOR = 5
    HEADER = 12


class _Format(IntEnum):
    """Sizes of pages that SQLite's format allows, bytes, and its codes."""

    LEAST_PAGE = 512
    MOST_PAGE = 65_536
    LEAST_USABLE = 480
    WITH_LOG = 2
    UTF8 = 1


class Header(NamedTuple):
    """What the first bytes of an SQLite file say (file format, 1.3)."""

    page_size: int
    reserved: int  # bytes at the end of each page
    has_log: bool  # it is written by way of a write-ahead log
    pages: int  # 0 where the writer did not keep their number up to date
    is_utf8: bool

    @property
    def is_valid(self) -> bool:
        """Whether its pages have a size that the format allows."""
        return _Format.LEAST_PAGE <= self.page_size <= _Format.MOST_PAGE and self.page_size & (self.page_size - 1) == 0


_HEADER = struct.Struct(">16xHBBB3x4sI24xI32x4s4x")
HEADER_BYTES = _HEADER.size


def header_of(first: bytes) -> Header:
    """The header of a file that begins so; of a shorter one with zeros for the rest."""
    size, writes, reads, reserved, changed, pages, encoding, counted = _HEADER.unpack(
        first[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0")
    )
    return Header(
        page_size=_Format.MOST_PAGE if size == 1 else size,  # which two bytes do not hold
        reserved=reserved,
        has_log=_Format.WITH_LOG in (writes, reads),
        pages=pages if changed == counted else 0,
        is_utf8=encoding == _Format.UTF8,
    )


_INSTANTS = ("start", "end")  # these differ
_APART = 16  # numbers, by which columns are moved against each other


class Since(NamedTuple):
    """Rows whose column holds so much or more, or nothing."""

    column: str
    least: int


#: Columns that hold decimals, lower case.
DECIMALS = frozenset({"doublevalue", "floatvalue"})
#: Which rows are wanted: those whose column holds one of these numbers, or since when.
Only = tuple[str, tuple[int, ...]] | Since


class Texts(Struct, frozen=True):
    """A column of texts: of each row the number of its text among the distinct ones; NONE for NULL."""

    number: Int32Array
    distinct: list[bytes]


class _Shape(Struct, frozen=True):
    """A table as its pages hold it."""

    root: int
    names: tuple[str, ...]  # of the columns in each row, lower case
    has_default: tuple[bool, ...]
    is_number: tuple[bool, ...]  # whether its numbers come out of SQLite as they stand in the file
    is_decimal: tuple[bool, ...]
    rowid_column: int


class _Rows:
    """The rows that were read so far, with what is asked of the leaves that come next."""

    def __init__(self, ask: Leaves, columns: list[Int64Array]) -> None:
        self.ask, self.columns = ask, columns
        self.deferred = 0  # how many reached onto other pages

    @property
    def count(self) -> int:
        return int(self.ask.state[At.ROWS])

    def grow(self, known: int, part: float, more: int) -> None:
        """Room for all rows, where those ``known`` are this part of them, and for some more."""
        capacity = int((1 + SLIGHT) * known / part) + more  # what is not written to is not taken
        self.columns = _grown(self.columns, capacity, known, self.ask.is_even)
        self.ask = replace(self.ask, values=_addresses(self.columns), capacity=capacity)

    def read(self) -> bool:
        """Read on until there is no leaf or no room; False where a leaf is not plain."""
        answer = self.ask.read()
        if answer is Found.NOT_PLAIN:
            return False
        self.ask, self.columns = _with_room(answer, self.ask, self.columns)
        self.deferred += int(self.ask.state[At.DEFERRED])
        return True


class PageReader:
    """The pages of one open database."""

    def __init__(self, connection: sqlite3.Connection, file: BinaryIO) -> None:
        self._connection = connection
        self._file = file
        self._header = header = header_of(file.read(HEADER_BYTES))
        self._page_size, self._is_utf8 = header.page_size, header.is_utf8
        self._usable = header.page_size - header.reserved
        there = file.seek(0, 2) // max(header.page_size, 1)
        self._pages = min(there, header.pages or there)

    @classmethod
    def of(cls, connection: sqlite3.Connection, file: BinaryIO | None) -> PageReader | None:
        """None where there is no such file, or nothing that is read here."""
        if file is None:
            return None
        reader = cls(connection, file)
        return reader if reader._header.is_valid and reader._usable >= _Format.LEAST_USABLE else None

    def columns(self, table: str, wanted: Sequence[str], only: Only | None = None) -> dict[str, Int64Array] | None:
        """Integer columns in order of the rows' numbers, NULL as the smallest integer, decimals as `decimals` takes
        them; None: ask SQLite."""
        columns_read = self._read(table, wanted, only)
        return None if columns_read is None else dict(zip(wanted, columns_read, strict=False))

    def texts(self, table: str, column: str, only: Only | None = None) -> Texts | None:
        """A column of texts in order of the rows' numbers; None: ask SQLite."""
        distinct: list[bytes] = []
        columns_read = self._read(table, (column,), only, texts=distinct)
        return None if columns_read is None else Texts(np.maximum(columns_read[0], NONE).astype(np.int32), distinct)

    def _read(
        self, table: str, wanted: Sequence[str], only: Only | None, texts: list[bytes] | None = None
    ) -> list[Int64Array] | None:
        """The columns wanted, and that of ``only``; None: ask SQLite. ``texts``: the only column wanted holds texts; it
        takes the distinct ones. Columns of one value throughout are not written out, where all rows are wanted."""
        read = [*wanted, *([only[0]] if only and only[0] not in wanted else ())]
        plain = self._plain(table, read, has_texts=texts is not None)
        if plain is None:
            return None
        shape, positions, leaves = plain
        at_once = max(1, PIECE_BYTES // self._page_size)
        buffer = np.empty(at_once * self._page_size, np.int8)
        columns = _room_for(MOST_ROWS_OF_PAGE, len(positions))
        may_be_alike = np.array([column.lower() not in _INSTANTS for column in read]) & (texts is None)
        alike = may_be_alike & (np.array(positions) != shape.rowid_column) & (only is None)
        ask = self._question(shape, positions, columns, alike, buffer, has_texts=texts is not None)
        rows = _Rows(ask, columns)
        for first in range(0, len(leaves), at_once):
            some = leaves[first : first + at_once]
            if not self._load(some, buffer) or not self._take(rows, table, read, only, first, len(some), len(leaves)):
                return None
        if texts is not None:
            texts += _texts_of(rows.ask)
        return _spread_out(rows.columns, alike, may_be_alike, rows.ask.first.tolist(), rows.count)

    def _plain(
        self, table: str, read: Sequence[str], *, has_texts: bool
    ) -> tuple[_Shape, list[int], Int64Array] | None:
        """The shape of a table, where these columns stand in it, and its leaves; None: ask SQLite."""
        shape = self._shape(table)
        if shape is None:
            return None
        positions, leaves = self._places(shape, read, has_texts=has_texts), self._leaves(shape.root)
        return None if positions is None or leaves is None else (shape, positions, leaves)

    def _take(
        self, rows: _Rows, table: str, read: Sequence[str], only: Only | None, first: int, some: int, leaves: int
    ) -> bool:
        """Read the ``some`` leaves in the buffer, the first of which is ``first`` of all; False: ask SQLite."""
        state, most_rows = rows.ask.state, self._page_size // 2
        state[At.NEXT_PAGE] = 0
        while state[At.NEXT_PAGE] < some:
            begin = rows.count
            if rows.ask.capacity - begin < most_rows:
                rows.grow(begin, (first + int(state[At.NEXT_PAGE])) / leaves, 2 * most_rows)
            if rows.ask.count != some:  # as for the last ones
                rows.ask = replace(rows.ask, count=some)
            if not rows.read():
                return False
            patched = None if rows.deferred > CROWD else self._patch(table, read, rows.ask, rows.columns)
            if patched is None:
                return False
            rows.ask = patched
            state[At.DEFERRED] = 0
            if only is not None:
                new = [column[begin : state[At.ROWS]] for column in rows.columns]
                state[At.ROWS] = begin + _keep(only, new, new[read.index(only[0])])
        return True

    def _places(self, shape: _Shape, read: Sequence[str], *, has_texts: bool) -> list[int] | None:
        """Where these columns stand in the table, the first one perhaps of texts; None: ask SQLite."""
        names = [column.lower() for column in read]
        if len(read) > MOST_OUTPUTS or not set(names) <= set(shape.names) or (has_texts and not self._is_utf8):
            return None
        positions = [shape.names.index(name) for name in names]
        return positions if all(shape.is_number[position] for position in positions[has_texts:]) else None

    def _question(
        self,
        shape: _Shape,
        places: list[int],
        columns: list[Int64Array],
        alike: BoolArray,
        buffer: npt.NDArray[np.int8],
        *,
        has_texts: bool,
    ) -> Leaves:
        """What is asked of the leaves, with room for the first rows."""
        output = np.full(len(shape.names), NONE, np.int32)
        output[places] = np.arange(len(places))
        slots = empty_slots(ROOM if has_texts else 1)
        text_bytes = PIECE_BYTES if has_texts else 0
        return Leaves(
            pages=buffer,
            count=0,
            page_size=self._page_size,
            usable=self._usable,
            output=output,
            columns=len(shape.names),
            outputs=len(places),
            rowid_column=shape.rowid_column,
            text_column=places[0] if has_texts else NONE,
            has_default=np.array(shape.has_default, np.bool_),
            is_decimal=np.array(shape.is_decimal, np.bool_),
            values=_addresses(columns),
            is_even=alike,
            first=np.zeros(len(places), np.int64),
            capacity=MOST_ROWS_OF_PAGE,
            deferred_row=np.empty(MOST_ROWS_OF_PAGE, np.int64),
            deferred_rowid=np.empty(MOST_ROWS_OF_PAGE, np.int64),
            deferred_room=MOST_ROWS_OF_PAGE,
            slots=slots,
            slots_size=len(slots),
            text_end=np.empty(len(slots), np.int64),
            texts=np.empty(text_bytes, np.int8),
            texts_size=text_bytes,
            state=np.zeros(len(At), np.int64),
        )

    def _shape(self, table: str) -> _Shape | None:
        """None for a view, a virtual table, one without row numbers and one with generated columns."""
        ask = self._connection.execute
        roots = ask("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchall()
        columns = ask("SELECT lower(name), upper(type), dflt_value, pk, hidden FROM pragma_table_xinfo(?)", (table,))
        info = columns.fetchall()
        if len(roots) != 1 or not isinstance(roots[0][0], int) or any(column[4] for column in info):
            return None
        indexes = ask("SELECT origin FROM pragma_index_list(?)", (table,)).fetchall()
        keys = [position for position, column in enumerate(info) if column[3]]
        is_decimal = [column[0] in DECIMALS and column[1] == "REAL" for column in info]
        # A sole INTEGER key without an index of its own is the row's number and does not stand in the row.
        is_rowid = len(keys) == 1 and info[keys[0]][1] == "INTEGER" and ("pk",) not in indexes
        return _Shape(
            root=roots[0][0],
            names=tuple(column[0] for column in info),
            has_default=tuple(column[2] is not None for column in info),
            is_number=tuple("INT" in column[1] or real for column, real in zip(info, is_decimal, strict=True)),
            is_decimal=tuple(is_decimal),
            rowid_column=keys[0] if is_rowid else NONE,
        )

    def _leaves(self, root: int) -> Int64Array | None:
        """The numbers of a table's leaf pages, in order; None where the tree is not a tree."""
        pages: Int64Array | None = np.array([root], np.int64)
        for _ in range(DEEPEST):
            if pages is None or len(pages) == 0 or pages.min() < 2 or pages.max() > self._pages:
                return None
            first = self._page(int(pages[0]))
            if first is not None and first[0] == _Page.LEAF:
                return pages if len(unique(pages)) == len(pages) else None
            pages = self._below(pages) if first is not None and first[0] == _Page.INTERIOR else None
        return None

    def _below(self, pages: Int64Array) -> Int64Array | None:
        """The pages that these interior ones name; None where one of them is none, or there are too many."""
        below = [self._children(int(page)) for page in pages]
        lists = [children for children in below if children is not None]
        return None if len(lists) < len(below) or sum(map(len, lists)) > self._pages else np.concatenate(lists)

    def _page(self, number: int) -> npt.NDArray[np.uint8] | None:
        self._file.seek((number - 1) * self._page_size)
        read = self._file.read(self._page_size)
        return np.frombuffer(read, np.uint8) if len(read) == self._page_size else None

    def _children(self, number: int) -> Int64Array | None:
        """The pages that an interior page leads to; None: it is none, or leads out of itself."""
        page = self._page(number)
        if page is None or page[0] != _Page.INTERIOR:
            return None
        cells = int(page[3]) << 8 | int(page[4])
        first = _Page.HEADER + 2 * cells
        if first > self._usable:
            return None
        at = page[_Page.HEADER : first].view(">u2").astype(np.int64)
        if len(at) and (at.min() < first or at.max() > self._usable - 5):
            return None
        at = np.append(at, 8)  # the last child stands in the header
        children: Int64Array = (page[at[:, None] + np.arange(4)].astype(np.int64) << np.array([24, 16, 8, 0])).sum(
            axis=1
        )
        return children

    def _load(self, pages: Int64Array, buffer: npt.NDArray[np.int8]) -> bool:
        """Read pages into the buffer, runs of neighbours at once; False where the file ends in one."""
        begins = np.flatnonzero(np.append(True, np.diff(pages) != 1))
        room = buffer.data.cast("B")
        for low, high in zip(begins.tolist(), [*begins[1:].tolist(), len(pages)], strict=True):
            self._file.seek((int(pages[low]) - 1) * self._page_size)
            position, end = low * self._page_size, high * self._page_size
            while position < end:
                read = self._file.readinto(room[position:end])  # type: ignore[attr-defined]
                if not read:
                    return False
                position += read
        return True

    def _patch(self, table: str, read: Sequence[str], ask: Leaves, columns: Sequence[Int64Array]) -> Leaves | None:
        """Fill in the rows that reach onto other pages, as SQLite reads them; None where one does not hold what is
        expected."""
        count = int(ask.state[At.DEFERRED])
        is_text = ask.text_column != NONE
        quoted = ['"' + column.replace('"', '""') + '"' for column in read]
        chosen = ", ".join([f"CAST({quoted[0]} AS BLOB)" if is_text else quoted[0], *quoted[1:]])
        for row, rowid in zip(ask.deferred_row[:count].tolist(), ask.deferred_rowid[:count].tolist(), strict=True):
            values_read = self._connection.execute(
                f'SELECT {chosen} FROM "{table}" WHERE _rowid_ = ?', (rowid,)
            ).fetchone()
            values = list(values_read or (b"",))
            if is_text and isinstance(values[0], bytes):
                ask, values[0] = _add_text(ask, values[0])
            if not all(value is None or isinstance(value, int | float) for value in values):
                return None
            for column, value in zip(columns, values, strict=True):
                column[row] = MISSING if value is None else value if isinstance(value, int) else bits_of(value)
        return ask


def bits_of(value: float) -> int:
    """A decimal as the integer that has its bits."""
    return int(np.float64(value).view(np.int64))


def decimals(column: Int64Array) -> Float64Array:
    """A column of decimals, NaN where there is none. Of whole numbers SQLite's files hold integers of 48 bits at most,
    which are the bits of no other decimal that means anything; of all else the bits."""
    numbers = np.where(np.abs(column) < EXACT_NS, column, column.view(np.float64))
    return np.where(column == MISSING, np.nan, numbers)


def _room_for(rows: int, columns: int) -> list[Int64Array]:
    """Columns that do not begin at like places of a core's cache, where they would push each other out."""
    return [np.empty(rows + _APART * number, np.int64)[_APART * number :] for number in range(columns)]


def _grown(columns: Sequence[Int64Array], rows: int, known: int, is_even: BoolArray) -> list[Int64Array]:
    """Columns with more room, of which so many rows are known; even ones need none."""
    larger = _room_for(rows, len(columns))
    for index, column in enumerate(columns):
        if is_even[index]:
            larger[index] = np.empty(0, np.int64)
        else:
            larger[index][: len(column[:known])] = column[:known]
    return larger


def _addresses(columns: Sequence[Int64Array]) -> Int64Array:
    return np.array([column.ctypes.data if len(column) else 0 for column in columns], np.int64)


def _add_text(ask: Leaves, text: bytes) -> tuple[Leaves, int]:
    """Number a text that stood on several pages; one that is known already gets a second number."""
    while True:
        text_count = int(ask.state[At.TEXTS])
        used = int(ask.text_end[text_count - 1]) if text_count else 0
        if 2 * (text_count + 1) <= ask.slots_size and used + len(text) <= ask.texts_size:
            break
        ask = _with_more_room(ask)
    ask.texts[used : used + len(text)] = np.frombuffer(text, np.int8)
    ask.text_end[text_count] = used + len(text)
    ask.state[At.TEXTS] = text_count + 1
    return ask, text_count


def _with_room(found: Found, ask: Leaves, columns: list[Int64Array]) -> tuple[Leaves, list[Int64Array]]:
    """The question and its columns, with the room that was lacking."""
    if found is Found.NO_TEXT_ROOM:
        return _with_more_room(ask), columns
    if found is Found.NO_ROOM:  # for a column that was even so far
        room = _room_for(ask.capacity, len(columns))
        columns = [column if len(column) else new for column, new in zip(columns, room, strict=True)]
        return replace(ask, values=_addresses(columns)), columns
    return ask, columns


def _keep(only: Only, new: list[Int64Array], asked: Int64Array) -> int:
    """Move the rows that are wanted to the front of these columns; how many they are."""
    kept = (asked >= only.least) | (asked == MISSING) if isinstance(only, Since) else is_any(asked, only[1])
    count = int(np.count_nonzero(kept))
    for column in new if count < len(kept) else ():
        column[:count] = column[kept]
    return count


def _texts_of(ask: Leaves) -> list[bytes]:
    """The distinct texts."""
    ends = ask.text_end[: ask.state[At.TEXTS]].tolist()
    whole = ask.texts[: ends[-1] if ends else 0].tobytes()
    return [whole[low:high] for low, high in zip([0, *ends], ends, strict=False)]


def _spread_out(
    columns: list[Int64Array], is_alike: BoolArray, may_be_alike: BoolArray, first: list[int], rows: int
) -> list[Int64Array]:
    """The columns; of those of one value throughout, that value."""
    for index in np.flatnonzero(may_be_alike & ~is_alike).tolist():
        if is_even(columns[index][:rows]):
            is_alike[index], first[index] = True, int(columns[index][0])
    return [
        spread(value, rows) if even and rows else column[:rows]
        for column, even, value in zip(columns, is_alike.tolist(), first, strict=True)
    ]


def _with_more_room(ask: Leaves) -> Leaves:
    """Room for twice as many texts or, where there is that, four times their bytes; the texts known stay."""
    text_count = int(ask.state[At.TEXTS])
    is_many = 2 * (text_count + 1) > ask.slots_size
    slots = empty_slots((1 + is_many) * ask.slots_size)
    texts = np.empty((1 if is_many else 4) * ask.texts_size, np.int8)
    text_end = np.empty(len(slots), np.int64)
    used = int(ask.text_end[text_count - 1]) if text_count else 0
    texts[:used], text_end[:text_count] = ask.texts[:used], ask.text_end[:text_count]
    ask.state[At.HASHED] = 0
    return replace(ask, slots=slots, slots_size=len(slots), texts=texts, texts_size=len(texts), text_end=text_end)
