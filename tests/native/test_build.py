"""Installing works where no compiler is: with zig where pip can have it, else without the native core."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hatch_build
import pytest

from boundby.cli import outcome


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


@pytest.mark.parametrize("plain", ["0", "1"])
def test_an_analysis_without_the_native_core_ends_in_a_sentence_that_says_how_to_mend_it(plain: str) -> None:
    code = "\n".join(
        (
            "from boundby.cli.main import main",
            "from boundby.model import library",
            "library.NAME = 'nothing.so'",
            "exit(main())",
        )
    )
    report = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", code, "analyze", str(report)],
        env={**os.environ, "BOUNDBY_PLAIN": plain},
        capture_output=True,
        text=True,
        check=False,
    )
    reason, mend = {
        "0": ("it was not built, or not for this machine", "  Install boundby again where there is a C compiler: pip"),
        "1": ("BOUNDBY_PLAIN is set", "  Unset BOUNDBY_PLAIN."),
    }[plain]
    assert done.returncode == outcome.USER_ERROR
    assert done.stdout == ""
    sentence, next_step = done.stderr.splitlines()
    assert sentence == f"boundby: The native core is not there: {reason}."
    assert next_step.startswith(mend)
