"""Replay: unchanged it gives the measured times back; changed it gives what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from boundby.attribution.timeline import build_timeline
from boundby.attribution.windows import parse_window
from boundby.readers import read_trace
from boundby.replay.counterfactuals import counterfactuals
from boundby.replay.engine import replay
from boundby.replay.predictor import Predictor
from boundby.stats.figures import measure
from boundby.trace.tables import Direction, MemoryKind
from tests.attribution.strategies import host_sequences
from tests.support.program import Program
from tests.support.traces import analysis_of, trace_names, trace_path

US = 1000


def predictor_of(program: Program) -> Predictor:
    return Predictor(build_timeline(program.trace(), parse_window("gpu")))


def launch(program: Program, at: int, start: int, end: int, thread: int = 0) -> None:
    """A launch call of 5 us at ``at`` and its kernel, in microseconds."""
    program.kernel(start * US, end * US, program.api(at * US, (at + 5) * US, "cudaLaunchKernel", thread))


@pytest.mark.parametrize("name", [name for name in trace_names() if "partial" not in name])
def test_an_unchanged_replay_is_the_trace(name: str) -> None:
    analysis = analysis_of(name)
    if not analysis.timeline.devices:
        pytest.skip("no GPU work to replay")
    predictor = analysis.predictor
    links, costs = predictor.graph.links, predictor.graph.costs
    start, end = replay(predictor.graph, costs)
    assert (start == links.start_ns).all()
    assert (end == links.start_ns + costs.duration_ns).all()


@settings(max_examples=80, deadline=None)
@given(host_sequences(threads=2, devices=2, most=10))
def test_an_unchanged_replay_of_anything_is_that_thing(program: Program) -> None:
    predictor = predictor_of(program)
    start, _ = replay(predictor.graph, predictor.graph.costs)
    # Operations that start before their launch (never on a real clock) aside, nothing moves.
    assert (start == predictor.graph.links.start_ns).all()


def steps_with_sync(count: int = 10) -> Program:
    """Steps of 100 us: launch at 0, kernel from 8 to 60, sync until 64, own code until 100 (no dispatch beyond)."""
    program = Program()
    for step in range(count):
        base = step * 300
        launch(program, base, base + 8, base + 60)
        program.api((base + 6) * US, (base + 64) * US, "cudaStreamSynchronize")
    return program


def test_without_syncs_the_host_runs_ahead() -> None:
    program = steps_with_sync()
    measured, without = (predictor_of(program).without(causes)[0] for causes in ((), ("sync",)))
    assert measured == (9 * 300 + 52) * US
    # Each step of the host is then 5 + 1 + 236 us long (launch, interval, own code), longer than the kernel's 52.
    assert without == (9 * (5 + 1 + 236) + 52) * US


def test_an_infinite_device_leaves_the_host() -> None:
    without = predictor_of(steps_with_sync()).without(("gpu_compute",), first=("sync",))[0]
    assert without == 9 * 242 * US


def test_without_copies_blocking_calls_are_free() -> None:
    program = Program()
    for step in range(10):
        base = step * 200
        launch(program, base, base + 8, base + 20)
        call = program.api((base + 6) * US, (base + 190) * US, "cudaMemcpy_v3020")
        program.copy((base + 21) * US, (base + 185) * US, call, Direction.DTOH, MemoryKind.PAGEABLE)
    without = predictor_of(program).without(("gpu_copy",))[0]
    assert without == pytest.approx((9 * (5 + 1 + 10) + 12) * US, abs=30 * US)


def test_a_region_saves_its_own() -> None:
    program = Program()
    for step in range(10):
        base = step * 1000
        program.push(base * US, (base + 400) * US, "a")
        program.push((base + 400) * US, (base + 1000) * US, "b")
        launch(program, base, base + 8, base + 20)
        launch(program, base + 400, base + 408, base + 420)
    timeline = build_timeline(program.trace(), parse_window("gpu"))
    found = counterfactuals(Predictor(timeline), measure(timeline).inclusive)
    regions = timeline.ownership.regions
    saved = {regions.path(region): savings["cpu"] // US for region, savings in found.region.items()}
    # Own code beyond dispatch: 295 us after the first launch of a step, 495 us after the second (9 of them count).
    assert saved[("a",)] == pytest.approx(10 * 295, abs=60)
    assert saved[("b",)] == pytest.approx(9 * 495, abs=60)
    assert found.unreliable is None


def test_the_real_pair_is_predicted() -> None:
    def read(stage: str) -> tuple[int, int, int]:
        timeline = build_timeline(read_trace(trace_path(f"openmp_heat_{stage}.sqlite")), parse_window("gpu"))
        copies = timeline.trace.operations.kind >= 2
        table = timeline.trace.operations
        window = timeline.devices[0].high_ns - timeline.devices[0].low_ns
        return window, int((table.end_ns - table.start_ns)[copies].sum()), Predictor(timeline).without(("gpu_copy",))[0]

    _, _, without_copies = read("before")
    after, copies_left, _ = read("after")
    assert without_copies + copies_left == pytest.approx(after, rel=0.10)


def test_no_calls_no_predictions() -> None:
    program = Program()
    program.kernel(0, 10 * US, 0)
    program.kernel(20 * US, 30 * US, 0)
    timeline = build_timeline(program.trace(), parse_window("gpu"))
    assert (
        counterfactuals(Predictor(timeline), np.zeros((1, 11), np.int64)).unreliable
        == "CUDA API calls were not captured"
    )
