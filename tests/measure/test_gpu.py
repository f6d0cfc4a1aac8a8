"""On a real GPU: events against synchronisation, the naive figure, a planted sync, running out of memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from boundby.measure import compare, devices, latency, methods, stages, throughput, waits

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


@pytest.fixture
def matrix() -> Any:
    return torch.randn(4096, 4096, device="cuda")


def test_events_and_synchronised_agree_within_two_percent_and_naive_is_wrong(matrix: Any) -> None:
    def work(x: Any) -> Any:
        for _ in range(10):
            x = torch.tanh(x @ matrix)
        return x

    found = {one.method: one for one in methods(work, matrix).latencies}
    assert found["synchronised"].median_ns == pytest.approx(found["event"].median_ns, rel=0.02)
    assert found["naive"].median_ns < 0.5 * found["event"].median_ns
    assert found["event"].device.startswith("cuda:")


def test_a_planted_host_sync_is_found(matrix: Any) -> None:
    def work(x: Any) -> Any:
        y = x @ x
        value = y.sum().item()
        return y * value

    found = [mistake for mistake in latency(work, matrix).mistakes if mistake.code == "host-sync"]
    assert len(found) == 1
    assert f"test_gpu.py:{work.__code__.co_firstlineno + 2}" in found[0].message


def test_what_the_cpu_says_beforehand_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "examples"), *sys.path])
    example: Any = __import__("segmentation_loss")
    there = example.batch()
    here = tuple(tensor.cpu() for tensor in there)
    for loss in example.STEPS:
        loss(*there)  # the first call loads code
        assert sorted(waits(loss, *there)) == sorted(waits(loss, *here))


@pytest.mark.parametrize("wait", ["torch.cuda.synchronize()", "torch.cuda.current_stream().synchronize()"])
def test_explicit_waits_are_found_too(matrix: Any, wait: str) -> None:
    def work(x: Any) -> Any:
        y = x @ x
        eval(wait)
        return y

    assert "host-sync" in {mistake.code for mistake in latency(work, matrix).mistakes}
    assert "host-sync" not in {mistake.code for mistake in latency(torch.mm, matrix, matrix).mistakes}


def test_inputs_on_the_cpu_are_found() -> None:
    result = latency(lambda x: x.cuda() * 2, torch.ones(1000), device="cuda")
    assert "cpu-inputs" in {mistake.code for mistake in result.mistakes}


def test_flushing_l2_and_graphs() -> None:
    x = torch.randn(1024, 1024, device="cuda")

    def small(y: Any) -> Any:
        for _ in range(20):
            y = y + 1
        return y

    eager, graph = latency(small, x), latency(small, x, graph=True)
    assert graph.median_ns < eager.median_ns * 1.02
    assert latency(small, x, flush_l2=True).calls_per_sample == 1


def test_memory_ends_the_search_and_is_given_back() -> None:
    free, _ = torch.cuda.mem_get_info()
    each = free // 100
    before = torch.cuda.memory_allocated()

    def hungry(x: Any) -> Any:
        held = torch.empty(x.shape[0] * each, dtype=torch.uint8, device="cuda")
        return held[:1] + 1

    found = throughput(hungry, torch.ones(1, 1, device="cuda"), budget_s=120)
    assert found.stopped_by == "memory"
    assert found.limit is not None
    assert 80 <= found.limit <= 110
    assert found.memory_returned_bytes == 0
    assert torch.cuda.memory_allocated() - before <= 1 << 20


def test_stages_do_not_stall_the_host(matrix: Any) -> None:
    results = []
    for synchronise in (False, True):
        record = stages(synchronise=synchronise)
        for _ in range(20):
            with record("model1"):
                y = matrix @ matrix
            with record("model2"):
                y = y @ matrix
        results.append(record.result())
    loose, tight = results
    assert loose.end_to_end_ns <= tight.end_to_end_ns * 1.05
    assert loose.synchronised_estimate_ns is not None
    assert sum(loose.stages[0].host_ns) < 0.5 * sum(tight.stages[0].host_ns)


def test_the_gpu_pays_for_large_matrices() -> None:
    found = devices(lambda x: x @ x.mT, torch.randn(1, 256, 256), sizes=[1, 64], rtol=1e-2, atol=1e-2)
    assert found.points[-1].gpu_ns is not None
    assert found.points[-1].gpu_ns < found.points[-1].cpu_ns


def test_the_state_of_the_gpu_is_told(matrix: Any) -> None:
    result = latency(torch.mm, matrix, matrix)
    if result.before is None:
        pytest.skip("neither NVML nor nvidia-smi tells")
    assert result.before.temperature_c is not None
    assert compare(result, result).significant is False
