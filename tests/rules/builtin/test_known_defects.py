"""What profilers are known to get wrong is told where the trace shows it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from benchmarks.simulated.full_export import Export

import boundby
from boundby.results.report import Finding
from boundby.simulate.instructions import MS, US, Launch, Loop, Range, Sync, Work, program
from boundby.simulate.kineto import to_kineto
from boundby.simulate.machine import Machine, realise, simulate


def _lost(path: Path) -> list[Finding]:
    return [one for one in boundby.analyze(path).findings if one.rule == "trace-events-lost"]


def _recording(path: Path, dropped: int) -> Path:
    """Twenty steps as PyTorch's profiler records them, without their first kernels."""
    step = Range("step {i}", [Launch("gemm", 1 * MS), Work(50 * US), Sync()])
    trace = to_kineto(simulate(realise(program(Loop(20, [step])), Machine(), 0)))
    kernels = sorted(event["ts"] for event in trace["traceEvents"] if event.get("cat") == "kernel")
    gone = set(kernels[:dropped])
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("cat") != "kernel" or one["ts"] not in gone]
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return path


def test_kernels_dropped_at_the_start_of_a_recording(tmp_path: Path) -> None:
    (told,) = _lost(_recording(tmp_path / "dropped.json.gz", dropped=3))
    assert told.title == "the work of 3 launches before the first operation is not on record"
    assert "pytorch issue 192021" in told.advice[0]


def test_a_whole_recording_tells_of_no_defect(tmp_path: Path) -> None:
    assert not _lost(_recording(tmp_path / "whole.json.gz", dropped=0))


def _graphs(path: Path, mixed: bool) -> Path:
    """Launches of graphs between other kernels. ``mixed``: the work of each second one has the next one's number."""
    export = Export()
    thread = export.thread(100, 100)
    waiting: list[tuple[int, int]] = []
    for number in range(40):
        at = (1 + number) * 2 * MS
        for place in range(6):
            call = export.api(thread, at + place * 20 * US, at + place * 20 * US + 5 * US, "cudaLaunchKernel_v7000")
            export.kernel(call, at + place * 20 * US + 8 * US, at + place * 20 * US + 15 * US, name="small")
        call = export.api(thread, at + 200 * US, at + 220 * US, "cudaGraphLaunch_v10000")
        for begin, end in (*waiting, (at + 230 * US, at + 900 * US)):
            if mixed and number % 2 == 0 and begin > at:
                waiting = [(begin, end)]
                continue
            export.kernel(call, begin, end, graph_node=10, name="in_graph")
            waiting = []
    return export.write(path)


def test_launches_of_graphs_that_are_mixed_up(tmp_path: Path) -> None:
    report = boundby.analyze(_graphs(tmp_path / "mixed.sqlite", mixed=True))
    (told,) = [one.message for one in report.trace.warnings if one.code == "broken-rows"]
    assert "before CUDA 13.1 Update 1 CUPTI mixes up the launches of graphs" in told
    assert not boundby.analyze(_graphs(tmp_path / "right.sqlite", mixed=False)).trace.warnings
