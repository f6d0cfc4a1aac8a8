"""Programs captured here with a real nsys, on a machine that has too little for them: each is named rightly. No time is
asserted, only who takes the cores, who waits for whom, and shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundby import analyze
from boundby.capture.nsys import Nsys
from boundby.results.report import Finding, Report
from tests.support.nsys import capture

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "under_load.py"


def captured(nsys: Nsys, folder: Path, what: str) -> Report:
    return analyze(capture(nsys, folder, str(PROGRAM), what), nsys=nsys.path)


def preempted(report: Report) -> list[Finding]:
    return [item for item in report.findings if item.rule == "preempted"]


def behind(report: Report) -> str:
    """Whom the thread waits behind. It is what is told first, with what to do, and is not told as its own work too:
    fewer threads where they are the program's own, and who else takes the cores where they are not."""
    (found,) = preempted(report)
    assert found.advice
    assert found.saving_ns is not None
    who = found.title.rsplit("behind ", 1)[1]
    told = [one.id for one in report.threads[0].first_responses if one.id in ("cpu.threads", "own-cores")]
    assert told == ["own-cores" if who == "other programs" else "cpu.threads"]
    for item in report.findings:
        if item.rule == "host-work" and item.region == found.region and item.saving_ns:
            assert item.saving_ns[1] <= item.evidence["idle_ns"] - item.evidence["waits_for_a_core_ns"]  # type: ignore[operator]
    return who


def test_a_busy_loop_on_a_busy_machine_waits_for_a_core(nsys: Nsys, tmp_path: Path) -> None:
    assert behind(captured(nsys, tmp_path, "busy")) in ("processes that it started", "other programs")


def test_more_threads_than_cores_wait_for_their_own(nsys: Nsys, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    assert behind(captured(nsys, tmp_path, "threads")) == "threads of its own process"


def test_more_workers_than_cores_take_them(nsys: Nsys, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert behind(captured(nsys, tmp_path, "many_workers")) in ("processes that it started", "other programs")


def test_too_few_workers_are_waited_for(nsys: Nsys, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    report = captured(nsys, tmp_path, "few_workers")
    region = next(item for item in report.regions if item.path[-1:] == ("next batch",))
    assert region.verdict.bound == "host_blocked"
    (found,) = [item for item in report.findings if item.rule == "host-input"]
    assert found.advice[0].startswith("Try ")
    assert "num_workers=" in found.advice[0]
    assert "1 worker process (pid " in found.advice[0]
