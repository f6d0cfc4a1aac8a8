from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boundby.__about__ import __version__
from boundby.cli import console
from boundby.cli import main as main_module
from boundby.cli.main import main
from boundby.model.errors import InputError
from tests.cli.conftest import Ran, StandIn
from tests.support import reports

Boundby = Callable[..., Ran]
HEAVY = ("numpy", "rich", "pandas", "sqlite_utils", "sqlite3", "torch", "numba")


def test_help_and_version(boundby: Boundby) -> None:
    assert boundby("--version").out == f"boundby {__version__}\n"
    for arguments in ((), ("--help",), ("-h",)):
        ran = boundby(*arguments)
        assert ran.code == 0
        assert "analyze" in ran.out


def test_an_account_loads_no_replay_no_rules_and_no_verdict() -> None:
    sample = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
    code = "import sys; from boundby.api import Analysis; Analysis(sys.argv[1]).stats; print(*sorted(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code, str(sample)], capture_output=True, text=True, check=True)
    loaded = told.stdout.split()
    assert "boundby.stats.figures" in loaded
    rooms = ("replay", "evidence", "rules", "verdict", "compare", "jobs", "cli")
    unwanted = ("_hashlib", "subprocess", "rich", "click", *(f"boundby.{room}" for room in rooms))
    assert not set(unwanted).intersection(loaded)


def test_a_report_loads_no_masked_arrays() -> None:
    """Two megabytes that `np.unique` and others load, and nothing needs."""
    sample = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
    code = "import sys, boundby; boundby.analyze(sys.argv[1]); print('numpy.ma' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code, str(sample)], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False"]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["analyze", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = "import sys; from boundby.cli.main import main; main(sys.argv[1:]); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & set(HEAVY)


def test_options_may_stand_before_the_report(boundby: Boundby) -> None:
    sample = str(Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite")
    assert boundby("--full", sample).out == boundby("analyze", sample, "--full").out


@pytest.mark.parametrize("arguments", [["--nonsense"], ["nonsense"], ["analyze"], ["analyze", "x", "--width", "3"]])
def test_wrong_usage(boundby: Boundby, arguments: list[str]) -> None:
    ran = boundby(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    first, second = ran.err.splitlines()
    assert first.startswith("boundby: ")
    assert second.startswith("  See: boundby")


def test_a_command_of_several_alone_shows_its_help(boundby: Boundby) -> None:
    ran = boundby("measure")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Usage: boundby measure")
    assert "\nCommands:\n" in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--width", "abc"], "'--width': 'abc' is not a whole number."),
        (["--width", "10"], "'--width': 10 is too small: the least is 40."),
        (["--min-share", "abc"], "'--min-share': 'abc' is not a number."),
        (["--max-time", "nan"], "'--max-time': 'nan' is not a number."),
        (["--min-share", "101"], "'--min-share': 101.0 is not between 0 and 100."),
        (["--device", "abc"], "'--device': 'abc' is not a whole number."),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(boundby: Boundby, arguments: list[str], words: str) -> None:
    assert boundby("analyze", "x", *arguments).err.splitlines()[0] == f"boundby: Invalid value for {words}"


def test_a_user_error_is_a_sentence_and_a_next_step(boundby: Boundby, analysis: StandIn, report: Path) -> None:
    analysis.answers["train.sqlite"] = InputError("It is\n\x1b[31mbroken.", "Mend it.")
    ran = boundby("analyze", report)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "boundby: It is\\n\\x1b[31mbroken.\n  Mend it.\n"


def test_memory(boundby: Boundby, analysis: StandIn, report: Path) -> None:
    analysis.answers["train.sqlite"] = MemoryError()
    ran = boundby("analyze", report)
    assert ran.code == 2
    assert "not enough memory" in ran.err


def test_a_bug_is_called_one(
    boundby: Boundby, analysis: StandIn, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis.answers["train.sqlite"] = KeyError("x")
    ran = boundby("analyze", report)
    assert ran.code == 70
    assert "This is a bug in boundby (KeyError: 'x')." in ran.err
    assert "BOUNDBY_DEBUG=1" in ran.err
    assert "Traceback" not in ran.err
    monkeypatch.setenv("BOUNDBY_DEBUG", "1")
    assert "Traceback (most recent call last)" in boundby("analyze", report).err


def test_interrupted(boundby: Boundby, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module.cli, "main", interrupt)
    ran = boundby("analyze", "x")
    assert (ran.code, ran.err) == (130, "boundby: interrupted\n")


ROOT = Path(__file__).parent.parent.parent
#: ``boundby analyze`` of as many reports as its argument says, with a stand-in for the analysis.
ANALYZE = """\
import sys, boundby.api
from types import SimpleNamespace
from boundby.cli.main import main
from boundby.options import AnalysisOptions
from tests.support import reports
boundby.api.examine = lambda *_, **__: SimpleNamespace(report=reports.sample(), options=AnalysisOptions())
sys.exit(main(["analyze"] + ["x"] * int(sys.argv[1])))
"""


def analyzing(count: int, stdout: Any) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    command = [sys.executable, "-c", ANALYZE, str(count)]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, cwd=ROOT, env=env)


def test_a_reader_that_leaves_is_no_error() -> None:
    with analyzing(400, subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait() == 141
    assert err == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_a_sentence() -> None:
    with Path("/dev/full").open("wb") as full, analyzing(1, full) as process:
        _, err = process.communicate()
    assert process.returncode == 2
    assert b"Cannot write to standard output" in err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("name", ["terminal", "markdown", "json", "csv"])
def test_any_locale_gets_an_answer(
    encoding: str, name: str, analysis: StandIn, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis.answers[report.name] = reports.hostile
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert main(["analyze", str(report), "--format", name]) == 0
    written.getvalue().decode("utf-8" if name != "terminal" else encoding)


def test_main_returns_what_sys_exit_takes() -> None:
    assert main(["--version"]) == 0


def test_the_rest_is_estimated_once_there_is_something_to_go_by() -> None:
    assert console.remaining(0.5, 0.1) == ""
    assert console.remaining(9.0, None) == ""
    assert console.remaining(9.0, 0.75) == ", about 3 s left"
