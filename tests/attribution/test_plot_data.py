"""The plot_data: its time sums to the account, its size is bounded, and what it names is right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.model.causes import CAUSE_KEYS, Cause
from boundby.plot_data import build_plot_data
from boundby.plot_data import lanes as lanes_module
from boundby.plot_data import lanes as ranges_module
from boundby.plot_data import lanes as work_module
from boundby.results.plot_data import AccountLane, PlotData, RangeLane
from boundby.trace.tables import Direction
from tests.attribution.strategies import host_sequences
from tests.support.program import Program

US, MS = 1_000, 1_000_000


def plotted(program: Program, window: str = "gpu") -> tuple[Timeline, PlotData]:
    timeline = build_timeline(program.trace(), parse_window(window))
    return timeline, build_plot_data(timeline)


def lane_time(lane: AccountLane) -> list[int]:
    return [int(ns) for ns in lane.bins.cause_ns.sum(axis=0)]


@settings(max_examples=25, deadline=None)
@given(host_sequences(threads=2, devices=2), st.sampled_from(["gpu", "all"]))
def test_every_form_of_the_account_sums_to_it(program: Program, window: str) -> None:
    timeline, plot_data = plotted(program, window)
    for device, lane in zip(timeline.devices, plot_data.lanes, strict=True):
        account = device.segments.by_cause().tolist()
        assert lane_time(lane) == account
        assert lane.segments is not None
        length = lane.segments.end_ns - lane.segments.start_ns
        assert np.bincount(lane.segments.cause, length, len(CAUSE_KEYS)).astype(int).tolist() == account
        assert (length > 0).all()
        assert (lane.segments.start_ns[1:] >= lane.segments.end_ns[:-1]).all()
        share = lane.gpu_utilization
        assert ((share[~np.isnan(share)] >= 0) & (share[~np.isnan(share)] <= 1)).all()
    sync = sum(int(device.segments.by_cause()[Cause.SYNC]) for device in timeline.devices)
    assert sum(row.idle_ns or 0 for row in plot_data.syncs) <= sync


@settings(max_examples=25, deadline=None)
@given(host_sequences(threads=2))
def test_gaps_are_the_idle_time(program: Program) -> None:
    timeline, plot_data = plotted(program)
    assert plot_data.gap_count == len(plot_data.gaps)  # few enough to be told one by one
    for gap in plot_data.gaps:
        assert sum(gap.cause_ns) == gap.end_ns - gap.start_ns
        assert gap.cause_ns[gap.cause] == max(gap.cause_ns)
        assert gap.region == -1 or gap.region < len(plot_data.regions)
    idle = sum(int(d.segments.by_cause()[3:].sum()) for d in timeline.devices)
    assert sum(gap.end_ns - gap.start_ns for gap in plot_data.gaps) == idle


@settings(max_examples=25, deadline=None)
@given(host_sequences(threads=2, devices=2))
def test_ranges_of_a_lane_do_not_overlap_and_none_is_lost(program: Program) -> None:
    timeline, plot_data = plotted(program, "all")
    ranges = timeline.trace.ranges
    inside = (ranges.end_ns > plot_data.start_ns) & (ranges.start_ns < plot_data.end_ns)
    shown = inside & (ranges.end_ns > ranges.start_ns)
    assert sum(int(lane.count.sum()) for lane in plot_data.ranges) == int(shown.sum())
    for lane in plot_data.ranges:
        assert (lane.start_ns[1:] >= lane.end_ns[:-1]).all()
        assert all(0 <= region < len(plot_data.regions) for region in lane.region.tolist())


def steps(count: int = 20, slow: int = 2, threads: int = 1) -> Program:
    """Steps of two kernels with a wait between; the first ``slow`` take five times as long."""
    program = Program(threads=threads)
    now = 0
    for number in range(count):
        begin, scale = now, 5 if number < slow else 1
        for name in ("gemm", "reduce"):
            call = program.api(now, now + 10 * US, "cudaLaunchKernel_v7000")
            program.kernel(now + 8 * US, now + 8 * US + 200 * US * scale, call, name)
            program.api(now + 10 * US, now + 15 * US + 200 * US * scale, "cudaStreamSynchronize_v3020")
            now += 15 * US + 200 * US * scale
        program.push(begin, now, f"step {number}")
        now += 20 * US
    return program


def test_warm_up_is_told_apart() -> None:
    _, plot_data = plotted(steps())
    (series,) = plot_data.instances
    assert plot_data.regions[series.region].path == ("step *",)
    assert (series.count, series.warm_up, series.thinned) == (20, 2, False)
    assert series.host_median_ns == 430 * US
    assert int(series.host.counts.sum()) == 18
    assert series.index.tolist() == list(range(20))


def test_tables_and_gaps_name_what_ran() -> None:
    _, plot_data = plotted(steps())
    assert [(row.name, row.count) for row in plot_data.kernels] == [("gemm", 20), ("reduce", 20)]
    assert plot_data.kernels[0].total_ns == (18 + 2 * 5) * 200 * US
    assert sum(row.share for row in plot_data.kernels) == pytest.approx(1)
    (row,) = plot_data.syncs
    assert (row.call, row.count) == ("cudaStreamSynchronize", 40)
    assert row.idle_ns == sum(lane_time(lane)[Cause.SYNC] for lane in plot_data.lanes)
    gap = max(plot_data.gaps, key=lambda gap: gap.end_ns - gap.start_ns)
    assert (gap.before, gap.after) == ("reduce", "gemm")
    assert gap.call == "cudaStreamSynchronize"


def test_no_call_is_to_blame_for_a_gap_of_own_code() -> None:
    program = Program()
    for start in (0, 2_000):
        call = program.api(start * US, (start + 10) * US, "cudaLaunchKernel_v7000")
        program.kernel((start + 10) * US, (start + 50) * US, call, "gemm")
    _, plot_data = plotted(program)
    (gap,) = (gap for gap in plot_data.gaps if gap.cause == Cause.CPU)
    assert gap.call == ""


def test_too_much_is_merged_and_binned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "MOST_SEGMENTS", 50)
    monkeypatch.setattr(lanes_module, "FINE_BINS", 40)
    monkeypatch.setattr(ranges_module, "MOST_RANGES", 30)
    program = steps(200)
    for number in range(2000):
        program.push(number * 10 * US, number * 10 * US + 5 * US, "tiny")
    timeline, plot_data = plotted(program)
    (lane,) = plot_data.lanes
    assert lane.segments is None
    assert lane.fine is not None
    assert lane.fine.cause_ns.shape == (40, len(CAUSE_KEYS))
    assert lane.fine.cause_ns.sum(axis=0).tolist() == timeline.devices[0].segments.by_cause().tolist()
    assert sum(len(lane) for lane in plot_data.ranges) <= 30
    assert any((lane.count > 1).any() for lane in plot_data.ranges)
    for ranges in plot_data.ranges:
        assert (ranges.covered_ns <= ranges.end_ns - ranges.start_ns).all()


def test_work_by_stream_and_calls_by_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    program = steps(6, threads=2)
    call = program.api(0, 7 * US, "cudaMemcpyAsync_v3020", 1)
    program.copy(6 * US, 30 * US, call, direction=Direction.DTOH, stream=9)
    _, plot_data = plotted(program)
    compute, copies, *calls = plot_data.work
    assert [lane.kind for lane in plot_data.work] == ["stream", "stream", "calls", "calls"]
    assert [plot_data.names[name] for name in compute.name.tolist()] == ["gemm", "reduce"] * 6
    assert set(compute.cause.tolist()) == {Cause.GPU_COMPUTE}
    assert (copies.number, copies.cause.tolist()) == (9, [Cause.GPU_COPY])
    assert plot_data.names[int(copies.name[0])].startswith("copy DtoH")
    assert {plot_data.names[name] for name in calls[0].name.tolist()} == {"cudaLaunchKernel", "cudaStreamSynchronize"}
    monkeypatch.setattr(work_module, "MOST_WORK", 8)
    monkeypatch.setattr(work_module, "MOST_LABELS", 1)
    monkeypatch.setattr(work_module, "MOST_STREAMS", 1)
    _, bounded = plotted(program)
    assert sum(map(len, bounded.work)) <= 8
    assert [int(lane.count.sum()) for lane in bounded.work] == [len(compute), *(len(lane) for lane in calls)]
    assert bounded.work_left_out == 1
    assert bounded.names[1:] == (work_module.OTHER,)
    assert all((lane.name <= 1).all() for lane in bounded.work)


def test_without_gpu_work_lanes_are_threads() -> None:
    program = Program()
    program.push(0, 10 * MS, "work")
    program.sleep(2 * MS, 5 * MS)
    timeline = build_timeline(program.trace(), parse_window("gpu"))
    plot_data = build_plot_data(timeline)
    (lane,) = plot_data.lanes
    assert lane.kind == "thread"
    assert lane_time(lane)[Cause.HOST_BLOCKED] == 3 * MS
    assert plot_data.gaps == ()
    assert plot_data.kernels == ()


def test_columns_are_of_one_length() -> None:
    _, plot_data = plotted(steps())
    for lane in plot_data.ranges:
        columns = [getattr(lane, f.name) for f in fields(RangeLane)]
        assert len({len(column) for column in columns if isinstance(column, np.ndarray)}) == 1
