"""Allocations of GPU memory in nsys reports: who held the peak, by region, and more than Windows allows."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

import boundby
from boundby.results.report import Report
from tests.support.counted import ALLOCATION, MB, MS, PINNED, RELEASE, US, allocation
from tests.support.invariants import check_invariants
from tests.support.traces import trace_path


def program() -> Export:
    """100 MB of weights; in each of three steps 50 MB that go again, on a second thread 20 MB that stay."""
    export = Export()
    main, other = export.thread(1000), export.thread(1000, 1001)
    export.nvtx(main, 0, MS, "load")
    allocation(export, main, 100 * US, 0x1000, 100 * MB, ALLOCATION)
    allocation(export, main, 200 * US, 0x9000, 70 * MB, ALLOCATION, PINNED)  # the host's
    for step in range(3):
        at = (step + 1) * 10 * MS
        export.nvtx(main, at, at + 9 * MS, f"step {step}")
        export.nvtx(other, at, at + 9 * MS, "helper")
        allocation(export, main, at + MS, 0x2000, 50 * MB, ALLOCATION)
        launch = export.api(main, at + 2 * MS, at + 2 * MS + 10 * US, "cudaLaunchKernel_v7000")
        export.kernel(launch, at + 3 * MS, at + 6 * MS)
        allocation(export, other, at + 4 * MS, 0x3000 + step, 20 * MB, ALLOCATION)
        allocation(export, main, at + 8 * MS, 0x2000, 0, RELEASE)  # some versions tell no size
    return export


def analyzed(export: Export, path: Path, schema: str) -> Report:
    report = boundby.analyze(export.write(path, schema=schema))
    check_invariants(report)
    return report


@pytest.mark.parametrize("schema", ["2022", "2023", "2026"])
def test_who_holds_the_peak(tmp_path: Path, schema: str) -> None:
    report = analyzed(program(), tmp_path / "a.sqlite", schema)
    assert report.trace.captured.memory
    memory = report.devices[0].memory
    assert memory is not None
    assert (memory.first_bytes, memory.peak_bytes, memory.last_bytes) == (0, 210 * MB, 160 * MB)
    assert memory.peak_ns == 34 * MS
    assert {one.path: one.bytes for one in memory.held} == {
        ("load",): 100 * MB,
        ("helper",): 60 * MB,
        ("step *",): 50 * MB,
    }
    regions = {region.path: region.memory for region in report.regions}
    step = regions["step *",]
    assert step is not None
    assert (step.allocated_bytes, step.kept_bytes, step.held_at_peak_bytes) == (150 * MB, 0, 50 * MB)
    helper = regions["helper",]
    assert helper is not None
    assert (helper.allocated_bytes, helper.kept_bytes) == (60 * MB, 60 * MB)


def test_what_was_allocated_before_the_recording_counts(tmp_path: Path) -> None:
    export = program()
    allocation(export, export.thread(1000), 50 * MS, 0x8000, 400 * MB, RELEASE)
    memory = analyzed(export, tmp_path / "a.sqlite", "2023").devices[0].memory
    assert memory is not None
    assert (memory.first_bytes, memory.peak_bytes, memory.last_bytes) == (240 * MB, 450 * MB, 0)
    assert memory.before_bytes == 240 * MB


def test_processes_may_use_the_same_address(tmp_path: Path) -> None:
    export = program()
    stranger = export.thread(2000)
    allocation(export, stranger, 34 * MS - 50 * US, 0x2000, 5 * MB, ALLOCATION)
    launch = export.api(stranger, 36 * MS, 36 * MS + 10 * US, "cudaLaunchKernel_v7000")
    export.kernel(launch, 37 * MS, 38 * MS)
    memory = analyzed(export, tmp_path / "a.sqlite", "2023").devices[0].memory
    assert memory is not None
    assert memory.peak_bytes == 215 * MB
    assert sum(one.bytes for one in memory.held) == 215 * MB


@pytest.mark.parametrize(("used", "is_told"), [(5_000, False), (7_000, True)])
def test_more_than_windows_allows(tmp_path: Path, used: int, is_told: bool) -> None:
    export = program()
    thread = export.thread(1000).global_tid
    for at, table, column, size in (
        (0, "BUDGET", "newBudget", 6_000),
        (10, "USAGE", "newUsage", used),
        (20, "BUDGET", "newBudget", 60_000),
        (30, "USAGE", "newUsage", 50_000),
    ):
        values = {"timestamp": at * MS, "globalTid": thread, "gpu": 0, column: size * MB, "segmentGroup": 0}
        export.row(f"GPU_MEMORY_{table}_EVENTS", **values)
    report = analyzed(export, tmp_path / "a.sqlite", "2022")
    told = {warning.code: warning.message for warning in report.trace.warnings}
    assert ("memory-over-budget" in told) == is_told
    if is_told:
        assert "7.00 GB of GPU 0's memory, 1.00 GB more" in told["memory-over-budget"]


@pytest.mark.parametrize(("resident", "is_told"), [((5_100, 6_100), False), ((5_100, 4_000), True)])
def test_less_is_in_the_gpu_than_programs_use(tmp_path: Path, resident: tuple[int, int], is_told: bool) -> None:
    export = program()
    thread = export.thread(1000).global_tid
    place = {"globalTid": thread, "gpu": 0, "segmentGroup": 0}
    for at, used in ((0, 5_000), (20, 6_000)):
        export.row("GPU_MEMORY_USAGE_EVENTS", timestamp=at * MS, newUsage=used * MB, **place)
    for at, held in zip((1, 21), resident, strict=True):
        row = {"timestamp": at * MS, "totalBytesResident": held * MB, "segmentId": 2, **place}
        export.row("TOTAL_BYTES_RESIDENT_IN_SEGMENT_EVENTS", **row)
    report = analyzed(export, tmp_path / "a.sqlite", "2022")
    told = {warning.code: warning.message for warning in report.trace.warnings}
    assert ("memory-paged" in told) == is_told
    if is_told:
        assert "used 6.00 GB of GPU 0's memory while 4.00 GB was there" in told["memory-paged"]


@pytest.mark.parametrize("is_released", [True, False])
def test_allocation_in_loops_tells_what_is_allocated(tmp_path: Path, is_released: bool) -> None:
    export = Export()
    main = export.thread(1000)
    for step in range(24):
        at = step * 10 * MS
        export.nvtx(main, at, at + 9 * MS, f"step {step}")
        address = 0x2000 if is_released else 0x2000 + step
        allocation(export, main, at + MS, address, 50 * MB, length=900 * US)
        if is_released:
            allocation(export, main, at + 6 * MS, address, 50 * MB, RELEASE, length=900 * US)
        launch = export.api(main, at + 2 * MS, at + 2 * MS + 10 * US, "cudaLaunchKernel_v7000")
        export.kernel(launch, at + 3 * MS, at + 5 * MS)
    report = analyzed(export, tmp_path / "a.sqlite", "2026")
    (finding,) = [finding for finding in report.findings if finding.rule == "allocation"]
    assert "23 times 50.0 MB" in finding.title
    assert ("all released again" if is_released else "none released again") in finding.title
    assert finding.evidence["allocated_bytes"] == 1150 * MB  # without the first, before the window
    assert finding.evidence["released_again_bytes"] == (1150 * MB if is_released else 0)


def test_a_real_program() -> None:
    """Fifteen buffers of 706.56 MB in all; all are released at the end."""
    report = boundby.analyze(trace_path("concurrent_streams_2022_1.sqlite"))
    memory = report.devices[0].memory
    assert memory is not None
    assert memory.last_bytes == 0
    root = report.regions[0].memory
    assert root is not None
    assert root.allocated_bytes == 706_560_000
    assert memory.peak_bytes <= 706_560_000
