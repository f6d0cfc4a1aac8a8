"""No value of an environment variable stays in an export, in whatever place nsys put it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from boundby.capture.export import (
    add_diagnostics,
    export_sqlite,
    has_events,
    is_environment,
    strip_environment,
    tables,
    warnings_in,
)
from boundby.capture.nsys import Nsys
from tests.support.nsys import fake_nsys

SECRET = "hunter2-hunter2"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export with a secret in every place, and in the unused part of a page."""
    path = tmp_path / "report.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
        database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        variables = [f"VARIABLE_{number}={SECRET}" for number in range(30)]
        rows = [("PROCESS_0:ENVIRONMENT_VARIABLE", f'TOKEN="{SECRET}"'), ("PROCESS_0:COMMAND", "python")]
        database.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", rows)
        machine = [("DeviceEnvironment", ";".join(variables)), ("Hostname", "vm")]
        database.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?)", machine)
        texts = [(1, "step"), (2, "\0".join(variables)), (3, "two\0parts"), (4, "kernel<a=b>")]
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", texts)
        database.execute("CREATE TABLE scratch AS SELECT * FROM StringIds")
        database.execute("DROP TABLE scratch")
    return path


def test_nothing_of_it_is_left_and_everything_else_is(export: Path) -> None:
    assert SECRET.encode() in export.read_bytes()
    strip_environment(export)
    assert SECRET.encode() not in export.read_bytes()
    with closing(sqlite3.connect(export)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT value FROM META_DATA_CAPTURE").fetchall()[1] == ("python",)
        assert database.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV").fetchall()[1] == ("vm",)
        texts = dict(database.execute("SELECT id, value FROM StringIds").fetchall())
    assert (texts[1], texts[3], texts[4]) == ("step", "two\0parts", "kernel<a=b>")
    assert set(texts[2]) == {"*"}


def test_exports_of_other_versions_are_left_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER)")
    before = path.read_bytes()
    strip_environment(path)
    assert path.read_bytes() == before


def test_what_is_a_list_of_variables() -> None:
    assert is_environment(b"HOME=/root\0PATH=/bin\0")
    assert is_environment(b"A=1\0broken\0B=2\0C=")
    assert not is_environment(b"A=1")
    assert not is_environment(b"void f<T = int>\0(x)\0")


@pytest.mark.nsys
def test_messages_of_a_real_report_are_added_once(nsys: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    export = export_sqlite(nvtx_report, tmp_path / "report.sqlite", nsys)
    with closing(sqlite3.connect(export)) as database, database:
        database.execute("DROP TABLE IF EXISTS DIAGNOSTIC_EVENT")  # as exports before 2024 are
    add_diagnostics(nvtx_report, export, nsys)
    assert "DIAGNOSTIC_EVENT" in tables(export)
    with closing(sqlite3.connect(export)) as database:
        query = "SELECT count(*) FROM DIAGNOSTIC_EVENT WHERE text LIKE 'Number of NVTX events collected%'"
        assert database.execute(query).fetchone() == (1,)
    before = export.read_bytes()
    add_diagnostics(nvtx_report, export, nsys)
    assert export.read_bytes() == before
    assert has_events(export)


def test_a_report_that_cannot_be_asked_for_messages_is_no_error(tmp_path: Path, export: Path) -> None:
    report = tmp_path / "report.nsys-rep"
    report.write_bytes(b"x")
    add_diagnostics(report, export, fake_nsys(tmp_path / "bin", "exit 1"))
    assert warnings_in(export) == []
    assert not has_events(export)
