"""Kernels that wait for pages of managed memory: exports as nsys writes them, with faults and causes of migrations."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

from boundby import analyze
from boundby.api import Analysis
from boundby.readers import read_trace
from boundby.replay.predictor import Predictor
from boundby.results.report import Finding, Report
from boundby.trace.tables import Paging
from tests.rules.builtin.case_managed_read_back import read_back

MS = 1_000_000
STEPS, PAGES = 10, 8
PREFETCH, FAULT, SPECULATIVE, EVICTION = 1, 2, 3, 4  # CUpti_ActivityUnifiedMemoryMigrationCause


def managed(
    folder: Path, cause: int | None, *, faults: bool, schema: str = "2023", device_ms: int = 0, way: str = "UVM_HtoD"
) -> Path:
    """Ten kernels of 4 ms each, in which eight pieces of 2 MB move for 0.4 ms each."""
    export = Export(("./stencil",))
    main = export.thread(pid=1, tid=1)
    for number in range(STEPS):
        at = 10 * MS + number * 5 * MS
        call = export.api(main, at, at + 10_000, "cudaLaunchKernel")
        export.kernel(call, at + 20_000, at + 20_000 + 4 * MS, name="stencil(float*)", shape=(4_000, 256, 32))
        for page in range(PAGES):
            move = at + 100_000 + page * MS // 2
            if device_ms:
                move += device_ms * MS
            export.memcpy(main, move, move + 4 * MS // 10, bytes=2 << 20, kind=way, target="managed", cause=cause)
            if faults:
                export.row(
                    "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
                    start=move - 20_000,
                    end=move + 4 * MS // 10,
                    globalPid=main.global_pid,
                    deviceId=0,
                    address=page << 21,
                    numberOfPageFaults=32,
                    faultAccessType=1,
                )
        wait = export.api(main, at + 30_000, at + 30_000 + 4 * MS, "cudaDeviceSynchronize")
        assert wait.thread == main
    return export.write(folder / "managed.sqlite", schema)


def of(report: Report) -> list[Finding]:
    return [item for item in report.findings if item.rule == "managed-memory"]


def test_kernels_that_fault_are_told_with_how_long_they_wait(tmp_path: Path) -> None:
    (item,) = of(analyze(managed(tmp_path, FAULT, faults=True)))
    assert "10 kernels run for 40.0 ms, and the GPU fetches pages of managed memory for 33.6 ms of that" in item.title
    assert "2.6k page faults, 80 migrations, 168 MB in all" in item.title
    assert item.evidence["kernels_wait_ns"] == STEPS * PAGES * 420_000
    assert item.evidence["gpu_page_faults_in_trace"] == STEPS * PAGES * 32
    assert item.saving_ns is not None
    low, high = item.saving_ns
    assert low == 0
    assert 25 * MS <= high <= 33_600_000
    assert item.advice[0].startswith("cudaMemPrefetchAsync")
    assert not any("--cuda-um" in line for line in item.advice)


@pytest.mark.parametrize("cause", [FAULT, SPECULATIVE])
def test_causes_of_migrations_tell_it_without_faults(cause: int, tmp_path: Path) -> None:
    (item,) = of(analyze(managed(tmp_path, cause, faults=False)))
    assert "10 kernels run for 40.0 ms, and the GPU fetches pages of managed memory for 32.0 ms of that" in item.title
    assert any("--cuda-um-gpu-page-faults=true" in line for line in item.advice)


def test_a_replay_does_not_place_what_a_fault_moves(tmp_path: Path) -> None:
    """Which access waits for a page is not on record; but no launch of it is missing either."""
    predictor = Predictor(Analysis(read_trace(managed(tmp_path, SPECULATIVE, faults=False))).timeline)
    assert predictor.unreliable is not None
    assert predictor.unreliable.startswith(
        "the trace does not show how long kernels wait for pages of managed memory: at most"
    )


@pytest.mark.parametrize(("cause", "schema"), [(PREFETCH, "2023"), (None, "2023"), (FAULT, "2019")])
def test_what_was_prefetched_or_not_told_holds_no_kernel_up(cause: int | None, schema: str, tmp_path: Path) -> None:
    """Migrations behind kernels are what a prefetch is for; exports without causes cannot tell them from faults."""
    assert not of(analyze(managed(tmp_path, cause, faults=False, schema=schema)))


def test_prefetches_in_the_open_are_copies_and_no_habit_of_pages(tmp_path: Path) -> None:
    report = analyze(managed(tmp_path, PREFETCH, faults=False, device_ms=4))
    assert not of(report)


def test_pages_that_the_host_takes_back_hold_no_kernel_up(tmp_path: Path) -> None:
    assert not of(analyze(managed(tmp_path, FAULT, faults=False, way="UVM_DtoH")))


def test_evictions_get_other_advice(tmp_path: Path) -> None:
    path = managed(tmp_path, EVICTION, faults=True)
    (item,) = of(analyze(path))
    assert "migrations make room for others" in item.advice[0]
    assert not any(line.startswith("cudaMemPrefetchAsync") for line in item.advice)


def test_events_are_read_in_any_order_and_without_the_tables(tmp_path: Path) -> None:
    path = managed(tmp_path, FAULT, faults=True)
    events = read_trace(path).page_events
    assert set(events.kind.tolist()) == {Paging.FAULT, Paging.FETCHED}
    assert int(events.count[events.kind == Paging.FAULT].sum()) == STEPS * PAGES * 32
    assert (events.start_ns[1:] >= events.start_ns[:-1]).all()
    older = tmp_path / "older"
    older.mkdir()
    assert len(read_trace(managed(older, FAULT, faults=False, schema="2019")).page_events) == 0


def test_a_host_that_reads_pages_back_is_bound_by_page_migration() -> None:
    """By a prefetch it reads what lies there: then it runs its own code."""
    bounds = {}
    for cause in (SPECULATIVE, PREFETCH):
        (device,) = Analysis(read_back(cause)).report.devices
        bounds[cause] = device.verdict
    assert bounds[SPECULATIVE].bound == "cpu"
    assert bounds[SPECULATIVE].waits_for == "pages"
    assert "while the host reads managed memory by page faults" in bounds[SPECULATIVE].because
    assert bounds[PREFETCH].waits_for == ""
