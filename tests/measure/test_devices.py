"""``devices``: the CPU with the real clock, the GPU by the device model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boundby.cli.main import main
from boundby.measure import MeasureError, TargetError, devices
from boundby.measure.results import Devices
from boundby.measure.sweeps import break_even
from boundby.measure.values import batch_size, largest_difference, moved, resized
from boundby.results.saved import from_plain, to_plain
from tests.measure.device_model import ModelDevice, ModelModule, ModelTensor

QUICK: dict[str, Any] = {"budget_s": 20}


def test_where_the_gpu_begins_to_pay() -> None:
    device = ModelDevice()

    def work(x: ModelTensor) -> ModelTensor:
        if x.device == "cpu":
            if len(x.data) > 1:
                time.sleep(0.002)  # at least so long, however fast the machine is
            return ModelTensor(np.sort(x.data, axis=0), x.device)
        device.launch(400_000)
        return ModelTensor(np.sort(x.data, axis=0), x.device)

    found = devices(work, ModelTensor(np.random.default_rng(1).random((1, 50))), gpu=device, sizes=[1, 4096], **QUICK)
    small, large = found.points
    assert small.gpu_ns == pytest.approx(400_000, rel=0.05)
    assert small.cpu_ns < 400_000 < large.cpu_ns
    assert small.equal
    assert large.equal
    assert small.largest_difference == 0
    assert found.break_even is not None
    assert 1 < found.break_even < 4096
    assert found.gpu_name == "Model GPU"
    assert not found.mistakes


def test_copies_that_cannot_be_timed_are_not_held_against_the_gpu() -> None:
    device = ModelDevice()

    def make(size: int, where: str) -> Any:
        def work() -> object:
            device.launch(1_000) if where != "cpu" else time.sleep(0.001)
            return size

        return work

    shown = " ".join(str(devices(make=make, gpu=device, sizes=[1, 2], **QUICK)).split())
    assert "the GPU pays at every size from 1 on CPU" in shown
    assert "Copies are not timed: what is timed has no inputs" in shown
    assert "COPIES" not in shown


def test_results_that_differ_are_told() -> None:
    device = ModelDevice()

    def work(x: ModelTensor) -> ModelTensor:
        device.launch(100_000)
        return ModelTensor(x.data + (0.25 if x.device != "cpu" else 0), x.device)

    found = devices(work, ModelTensor(np.ones((1, 3))), gpu=device, sizes=[1, 2], **QUICK)
    assert [point.equal for point in found.points] == [False, False]
    (mistake,) = found.mistakes
    assert mistake.code == "results-differ"
    assert "0.25" in mistake.message


def test_a_module_is_copied_and_stays_where_it_is() -> None:
    device = ModelDevice()
    model = ModelModule(gpu=device)
    found = devices(model, ModelTensor(np.ones((1, 3))), gpu=device, sizes=[1], **QUICK)
    assert found.points[0].equal
    assert model.weight.device == "cpu"


def test_a_function_can_be_built_for_each_device() -> None:
    built: list[str] = []
    gpu = ModelDevice()

    def build(device: str) -> Any:
        built.append(device)
        return ModelModule(device, gpu)

    devices(ModelModule(), ModelTensor(np.ones((1, 3))), build=build, gpu=gpu, sizes=[1], **QUICK)
    assert built == ["cpu", "cuda:0"]


def test_without_a_gpu_it_is_the_cpu_alone() -> None:
    found = devices(np.cumsum, np.ones(8), sizes=[8, 2, 8], budget_s=5)
    assert found.gpu is None
    assert [point.size for point in found.points] == [2, 8]
    assert all(point.gpu_ns is None and point.equal is None for point in found.points)
    assert found.break_even is None


def test_an_error_at_a_larger_size_ends_it() -> None:
    def picky(x: np.ndarray[Any, Any]) -> object:
        if len(x) > 5:
            raise ValueError("too many")
        return x.sum()

    found = devices(picky, np.ones(1), budget_s=5)
    assert [point.size for point in found.points] == [1, 4]
    assert "too many" in found.stopped_by
    with pytest.raises(TargetError, match="too many"):
        devices(picky, np.ones(1), sizes=[6])


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(1, 10.0, 100.0), (10, 100.0, 100.0)], 10.0),
        ([(1, 10.0, 100.0), (100, 1000.0, 100.0)], 10.0),  # straight lines on logarithmic axes meet in the middle
        ([(1, 10.0, 5.0), (10, 100.0, 5.0)], 1.0),
        ([(1, 10.0, 50.0), (10, 20.0, 50.0)], None),
        ([(1, 10.0, 5.0), (10, 20.0, 50.0)], None),  # quicker once, and then not
        ([(1, 20.0, 10.0), (10, 10.0, 100.0), (1000, 1000.0, 10.0)], 10 * 10 ** (2 / 3)),
        ([(1, 10.0, None)], None),
        ([], None),
    ],
)
def test_break_even(points: list[tuple[int, float, float | None]], expected: float | None) -> None:
    assert break_even(points) == (None if expected is None else pytest.approx(expected))


def test_what_makes_no_sense() -> None:
    with pytest.raises(MeasureError, match="first dimension"):
        devices(sorted, [1, 2])
    with pytest.raises(MeasureError, match="Sizes"):
        devices(np.cumsum, np.ones(2), sizes=[0])
    with pytest.raises(MeasureError, match="compared with itself"):
        devices(np.cumsum, np.ones(2), gpu="cpu")


def test_sizes_are_made_by_repeating_samples() -> None:
    inputs = {"x": np.arange(6).reshape(2, 3), "length": np.array([3, 1]), "table": np.ones((5, 5)), "flag": True}
    assert batch_size(inputs) == 2
    grown = resized(inputs, 5)
    assert grown["x"].tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert grown["length"].tolist() == [3, 1, 3, 1, 3]
    assert grown["table"].shape == (5, 5)  # its first dimension is another
    assert grown["flag"] is True
    assert resized((np.arange(4),), 1)[0].tolist() == [0]


def test_results_are_held_against_each_other() -> None:
    ones, off = ModelTensor(np.ones(3)), ModelTensor(np.ones(3) + 1e-7)
    assert largest_difference(ones, ones, 1e-3, 0) == (True, 0.0)
    assert largest_difference([ones, 2], (off, 2.5), 1e-3, 0) == (False, 0.5)
    assert largest_difference(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), 1e-3, 0) == (True, 0.0)
    assert largest_difference(np.array([np.nan]), np.array([1.0]), 1e-3, 0) == (False, float("inf"))
    assert largest_difference(np.ones(2), np.ones(3), 1e-3, 0) == (False, float("inf"))
    assert largest_difference("a", "b", 1e-3, 0) is None
    assert largest_difference(np.array([1 + 2j]), np.array([1 + 2j]), 1e-3, 0) == (True, 0.0)


def test_what_holds_tensors_keeps_its_shape() -> None:
    there = moved({"a": [ModelTensor(np.ones(1)), 3], "b": (ModelTensor(np.ones(1)),)}, "cuda:0")
    assert there["a"][0].device == "cuda:0"
    assert there["a"][1] == 3
    assert isinstance(there["b"], tuple)


def test_what_grows_can_be_the_model_or_the_training() -> None:
    gpu = ModelDevice()
    built: list[tuple[int, str]] = []

    def training(size: int, device: str) -> Any:
        built.append((size, device))

        def loop() -> ModelTensor:
            for _ in range(size):
                if device != "cpu":
                    gpu.launch(50_000)
            return ModelTensor(np.full(1, 1 / size), device)

        return loop

    def loss(result: ModelTensor) -> float:
        return float(result.data[0])

    found = devices(make=training, quality=loss, gpu=gpu, sizes=[1, 4], **QUICK)
    assert built == [(1, "cpu"), (1, "cuda:0"), (4, "cpu"), (4, "cuda:0")]
    assert [(point.cpu_quality, point.gpu_quality) for point in found.points] == [(1.0, 1.0), (0.25, 0.25)]
    assert found.points[1].gpu_ns == pytest.approx(200_000, rel=0.05)
    assert found.points[1].gpu_with_copies_ns is None
    assert found.points[1].equal is None
    assert "CPU 0.25, GPU 0.25" in str(found)
    assert from_plain(Devices, to_plain(found)) == found
    with pytest.raises(MeasureError, match="fn or make"):
        devices(sizes=[1])


def test_a_target_that_takes_a_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.py").write_text(
        "def sums(size, device='cpu'):\n    return (lambda xs: [sum(xs)] * size), (list(range(size)),)\n"
        "def length(result):\n    return len(result)\n"
    )
    arguments = ["measure", "devices", f"{tmp_path / 'b.py'}:sums", "--size", "3", "--size", "5", "-q"]
    assert main([*arguments, "--quality", f"{tmp_path / 'b.py'}:length"]) == 0
    shown = capsys.readouterr().out
    assert "LENGTH" in shown
    assert [line.split()[-1] for line in shown.splitlines()[-2:]] == ["3", "5"]
    assert main(["measure", f"{tmp_path / 'b.py'}:sums", "-q"]) == 2
