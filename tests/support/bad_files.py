"""Files that boundby cannot read, by name: each is made in a folder of its own and undone by the stack."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from tests.support.alter import alter, rewrite_schema
from tests.support.training import training_loop

Maker = Callable[[Path, ExitStack], Path]

NOBODY = 65534
PAGE = 4096

MAKERS: dict[str, Maker] = {}


def _case(name: str) -> Callable[[Maker], Maker]:
    def keep(maker: Maker) -> Maker:
        MAKERS[name] = maker
        return maker

    return keep


def _file(name: str, content: bytes) -> None:
    def make(folder: Path, _: ExitStack) -> Path:
        path = folder / "report.sqlite"
        path.write_bytes(content)
        return path

    MAKERS[name] = make


def good(folder: Path, schema: str = "2023") -> Path:
    """A whole export, for a case to spoil."""
    return training_loop(2).write(folder / "report.sqlite", schema)


def public_folder(stack: ExitStack) -> Path:
    """A folder that others may enter: pytest's own are closed to them."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    folder.chmod(0o755)
    return folder


def as_nobody(stack: ExitStack) -> None:
    """Be a user without privileges, where tests run as root, until the stack ends."""
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
        stack.callback(os.seteuid, 0)


def _cut(name: str, keep: Callable[[int], int]) -> None:
    def make(folder: Path, _: ExitStack) -> Path:
        path = good(folder)
        os.truncate(path, keep(path.stat().st_size))
        return path

    MAKERS[name] = make


def _altered(name: str, *statements: str, loose: str | None = None) -> None:
    def make(folder: Path, _: ExitStack) -> Path:
        return alter(good(folder), *statements, loose=loose)

    MAKERS[name] = make


def _database(name: str, *statements: str) -> None:
    def make(folder: Path, _: ExitStack) -> Path:
        return alter(folder / "report.sqlite", *statements)

    MAKERS[name] = make


# --- what is not there, or no file -----------------------------------------------------------------------------


@_case("missing file")
def _missing(folder: Path, _: ExitStack) -> Path:
    return folder / "report.sqlite"


@_case("missing folder")
def _missing_folder(folder: Path, _: ExitStack) -> Path:
    return folder / "runs" / "report.sqlite"


@_case("below a file")
def _below_file(folder: Path, _: ExitStack) -> Path:
    return good(folder) / "report.sqlite"


@_case("folder")
def _folder(folder: Path, _: ExitStack) -> Path:
    return folder


@_case("FIFO")
def _fifo(folder: Path, _: ExitStack) -> Path:
    os.mkfifo(folder / "report.sqlite")
    return folder / "report.sqlite"


@_case("link to nowhere")
def _dangling(folder: Path, _: ExitStack) -> Path:
    (folder / "report.sqlite").symlink_to(folder / "gone.sqlite")
    return folder / "report.sqlite"


@_case("link to itself")
def _loop(folder: Path, _: ExitStack) -> Path:
    (folder / "report.sqlite").symlink_to(folder / "report.sqlite")
    return folder / "report.sqlite"


@_case("no read permission")
def _forbidden(_: Path, stack: ExitStack) -> Path:
    path = good(public_folder(stack))
    path.chmod(0)
    as_nobody(stack)
    return path


@_case("locked by a writer")
def _locked(folder: Path, stack: ExitStack) -> Path:
    path = good(folder)
    writer = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
    writer.execute("BEGIN EXCLUSIVE")
    return path


# --- other kinds of files --------------------------------------------------------------------------------------

_file("empty file", b"")
_file("text", b"start,end,name\n1,2,gemm\n")
_file("JSON", b' {"traceEvents": []}\n')
_file("web page", b"<!doctype html><html><body>Sign in</body></html>")
_file("Git LFS pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
_file("program", b"\x7fELF\x02\x01\x01" + bytes(200))
_file("zeros", bytes(3 * PAGE))
_file("nsys report renamed .sqlite", b"NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0.\n" + bytes(200))
_file("raw capture renamed .sqlite", b"NVIDIA Nsight Systems Stream 2023.4.4.54" + bytes(200))
_file("HDF5", b"\x89HDF\r\n\x1a\n" + bytes(200))
_file("one byte", b"S")


@_case("gzip")
def _gzip(folder: Path, _: ExitStack) -> Path:
    path = good(folder)
    path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@_case("zip")
def _zip(folder: Path, _: ExitStack) -> Path:
    source = good(folder)
    with zipfile.ZipFile(folder / "report.zip", "w") as archive:
        archive.write(source, "report.sqlite")
    return folder / "report.zip"


# --- cut off or damaged ----------------------------------------------------------------------------------------

_cut("cut in the header", lambda size: min(50, size))
_cut("cut in the first page", lambda size: min(3000, size))
_cut("cut in half", lambda size: size // 2)
_cut("cut on a page's edge", lambda size: size // 2 // PAGE * PAGE)
_cut("cut before the last page", lambda size: size - PAGE)
_cut("cut by one byte", lambda size: size - 1)


@_case("header overwritten")
def _bad_header(folder: Path, _: ExitStack) -> Path:
    path = good(folder)
    with path.open("r+b") as file:
        file.seek(16)
        file.write(bytes(8))
    return path


@_case("page of zeros inside")
def _zero_page(folder: Path, _: ExitStack) -> Path:
    path = good(folder)
    with closing(sqlite3.connect(path)) as connection:
        ((page,),) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
        ).fetchall()
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(bytes(PAGE))
    return path


@_case("schema overwritten")
def _bad_schema(folder: Path, _: ExitStack) -> Path:
    spoil = "UPDATE sqlite_master SET sql = 'CREATE TABLE oops (' WHERE name = 'NVTX_EVENTS'"
    return rewrite_schema(good(folder), spoil)


@_case("schema not in UTF-8")
def _bad_schema_text(folder: Path, _: ExitStack) -> Path:
    spoil = "UPDATE sqlite_master SET sql = CAST(x'4352FF45FE' AS TEXT) WHERE name = 'NVTX_EVENTS'"
    return rewrite_schema(good(folder), spoil)


# --- databases that are no (whole) export ----------------------------------------------------------------------

_database("empty database", "PRAGMA user_version = 1")
_database("another program's database", "CREATE TABLE moz_places (id)", "CREATE TABLE moz_bookmarks (id)")
_database("nvprof's database", "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)", "CREATE TABLE StringTable (id)")
_database("texts only", "CREATE TABLE StringIds (id, value)", "INSERT INTO StringIds VALUES (1, 'cudaMalloc')")
_database(
    "export that ended before the events",
    "CREATE TABLE StringIds (id, value)",
    "CREATE TABLE ANALYSIS_DETAILS (globalVid, duration)",
    "CREATE TABLE ProcessStreams (globalPid, filenameId, contentId)",
)


@_case("no events")
def _no_events(folder: Path, _: ExitStack) -> Path:
    path = training_loop(0).write(folder / "report.sqlite", empty_tables=True)
    tables = ("MEMCPY", "RUNTIME", "OVERHEAD")
    found = [f"CUPTI_ACTIVITY_KIND_{name}" for name in tables] + ["NVTX_EVENTS", "SCHED_EVENTS", "PROFILER_OVERHEAD"]
    with closing(sqlite3.connect(path)) as connection:
        present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    return alter(path, *(f"DELETE FROM {name}" for name in found if name in present))


@_case("exporter killed: its journal lies beside")
def _hot_journal(folder: Path, _: ExitStack) -> Path:
    source, path = good(folder), folder / "killed.sqlite"
    with closing(sqlite3.connect(source, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")  # so that changes reach the file before the transaction ends
        writer.execute("BEGIN")
        writer.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = start + 1")
        writer.execute("UPDATE StringIds SET value = value || 'x'")
        shutil.copyfile(source, path)
        shutil.copyfile(f"{source}-journal", f"{path}-journal")
    return path


# --- exports with impossible contents --------------------------------------------------------------------------

_altered("no table of texts", "DROP TABLE StringIds")
_altered("a column is missing", "ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN nameId")
_altered("text in a number's place", "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE rowid = 2")
_altered("bytes in a number's place", "UPDATE NVTX_EVENTS SET end = x'00FF' WHERE rowid = 2")
_altered("number too large", "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 1e300 WHERE rowid = 2")
_altered(
    "no event has a time",
    *(f"DELETE FROM {table}" for table in ("SCHED_EVENTS", "NVTX_EVENTS", "OSRT_API", "COMPOSITE_EVENTS")),
    *(f"DELETE FROM CUPTI_ACTIVITY_KIND_{table}" for table in ("RUNTIME", "MEMCPY", "MEMSET")),
    "DELETE FROM PROFILER_OVERHEAD",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = NULL",
    loose="CUPTI_ACTIVITY_KIND_KERNEL",
)
_altered(
    "sizes that no memory has",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 17000) "
    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, bytes, copyKind) "
    f"SELECT i, i + 1, 0, 1, 7, {(1 << 48) - 1}, 1 FROM n",
)
