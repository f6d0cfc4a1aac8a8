"""An nsys SQLite export whose largest host tables lie beside it in column files (``--type arrowdir``), which nsys
writes for less than half the cost. `boundby.capture.export` makes such exports of large reports for itself, in a
temporary folder."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from boundby.model.arrays import MISSING, BoolArray, Int32Array, Int64Array, is_any, is_even, spread
from boundby.readers.nsys.arrow_stream import ArrowFile, NotPlainError
from boundby.readers.nsys.database import Connection, Database
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
