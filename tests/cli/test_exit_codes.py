"""Every exit code of docs/exit-codes.md by a command that ends with it; and no code that the page does not know."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from boundby.capture import recording
from boundby.cli import main as main_module
from boundby.cli import outcome
from boundby.cli.main import TerminatedError, main
from boundby.cli.outcome import Exit
from tests.support.alter import alter
from tests.support.training import training_loop

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
LISTED = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}


def raising(error: BaseException) -> Callable[[pytest.MonkeyPatch], None]:
    def ends(*_: object, **__: object) -> None:
        raise error

    return lambda patch: patch.setattr(main_module.cli, "main", ends)


def nothing(_: pytest.MonkeyPatch) -> None:
    pass


COMMANDS: dict[int, tuple[tuple[str, ...], Callable[[pytest.MonkeyPatch], None]]] = {
    Exit.OK: (("check", "report.sqlite", "-l", "gpu_utilization > 1 %"), nothing),
    Exit.GATE_FAILED: (("check", "report.sqlite", "-l", "gpu_utilization > 99 %"), nothing),
    Exit.USER_ERROR: (("analyze", "nothing.sqlite"), nothing),
    Exit.CANNOT_TELL: (("check", "report.sqlite", "-l", "*/loss.cpu_utilization > 1 %"), nothing),
    Exit.BUG: (("analyze", "report.sqlite"), raising(KeyError("x"))),
    126: (("profile", "./train.py"), nothing),
    127: (("profile", "nothing-of-that-name"), nothing),
    Exit.INTERRUPTED: (("analyze", "report.sqlite"), raising(KeyboardInterrupt())),
    Exit.HUNG_UP: (("analyze", "report.sqlite"), raising(BrokenPipeError())),
    Exit.TERMINATED: (("analyze", "report.sqlite"), raising(TerminatedError())),
}


@pytest.mark.parametrize("code", COMMANDS)
def test_a_command_ends_with_it(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    training_loop(2).write(Path("report.sqlite"), "2026")
    Path("train.py").touch()
    for table in ("SCHED_EVENTS", "COMPOSITE_EVENTS"):
        alter(Path("report.sqlite"), f"DROP TABLE {table}")
    arguments, prepare = COMMANDS[code]
    prepare(monkeypatch)
    assert main(arguments) == code
    assert "Traceback" not in capfd.readouterr().err


def test_the_page_knows_every_code_and_no_other() -> None:
    own = {code.value for code in Exit}
    of_programs = set(map(int, re.findall(r"\b(12\d)\)", Path(recording.__file__).read_text(encoding="utf-8"))))
    assert LISTED == own | of_programs == set(COMMANDS)
    written = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert set(map(int, re.findall(r"\bexit_code(?:: int)? = (\d+)", written))) <= LISTED
    assert set(map(int, re.findall(r"\bsys\.exit\((\d+)\)", written))) <= LISTED


def test_help_lists_them() -> None:
    assert {int(code) for code in re.findall(r"^  (\d+) ", outcome.EPILOG, re.MULTILINE)} == LISTED - {126, 127}
