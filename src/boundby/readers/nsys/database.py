"""An nsys SQLite export: opened strictly read-only, read in bulk, with a clear reason where it cannot be.

Nothing beside the input is ever created: a database in WAL mode would make SQLite write ``-shm`` and ``-wal``
files, so such a file is opened as immutable, or, when its log holds data, read from a temporary copy.

Columns become NumPy arrays. The schema is probed: tables and columns come and go between versions.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np
from msgspec import Struct

from boundby.model import door, stage
from boundby.model.arrays import MISSING as MISSING
from boundby.model.arrays import Int32Array, Int64Array, spread
from boundby.model.door import MOST_TEXT_BYTES
from boundby.model.errors import InputError, UserError
from boundby.model.late import once
from boundby.model.scale import MOMENT_S, TENFOLD
from boundby.model.units import LINE
from boundby.readers.files import export_again, first_bytes, no_report
from boundby.readers.nsys import sniff
from boundby.readers.nsys.pages import DECIMALS, HEADER_BYTES, Only, PageReader, Since, bits_of, header_of

# How a reader declares what it reads: the register of tables (`boundby.readers.nsys.reader`) is made of that.


class Reads(Struct, frozen=True):
    """A table of an export, the columns that one reader asks it for, and what for. A table can be read by several."""

    table: str
    columns: tuple[str, ...]
    gives: str


BUSY_TIMEOUT_S = MOMENT_S  # an exporter that is still writing keeps its lock for much longer than this

#: What reading can raise. UnicodeDecodeError: Python fails to decode SQLite's message about a damaged schema.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


class Connection(sqlite3.Connection):
    """Closes its cursors before itself. SQLite keeps the file locked as long as one lives, and one can live on in
    the traceback of an error that somebody keeps."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.file: BinaryIO | None = None  # the same bytes, for `PageReader`
        self.most_rows = 0  # that a file of this size can hold of a table
        self._queries: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        cursor = super().execute(*arguments)
        self._queries.add(cursor)
        return cursor

    def close(self) -> None:
        for cursor in list(self._queries):
            cursor.close()
        super().close()


@contextlib.contextmanager
def open_readonly(path: Path) -> Iterator[Connection]:
    """A connection inside one read transaction. Raises InputError with the reason and the next step."""
    header = first_bytes(path)
    if not sniff(header):
        raise no_report(path, header)
    _check_length(path, header)
    with contextlib.ExitStack() as cleanup:
        source, query = path, "mode=ro"
        if header_of(header).has_log:
            query = "mode=ro&immutable=1"
            log = _beside(path, "-wal")
            if log.exists() and log.stat().st_size:
                import tempfile

                source = _copy_with_log(
                    path, log, Path(cleanup.enter_context(tempfile.TemporaryDirectory(dir=door.temporary())))
                )
                query = "mode=rw"  # the copy is ours: SQLite may replay its log
        # Opened before SQLite opens it and closed after: a process that closes a file loses its locks on it.
        file = cleanup.enter_context(door.opened(source, buffering=0))
        try:
            address = f"file:{quote(os.fsencode(source.absolute()))}?{query}"
            connection = sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, factory=Connection)
            cleanup.enter_context(contextlib.closing(connection))
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.isolation_level = None
            _harden(connection)
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.most_rows = path.stat().st_size
            connection.file = None if query == "mode=rw" else file  # what stands in a log does not stand in the file
        except SQLITE_ERRORS as error:
            raise explain(path, error) from error
        yield connection


#: All that reading asks of SQLite. Not among them: recursion, which needs no rows to go on for ever.
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_TRANSACTION}
_PRAGMAS = {"table_info", "table_xinfo", "index_list", "trusted_schema", "cell_size_check", "query_only"}
#: Functions that make no text out of nothing, for queries here and for views. Others can fill memory in one step.
_FUNCTIONS = {
    *("abs", "avg", "coalesce", "count", "glob", "group_concat", "ifnull", "iif", "instr", "length", "like", "lower"),
    *("ltrim", "max", "min", "nullif", "round", "row_number", "rtrim", "substr", "substring", "sum", "total", "trim"),
    *("typeof", "unicode", "upper"),
}
_LONGEST_VALUE = 1 << 28  # bytes of one text: names are joined to texts of some megabytes
_STEPS = 1_000_000  # of SQLite's machine between two looks at the clock: a view can ask for anything


def _harden(connection: Connection) -> None:
    """What a schema brings along (views, functions, triggers) may read, in bounded time and memory: nothing else."""
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
        connection.execute(f"PRAGMA {pragma}")
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    connection.set_authorizer(_authorize)
    _ended.clear()
    connection.set_progress_handler(_is_over, _STEPS)


#: What ended a statement from outside, such as Ctrl-C: SQLite drops what its progress handler raises.
_ended: list[BaseException] = []


def _is_over() -> bool:
    """Whether a statement has to end: the stage's time is over, or whoever started boundby says so."""
    try:
        return stage.over() is not None
    except BaseException as error:
        _ended.append(error)
        return True


def _authorize(action: int, one: str | None, two: str | None, _schema: str | None, _by: str | None) -> int:
    if action == sqlite3.SQLITE_PRAGMA:
        is_known = one in _PRAGMAS
    elif action == sqlite3.SQLITE_FUNCTION:
        is_known = two in _FUNCTIONS
    elif action == sqlite3.SQLITE_UPDATE:
        is_known = one == "sqlite_master"  # how SQLite takes in a pragma as a table
    else:
        is_known = action in _READING
    return sqlite3.SQLITE_OK if is_known else sqlite3.SQLITE_DENY


def _says(text: str, *words: str) -> bool:
    return any(word in text for word in words)


def explain(path: Path, error: Exception) -> UserError:
    """The sentence for an SQLite error met while reading ``path``."""
    text = "malformed database schema" if isinstance(error, UnicodeDecodeError) else str(error)
    if _says(text, "locked", "busy"):
        return InputError(
            f"{path} is locked by another program, probably an export that is still running.",
            "Wait until it has finished, then try again.",
        )
    if _says(text, "readonly", "unable to open", "disk I/O"):
        if _beside(path, "-journal").exists():
            reason = "its rollback journal still lies beside it"
            return InputError(f"{path} was left half written: {reason}.", export_again(path))
        return InputError(f"{path} cannot be opened ({text}).", "Check the file and its folder's permissions.")
    if _says(text, "not a database", "file is encrypted"):
        return InputError(f"{path} is not an SQLite database.", export_again(path))
    if "interrupted" in text:
        if _ended:
            raise _ended.pop()
        return stage.over() or InputError(f"{path} could not be read to its end.", export_again(path))
    if _says(text, "prohibited", "not authorized", "unsafe use"):
        return InputError(f"{path} is not an export: its schema holds more than tables.", export_again(path))
    reason = " ".join(text.split())
    reason = reason if len(reason) <= LINE else reason[:LINE] + "..."
    return InputError(f"{path} is damaged (SQLite says: {reason}).", export_again(path))


def _beside(path: Path, suffix: str) -> Path:
    """A file that SQLite keeps beside the database: beside the file itself where the path is a link."""
    real = path.resolve()
    return real.with_name(real.name + suffix)


def _check_length(path: Path, header: bytes) -> None:
    """A file shorter than its header says was cut off, whatever the pages that are left hold."""
    described = header_of(header)
    if len(header) == HEADER_BYTES and not described.is_valid:
        raise InputError(f"{path} is damaged (its header is not valid).", export_again(path))
    size, whole = path.stat().st_size, max(described.pages * described.page_size, HEADER_BYTES)
    if size < whole:
        again = export_again(path)
        raise InputError(
            f"{path} is truncated: {size:,} of {whole:,} bytes are there.",
            f"Copy it again in full, or {again[0].lower()}{again[1:]}",
        )


#: A log holds pages that are not in the file yet: of an export that was being written many, but no more than these.
MOST_LOG_BYTES = MOST_TEXT_BYTES


def _copy_with_log(path: Path, log: Path, folder: Path) -> Path:
    import shutil

    copy = folder / path.name
    need = max(path.stat().st_size + log.stat().st_size, 1)
    if log.stat().st_size > TENFOLD * path.stat().st_size + MOST_LOG_BYTES:
        raise InputError(
            f"{path} has a write-ahead log of {log.stat().st_size:,} bytes beside it, which cannot be of this file.",
            f"Remove {log.name} if no program writes to the file. {export_again(path)}",
        )
    if need > shutil.disk_usage(folder).free:
        raise InputError(
            f"{path} has a write-ahead log, and there is no room to copy both ({need:,} bytes).",
            f"Free some space in {folder.parent}, or set TMPDIR to a folder with room.",
        )
    try:
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
    except OSError as error:
        raise InputError(
            f"{path} has a write-ahead log, and there is no room to copy both ({os.strerror(error.errno or 0)}).",
            f"Free some space in {folder.parent}, or set TMPDIR to a folder with room.",
        ) from error
    return copy


DECLARED = (Reads("StringIds", ("id", "value"), "texts of all names"),)


class Database:
    """An open export: its tables, their columns, and reading of integer columns in bulk."""

    def __init__(self, connection: Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._pages = PageReader.of(connection, connection.file)
        # Without a page of its own a table is a virtual one, which runs code of an extension.
        plain = "type = 'table' AND rootpage > 0 OR type = 'view'"
        rows = self.rows(f"SELECT name, type FROM sqlite_master WHERE {plain}")
        kinds = {str(name): kind for name, kind in rows}
        self.tables = frozenset(kinds)
        self.views = frozenset(name for name, kind in kinds.items() if kind == "view")
        self.in_files = frozenset[str]()  # tables that lie in files of columns

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        """The rows of any query; SQLite's errors become InputError."""
        try:
            # Not ``yield from``: that would close a cursor whose connection may be closed already.
            for row in self._connection_of(sql).execute(sql, parameters):  # noqa: UP028
                yield row
        except SQLITE_ERRORS as error:
            raise explain(self.path, error) from error

    def _connection_of(self, _sql: str) -> sqlite3.Connection:
        """Where the tables of a query are."""
        return self._connection

    def has(self, table: str, *columns: str) -> bool:
        """True if the table and all these columns exist (it may still be empty)."""
        return table in self.tables and all(column.lower() in self._columns_of(table) for column in columns)

    @once
    def _columns_of(self, table: str) -> dict[str, str]:
        """Name of each column by its lower-case form. Looked up late: other tools' broken views are never touched."""
        if table not in self.tables:
            return {}
        columns = self.rows("SELECT name, lower(name) FROM pragma_table_info(?)", (table,))
        return {str(lower): str(column) for column, lower in columns}

    def has_row_numbers(self, table: str) -> bool:
        """Whether rows can be asked for by SQLite's own numbers."""
        if table in self.views:
            return False
        try:
            self._connection.execute(f"SELECT _rowid_ FROM {_quoted(table)} LIMIT 0")
        except sqlite3.Error:
            return False
        return True

    def row_count(self, table: str) -> int:
        """How many rows a table has: the last row's number tells without going through them."""
        column = "coalesce(max(_rowid_), 0)" if self.is_numbered(table) else "count(*)"
        ((number,),) = self.rows(f"SELECT {column} FROM {_quoted(table)}")
        return number if isinstance(number, int) else 0

    def is_numbered(self, table: str) -> bool:
        """Whether rows are numbered as exporters do, who only append: not in a view, and not where a number is
        damaged."""
        keys = self.rows("SELECT 1 FROM pragma_table_info(?) WHERE pk", (table,))
        if not self.has_row_numbers(table) or next(keys, None):  # a key may number them in its own way
            return False
        ((last,),) = self.rows(f"SELECT max(_rowid_) FROM {_quoted(table)}")
        return last is None or (isinstance(last, int) and 0 < last <= self._connection.most_rows)

    def columns(self, table: str, wanted: Sequence[str], *, only: Only | None = None) -> dict[str, Int64Array]:
        """Integer columns of a table, in row order, of the rows that are wanted.

        An absent table has no rows, an absent column is MISSING.
        """
        spelled = self._columns_of(table)
        present = [column for column in wanted if column.lower() in spelled]
        if not present:
            return {column: np.empty(0, np.int64) for column in wanted}
        if isinstance(only, Since) and only.column.lower() not in spelled:
            only = None
        read = self._integers(table, present, only)
        length = len(read[present[0]])
        return {column: read[column] if column in read else spread(MISSING, length) for column in wanted}

    def _integers(self, table: str, present: Sequence[str], only: Only | None) -> dict[str, Int64Array]:
        return self._from_pages(table, present, only) or self._from_rows(table, present, only)

    def _from_pages(self, table: str, present: Sequence[str], only: Only | None) -> dict[str, Int64Array] | None:
        if self._pages is None or table in self.views:
            return None
        try:
            return self._pages.columns(table, present, only)
        except SQLITE_ERRORS as error:
            raise explain(self.path, error) from error

    def _from_rows(self, table: str, present: Sequence[str], only: Only | None) -> dict[str, Int64Array]:
        """Columns of a table, read by SQLite: for tables that are not plain."""
        spelled = self._columns_of(table)
        real = [column for column in present if column.lower() in DECIMALS]
        if real:
            others = [column for column in present if column not in real]
            return self._from_rows(table, others, only) | self._decimals(table, real, only)
        values = [f'ifnull("{spelled[column.lower()]}", {MISSING})' for column in present]
        rows = self.rows(_query(table, values, only))
        try:
            flat = np.fromiter(itertools.chain.from_iterable(rows), np.int64)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(
                f"{self.path} is damaged: table {table} holds something that is not a number where one belongs.",
                export_again(self.path),
            ) from error
        return dict(zip(present, np.ascontiguousarray(flat.reshape(-1, len(values)).T), strict=True))

    def _decimals(self, table: str, columns: Sequence[str], only: Only | None) -> dict[str, Int64Array]:
        """Columns of decimals by SQLite, in the order of the others."""
        query = _query(table, [f'"{column}"' for column in columns], only)
        rows = [[bits_of(cell) if isinstance(cell, float) else MISSING for cell in row] for row in self.rows(query)]
        values = np.array(rows, np.int64).reshape(-1, len(columns)).T
        return dict(zip(columns, values, strict=True))

    def texts_of(self, table: str, column: str, *, only: Only | None = None) -> tuple[Int32Array, list[str]]:
        """A column of texts in row order: of each row the number of its text among the distinct ones, -1 for NULL."""
        spelled = self._columns_of(table)[column.lower()]
        if self._pages is not None and table not in self.views:
            try:
                texts_read = self._pages.texts(table, spelled, only)
            except SQLITE_ERRORS as error:
                raise explain(self.path, error) from error
            if texts_read is not None:
                return texts_read.number, [text.decode("utf-8", "replace") for text in texts_read.distinct]
        texts = [as_text(value) for (value,) in self.rows(_query(table, [f'"{spelled}"'], only))]
        number: dict[str, int] = {}
        numbers = [-1 if text is None else number.setdefault(text, len(number)) for text in texts]
        return np.array(numbers, np.int32), list(number)

    def holds(self, table: str) -> bool:
        """True if the table has any row."""
        return table in self.tables and next(iter(self.rows(f'SELECT 1 FROM "{table}" LIMIT 1')), None) is not None

    @cached_property
    def texts(self) -> Mapping[int, str]:
        """StringIds: the text of every id."""
        if not self.has("StringIds", "id", "value"):
            return {}
        rows = self.rows("SELECT id, value FROM StringIds")
        return {
            number: text for number, value in rows if isinstance(number, int) and (text := as_text(value)) is not None
        }

    def text(self, number: object, inline: object) -> str | None:
        """A text that stands in StringIds under its number or, without one, in the row itself; None for neither."""
        return self.texts.get(number) if isinstance(number, int) else as_text(inline)

    def optional(self, table: str, column: str) -> str:
        """The column's name for a query, NULL where the table lacks it."""
        return column if self.has(table, column) else "NULL"

    def pairs(self, table: str) -> list[tuple[str, str]]:
        """(name, value) rows of a metadata table, in order; empty if it is absent."""
        if not self.has(table, "name", "value"):
            return []
        known_pairs = [
            (as_text(name), as_text(value)) for name, value in self.rows(f'SELECT name, value FROM "{table}"')
        ]
        return [(name, value) for name, value in known_pairs if name is not None and value is not None]


def _quoted(table: str) -> str:
    """The name of a table that anybody may have named."""
    return '"{}"'.format(table.replace('"', '""'))


def _query(table: str, values: Sequence[str], only: Only | None) -> str:
    """SQL for the rows that are wanted, in row order: an index that somebody added must not change it."""
    query = f'SELECT {", ".join(values)} FROM "{table}" NOT INDEXED'
    if isinstance(only, Since):
        return f'{query} WHERE ifnull("{only.column}", {np.iinfo(np.int64).max}) >= {only.least}'
    return f'{query} WHERE "{only[0]}" IN ({", ".join(map(str, only[1]))})' if only else query


def as_text(value: object) -> str | None:
    """The text of a column that should hold one; None for NULL."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)
