"""What a window holds before its first and after its last operation is replayed, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.laws import broken
from benchmarks.simulated.generate import generate

from boundby.api import Analysis
from boundby.attribution.timeline import build_timeline
from boundby.attribution.windows import parse_window
from boundby.model.causes import SCENARIOS, Cause
from boundby.replay.predictor import Predictor, ReplayStep
from boundby.replay.removals import FasterHost
from boundby.simulate.nsys_export import to_export
from tests.replay.test_replay import US, launch
from tests.support.program import Program
from tests.support.traces import trace_path

MS = 1_000_000


def serial() -> Program:
    """A program that loads for 30 ms, sleeps for 20, runs ten kernels of 1 ms with a wait after each, computes for 10
    ms and ends: the host does one thing after the other."""
    program = Program()
    program.api(0, 1 * US, "cudaGetDeviceCount")
    program.push(10 * US, 30 * MS, "load")
    program.api(30 * MS, 30 * MS + US, "cudaGetDeviceCount")
    program.sleep(30 * MS + US, 50 * MS)
    for step in range(10):
        at = 50_000 + step * 1_100
        launch(program, at, at + 10, at + 1_010)
        program.api((at + 6) * US, (at + 1_015) * US, "cudaDeviceSynchronize")
    program.api(71 * MS, 71 * MS + US, "cudaGetDeviceCount")
    return program


def predictor_of(window: str) -> Predictor:
    return Predictor(build_timeline(serial().trace(), parse_window(window)))


def account_of(predictor: Predictor) -> dict[str, int]:
    [device] = predictor.devices
    return {cause.key: int(device.segments.by_cause()[cause]) for cause in Cause}


def test_a_thread_that_first_calls_later_slept_since_the_gap_began() -> None:
    """Of what ran at the beginning of the trace the launch is not on record; then the program sleeps for 40 ms."""
    program = Program()
    program.kernel(0, 1 * MS, 0)
    program.sleep(2 * MS, 42 * MS)
    launch(program, 42_010, 42_020, 43_020)
    predictor = Predictor(build_timeline(program.trace(), parse_window("gpu")))
    [measured] = predictor.measured_ns
    assert predictor.without(("host_blocked",)) == pytest.approx([measured - 40 * MS], abs=20 * US)


def test_what_the_host_does_around_all_work_is_removed() -> None:
    predictor = predictor_of("all")
    [measured], time = predictor.measured_ns, account_of(predictor)
    assert measured == 71 * MS + US
    assert time["cpu"] > 38.9 * MS
    # The account lays 0.9 ms after the last kernel to the wait for it; the host computes then, whoever is to blame.
    for key, ns in (("cpu", 29_899 * US + 9_985 * US), ("host_blocked", time["host_blocked"])):
        assert predictor.without((key,)) == pytest.approx([measured - ns], abs=2 * US)
    [left] = predictor.without(SCENARIOS["infinite_host"].causes)
    assert 10 * MS <= left <= 10.2 * MS
    [half] = predictor.windows(ReplayStep(FasterHost(2.0), predictor.everywhere))
    assert half == pytest.approx(measured - (29_899 * US + 9_985 * US) / 2, abs=2 * US)


def test_in_a_region_its_part_is() -> None:
    predictor = predictor_of("all")
    regions = predictor.timeline.ownership.regions
    [load] = [number for number in range(len(regions)) if regions.name[number] == "load"]
    [left] = predictor.without(("cpu",), predictor.scope(regions=regions.subtree(load)))
    assert predictor.measured_ns[0] - left == pytest.approx(30 * MS, abs=150 * US)


def test_what_comes_before_a_call_belongs_to_it() -> None:
    predictor = predictor_of("all")
    calls = predictor.timeline.calls
    for row, saved_ns in ((1, 30 * MS), (len(calls) - 1, 10 * MS), (4, 0)):
        [left] = predictor.without(("cpu",), predictor.scope(calls=np.arange(len(calls)) == row))
        assert predictor.measured_ns[0] - left == pytest.approx(saved_ns, abs=200 * US)
    [left] = predictor.without(("cpu",), predictor.scope(operations=np.ones(10, bool)))
    assert left == predictor.measured_ns[0]


@pytest.mark.parametrize("begin_ms", [31, 40, 49])
def test_where_a_sleep_is_cut_changes_nothing(begin_ms: int) -> None:
    predictor = predictor_of(f"{begin_ms}ms:61ms")
    [left] = predictor.without(("host_blocked",))
    assert left == 11 * MS


@pytest.mark.parametrize(
    ("window", "bound", "saving_us"),
    [
        ("all", "cpu", 30_791),  # once nothing waits, what it computes in the end overlaps with its kernels
        ("31ms:61ms", "host_blocked", 19_000),
        ("32ms:48ms", "host_blocked", 16_000),
    ],
)
def test_the_verdict_is_of_the_window(window: str, bound: str, saving_us: int) -> None:
    analysis = Analysis(serial().trace(), window=window)
    [device] = analysis.devices
    assert device.verdict.bound == bound
    assert device.verdict.saving_ns == pytest.approx(saving_us * US, abs=2 * US)


def test_one_operation_in_a_long_gap_makes_no_verdict_unsure() -> None:
    analysis = Analysis(serial().trace(), window="2ms:29ms")
    assert analysis.devices[0].verdict.bound == "cpu"
    analysis = Analysis(serial().trace(), window="45ms:50500us")
    assert (analysis.devices[0].verdict.bound, analysis.devices[0].verdict.confidence) == ("host_blocked", "high")
    analysis = Analysis(serial().trace(), window="50ms:50500us")
    assert (analysis.devices[0].verdict.bound, analysis.devices[0].verdict.confidence) == ("gpu_compute", "high")


@pytest.mark.parametrize("seed", range(900_000, 900_006))
def test_laws_hold_in_parts_of_simulated_programs(seed: int, tmp_path: Path) -> None:
    path = to_export(generate(seed).run()).write(tmp_path / "made.sqlite", "2023")
    trace = Analysis(path).trace
    low, high = trace.span_ns
    third = (high - low) // 3
    for window in ("all", f"{low + third}ns:{high - third}ns", f"{low - third}ns:{high - third // 2}ns"):
        assert list(broken(Analysis(trace, window=window))) == []


@pytest.mark.parametrize("name", ["cpp_vector_add", "openmp_heat_after"])
def test_laws_hold_in_whole_traces(name: str) -> None:
    analysis = Analysis(trace_path(f"{name}.sqlite"), window="all")
    assert list(broken(analysis)) == []
    [device] = analysis.devices
    assert device.verdict.bound == {"cpp_vector_add": "init"}.get(name, "cpu")


def test_the_end_of_the_last_step_follows_what_the_host_does() -> None:
    """Each step launches 2 ms of work, waits for it and computes for 2 ms: without the waits the two overlap."""
    program = Program()
    for step in range(4):
        at = step * 4_200
        program.push((at + 10) * US, (at + 4_150) * US, f"step {step}")
        launch(program, at + 20, at + 30, at + 2_030)
        program.api((at + 30) * US, (at + 2_035) * US, "cudaDeviceSynchronize")
    predictor = Predictor(build_timeline(program.trace(), parse_window("gpu")))
    assert predictor.measured_ns == [(3 * 4_200 + 4_140) * US]
    [left] = predictor.without(("sync",))
    assert left == pytest.approx((4 * 4_200 - 4 * 2_005 - 60) * US, abs=200 * US)
