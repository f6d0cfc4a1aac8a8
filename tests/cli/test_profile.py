"""``boundby profile`` as a command: usage, exit codes, what is shown. What it records: tests/capture/test_profile*."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from boundby.capture.nsys import Nsys
from tests.cli.conftest import Ran
from tests.support.nsys import fake_nsys, names

Boundby = Callable[..., Ran]
SLEEP = "import time, nvtx\nwith nvtx.annotate('nap'): time.sleep(0.2)"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["profile"],
        ["profile", "--"],
        ["profile", "--nonsense", "--", "true"],
        ["profile", "--duration", "0", "--", "true"],
        ["profile", "--delay", "-1", "--", "true"],
        ["profile", "--capture-range", "step", "--", "true"],
        ["profile", "--capture-range", "nvtx:", "--", "true"],
        ["profile", "--nsys-args", "'open", "--", "true"],
        ["profile", "--format", "html", "--", "true"],
    ],
)
def test_wrong_usage_makes_nothing(boundby: Boundby, here: Path, arguments: list[str]) -> None:
    ran = boundby(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1] == "  See: boundby profile --help"
    assert not names(here)


def test_a_window_that_is_none_is_refused_before_the_program_runs(boundby: Boundby, here: Path) -> None:
    ran = boundby("profile", "--window", "7:3", "--", "touch", "it-ran")
    assert ran.code == 2
    assert not names(here)


def test_no_such_program(boundby: Boundby, here: Path) -> None:
    ran = boundby("profile", "nothing-of-that-name", "--help")
    assert (ran.code, ran.out) == (127, "")
    assert "There is no program nothing-of-that-name." in ran.err
    assert not names(here)


def test_a_program_that_cannot_be_run(boundby: Boundby, here: Path) -> None:
    (here / "train.py").write_text("print()")
    ran = boundby("profile", "./train.py")
    assert ran.code == 126
    assert "python ./train.py" in ran.err


def test_no_nsys(boundby: Boundby, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("BOUNDBY_NSYS", raising=False)
    monkeypatch.setattr("boundby.capture.nsys._places", lambda *_: iter(()))
    ran = boundby("profile", "true")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("boundby: No nsys found in PATH or in the usual install folders.\n  Install Nsight")
    assert not names(here)


def test_an_nsys_that_does_nothing(boundby: Boundby, here: Path) -> None:
    nsys = fake_nsys(here / "bin", "exit 0")
    ran = boundby("profile", "--nsys", nsys.path, "-o", "run", "true")
    assert ran.code == 2
    assert "nsys 2023.4.4 did not start the program." in ran.err
    assert names(here) == ["bin"]


@pytest.mark.nsys
def test_folders_formats_and_quiet(boundby: Boundby, here: Path, nsys: Nsys) -> None:
    program = [sys.executable, "-c", SLEEP]
    first = boundby("profile", "--nsys", nsys.path, "-o", "run", "--quiet", "--format", "json", "--", *program)
    assert (first.code, first.err) == (0, "")
    told = json.loads(first.out)
    assert ["nap"] in [region["path"] for region in told["regions"]]
    assert told["trace"]["path"] == "run"

    again = boundby("profile", "--nsys", nsys.path, "-o", "run", "--", *program)
    assert (again.code, again.out) == (2, "")
    assert "boundby: run holds an earlier run.\n  Name another folder with -o, or replace" in again.err

    (here / "run" / "notes.txt").write_text("mine")
    (here / "run" / "report.json").unlink()
    forced = boundby("profile", "--nsys", nsys.path, "-o", "run", "--force", "--format", "none", "--", *program)
    assert (forced.code, forced.out) == (0, "")
    assert {"notes.txt", "report.json", "report.sqlite"} <= set(names(here / "run"))

    shown = boundby("analyze", "run")
    assert shown.code == 0
    assert "nap" in shown.out
    assert f"{sys.executable} -c" in shown.out
    assert names(here) == ["run"]


@pytest.mark.nsys
def test_without_a_folder_it_is_named_after_the_program_and_the_time(boundby: Boundby, here: Path, nsys: Nsys) -> None:
    (here / "nap.py").write_text(SLEEP)
    ran = boundby("profile", "--nsys", nsys.path, "--skip-first", "0", "--min-share", "0", sys.executable, "nap.py")
    assert ran.code == 0, ran.err
    (folder,) = (here / "boundby-out").iterdir()
    assert folder.name.startswith("nap-20")
    assert f"boundby: all of it is in boundby-out/{folder.name}" in ran.err


def test_a_folder_that_is_no_run_is_no_report(boundby: Boundby, here: Path) -> None:
    ran = boundby("analyze", here)
    assert ran.code == 2
    assert "is a folder without a report of nsys" in ran.err
