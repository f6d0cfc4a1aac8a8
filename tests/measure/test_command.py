"""``boundby measure``: targets, what it prints, saves and draws, and one sentence for what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from boundby.cli.main import main
from boundby.cli.measure import measure
from boundby.measure import Latency, LatencyComparison, Throughput, load
from boundby.model import statistics

BENCH = """
import numpy as np

def plain():
    return sum(range(500))

def nothing():
    pass

def needs(x):
    return x

def bad():
    raise ValueError("no such luck\\nand more")

def leaves():
    raise SystemExit(3)

def factory():
    return sorted, ([3, 1, 2] * 50,)

def slower():
    return sorted, ([3, 1, 2] * 500,)

def named():
    return sorted, {"iterable": [1]} if False else ([2, 1],)

def single():
    return np.cumsum, np.ones((1, 40))

def sized():
    return np.cumsum, lambda size: np.ones((size, 40))

def only():
    return plain

def fails_later():
    return bad

def on(device="cpu"):
    return plain, ()

def talks():
    print("loud")
    return 1

number = 5
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    path = tmp_path / "bench.py"
    path.write_text(BENCH, encoding="utf-8")
    (tmp_path / "broken.py").write_text("def f(:\n", encoding="utf-8")
    (tmp_path / "raising.py").write_text("import nowhere_to_be_found\n", encoding="utf-8")
    return path


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bench: Path) -> Run:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "BOUNDBY_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(bench.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["measure", *map(str, arguments)])
        out, err = capfd.readouterr()
        for name in set(sys.modules) - before:
            if name in ("bench", "broken", "raising") or name.startswith("measured_"):
                del sys.modules[name]
        return code, out, err

    return call


@pytest.mark.parametrize("target", ["plain", "factory", "named", "single", "sized", "only", "on"])
def test_functions_and_factories(run: Run, target: str) -> None:
    code, out, err = run(f"bench.py:{target}", "--budget", "0.05")
    assert (code, err) == (0, "")
    assert out.startswith(f"bench.py:{target}: ")
    assert "wall clock is the right one" in out
    assert "samples" in out


def test_a_module_of_the_current_folder(run: Run) -> None:
    code, out, _ = run("latency", "bench:factory", "--budget", "0.05")
    assert code == 0
    assert out.startswith("bench:factory: ")


@pytest.mark.parametrize(
    ("target", "says", "next_step"),
    [
        ("nofile.py:x", "There is no file nofile.py.", "FILE.py:FUNCTION"),
        ("no.module:x", "There is no module no.module.", "FILE.py:FUNCTION"),
        ("bench.py", "'bench.py' names no function.", "FILE.py:FUNCTION"),
        ("bench.py:factry", "There is no factry in bench.py.", "It has factory."),
        ("bench.py:number", "bench.py:number is not a function but int.", "It has"),
        ("bench.py:nothing", "bench.py:nothing returns nothing, so", "Return a result"),
        ("bench.py:needs", "bench.py:needs needs arguments (x).", "factory"),
        ("bench.py:bad", "bench.py:bad raised ValueError: no such luck (bench.py, line 14).", "Correct it"),
        ("bench.py:leaves", "bench.py:leaves raised SystemExit: 3 (bench.py, line 17).", "Correct it"),
        ("bench.py:fails_later", "bench.py:fails_later raised ValueError: no such luck.", "Correct it"),
        ("broken.py:f", "broken.py, line 1, is not valid Python", "Correct it"),
        ("raising.py:f", "raising.py raised ModuleNotFoundError: No module named 'nowhere_to_be_found'", "Correct it"),
        ("raising:f", "raising raised ModuleNotFoundError: No module named 'nowhere_to_be_found'", "Correct it"),
    ],
)
def test_bad_targets_get_one_sentence(run: Run, target: str, says: str, next_step: str) -> None:
    code, out, err = run(target)
    assert (code, out) == (2, "")
    sentence, hint = err.splitlines()
    assert says in sentence
    assert next_step in hint


@pytest.mark.parametrize(("device", "says"), [("tpu", "Cannot time on 'tpu'."), ("cuda:99", "")])
def test_wrong_devices(run: Run, device: str, says: str) -> None:
    code, out, err = run("bench.py:plain", "--device", device)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 2
    assert "Traceback" not in err


def test_all_methods_on_the_cpu_are_one_and_nothing_is_said_of_gpus(run: Run) -> None:
    code, out, err = run("bench.py:plain", "--method", "all", "--device", "cpu", "--budget", "0.05")
    assert (code, err) == (0, "")
    assert "METHODS" not in out
    assert "GPU" not in out
    assert "CUDA" not in out


def test_what_is_saved_can_be_compared(run: Run) -> None:
    assert run("bench.py:factory", "-o", "a.json", "--budget", "0.3")[0] == 0
    assert run("bench.py:slower", "-o", "b.json", "--budget", "0.3")[0] == 0
    assert isinstance(load("a.json"), Latency)
    code, out, err = run("--compare", "a.json", "b.json")
    assert (code, err) == (0, "")
    assert out.startswith("B against A: B takes ")
    assert "each measured by itself" in " ".join(out.split())
    assert run("compare", "a.json", "b.json")[1] == out
    code, out, _ = run("--compare", "a.json", "bench.py:slower", "--budget", "0.2", "--json")
    assert code == 0
    assert json.loads(out)["significant"] is True


def test_two_targets_are_measured_in_turns(run: Run) -> None:
    code, out, _ = run("compare", "bench.py:factory", "bench.py:slower", "-o", "c.json", "-q")
    assert code == 0
    result = load("c.json")
    assert isinstance(result, LatencyComparison)
    assert result.interleaved_rounds == statistics.FEWEST
    assert "measured in 6 turns" in " ".join(out.split())


def test_json_is_all_that_is_printed(run: Run) -> None:
    code, out, _ = run("bench.py:plain", "--json", "--budget", "0.05", "--no-warmup")
    assert code == 0
    data = json.loads(out)
    assert data["kind"] == "latency"
    assert data["warmup_calls"] == 0
    assert "no-warm-up" in [mistake["code"] for mistake in data["mistakes"]]


def test_what_the_target_prints_is_no_part_of_the_json(run: Run) -> None:
    code, out, err = run("bench.py:talks", "--json", "--budget", "0.01")
    assert code == 0
    assert json.loads(out)["kind"] == "latency"
    assert "loud" in err
    code, out, _ = run("bench.py:talks", "--budget", "0.01")
    assert code == 0
    assert out.startswith("loud")


def test_a_figure(run: Run) -> None:
    pytest.importorskip("matplotlib")
    code, _, err = run("bench.py:plain", "--figure", "latency.svg", "--budget", "0.05")
    assert (code, err) == (0, "")
    assert Path("latency.svg").stat().st_size > 1000
    code, _, err = run("bench.py:plain", "--figure", "latency.xyz")
    assert code == 2
    assert "No figure can be written" in err


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize("target", ["single", "sized"])
def test_throughput(run: Run, target: str) -> None:
    code, out, err = run("throughput", f"bench.py:{target}", "--max-batch", "2", "--budget", "1", "-o", "t.json")
    assert (code, err) == (0, "")
    assert "samples/s at batch size" in out
    assert isinstance(load("t.json"), Throughput)


def test_throughput_needs_inputs(run: Run) -> None:
    code, _, err = run("throughput", "bench.py:plain")
    assert code == 2
    assert "no inputs that could be made larger" in err


def test_devices_without_a_gpu(run: Run) -> None:
    code, out, err = run("devices", "bench.py:single", "--size", "1", "--size", "64")
    assert (code, err) == (0, "")
    assert "64" in out


def test_usage(run: Run) -> None:
    for arguments in ((), ("bench.py:plain", "--compare", "a", "b"), ("--method", "all", "--compare", "a", "b")):
        if arguments:
            code, _, err = run(*arguments)
            assert code == 2
            assert "--help" in err
    code, _, err = run("--compare", "none.json", "none.json")
    assert code == 2
    assert "Cannot read none.json" in err


@pytest.mark.parametrize("name", ["latency", "throughput", "devices", "compare"])
def test_every_option_says_what_it_does(name: str) -> None:
    command = measure.commands[name]
    text = command.get_help(click.Context(command, info_name=name))
    assert "Exit codes:" in text
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help
            assert parameter.help.endswith((".", "]")), parameter.help  # a sentence; its default in brackets


def test_the_help_of_measure_loads_nothing_heavy() -> None:
    code = "import sys; from boundby.cli.main import main; main(['measure', '--help']); print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ, timeout=60
    )
    loaded = done.stdout.splitlines()[-1]
    for heavy in ("numpy", "torch", "matplotlib", "scipy", "rich.table"):
        assert f"'{heavy}'" not in loaded


def test_measuring_plain_python_imports_no_torch() -> None:
    code = "import sys, boundby.measure as m; m.latency(sorted, [1], budget_s=0.02); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
