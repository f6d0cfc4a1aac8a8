"""``boundby.trace_handler`` in a real loop of torch: the same losses, the same verdict, and no harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import boundby
from boundby.readers import holds_trace

PROGRAM = Path(__file__).parent / "programs" / "handled_loop.py"
Told = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("handled")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)], capture_output=True, text=True, check=False, env=environment
    )
    assert answer.returncode == 0, answer.stderr
    lines = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
    return {line.pop("name"): line for line in lines}


def test_losses_and_random_state_are_the_same_to_the_bit(told: Told) -> None:
    bare = told["bare"]
    assert len(set(bare["losses"])) > 1
    for name in ("handled", "silent"):
        assert told[name]["losses"] == bare["losses"]
        assert told[name]["state"] == bare["state"]


def test_it_prints_what_boundby_says_of_the_file_it_wrote(told: Told) -> None:
    handled = told["handled"]
    folder = Path(handled["path"]).parent
    first = min(path for path in folder.iterdir() if path.suffix == ".json")
    assert holds_trace(first)
    report = boundby.analyze(first)
    assert handled["printed"].startswith(str(report))
    last = boundby.analyze(handled["path"])
    assert handled["bound"] == last.threads[0].verdict.bound
    assert "ProfilerStep#*" in handled["printed"]
    assert "Content-Security-Policy" in Path(handled["page"]).read_text()


def test_after_a_second_cycle_it_says_what_changed_since_the_first(told: Told) -> None:
    _, found, rest = told["handled"]["printed"].partition("Since the first cycle: ")
    assert found
    assert rest.startswith("The program ")
    assert rest.count("s outside of the recorded steps (show=False: none)") == 1


def test_it_only_writes_if_asked_to(told: Told) -> None:
    silent = told["silent"]
    assert silent["printed"] == ""
    assert len(silent["files"]) == 2
    assert all(name.startswith("worker.") and name.endswith(".pt.trace.json.gz") for name in silent["files"])


def test_whatever_goes_wrong_the_loop_goes_on(told: Told) -> None:
    bare = told["bare"]
    ways = {name: way for name, way in told.items() if "said" in way}
    assert len(ways) >= 10
    for name, way in ways.items():
        assert way["losses"] == bare["losses"], name
        assert way["state"] == bare["state"], name
        said = [line for line in way["said"].splitlines() if line.startswith("boundby: ")]
        assert len(said) == 1, (name, way["said"])
        assert "Traceback" not in way["said"]
        assert not any(left.startswith(".") for left in way["left"]), (name, way["left"])
    assert "Press Ctrl-C again" in told["Ctrl-C while it analyses"]["said"]
    assert "MB are free" in told["the disk is full"]["said"]
    assert "boundby" in told["the trace is broken"]["said"]


def test_a_training_imports_no_analysis(told: Told) -> None:
    """All but what reads the Report that the program asked for runs in another process."""
    assert not {"boundby.api", "boundby.claims", "boundby.rules", "boundby.render"} & {*told["imports"]["modules"]}


def test_several_ranks_in_one_folder_end_in_the_answer_of_the_job(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = Path(__file__).parent / "programs" / "ranks.py"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(
        [*launcher, str(program), str(tmp_path)], capture_output=True, text=True, check=False, env=environment
    )
    assert answer.returncode == 0, answer.stderr
    traces = sorted(path.name.partition(".")[0] for path in tmp_path.glob("*.pt.trace.json"))
    assert traces == ["rank0", "rank1"]
    assert len([*tmp_path.glob("*.html")]) == 1  # rank 0 alone tells
    assert answer.stdout.count("he job of 2 ranks") == 1
    if "match no call of another rank" not in answer.stdout:  # of three collectives, on a busy machine, none may be
        assert "rank 1" in answer.stdout
