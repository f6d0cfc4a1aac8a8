"""``throughput`` on the device model: the best batch size, where memory ends, and memory given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from boundby.measure import MeasureError, TargetError, Throughput, throughput
from tests.measure.device_model import ModelDevice, ModelTensor

MB = 1 << 20


class Model:
    """Takes 1 ms and 10 us a sample; holds 10 MB a sample while it runs."""

    def __init__(self, device: ModelDevice, *, best: int = 10**9) -> None:
        self.device, self.best = device, best
        self.tried: list[int] = []

    def __call__(self, x: ModelTensor) -> ModelTensor:
        size = x.shape[0]
        self.tried.append(size)
        held = self.device.tensor(size, 10 * MB // 8)
        self.device.launch(1_000_000 + 10_000 * size + max(0, size - self.best) * 100_000)
        return held

    def inputs(self, size: int) -> tuple[ModelTensor]:
        return (ModelTensor(np.zeros((size, 1)), self.device.name),)


def search(device: ModelDevice, model: Model, **options: Any) -> Throughput:
    return throughput(model, make_inputs=model.inputs, device=device, **options)


@pytest.fixture(autouse=True)
def small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of the model without that of this machine."""

    def tensor(self: ModelDevice, *shape: int) -> ModelTensor:
        from tests.measure.device_model import Memory

        return ModelTensor(np.zeros(1), self.name, Memory(self, 8 * int(np.prod(shape))))

    monkeypatch.setattr(ModelDevice, "tensor", tensor)


def test_memory_ends_the_search_and_is_closed_in_on() -> None:
    device = ModelDevice(memory_bytes=1000 * MB)  # 100 samples fit
    model = Model(device)
    found = search(device, model)
    assert found.stopped_by == "memory"
    assert found.limit is not None
    assert 100 < found.limit <= 100 + 100 // 16 + 1
    largest = max(point.size for point in found.points)
    assert found.limit - largest <= max(1, largest // 16)
    assert found.best.size == largest  # more is always better here
    assert found.best.samples_per_s == pytest.approx(largest / (1e-3 + 1e-5 * largest), rel=0.02)
    assert max(model.tried) <= 128


def test_memory_is_given_back() -> None:
    device = ModelDevice(memory_bytes=1000 * MB)
    found = search(device, Model(device))
    assert device.in_use == 0
    assert found.memory_returned_bytes == 0
    assert device.released >= len(found.points)


def test_memory_that_is_kept_is_told() -> None:
    device = ModelDevice(memory_bytes=1000 * MB)
    kept: list[ModelTensor] = []

    def leaky(x: ModelTensor) -> object:
        device.launch(1_000_000)
        if len(kept) < 40 and x.shape[0] == 4:
            kept.append(device.tensor(MB // 8))
        return x

    found = throughput(leaky, ModelTensor(np.zeros((1, 1)), device.name), device=device, max_batch=8)
    assert found.memory_returned_bytes == 40 * MB


def test_the_peak_is_told_for_each_size() -> None:
    device = ModelDevice(memory_bytes=1000 * MB)
    found = search(device, Model(device), max_batch=8)
    assert [(point.size, point.peak_memory_bytes) for point in found.points if point.size in (1, 8)] == [
        (1, 10 * MB),
        (8, 80 * MB),
    ]


def test_the_best_size_can_lie_inside() -> None:
    device = ModelDevice()
    found = search(device, Model(device, best=96), max_batch=1024)
    assert found.stopped_by == "max_batch"
    assert 88 <= found.best.size <= 104
    assert 96 in {point.size for point in found.points}


def test_a_latency_limit_bounds_it() -> None:
    device = ModelDevice()
    found = search(device, Model(device), latency_limit_ms=1.5)
    assert found.stopped_by == "latency"
    assert 46 <= found.best.size <= 50
    assert found.best.median_ns <= 1_500_000
    assert any(point.median_ns > 1_500_000 for point in found.points)


def test_a_limit_that_nothing_keeps() -> None:
    device = ModelDevice()
    with pytest.raises(MeasureError, match="Even a batch of 1 takes"):
        search(device, Model(device), latency_limit_ms=0.5)


def test_nothing_fits() -> None:
    device = ModelDevice(memory_bytes=5 * MB)
    with pytest.raises(MeasureError, match="does not fit"):
        search(device, Model(device))
    assert device.in_use == 0


def test_a_plateau_ends_it_where_asked() -> None:
    device = ModelDevice()

    def flat(x: ModelTensor) -> object:
        device.launch(1_000_000 * x.shape[0])
        return x

    found = throughput(flat, ModelTensor(np.zeros((1, 1)), device.name), device=device, stop_at_plateau=True)
    assert found.stopped_by == "plateau"
    assert max(point.size for point in found.points) <= 16


def test_another_error_ends_it_with_its_sentence() -> None:
    device = ModelDevice()

    def picky(x: ModelTensor) -> object:
        if x.shape[0] > 20:
            raise ValueError("too many")
        device.launch(1_000_000)
        return x

    found = throughput(picky, ModelTensor(np.zeros((1, 1)), device.name), device=device)
    assert found.stopped_by == "error"
    assert "too many" in found.reason
    assert found.limit == 21
    with pytest.raises(TargetError, match="too many"):
        throughput(picky, ModelTensor(np.zeros((1, 1)), device.name), device=device, start=32)


def test_the_budget_ends_it() -> None:
    device = ModelDevice()
    assert search(device, Model(device), budget_s=2).stopped_by == "budget"


def test_batches_back_to_back_hide_the_host() -> None:
    device = ModelDevice()

    def launches(x: ModelTensor) -> object:
        device.launch(1_000_000, 900_000)
        return x

    found = throughput(launches, ModelTensor(np.zeros((4, 1)), device.name), device=device, start=4, max_batch=4)
    assert found.best.median_ns == pytest.approx(1_900_000, rel=0.02)
    assert found.best.samples_per_s == pytest.approx(4 / 1e-3, rel=0.02)
    assert found.best.samples_per_s == found.best.batches * 4 / found.best.total_ns * 1e9


@pytest.mark.usefixtures("briefly")
def test_on_the_cpu_with_the_real_clock() -> None:
    def work(x: np.ndarray[Any, Any]) -> object:
        return np.tanh(x).sum()

    found = throughput(work, np.ones((1, 200)), device="cpu", max_batch=4, budget_s=60)
    assert {1, 2, 4} <= {point.size for point in found.points}
    assert found.device == "cpu"
    assert found.best.peak_memory_bytes is None


@pytest.mark.parametrize("make", [None])
def test_inputs_without_a_batch(make: Callable[[int], Any] | None) -> None:
    with pytest.raises(MeasureError, match="first dimension"):
        throughput(sorted, [3, 2], make_inputs=make)


def test_sizes_that_make_no_sense() -> None:
    with pytest.raises(MeasureError, match="max_batch is below start"):
        throughput(sorted, np.ones(3), start=8, max_batch=4)


def test_a_disturbed_final_run_is_no_headline() -> None:
    device = ModelDevice(memory_bytes=100 * MB)
    model = Model(device)
    calls = [0]

    def disturbed(x: ModelTensor) -> ModelTensor:
        """From some call on, everything takes three times as long."""
        calls[0] += 1
        if calls[0] > late:
            device.launch(2 * (1_000_000 + 10_000 * x.shape[0]))
        return model(x)

    late = 10**9
    quiet = throughput(disturbed, make_inputs=model.inputs, device=device, max_batch=4)
    assert not [mistake for mistake in quiet.mistakes if mistake.code == "throughput-disagrees"]
    late, calls[0] = calls[0] - 200, 0  # within the final run of the same search
    found = throughput(disturbed, make_inputs=model.inputs, device=device, max_batch=4)
    (told,) = [mistake for mistake in found.mistakes if mistake.code == "throughput-disagrees"]
    table = next(point for point in found.points if point.size == found.best.size)
    assert found.best.samples_per_s < 0.9 * table.samples_per_s
    assert "the middle one is reported" in told.message
