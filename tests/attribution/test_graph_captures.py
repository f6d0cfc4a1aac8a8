"""Captures of CUDA graphs in one recording, replays in another: by numbers of nodes, by names of kernels, or not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.simulated.full_export import Export

import boundby
from boundby.cli.main import main
from boundby.model.errors import InputError
from boundby.results.report import Report

US, MS = 1_000, 1_000_000
#: What a model launches: layer, kernel, length.
MODEL = [("layer a", "gemm", 1 * MS), ("layer a", "norm", 2 * MS), ("layer b", "gemm", 3 * MS)]
REPLAYS = 10
#: By layer, of all replays.
TIMES = {"layer a": REPLAYS * 3 * MS, "layer b": REPLAYS * 3 * MS}


def _capture(
    path: Path,
    layers: Sequence[str] = ("layer a", "layer a", "layer b"),
    *,
    pid: int = 100,
    numbered: bool = False,
    warm_up: bool = False,
) -> Path:
    """A capture in ranges; its nodes numbered from 10 on, or a run in the same ranges before it, or neither."""
    export = Export()
    thread = export.thread(pid, pid)
    at = 1 * MS

    def forward(*, runs: bool) -> None:
        nonlocal at
        begin = at
        for place, ((_, kernel, length), layer) in enumerate(zip(MODEL, layers, strict=True)):
            since = at
            call = export.api(thread, at + 10 * US, at + 30 * US, "cudaLaunchKernel_v7000")
            if runs:
                export.kernel(call, at + 50 * US, at + 50 * US + length, name=kernel)
            elif numbered:
                export.graph_node(thread, at + 20 * US, 20 + place)
            at += 100 * US
            export.nvtx(thread, since, at, layer)
        export.nvtx(thread, begin - 1, at + 1, "forward")

    if warm_up:
        forward(runs=True)
    at += 20 * MS
    export.api(thread, at, at + 10 * US, "cudaStreamBeginCapture_v10000")
    at += 20 * US
    forward(runs=False)
    export.api(thread, at + 10, at + 10 * US, "cudaStreamEndCapture_v10000")
    if numbered:
        for place in range(len(MODEL)):
            export.graph_node(thread, at + 20 * US + place, 10 + place, 20 + place)
    return export.write(path)


def _replay(path: Path, kernels: Sequence[str] = ("gemm", "norm", "gemm"), *, pid: int = 100) -> Path:
    """Ten launches of a graph of three nodes in steps."""
    export = Export()
    thread = export.thread(pid, pid)
    for step in range(REPLAYS):
        at = (1 + 10 * step) * MS
        export.nvtx(thread, at, at + 9 * MS, f"step {step}")
        call = export.api(thread, at + 10 * US, at + 40 * US, "cudaGraphLaunch_v10000")
        begin = at + 50 * US
        for place, ((_, _, length), kernel) in enumerate(zip(MODEL, kernels, strict=False)):
            export.kernel(call, begin, begin + length, name=kernel, graph_node=10 + place)
            begin += length
        export.api(thread, at + 60 * US, begin + 5 * US, "cudaStreamSynchronize_v3020")
    return export.write(path)


def _layers(report: Report) -> dict[str, int]:
    return {one.path[-1]: one.time["gpu_compute"] for one in report.regions if one.path and "layer" in one.path[-1]}


def _codes(report: Report) -> set[str]:
    return {one.code for one in report.trace.warnings if one.code.startswith("graph-")}


def test_nodes_of_another_recording_of_the_process_are_known_by_their_numbers(tmp_path: Path) -> None:
    capture, replay = _capture(tmp_path / "capture.sqlite", numbered=True), _replay(tmp_path / "replay.sqlite")
    alone = boundby.analyze(replay)
    assert not _layers(alone)
    report = boundby.analyze(replay, captures=[capture])
    assert _layers(report) == TIMES
    assert {one.path for one in report.regions} == {
        *[(), ("step *",), ("step *", "forward")],
        *[("step *", "forward", layer) for layer in TIMES],
    }
    assert report.devices[0].time == alone.devices[0].time
    assert _codes(report) == {"graph-ranges"}


def test_nodes_of_another_process_are_not(tmp_path: Path) -> None:
    capture, replay = _capture(tmp_path / "capture.sqlite", numbered=True), _replay(tmp_path / "r.sqlite", pid=101)
    report = boundby.analyze(replay, captures=[capture])
    assert not _layers(report)
    assert _codes(report) == {"graph-captures-missing"}


def test_numbers_that_another_program_gave_are_no_proof(tmp_path: Path) -> None:
    """The same id of process and the same numbers, but other kernels, or fewer."""
    capture = _capture(tmp_path / "capture.sqlite", numbered=True, warm_up=True)
    for kernels in (["gemm", "norm", "relu"], ["gemm", "norm"]):
        report = boundby.analyze(_replay(tmp_path / f"{len(kernels)}.sqlite", kernels), captures=[capture])
        assert not _layers(report)
        assert _codes(report) == {"graph-captures-missing"}


def test_captures_that_do_not_tell_their_kernels_say_what_would(tmp_path: Path) -> None:
    report = boundby.analyze(_replay(tmp_path / "r.sqlite"), captures=[_capture(tmp_path / "capture.sqlite")])
    assert not _layers(report)
    (told,) = [one.message for one in report.trace.warnings if one.code == "graph-captures-missing"]
    assert "record the run before the capture" in told


def test_kernels_of_a_run_before_the_capture_tell_which_graph_it_is(tmp_path: Path) -> None:
    capture = _capture(tmp_path / "capture.sqlite", warm_up=True)
    report = boundby.analyze(_replay(tmp_path / "replay.sqlite", pid=101), captures=[capture])
    assert _layers(report) == TIMES
    other = boundby.analyze(_replay(tmp_path / "other.sqlite", ["gemm", "norm", "relu"]), captures=[capture])
    assert not _layers(other)
    assert _codes(other) == {"graph-captures-missing"}


def test_captures_that_differ_in_their_ranges_are_ambiguous(tmp_path: Path) -> None:
    first = _capture(tmp_path / "first.sqlite", warm_up=True)
    same = _capture(tmp_path / "same.sqlite", warm_up=True)
    other = _capture(tmp_path / "other.sqlite", ("layer a", "layer b", "layer b"), warm_up=True)
    replay = _replay(tmp_path / "replay.sqlite")
    assert _layers(boundby.analyze(replay, captures=[first, same])) == TIMES
    report = boundby.analyze(replay, captures=[first, other])
    assert not _layers(report)
    (told,) = [one.message for one in report.trace.warnings if one.code == "graph-captures-several"]
    assert "launch what 1 CUDA graph runs, in different ranges" in told


def test_a_folder_that_holds_both_is_read_as_one(tmp_path: Path) -> None:
    _capture(tmp_path / "capture.sqlite", warm_up=True)
    replay = _replay(tmp_path / "replay.sqlite")
    report = boundby.analyze(tmp_path)
    assert report.trace.path == str(replay)
    assert _layers(report) == TIMES
    _replay(tmp_path / "second.sqlite")
    with pytest.raises(InputError, match="holds 3 reports"):
        boundby.analyze(tmp_path)


def test_what_holds_no_capture_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay = _replay(tmp_path / "replay.sqlite")
    assert main(["analyze", str(replay), "--capture", str(replay), "-q"]) == 2
    assert "holds no capture of a CUDA graph" in capsys.readouterr().err
    capture = _capture(tmp_path / "capture.sqlite", warm_up=True)
    assert main(["analyze", str(replay), "--capture", str(capture), "-q"]) == 0
    assert "layer a" in capsys.readouterr().out
    assert main(["what-if", str(replay), "--capture", str(capture), "--region", "*layer b", "-q"]) == 0
    assert boundby.AnalysisOptions(captures=(capture,)).arguments() == f" --capture {capture}"


def _event(name: str, kind: str, begin: int, length: int, **arguments: Any) -> dict[str, Any]:
    place = {"pid": 0, "tid": 7} if kind == "kernel" else {"pid": 5, "tid": 5}
    return {"ph": "X", "cat": kind, "name": name, "ts": begin, "dur": length, "args": arguments, **place}


def _written(path: Path, events: list[dict[str, Any]]) -> Path:
    properties = [{"id": 0, "name": "AMD Instinct MI300X"}]
    with gzip.open(path, "wt") as file:
        json.dump({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}, file)
    return path


def test_pytorch_on_amd_names_the_kernel_of_each_captured_launch(tmp_path: Path) -> None:
    """The replay numbers no nodes; sizes of inputs are those of the capture, unless captures differ in them."""

    def capture(path: Path, rows: int) -> Path:
        events = [_event("hipStreamBeginCapture", "cuda_runtime", 0, 5)]
        for place, (layer, kernel, _) in enumerate(MODEL):
            at = 100 + 100 * place
            events.append(_event(layer, "user_annotation", at, 90))
            sizes = {"Input Dims": [[rows, 64], [64, 32]], "Input type": ["float", "float"]}
            events.append(_event("aten::mm", "cpu_op", at + 10, 60, **sizes))
            launch = {"kernel": kernel, "correlation": place + 1}
            events.append(_event("hipLaunchKernel", "cuda_runtime", at + 20, 20, **launch))
        events.append(_event("hipStreamEndCapture", "cuda_runtime", 900, 5))
        return _written(path, events)

    events = []
    for step in range(REPLAYS):
        at, number = 10_000 * step, 500 + step
        events.append(_event(f"step {step}", "user_annotation", at, 9_000))
        events.append(_event("hipGraphLaunch", "cuda_runtime", at + 10, 40, correlation=number))
        begin = at + 100
        for _, kernel, length in MODEL:
            where = {"device": 0, "stream": 7, "correlation": number}
            events.append(_event(kernel, "kernel", begin, length // US, **where))
            begin += length // US
    replay = _written(tmp_path / "replay.json.gz", events)
    first, second = (capture(tmp_path / f"capture_{rows}.json.gz", rows) for rows in (8, 16))
    report = boundby.analyze(replay, captures=[first])
    assert _layers(report) == TIMES

    def flops(found: Report) -> int:
        return sum(one.work.flops for one in found.regions if one.work and one.path[-1:] == ("aten::mm",))

    assert flops(report) == REPLAYS * 3 * 2 * 8 * 64 * 32
    both = boundby.analyze(tmp_path)
    assert second.is_file()
    assert _layers(both) == TIMES
    assert flops(both) == 0
