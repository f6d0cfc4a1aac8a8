"""Time in which graphs are captured for later is initialization; a recording of nothing else is told as such."""

from __future__ import annotations

from pathlib import Path

from benchmarks.simulated.full_export import Export

import boundby
from boundby.results.report import Report

US, MS = 1_000, 1_000_000


def _captures(path: Path, count: int, replays: int, kernels: int = 40) -> Report:
    """Graphs are captured, a warm-up kernel before each; then each is launched so often."""
    export = Export()
    thread = export.thread(100, 100)
    at = 1 * MS
    for _ in range(count):
        call = export.api(thread, at, at + 5 * US, "cudaLaunchKernel_v7000")
        export.kernel(call, at + 8 * US, at + 200 * US, name="warm_up")
        begin = at + 210 * US
        export.api(thread, begin, begin + 5 * US, "cudaStreamBeginCapture_v10000")
        for place in range(kernels):
            export.api(
                thread, begin + (place + 1) * 50 * US, begin + (place + 1) * 50 * US + 6 * US, "cudaLaunchKernel_v7000"
            )
        at = begin + (kernels + 1) * 50 * US
        export.api(thread, at, at + 5 * US, "cudaStreamEndCapture_v10000")
        at += 20 * US
        for _ in range(replays):
            call = export.api(thread, at, at + 8 * US, "cudaGraphLaunch_v10000")
            export.kernel(call, at + 10 * US, at + 500 * US, graph_node=7, name="replayed")
            export.api(thread, at + 20 * US, at + 510 * US, "cudaStreamSynchronize_v3020")
            at += 520 * US
    return boundby.analyze(export.write(path))


def test_a_recording_of_captures_is_initialization_and_told_as_such(tmp_path: Path) -> None:
    report = _captures(tmp_path / "captures.sqlite", count=30, replays=0)
    (device,) = report.devices
    assert device.verdict.bound == "init"
    assert device.time["init"] > 0.9 * device.idle_ns
    (told,) = [one.message for one in report.trace.warnings if one.code == "stream-capture"]
    assert "1,200 of 1,230 launches are captured into CUDA graphs, and do not run" in told


def test_captures_before_many_replays_are_initialization(tmp_path: Path) -> None:
    report = _captures(tmp_path / "once.sqlite", count=1, replays=60)
    assert report.devices[0].time["init"] > 1.9 * MS
    assert not [one for one in report.trace.warnings if one.code == "stream-capture"]


def test_a_program_that_captures_each_round_anew_works_in_its_captures(tmp_path: Path) -> None:
    report = _captures(tmp_path / "again.sqlite", count=40, replays=1)
    (device,) = report.devices
    assert not device.time["init"]
    assert device.time["cuda_api"] > 0.5 * device.idle_ns
