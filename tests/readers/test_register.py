"""The register of tables is what readers really ask an export for: no column more, none less, no table unnamed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.tables import page

from boundby.readers import read_trace
from boundby.readers.nsys import database, reader
from tests.support.traces import UNREADABLE, trace_names, trace_path

_NAMES = [name for name in trace_names() if name != UNREADABLE]


class _Asked:
    """Which columns of which tables were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.columns: set[tuple[str, str]] = set()
        real = database._authorize
        read, texts = database.Database.columns, database.Database.texts_of

        def authorize(action: int, one: str | None, two: str | None, schema: str | None, by: str | None) -> int:
            if action == sqlite3.SQLITE_READ and one and two and not one.startswith(("sqlite_", "pragma_")):
                self.columns.add((one, two))
            return real(action, one, two, schema, by)

        def columns(self_: database.Database, table: str, wanted, *, only=None):  # type: ignore[no-untyped-def]
            self.columns |= {(table, column) for column in wanted if self_.has(table, column)}
            return read(self_, table, wanted, only=only)

        def texts_of(self_: database.Database, table: str, column: str, *, only=None):  # type: ignore[no-untyped-def]
            self.columns.add((table, column))
            return texts(self_, table, column, only=only)

        monkeypatch.setattr(database, "_authorize", authorize)
        monkeypatch.setattr(database.Database, "columns", columns)
        monkeypatch.setattr(database.Database, "texts_of", texts_of)


def _declared() -> set[tuple[str, str]]:
    return {(table, column) for table, read in reader.read_tables().items() for column in read.columns}


@pytest.mark.parametrize("name", _NAMES)
def test_only_what_is_declared_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = trace_path(name)
    asked = _Asked(monkeypatch)
    read_trace(path).backtraces.load()
    found = {(table, column) for table, column in asked.columns if column != "ROWID"}  # asked for to count rows
    assert found - _declared() - _key_columns(path) == set()


def _key_columns(path: Path) -> set[tuple[str, str]]:
    """Counting rows asks for the number of the last, which some tables call by a name."""
    with sqlite3.connect(path) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            (table, row[1]) for table in tables for row in connection.execute(f'PRAGMA table_info("{table}")') if row[5]
        }


def _held(path: Path) -> Iterator[tuple[str, int]]:
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        ).fetchall():
            yield name, connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]


@pytest.mark.parametrize("name", _NAMES)
def test_no_table_with_rows_is_unnamed(name: str) -> None:
    path = trace_path(name)
    trace = read_trace(path)
    known = reader.read_tables()
    named = {table.name: table.rows for table in trace.not_read}
    for table, rows in _held(path):
        if table in known or table.startswith("ENUM_"):
            assert table not in named
        else:
            assert named.get(table, 0) == rows, table
    assert all(table.holds for table in trace.not_read)


def test_the_page_is_the_register() -> None:
    written = Path(__file__).parents[2] / "docs" / "tables.md"
    assert written.read_text(encoding="utf-8") == page(), "python -m benchmarks.tables > docs/tables.md"


def test_each_table_stands_once() -> None:
    assert not reader.read_tables().keys() & reader.NOT_READ.keys()
