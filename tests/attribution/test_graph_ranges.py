"""What runs inside a CUDA graph belongs to the ranges that were open when the graph was captured."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

import boundby
from boundby.results.report import Report
from boundby.simulate.instructions import GraphLaunch, Instruction, Launch, Loop, Node, Range, Sync, Work, program
from boundby.simulate.machine import Machine, realise, simulate
from boundby.simulate.nsys_export import Capture, write_export

MS = 1_000_000
PARTS = {
    "attention": (("qkv", 31_000), ("flash", 52_000)),
    "mlp": (("up", 93_000), ("ncclDevKernel_AllReduce", 40_000)),
}
LAYERS = [f"layers.{number}" for number in range(6)]


def _eager() -> list[Instruction]:
    return [
        Range(
            layer,
            [
                Range(part, [Launch(name, ns, comm="nccl" in name) for name, ns in kernels])
                for part, kernels in PARTS.items()
            ],
        )
        for layer in LAYERS
    ]


def _graphed() -> list[Instruction]:
    return [
        GraphLaunch(
            [
                Node(name, ns, (layer, part))
                for layer in LAYERS
                for part, kernels in PARTS.items()
                for name, ns in kernels
            ]
        )
    ]


def _analyzed(body: list[Instruction], path: Path) -> Report:
    steps = Loop(12, [Range("step {i}", [Work(150_000), *body, Sync()])])
    run = simulate(realise(program(steps, name="model"), Machine(), 0))
    return boundby.analyze(write_export(run, path, capture=Capture(graph_nodes=True)))


def test_a_model_has_the_same_layers_and_times_eager_and_as_a_graph(tmp_path: Path) -> None:
    eager = _analyzed(_eager(), tmp_path / "eager.sqlite")
    graphed = _analyzed(_graphed(), tmp_path / "graphed.sqlite")
    inside = {one.path: one for one in graphed.regions}
    for one in eager.regions:
        again = inside[one.path]
        assert (again.instances, again.kernels.count) == (one.instances, one.kernels.count)
        for cause in ("gpu_compute", "gpu_comm"):
            assert again.time[cause] == pytest.approx(one.time[cause], rel=0.03)
        if len(one.path) > 1:
            assert again.projected_ns == pytest.approx(one.projected_ns, rel=0.03)
            assert again.host_ns < 1_000 * again.instances  # all of its host time is in the launch of the graph
            assert again.verdict.bound == one.verdict.bound
    assert {"graph-ranges"} == {warning.code for warning in graphed.trace.warnings} - {
        warning.code for warning in eager.trace.warnings
    }


def _replayed(path: Path, *, calls_of_capture: bool, clones: int = 1) -> Report:
    """Two layers in a range "forward", which is opened before the capture begins or inside it; then ten replays."""
    export = Export()
    thread = export.thread(100, 100)
    export.nvtx(thread, 0, 9 * MS, "first step")
    if calls_of_capture:
        export.api(thread, 1 * MS, 1 * MS + 9, "cudaStreamBeginCapture_v10000")
        export.api(thread, 8 * MS, 8 * MS + 9, "cudaStreamEndCapture_v10000")
    export.nvtx(thread, 2 * MS, 7 * MS, "forward")
    for layer in range(2):
        begin = (3 + 2 * layer) * MS
        export.nvtx(thread, begin, begin + MS, f"layer {'ab'[layer]}")
        node = 10 + layer
        export.graph_node(thread, begin + 9, node)
        for clone in range(clones):
            export.graph_node(thread, 8 * MS + clone, node + 10 * (clone + 1), node + 10 * clone)
    for step in range(10):
        at = (20 + 5 * step) * MS
        export.nvtx(thread, at, at + 4 * MS, f"step {step}")
        call = export.api(thread, at + 9, at + 20_009, "cudaGraphLaunch_v10000")
        for layer in range(2):
            start = at + MS + layer * MS
            export.kernel(call, start, start + MS, name=f"kernel_{layer}", graph_node=10 + layer + 10 * clones)
    return boundby.analyze(export.write(path, "2023"))


@pytest.mark.parametrize("clones", [1, 3])
def test_ranges_that_were_opened_inside_the_capture_are_kept(clones: int, tmp_path: Path) -> None:
    report = _replayed(tmp_path / "a.sqlite", calls_of_capture=True, clones=clones)
    time = {one.path: one.time["gpu_compute"] for one in report.regions}
    assert time["step *", "forward", "layer a"] == time["step *", "forward", "layer b"] == 10 * MS
    assert time["step *",] == 20 * MS


def test_ranges_around_all_of_a_graph_say_where_it_was_captured(tmp_path: Path) -> None:
    report = _replayed(tmp_path / "a.sqlite", calls_of_capture=False)
    time = {one.path: one.time["gpu_compute"] for one in report.regions}
    assert time["step *", "layer a"] == time["step *", "layer b"] == 10 * MS
    assert ("step *", "forward") not in time


def test_nodes_in_a_circle_belong_to_their_launch(tmp_path: Path) -> None:
    export = Export()
    thread = export.thread(100, 100)
    export.nvtx(thread, 0, 10 * MS, "step")
    export.graph_node(thread, MS, 1, 2)
    export.graph_node(thread, MS, 2, 1)
    call = export.api(thread, 2 * MS, 3 * MS, "cudaGraphLaunch_v10000")
    export.kernel(call, 4 * MS, 5 * MS, graph_node=1)
    report = boundby.analyze(export.write(tmp_path / "a.sqlite", "2023"))
    assert {one.path: one.time["gpu_compute"] for one in report.regions} == {(): MS, ("step",): MS}


GEMM = "ampere_sgemm_128x64_tn"
MATMULS = {"up": (2048, 4096, 16384, 900_000), "down": (2048, 16384, 4096, 1_100_000)}


def _operator(number: int, rows: int, inner: int, columns: int) -> str:
    return f"aten::mm, op_id = {number}, sizes = [[{rows}, {inner}], [{inner}, {columns}]]"


def _on_an_a100(path: Path) -> Report:
    """The same report of a GPU whose peaks are known."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE TARGET_INFO_GPU SET name = 'NVIDIA A100-SXM4-80GB', smCount = 108")
    return boundby.analyze(path)


def test_work_and_roofline_are_the_same_eager_and_as_a_graph(tmp_path: Path) -> None:
    """Operators that were open at the capture lead from each node of a replay to the sizes of its inputs."""
    named = {
        part: (_operator(number, *sizes), ns) for number, (part, (*sizes, ns)) in enumerate(MATMULS.items(), start=7)
    }
    _analyzed(
        [
            Range(part, [Range(operator, [Launch(GEMM, ns)]), Range("scale", [Launch("scale", 40_000)])])
            for part, (operator, ns) in named.items()
        ],
        tmp_path / "eager.sqlite",
    )
    nodes = [
        node
        for part, (operator, ns) in named.items()
        for node in (Node(GEMM, ns, (part, operator)), Node("scale", 40_000, (part, "scale")))
    ]
    _analyzed([GraphLaunch(nodes)], tmp_path / "graphed.sqlite")
    eager, graphed = (_on_an_a100(tmp_path / f"{name}.sqlite") for name in ("eager", "graphed"))
    inside, checked = {one.path: one.work for one in graphed.regions}, 0
    for one in eager.regions:
        if len(one.path) < 2 or one.work is None:
            continue
        part = one.path[1]
        rows, inner, columns, ns = MATMULS[part]
        work = inside[one.path]
        assert work is not None
        checked += 1
        assert work.flops == one.work.flops == one.instances * 2 * rows * inner * columns
        assert work.matmul_flops == one.work.matmul_flops
        assert work.known_ns == pytest.approx(one.instances * ns, rel=0.03)
        assert work.tflops == pytest.approx(one.work.tflops, rel=0.03)
        least_ns = work.flops / 19.5e3  # at the A100's peak of FP32, 19.5 TFLOP/s
        assert work.at_peak_ns == one.work.at_peak_ns == pytest.approx(least_ns, rel=0.01)
        assert work.roofline_fraction == pytest.approx(one.work.roofline_fraction, rel=0.03)
    assert checked == 4
