"""Where the time of the program's steps goes: parts by hand, the queue, and what lies between steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import boundby
from boundby.cli.main import main
from boundby.simulate.instructions import MS, US, Launch, Loop, Range, Sleep, Sync, Work, program
from boundby.simulate.machine import Machine, realise, simulate
from boundby.simulate.nsys_export import write_export
from tests.support.traces import trace_path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve steps: 4 ms of waiting for input, 3 ms of host code, 5 ms of kernels; 6 ms between two of them."""
    step = Range("step {i}", [Range("load", [Sleep(4 * MS)]), Work(3 * MS), Launch("gemm", 5 * MS), Sync()])
    run = simulate(realise(program(Loop(12, [step, Work(6 * MS)])), Machine(), 0))
    return write_export(run, tmp_path_factory.mktemp("steps") / "run.sqlite")


def test_parts_by_hand(path: Path) -> None:
    steps = boundby.analyze(path).steps
    assert len(steps) == 12
    for one in steps:
        assert one.length_ns == pytest.approx(12 * MS, rel=0.02)
        assert one.device_ns == pytest.approx(5 * MS, rel=0.01)
        assert one.input_ns == pytest.approx(4 * MS, rel=0.05)
        assert one.host_ns == pytest.approx(3 * MS, rel=0.05)
        assert one.compile_ns == 0
        assert one.other_ns == pytest.approx(0, abs=0.1 * MS)
        assert one.queue_median == 0
    begins = [one.start_ns for one in steps]
    assert begins == sorted(begins)


def test_operations_wait_in_the_queue_of_a_host_that_runs_ahead(tmp_path: Path) -> None:
    step = Range("step {i}", [Loop(8, [Launch("gemm", 1 * MS), Work(20 * US)]), Sync()])
    run = simulate(realise(program(Loop(6, [step])), Machine(), 0))
    steps = boundby.analyze(write_export(run, tmp_path / "run.sqlite")).steps
    assert [one.queue_median for one in steps] == pytest.approx([3.5] * 6, abs=1)


def test_the_table_stands_in_text_csv_and_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(path), "--full", "-q"]) == 0
    shown = capsys.readouterr().out
    assert "WHERE A STEP'S TIME GOES" in shown
    table = shown.partition("WHERE A STEP'S TIME GOES")[2]
    row = next(line for line in table.splitlines() if line.startswith("blocked"))
    assert "33 %" in row
    assert main(["analyze", str(path), "--format", "steps-csv", "-q"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == "device,start_ns,length_ns,device_ns,input_ns,host_ns,compile_ns,other_ns,queue_median"
    assert len(rows) == 12
    assert main(["analyze", str(path), "--format", "json", "-q"]) == 0
    assert len(json.loads(capsys.readouterr().out)["steps"]) == 12


def test_use_of_the_peak_counts_the_step_and_not_what_lies_between() -> None:
    """Of a real trace with sizes: the steps' own time is less than the window, and holds the same work."""
    report = boundby.analyze(trace_path("kineto/b200_eager.json.gz"))
    if report.step_mfu is None:
        pytest.skip("no step has known work")
    root = next(one for one in report.regions if not one.path)
    assert root.work is not None
    whole = root.work.of_window(sum(one.window_ns for one in report.devices))
    assert whole is not None
    assert report.step_mfu >= 0.9 * whole
