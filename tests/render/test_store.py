from __future__ import annotations

import errno
import json
import os
import sqlite3
import sys
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils

from boundby.model.causes import CAUSE_KEYS
from boundby.model.errors import OutputError, UserError
from boundby.render import store
from boundby.results import flat_tables
from boundby.results.report import Report
from tests.support import reports

NOON = datetime(2025, 1, 2, 12, 0, tzinfo=timezone.utc)


def ask(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def test_a_report_becomes_rows(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    assert store.save(reports.sample(), path, now=NOON) == 1
    row = ask(path, "SELECT created_utc, path, tool_version, nsys_version, captured FROM reports")[0]
    assert row[:2] == ("2025-01-02T12:00:00+00:00", "reports/train.sqlite")
    assert json.loads(row[4])["nvtx"] is True
    causes = ", ".join(f"{key}_ns" for key in CAUSE_KEYS)
    device = reports.sample().devices[0]
    assert ask(path, f"SELECT {causes} FROM devices") == [tuple(device.time[key] for key in CAUSE_KEYS)]
    tree = ask(path, "SELECT r.path, p.path FROM regions r LEFT JOIN regions p ON p.id = r.parent_id ORDER BY r.id")
    assert tree[:4] == [("", None), ("step", ""), ("step/forward", "step"), ("step/forward/attention", "step/forward")]
    finding = ask(path, "SELECT f.rank, r.path, f.evidence FROM findings f JOIN regions r ON r.id = f.region_id")
    assert finding[0][:2] == (1, "step/loss")
    assert json.loads(finding[0][2])["syncs"] == 1300


def test_reports_are_added_and_tied_by_foreign_keys(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    ids = [store.save(make(), path) for make in reports.ALL.values()]
    assert ids == list(range(1, len(ids) + 1))
    assert ask(path, "PRAGMA foreign_key_check") == []
    assert ask(path, "PRAGMA integrity_check") == [("ok",)]
    assert {row[2] for row in ask(path, "PRAGMA foreign_key_list(regions)")} == {"reports", "regions"}
    total = sum(len(make().regions) for make in reports.ALL.values())
    assert ask(path, "SELECT count(*) FROM regions") == [(total,)]


def test_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.db"
    store.save(reports.sample(), path)
    before = path.read_bytes()

    def fail(report: Report, table: str) -> list[flat_tables.Row]:
        if table == "findings":
            raise RuntimeError
        return flat_tables.rows(report, table)

    with monkeypatch.context() as patch:
        patch.setattr(store, "rows", fail)
        with pytest.raises(RuntimeError):
            store.save(reports.sample(), path)
        with pytest.raises(RuntimeError):
            store.save(reports.sample(), tmp_path / "new.db")
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["runs.db"]


def test_a_database_of_an_earlier_version_gets_the_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE reports (id INTEGER PRIMARY KEY, path TEXT)")
        connection.execute("INSERT INTO reports VALUES (7, 'old')")
        connection.commit()
    assert store.save(reports.sample(), path) == 8
    assert ask(path, "SELECT path, nsys_version FROM reports") == [
        ("old", None),
        ("reports/train.sqlite", "2023.4.4"),
    ]


def test_other_tables_are_left_alone_and_same_names_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    store.save(reports.sample(), path)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE regions (x)")
    with pytest.raises(OutputError, match="boundby did not make"):
        store.save(reports.sample(), other)


@pytest.mark.parametrize("table", ["StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"])
def test_an_nsys_export_is_refused(tmp_path: Path, table: str) -> None:
    path = tmp_path / "report.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {table} (id)")
    before = path.read_bytes()
    with pytest.raises(OutputError, match="it is an nsys report"):
        store.save(reports.sample(), path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello", "not a SQLite database"),
        (b"NVIDIA Tegra Profiler Report", "an nsys report"),
        (b"SQLite format 3\0" + b"x" * 4000, "not a SQLite database, or a damaged one"),
    ],
)
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(OutputError, match=words):
        store.save(reports.sample(), path)
    assert path.read_bytes() == content


def test_a_locked_database_is_waited_for_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.db"
    store.save(reports.sample(), path)
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OutputError, match="locked"):
            store.save(reports.sample(), path)
    assert ask(path, "SELECT count(*) FROM reports") == [(1,)]


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder"):
        store.save(reports.sample(), tmp_path)
    with pytest.raises(OutputError, match="does not exist"):
        store.save(reports.sample(), tmp_path / "no" / "x.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store.save(reports.sample(), path)
    path.chmod(0o444)
    with pytest.raises(OutputError, match="no permission"):
        store.save(reports.sample(), path)


def test_a_refusal_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", refuse)
        with pytest.raises(OutputError, match="no permission"):
            store.save(reports.sample(), tmp_path / "x.db")
    monkeypatch.setattr(Path, "is_dir", lambda _: (_ for _ in ()).throw(PermissionError(errno.EACCES, "denied")))
    with pytest.raises(OutputError, match="no permission"):
        store.save(reports.sample(), tmp_path / "x.db")


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own limit on pages stands in for the end of the disk."""
    path = tmp_path / "runs.db"
    store.save(reports.sample(), path)
    before = path.read_bytes()
    check = store._check_tables

    def limit(database: sqlite_utils.Database, target: Path) -> None:
        database.conn.execute("PRAGMA max_page_count = 1")  # SQLite keeps at least the pages there are
        check(database, target)

    monkeypatch.setattr(store, "_check_tables", limit)
    with pytest.raises(OutputError, match="the disk is full"):
        store.save(reports.many_devices(64), path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert store.save(reports.sample(), path) == 2


def test_without_sqlite_utils_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlite_utils", None)
    with pytest.raises(UserError, match="pip install sqlite-utils"):
        store.save(reports.sample(), tmp_path / "x.db")
    assert [found.name for found in tmp_path.iterdir()] == []
