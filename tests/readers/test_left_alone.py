"""Reading changes nothing: no byte, no time, no new file beside the input. And any path will do."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import boundby
from boundby.model.errors import InputError
from boundby.readers import read_trace
from boundby.readers.nsys import database
from boundby.readers.nsys.database import Database, open_readonly
from boundby.results.report import Report
from tests.support.alter import alter
from tests.support.bad_files import as_nobody, good, public_folder
from tests.support.traces import trace_names, trace_path

ODD_NAMES = (
    "with space.sqlite",
    "what?.sqlite",
    "what?mode=rwc.sqlite",
    "part#2.sqlite",
    "100%.sqlite",
    "%41.sqlite",
    "naïve-測試-🚀.sqlite",
    "quote'\".sqlite",
    "semi;colon&and.sqlite",
    "line\nbreak.sqlite",
    "-leading-dash.sqlite",
    "file:report.sqlite",
    "no-suffix",
    "UPPER.SQLITE",
    ".hidden",
    os.fsdecode(b"bytes-\xff\xfe.sqlite"),
)


def snapshot(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every file of a folder with its size, its time of change and its contents; the folder's own time, too."""
    found = {".": (0, folder.stat().st_mtime_ns, "")}
    for path in folder.iterdir():
        status = path.stat()
        found[path.name] = (status.st_size, status.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def account(report: Report) -> dict[str, int]:
    return dict(report.devices[0].time)


def in_wal_mode(path: Path) -> sqlite3.Connection:
    """Turn the file to WAL mode and leave a change in its log; it lasts while the connection is open."""
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    return writer


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return account(boundby.analyze(good(tmp_path_factory.mktemp("expected"))))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "input"
    folder.mkdir()
    return good(folder)


def test_nothing_changes(whole: Path) -> None:
    before = snapshot(whole.parent)
    boundby.analyze(whole)
    assert snapshot(whole.parent) == before


@pytest.mark.parametrize("name", trace_names())
def test_nothing_changes_beside_real_traces(name: str) -> None:
    """All that is ever read of them, which is more than an analysis reads."""
    path = trace_path(name)
    before = (sorted(path.parent.iterdir()), path.stat().st_mtime_ns, path.stat().st_size)
    try:
        read_trace(path).backtraces.load()
    except InputError:
        assert "partial" in name
    assert (sorted(path.parent.iterdir()), path.stat().st_mtime_ns, path.stat().st_size) == before


def test_read_only_file_in_a_read_only_folder(whole: Path, expected: dict[str, int]) -> None:
    with ExitStack() as stack:
        path = whole.rename(public_folder(stack) / whole.name)
        assert account(analyzed_without_writing(path, stack)) == expected


def test_wal_mode_without_a_log(whole: Path, expected: dict[str, int]) -> None:
    in_wal_mode(whole).close()
    with ExitStack() as stack:
        path = whole.rename(public_folder(stack) / whole.name)
        before = snapshot(path.parent)
        assert list(before) == [".", path.name]
        assert account(boundby.analyze(path)) == expected
        assert snapshot(path.parent) == before
        assert account(analyzed_without_writing(path, stack)) == expected


def analyzed_without_writing(path: Path, stack: ExitStack) -> Report:
    """The report, made by a user who may write neither the file nor its folder."""
    path.chmod(0o444)
    path.parent.chmod(0o555)
    stack.callback(path.parent.chmod, 0o755)
    as_nobody(stack)
    return boundby.analyze(path)


def test_wal_mode_with_an_empty_log(whole: Path, expected: dict[str, int]) -> None:
    with closing(in_wal_mode(whole)):
        before = snapshot(whole.parent)
        assert account(boundby.analyze(whole)) == expected
        assert snapshot(whole.parent) == before


@pytest.mark.parametrize("through_a_link", [False, True])
def test_wal_mode_with_changes_in_the_log(whole: Path, tmp_path: Path, through_a_link: bool) -> None:
    """The log counts as much as the file, also when a writer still holds both, and behind a link."""
    path = whole
    if through_a_link:
        path = tmp_path / "link.sqlite"
        path.symlink_to(whole)
    with closing(in_wal_mode(whole)) as writer:
        kernels = boundby.analyze(whole).devices[0].kernels.count
        writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = 1")
        before = snapshot(whole.parent)
        assert {f"{whole.name}-wal", f"{whole.name}-shm"} < set(before)
        assert boundby.analyze(path).devices[0].kernels.count == kernels - 1
        assert snapshot(whole.parent) == before


def test_a_log_without_its_shared_memory(whole: Path, tmp_path: Path) -> None:
    """As after a copy of both files from a machine that crashed."""
    copy = tmp_path / "copied"
    copy.mkdir()
    with closing(in_wal_mode(whole)) as writer:
        kernels = boundby.analyze(whole).devices[0].kernels.count
        writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = 1")
        for suffix in ("", "-wal"):
            shutil.copy2(f"{whole}{suffix}", copy / f"{whole.name}{suffix}")
    before = snapshot(copy)
    assert boundby.analyze(copy / whole.name).devices[0].kernels.count == kernels - 1
    assert snapshot(copy) == before


def test_no_room_for_the_copy_of_a_log(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with closing(in_wal_mode(whole)) as writer:
        writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = 1")
        with pytest.raises(InputError, match="no room") as caught:
            boundby.analyze(whole)
    assert "TMPDIR" in caught.value.next_step


def test_beside_a_reader_and_an_idle_writer(whole: Path, expected: dict[str, int]) -> None:
    with closing(sqlite3.connect(whole, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + 1")
        assert account(boundby.analyze(whole)) == expected


def test_the_lock_is_given_back(whole: Path) -> None:
    boundby.analyze(whole)
    with closing(sqlite3.connect(whole, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN EXCLUSIVE")


def test_a_failure_leaves_no_lock(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.01)
    with closing(sqlite3.connect(whole, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="locked"):
            boundby.analyze(whole)
        other.execute("COMMIT")
        other.execute("BEGIN EXCLUSIVE")


def test_an_error_that_is_kept_keeps_no_lock(whole: Path) -> None:
    """Its traceback holds a query that was never finished."""
    alter(whole, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE rowid = 2")
    with pytest.raises(InputError) as kept:
        boundby.analyze(whole)
    with closing(sqlite3.connect(whole, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN EXCLUSIVE")
    assert kept.value.__traceback__ is not None


def test_a_query_left_in_the_middle_says_nothing(whole: Path) -> None:
    """As after Ctrl-C: no complaint when Python tidies it up (pytest makes one an error)."""
    with open_readonly(whole) as connection:
        rows = Database(connection, whole).rows("SELECT id FROM StringIds")
        next(rows)
    del rows
    gc.collect()


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name(whole: Path, name: str, expected: dict[str, int]) -> None:
    path = whole.rename(whole.with_name(name))
    before = snapshot(whole.parent)
    if name in ODD_NAMES[::8]:
        assert account(boundby.analyze(path)) == expected
    trace = read_trace(path)
    assert trace.path == str(path)
    assert len(trace.operations) > 0
    assert snapshot(whole.parent) == before


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_of_a_bad_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"SQLite format 3\0")
    with pytest.raises(InputError, match="truncated"):
        boundby.analyze(tmp_path / name)


def test_links_and_relative_paths(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, int]
) -> None:
    (tmp_path / "link.sqlite").symlink_to(whole)
    (tmp_path / "twice.sqlite").symlink_to("link.sqlite")
    os.link(whole, tmp_path / "hard.sqlite")
    monkeypatch.chdir(tmp_path)
    for name in ("link.sqlite", "twice.sqlite", "hard.sqlite", "./input/../input/report.sqlite"):
        assert account(boundby.analyze(name)) == expected
