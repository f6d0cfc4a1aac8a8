"""Schedules that record several times (``repeat``): each is a span of its own, and what lies between is not idle."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundby
from boundby.jobs import gather, merge
from boundby.model.errors import InputError
from boundby.opening import open_trace
from boundby.readers import read_trace
from tests.readers.kineto.trace import Kineto


def record(made: Kineto, first: int, at: float, steps: int = 3) -> None:
    """Some steps of 1 ms, of which the device works 0.2 ms."""
    for step in range(steps):
        begin = at + 1_000 * step
        made.event("user_annotation", f"ProfilerStep#{first + step}", begin, 990)
        for call in range(4):
            made.launch(begin + 100 * call, 10 * (first + step) + call)
            made.kernel(begin + 100 * call + 20, 50, 10 * (first + step) + call)


def test_cycles_in_one_file_are_spans_of_their_own(tmp_path: Path) -> None:
    made = Kineto()
    for first, at, steps in ((2, 0, 3), (10, 400_000, 4), (20, 900_000, 4)):
        record(made, first, at, steps)
    path = made.write(tmp_path / "trace.json")
    assert [(cycle.low_ns, cycle.high_ns, str(cycle)) for cycle in read_trace(path).cycles] == [
        (0, 2_990_000, "2-4"),
        (400_000_000, 403_990_000, "10-13"),
        (900_000_000, 903_990_000, "20-23"),
    ]
    report = boundby.analyze(path)
    device = report.devices[0]
    # The window is that of the steps: from the begin of the first one on, which launches work 20 us later.
    assert (device.window_ns, device.startup_ns, device.kernels.count) == (3_990_000, 0, 16)
    assert next(region for region in report.regions if region.path).instances == 4
    told = report.trace.warnings[0]
    assert told.code == "cycles"
    assert "steps 2-4 (--window 0us:2991us)" in told.message
    other = boundby.analyze(path, window="0us:2991us").devices[0]
    assert other.kernels.count == 12


@pytest.mark.parametrize("steps", [(4, 5, 6), (4, 6, 8)])
def test_steps_in_a_row_or_with_work_between_are_one_span(tmp_path: Path, steps: tuple[int, ...]) -> None:
    made = Kineto()
    for step in steps:
        record(made, step, 1_000 * step, 1)
        for call in range(10):
            made.launch(1_000 * step + 1_000 + 100 * call, 10_000 + 10 * step + call)
    assert read_trace(made.write(tmp_path / "trace.json")).cycles == ()


def test_steps_that_overlap_are_one_span(tmp_path: Path) -> None:
    made = Kineto()
    record(made, 4, 0, 1)
    made.event("user_annotation", "ProfilerStep#5", 0, 5_000)
    record(made, 9, 3_000, 1)
    assert read_trace(made.write(tmp_path / "trace.json")).cycles == ()


def test_a_folder_of_one_file_a_cycle_is_no_job(tmp_path: Path) -> None:
    """As ``tensorboard_trace_handler`` writes them."""
    for first, written in ((2, 1_700_000_000_000), (10, 1_700_000_000_900)):
        made = Kineto()
        record(made, first, 0)
        made.write(tmp_path / f"node_41.{written}.pt.trace.json")
    trace = open_trace(tmp_path, None, lambda *_: None)
    assert trace.path.endswith("node_41.1700000000900.pt.trace.json")
    assert trace.warnings[0].code == "cycles"
    reports = [(path.name, path) for path in sorted(tmp_path.iterdir())]
    with pytest.raises(InputError, match="another cycle of the process of"):
        merge.merge(gather.gather(reports, workers=1)[0], str(tmp_path))
