"""Exporting with a real nsys: what is written is whole or is not there, and the report stays as it is."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from boundby.capture.export import export_sqlite, export_to_temporary, is_whole
from boundby.capture.nsys import Nsys, Progress, written_by
from boundby.model.errors import InputError, OutputError, ToolError, UserError
from tests.support.nsys import capture, names

pytestmark = pytest.mark.nsys

STEPS = 5


def rows(database: Path, query: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own with little room, where this user may mount one."""
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    command = [mount, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {answer.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_the_export_holds_the_ranges_that_the_program_opened(nsys: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    exported = export_sqlite(nvtx_report, tmp_path / "out.sqlite", nsys)
    assert exported == tmp_path / "out.sqlite"
    assert names(tmp_path) == ["out.sqlite"]
    assert is_whole(exported)
    found = rows(
        exported,
        "SELECT coalesce(value, text), count(*), min(end - start) / 1000000, count(DISTINCT globalTid)"
        " FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId WHERE eventType = 59 GROUP BY 1 ORDER BY 1",
    )
    assert [(name, count, threads) for name, count, _, threads in found] == [
        ("compute", STEPS, 1),
        ("half", 2 * STEPS, 1),
        ("hand over", STEPS, 1),
        ("load", STEPS, 1),
        ("step", STEPS, 1),
        ("store", STEPS, 1),
    ]
    shortest_ms = {name: milliseconds for name, _, milliseconds, _ in found}
    assert shortest_ms["load"] >= 40  # type: ignore[operator]
    assert shortest_ms["compute"] >= 50  # type: ignore[operator]
    assert shortest_ms["step"] >= 100  # type: ignore[operator]
    waits = "SELECT count(*) FROM OSRT_API JOIN StringIds ON id = nameId WHERE value = 'sem_wait'"
    assert rows(exported, f"{waits} AND end - start > 5000000") >= [(2 * STEPS,)]


def test_progress_starts_unknown_and_rises_to_one(nsys: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    told: list[float | None] = []
    export_sqlite(nvtx_report, tmp_path / "out.sqlite", nsys, progress=told.append)
    fractions = [each for each in told[1:] if each is not None]
    assert told[0] is None
    assert len(fractions) == len(told) - 1 > 3
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def test_the_report_and_its_folder_stay_as_they_are(nsys: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    report = Path(shutil.copy2(nvtx_report, folder))
    before = (hashlib.sha256(report.read_bytes()).digest(), report.stat().st_mtime_ns, names(folder))
    folder.chmod(0o555)
    with export_to_temporary(report, nsys) as exported:
        assert is_whole(exported)
        place = exported.parent
    assert not place.exists()
    folder.chmod(0o755)
    after = (hashlib.sha256(report.read_bytes()).digest(), report.stat().st_mtime_ns, names(folder))
    assert after == before


@pytest.mark.parametrize("name", ["a b.sqlite", "-x.sqlite", "%p%q{HOME}.sqlite", "ü.sqlite", "no suffix"])
def test_odd_names(nsys: Nsys, nvtx_report: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = Path(f"-{name}.nsys-rep")
    shutil.copy(nvtx_report, report)
    export_sqlite(report, Path(name), nsys)
    assert is_whole(tmp_path / name)
    assert names(tmp_path) == sorted([name, report.name])


def test_what_exists_is_never_overwritten(nsys: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    precious = tmp_path / "out.sqlite"
    precious.write_text("precious")
    with pytest.raises(OutputError, match="exists already"):
        export_sqlite(nvtx_report, precious, nsys)
    nowhere = tmp_path / "link.sqlite"
    nowhere.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="exists already"):
        export_sqlite(nvtx_report, nowhere, nsys)
    assert precious.read_text() == "precious"
    assert names(tmp_path) == ["link.sqlite", "out.sqlite"]


def test_of_two_exports_to_one_place_one_wins(nsys: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    outcomes: list[object] = []

    def export() -> None:
        try:
            outcomes.append(export_sqlite(nvtx_report, tmp_path / "out.sqlite", nsys))
        except UserError as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=export) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) == sorted(map(str, [tmp_path / "out.sqlite", OutputError]))
    assert names(tmp_path) == ["out.sqlite"]
    assert is_whole(tmp_path / "out.sqlite")


@pytest.mark.parametrize("part", [0.7, 0.05, 100, 5])
def test_a_truncated_report(nsys: Nsys, nvtx_report: Path, tmp_path: Path, part: float) -> None:
    whole = nvtx_report.read_bytes()
    report = tmp_path / "cut.nsys-rep"
    report.write_bytes(whole[: int(part * len(whole)) if part < 1 else int(part)])
    with pytest.raises(InputError, match="truncated, damaged or not an nsys report"):
        export_sqlite(report, tmp_path / "out.sqlite", nsys)
    assert names(tmp_path) == ["cut.nsys-rep"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"SQLite format 3\0 and more", "is a SQLite file already"),
        (b"step,time\n1,2\n" * 1000, "not an nsys report"),
    ],
)
def test_what_is_no_report(nsys: Nsys, tmp_path: Path, content: bytes | None, said: str) -> None:
    report = tmp_path / "in.nsys-rep"
    if content is not None:
        report.write_bytes(content)
    with pytest.raises(InputError, match=said):
        export_sqlite(report, tmp_path / "out.sqlite", nsys)
    assert not (tmp_path / "out.sqlite").exists()


def test_a_folder_is_no_report(nsys: Nsys, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        export_sqlite(tmp_path, tmp_path / "out.sqlite", nsys)


def test_a_report_newer_than_nsys(nsys: Nsys, nsys_older: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    if nsys.version_tuple[:2] <= nsys_older.version_tuple[:2]:
        pytest.skip(f"needs an nsys newer than {nsys_older.release}, and this is {nsys.release}")
    with pytest.raises(ToolError) as caught:
        export_sqlite(nvtx_report, tmp_path / "out.sqlite", nsys_older)
    assert f"captured with nsys {nsys.release} and needs that or a newer one" in caught.value.message
    assert nsys_older.release in caught.value.message
    assert not names(tmp_path)


def test_an_older_report_is_exported_by_a_newer_nsys(nsys: Nsys, nsys_older: Nsys, tmp_path: Path) -> None:
    report = capture(nsys_older, tmp_path, "cpu_steps.py", "2")
    assert written_by(report) is None
    for each in (nsys, nsys_older):
        with export_to_temporary(report, each) as exported:
            assert rows(exported, "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59") == [(14,)]


@pytest.mark.parametrize("size", ["64k", "400k"])
def test_a_full_disk(nsys: Nsys, nvtx_report: Path, tmp_path: Path, size: str) -> None:
    """A real nsys whose commit fails for want of room leaves an empty file and exits with status 0."""
    with small_disk(tmp_path / "small", size) as folder:
        with pytest.raises(OutputError, match="The disk is full"):
            export_sqlite(nvtx_report, folder / "out.sqlite", nsys)
        assert not names(folder)


def test_the_file_size_limit_of_the_shell(nsys: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    with file_size_limit(100_000), pytest.raises(OutputError, match="file size limit"):
        export_sqlite(nvtx_report, tmp_path / "out.sqlite", nsys)
    assert not names(tmp_path)


@pytest.mark.parametrize("folder", ["nowhere", "report.nsys-rep"])
def test_a_folder_that_is_none(nsys: Nsys, nvtx_report: Path, tmp_path: Path, folder: str) -> None:
    report = Path(shutil.copy(nvtx_report, tmp_path / "report.nsys-rep"))
    with pytest.raises(OutputError, match="cannot be written"):
        export_sqlite(report, tmp_path / folder / "out.sqlite", nsys)


def test_a_folder_without_permission(nsys: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    folder = Path("/proc") if os.geteuid() == 0 else tmp_path  # root may write anywhere else
    tmp_path.chmod(0o555)
    with pytest.raises(OutputError, match="cannot be written"):
        export_sqlite(nvtx_report, folder / "out.sqlite", nsys)
    tmp_path.chmod(0o755)


def test_without_a_home(nsys: Nsys, nvtx_report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    assert is_whole(export_sqlite(nvtx_report, tmp_path / "out.sqlite", nsys))


def test_a_progress_that_raises_ends_the_export(nsys: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    def interrupt(fraction: float | None) -> None:
        if fraction is not None:
            raise KeyboardInterrupt

    stop: Progress = interrupt
    with pytest.raises(KeyboardInterrupt):
        export_sqlite(nvtx_report, tmp_path / "out.sqlite", nsys, progress=stop)
    assert not names(tmp_path)


@pytest.fixture(scope="module")
def stream(nsys: Nsys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A raw stream: what an nsys leaves that has no importer beside it."""
    folder = tmp_path_factory.mktemp("stream")
    if nsys.importer is None or not nsys.path.parent.name.startswith("target-linux"):
        pytest.skip(f"{nsys.path} cannot be set apart from its importer")
    alone = folder / nsys.path.parent.name
    try:
        shutil.copytree(nsys.path.parent, alone, copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.rmtree(alone, ignore_errors=True)
        shutil.copytree(nsys.path.parent, alone)
    made = capture(Nsys(alone / "nsys", nsys.version, "PATH"), folder, "cpu_steps.py", "2")
    assert made.suffix == ".qdstrm"
    return made


def test_a_raw_stream_is_imported_and_not_changed(nsys: Nsys, stream: Path, tmp_path: Path) -> None:
    """The importer adds bytes to the stream that it reads, so it is given a copy."""
    before = stream.read_bytes()
    exported = export_sqlite(stream, tmp_path / "out.sqlite", nsys)
    assert rows(exported, "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59") == [(14,)]
    assert stream.read_bytes() == before
    assert names(tmp_path) == ["out.sqlite"]


def test_a_raw_stream_needs_the_importer_of_its_nsys(
    nsys: Nsys, nsys_older: Nsys, stream: Path, tmp_path: Path
) -> None:
    if nsys.version_tuple[:3] == nsys_older.version_tuple[:3]:
        pytest.skip("needs two versions of nsys")
    with pytest.raises(ToolError, match=f"captured with nsys {nsys.release} and needs that very version"):
        export_sqlite(stream, tmp_path / "out.sqlite", nsys_older)
    alone = Nsys(stream.parent / nsys.path.parent.name / "nsys", nsys.version, "PATH")
    with pytest.raises(ToolError, match="has no QdstrmImporter"):
        export_sqlite(stream, tmp_path / "out.sqlite", alone)
    cut = tmp_path / "cut.qdstrm"
    cut.write_bytes(stream.read_bytes()[:10_000])
    with pytest.raises(InputError, match="truncated, damaged or not an nsys report"):
        export_sqlite(cut, tmp_path / "out.sqlite", nsys)
