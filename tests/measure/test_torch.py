"""With torch on the CPU: modes, training, gradients, torch.compile, and agreement with torch.utils.benchmark."""

from __future__ import annotations

import time
from typing import Any

import pytest

from boundby.measure import DeviceError, Latency, MeasureError, TargetError, devices, latency, throughput
from boundby.measure.torch_modes import compiled_graphs

torch: Any = pytest.importorskip("torch")
QUICK: dict[str, Any] = {"budget_s": 0.2}


def codes(result: Latency) -> set[str]:
    return {mistake.code for mistake in result.mistakes}


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))


def test_gradient_mode_on_by_accident(model: Any) -> None:
    x = torch.ones(4, 8)
    assert "gradient-mode" in codes(latency(model, x, **QUICK))
    assert "gradient-mode" not in codes(latency(model, x, mode="inference", **QUICK))
    with torch.no_grad():
        assert "gradient-mode" not in codes(latency(model, x, **QUICK))


def test_a_training_step_is_no_accident(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    assert "gradient-mode" not in codes(latency(step, torch.ones(4, 8), **QUICK))


def test_modes_are_put_back(model: Any) -> None:
    model[1].eval()
    seen: list[tuple[bool, bool, bool]] = []
    model.register_forward_hook(
        lambda *_: seen.append((model[1].training, torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
    )
    latency(model, torch.ones(4, 8), mode="inference", **QUICK)
    assert set(seen) == {(False, False, True)}
    seen.clear()
    model[0].weight.grad = marker = torch.ones_like(model[0].weight)
    latency(model, torch.ones(4, 8), mode="training", **QUICK)
    assert set(seen) == {(True, True, False)}
    assert model[0].training
    assert not model[1].training
    assert model[0].weight.grad is marker
    assert model[2].weight.grad is None


def test_training_takes_longer_than_inference() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
    x = torch.ones(64, 256)
    training = latency(model, x, mode="training", **QUICK)
    assert training.median_ns > 1.5 * latency(model, x, mode="inference", **QUICK).median_ns
    assert training.mode == "training"


def test_training_needs_gradients() -> None:
    with pytest.raises(TargetError, match="requires gradients"):
        latency(torch.nn.ReLU(), torch.ones(3), mode="training")


def test_fresh_inputs_keep_what_was_given() -> None:
    x = torch.ones(4, requires_grad=True)
    seen: list[Any] = []

    def double(y: Any) -> Any:
        seen.append(y)
        return y * 2

    latency(double, x, fresh_inputs=True, max_samples=3, min_samples=3, budget_s=0.05)
    assert all(y is not x and y.requires_grad and y.is_leaf for y in seen)
    assert len({y.data_ptr() for y in seen}) == len(seen)


def test_compilation_belongs_to_warm_up() -> None:
    def function(x: Any) -> Any:
        return (x * 2 + 1).relu()

    torch.compiler.reset()
    compiled = torch.compile(function, backend="eager")
    before = compiled_graphs()
    result = latency(compiled, torch.ones(16), **QUICK)
    assert compiled_graphs() == before + 1
    assert result.compiled_graphs == 1
    assert result.first_call_ns > 20 * result.median_ns


def test_recompilation_among_the_samples_is_moved_and_told() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    calls = 0

    def now_and_then() -> Any:
        nonlocal calls
        calls += 1
        time.sleep(0.002)
        return compiled(torch.ones(3 if calls < 60 else 5))

    result = latency(now_and_then, budget_s=1)
    assert result.compiled_graphs == 2
    assert "recompiled" in codes(result)
    assert max(result.samples_ns) < max(result.warmup_ns)


def test_the_cpu_build_says_that_there_is_no_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(DeviceError, match="no CUDA device here"):
        latency(torch.relu, torch.ones(3), device="cuda")


def test_throughput_of_a_model(model: Any) -> None:
    found = throughput(model, torch.ones(2, 8), mode="inference", max_batch=4, budget_s=60)
    assert {point.size for point in found.points} >= {1, 2, 4}
    assert {mistake.code for mistake in found.mistakes} <= {"throughput-disagrees"}  # others use the machine, too


def test_devices_with_the_cpu_build(model: Any) -> None:
    found = devices(model, torch.ones(1, 8), mode="inference", sizes=[1, 2], gpu=None)
    assert len(found.points) == 2


def test_an_unknown_mode(model: Any) -> None:
    with pytest.raises(MeasureError, match="no mode"):
        latency(model, torch.ones(1, 8), mode="sleep")


@pytest.mark.parametrize("name", ["add 16", "softmax 256 x 256", "matmul 256"])
def test_agreement_with_blocked_autorange(name: str) -> None:
    """Tolerant, since tests share the machine: benchmarks/measure.py prints the figures."""
    from benchmarks.measure import functions, ratio

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        function, inputs = functions()[name]
        seen = []
        for _ in range(5):
            seen.append(ratio(function, inputs, rounds=3, seconds=0.2))
            if abs(seen[-1].same_blocks - 1) < max(0.1, seen[-1].noise):
                return
        pytest.fail(f"{name}: {seen}")
    finally:
        torch.set_num_threads(threads)


def test_torch_has_the_names_that_the_seam_uses() -> None:
    names = """
        CUDAGraph Event OutOfMemoryError Stream current_device current_stream device_count empty_cache get_device_name
        get_device_properties get_sync_debug_mode graph is_available is_initialized max_memory_allocated
        memory_allocated memory_stats reset_peak_memory_stats set_sync_debug_mode stream synchronize
    """
    assert not [name for name in names.split() if not hasattr(torch.cuda, name)]
    assert callable(torch.cuda.Event.synchronize)
