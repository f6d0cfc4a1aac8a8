"""Predictions for a selection of calls, operations or regions: what the rules ask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.cli.main import main
from boundby.replay.build import build_graph
from boundby.replay.graph import Graph
from boundby.replay.predictor import Predictor, ReplayStep
from boundby.replay.removals import Faster, Without
from tests.replay.test_replay import US, launch
from tests.support.program import Program

SAMPLE = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"


def two_kinds_of_waits() -> Timeline:
    """Ten steps of two kernels with a wait after each: a short one and a long one."""
    program = Program()
    for step in range(10):
        base = step * 400
        launch(program, base, base + 8, base + 60)
        program.api((base + 6) * US, (base + 64) * US, "cudaStreamSynchronize")
        launch(program, base + 100, base + 108, base + 280)
        program.api((base + 106) * US, (base + 284) * US, "cudaDeviceSynchronize")
    return build_timeline(program.trace(), parse_window("gpu"))


def test_a_selection_of_waits_saves_its_part() -> None:
    timeline = two_kinds_of_waits()
    predictor = Predictor(timeline)
    calls, names = timeline.calls, np.array(timeline.trace.names)
    is_long = names[calls.name] == "cudaDeviceSynchronize"
    (measured,) = predictor.without(())
    (without_long,) = predictor.without(("sync",), predictor.scope(calls=is_long))
    (without_short,) = predictor.without(("sync",), predictor.scope(calls=(calls.kind == 2) & ~is_long))
    (without_all,) = predictor.without(("sync",))
    assert measured == (9 * 400 + 272) * US
    assert without_all <= without_long < without_short < measured
    assert predictor.without(("sync",), predictor.scope(calls=np.zeros(len(calls), bool))) == [measured]
    assert predictor.without(("sync",), predictor.scope(operations=np.ones(20, bool))) == [measured]


def test_a_selection_of_kernels() -> None:
    timeline = two_kinds_of_waits()
    predictor = Predictor(timeline)
    table = timeline.trace.operations
    is_long = table.end_ns - table.start_ns > 100 * US
    (measured,) = predictor.without(())
    # A wait follows every kernel: each of the ten long ones saves its own time.
    assert predictor.without(("gpu_compute",), predictor.scope(operations=is_long)) == [measured - 10 * 172 * US]
    assert predictor.windows(ReplayStep(Faster(is_long, 2.0), predictor.everywhere)) == [measured - 10 * 86 * US]
    assert predictor.windows(ReplayStep(Faster(is_long, 1.0), predictor.everywhere)) == [measured]
    nowhere = np.zeros(len(timeline.ownership.regions), bool)
    assert predictor.without(("gpu_compute",), predictor.scope(operations=is_long, regions=nowhere)) == [measured]


def test_the_interval_before_a_call_belongs_to_it() -> None:
    program = Program()
    for step in range(5):
        launch(program, step * 1000, step * 1000 + 8, step * 1000 + 20)
    timeline = build_timeline(program.trace(), parse_window("gpu"))
    predictor = Predictor(timeline)
    third = np.arange(5) == 2
    (measured,) = predictor.without(())
    (without,) = predictor.without(("cpu",), predictor.scope(calls=third))
    assert measured - without == pytest.approx(895 * US)


def test_one_graph_answers_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Verdicts, savings, what-if questions, next bounds and the page ask one predictor of one graph."""
    built = []

    def counted(timeline: Timeline) -> Graph:
        built.append(timeline)
        return build_graph(timeline)

    monkeypatch.setattr("boundby.replay.predictor.build_graph", counted)
    assert main(["what-if", str(SAMPLE)]) == 0
    assert len(built) == 1
    assert main(["analyze", str(SAMPLE), "-o", str(tmp_path / "page.html")]) == 0
    assert len(built) == 2


def test_nothing_is_replayed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = Predictor(two_kinds_of_waits())
    first = predictor.without(("cpu",), first=("sync",))
    monkeypatch.setattr("boundby.replay.predictor.replay_spans", None)
    assert predictor.without(("cpu",), first=("sync",)) == first


def test_operations_of_one_stream_at_once_make_no_window_longer() -> None:
    """In damaged traces: what such a stream holds one after the other would be longer than was measured."""
    program = Program()
    for step in range(5):
        launch(program, step * 10, step * 10 + 8, 5_000 + step)
    program.api(100 * US, 5_100 * US, "cudaStreamSynchronize")
    launch(program, 5_200, 5_210, 5_300)
    predictor = Predictor(build_timeline(program.trace(), parse_window("gpu")))
    assert predictor.without(("sync",)) <= predictor.measured_ns


def test_of_operations_that_the_window_cuts_their_part_inside_counts() -> None:
    program = Program()
    launch(program, 0, 10, 1_000)
    launch(program, 20, 1_000, 1_400)
    predictor = Predictor(build_timeline(program.trace(), parse_window("400000ns:1300000ns")))
    assert predictor.measured_ns == [900 * US]
    assert predictor.rest_ns == [0]
    everything = np.ones(2, bool)
    assert predictor.without(("sync",)) == [900 * US]
    assert predictor.windows(ReplayStep(Faster(everything, 2.0), predictor.everywhere)) == [450 * US]
    assert predictor.without(("gpu_compute",))[0] <= 1 * US
    assert not predictor.broken


def test_what_is_gone_is_not_taken_away_again() -> None:
    predictor = Predictor(two_kinds_of_waits())
    once = predictor.without(("cpu", "cuda_api"))
    for again in (("cpu",), ("sync", "cpu", "cuda_api")):
        left = predictor.without(tuple({*again} | {"cpu", "cuda_api"}))
        assert predictor.windows(
            ReplayStep(Without(("cpu", "cuda_api")), predictor.everywhere),
            ReplayStep(Without(again), predictor.everywhere),
        ) == (once if again == ("cpu",) else left)
    assert not predictor.broken
