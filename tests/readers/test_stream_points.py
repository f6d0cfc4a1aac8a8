"""What syncs, stream waits and event records say, in the columns of every schema generation."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

from boundby.api import Analysis
from boundby.correlation.correlate import correlate
from boundby.readers import read_trace
from boundby.simulate.nsys_export import GENERATIONS
from boundby.trace.tables import StreamRole, Trace
from tests.support.training import US


def two_streams() -> Export:
    """A kernel on stream 7, its event recorded, waited for by stream 13 and by the host; a sync of a stream."""
    export = Export()
    main = export.thread()
    export.kernel(export.api(main, 0, 5 * US, "cudaLaunchKernel_v7000"), 8 * US, 20 * US)
    export.record(export.api(main, 6 * US, 7 * US, "cudaEventRecord_v3020"), 3, stream=7)
    wait = export.api(main, 8 * US, 9 * US, "cudaStreamWaitEvent_v3020")
    export.stream_wait(wait, 8 * US, 9 * US, 3, stream=13)
    export.kernel(export.api(main, 10 * US, 15 * US, "cudaLaunchKernel_v7000"), 21 * US, 30 * US, stream=13)
    export.api(main, 16 * US, 25 * US, "cudaEventSynchronize_v3020", event=3)
    export.api(main, 26 * US, 35 * US, "cudaStreamSynchronize_v3020", stream=13)
    export.api(main, 36 * US, 37 * US, "cudaDeviceSynchronize_v3020")
    export.stream(main, 7, "null")
    export.stream(main, 13, "non_blocking")
    return export


def told(trace: Trace) -> list[tuple[str, int, int, bool]]:
    """(call, stream, event, is a record) in the order of calls."""
    calls, points = correlate(trace), trace.stream_points
    names = [trace.names[name] for name in calls.name.tolist()]
    found = zip(
        calls.of_point.tolist(),
        points.stream.tolist(),
        points.event.tolist(),
        points.is_record.tolist(),
        strict=True,
    )
    return [(names[call].split("_")[0], stream, event, record) for call, stream, event, record in sorted(found)]


@pytest.mark.parametrize("schema", GENERATIONS)
def test_streams_and_events(schema: str, tmp_path: Path) -> None:
    trace = read_trace(two_streams().write(tmp_path / "x.sqlite", schema))
    records = [("cudaEventRecord", 7, 3, True)] if schema != "2019" else []  # that one had no such table
    assert told(trace) == [
        *records,
        ("cudaStreamWaitEvent", 13, 3, False),
        ("cudaEventSynchronize", -1, 3, False),
        ("cudaStreamSynchronize", 13, -1, False),
        ("cudaDeviceSynchronize", -1, -1, False),
    ]
    roles = zip(trace.streams.stream.tolist(), trace.streams.kind.tolist(), strict=True)
    assert list(roles) == [(7, StreamRole.NULL), (13, StreamRole.INDEPENDENT)]


def test_nothing_told_is_nothing(tmp_path: Path) -> None:
    tables = ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "TARGET_INFO_CUDA_STREAM")
    trace = read_trace(two_streams().write(tmp_path / "x.sqlite", drop=tables))
    assert len(trace.stream_points) == 0
    assert len(trace.streams) == 0
    columns = ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION.eventId", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION.deviceId")
    trace = read_trace(two_streams().write(tmp_path / "y.sqlite", drop=columns))
    assert set(trace.stream_points.event[~trace.stream_points.is_record].tolist()) == {-1}


def two_gpus() -> Export:
    """One process, a kernel on each of two GPUs, and a sync of each: of its stream, and of all that the GPU does."""
    export = Export()
    main = export.thread()
    for gpu in (0, 1):
        at, stream = 100 * US * gpu, 7 + 11 * gpu
        launch = export.api(main, at, at + 5 * US, "cudaLaunchKernel_v7000")
        export.kernel(launch, at + 8 * US, at + 50 * US, device=gpu, stream=stream)
        export.api(main, at + 6 * US, at + 52 * US, "cudaStreamSynchronize_v3020", device=gpu, stream=stream)
        export.api(main, at + 60 * US, at + 61 * US, "cudaDeviceSynchronize_v3020", device=gpu)
    return export


@pytest.mark.parametrize("schema", GENERATIONS)
def test_a_sync_is_of_the_gpu_of_its_context(schema: str, tmp_path: Path) -> None:
    """nsys writes GPU 0 in the row of every sync."""
    trace = read_trace(two_gpus().write(tmp_path / "x.sqlite", schema))
    assert trace.stream_points.device.tolist() == [0, 0, 1, 1]
    report = Analysis(trace, window="all").report
    assert [device.sync.count for device in report.devices] == [2, 2]
