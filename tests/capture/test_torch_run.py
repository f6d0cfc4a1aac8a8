"""``boundby profile --with torch``: PyTorch's profiler in a program that says nothing itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from boundby.api import Analysis, load_job
from boundby.capture.recording import Rhythm, TorchRecording, check, record_with_torch
from boundby.cli.main import main
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


def record(folder: Path, program: str) -> TorchRecording:
    file = folder / "program.py"
    file.write_text(program)
    rhythm = Rhythm(wait=1, warmup=1, active=2)
    return record_with_torch([sys.executable, str(file)], folder / "run", rhythm, force=False, say=lambda _: None)


def test_steps_of_the_optimizer_are_the_programs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    recording = record(tmp_path, TRAINS)
    assert recording.exit_code == 0
    report = Analysis(check(recording)).report
    steps = next(region for region in report.regions if region.path == ("ProfilerStep#*",))
    assert steps.instances == 2
    assert any(region.path[:2] == ("ProfilerStep#*", "Optimizer.step#SGD.step") for region in report.regions)
    assert report.trace.captured.python_stacks
    assert report.trace.captured.shapes
    assert Analysis(tmp_path / "run").report.trace.source == "pytorch-profiler"


def test_a_program_without_steps_is_recorded_to_its_end_and_one_without_torch_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    trace = Analysis(check(record(tmp_path, INFERS))).trace
    assert sum(trace.names[name] == "aten::linear" for name in trace.ranges.name.tolist()) == 3
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UserError, match="recorded nothing"):
        check(record(other, "print('hello')"))


DISTRIBUTED = """\
import pathlib, sys, time, torch, torch.distributed as dist
from boundby.annotate import steps  # an optimizer would import half of torch in each of them
dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
for number in steps(range(7)):
    there = pathlib.Path(sys.argv[1], str(number))
    if dist.get_rank():
        there.touch()
    else:
        while not there.exists():
            time.sleep(0.01)
        time.sleep(0.1)  # the other one waits as long
    model(torch.ones(4, 8)).sum().backward()
    dist.all_reduce(model.weight.grad)
dist.destroy_process_group()
"""


def test_ranks_that_write_a_trace_each_get_one_answer(tmp_path: Path) -> None:
    """The launcher reaches the workers of torchrun, too."""
    (tmp_path / "train.py").write_text(DISTRIBUTED)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = ["profile", "-q", "--format", "none", "--with", "torch", "--torch-steps", "1,1,4"]
    arguments += [
        "--torch-record",
        "none",
        "-o",
        str(tmp_path / "run"),
        "--",
        *launcher,
        str(tmp_path / "train.py"),
        str(tmp_path),
    ]
    assert main(arguments) == 0
    found = load_job(tmp_path / "run" / "job.json")
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert found.collectives >= 3
    assert found.ranks[0].caused_wait_ns > max(100_000_000, found.ranks[1].caused_wait_ns)
