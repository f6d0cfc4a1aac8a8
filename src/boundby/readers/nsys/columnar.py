"""An nsys export that is a folder with a file of columns for each table: ``nsys export --type arrowdir`` (less than
half the cost of SQLite's) or ``parquetdir``. Tables and columns are those of the SQLite export; pyarrow reads them.

What is read in bulk comes straight from the columns. Queries go to tables in memory, which are filled when a query
first names them: those are small, but for NVTX_EVENTS, whose ranges no query asks for.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from boundby.model.arrays import MISSING, BoolArray, Int32Array, Int64Array, is_any, is_even, spread
from boundby.model.errors import InputError, ToolError
from boundby.readers.nsys import COLUMN_FILES, export_kind
from boundby.readers.nsys.arrow_stream import ArrowFile, NotPlainError
from boundby.readers.nsys.database import Connection, Database, explain, open_readonly
from boundby.readers.nsys.host_tables import IS_RANGE
from boundby.readers.nsys.pages import Only, Since

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


class SplitExport(Database):
    """See `Database`, in whose place it is used. Queries of NVTX_EVENTS, none of which asks for ranges, go to a table
    in memory, which is filled for the first of them; no other of these tables is queried."""

    def __init__(self, connection: Connection, path: Path, files: Mapping[str, ArrowFile]) -> None:
        self._files = files
        super().__init__(connection, path)
        self.tables |= files.keys()
        self.known_rows = {table: file.rows for table, file in files.items()}
        for table, file in files.items():
            self._columns[table] = {name.lower(): name for name in file.columns}

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        if _QUERIED in self._files and re.search(rf"\b{_QUERIED}\b", sql):
            return self._others.execute(sql, parameters)
        return super().rows(sql, parameters)

    def holds(self, table: str) -> bool:
        return self.known_rows[table] > 0 if table in self._files else super().holds(table)

    def _integers(self, table: str, present: Sequence[str], only: Only | None) -> dict[str, Int64Array]:
        if table not in self._files:
            return super()._integers(table, present, only)
        names = self._columns[table]
        kept = self._kept(table, only)
        read = {column: self._files[table].integers(names[column.lower()]) for column in present}
        if kept is None:
            return read
        rows = int(np.count_nonzero(kept))
        return {
            column: spread(int(values[0]), rows) if is_even(values) else values[kept] for column, values in read.items()
        }

    def texts_of(self, table: str, column: str, *, only: Only | None = None) -> tuple[Int32Array, list[str]]:
        if table not in self._files:
            return super().texts_of(table, column, only=only)
        number, texts = self._files[table].texts(self._columns[table][column.lower()])
        kept = self._kept(table, only)
        return number if kept is None else number[kept], texts

    def _kept(self, table: str, only: Only | None) -> BoolArray | None:
        """Mask of the rows that are wanted; None: all are."""
        if only is None:
            return None
        if only == IS_RANGE:
            return self._is_range
        values = self._files[table].integers(self._columns[table][only[0].lower()])
        return (values >= only.least) | (values == MISSING) if isinstance(only, Since) else is_any(values, only[1])

    @cached_property
    def _is_range(self) -> BoolArray:
        return is_any(self._files[_QUERIED].integers(IS_RANGE[0]), IS_RANGE[1])

    @cached_property
    def _others(self) -> sqlite3.Connection:
        """The rows of NVTX_EVENTS that are no ranges, for queries."""
        file, others = self._files[_QUERIED], ~self._is_range
        names = [name for name, column in file.columns.items() if column.is_told]
        memory = sqlite3.connect(":memory:")
        memory.execute(f"CREATE TABLE {_QUERIED} ({', '.join(names)})")
        values = [file.some(name, others) for name in names] if others.any() else [[] for _ in names]
        places = ", ".join("?" * len(names))
        memory.executemany(f"INSERT INTO {_QUERIED} VALUES ({places})", zip(*values, strict=True))
        return memory


class ColumnFolder(Database):
    """An open folder of columns: see `Database`, in whose place it is used."""

    def __init__(self, folder: Path, shown: Path) -> None:
        self.path = shown
        kind = export_kind(folder)
        self._files = {path.stem: path for path in sorted(folder.iterdir()) if COLUMN_FILES.get(path.suffix) == kind}
        self._is_arrow = kind == COLUMN_FILES[".arrow"]
        self._arrow = _pyarrow()
        self._columns = {}
        self.tables, self.views = frozenset(self._files), frozenset()
        self._memory = sqlite3.connect(":memory:")
        self._filled: set[str] = set()

    def close(self) -> None:
        """Let go of the tables in memory."""
        self._memory.close()

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        for table in sorted(self.tables & set(re.findall(r"\w+", sql)) - self._filled):
            self._fill(table)
        try:
            yield from self._memory.execute(sql, parameters)
        except sqlite3.Error as error:
            raise explain(self.path, error) from error

    def holds(self, table: str) -> bool:
        return table in self.tables and self.row_count(table) > 0

    def row_count(self, table: str) -> int:
        return int(self._read(table, list(self._columns_of(table).values())[:1]).num_rows)

    def _columns_of(self, table: str) -> dict[str, str]:
        if table in self.tables and table not in self._columns:
            with self._errors_of(table), self._opened(table) as file:
                schema = file.schema if self._is_arrow else file.schema_arrow
                self._columns[table] = {name.lower(): name for name in schema.names}
        return self._columns.get(table, {})

    def _integers(self, table: str, present: Sequence[str], only: Only | None) -> dict[str, Int64Array]:
        known = self._columns_of(table)
        rows = self._read(table, [known[column.lower()] for column in present], only)
        return {column: self._column(table, rows[known[column.lower()]]) for column in present}

    def texts_of(self, table: str, column: str, *, only: Only | None = None) -> tuple[Int32Array, list[str]]:
        known = self._columns_of(table)[column.lower()]
        texts = self._read(table, [known], only)[known].combine_chunks().dictionary_encode()
        distinct = ["" if text is None else text for text in texts.dictionary.to_pylist()]
        return texts.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32), distinct

    def _column(self, table: str, values: Any) -> Int64Array:
        types = self._arrow.types
        if types.is_floating(values.type):
            whole = values.cast(self._arrow.float64()).fill_null(-0.0)  # whose bits are MISSING
            return np.ascontiguousarray(whole.to_numpy(), np.float64).view(np.int64)
        if not (types.is_integer(values.type) or types.is_boolean(values.type) or types.is_null(values.type)):
            raise self._damaged(table, "holds something that is not a number where one belongs")
        whole = values.cast(self._arrow.int64(), safe=False).fill_null(MISSING)
        return np.ascontiguousarray(whole.to_numpy(), np.int64)

    def _read(self, table: str, columns: Sequence[str], only: Only | None = None) -> Any:
        """Some columns of a table, of the rows that are wanted."""
        wanted = [*columns, *([only[0]] if only and only[0] not in columns else ())]
        with self._errors_of(table), self._opened(table, wanted) as file:
            rows = file.read_all() if self._is_arrow else file.read(columns=wanted)
            return rows.filter(np.isin(self._column(table, rows[only[0]]), only[1])) if only else rows

    @contextlib.contextmanager
    def _opened(self, table: str, wanted: Sequence[str] | None = None) -> Iterator[Any]:
        """The file of a table, to be read. Not mapped into memory: a file that shrinks would end the process."""
        path = str(self._files[table])
        if not self._is_arrow:
            with importlib.import_module("pyarrow.parquet").ParquetFile(path) as file:
                yield file
            return
        names = list(self._columns_of(table).values()) if wanted else []
        fields = [names.index(name) for name in wanted] if wanted else None
        options = self._arrow.ipc.IpcReadOptions(included_fields=fields)
        with self._arrow.OSFile(path) as bytes_, self._arrow.ipc.open_stream(bytes_, options=options) as stream:
            yield stream

    @contextlib.contextmanager
    def _errors_of(self, table: str) -> Iterator[None]:
        try:
            yield
        except (self._arrow.ArrowException, OSError, KeyError, ValueError) as error:
            raise self._damaged(table, f"cannot be read ({' '.join(str(error).split())[:80]})") from error

    def _fill(self, table: str) -> None:
        """Put a table into memory for queries."""
        rows = self._read(table, list(self._columns_of(table).values()))
        if table == "NVTX_EVENTS":
            rows = rows.filter(~np.isin(self._column(table, rows[IS_RANGE[0]]), IS_RANGE[1]))
        integer = self._arrow.types.is_integer
        columns = [
            [None if value == MISSING else value for value in self._column(table, rows[name]).tolist()]
            if integer(rows[name].type)
            else rows[name].to_pylist()
            for name in rows.schema.names
        ]
        names = ", ".join(f'"{name}"' for name in rows.schema.names)
        places = ", ".join("?" * len(columns))
        try:
            self._memory.execute(f'CREATE TABLE "{table}" ({names})')
            self._memory.executemany(f'INSERT INTO "{table}" VALUES ({places})', zip(*columns, strict=True))
        except sqlite3.Error as error:
            raise self._damaged(table, f"cannot be queried: {error}") from error
        self._filled.add(table)

    def _damaged(self, table: str, what: str) -> InputError:
        return InputError(
            f"{self.path} is damaged: its file {self._files[table].name} {what}.",
            "Export it again: nsys export --type arrowdir --force-overwrite true REPORT.nsys-rep",
        )


@contextlib.contextmanager
def open_database(path: Path, shown: Path) -> Iterator[Database]:
    """An export of any kind, opened for reading only. Raises UserError."""
    if path.is_dir():
        with contextlib.closing(ColumnFolder(path, shown)) as folder:
            yield folder
        return
    with open_readonly(path) as connection:
        beside = {table: file for table in TABLES if (file := columns_beside(path, table)).is_file()}
        files = {table: ArrowFile(file) for table, file in beside.items()}
        yield SplitExport(connection, shown, files) if files else Database(connection, shown)


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise ToolError(
            "Reading a folder of Arrow or Parquet files needs pyarrow, which is not installed.",
            "Run: pip install pyarrow. Or export as SQLite: nsys export --type sqlite REPORT.nsys-rep",
        ) from None
