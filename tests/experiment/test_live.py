"""The command on real programs: what they show, what they are left as. No time is asserted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from boundby.cli.main import main

pytest.importorskip("nvtx")
PLAIN = """
import sys, time, nvtx
for step in range({steps}):
    with nvtx.annotate("step"):
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass
{end}
"""


def _program(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def test_a_plain_loop(tmp_path: Path) -> None:
    result = tmp_path / "prove.json"
    program = _program(tmp_path, PLAIN.format(steps=100_000, end=""))
    assert main(["prove", "--steps", "60", "-o", str(result), "--", *program]) == 0
    told = json.loads(result.read_text())
    assert (told["kind"], told["format_version"]) == ("prove", 1)
    assert [condition["delayed"] for condition in told["conditions"]] == [[], ["host"]]
    assert [part["part"] for part in told["parts"]] == ["host"]
    assert told["steps_by"] == "the NVTX range 'step'"
    assert told["steps"] >= 50


def test_the_program_keeps_its_exit_code(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = _program(tmp_path, PLAIN.format(steps=200, end="sys.exit(7)"))
    assert main(["prove", "--steps", "60", "--run-on", "--", *program]) == 7
    shown = capfd.readouterr()
    assert "EACH PART" in shown.out
    assert "boundby: steps by the NVTX range 'step'" in shown.err


def test_a_program_that_fails_ends_the_experiment(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Before its steps are known, and when they are but nothing was measured."""
    for steps in (5, 120):
        program = _program(tmp_path, PLAIN.format(steps=steps, end="raise SystemExit(9)"))
        assert main(["prove", "--steps", "4000", "--", *program]) == 9
        assert "ended with exit code 9 before anything was measured" in capfd.readouterr().err


THREAD = """
import threading, time, nvtx
def loop():
    for step in range(100_000):
        with nvtx.annotate("step"):
            time.sleep(0.002)
threading.Thread(target=loop).start()
"""


def test_a_loop_on_another_thread_is_ended_and_that_is_no_failure(tmp_path: Path) -> None:
    """No exception can end it; the program's own end is far off."""
    result = tmp_path / "prove.json"
    assert main(["prove", "--steps", "60", "-o", str(result), "--", *_program(tmp_path, THREAD)]) == 0
    assert json.loads(result.read_text())["steps"] >= 50


def test_a_file_of_no_format_is_refused_before_anything_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "-o", str(tmp_path / "x.pdf"), "--", *_program(tmp_path, "print('ran')")]) == 2
    shown = capfd.readouterr()
    assert "Cannot tell a format from" in shown.err
    assert "ran" not in shown.out


def test_a_program_without_steps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "--", *_program(tmp_path, "print('done')")]) == 2
    assert "The program showed no steps." in capfd.readouterr().err


def test_ranks_are_refused(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["prove", "--", sys.executable, "-c", "pass"]) == 2
    assert "rank 1 of a job of 2" in capfd.readouterr().err


TRAINING = """
import sys, torch
from torch.utils.data import DataLoader, Dataset
class Items(Dataset):
    def __len__(self): return 1200
    def __getitem__(self, at): return torch.randn(16) + at * 0.001
if __name__ == "__main__":
    torch.manual_seed(0); torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for batch in DataLoader(Items(), batch_size=4, num_workers=2, shuffle=True):
        optimizer.zero_grad()
        for _ in range(6):
            loss = model(batch).pow(2).mean()
        loss.backward(); optimizer.step(); losses.append(loss.item())
    open(sys.argv[1], "w").write(repr((losses, [one.tolist() for one in model.parameters()])))
"""


def test_losses_and_parameters_are_the_same_to_the_bit(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import subprocess

    program = _program(tmp_path, TRAINING)
    without, with_delays, result = tmp_path / "without", tmp_path / "with", tmp_path / "prove.json"
    subprocess.run([*program, str(without)], check=True)
    words = ["--steps", "72", "--run-on", "-o", str(result), "--", *program, str(with_delays)]
    assert main(["prove", *words]) == 0
    assert without.read_text() == with_delays.read_text()
    told = json.loads(result.read_text())
    assert {tuple(condition["delayed"]) for condition in told["conditions"]} >= {(), ("input",)}
    assert [part["part"] for part in told["parts"]] == ["host", "input"]
