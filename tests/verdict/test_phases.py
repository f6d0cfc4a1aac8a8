"""A program that changes: what follows its first steps has a verdict of its own where it is another."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundby
from boundby.render.sentences import phases
from boundby.simulate.engine import simulate
from boundby.simulate.export import to_export
from boundby.simulate.machine import Machine
from boundby.simulate.program import US, Launch, Loop, Range, Work, program
from boundby.simulate.script import realise


@pytest.mark.parametrize(("first_us", "bounds"), [(60_000, ["cpu", "gpu_compute"]), (100, [])])
def test_what_follows_the_first_steps(first_us: int, bounds: list[str], tmp_path: Path) -> None:
    kernels = [Launch("a", 300 * US), Launch("b", 300 * US)]
    slow = Range("step {i}", [*kernels, *kernels, Work(first_us * US), *kernels])
    made = program(Loop(1, [slow]), Loop(20, [Range("step {i}", kernels)]))
    path = to_export(simulate(realise(made, Machine()))).write(tmp_path / "made.sqlite", "2023")
    [device] = boundby.analyze(path).devices
    assert device.verdict.bound == ("cpu" if bounds else "gpu_compute")
    assert [phase.bound for phase in device.phases] == bounds
    assert ("after that" in phases(device)) is bool(bounds)
