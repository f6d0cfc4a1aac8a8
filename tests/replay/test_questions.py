"""Questions in the words of the command line, and the command itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundby.api import Analysis, what_if
from boundby.attribution.timeline import build_timeline
from boundby.attribution.windows import parse_window
from boundby.cli.main import main
from boundby.model.causes import SCENARIO_OF_CAUSE
from boundby.model.errors import SelectionError
from boundby.readers import read_trace
from boundby.replay.predictor import Predictor
from boundby.replay.questions import answer
from tests.replay.test_replay import steps_with_sync
from tests.support.traces import trace_path

SAMPLE = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"


def test_factors_and_combinations() -> None:
    predictor = Predictor(build_timeline(steps_with_sync().trace(), parse_window("gpu")))

    def predicted(scenario: str) -> int:
        (found,) = answer(predictor, scenario)
        assert 0 <= found.ends_ns[0] <= found.predicted_ns <= found.ends_ns[1] <= found.baseline_ns
        return found.predicted_ns

    measured = predictor.measured_ns[0]
    assert predicted("infinite_gpu") < predicted("kernels=2") < measured
    assert predicted("kernel:kern=2") == predicted("kernels=2")
    assert predicted("no_sync+kernels=2") <= predicted("no_sync")
    assert predicted("copies_free") == measured


def test_what_is_gone_is_gone_in_any_order_and_once() -> None:
    trace = read_trace(trace_path("openacc_mpi_4_processes_4_gpus.sqlite"))
    predictor = Predictor(build_timeline(trace, parse_window("gpu")))
    once, *others = (
        [(found.low_ns, found.predicted_ns, found.high_ns) for found in answer(predictor, scenario)]
        for scenario in (
            "no_sync+no_launch_overhead",
            "no_launch_overhead+no_sync",
            "no_launch_overhead+no_sync+no_launch_overhead",
        )
    )
    assert all(other == once for other in others)


@pytest.mark.parametrize("scenario", ["", "nothing", "kernels=0", "kernel:absent=2"])
def test_bad_questions_say_what_is_known(scenario: str) -> None:
    predictor = Predictor(build_timeline(steps_with_sync().trace(), parse_window("gpu")))
    with pytest.raises(SelectionError) as caught:
        answer(predictor, scenario)
    assert caught.value.next_step


@pytest.mark.parametrize("scenario", ["kernels=0", "cpu=-2", "no_sync+copies=0.0"])
def test_a_factor_is_above_zero(scenario: str) -> None:
    predictor = Predictor(build_timeline(steps_with_sync().trace(), parse_window("gpu")))
    with pytest.raises(SelectionError, match=r"K of '.*' must be above 0"):
        answer(predictor, scenario)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", str(SAMPLE), "-s", "no_sync", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["unreliable"] is None
    assert found["answers"][0]["predicted_ns"] < found["answers"][0]["baseline_ns"]
    assert main(["what-if", str(SAMPLE), "-s", "no_sync"]) == 0
    assert "no_sync (without syncs)" in capsys.readouterr().out


def test_a_range_wider_than_what_is_saved_is_not_sure() -> None:
    # One of two ranks: its collectives may have waited for the other, so faster kernels may save nothing or 5 %.
    timeline = build_timeline(read_trace(trace_path("kineto/a100_two_ranks_nccl_rank0.json.gz")), parse_window("gpu"))
    predictor = Predictor(timeline)
    for scenario in ("comm_free", "kernels=2"):
        (found,) = answer(predictor, scenario)
        assert found.ends_ns[1] - found.ends_ns[0] > 0.02 * found.baseline_ns > found.saved_ns
        assert found.confidence == "medium"


def test_rows_can_be_few_and_sorted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", str(SAMPLE), "--top", "2", "--sort", "max", "--width", "120"]) == 0
    wide = capsys.readouterr().out.splitlines()
    assert len(wide) == 3
    assert "NOW" in wide[0]
    assert main(["what-if", str(SAMPLE), "--top", "2", "--sort", "max", "--width", "90"]) == 0
    narrow = capsys.readouterr().out.splitlines()
    assert max(map(len, narrow)) <= 90
    assert narrow[-1].startswith("Now: ")


@pytest.mark.parametrize("name", ["ddp_clock_ahead_rows_lost.sqlite", "pair_input_2_workers.sqlite"])
def test_a_named_scenario_has_one_answer(name: str) -> None:
    """In the report, and when asked for: range and confidence, too, where records are missing."""
    analysis = Analysis(trace_path(name))
    for item in analysis.what_if:
        (found,) = analysis.predict(item.scenario)
        told = item.predicted_ns, item.low_ns, item.high_ns, item.confidence
        assert told == (found.predicted_ns, found.low_ns, found.high_ns, found.confidence)
    (device,) = analysis.devices
    left = {item.scenario: item.predicted_ns for item in analysis.what_if}
    assert device.verdict.without_ns in (None, left.get(SCENARIO_OF_CAUSE.get(device.verdict.bound, "")))


def test_a_replay_that_cannot_be_trusted_predicts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    path = trace_path("kineto/h100_qwen_chat.json.gz")
    analysis = Analysis(path)
    why = "30 % of the operations have no known launching call"
    assert (analysis.report.unreliable, analysis.report.what_if, analysis.predict("kernels=2")) == (why, (), [])
    with pytest.raises(SelectionError):
        analysis.predict("nothing")
    assert main(["what-if", str(path), "--width", "200"]) == 0
    assert capsys.readouterr().out.startswith(f"No predictions: {why}")
    for asked in (["--full"], ["--format", "markdown"], ["--format", "brief"]):
        assert main(["analyze", str(path), "-q", "--width", "200", *asked]) == 0
        assert "No predictions: " in capsys.readouterr().out
    verdicts = [device.verdict for device in analysis.devices] + [region.verdict for region in analysis.regions]
    for verdict in verdicts:
        is_of_device = verdict.bound.startswith("gpu_")
        assert not is_of_device or (verdict.saving_ns is None and verdict.confidence != "high")


def test_what_breaks_a_law_in_one_replay_is_told_of_all() -> None:
    path = trace_path("kineto/mi300_sglang_decode_graphs.json.gz")
    answers, unreliable = what_if(path, ["infinite_gpu"], window="0.4634s:0.4738s")
    assert (answers, unreliable) == ([], Analysis(path, window="0.4634s:0.4738s").report.unreliable)
    assert "longer than measured" in (unreliable or "")
