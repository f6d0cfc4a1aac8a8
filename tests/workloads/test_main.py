"""``python -m examples.workloads``: its output parses, and what cannot run says so in one sentence."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import examples.workloads
import pytest
from examples.workloads import __main__ as command
from examples.workloads.registry import BY_NAME, WORKLOADS, Workload

from boundby.annotate import backends
from tests.annotate.recording import Recorder

LINE = re.compile(
    r"(\w+) (\w+) on cpu: \d+\.\d{3} ms a step \(median\), p95 \d+\.\d{3} ms, 2 steps after 0 to warm up\n"
)


def needs_torch(workload: Workload) -> None:
    if workload.needs_torch:
        pytest.importorskip("torch", reason="this workload is for torch, which is not installed")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = command.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking workers beside threads
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_workload_prints_its_step_time_and_marks_its_steps(
    workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_torch(workload)
    recorder = Recorder()
    with backends.using(recorder):
        code, out, err = run(capsys, workload.name, "--steps", "2", "--warmup", "0", "--device", "cpu")
    assert (code, err) == (0, "")
    assert recorder.open == []
    assert recorder.counts["step 0"] == recorder.counts["step 1"] == 1
    assert any(path.startswith("step 1/") for path in recorder.paths)
    assert (found := LINE.fullmatch(out))
    assert found.groups() == (workload.name, "before")


@pytest.mark.parametrize("name", ["numpy_only", "cuda_api"])
def test_json_has_the_figures_and_what_they_are_of(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    needs_torch(BY_NAME[name])
    wanted = ["--variant=after", "--steps=3", "--warmup=1", "--seed=5", "--device=cpu", "--json"]
    code, out, _ = run(capsys, name, *wanted)
    facts = json.loads(out)
    assert code == 0
    given = {"workload": name, "variant": "after", "device": "cpu", "steps": 3, "warmup": 1, "seed": 5}
    assert {key: facts[key] for key in given} == given
    assert facts["clock"] == "perf_counter"
    assert len(facts["step_ns"]) == 3
    assert min(facts["step_ns"]) <= facts["median_ns"] <= facts["p95_ns"] == max(facts["step_ns"])
    assert facts["mean_ns"] >= sum(facts["step_ns"]) // 3


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--list")
    assert code == 0
    assert run(capsys)[1] == out
    for workload in WORKLOADS:
        assert f"{workload.name} " in out
        assert all(f" {variant} " in out for variant in workload.variants)


def test_every_workload_has_a_file_that_shadows_no_module_of_python() -> None:
    """cpu_steps.py also runs as a script, which puts its folder in front of all others."""
    folder = Path(examples.workloads.__file__).parent
    files = {path.stem for path in folder.glob("*.py")}
    assert {workload.module or workload.name for workload in WORKLOADS} <= files
    assert not files & (set(sys.stdlib_module_names) - {"__main__"})


def test_without_torch_it_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    code, out, err = run(capsys, "sync")
    assert (code, out) == (2, "")
    assert "The workload sync needs PyTorch, which is not installed" in err
    assert "numpy_only, cpu_steps" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["numpy_only", "--variant=later"], "has no variant 'later'. It has before, after."),
        (["numpy_only", "--device=cuda"], "The workload numpy_only uses no GPU."),
        (["numpy_only", "--steps=0"], "No step to measure."),
    ],
)
def test_what_cannot_run_is_told(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("arguments", [["nothing"], ["numpy_only", "--steps=-1"], ["numpy_only", "--steps=x"]])
def test_bad_usage_leaves_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2


def test_a_gpu_is_asked_for_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch", reason="asks torch for a GPU, and torch is not installed")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "sees no GPU here" in run(capsys, "sync", "--device=cuda")[2]
    assert "needs a GPU" in run(capsys, "cuda_api", "--variant=graphs")[2]
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "needs a C++ compiler" in run(capsys, "gpu_compute", "--variant=compile")[2]


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from examples.workloads.__main__ import main; main(['--list']);"
        "print([name for name in ('torch', 'numpy', 'nvtx') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"
