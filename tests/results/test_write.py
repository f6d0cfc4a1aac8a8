from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from boundby.model.errors import OutputError
from boundby.render.formats import format_of
from boundby.results import write
from boundby.results.write import write_text


def test_formats_by_suffix() -> None:
    names = ("a.json", "a.md", "a.MD", "a.csv", "a.txt")
    assert [format_of(Path(name)) for name in names] == ["json", "markdown", "markdown", "csv", "terminal"]
    with pytest.raises(OutputError, match="cannot be told from its name"):
        format_of(Path("result.xyz"))


def test_it_writes_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "a.md"
    write_text(target, "one\n")
    target.chmod(0o640)
    write_text(target, "漢\n")
    assert target.read_text(encoding="utf-8") == "漢\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [found.name for found in tmp_path.iterdir()] == ["a.md"]


def test_a_new_file_has_the_mode_of_the_users_mask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "a.md", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.md").stat().st_mode) == 0o640


def test_without_force_nothing_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "a.md"
    target.write_text("old")
    with pytest.raises(OutputError, match="already there"):
        write_text(target, "new", force=False)
    assert target.read_text() == "old"


def test_a_link_is_written_through(tmp_path: Path) -> None:
    target, link = tmp_path / "real.md", tmp_path / "link.md"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_device_is_written_to() -> None:
    write_text("/dev/null", "x")
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.nsys-rep", b"anything"),
        ("run.qdrep", b"anything"),
        ("run.sqlite", b"anything"),
        ("notes.json", b"SQLite format 3\0rest"),
        ("notes.md", b"NVIDIA Tegra Profiler Report"),
    ],
)
def test_reports_and_databases_are_never_replaced(tmp_path: Path, name: str, content: bytes) -> None:
    target = tmp_path / name
    target.write_bytes(content)
    with pytest.raises(OutputError, match="looks like a report"):
        write_text(target, "x")
    assert target.read_bytes() == content


def test_an_input_is_never_replaced_under_any_name(tmp_path: Path) -> None:
    source, link = tmp_path / "input", tmp_path / "link.json"
    source.write_text("input")
    link.symlink_to(source)
    with pytest.raises(OutputError, match="Will not write over the report"):
        write_text(link, "x", inputs=[source])
    assert source.read_text() == "input"


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "no permission"), (errno.EROFS, "read-only")]
)
def test_a_failure_is_a_sentence_and_leaves_the_old_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    target = tmp_path / "a.md"
    target.write_text("old")

    def refuse(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OutputError, match=words) as raised:
        write_text(target, "new")
    assert raised.value.next_step
    assert target.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["a.md"]


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder"):
        write_text(tmp_path, "x")
    with pytest.raises(OutputError, match="its folder does not exist"):
        write_text(tmp_path / "no" / "a.md", "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="folder"):
        write_text(tmp_path / "file" / "a.md", "x")


def test_an_empty_file_with_a_reports_name_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    assert not write.looks_like_report(tmp_path / "x.db")


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "trace.pftrace"
    with write.open_whole(target) as file:
        file.write(b"one")

    def fail() -> None:
        with write.open_whole(target) as file:
            file.write(b"half of")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert target.read_bytes() == b"one"
    assert [found.name for found in tmp_path.iterdir()] == ["trace.pftrace"]
