"""An nsys export whose tables lie in files of columns: all of them, in a folder (``nsys export --type arrowdir``, at
less than half the cost of SQLite's, or ``parquetdir``, of which pyarrow makes the same), or the largest ones, beside an
SQLite file. Tables and columns are those of the SQLite export.

What is read in bulk comes straight from the columns. Queries go to tables in memory, which are filled when a query
first names them: those are small, but for NVTX_EVENTS, whose ranges no query asks for.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model import door
from boundby.model.arrays import MISSING, BoolArray, Int32Array, Int64Array, is_any, is_even, joined, spread
from boundby.model.errors import InputError, ToolError
from boundby.model.late import once
from boundby.native.passes import distinct_texts, texts_at
from boundby.readers.nsys import COLUMN_FILES, export_kind
from boundby.readers.nsys.database import Connection, Database, open_readonly
from boundby.readers.nsys.host_tables import IS_RANGE
from boundby.readers.nsys.pages import Only, Since

# A table that nsys wrote as an Arrow stream (``--type arrowdir``), read without pyarrow, a column at a time.
#
# The format is https://arrow.apache.org/docs/format/Columnar.html: messages that a flatbuffer describes, a schema
# first, then batches of rows whose columns are buffers one after the other. What nsys does not write (compression,
# dictionaries, nested columns) is not read: `NotPlainError`.

_CONTINUES = int(np.iinfo(np.uint32).max)
_SIZES = {8, 16, 32, 64}


class _Message(IntEnum):
    """Kinds of messages, as Arrow numbers them."""

    SCHEMA = 1
    BATCH = 3


class _Kind(IntEnum):
    """Kinds of columns that are read here."""

    INTEGER = 2
    FLOAT = 3
    TEXT = 5
    TRUTH = 6


#: Types of decimals by their precision, as Arrow numbers it: single and double.
_DECIMALS = {1: "<f4", 2: "<f8"}


class NotPlainError(Exception):
    """Not a stream that is read here, or one cut short."""


class _Column(Struct, frozen=True):
    kind: int
    type: npt.DTypeLike  # of its numbers
    buffers: int
    first: int  # of these among those of a batch

    @property
    def is_integer(self) -> bool:
        return self.kind in (_Kind.INTEGER, _Kind.TRUTH)


class _Batch(Struct, frozen=True):
    rows: int
    missing: list[int]  # rows without a value, of each column
    buffers: list[tuple[int, int]]  # where each lies in the file, and its bytes


class ArrowFile:
    """The columns of one file. Raises NotPlainError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.columns: dict[str, _Column] = {}
        self._batches: list[_Batch] = []
        try:
            for kind, header, begin, end in _messages(path):
                if kind == _Message.SCHEMA:
                    self.columns = _schema(header)
                else:
                    self._batches.append(_batch(header, begin, end, list(self.columns.values())))
        except (struct.error, UnicodeDecodeError) as error:
            raise NotPlainError(str(error)) from error
        self.rows = sum(batch.rows for batch in self._batches)

    def integers(self, name: str) -> Int64Array:
        """A column of integers, truth values or the bits of decimals, MISSING where there is none; of one value it
        takes no memory."""
        column = self.columns[name]
        if column.kind == _Kind.TEXT:
            raise NotPlainError(f"{name} holds something that is not a number where one belongs")
        index = list(self.columns).index(name)
        parts = [self._integers(batch, column, index) for batch in self._batches]
        if len(parts) == 1:
            return parts[0]
        return joined(parts) if parts else np.empty(0, np.int64)

    def _integers(self, batch: _Batch, column: _Column, place: int) -> Int64Array:
        if batch.missing[place] == batch.rows:
            return spread(MISSING, batch.rows)
        read = self._read(batch, column, -1, column.type)
        if column.kind == _Kind.TRUTH:
            read = np.unpackbits(read, count=batch.rows, bitorder="little")
        if column.kind == _Kind.FLOAT:
            read = read.astype(np.float64).view(np.int64)
        values = read[: batch.rows].astype(np.int64, copy=False)
        if batch.missing[place]:
            values = np.where(self._is_there(batch, column), values, MISSING)
        return spread(int(values[0]), len(values)) if is_even(values) else values

    def texts(self, name: str) -> tuple[Int32Array, list[str]]:
        """Of each row the number of its text among the distinct ones, -1 where there is none."""
        column = self.columns[name]
        if column.kind != _Kind.TEXT:
            raise NotPlainError(f"{name} holds no texts")
        index = list(self.columns).index(name)
        numbers: list[Int32Array] = []
        texts: list[str] = []
        number_of_text: dict[str, int] = {}
        for batch in self._batches:
            if batch.missing[index] == batch.rows:
                numbers.append(np.full(batch.rows, -1, np.int32))
                continue
            offset, written = self._texts(batch, column)
            number, first = distinct_texts(written, offset)
            parts = texts_at(written, offset[first], offset[first + 1])
            if batch.missing[index]:
                number[~self._is_there(batch, column)] = -1
            if len(self._batches) > 1:  # the same text may stand in several batches
                same = np.array([number_of_text.setdefault(text, len(number_of_text)) for text in parts], np.int32)
                number = np.where(number >= 0, same[number], number)
                texts = list(number_of_text)
            else:
                texts = parts
            numbers.append(number)
        return (np.concatenate(numbers) if numbers else np.empty(0, np.int32)), texts

    def some(self, name: str, wanted: BoolArray) -> list[Any]:
        """What some rows hold, as Python's own numbers, texts and None."""
        if self.columns[name].kind == _Kind.TEXT:
            number, texts = self.texts(name)
            return [texts[text_id] if text_id >= 0 else None for text_id in number[wanted].tolist()]
        bits = self.integers(name)[wanted]
        values = bits.view(np.float64) if self.columns[name].kind == _Kind.FLOAT else bits
        return [None if bit == MISSING else value for bit, value in zip(bits.tolist(), values.tolist(), strict=True)]

    def _texts(self, batch: _Batch, column: _Column) -> tuple[Int32Array, npt.NDArray[np.uint8]]:
        """Where each text begins, and the last ends, and the bytes."""
        offset = self._read(batch, column, 1, np.int32)[: batch.rows + 1]
        written = self._read(batch, column, -1, np.uint8)
        fits = len(offset) == batch.rows + 1 and offset[0] >= 0 and offset[-1] <= len(written)
        if not fits or (offset[1:] < offset[:-1]).any():
            raise NotPlainError("texts lie outside of their column")
        return offset, written

    def _is_there(self, batch: _Batch, column: _Column) -> BoolArray:
        bits = np.unpackbits(self._read(batch, column, 0, np.uint8), count=batch.rows, bitorder="little")
        return bits.view(np.bool_)

    def _read(self, batch: _Batch, column: _Column, buffer: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        at, size = batch.buffers[column.first + buffer % column.buffers]
        kind = np.dtype(kind)
        with door.opened(self._path, buffering=0) as file:
            file.seek(at)
            read: npt.NDArray[Any] = np.fromfile(file, kind, size // kind.itemsize)
        return read


def _messages(path: Path) -> Iterator[tuple[int, _Table, int, int]]:
    """Kind, header and where the body begins and ends, of each message up to the mark at the end."""
    size = path.stat().st_size
    with door.opened(path) as file:
        while True:
            mark, length = struct.unpack("<Ii", file.read(8))
            if mark != _CONTINUES or length < 0:
                raise NotPlainError("no message where one belongs")
            if length == 0:
                return
            about = file.read(length)
            message = _Table.root(about)
            body = file.tell()
            end = body + message.number(3, "q")
            if not body <= end <= size:
                raise NotPlainError("cut short")
            if message.number(1, "B") not in tuple(_Message):
                raise NotPlainError("a message of another kind")
            yield message.number(1, "B"), message.table(2), body, end
            file.seek(end)


def _type(kind: int, told: _Table) -> npt.DTypeLike:
    """Of a column's numbers."""
    if kind == _Kind.INTEGER:
        bits = told.number(0, "i")
        if bits not in _SIZES:
            raise NotPlainError("integers of another size")
        return f"<{'i' if told.number(1, 'B') else 'u'}{bits // 8}"
    if kind == _Kind.FLOAT:
        if (precision := told.number(0, "h")) not in _DECIMALS:
            raise NotPlainError("decimals of another size")
        return _DECIMALS[precision]
    return np.uint8


def _schema(header: _Table) -> dict[str, _Column]:
    columns: dict[str, _Column] = {}
    first = 0
    if header.number(0, "h") != 0:
        raise NotPlainError("big-endian")
    for field in header.tables(1):
        kind, type_table = field.number(2, "B"), field.table(3)
        if field.has(4) or field.tables(5) or kind not in tuple(_Kind):
            raise NotPlainError("a column of another kind")
        buffers = 3 if kind == _Kind.TEXT else 2
        columns[field.text(0)] = _Column(kind, _type(kind, type_table), buffers, first)
        first += buffers
    return columns


def _needed(column: _Column, rows: int) -> int:
    """Bytes of so many rows of numbers; of texts, of where each ends."""
    if column.kind == _Kind.TEXT and rows:
        return 4 * (rows + 1)
    return rows * np.dtype(column.type).itemsize if column.kind in (_Kind.INTEGER, _Kind.FLOAT) else (rows + 7) // 8


def _batch(header: _Table, begin: int, end: int, columns: list[_Column]) -> _Batch:
    rows = header.number(0, "q")
    nodes, buffers = header.numbers(1), header.numbers(2)
    if header.has(3) or len(nodes) != 2 * len(columns) or len(buffers) != 2 * sum(column.buffers for column in columns):
        raise NotPlainError("a batch of other columns, or compressed")
    ranges = [(begin + at, size) for at, size in zip(buffers[::2], buffers[1::2], strict=True)]
    if rows < 0 or any(not begin <= at <= at + size <= end for at, size in ranges):
        raise NotPlainError("columns lie outside of their batch")
    for column, missing in zip(columns, nodes[1::2], strict=True):
        valid, last = ranges[column.first][1], ranges[column.first + 1][1]
        if last < _needed(column, rows) or (missing and valid < (rows + 7) // 8):
            raise NotPlainError("a column of fewer rows")
    return _Batch(rows, nodes[1::2], ranges)


class _Table(Struct, frozen=True):
    """A table of a flatbuffer: https://flatbuffers.dev/internals. Raises struct.error where it leads out of it."""

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, *struct.unpack_from("<I", data))

    def _place(self, field: int) -> int | None:
        """Where a field lies; None: it is not there."""
        table = self.at - self._number(self.at, "i")
        slot = 4 + 2 * field
        offset = self._number(table + slot, "H") if slot < self._number(table, "H") else 0
        return self.at + offset if offset else None

    def _number(self, at: int, kind: str) -> int:
        if at < 0:
            raise struct.error("an offset before the beginning")
        return int(struct.unpack_from(f"<{kind}", self.data, at)[0])

    def has(self, field: int) -> bool:
        return self._place(field) is not None

    def number(self, field: int, kind: str) -> int:
        """A number, 0 where it is left out."""
        at = self._place(field)
        return 0 if at is None else self._number(at, kind)

    def _led_to(self, field: int) -> int | None:
        at = self._place(field)
        return None if at is None else at + self._number(at, "I")

    def table(self, field: int) -> _Table:
        if (at := self._led_to(field)) is None:
            raise struct.error("a table is left out")
        return _Table(self.data, at)

    def tables(self, field: int) -> list[_Table]:
        if (at := self._led_to(field)) is None:
            return []
        offsets = struct.unpack_from(f"<{self._number(at, 'I')}I", self.data, at + 4)
        return [_Table(self.data, at + 4 + 4 * number + offset) for number, offset in enumerate(offsets)]

    def numbers(self, field: int) -> list[int]:
        """A vector of pairs of 64-bit integers, flat."""
        if (at := self._led_to(field)) is None:
            return []
        return list(struct.unpack_from(f"<{2 * self._number(at, 'I')}q", self.data, at + 4))

    def text(self, field: int) -> str:
        if (at := self._led_to(field)) is None:
            return ""
        (raw_text,) = struct.unpack_from(f"<{self._number(at, 'I')}s", self.data, at + 4)
        return bytes(raw_text).decode("utf-8")


#: The tables that may lie in files of their own, and the columns of each that must hold integers, or texts.
TABLES = {
    "NVTX_EVENTS": (("start", "end", "eventType", "globalTid", "textId", "domainId"), ("text",)),
    "OSRT_API": (("start", "end", "globalTid", "nameId", "callchainId"), ()),
    "SCHED_EVENTS": (("start", "globalTid", "isSchedIn"), ()),
}
_QUERIED = "NVTX_EVENTS"


def columns_beside(export: Path, table: str) -> Path:
    """Where the column file of an export's table lies, if it has one."""
    return export.with_name(f"{export.name}.{table}.arrow")


def is_readable(file: Path, table: str) -> bool:
    """Whether a column file is whole and of a kind that is read here."""
    integers, texts = TABLES[table]
    try:
        columns = ArrowFile(file).columns
    except (NotPlainError, OSError):
        return False
    return {*integers, *texts} <= columns.keys() and all(columns[name].is_integer for name in integers)


class ColumnExport(Database):
    """See `Database`, in whose place it is used. Queries of tables in files, none of which asks for the ranges of
    NVTX_EVENTS, go to tables in memory, each of which is filled for the first of them."""

    def __init__(
        self,
        connection: Connection,
        memory: Connection,
        path: Path,
        files: Mapping[str, Path],
        opened: contextlib.ExitStack,
    ) -> None:
        """``opened``: what is closed with the export."""
        self._files, self._memory, self._opened = files, memory, opened
        super().__init__(connection, path)
        self.in_files = frozenset(files)
        self.tables |= self.in_files

    def _connection_of(self, sql: str) -> sqlite3.Connection:
        named = self._files.keys() & re.findall(r"\w+", sql)
        for table in sorted(named):
            self._fill(table)
        return self._memory if named else super()._connection_of(sql)

    @once
    def _fill(self, table: str) -> None:
        file = self._file(table)
        wanted = np.ones(file.rows, bool) if table != _QUERIED else ~self._is_range
        names, places = ", ".join(f'"{name}"' for name in file.columns), ", ".join("?" * len(file.columns))
        self._memory.execute(f'CREATE TABLE "{table}" ({names})')
        with self._errors_of(table):
            values = [file.some(name, wanted) for name in file.columns] if wanted.any() else [()] * len(file.columns)
        self._memory.executemany(f'INSERT INTO "{table}" VALUES ({places})', zip(*values, strict=True))

    @once
    def _file(self, table: str) -> ArrowFile:
        path = self._files[table]
        with self._errors_of(table):
            return ArrowFile(path if path.suffix == ".arrow" else self._as_stream(path))

    def _as_stream(self, path: Path) -> Path:
        """A Parquet file as an Arrow stream."""
        try:
            arrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
        except ImportError:
            raise ToolError(
                "Reading a folder of Parquet files needs pyarrow, which is not installed.",
                "Run: pip install pyarrow. Or export as SQLite: nsys export --type sqlite REPORT.nsys-rep",
            ) from None
        import tempfile  # for folders of columns only: with all that it loads it costs as much as a rule

        folder = tempfile.TemporaryDirectory(prefix="boundby-", dir=door.temporary())
        made = Path(self._opened.enter_context(folder), path.name)
        try:
            with arrow.OSFile(str(made), "wb") as file:
                rows = parquet.read_table(str(path), memory_map=False)
                with arrow.ipc.new_stream(file, rows.schema) as stream:
                    stream.write_table(rows)
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise NotPlainError(" ".join(str(error).split())[:80]) from error
        return made

    @contextlib.contextmanager
    def _errors_of(self, table: str) -> Iterator[None]:
        try:
            yield
        except (NotPlainError, OSError) as error:
            raise InputError(
                f"{self.path} is damaged: its file {self._files[table].name} cannot be read ({error}).",
                "Export it again: nsys export --type arrowdir --force-overwrite true REPORT.nsys-rep",
            ) from error

    def holds(self, table: str) -> bool:
        return self.row_count(table) > 0 if table in self._files else super().holds(table)

    def row_count(self, table: str) -> int:
        return self._file(table).rows if table in self._files else super().row_count(table)

    @once
    def _columns_of(self, table: str) -> dict[str, str]:
        if table not in self._files:
            return super()._columns_of(table)
        return {name.lower(): name for name in self._file(table).columns}

    def _integers(self, table: str, present: Sequence[str], only: Only | None) -> dict[str, Int64Array]:
        if table not in self._files:
            return super()._integers(table, present, only)
        kept = self._kept(table, only)
        read = {column: self._column(table, column) for column in present}
        if kept is None:
            return read
        rows = int(np.count_nonzero(kept))
        return {
            column: spread(int(values[0]), rows) if is_even(values) else values[kept] for column, values in read.items()
        }

    def _column(self, table: str, column: str) -> Int64Array:
        with self._errors_of(table):
            return self._file(table).integers(self._columns_of(table)[column.lower()])

    def texts_of(self, table: str, column: str, *, only: Only | None = None) -> tuple[Int32Array, list[str]]:
        if table not in self._files:
            return super().texts_of(table, column, only=only)
        with self._errors_of(table):
            number, texts = self._file(table).texts(self._columns_of(table)[column.lower()])
        kept = self._kept(table, only)
        return number if kept is None else number[kept], texts

    def _kept(self, table: str, only: Only | None) -> BoolArray | None:
        """Mask of the rows that are wanted; None: all are."""
        if only is None:
            return None
        if only == IS_RANGE:
            return self._is_range
        values = self._column(table, only[0])
        return (values >= only.least) | (values == MISSING) if isinstance(only, Since) else is_any(values, only[1])

    @cached_property
    def _is_range(self) -> BoolArray:
        return is_any(self._column(_QUERIED, IS_RANGE[0]), IS_RANGE[1])


@contextlib.contextmanager
def open_database(path: Path, shown: Path) -> Iterator[Database]:
    """An export of any kind, opened for reading only. Raises UserError."""
    with contextlib.ExitStack() as opened:
        if path.is_dir():
            kind, connection = export_kind(path), opened.enter_context(_in_memory())
            files = {file.stem: file for file in sorted(path.iterdir()) if COLUMN_FILES.get(file.suffix) == kind}
        else:
            connection = opened.enter_context(open_readonly(path))
            files = {table: file for table in TABLES if (file := columns_beside(path, table)).is_file()}
        if files:
            yield ColumnExport(connection, opened.enter_context(_in_memory()), shown, files, opened)
        else:
            yield Database(connection, shown)


def _in_memory() -> contextlib.closing[Connection]:
    return contextlib.closing(sqlite3.connect(":memory:", factory=Connection))
