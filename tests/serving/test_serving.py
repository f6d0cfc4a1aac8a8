"""``boundby serving`` on simulated servers with known answers, and on two real steps checked by hand."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.serving import both
from benchmarks.simulated.full_export import Export
from benchmarks.simulated.server import ENGINES, Batch, Server, draw

import boundby
from boundby.cli.main import main
from boundby.document.serving_document import HIDE, advice
from boundby.model.errors import SelectionError
from boundby.results import saved
from boundby.results.serving_report import ServingReport
from boundby.simulate.instructions import GraphLaunch, Launch, Loop, Node, Range, Sync, Work, item, program
from boundby.simulate.machine import Machine, realise, simulate
from boundby.simulate.nsys_export import Capture, write_export
from tests.support.traces import trace_path

BATCHES = [Batch(0, 0, 30), Batch(2, 512, 0), Batch(0, 0, 30), Batch(1, 64, 12), Batch(0, 0, 60)] * 5


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_kinds_times_and_the_hosts_share_are_right(engine: str, overlaps: bool, tmp_path: Path) -> None:
    server = Server(engine, BATCHES, graphs=not overlaps, overlaps=overlaps, seed=ENGINES.index(engine))  # type: ignore[arg-type]
    for one in both(server, tmp_path):
        assert one.kinds
        assert one.step is None or one.step < 0.01
        assert one.gain < 0.05
    report = boundby.serving(tmp_path / f"server_{server.seed}.json")
    assert report.overlaps == overlaps
    told = " ".join(advice(report))
    assert ("while the device works on the one before" in told) == overlaps
    assert (HIDE[report.engine] in told) != overlaps


@pytest.mark.parametrize("seed", range(2))
def test_drawn_servers(seed: int, tmp_path: Path) -> None:
    for one in both(draw(seed), tmp_path):
        assert one.kinds
        assert (one.step or 0.0) < 0.01
        assert one.gain < 0.05


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    server = Server("vLLM", BATCHES, graphs=True, overlaps=False)
    path = tmp_path_factory.mktemp("server") / "server.sqlite"
    return write_export(server.run(), path, capture=Capture(graph_nodes=True))


def test_a_budget_sums_to_the_time_of_a_step(report: Path) -> None:
    found = boundby.serving(report)
    for one in found.steps:
        assert one.hidden_ns <= one.period_ns
        assert one.gpu_busy_ns <= one.median_ns
        assert one.host_gap_ns is not None
        assert abs(one.host_gap_ns / 500_000 - 1) < 0.05  # the scheduler's work, and the launch into an idle device
        assert (one.graph_fraction > 0.9) == (one.kind == "decode")
    assert {one.path for one in found.steps} == {
        ("decode, 17-32 requests",),
        ("decode, 33-64 requests",),
        ("prefill, 257-512 tokens",),
        ("mixed, 65-128 tokens",),
    }
    assert found.token_ns is not None
    assert found.token_ns[0] <= found.token_ns[1]


@pytest.mark.parametrize("kind", ["terminal", "markdown", "html", "json", "brief"])
def test_every_format_tells_both_kinds(report: Path, kind: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["serving", str(report), "--format", kind, "-o", str(out), "-q"]) == 0
    text = out.read_text(encoding="utf-8")
    assert "decode" in text
    assert "prefill" in text
    if kind == "json":
        assert saved.from_dict(json.loads(text), ServingReport) == boundby.serving(report)


def test_a_program_that_serves_nobody_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "training.sqlite"
    assert main(["simulate", "--pattern", "compute", "-o", str(path), "-q"]) == 0
    assert main(["serving", str(path), "-q"]) == 2
    assert "No steps of a server were found" in capsys.readouterr().err


def test_steps_without_names_are_known_by_what_repeats_and_by_their_attention(tmp_path: Path) -> None:
    layer = [Node("paged_attention_v2_kernel", 40_000), Node("gemm", 60_000)]
    body = Range("step {i}", [Work(200_000), GraphLaunch(layer * 8), *item()])
    run = simulate(realise(program(Loop(12, [body]), name="decode"), Machine(), 0))
    found = boundby.serving(write_export(run, tmp_path / "decode.sqlite", capture=Capture(graph_nodes=True)))
    (one,) = found.steps
    assert (found.named, found.engine, one.kind, one.requests, one.tokens, one.count) == (
        *(False, "", "decode", None, None, 12),
    )
    assert one.graph_fraction > 0.9
    assert found.generated_per_s is None


def _events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def _work(events: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Begin and end of each operation of the GPU, in microseconds."""
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    return sorted((event["ts"], event["ts"] + event["dur"]) for event in events if event["cat"] in kinds)


def test_one_mixed_step_of_vllm_by_hand() -> None:
    path = trace_path("kineto/mi300_vllm_prefill_decode.json.gz")
    found = boundby.serving(path)
    (one,) = found.steps
    assert (found.engine, one.kind, one.requests, one.tokens, one.count) == ("vLLM", "mixed", 46, 8192, 1)
    work = _work(_events(path))
    by_hand_us = max(end for _, end in work) - work[0][0]  # launched long before it begins: the GPU was busy
    assert one.tokens_per_s == pytest.approx(8192e6 / by_hand_us, rel=0.01)
    assert one.bound == "gpu_compute"


def test_one_decode_step_of_sglang_by_hand() -> None:
    path = trace_path("kineto/mi300_sglang_decode_graphs.json.gz")
    found = boundby.serving(path)
    (one,) = found.steps
    assert (found.engine, one.kind, one.requests, one.tokens, one.count) == ("SGLang", "decode", 32, 32, 1)
    events = _events(path)
    step = min(event["ts"] for event in events if event["name"].startswith("execute_"))
    wait = max(event["dur"] for event in events if event["name"] == "hipMemcpyWithStream")
    by_hand_us = max(end for _, end in _work(events)) - step - wait
    assert one.tokens_per_s == pytest.approx(32e6 / by_hand_us, rel=0.01)
    assert one.graph_fraction > 0.95
    assert one.bound == "gpu_compute"


def test_the_phases_of_tensorrt_llms_forward_step(tmp_path: Path) -> None:
    """What lies inside ``[Executor] _forward_step`` is told by phase, prefill and decode apart."""

    def step(number: int, prompts: int, made: int, kernel_us: int) -> Range:
        inner = [
            Range("_prepare_tp_inputs", [Work(300_000)]),
            Range("_forward_step", [Range(f"layer_{layer}", [Launch("gemm", kernel_us * 500)]) for layer in range(2)]),
            Range("_sample_async", [Work(100_000), Launch("sample", 50_000)]),
        ]
        return Range(f"[Executor] _forward_step {number}: {prompts} ctx reqs, {made} gen reqs", [*inner, Sync()])

    steps = [step(number, *((2, 0, 8_000) if number % 5 == 0 else (0, 8, 2_000))) for number in range(20)]
    run = simulate(realise(program(*steps), Machine(), 0))
    found = boundby.serving(write_export(run, tmp_path / "trt.sqlite"))
    by_kind = {one.kind: {phase.name: phase for phase in one.phases} for one in found.steps}
    assert set(by_kind) == {"prefill", "decode"}
    for kind, kernel_ns in (("prefill", 8_000_000), ("decode", 2_000_000)):
        phases = by_kind[kind]
        assert set(phases) == {"_prepare_tp_inputs", "_forward_step", "_sample_async"}
        assert phases["_forward_step"].device_ns == pytest.approx(kernel_ns, rel=0.01)
        assert phases["_prepare_tp_inputs"].host_ns == pytest.approx(300_000, rel=0.1)
        assert phases["_sample_async"].device_ns == pytest.approx(50_000, rel=0.1)
        assert {phase.per_step for phase in phases.values()} == {1.0}


@pytest.mark.parametrize("layered", [True, False])
@pytest.mark.parametrize("node_by_node", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_steps_without_names(seed: int, node_by_node: bool, layered: bool, tmp_path: Path) -> None:
    """By waits, attention and graphs: the same steps and kinds as by names, but for a first one that is two. Ranges of
    layers and around all steps change nothing."""
    server = replace(draw(seed), named=False, layered=layered)
    path = write_export(server.run(), tmp_path / "server.sqlite", capture=Capture(graph_nodes=node_by_node))
    found = boundby.serving(path)
    assert not found.named
    counted = {one.kind: 0 for one in found.steps}
    for one in found.steps:
        counted[one.kind] += one.count
    true = Counter(batch.kind for batch in server.batches[2 * server.overlaps :])
    assert counted == true
    assert any("names no steps" in note for note in found.notes)
    if server.graphs:
        sizes = {batch.generating for batch in server.batches if batch.kind == "decode"}
        named = {one.path[-1] for one in found.steps if one.kind == "decode"}
        assert len(named) == (len(sizes) if node_by_node else 1)


def test_a_training_program_has_no_steps_of_a_server(tmp_path: Path) -> None:
    step = [Launch("flash_fwd_kernel", 100_000), Launch("paged_attention_v2", 50_000), Launch("gemm_backward", 90_000)]
    run = simulate(realise(program(Loop(20, [*step, Sync()])), Machine(), 0))
    report = boundby.analyze(write_export(run, tmp_path / "train.sqlite"))
    assert not any(region.path and region.path[-1].endswith(" step") for region in report.regions)


def test_attention_without_steps_of_a_server_changes_nothing(tmp_path: Path) -> None:
    body = [Range(f"layer {number}", [Launch("attention_kernel", 100_000)]) for number in range(4)]
    run = simulate(realise(program(*body, Sync()), Machine(), 0))
    report = boundby.analyze(write_export(run, tmp_path / "forward.sqlite"))
    assert {region.path for region in report.regions} == {(), ("layer *",)}


def test_the_kind_of_a_step_by_the_sizes_of_its_attention() -> None:
    """No name and no kernel tells: each query of PyTorch's attention has many tokens, read here from the file."""
    path = trace_path("kineto/h100_qwen_chat.json.gz")
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    asked = {
        event["args"]["Input Dims"][0][2]
        for event in events
        if event.get("name") == "aten::scaled_dot_product_attention" and "Input Dims" in event.get("args", {})
    }
    assert asked
    assert min(asked) > 1
    assert [one.kind for one in boundby.serving(path).steps] == ["prefill"]


def _decoding(path: Path, sequences: list[int], *, in_graph: bool = False) -> Path:
    """Steps of a program with ranges for its layers alone: each launches two layers and waits for the tokens."""
    export = Export()
    thread, at = export.thread(100, 100), 1_000_000
    for number in sequences:
        for layer in range(2):
            export.nvtx(thread, at, at + 90_000, f"model.layers.{layer}.attn")
            name = "cudaGraphLaunch_v10000" if in_graph else "cudaLaunchKernel_v7000"
            call = export.api(thread, at + 10_000, at + 20_000, name)
            row = export.kernel(call, at + 30_000, at + 80_000, name="void vllm::paged_attention_v1_kernel<float>(int)")
            row.update(gridX=32, gridY=number, gridZ=1, graphNodeId=7 + layer if in_graph else None)
            at += 100_000
        copy = export.api(thread, at, at + 5_000, "cudaMemcpyAsync_v3020")
        export.memcpy(copy, at + 10_000, at + 12_000, kind="DtoH")
        export.api(thread, at + 6_000, at + 20_000, "cudaStreamSynchronize_v3020")
        at += 500_000
    return export.write(path)


def test_the_grid_of_paged_attention_tells_how_many_requests_decode(tmp_path: Path) -> None:
    found = boundby.serving(_decoding(tmp_path / "eager.sqlite", [13, 13, 12, 13, 13, 13]))
    (one,) = found.steps
    assert one.path == ("decode step",)
    assert (one.kind, one.count, one.requests, one.tokens) == ("decode", 6, 13, 13)
    (part,) = one.phases
    assert (part.name, part.per_step, part.device_ns) == ("model.layers.*.attn", 2, 100_000)
    assert found.generated_per_s
    assert set(found.token_ns or ()) == {700_000.0}
    assert not any("is not known" in note for note in found.notes)


def test_steps_whose_attention_does_both_are_of_unknown_kind(tmp_path: Path) -> None:
    """As with vLLM's piecewise graphs and FlashAttention 3."""
    layer = [GraphLaunch([Node("gemm_qkv", 40_000)]), Launch("flash::FlashAttnFwdSm90", 30_000)]
    run = simulate(realise(program(Loop(12, [*layer * 6, *item(), Work(200_000)])), Machine(), 0))
    found = boundby.serving(write_export(run, tmp_path / "piecewise.sqlite", capture=Capture(graph_nodes=True)))
    (one,) = found.steps
    assert (one.kind, one.path, one.count, one.requests) == ("unknown", ("server step",), 12, None)
    assert any("is not known: their kernels of attention do both" in note for note in found.notes)
    assert found.token_ns is None


def test_divided_keys_are_decoding_where_there_is_one_block_of_queries(tmp_path: Path) -> None:
    """Longer queries are prompts where others decode. A program with no others (of pictures, say) is no server."""

    def attending(path: Path, blocks: list[int]) -> Path:
        export = Export()
        thread, at = export.thread(100, 100), 1_000_000
        for block in blocks:
            call = export.api(thread, at, at + 10_000, "cudaLaunchKernel_v7000")
            name = "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Flash_fwd_params)"
            export.kernel(call, at + 20_000, at + 90_000, name=name).update(gridX=block, gridY=8, gridZ=32)
            export.api(thread, at + 11_000, at + 95_000, "cudaStreamSynchronize_v3020")
            at += 200_000
        return export.write(path)

    found = boundby.serving(attending(tmp_path / "server.sqlite", [4, 1, 1, 1, 4, 1, 1, 1]))
    assert {(one.kind, one.count, one.requests) for one in found.steps} == {("prefill", 2, None), ("decode", 6, None)}
    with pytest.raises(SelectionError, match="No steps of a server"):
        boundby.serving(attending(tmp_path / "pictures.sqlite", [4] * 8))


def test_a_graph_runs_for_the_size_that_it_was_captured_for(tmp_path: Path) -> None:
    found = boundby.serving(_decoding(tmp_path / "graph.sqlite", [16] * 6, in_graph=True))
    assert {one.requests for one in found.steps} == {None}
    assert any("How many requests some steps serve is not known" in note for note in found.notes)


def test_ranges_around_each_step_are_its_steps(tmp_path: Path) -> None:
    """None is found beside them, whatever they are called."""
    body = Range("decode_once", [*(Launch("BatchDecodeWithPagedKVCacheKernel", 90_000) for _ in range(4)), *item()])
    run = simulate(realise(program(Loop(12, [body, Work(100_000)])), Machine(), 0))
    found = boundby.serving(write_export(run, tmp_path / "steps.sqlite"))
    assert [(one.path, one.kind, one.count) for one in found.steps] == [(("decode_once",), "decode", 12)]


def test_steps_without_gpu_work_are_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export = Export()
    thread = export.thread(100, 100)
    for number in range(10):
        export.nvtx(thread, number * 1000, number * 1000 + 900, "execute_context_0(0)_generation_4(4)")
    assert main(["serving", str(export.write(tmp_path / "host.sqlite")), "-q"]) == 2
    told = capsys.readouterr().err
    assert "No GPU work is on record" in told
    assert "--trace-fork-before-exec=true" in told
