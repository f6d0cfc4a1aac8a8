"""Installing works where no compiler is: with zig where pip can have it, else without the native core."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import hatch_build
import pytest

from boundby.capture import checkup
from boundby.cli.outcome import Exit
from boundby.model import library


def hook(warnings: list[str]) -> Any:
    """Hatchling's hook, as far as it is asked here."""
    made = hatch_build.CustomBuildHook.__new__(hatch_build.CustomBuildHook)
    # Hatchling keeps what it shows things with under a name of its own.
    name = "_BuildHookInterface__app"
    for attribute in (name, "app"):
        with contextlib.suppress(AttributeError):
            setattr(made, attribute, SimpleNamespace(display_warning=warnings.append))
    return made


@pytest.fixture
def nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    monkeypatch.delenv("BOUNDBY_NATIVE_TARGET", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)


@pytest.mark.usefixtures("nothing_compiles")
def test_without_compiler_and_pip_a_plain_wheel_is_made_and_says_so() -> None:
    warnings: list[str] = []
    build_data: dict[str, Any] = {"force_include": {}}
    assert hook(warnings).dependencies() == []
    hook(warnings).initialize("standard", build_data)
    assert build_data == {"force_include": {}}
    assert "native core was not built" in warnings[0]


@pytest.mark.usefixtures("nothing_compiles")
def test_pip_that_cannot_fetch_zig_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(command: list[str], **_: object) -> None:
        assert "ziglang" in command
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(hatch_build, "pip", lambda: ["pip"])
    monkeypatch.setattr(subprocess, "run", fails)
    warnings: list[str] = []
    hook(warnings).initialize("standard", {"force_include": {}})
    assert warnings


@pytest.mark.usefixtures("nothing_compiles")
def test_a_wheel_for_another_machine_must_have_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUNDBY_NATIVE_TARGET", "aarch64-linux")
    assert hook([]).dependencies() == ["ziglang"]


@pytest.mark.usefixtures("nothing_compiles")
def test_zig_that_pip_fetched_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(hatch_build, "pip", lambda: ["pip"])
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    with hatch_build.zig_at_hand(), pytest.raises(FileNotFoundError):  # nothing was really built
        hatch_build.build(folder=tmp_path)
    assert ran[0][0] == "pip"
    assert ran[1][1:4] == ["-m", "ziglang", "cc"]


@pytest.mark.parametrize("command", ["analyze {report}", "profile -o {folder} -- true"])
def test_without_the_native_core_a_command_ends_at_once_in_a_sentence_that_says_how_to_mend_it(
    command: str, tmp_path: Path
) -> None:
    report = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
    done = run_without_core(*command.format(report=report, folder=tmp_path / "run").split())
    assert done.returncode == Exit.USER_ERROR
    assert done.stdout == ""
    sentence, next_step = done.stderr.splitlines()
    assert sentence == "boundby: The native core is not there: it was not built, or not for this machine."
    assert next_step.startswith("  Install boundby again where there is a C compiler: pip")
    assert not (tmp_path / "run").exists()


def test_doctor_knows_the_native_core(monkeypatch: pytest.MonkeyPatch) -> None:
    look = cast("Callable[[object], Any]", checkup._CHECKS["native core"])
    assert look(None)[0] == "ok"
    monkeypatch.setattr(library, "_load", lambda: (None, "it was not built"))
    assert look(None) == ("failed", "nothing can be analysed: it was not built", library.MEND)


def run_without_core(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command where no library lies."""
    code = "\n".join(
        (
            "from boundby.cli.main import main",
            "from boundby.model import library",
            "library.NAME = 'nothing.so'",
            "exit(main())",
        )
    )
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
