"""An nsys SQLite export whose NVTX_EVENTS lies beside it in a column file (``--type arrowdir``), which nsys writes for
less than half the cost. `boundby.capture.export` makes such exports of large reports for itself, in a temporary folder.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from boundby.model.arrays import BoolArray, Int32Array, Int64Array, is_any, is_even, spread
from boundby.readers.nsys.arrow_stream import ArrowFile, NotPlainError
from boundby.readers.nsys.database import Connection, Database
from boundby.readers.nsys.host_tables import IS_RANGE
from boundby.readers.nsys.pages import Only, Since

TABLE = "NVTX_EVENTS"
#: What columns a file must have to stand for the table, and what they hold.
_NUMBERS, _TEXTS = ("start", "end", "eventType", "globalTid", "textId", "domainId"), ("text",)


def columns_beside(export: Path) -> Path:
    """Where the column file of an export's NVTX_EVENTS lies, if it has one."""
    return export.with_name(f"{export.name}.{TABLE}.arrow")


def is_readable(file: Path) -> bool:
    """Whether a column file is whole and of a kind that is read here."""
    try:
        columns = ArrowFile(file).columns
    except (NotPlainError, OSError):
        return False
    return {*_NUMBERS, *_TEXTS} <= columns.keys()


class SplitExport(Database):
    """See `Database`, in whose place it is used. Queries of NVTX_EVENTS, none of which asks for ranges, go to a table
    in memory, which is filled for the first of them."""

    def __init__(self, connection: Connection, path: Path, events: ArrowFile) -> None:
        super().__init__(connection, path)
        self._events = events
        self.tables |= {TABLE}
        self.known_rows = {TABLE: events.rows}
        self._columns[TABLE] = {name.lower(): name for name in events.columns}

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        if re.search(rf"\b{TABLE}\b", sql):
            return self._others.execute(sql, parameters)
        return super().rows(sql, parameters)

    def holds(self, table: str) -> bool:
        return self._events.rows > 0 if table == TABLE else super().holds(table)

    def _integers(self, table: str, present: Sequence[str], only: Only | None) -> dict[str, Int64Array]:
        if table != TABLE:
            return super()._integers(table, present, only)
        names = self._columns[TABLE]
        kept = self._kept(only)
        read = {column: self._events.integers(names[column.lower()]) for column in present}
        if kept is None:
            return read
        rows = int(np.count_nonzero(kept))
        return {
            column: spread(int(values[0]), rows) if is_even(values) else values[kept] for column, values in read.items()
        }

    def texts_of(self, table: str, column: str, *, only: Only | None = None) -> tuple[Int32Array, list[str]]:
        if table != TABLE:
            return super().texts_of(table, column, only=only)
        number, texts = self._events.texts(self._columns[TABLE][column.lower()])
        kept = self._kept(only)
        return number if kept is None else number[kept], texts

    def _kept(self, only: Only | None) -> BoolArray | None:
        """Mask of the rows that are wanted; None: all are."""
        if only is None:
            return None
        if only == IS_RANGE:
            return self._is_range
        values = self._events.integers(self._columns[TABLE][only[0].lower()])
        return values >= only.least if isinstance(only, Since) else is_any(values, only[1])

    @cached_property
    def _is_range(self) -> BoolArray:
        return is_any(self._events.integers(IS_RANGE[0]), IS_RANGE[1])

    @cached_property
    def _others(self) -> sqlite3.Connection:
        """The rows that are no ranges, for queries."""
        others = ~self._is_range
        names = [name for name, column in self._events.columns.items() if column.is_told]
        memory = sqlite3.connect(":memory:")
        memory.execute(f"CREATE TABLE {TABLE} ({', '.join(names)})")
        values = [self._events.some(name, others) for name in names] if others.any() else [[] for _ in names]
        places = ", ".join("?" * len(names))
        memory.executemany(f"INSERT INTO {TABLE} VALUES ({places})", zip(*values, strict=True))
        return memory
