"""A program that changes: what follows its first steps has a verdict of its own where it is another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import boundby
from boundby.claims.phases import change_of
from boundby.document.sentences import phases
from boundby.model import units
from boundby.results.report import Phase, Window
from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, Work, program
from boundby.simulate.machine import Machine, realise, simulate
from boundby.simulate.nsys_export import to_export


@pytest.mark.parametrize(("first_us", "bounds"), [(60_000, ["cpu", "gpu_compute"]), (100, [])])
def test_what_follows_the_first_steps(first_us: int, bounds: list[str], tmp_path: Path) -> None:
    kernels = [Launch("a", 300 * US), Launch("b", 300 * US)]
    slow = Range("step {i}", [*kernels, *kernels, Work(first_us * US), *kernels])
    made = program(Loop(1, [slow]), Loop(20, [Range("step {i}", kernels)]))
    path = to_export(simulate(realise(made, Machine()))).write(tmp_path / "made.sqlite", "2023")
    [device] = boundby.analyze(path).devices
    assert device.verdict.bound == ("cpu" if bounds else "gpu_compute")
    assert [phase.bound for phase in device.phases] == bounds
    assert bool(phases(device)) is bool(bounds)


@pytest.mark.parametrize("slow_steps", [8, 60])
def test_it_is_told_when_the_program_changes(slow_steps: int, tmp_path: Path) -> None:
    """The cut lies where the program changes, wherever in the window that is, and each side has its own verdict."""
    slow = [Work(2_000 * US), Launch("a", 20 * US)]
    fast = [Launch("a", 300 * US), Launch("b", 300 * US)]
    made = program(Loop(slow_steps, slow), Loop(60, fast))
    path = to_export(simulate(realise(made, Machine()))).write(tmp_path / "made.sqlite", "2023")
    analysis = boundby.Analysis(path)
    [device] = analysis.report.devices
    before, after = device.phases
    assert (before.bound, after.bound) == ("cpu", "gpu_compute")
    kernels = analysis.trace.operations
    first = int(kernels.start_ns[np.flatnonzero(kernels.end_ns - kernels.start_ns > 200 * US)[0]])
    assert abs(after.window.start_ns - first) <= 0.01 * device.window_ns
    into = units.duration(after.window.start_ns - device.window.start_ns)
    assert phases(device).startswith(f"The bound changes {into} into the window:")


def test_no_time_is_told_where_work_changes_bit_by_bit(tmp_path: Path) -> None:
    """Host work that gets shorter step by step, as kernels get longer, changes at no time: only halves differ."""
    steps = [
        Loop(1, [Work((2_000 - 20 * number) * US), Launch("a", 20 * number * US), Sync()]) for number in range(1, 100)
    ]
    path = to_export(simulate(realise(program(*steps), Machine()))).write(tmp_path / "made.sqlite", "2023")
    analysis = boundby.Analysis(path)
    assert change_of(analysis.timeline.devices[0]) is None
    [device] = analysis.devices
    low = device.window.start_ns
    parts = (
        Phase(Window(low, low + 500), "cpu", "high", 1),
        Phase(Window(low + 500, low + 1000), "gpu_compute", "high", 1),
    )
    told = phases(replace(device, phases=parts))
    assert told.startswith("The bound changes: bound by host code in the first half (until 500 ns into the window)")
