"""What a thread did is decided once: an interval of the replay's graph has the cause that the account gives it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.model.causes import Cause
from boundby.replay.build import build_graph
from boundby.replay.host_nodes import Disagreement, find_disagreements
from boundby.replay.predictor import Predictor
from tests.attribution.strategies import host_sequences
from tests.replay.test_replay import US, launch
from tests.support.program import Program
from tests.support.traces import ABSENT, analysis_of, trace_names, traces_folder

UNREADABLE = "oddities/partial_export.sqlite"


def names() -> list[str]:
    """Every real trace, of both kinds."""
    folder = traces_folder()
    kineto = sorted(path.relative_to(folder).as_posix() for path in folder.glob("kineto/*.json.gz")) if folder else []
    return [name for name in [*trace_names(), *kineto] if name != UNREADABLE]


@pytest.mark.parametrize("name", names())
def test_on_real_traces(name: str) -> None:
    if name == ABSENT:
        pytest.skip("no real traces to test on")
    analysis = analysis_of(name)
    if analysis.timeline.devices and len(analysis.timeline.calls):
        assert analysis.predictor.graph.disagreements == ()


@settings(max_examples=40, deadline=None)
@given(host_sequences(threads=3, devices=2, processes=2, most=12))
def test_on_random_programs(program: Program) -> None:
    timeline = build_timeline(program.trace(), parse_window("gpu"))
    if len(timeline.calls):
        assert build_graph(timeline).disagreements == ()


def two_kernels() -> Timeline:
    """Two kernels, the second one launched 300 us after the first."""
    program = Program()
    launch(program, 0, 8, 60)
    launch(program, 300, 308, 360)
    return build_timeline(program.trace(), parse_window("gpu"))


def test_a_piece_of_another_cause_is_found() -> None:
    timeline = two_kernels()
    [thread] = np.unique(timeline.calls.thread).tolist()
    end = int(timeline.calls.end_ns[0])
    length = int(timeline.calls.start_ns[1]) - end
    low = np.array([0, end], np.int64)
    piece = np.array([1], np.int32), np.array([length], np.int32), np.array([Cause.HOST_BLOCKED], np.int8)
    [found] = find_disagreements(timeline, np.array([thread, thread]), low, *piece)
    assert (found.thread, found.account, found.replay) == (thread, Cause.CPU, Cause.HOST_BLOCKED)
    assert found.ns == timeline.devices[0].segments.by_cause()[Cause.CPU] > 0


def test_predictions_are_withheld_where_the_two_disagree() -> None:
    timeline = two_kernels()
    assert Predictor(timeline).unreliable is None
    predictor = Predictor(timeline)
    differing = Disagreement(0, Cause.HOST_BLOCKED, Cause.CPU, 20 * US)
    vars(predictor)["graph"] = replace(predictor.graph, disagreements=(differing,))
    assert predictor.unreliable is not None
    assert "than the account" in predictor.unreliable
