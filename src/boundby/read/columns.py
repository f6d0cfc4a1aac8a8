"""Read table columns into NumPy arrays, probing the schema: tables and columns come and go between versions."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from boundby.model.errors import InputError
from boundby.model.trace import Int64Array
from boundby.read.database import EXPORT_AGAIN, explain

ROWS_PER_CHUNK = 250_000  # bounds the memory of rows on their way into arrays

MISSING = np.iinfo(np.int64).min  # stands for NULL and for an absent column


class Database:
    """An open export: its tables, their columns, and reading of integer columns in bulk."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self.tables: dict[str, dict[str, str]] = {}
        for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"):
            columns = self.rows("SELECT name, lower(name) FROM pragma_table_info(?)", (name,))
            self.tables[str(name)] = {str(lower): str(column) for column, lower in columns}

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        """The rows of any query; SQLite's errors become InputError."""
        try:
            yield from self._connection.execute(sql, parameters)
        except sqlite3.Error as error:
            raise explain(self.path, error) from error

    def has(self, table: str, *columns: str) -> bool:
        """True if the table and all these columns exist (it may still be empty)."""
        return table in self.tables and all(column.lower() in self.tables[table] for column in columns)

    def columns(self, table: str, wanted: Sequence[str], *, where: str = "") -> dict[str, Int64Array]:
        """Integer columns of a table, in row order. An absent table has no rows, an absent column is MISSING."""
        known = self.tables.get(table, {})
        present = [column for column in wanted if column.lower() in known]
        if not present:
            return {column: np.empty(0, np.int64) for column in wanted}
        selected = ", ".join(f'ifnull("{known[column.lower()]}", {MISSING})' for column in present)
        parts: list[list[Int64Array]] = [[] for _ in present]
        try:
            cursor = self._connection.execute(f'SELECT {selected} FROM "{table}"{" WHERE " + where if where else ""}')
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
                EXPORT_AGAIN,
            ) from error

    def strings(self, ids: Int64Array) -> Mapping[int, str]:
        """The texts of StringIds, for the ids that are used."""
        if not self.has("StringIds", "id", "value"):
            return {}
        used = set(ids.tolist())
        return {
            int(number): str(value)
            for number, value in self.rows("SELECT id, value FROM StringIds")
            if isinstance(number, int) and number in used
        }

    def pairs(self, table: str) -> list[tuple[str, str]]:
        """(name, value) rows of a metadata table, in order; empty if it is absent."""
        if not self.has(table, "name", "value"):
            return []
        return [(str(name), str(value)) for name, value in self.rows(f'SELECT name, value FROM "{table}"')]
