"""``compare``: differences that are there are found, and those that are not are not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from boundby.measure import (
    Latency,
    MeasureError,
    Methods,
    Options,
    StagesResult,
    compare,
    compare_in_turns,
    comparisons,
    stages,
)
from boundby.model import statistics
from tests.measure import made
from tests.measure.device_model import ModelDevice


def with_blocks(blocks: np.ndarray) -> Latency:
    return replace(made.latency(), block_ns=tuple(int(block) for block in blocks), calls_per_sample=1, mistakes=())


def test_a_difference_is_found() -> None:
    source = np.random.default_rng(1)
    found = compare(with_blocks(source.normal(1e6, 3e4, 60)), with_blocks(source.normal(0.95e6, 3e4, 60)))
    assert found.significant
    assert found.ratio == pytest.approx(0.95, abs=0.01)
    assert found.ratio_low < 0.95 < found.ratio_high
    assert found.p_value is not None
    assert found.p_value < 1e-4
    assert not found.mistakes


def test_no_difference_is_said_to_be_none() -> None:
    source = np.random.default_rng(2)
    found = compare(with_blocks(source.normal(1e6, 3e4, 60)), with_blocks(source.normal(1e6, 3e4, 60)))
    assert found.significant is False
    assert [mistake.code for mistake in found.mistakes] == ["not-significant"]


def test_few_samples_do_not_tell() -> None:
    found = compare(with_blocks(np.full(3, 10)), with_blocks(np.full(3, 20)))
    assert found.significant is None
    assert [mistake.code for mistake in found.mistakes] == ["few-samples"]


@pytest.mark.parametrize("stretch", [1, 10])
def test_equal_functions_seldom_seem_to_differ(stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In stretches of 10 like samples (the machine's state changes slowly) the test alone is wrong in half of all."""
    monkeypatch.setattr(comparisons, "RESAMPLES", 300)
    source = np.random.default_rng(3)

    def series() -> np.ndarray:
        states = np.repeat(source.normal(0, 1, 200 // stretch), stretch)
        return 1e6 * (1 + 0.02 * states + 0.002 * source.normal(0, 1, 200))

    wrong = sum(bool(compare(with_blocks(series()), with_blocks(series())).significant) for _ in range(100))
    assert wrong / 100 < 0.12


def test_unlike_circumstances_are_told() -> None:
    other = replace(made.latency(device="cpu"), mode=None)
    assert [m.code for m in compare(made.latency(), other).mistakes].count("not-alike") == 3


def test_of_several_methods_the_last_counts() -> None:
    assert compare(Methods((made.latency(scale=9), made.latency())), made.latency()).ratio == 1


def test_only_results_of_one_kind_compare() -> None:
    with pytest.raises(MeasureError, match="of kind latency and one of kind throughput cannot be compared"):
        compare(made.latency(), made.throughput())


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"persistence_mode": False}, "persistence modes (True and False)"),
        ({"sm_clock_mhz": 990.0}, "SM clocks, in MHz, (1410 and 990)"),
        ({"throttling": ("hardware slowdown",)}, "throttling (none and hardware slowdown)"),
        ({"performance_state": 2}, "performance states (0 and 2)"),
        ({"sm_clock_mhz": 1400.0}, ""),  # they vary by so much from one moment to the next
        ({"performance_state": None}, ""),
    ],
)
def test_a_gpu_in_another_state_is_told(state: dict[str, Any], told: str) -> None:
    as_it_was = replace(made.COOL, persistence_mode=True, performance_state=0)
    one, other = (replace(made.latency(), after=after) for after in (as_it_was, replace(as_it_was, **state)))
    found = [mistake.message for mistake in compare(one, other).mistakes if mistake.code == "not-alike"]
    assert found == ([f"They were measured with different {told}."] if told else [])
    assert "A: GPU after" in str(compare(one, other))


def test_pipelines_compare_stage_by_stage() -> None:
    def run(model_ns: int) -> StagesResult:
        device = ModelDevice(jitter=0.02)
        record = stages(device=device)
        for _ in range(30):
            with record("model"):
                device.launch(model_ns)
            with record("host"):
                device.work(100_000)
        return record.result()

    found = compare(run(2_000_000), run(1_000_000))
    model, host = found.stages
    assert (model.name, model.clock, model.significant) == ("model", "device", True)
    assert model.low <= model.ratio <= model.high
    assert model.ratio == pytest.approx(0.5, rel=0.02)
    assert (host.clock, host.significant) == ("host", False)
    assert found.b.pass_ns / found.a.pass_ns == pytest.approx(0.5, rel=0.03)
    other = replace(found.b, stages=tuple(replace(stage, name="x") for stage in found.b.stages))
    with pytest.raises(MeasureError, match="no stage in common"):
        compare(found.a, other)
    lacks = compare(found.a, replace(found.b, stages=found.b.stages[:1]))
    assert [stage.name for stage in lacks.stages] == ["model"]
    assert "Only one of them has host" in str(lacks)


def test_in_turns_a_drift_meets_both() -> None:
    """A machine that gets slower all the while: one after the other, equal functions would differ by a third."""
    device = ModelDevice()
    source = random.Random(5)

    def slowing() -> object:
        device.launch(round(1_000_000 * (1 + device.host_ns / 3e9) * source.uniform(0.98, 1.02)))
        return 1

    options = Options(device=device, budget_s=2)
    found = compare_in_turns((slowing, (), options), (slowing, (), options))
    assert found.interleaved_rounds == statistics.FEWEST
    assert found.significant is False
    assert found.ratio == pytest.approx(1, abs=0.07)
    assert len(found.a.block_ns) >= 30


def test_in_turns_on_the_cpu() -> None:
    options = Options(budget_s=0.5)
    found = compare_in_turns((sorted, (list(range(200)),), options), (sorted, (list(range(2000)),), options))
    assert found.significant
    assert found.ratio > 3
