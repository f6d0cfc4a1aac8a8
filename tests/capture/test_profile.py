"""Recording with a real nsys: the program keeps what is its own, and what it did is in the folder."""

from __future__ import annotations

import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import boundby
from boundby.capture.nsys import Nsys
from boundby.trace.facts import LAUNCHING_SCRIPT
from tests.capture.test_export import small_disk
from tests.support.nsys import names
from tests.support.profiling import RUN_TIMEOUT_S, Profiler, Ran

pytestmark = pytest.mark.nsys

FILL = """\
import sys, nvtx
with nvtx.annotate("fill"), open(sys.argv[1], "wb", 0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
"""
SECRET = "t0psecret-0123456789"


@pytest.fixture
def profiler(nsys: Nsys, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Profiler:
    return Profiler(nsys, tmp_path, capfd)


@pytest.fixture(scope="module")
def ran(nsys: Nsys, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One run for all tests that only look at what came of it."""
    place = tmp_path_factory.mktemp("profile")
    started = Profiler(nsys, place).start(
        [],
        [sys.executable, Profiler(nsys, place).program, "echo", "a b", "--format", "*"],
        {"API_TOKEN": SECRET, "OMP_NUM_THREADS": "3"},
    )
    out, err = started.process.communicate("some input\n", timeout=RUN_TIMEOUT_S)
    return Ran(started.process.returncode, out, err, started.folder)


def test_the_streams_and_arguments_are_the_programs_own(ran: Ran) -> None:
    assert ran.code == 0, ran.err
    assert ran.out.startswith("ready\nread some input tty False argv ['a b', '--format', '*']\n")
    assert "to stderr\n" in ran.err
    assert "Generating" not in ran.out + ran.err
    assert "qdstrm" not in ran.out + ran.err


def test_the_analysis_follows_the_output(ran: Ran) -> None:
    _, _, view = ran.out.partition("argv")
    assert "work" in view
    assert "part" in view
    command = json.loads((ran.folder / "report.json").read_text())["trace"]["command"]
    assert command == f"{sys.executable} {ran.folder.parent / 'behave.py'} echo a b --format *"
    assert LAUNCHING_SCRIPT not in (ran.folder / "report.md").read_text()  # no advice starts it, either


def test_messages_are_short_and_on_stderr(ran: Ran) -> None:
    own = [line for line in ran.err.splitlines() if line.startswith("boundby: ")]
    assert own[0].startswith("boundby: recording with nsys ")
    assert own[-1].startswith(f"boundby: all of it is in {ran.folder}: open {ran.folder}/report.html, or: boundby ")
    assert len(own) <= 4


def test_the_folder_holds_everything(ran: Ran) -> None:
    kept = ["report.html", "report.json", "report.md", "report.nsys-rep", "report.sqlite", "run.json"]
    assert names(ran.folder) == kept
    analysis = json.loads((ran.folder / "report.json").read_text())
    assert ["work", "part"] in [region["path"] for region in analysis["regions"]]
    assert "part" in (ran.folder / "report.md").read_text()
    assert ran.ranges == {"work": 1, "part": 3}


def test_run_json_tells_the_circumstances(ran: Ran, nsys: Nsys) -> None:
    facts = ran.facts
    assert facts["command"][-4:] == ["echo", "a b", "--format", "*"]
    assert (facts["exit_code"], facts["stopped_by"]) == (0, None)
    assert facts["nsys"]["version"] == nsys.version
    assert any(each.startswith("--trace=") and "nvtx" in each for each in facts["nsys"]["arguments"])
    assert facts["python"]["packages"]["nvtx"]
    assert facts["host"]["cpu_count"] >= 1
    assert facts["duration_s"] > 0
    assert facts["environment"]["OMP_NUM_THREADS"] == "3"


def test_no_environment_variable_reaches_what_people_pass_on(ran: Ran) -> None:
    for name in names(ran.folder):
        if name != "report.nsys-rep":  # nsys' own; the documentation says so
            assert SECRET.encode() not in (ran.folder / name).read_bytes(), name
    with closing(sqlite3.connect(ran.folder / "report.sqlite")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_profilers_own_messages_are_in_the_export(ran: Ran) -> None:
    with closing(sqlite3.connect(ran.folder / "report.sqlite")) as database:
        texts = [text for (text,) in database.execute("SELECT text FROM DIAGNOSTIC_EVENT")]
    assert any("Profiling has started" in text for text in texts)


def test_the_folder_can_be_analysed_again(ran: Ran) -> None:
    report = boundby.analyze(ran.folder)
    assert report.trace.command is not None
    assert report.trace.command.startswith(sys.executable)
    assert report.trace.path == str(ran.folder)


def test_a_terminal_stays_a_terminal(profiler: Profiler) -> None:
    ours, programs = pty.openpty()
    command = [sys.executable, "-m", "boundby.cli.main", "profile", "--format=none", f"--nsys={profiler.nsys.path}"]
    program = [sys.executable, "-c", "import os; print([os.isatty(n) for n in range(3)])"]
    done = subprocess.run(
        [*command, "-q", "-o", str(profiler.place / "out"), "--", *program],
        stdin=programs,
        stdout=programs,
        stderr=programs,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    os.close(programs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "[True, True, True]" in said
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("exit", "7"), 7), (("raise",), 1), (("signal", "SIGSEGV"), 139), (("signal", "SIGKILL"), 137)],
)
def test_a_program_that_fails_is_analysed_and_its_code_returned(
    profiler: Profiler, arguments: tuple[str, ...], code: int
) -> None:
    ran = profiler.run(*arguments)
    assert ran.code == code
    assert ran.facts["exit_code"] == code
    if code > 128:  # what the process had not yet handed over is lost with it
        assert ran.ranges.get("part", 0) <= 3
    else:
        assert ran.ranges == {"work": 1, "part": 3}
    assert "this is what it did until then" in ran.err
    if arguments == ("raise",):
        assert "ValueError: as asked" in ran.err
        assert "The program FAILED: ValueError: as asked" in (ran.folder / "report.md").read_text()
        assert ran.facts["last_words"]["words"] == "ValueError: as asked"
        assert "boundby" not in ran.err.partition("Traceback")[2].partition("ValueError")[0]


def test_a_script_that_is_not_there_is_told(profiler: Profiler) -> None:
    program = [sys.executable, "nosuch.py"]
    command = [sys.executable, "-m", "boundby.cli.main", "profile", f"--nsys={profiler.nsys.path}", "-o", "out"]
    done = subprocess.run(
        [*command, "--", *program],
        cwd=profiler.place,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    told = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "The program FAILED: can't open file" in told
    assert "with exit status 2" in told
    for word in ("Vectorise", "saves", "BOUND BY"):
        assert word not in told


def test_forked_workers_are_part_of_it(profiler: Profiler) -> None:
    ran = profiler.run("fork")
    assert ran.code == 0
    with closing(sqlite3.connect(ran.folder / "report.sqlite")) as database:
        query = "SELECT count(DISTINCT globalTid >> 24 & 0xFFFFFF) FROM SCHED_EVENTS"
        if "--cpuctxsw=process-tree" in ran.facts["nsys"]["arguments"]:
            assert database.execute(query).fetchone()[0] >= 4


def test_a_capture_range_is_all_that_is_recorded(profiler: Profiler) -> None:
    ran = profiler.run("ranges", options=("--format=none", "--capture-range=nvtx:active"))
    assert ran.code == 0, ran.err
    assert ran.ranges == {"active": 1, "inner": 4}


def test_a_capture_range_that_never_comes_is_told(profiler: Profiler) -> None:
    ran = profiler.run("exit", "0", options=("--capture-range=nvtx:never",))
    assert ran.code == 2
    assert "the program never entered the capture range nvtx:never" in ran.err
    assert not ran.folder.exists()


def test_duration_stops_the_program(profiler: Profiler) -> None:
    ran = profiler.run("sleep", options=("--format=none", "--duration=0.7"))
    assert ran.code == 0, ran.err
    assert ran.facts["stopped_by"] == "duration"
    assert "the recording is over, and the program was stopped" in ran.err


def test_a_delay_longer_than_the_program_is_told(profiler: Profiler) -> None:
    ran = profiler.run("exit", "4", options=("--delay=600",))
    assert ran.code == 4
    assert "the program ended before the 600 s of --delay were over" in ran.err


def test_a_report_without_events_is_explained(profiler: Profiler) -> None:
    options = ("--trace=nvtx", "--nsys-args=--sample=none --cpuctxsw=none")
    ran = profiler.run_program(options, ["/bin/true"])
    assert ran.code == 2
    assert "it holds no events. The profiler says: No NVTX events collected" in ran.err
    assert (ran.folder / "report.nsys-rep").exists()


def test_a_disk_that_fills_up_is_told(profiler: Profiler, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "2m") as disk:
        program = [sys.executable, "-c", FILL, str(disk / "ballast")]
        ran = profiler.run_program([f"-o{disk / 'run'}"], program)
        assert names(disk) == ["ballast"]
    assert ran.code == 2
    assert "The disk is full: there was no room for the report in" in ran.err
    kept = re.search(r"nsys left what it had in (\S+): boundby analyze", ran.err)
    assert kept is not None
    rescued = Path(kept[1])
    assert boundby.analyze(rescued, nsys=profiler.nsys.path).threads
    rescued.unlink()


def test_a_full_disk_is_told_before_the_program_runs(profiler: Profiler, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "100k") as disk:
        ran = profiler.run_program([f"-o{disk / 'run'}"], [sys.executable, "-c", "print('it ran')"])
        assert not names(disk)
    assert ran.code == 2
    assert "it ran" not in ran.out
    assert "The disk is full" in ran.err
