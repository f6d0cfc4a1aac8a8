"""Read table columns into NumPy arrays, probing the schema: tables and columns come and go between versions."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from boundby.model.arrays import Int64Array
from boundby.model.errors import InputError
from boundby.readers.nsys.database import SQLITE_ERRORS, explain, export_again

ROWS_PER_CHUNK = 250_000  # bounds the memory of rows on their way into arrays

MISSING = np.iinfo(np.int64).min  # stands for NULL and for an absent column


class Database:
    """An open export: its tables, their columns, and reading of integer columns in bulk."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        found = self.rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self.tables = frozenset(str(name) for (name,) in found)
        self._columns: dict[str, dict[str, str]] = {}

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        """The rows of any query; SQLite's errors become InputError."""
        try:
            # Not ``yield from``: that would close a cursor whose connection may be closed already.
            for row in self._connection.execute(sql, parameters):  # noqa: UP028
                yield row
        except SQLITE_ERRORS as error:
            raise explain(self.path, error) from error

    def has(self, table: str, *columns: str) -> bool:
        """True if the table and all these columns exist (it may still be empty)."""
        return table in self.tables and all(column.lower() in self._columns_of(table) for column in columns)

    def _columns_of(self, table: str) -> dict[str, str]:
        """Name of each column by its lower-case form. Looked up late: other tools' broken views are never touched."""
        if table not in self.tables:
            return {}
        if table not in self._columns:
            columns = self.rows("SELECT name, lower(name) FROM pragma_table_info(?)", (table,))
            self._columns[table] = {str(lower): str(column) for column, lower in columns}
        return self._columns[table]

    def columns(self, table: str, wanted: Sequence[str], *, where: str = "") -> dict[str, Int64Array]:
        """Integer columns of a table, in row order, of the rows that ``where`` (SQL) wants.

        An absent table has no rows, an absent column is MISSING.
        """
        known = self._columns_of(table)
        present = [column for column in wanted if column.lower() in known]
        if not present:
            return {column: np.empty(0, np.int64) for column in wanted}
        where = f" WHERE {where}" if where else ""
        selected = ", ".join(f'ifnull("{known[column.lower()]}", {MISSING})' for column in present)
        parts: list[list[Int64Array]] = [[] for _ in present]
        try:
            cursor = self._connection.execute(f'SELECT {selected} FROM "{table}" NOT INDEXED{where}')
            while True:
                flat = self._flat(table, itertools.islice(cursor, ROWS_PER_CHUNK))
                chunk = flat.reshape(-1, len(present))
                for part, values in zip(parts, chunk.T, strict=True):
                    part.append(np.ascontiguousarray(values))
                if len(chunk) < ROWS_PER_CHUNK:
                    break
        except sqlite3.Error as error:
            raise explain(self.path, error) from error
        read = {column: np.concatenate(part) for column, part in zip(present, parts, strict=True)}
        length = len(read[present[0]])
        return {column: read.get(column, np.full(length, MISSING, np.int64)) for column in wanted}

    def _flat(self, table: str, rows: Iterator[tuple[object, ...]]) -> Int64Array:
        try:
            return np.fromiter(itertools.chain.from_iterable(rows), np.int64)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(
                f"{self.path} is damaged: table {table} holds something that is not a number where one belongs.",
                export_again(self.path),
            ) from error

    def strings(self, ids: Int64Array) -> Mapping[int, str]:
        """The texts of StringIds, for the ids that are used."""
        if not self.has("StringIds", "id", "value"):
            return {}
        used = set(ids.tolist())
        return {
            number: text
            for number, value in self.rows("SELECT id, value FROM StringIds")
            if isinstance(number, int) and number in used and (text := as_text(value)) is not None
        }

    def pairs(self, table: str) -> list[tuple[str, str]]:
        """(name, value) rows of a metadata table, in order; empty if it is absent."""
        if not self.has(table, "name", "value"):
            return []
        found = [(as_text(name), as_text(value)) for name, value in self.rows(f'SELECT name, value FROM "{table}"')]
        return [(name, value) for name, value in found if name is not None and value is not None]


def as_text(value: object) -> str | None:
    """The text of a column that should hold one; None for NULL."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)
