"""Ctrl-C, SIGTERM and the like, sent to boundby while the program runs under a real nsys."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from boundby.capture.nsys import Nsys
from tests.support.profiling import RUN_TIMEOUT_S, Profiler, processes_with

pytestmark = pytest.mark.nsys


@pytest.fixture
def profiler(nsys: Nsys, tmp_path: Path) -> Profiler:
    return Profiler(nsys, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_program_is_stopped_and_analysed(profiler: Profiler, number: signal.Signals) -> None:
    started = profiler.behaving("sleep")
    started.wait_for("ready")
    started.send(number)
    ran = started.finish()
    assert ran.code == 128 + number
    assert ran.facts["stopped_by"] == number.name
    assert "stopping the program" in ran.err
    if number == signal.SIGINT:
        assert (ran.ranges["work"], ran.ranges["part"]) == (1, 3)
        assert "KeyboardInterrupt" in ran.err
    else:  # it ends this program at once: what the profiler had not yet handed over of its ranges is lost
        assert ran.ranges.get("part", 0) <= 3
        assert "Traceback" not in ran.err
    assert (ran.folder / "report.json").exists()


def test_ctrl_c_lets_the_program_clean_up_and_end_as_it_likes(profiler: Profiler) -> None:
    started = profiler.behaving("cleanup")
    started.wait_for("cleans up")
    started.send(signal.SIGINT)
    ran = started.finish()
    assert ran.code == 9
    assert ran.out == "ready\ncleans up\ncleaned up\n"
    assert (ran.folder / "report.json").exists()


def test_a_second_ctrl_c_gives_up_and_leaves_nothing(profiler: Profiler) -> None:
    mark = f"boundby-test-{profiler.place}"
    started = profiler.behaving("deaf", env={"BOUNDBY_TEST_MARK": mark})
    started.wait_for("deaf")
    assert len(processes_with(mark)) >= 4
    started.send(signal.SIGINT)
    started.wait_until_told("again to give up")  # two signals that come at once are one
    started.send(signal.SIGINT)
    ran = started.finish()
    assert ran.code == 130
    assert ran.err.splitlines()[-1] == "boundby: interrupted"
    assert "Traceback" not in ran.err
    assert not ran.folder.exists()
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while left := processes_with(mark):  # neither the program nor nsys nor its agent
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
