"""``boundby profile --with torch``: PyTorch's profiler in a program that says nothing itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from boundby.api import Analysis
from boundby.capture import torch_run
from boundby.model.errors import UserError

TRAINS = """
import torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    loss = model(torch.randn(2, 8)).sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
INFERS = "import torch\nmodel = torch.nn.Linear(8, 4)\nfor _ in range(3): model(torch.randn(2, 8))\n"


def record(folder: Path, program: str) -> torch_run.TorchRecording:
    file = folder / "program.py"
    file.write_text(program)
    rhythm = torch_run.Rhythm(wait=1, warmup=1, active=2)
    return torch_run.record([sys.executable, str(file)], folder / "run", rhythm, force=False, say=lambda _: None)


def test_steps_of_the_optimizer_are_the_programs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    recording = record(tmp_path, TRAINS)
    assert recording.exit_code == 0
    report = Analysis(torch_run.check(recording)).report
    steps = next(region for region in report.regions if region.path == ("ProfilerStep#*",))
    assert steps.instances == 2
    assert any(region.path[:2] == ("ProfilerStep#*", "Optimizer.step#SGD.step") for region in report.regions)
    assert report.trace.captured.python_stacks
    assert report.trace.captured.shapes
    assert Analysis(tmp_path / "run").report.trace.source == "pytorch-profiler"


def test_a_program_without_steps_is_recorded_to_its_end_and_one_without_torch_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    trace = Analysis(torch_run.check(record(tmp_path, INFERS))).trace
    assert sum(trace.names[name] == "aten::linear" for name in trace.ranges.name.tolist()) == 3
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UserError, match="recorded nothing"):
        torch_run.check(record(other, "print('hello')"))
