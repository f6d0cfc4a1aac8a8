"""Iterations and phases found in launches: the truth is known, or annotated and then stripped."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import boundby
from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.readers import read_trace
from boundby.structure.found import FOUND_DOMAIN
from boundby.structure.loop_detection import DetectedLoop, find_loop
from boundby.structure.steps import find_changes
from boundby.trace.tables import Ranges, Trace
from tests.support.invariants import check_invariants
from tests.support.program import Program
from tests.support.traces import trace_path

BODY = 60
SEEDS = range(8)


def body(random: np.random.Generator, kinds: int = 20) -> list[int]:
    return [int(token) for token in random.integers(0, kinds, BODY)]


def loop_of(tokens: list[int], *, syncs: bool = False) -> DetectedLoop | None:
    count = len(tokens)
    before = np.arange(count) if syncs else np.zeros(count, np.int64)
    return find_loop(np.array(tokens, np.int64), np.arange(count) * 1000, before)


def check(prefix: list[int], iterations: list[list[int]], suffix: list[int], *, within: int = 1) -> None:
    """The count is exact and iterations begin where they do, up to ``within`` launches (1 % of them: 3)."""
    begins, tokens = [], list(prefix)
    for iteration in iterations:
        begins.append(len(tokens))
        tokens += iteration
    found = loop_of(tokens + suffix)
    assert found is not None
    assert len(found) == len(begins)
    off = np.abs(found.begin - begins)
    assert (off <= within).mean() >= 0.99
    assert off.max() <= within + 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plain_loop_between_other_work(seed: int) -> None:
    random = np.random.default_rng(seed)
    check(random.integers(0, 40, 200).tolist(), [body(random)] * 20, random.integers(20, 40, 30).tolist())


def test_few_and_short_iterations() -> None:
    check([], [[1, 2, 3, 4]] * 6, [])
    check([], [[0, 0, 1, 2, 2]] * 50, [])
    check([], [body(np.random.default_rng(1))] * 3, [])


@pytest.mark.parametrize("seed", SEEDS)
def test_launches_that_come_and_go(seed: int) -> None:
    random = np.random.default_rng(seed)
    usual = body(random)
    less = [[token for token in usual if random.random() > 0.004] for _ in range(30)]
    less[0] = usual  # a first iteration that differs where it begins is not told from what came before
    check(random.integers(40, 60, 30).tolist(), less, [], within=2)
    more = [[each for token in usual for each in ([token, 99] if random.random() < 0.004 else [token])] for _ in less]
    check(random.integers(40, 60, 30).tolist(), more, [], within=2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_warm_up_with_more_launches(seed: int) -> None:
    random = np.random.default_rng(seed)
    usual = body(random)
    warm = [*usual[:20], *[30, 31, 32] * 20, *usual[20:40], 50, 51, *usual[40:]]
    check(random.integers(60, 90, 100).tolist(), [warm] + [usual] * 20, [])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_outer_of_nested_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    layer = random.integers(0, 8, 14).tolist()
    check([], [[20, 21, *layer * 12, 22, 23, 24]] * 10, [])


def test_inner_loops_of_varying_length() -> None:
    random = np.random.default_rng(3)
    layer = random.integers(0, 8, 14).tolist()
    check([5], [[20, 21, *layer * int(random.integers(4, 9)), 22, 23, 24] for _ in range(20)], [])


def test_a_log_line_now_and_then_is_no_outer_loop() -> None:
    usual = body(np.random.default_rng(4))
    check([], [[*usual, 99] if step % 5 == 4 else usual for step in range(50)], [])


@pytest.mark.parametrize(("count", "kinds"), [(50, 2), (50, 5), (50, 100), (1000, 2), (1000, 100), (3000, 5)])
def test_aperiodic_launches_have_no_iterations(kinds: int, count: int) -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        assert loop_of(random.integers(0, kinds, count).tolist()) is None
        assert loop_of((np.cumsum(random.integers(0, 3, count)) % kinds).tolist()) is None
        assert loop_of((random.random(count) < 0.1).astype(int).tolist()) is None


def test_one_kernel_over_and_over_is_a_loop_only_with_a_wait_each_time() -> None:
    assert loop_of([1] * 100) is None
    found = loop_of([1] * 100, syncs=True)
    assert found is not None
    assert len(found) == 100


def test_a_capture_that_starts_in_the_midst_turns_to_where_the_host_pauses() -> None:
    usual = body(np.random.default_rng(5))
    tokens = np.array(usual[25:] + usual * 10, np.int64)
    start = np.arange(len(tokens)) * 1000
    begins = len(usual[25:]) + BODY * np.arange(10)
    for begin in begins:
        start[begin:] += 20_000
    found = find_loop(tokens, start, np.zeros(len(tokens), np.int64))
    assert found is not None
    assert found.begin.tolist() == begins.tolist()


def test_phases_are_large_lasting_changes() -> None:
    random = np.random.default_rng(6)
    mixed = random.integers(0, 5, 1000)
    assert find_changes(mixed, np.arange(1000) * 1000) == []
    other = np.concatenate((mixed[:500], mixed[:500] + 10))
    assert find_changes(other, np.arange(1000) * 1000) == [pytest.approx(500, abs=16)]
    slower = np.cumsum(np.where(np.arange(1000) < 500, 1000, 20_000))
    assert find_changes(mixed, slower) == [pytest.approx(500, abs=16)]
    assert find_changes(mixed[:20], np.arange(20)) == []


def program(steps: int = 12, *, annotated: bool = False) -> Program:
    """Steps of five kernels, a wait after each."""
    built = Program()
    now = 0
    for step in range(steps):
        if annotated:
            built.push(now, now + 200_000, f"step {step}")
        for kernel in range(5):
            call = built.api(now, now + 5_000, "cudaLaunchKernel")
            built.kernel(now + 8_000, now + 20_000, call, f"kernel_{kernel}")
            now += 25_000
        built.api(now, now + 10_000, "cudaStreamSynchronize")
        now += 75_000
    return built


def timeline_of(trace: Trace) -> Timeline:
    return build_timeline(trace, parse_window("gpu"), find=True)


def found_regions(timeline: Timeline) -> dict[str, int]:
    regions = timeline.ownership.regions
    return {
        "/".join(regions.path(region)): int((regions.of_range == region).sum())
        for region in range(1, len(regions))
        if regions.domain[region] == FOUND_DOMAIN
    }


def test_found_iterations_are_ranges_that_own_their_time() -> None:
    timeline = timeline_of(program().trace())
    assert found_regions(timeline) == {"iteration": 12}
    ranges = timeline.trace.ranges
    assert ranges.start_ns.tolist() == [200_000 * step for step in range(12)]
    assert ranges.end_ns[:-1].tolist() == ranges.start_ns[1:].tolist()
    assert int(ranges.end_ns[-1]) == 11 * 200_000 + 135_000  # its wait belongs to the last one
    device = timeline.devices[0]
    assert (device.segments.region == 1).all()


def test_annotated_programs_are_left_alone() -> None:
    trace = program(annotated=True).trace()
    assert found_regions(timeline_of(trace)) == {}
    assert found_regions(build_timeline(program().trace(), parse_window("gpu"))) == {}  # unless asked


def test_windows_and_steps_work_on_found_iterations() -> None:
    whole = timeline_of(program().trace())
    window = build_timeline(program().trace(), parse_window("nvtx:iteration", 2), find=True)
    assert window.total_ns < whole.total_ns
    assert int(window.counted_ranges.sum()) == 10


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openmp_heat_before.sqlite", {"iteration": 50}),
        ("openmp_heat_after.sqlite", {"phase A": 1, "phase B": 1, "phase C": 1, "phase B/iteration": 50}),
        ("transformer_2_7b_cuda_graphs.sqlite", {"iteration": 10}),
        ("oddities/tiny_old.sqlite", {"iteration": 51}),
        ("gpu_metrics_2022_4.sqlite", {}),
        ("concurrent_streams_2022_1.sqlite", {}),  # annotated
    ],
)
def test_real_traces(name: str, expected: dict[str, int]) -> None:
    assert found_regions(timeline_of(read_trace(trace_path(name)))) == expected


@pytest.mark.parametrize(
    ("name", "pattern", "iterations", "within"),
    [
        ("pytorch_a100_all_cpu_tables.sqlite", "Batch", "iteration", 0),
        ("transformer_mixed_sync_codes.sqlite", "Warm-up Step", "iteration A", 0),
        # The loop copies its input before the annotated part of each step begins: two launches.
        ("transformer_mixed_sync_codes.sqlite", "Forward", "iteration B", 2),
        # The capture begins within a step: 26 whole ones follow.
        ("pytorch_ddp_rank_clock_skew.sqlite", "step", "iteration", 0),
    ],
)
def test_stripped_annotations_are_found_again(name: str, pattern: str, iterations: str, within: int) -> None:
    trace = read_trace(trace_path(name))
    timeline = timeline_of(replace(trace, ranges=Ranges.empty()))
    calls, operations = timeline.calls, timeline.trace.operations
    launching = np.unique(calls.of_operation[calls.of_operation >= 0])
    starts = np.sort(calls.start_ns[launching])
    ranges = timeline.trace.ranges
    names = timeline.trace.names
    mine = np.array([names[number] == iterations for number in ranges.name])
    begins = np.searchsorted(starts, ranges.start_ns[mine])
    annotated = np.array([trace.names[number].startswith(pattern) for number in trace.ranges.name])
    truth = np.searchsorted(starts, np.sort(trace.ranges.start_ns[annotated]))
    assert len(operations)
    assert len(begins) >= len(np.unique(truth)) - 1 if within == 0 and pattern == "step" else True
    nearest = np.abs(begins[:, None] - truth[None, :]).min(axis=1)
    first = 1 if within and pattern == "Forward" else 0
    assert (nearest[first:] <= within).all()


@pytest.mark.parametrize("name", ["openmp_heat_after.sqlite", "oddities/tiny_old.sqlite"])
def test_the_report_says_what_was_found(name: str) -> None:
    path = trace_path(name)
    report = boundby.analyze(path)
    check_invariants(report)
    assert any(region.found for region in report.regions)
    assert all(region.found == (region.domain == FOUND_DOMAIN) for region in report.regions)
    without = boundby.analyze(path, find_regions=False)
    assert not any(region.found for region in without.regions)
    assert report.devices[0].time == without.devices[0].time
