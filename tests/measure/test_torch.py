"""With torch on the CPU: modes, training, gradients, torch.compile, and agreement with torch.utils.benchmark."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from boundby.measure import DeviceError, Latency, MeasureError, TargetError, devices, latency, throughput
from boundby.measure.device import compiled_graphs

torch: Any = pytest.importorskip("torch")
QUICK: dict[str, Any] = {"budget_s": 0.2}


def codes(result: Latency) -> set[str]:
    return {mistake.code for mistake in result.mistakes}


class Clock:
    """In place of the real one: it goes on when it is read, and when a function says how long it takes."""

    now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 50
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter_ns", clock)
    return clock


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


def test_training_goes_back_too_and_inference_does_not(model: Any) -> None:
    back: list[object] = []
    model[2].register_full_backward_hook(lambda *_: back.append(None))
    latency(model, torch.ones(4, 8), mode="inference", **QUICK)
    assert not back
    training = latency(model, torch.ones(4, 8), mode="training", **QUICK)
    assert back
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


STEP_NS, COMPILED_NS = 2_000_000, 100_000_000


def compiling(function: Any, clock: Clock) -> Any:
    """The compiled function, whose compilation takes its time on this clock."""
    torch.compiler.reset()
    compiled = torch.compile(function, backend="eager", dynamic=False)

    def call(x: Any) -> Any:
        before = compiled_graphs()
        result = compiled(x)
        clock.now_ns += STEP_NS if compiled_graphs() == before else COMPILED_NS
        return result

    return call


def test_compilation_belongs_to_warm_up(clock: Clock) -> None:
    before = compiled_graphs()
    result = latency(compiling(lambda x: (x * 2 + 1).relu(), clock), torch.ones(16), budget_s=1)
    assert compiled_graphs() == before + 1
    assert result.compiled_graphs == 1
    assert result.first_call_ns >= COMPILED_NS
    assert STEP_NS <= result.median_ns <= max(result.samples_ns) < 2 * STEP_NS


def test_recompilation_among_the_samples_is_moved_and_told(clock: Clock) -> None:
    compiled = compiling(lambda x: x * 2, clock)
    calls = 0

    def now_and_then() -> Any:
        nonlocal calls
        calls += 1
        return compiled(torch.ones(3 if calls < 60 else 5))

    result = latency(now_and_then, budget_s=1)
    assert calls > 60
    assert result.compiled_graphs == 2
    assert "recompiled" in codes(result)
    assert max(result.warmup_ns) >= COMPILED_NS
    assert max(result.samples_ns) < 2 * STEP_NS


def test_the_cpu_build_says_that_there_is_no_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(DeviceError, match="no CUDA device here"):
        latency(torch.relu, torch.ones(3), device="cuda")


@pytest.mark.usefixtures("briefly")
def test_throughput_of_a_model(model: Any) -> None:
    found = throughput(model, torch.ones(2, 8), mode="inference", max_batch=4, budget_s=60)
    assert {point.size for point in found.points} >= {1, 2, 4}
    assert {mistake.code for mistake in found.mistakes} <= {"throughput-disagrees"}  # others use the machine, too


@pytest.mark.usefixtures("briefly")
def test_devices_with_the_cpu_build(model: Any) -> None:
    found = devices(model, torch.ones(1, 8), mode="inference", sizes=[1, 2], gpu=None)
    assert len(found.points) == 2


def test_an_unknown_mode(model: Any) -> None:
    with pytest.raises(MeasureError, match="no mode"):
        latency(model, torch.ones(1, 8), mode="sleep")


@pytest.mark.parametrize("each_ns", [2_000, 60_000, 3_000_000])
def test_agreement_with_blocked_autorange(each_ns: int, clock: Clock) -> None:
    """On one clock, with a little noise and now and then a call that takes three times as long. benchmarks/measure.py
    compares both on the machine's."""
    from torch.utils.benchmark import Timer

    chance = random.Random(1)

    def function(x: Any) -> Any:
        clock.now_ns += round(each_ns * (chance.uniform(0.97, 1.03) if chance.random() < 0.98 else 3))
        return x

    timer = Timer("f(x)", timer=lambda: clock() * 1e-9, globals={"f": function, "x": torch.ones(3)})
    theirs = timer.blocked_autorange(min_run_time=0.2)
    assert latency(function, torch.ones(3), budget_s=0.5).median_ns == pytest.approx(1e9 * theirs.median, rel=0.05)


def test_torch_has_the_names_that_the_seam_uses() -> None:
    names = """
        CUDAGraph Event OutOfMemoryError Stream current_device current_stream device_count empty_cache get_device_name
        get_device_properties get_sync_debug_mode graph is_available is_initialized max_memory_allocated
        memory_allocated memory_stats reset_peak_memory_stats set_sync_debug_mode stream synchronize
    """
    assert not [name for name in names.split() if not hasattr(torch.cuda, name)]
    assert callable(torch.cuda.Event.synchronize)
