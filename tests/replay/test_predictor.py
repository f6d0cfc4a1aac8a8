"""Predictions for a selection of calls, operations or regions: what the rules ask."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.replay import Predictor, removals
from boundby.stats.figures import measure
from tests.replay.test_replay import US, launch
from tests.support.program import Program


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
    (without_long,) = predictor.without(("sync",), calls=is_long)
    (without_short,) = predictor.without(("sync",), calls=(calls.kind == 2) & ~is_long)
    (without_all,) = predictor.without(("sync",))
    assert measured == (9 * 400 + 272) * US
    assert without_all <= without_long < without_short < measured
    assert predictor.without(("sync",), calls=np.zeros(len(calls), bool)) == [measured]
    assert predictor.without(("sync",), operations=np.ones(20, bool)) == [measured]


def test_a_selection_of_kernels() -> None:
    timeline = two_kinds_of_waits()
    predictor = Predictor(timeline)
    table = timeline.trace.operations
    is_long = table.end_ns - table.start_ns > 100 * US
    (measured,) = predictor.without(())
    # A wait follows every kernel: each of the ten long ones saves its own time.
    assert predictor.without(("gpu_compute",), operations=is_long) == [measured - 10 * 172 * US]
    assert predictor.faster(is_long, 2.0) == [measured - 10 * 86 * US]
    assert predictor.faster(is_long, 1.0) == [measured]
    nowhere = np.zeros(len(timeline.ownership.regions), bool)
    assert predictor.without(("gpu_compute",), operations=is_long, regions=nowhere) == [measured]


def test_the_interval_before_a_call_belongs_to_it() -> None:
    program = Program()
    for step in range(5):
        launch(program, step * 1000, step * 1000 + 8, step * 1000 + 20)
    timeline = build_timeline(program.trace(), parse_window("gpu"))
    predictor = Predictor(timeline)
    third = np.arange(5) == 2
    (measured,) = predictor.without(())
    (without,) = predictor.without(("cpu",), calls=third)
    assert measured - without == pytest.approx(895 * US)


def test_a_predictor_can_be_shared() -> None:
    timeline = two_kinds_of_waits()
    figures = measure(timeline)
    assert removals(timeline, figures.inclusive, Predictor(timeline)) == removals(timeline, figures.inclusive)
