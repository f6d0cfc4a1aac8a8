"""Every file is opened through one door (`boundby.model.door`): a regular one, without waiting, up to a bound."""

from __future__ import annotations

import ast
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import boundby
from boundby.cli.main import main
from boundby.model import door

HERE = Path(boundby.__file__).parent
DOOR = "model/door.py"
#: Programs that run where boundby cannot be imported, and rooms that read nothing but what they write or come with.
ALONE = ("annotate/", "capture/launcher/program/", "experiment/inside/")
#: These read files of the package itself, or what they have just written, or have it checked by the door before.
OWN = {
    "capture/folder.py: os.open": "a folder, to hold it",
    "capture/export.py: open": "an export of boundby's own, which it changes",
    "capture/export.py: connect": "exports of boundby's own, or whose first bytes came through the door",
    "claims/patterns/__init__.py: read_text": "of the package",
    "cli/mcp.py: read_text": "of the package",
    "cli/main.py: os.open": "the null device",
    "model/library.py: read_text": "of the package",
    "model/library.py: read_bytes": "of the package",
    "model/numbers.py: read_text": "of the package",
    "model/stage.py: open": "of /proc, hundreds of times",
    "readers/nsys/columnar.py: fromfile": "of a file that came through the door",
    "readers/nsys/columnar.py: connect": "memory",
    "readers/nsys/database.py: connect": "the door holds the same file open",
    "render/page/__init__.py: read_text": "of the package",
    "render/store.py: connect": "a database whose first bytes came through the door",
    "results/write.py: os.open": "written",
    "rules/rule.py: read_text": "of the package",
    "simulate/nsys_export.py: connect": "written",
}
_READS = {"open", "read_text", "read_bytes", "connect", "fromfile", "memmap"}
_NO_FILES = {"webbrowser", "door", "CudaDevice", "capture", "self", "_thread", "socket", "client"}


def _is_written(call: ast.Call) -> bool:
    """Whether a call of ``open`` names a mode that reads nothing."""
    modes = [*call.args[:2], *(word.value for word in call.keywords if word.arg == "mode")]
    named = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return any(mode[:1] in ("w", "a", "x") and len(mode) <= 2 for mode in named)


def _opened_directly(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id == "open" and not _is_written(node):
            yield "open"
        if isinstance(function, ast.Attribute) and function.attr in _READS and not _is_written(node):
            owner = function.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name not in _NO_FILES:
                yield f"os.{function.attr}" if name == "os" else function.attr


def test_no_file_is_opened_but_through_the_door() -> None:
    found = set()
    for source in HERE.rglob("*.py"):
        place = source.relative_to(HERE).as_posix()
        if place != DOOR and not place.startswith(ALONE):
            found |= {f"{place}: {how}" for how in _opened_directly(source)}
    assert found == set(OWN)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="it is"):
            door.read_text(place)
    (tmp_path / "long").write_bytes(b"12345")
    assert door.read_bytes(tmp_path / "long", 5) == b"12345"
    with pytest.raises(door.RefusedError, match="more than 4 bytes"):
        door.read_bytes(tmp_path / "long", 4)
    tracemalloc.start()
    door.read_bytes(tmp_path / "long")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 << 20  # not as much as the file may have
    (tmp_path / "lines").write_bytes(b"a\r\nb\n")
    assert door.read_text(tmp_path / "lines") == "a\nb\n"


@pytest.mark.parametrize(
    "command",
    [
        ["check", "{report}", "--budget", "{pipe}"],
        ["check", "{pipe}", "-l", "time < 1 s"],
        ["analyze", "{pipe}"],
        ["analyze", "{report}", "--save", "{pipe}"],
        ["analyze", "{report}", "-o", "{pipe}"],
        ["compare", "{pipe}", "{report}"],
        ["job", "{pipe}", "{pipe}"],
    ],
)
def test_a_pipe_is_one_sentence_wherever_a_file_is_named(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without anybody on its other end, opening it waited for ever."""
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    report = HERE.parents[1] / "sample_reports" / "numpy_only_before.sqlite"
    code = main([word.format(pipe=pipe, report=report) for word in command])
    assert code == 2
    assert "boundby: " in capsys.readouterr().err
