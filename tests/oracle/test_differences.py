"""Where boundby differs from NVIDIA's reports on purpose: each difference alone, in a small export, from both sides.

docs/agreement.md lists the same differences with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

from boundby.results.report import RegionReport
from boundby.simulate.nsys_export import ExportedThread
from tests.oracle.nsys_reports import NsysReports, Row
from tests.oracle.ours import Analysis, analysis, query

pytestmark = pytest.mark.nsys
US = 1_000
_SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
Write = Callable[[Export], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes an export where nsys and boundby can read it."""
    return lambda export: export.write(tmp_path / "small.sqlite")


def _launch(export: Export, thread: ExportedThread, start: int, name: str = "cudaLaunchKernel_v7000") -> None:
    """A launch of 5 us; its kernel runs 4 us after, for 31 us."""
    call = export.api(thread, start, start + 5 * US, name)
    export.kernel(call, start + 9 * US, start + 40 * US)


def _start_end(export: Export, thread: ExportedThread, start: int, end: int, text: str) -> None:
    """A start/end range that ends on the thread that started it: as nsys exports it, without ``endGlobalTid``."""
    export.nvtx(thread, start, end, text, kind="startend")
    export.rows["NVTX_EVENTS"][-1]["endGlobalTid"] = None


def _region(ours: Analysis, name: str) -> RegionReport:
    return next(region for region in ours.report.regions if region.path and region.path[-1] == name)


def _projected(rows: tuple[Row, ...], name: str) -> list[tuple[int, int]]:
    """NVIDIA's projections of one name: start and length."""
    return [
        (int(row["Projected Start (ns)"]), int(row["Projected Duration (ns)"])) for row in rows if row["Name"] == name
    ]


def test_a_helper_threads_work_belongs_to_the_range_that_waits_for_it(nvidia: NsysReports, write: Write) -> None:
    """As PyTorch's backward(): its launches come from a thread without ranges. NVIDIA gives them to none."""
    export = Export()
    main, helper = export.thread(pid=5), export.thread(pid=5, tid=6)
    for step in range(10):
        begin = step * 1_000 * US
        export.nvtx(main, begin - US, begin + 900 * US, "step")
        for number in range(10):
            _launch(export, main, begin + number * 10 * US)
            _launch(export, helper, begin + (30 + number) * 10 * US)
    path = write(export)
    region = _region(analysis(path), "step")
    kernels = [row for row in nvidia.rows(path, "nvtx_kern_sum") if row["NVTX Range"] == "step"]
    assert [int(row["Kern Inst"]) for row in kernels] == [100]
    assert region.kernels.count == 200
    assert {length for _, length in _projected(nvidia.rows(path, "nvtx_gpu_proj_trace"), "step")} == {121 * US}
    assert region.projected is not None
    assert region.projected.median_ns == region.projected.max_ns == 421 * US


def test_a_whole_cuda_graph_is_busy_time(nvidia: NsysReports, write: Write) -> None:
    """NVIDIA's rule takes a graph for a gap; its projections and kernel sums leave the graph out."""
    export = Export()
    main = export.thread(pid=5)
    _launch(export, main, 0)
    graph = export.api(main, 45 * US, 48 * US, "cudaGraphLaunch_v10000")
    export.graph(graph, 50 * US, 250 * US)
    _launch(export, main, 250 * US)
    export.nvtx(main, -US, 100 * US, "step")
    path = write(export)
    report = analysis(path).report
    assert [int(row["Duration (ns)"]) for row in nvidia.rows(path, "gpu_gaps")] == [219 * US]
    (device,) = report.devices
    assert (device.gaps.count, device.gaps.total_ns, device.busy_ns) == (2, 19 * US, 262 * US)
    assert device.graphs is not None
    assert (device.graphs.count, device.graphs.total_ns, device.kernels.count) == (1, 200 * US, 2)
    assert _projected(nvidia.rows(path, "nvtx_gpu_proj_trace"), "step") == [(9 * US, 31 * US)]
    step = _region(analysis(path), "step")
    assert step.projected is not None
    assert step.projected.total_ns == 241 * US


def test_profiler_overhead_is_idle_time(nvidia: NsysReports, write: Write) -> None:
    """NVIDIA's rule counts it as work. boundby counts the device idle, and gives the time to ``profiler``."""
    export = Export()
    main = export.thread(pid=5)
    _launch(export, main, 100 * US)
    export.overhead(main, 150 * US, 170 * US, "CUDA profiling data flush overhead")
    _launch(export, main, 200 * US)
    path = write(export)
    (device,) = analysis(path).report.devices
    assert sorted(int(row["Duration (ns)"]) for row in nvidia.rows(path, "gpu_gaps")) == [10 * US, 39 * US]
    assert (device.gaps.count, device.gaps.total_ns) == (1, 69 * US)
    assert device.time["profiler"] == 20 * US


def test_operations_before_the_traces_zero_count(nvidia: NsysReports, write: Write) -> None:
    """Starts can be negative. NVIDIA's rule leaves such operations out."""
    export = Export()
    main = export.thread(pid=5)
    for start in (-500, 0, 200):
        _launch(export, main, start * US)
    path = write(export)
    (device,) = analysis(path).report.devices
    assert [int(row["Duration (ns)"]) for row in nvidia.rows(path, "gpu_gaps")] == [169 * US]
    assert (device.gaps.count, device.gaps.total_ns) == (2, (169 + 469) * US)


def test_calls_that_repeat_or_nest_count_once(nvidia: NsysReports, write: Write) -> None:
    """A backtrace row repeats its call; a driver call inside a runtime call is the same call, seen twice."""
    export = Export()
    main = export.thread(pid=5)
    call = export.api(main, 0, 5 * US, "cudaLaunchKernel_v7000")
    export.kernel(call, 9 * US, 20 * US)
    export.api(main, 0, 5 * US, "cudaLaunchKernel_v7000", correlation=call.correlation, event_class=67)
    export.api(main, 30 * US, 60 * US, "cudaMemcpy_v3020")
    inner = export.api(main, 31 * US, 59 * US, "cuMemcpyHtoD_v2")
    export.memcpy(inner, 40 * US, 50 * US)
    path = write(export)
    theirs = {row["Name"]: int(row["Num Calls"]) for row in nvidia.rows(path, "cuda_api_sum")}
    assert theirs == {"cudaLaunchKernel": 2, "cudaMemcpy": 1, "cuMemcpyHtoD_v2": 1}
    assert len(nvidia.rows(path, "cuda_kern_exec_trace")) == 2  # one kernel
    (device,) = analysis(path).report.devices
    root = analysis(path).report.regions[0]
    assert (root.api.calls, root.api.total_ns) == (2, 35 * US)
    assert device.kernels.count == 1
    assert root.launch_latency is not None
    assert root.launch_latency.median_ns == (9 + 10) * US / 2  # the copy's, from where cudaMemcpy began


def test_correlation_ids_are_the_processes_own(nvidia: NsysReports, write: Write) -> None:
    """Two processes use the same id. NVIDIA's rule joins by the id alone and lists each copy twice."""
    export = Export()
    for device in (0, 1):
        thread = export.thread(pid=5 + device)
        call = export.api(thread, 11 * US, 15 * US, "cudaMemcpyAsync_v3020")
        export.memcpy(call, (20 + device) * US, (30 + device) * US, device=device)
    path = write(export)
    assert len(nvidia.rows(path, "cuda_memcpy_async")) == 4
    devices = analysis(path).report.devices
    assert [device.memcpy["HtoD"].pageable_count for device in devices] == [1, 1]


def test_a_range_left_open_ends_with_the_trace(nvidia: NsysReports, write: Write) -> None:
    """For NVIDIA it ends with the last NVTX event, of whatever kind: often long before the program does."""
    export = Export()
    main = export.thread(pid=5)
    export.nvtx(main, 0, None, "training")
    export.nvtx(main, 10 * US, 60 * US, "step")
    _launch(export, main, 20 * US)
    _launch(export, main, 500 * US)
    path = write(export)
    theirs = {row["Range"]: int(row["Total Time (ns)"]) for row in nvidia.rows(path, "nvtx_sum")}
    assert theirs == {"training": 60 * US, "step": 50 * US}
    training = _region(analysis(path), "training")
    assert (training.host.total_ns, training.open_instances) == (540 * US, 1)
    assert training.kernels.count == 2


def test_a_device_clock_that_is_off_is_corrected_for_attribution_only(nvidia: NsysReports, write: Write) -> None:
    """NVIDIA reports negative latencies' times as they are. boundby's windows keep the trace's own times, too."""
    export = Export()
    main = export.thread(pid=5)
    for number in range(50):
        call = export.api(main, number * 100 * US, (number * 100 + 5) * US, "cudaLaunchKernel_v7000")
        export.kernel(call, (number * 100 - 150) * US, (number * 100 - 120) * US)
    path = write(export)
    first = min(int(row["Kernel Start (ns)"]) for row in nvidia.rows(path, "cuda_kern_exec_trace"))
    (device,) = analysis(path).report.devices
    assert device.window.start_ns == first == -150 * US
    assert device.clock_shift_ns > 150 * US
    assert device.launch_latency is not None
    assert device.launch_latency.median_ns == device.clock_shift_ns - 150 * US
    assert [warning.code for warning in analysis(path).report.trace.warnings] == ["clock-skew"]


def test_a_start_end_range_owns_only_what_no_push_pop_range_does(nvidia: NsysReports, write: Write) -> None:
    """Time has one owner, so its kernels do, too: the push/pop range. NVIDIA counts them in both."""
    export = Export()
    main = export.thread(pid=5)
    _start_end(export, main, -US, 250 * US, "epoch")
    export.nvtx(main, 99 * US, 190 * US, "forward")
    for start in (0, 100, 200):
        _launch(export, main, start * US)
    path = write(export)
    theirs = {row["NVTX Range"]: int(row["Kern Inst"]) for row in nvidia.rows(path, "nvtx_kern_sum")}
    assert theirs == {"epoch": 3, "forward": 1}
    kernels = {region.path: region.kernels.count for region in analysis(path).report.regions}
    assert kernels == {(): 3, ("epoch",): 2, ("forward",): 1}


@pytest.mark.parametrize("kind", ["start/end", "other domain"])
def test_projections_hold_all_work_launched_inside(nvidia: NsysReports, write: Write, kind: str) -> None:
    """No difference wanted: a projected range spans all work launched inside the range."""
    export = Export()
    main = export.thread(pid=5)
    if kind == "start/end":
        _start_end(export, main, -US, 250 * US, "outer")
    else:
        export.nvtx(main, -US, 250 * US, "outer")
    export.nvtx(main, 150 * US, 290 * US, "inner", domain="library")
    for start in (0, 100, 200):
        _launch(export, main, start * US)
    path = write(export)
    outer = _region(analysis(path), "outer")
    assert outer.projected is not None
    theirs = _projected(nvidia.rows(path, "nvtx_gpu_proj_trace"), "outer")
    assert [length for _, length in theirs] == [outer.projected.total_ns]


def test_a_sync_is_told_by_its_call_not_by_its_type(nvidia: NsysReports, write: Write) -> None:
    """The codes of sync types changed between versions, so a re-export's labels can be wrong; names are not."""
    export = Export()
    main = export.thread(pid=5)
    _launch(export, main, 0)
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": main.global_pid, "eventId": 0}
    wait = export.api(main, 50 * US, 51 * US, "cudaStreamWaitEvent_v3020")
    export.row(_SYNC, start=50 * US, end=51 * US, correlationId=wait.correlation, syncType=1, **place)
    export.api(main, 60 * US, 90 * US, "cudaStreamSynchronize_v3020")
    export.rows[_SYNC][-1]["syncType"] = 0
    _launch(export, main, 100 * US)
    path = write(export)
    labels = query(
        path, f"SELECT e.label FROM {_SYNC} s JOIN ENUM_CUPTI_SYNC_TYPE e ON e.id = s.syncType ORDER BY start"
    )
    assert labels == [("STREAM_SYNCHRONIZE",), ("EVENT_SYNCHRONIZE",)]  # what the file says of the two calls
    assert len(nvidia.rows(path, "cuda_api_sum")) == 3
    root = analysis(path).report.regions[0]
    assert (root.sync.count, root.sync.blocked_ns) == (1, 30 * US)
