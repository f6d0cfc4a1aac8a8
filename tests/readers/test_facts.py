"""One test for each fact of nsys exports that the reader copes with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.simulated.full_export import Export
from msgspec.structs import replace

import boundby
from boundby.readers import read_trace
from boundby.results.report import RegionReport, Report
from boundby.simulate.nsys_export import GENERATIONS, CallRow, ExportedThread
from boundby.trace.tables import NO_STREAM, Direction, MemoryKind, OpKind, Trace
from tests.support.alter import alter
from tests.support.invariants import check_invariants
from tests.support.training import MS, US, training_loop


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "report.sqlite"


def analyzed(path: Path) -> Report:
    report = boundby.analyze(path)
    check_invariants(report)
    return report


def launch(export: Export, thread: ExportedThread, start: int = 0, correlation: int | None = None) -> CallRow:
    return export.api(thread, start, start + 5 * US, "cudaLaunchKernel_v7000", correlation=correlation)


def region(report: Report, *path: str) -> RegionReport:
    return next(found for found in report.regions if found.path == path)


def range_names(trace: Trace) -> list[str]:
    return [trace.names[name] for name in trace.ranges.name.tolist()]


def test_pid_and_tid_are_in_the_global_id(path: Path) -> None:
    export = Export()
    thread = export.thread(pid=0xABCDEF, tid=0x123456, name="worker")
    export.kernel(launch(export, thread), MS, 2 * MS)
    trace = read_trace(export.write(path))
    assert [(t.pid, t.tid, t.name) for t in trace.threads] == [(0xABCDEF, 0x123456, "worker")]
    assert [(p.pid, p.name) for p in trace.processes] == [(0xABCDEF, "python")]


def test_range_texts_are_inline_or_ids(path: Path) -> None:
    export = Export()
    thread = export.thread()
    for number in range(6):
        export.nvtx(thread, number * MS, number * MS + 5, f"range {number}", registered=number % 2 == 0)
    assert range_names(read_trace(export.write(path))) == [f"range {number}" for number in range(6)]


def test_api_names_carry_versions(path: Path) -> None:
    """A sync is known by its plain name, whatever its suffix."""
    export = Export()
    thread = export.thread()
    export.kernel(launch(export, thread), MS, 2 * MS)
    for number, name in enumerate(("cudaDeviceSynchronize", "cudaStreamSynchronize_v3020", "cuCtxSynchronize_ptsz")):
        export.api(thread, (2 + number) * MS, (3 + number) * MS, name)
    export.kernel(launch(export, thread, 6 * MS), 7 * MS, 8 * MS)
    assert analyzed(export.write(path)).devices[0].sync.count == 3


def test_event_types(path: Path) -> None:
    """Push/pop and start/end and their NVTXT twins are ranges; marks, domains and categories are not."""
    export = Export()
    thread = export.thread()
    for number in (59, 60, 34, 70, 71, 75, 76, 33, 39):
        tid = thread.global_tid
        export.row("NVTX_EVENTS", start=number, end=number + 5, eventType=number, text=f"type {number}", globalTid=tid)
    trace = read_trace(export.write(path))
    assert range_names(trace) == ["type 59", "type 60", "type 70", "type 71"]
    assert trace.ranges.is_start_end.tolist() == [False, True, False, True]


def test_open_ranges_end_with_the_trace(path: Path) -> None:
    export = Export()
    thread = export.thread()
    export.nvtx(thread, 5, None, "open")
    export.osrt(thread, 7, 5_000, "poll")
    trace = read_trace(export.write(path))
    assert (trace.ranges.end_ns.tolist(), trace.ranges.is_open.tolist()) == ([5_000], [True])
    assert region(analyzed(path), "open").open_instances == 1


def test_domains_count_per_process(path: Path) -> None:
    export = Export()
    one, two = export.thread(1), export.thread(2)
    export.nvtx(one, 0, 9, "a", domain="first")
    export.nvtx(two, 0, 9, "b", domain="second")
    export.nvtx(two, 20, 29, "c")
    trace = read_trace(export.write(path))
    assert [trace.domains[number] for number in trace.ranges.domain.tolist()] == ["first", "second", ""]


@pytest.mark.parametrize("schema", GENERATIONS)
def test_copies(path: Path, schema: str) -> None:
    export = Export()
    thread = export.thread()
    kinds = (
        ("HtoD", "pageable", "device", Direction.HTOD, MemoryKind.PAGEABLE, OpKind.MEMCPY),
        ("DtoH", "device", "pinned", Direction.DTOH, MemoryKind.DEVICE, OpKind.MEMCPY),
        ("DtoD", "managed", "device", Direction.DTOD, MemoryKind.MANAGED, OpKind.MEMCPY),
        ("PtoP", "device", "device", Direction.PTOP, MemoryKind.DEVICE, OpKind.MEMCPY),
        ("UVM_HtoD", "unknown", "unknown", Direction.HTOD, MemoryKind.UNKNOWN, OpKind.MIGRATION),
        ("UVM_DtoH", "unknown", "unknown", Direction.DTOH, MemoryKind.UNKNOWN, OpKind.MIGRATION),
    )
    for number, (kind, source, target, *_) in enumerate(kinds):
        export.memcpy(thread, number * MS, number * MS + 5, kind=kind, source=source, target=target, stream=NO_STREAM)
    operations = read_trace(export.write(path, schema)).operations
    read = zip(operations.direction.tolist(), operations.source.tolist(), operations.kind.tolist(), strict=True)
    assert list(read) == [tuple(map(int, expected)) for *_, a, b, c in kinds for expected in [(a, b, c)]]


def test_labels_come_from_the_trace(path: Path) -> None:
    """Another nsys may number kinds as it likes."""
    export = Export()
    export.memcpy(export.thread(), 0, 5, kind="HtoD", source="pageable")
    alter(
        export.write(path),
        "UPDATE ENUM_CUDA_MEMCPY_OPER SET name = 'CUDA_MEMCPY_KIND_DTOH' WHERE id = 1",
        "UPDATE ENUM_CUDA_MEM_KIND SET name = 'CUDA_MEMOPR_MEMORY_KIND_PINNED' WHERE id = 0",
    )
    operations = read_trace(path).operations
    assert (operations.direction[0], operations.source[0]) == (Direction.DTOH, MemoryKind.PINNED)


def test_unknown_kinds_are_copies_all_the_same(path: Path) -> None:
    expected = analyzed(training_loop().write(path)).devices[0]
    kinds = "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 99, srcKind = 98, dstKind = -3 WHERE copyKind < 11"
    device = analyzed(alter(path, kinds)).devices[0]
    assert device.time["gpu_copy"] == expected.time["gpu_copy"]
    assert set(device.memcpy) <= {"other", "HtoD"}


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 99])
def test_sync_types_are_not_trusted(path: Path, code: int) -> None:
    expected = analyzed(training_loop().write(path)).devices
    alter(path, f"UPDATE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION SET syncType = {code}")
    assert analyzed(path).devices == expected


def test_correlation_ids_collide_across_processes(path: Path) -> None:
    export = Export()
    one, two = export.thread(1), export.thread(2)
    for number, thread in enumerate((one, two)):
        start = number * 10 * MS
        export.nvtx(thread, start, start + MS, "ab"[number])
        export.kernel(launch(export, thread, start, correlation=77), start + 2 * MS, start + 3 * MS)
    report = analyzed(export.write(path))
    assert region(report, "a").time["gpu_compute"] == region(report, "b").time["gpu_compute"] == MS


def test_backtrace_rows_repeat_calls(path: Path) -> None:
    expected = analyzed(training_loop().write(path)).devices
    columns = "start, end, 67, globalTid, correlationId, nameId, returnValue, callchainId"
    alter(path, f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT {columns} FROM CUPTI_ACTIVITY_KIND_RUNTIME")
    assert analyzed(path).devices == expected
    assert len(read_trace(path).api) == len(training_loop().rows["CUPTI_ACTIVITY_KIND_RUNTIME"])


def test_return_values_do_not_matter(path: Path) -> None:
    expected = analyzed(training_loop().write(path)).devices
    found = analyzed(alter(path, "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET returnValue = 600")).devices
    # A call that failed launched nothing that could be missed: only what is counted as launched differs.
    assert [replace(one, coverage=expected[0].coverage) for one in found] == list(expected)


def test_a_graph_launch_owns_many_kernels(path: Path) -> None:
    export = Export()
    thread = export.thread()
    export.nvtx(thread, 0, MS, "graph")
    call = export.api(thread, 10, 20 * US, "cudaGraphLaunch_v10000")
    for node in range(5):
        export.kernel(call, (2 + node) * MS, (3 + node) * MS, graph_node=node + 1)
    report = analyzed(export.write(path))
    assert report.trace.captured.cuda_graphs
    assert region(report, "graph").time["gpu_compute"] == 5 * MS


@pytest.mark.parametrize("schema", GENERATIONS[1:])
def test_graphs_traced_as_one_are_busy_time(path: Path, schema: str) -> None:
    export = Export()
    call = export.api(export.thread(), 0, 20 * US, "cudaGraphLaunch_v10000")
    export.graph(call, MS, 6 * MS)
    report = analyzed(export.write(path, schema))
    assert report.devices[0].time["gpu_compute"] == 5 * MS
    assert report.trace.captured.kernels
    assert report.trace.captured.cuda_graphs


def test_migrations_have_no_call(path: Path) -> None:
    export = Export()
    thread = export.thread()
    other = launch(export, thread, correlation=0)  # were 0 an id, this would be their call
    export.kernel(launch(export, thread, MS), 2 * MS, 3 * MS)
    for number in range(3):
        export.memcpy(other, (4 + number) * MS, (5 + number) * MS, kind="UVM_HtoD", stream=NO_STREAM)
    report = analyzed(export.write(path))
    assert report.devices[0].time["gpu_copy"] == 3 * MS
    assert read_trace(path).operations.correlation.tolist().count(0) == 3


def test_operations_of_one_stream_overlap(path: Path) -> None:
    export = Export()
    thread = export.thread()
    for number in range(4):
        call = launch(export, thread, number * 10 * US)
        export.kernel(call, MS + number * 10 * US, 2 * MS + number * 10 * US)
    assert analyzed(export.write(path)).devices[0].busy_ns == MS + 30 * US


def test_skewed_clocks_are_said(path: Path) -> None:
    export = training_loop(8)
    for table in ("KERNEL", "MEMCPY", "MEMSET"):
        for row in export.rows[f"CUPTI_ACTIVITY_KIND_{table}"]:
            row["start"], row["end"] = int(row["start"] or 0) - 148 * MS, int(row["end"] or 0) - 148 * MS
    report = analyzed(export.write(path))
    assert "clock-skew" in [warning.code for warning in report.trace.warnings]
    assert abs(report.devices[0].clock_shift_ns - 148 * MS) < MS


def test_gpus_listed_are_not_gpus_used(path: Path) -> None:
    export = training_loop()
    export.gpu(0, "NVIDIA A100")
    export.gpu(1, "Intel Graphics")
    report = analyzed(export.write(path))
    assert [(gpu.id, gpu.name, gpu.used) for gpu in report.trace.gpus] == [
        (0, "NVIDIA A100", True),
        (1, "Intel Graphics", False),
    ]
    assert len(report.devices) == 1


def test_an_ordinal_can_mean_two_gpus(path: Path) -> None:
    """CUDA_VISIBLE_DEVICES: each process calls its GPU 0."""
    export = Export()
    for number, thread in enumerate((export.thread(1), export.thread(2))):
        export.gpu(number + 2, f"GPU in slot {number + 2}")
        export.visible(thread, 0, number + 2)
        export.kernel(launch(export, thread), MS, (2 + number) * MS)
    devices = analyzed(export.write(path, "2026")).devices
    assert [(device.id, device.name, device.busy_ns) for device in devices] == [
        (2, "GPU in slot 2", MS),
        (3, "GPU in slot 3", 2 * MS),
    ]


def test_no_cuda_at_all(path: Path) -> None:
    export = Export()
    thread = export.thread()
    export.nvtx(thread, 0, 10 * MS, "work")
    export.osrt(thread, MS, 4 * MS, "read")
    report = analyzed(export.write(path))
    assert not report.devices
    assert report.threads[0].time["host_blocked"] == 3 * MS


def test_cupti_overhead(path: Path) -> None:
    export = Export()
    thread = export.thread()
    export.overhead(thread, 0, 5, "CUDA profiling data flush overhead", cupti=True)
    export.overhead(thread, 10, 15, "Profiler start")
    export.nvtx(thread, 0, 20, "work")
    trace = read_trace(export.write(path, "2026"))
    assert len(trace.overhead) == 2
    assert np.all(trace.overhead.end_ns - trace.overhead.start_ns == 5)


def test_what_the_profiler_complained_about_is_shown(path: Path) -> None:
    export = training_loop()
    export.diagnostic("Number of NVTX events collected: 180.", severity=1)
    export.diagnostic("CUDA profiling might have not been started correctly.", severity=2)
    export.diagnostic("The target application \nexited\twith code 3.\n", severity=3)
    export.diagnostic("", severity=3)
    alter(export.write(path), "UPDATE DIAGNOSTIC_EVENT SET text = NULL WHERE text = ''", loose="DIAGNOSTIC_EVENT")
    warnings = analyzed(path).trace.warnings
    assert [(warning.code, warning.message) for warning in warnings] == [
        ("profiler-error", "The target application exited with code 3.")
    ]


def test_the_nvtx_package_that_is_too_new(path: Path) -> None:
    export = training_loop()
    export.diagnostic("NVTX (binary) payload extension is incompatible. Provided compatibility ID 260 != 259", 3)
    (warning,) = analyzed(export.write(path)).trace.warnings
    assert warning.code == "nvtx-incompatible"
    assert "nvtx==0.2.11" in warning.message


def test_an_export_that_ended_early_is_said(path: Path) -> None:
    """What it lacks may have shown another cause: that lowers the confidence."""
    whole, report = (analyzed(training_loop().write(path, drop=drop)) for drop in ((), ("META_DATA_EXPORT",)))
    assert [warning.code for warning in report.trace.warnings] == ["export-incomplete"]
    missing = [any("are missing" in why for why in one.devices[0].verdict.reasons) for one in (whole, report)]
    assert missing == [False, True]
