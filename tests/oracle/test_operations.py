"""Kernels, copies, gaps and launches agree with NVIDIA's reports to the nanosecond."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from boundby.model.intervals import complement, union
from boundby.results.report import DeviceReport
from boundby.trace.tables import Direction, MemoryKind, OpKind
from tests.oracle.nsys_reports import NsysReports
from tests.oracle.ours import Analysis, analysis, call_name, query, sum_of, summarize
from tests.support.traces import programs, tables_of, trace_path

pytestmark = pytest.mark.nsys
TRACES = programs()

_SIDES = {
    Direction.HTOD: "Host-to-Device",
    Direction.DTOH: "Device-to-Host",
    Direction.DTOD: "Device-to-Device",
    Direction.PTOP: "Peer-to-Peer",
    Direction.HTOH: "Host-to-Host",
}
_KEYS = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device", "PtoP": "Peer-to-Peer"}
# The profiler's rows that gpu_gaps takes for GPU work.
_TAKEN_FOR_WORK = "'CUDA profiling data flush overhead', 'CUDA profiling stop overhead', 'CUDA profiling overhead'"


def _label(kind: int, direction: int) -> str:
    """NVIDIA's name of a copy, set or migration."""
    if kind == OpKind.MEMSET:
        return "[CUDA memset]"
    return f"[CUDA memcpy {'Unified ' if kind == OpKind.MIGRATION else ''}{_SIDES[Direction(direction)]}]"


@pytest.mark.parametrize("name", TRACES)
def test_kernels_by_name(nvidia: NsysReports, name: str) -> None:
    path = trace_path(name)
    ours = analysis(path)
    table = ours.trace.operations
    rows = np.flatnonzero(table.kind == OpKind.KERNEL).tolist()
    found = summarize((ours.trace.names[table.name[row]], int(table.end_ns[row] - table.start_ns[row])) for row in rows)
    if not nvidia.has(path, "cuda_gpu_kern_sum"):
        assert not found
        return
    theirs = {row["Name"]: sum_of(row, "Instances") for row in nvidia.rows(path, "cuda_gpu_kern_sum")}
    assert found == theirs
    kernels = [device.kernels for device in ours.report.devices]
    assert sum(k.count for k in kernels) == sum(entry.count for entry in theirs.values())
    assert sum(k.total_ns for k in kernels) == sum(entry.total_ns for entry in theirs.values())


@pytest.mark.parametrize("name", TRACES)
def test_copies_and_sets_by_direction(nvidia: NsysReports, name: str) -> None:
    path = trace_path(name)
    ours = analysis(path)
    table = ours.trace.operations
    rows = np.flatnonzero(np.isin(table.kind, (OpKind.MEMCPY, OpKind.MEMSET, OpKind.MIGRATION))).tolist()
    if not nvidia.has(path, "cuda_gpu_mem_time_sum"):
        assert not rows
        return
    times = {row["Operation"]: sum_of(row, "Count") for row in nvidia.rows(path, "cuda_gpu_mem_time_sum")}
    if any(re.search("Array|Unknown", operation) for operation in times):
        pytest.skip("boundby takes arrays for device memory: test_plain_sql.py compares them")
    label = {row: _label(int(table.kind[row]), int(table.direction[row])) for row in rows}
    assert summarize((label[row], int(table.end_ns[row] - table.start_ns[row])) for row in rows) == times
    sizes = {row["Operation"]: row["Total (MB)"] for row in nvidia.rows(path, "cuda_gpu_mem_size_sum")}
    bytes_: Counter[str] = Counter()
    for row in rows:
        bytes_[label[row]] += int(table.bytes[row])
    assert {operation: f"{total / 1e6:.3f}" for operation, total in bytes_.items()} == sizes  # NVIDIA prints no more
    for key, sides in _KEYS.items():  # the report counts a page migration as a copy of its direction
        copies = [device.memcpy[key] for device in ours.report.devices if key in device.memcpy]
        both = [times[f"[CUDA memcpy {u}{sides}]"] for u in ("", "Unified ") if f"[CUDA memcpy {u}{sides}]" in times]
        assert sum(c.count for c in copies) == sum(entry.count for entry in both)
        assert sum(c.total_ns for c in copies) == sum(entry.total_ns for entry in both)


@pytest.mark.parametrize("name", TRACES)
def test_gaps(nvidia: NsysReports, name: str) -> None:
    """Equal, once the rows that gpu_gaps takes for work are added, and the graphs it does not see left out."""
    path = trace_path(name)
    if not nvidia.has(path, "gpu_gaps"):
        assert not analysis(path).report.devices
        return
    theirs = Counter(
        (int(row["PID"]), int(row["Start (ns)"]), int(row["Duration (ns)"])) for row in nvidia.rows(path, "gpu_gaps")
    )
    ours = analysis(path)
    assert _gaps(ours, path) == theirs
    table = ours.trace.operations
    seen_alike = (table.kind != OpKind.GRAPH).all() and (table.start_ns > 0).all()
    if seen_alike and all(_is_alone(device, _overhead(path)) for device in ours.report.devices):
        gaps = [device.gaps for device in ours.report.devices]
        durations = [duration for *_, duration in theirs.elements()]
        assert sum(gap.count for gap in gaps) == len(durations)
        assert sum(gap.total_ns for gap in gaps) == sum(durations)
        assert max(gap.longest_ns for gap in gaps) == max(durations, default=0)


def _is_alone(device: DeviceReport, overhead: list[tuple[int, int, int]]) -> bool:
    """True for a device of one process, without overhead in its window that NVIDIA's rule takes for work."""
    inside = [start for _, start, end in overhead if start > device.window.start_ns and end < device.window.end_ns]
    return len(device.processes) == 1 and not inside


def _gaps(ours: Analysis, path: Path) -> Counter[tuple[int, int, int]]:
    """Our gaps as NVIDIA's rule counts them: per process and device, without graphs, with overhead as work."""
    table = ours.trace.operations
    seen = (table.kind != OpKind.GRAPH) & (table.start_ns > 0)
    overhead = _overhead(path)
    found: Counter[tuple[int, int, int]] = Counter()
    for process, record in enumerate(ours.trace.processes):
        for device in range(len(ours.trace.gpus)):
            mine = seen & (table.process == process) & (table.device == device)
            if not mine.any():
                continue
            low, high = int(table.start_ns[mine].min()), int(table.end_ns[mine].max())
            added = [(s, e) for pid, s, e in overhead if pid == record.pid and s > low and e < high]
            start = np.concatenate((table.start_ns[mine], np.array([s for s, _ in added], np.int64)))
            end = np.concatenate((table.end_ns[mine], np.array([e for _, e in added], np.int64)))
            gaps = complement(union(start, end), low, high)
            for begin, until in zip(gaps.start.tolist(), gaps.end.tolist(), strict=True):
                found[(record.pid, begin, until - begin)] += 1
    return found


def _overhead(path: Path) -> list[tuple[int, int, int]]:
    if "PROFILER_OVERHEAD" not in tables_of(path):
        return []
    return [
        (int(pid), int(start), int(end))
        for pid, start, end in query(
            path,
            "SELECT (o.globalTid >> 24) & 0xFFFFFF, o.start, o.end FROM PROFILER_OVERHEAD o"
            f" JOIN StringIds s ON s.id = o.nameId WHERE s.value IN ({_TAKEN_FOR_WORK})",
        )
    ]


@pytest.mark.parametrize("name", TRACES)
def test_launching_calls_of_kernels(nvidia: NsysReports, name: str) -> None:
    """The same call launched each kernel, on the same thread, at the same time: so latencies agree."""
    path = trace_path(name)
    if not nvidia.has(path, "cuda_kern_exec_trace"):
        assert not _launches(analysis(path))
        return
    theirs = Counter(
        (
            int(row["PID"]),
            int(row["TID"]),
            int(row["API Start (ns)"]),
            int(row["API Start (ns)"]) + int(row["API Dur (ns)"]),
            int(row["Kernel Start (ns)"]),
            int(row["Kernel Dur (ns)"]),
            row["API Function"],
            row["Kernel Name"],
        )
        for row in nvidia.rows(path, "cuda_kern_exec_trace")
    )
    assert _launches(analysis(path)) == theirs


def _launches(ours: Analysis) -> Counter[tuple[int, int, int, int, int, int, str, str]]:
    """Kernels whose call is known, with that call."""
    table, calls, thread = ours.trace.operations, ours.timeline.calls, ours.call_thread
    rows = np.flatnonzero((table.kind == OpKind.KERNEL) & (thread >= 0)).tolist()
    return Counter(
        (
            ours.pid(thread[row]),
            ours.tid(thread[row]),
            int(calls.start_ns[call]),
            int(calls.end_ns[call]),
            int(table.start_ns[row]),
            int(table.end_ns[row] - table.start_ns[row]),
            call_name(ours.trace.names[calls.name[call]]),
            ours.trace.names[table.name[row]],
        )
        for row in rows
        for call in (calls.of_operation[row],)
    )


@pytest.mark.parametrize("name", TRACES)
def test_asynchronous_copies_of_pageable_memory(nvidia: NsysReports, name: str) -> None:
    path = trace_path(name)
    ours = analysis(path)
    table, calls = ours.trace.operations, ours.timeline.calls
    pageable = (table.source == MemoryKind.PAGEABLE) | (table.target == MemoryKind.PAGEABLE)
    rows = np.flatnonzero((table.kind == OpKind.MEMCPY) & pageable & (calls.of_operation >= 0)).tolist()
    names = {row: ours.trace.names[calls.name[calls.of_operation[row]]] for row in rows}
    found = Counter(
        (int(table.start_ns[row]), int(table.end_ns[row] - table.start_ns[row]), names[row])
        for row in rows
        if names[row].startswith("cudaMemcpy") and "Async" in names[row]
    )
    if not nvidia.has(path, "cuda_memcpy_async"):
        assert not found
        return
    theirs = Counter(
        (int(row["Start (ns)"]), int(row["Duration (ns)"]), row["API Name"])
        for row in nvidia.rows(path, "cuda_memcpy_async")
    )
    assert found == theirs
