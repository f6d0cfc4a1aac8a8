"""``latency`` on the device model: the right figures, and what the wrong ones would have been."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from boundby.measure import DeviceError, Latency, MeasureError, TargetError, latency, methods, methods_by_size
from boundby.measure.sampling import MIN_BLOCK_NS
from tests.measure.device_model import ModelDevice, ModelModule, ModelTensor

KERNEL_NS = 5_000_000


def kernels(device: ModelDevice, count: int = 4, each_ns: int = KERNEL_NS) -> Callable[[], object]:
    def run() -> object:
        for _ in range(count):
            device.launch(each_ns)
        return 1.0

    return run


def codes(result: Latency) -> set[str]:
    return {mistake.code for mistake in result.mistakes}


def test_events_and_synchronised_agree_and_naive_is_wrong() -> None:
    device = ModelDevice(jitter=0.02)
    found = {one.method: one for one in methods(kernels(device), device=device).latencies}
    assert found["event"].median_ns == pytest.approx(4 * KERNEL_NS * 1.01, rel=0.01)
    assert found["synchronised"].median_ns == pytest.approx(found["event"].median_ns, rel=0.02)
    assert found["naive"].median_ns < 0.01 * found["event"].median_ns
    assert "no-synchronisation" in codes(found["naive"])
    assert not codes(found["event"])
    assert not codes(found["synchronised"])
    assert [one.method for one in methods(kernels(device), device=device).latencies] == [
        "naive",
        "synchronised",
        "event",
    ]


def test_what_the_host_took_is_told_beside_it() -> None:
    device = ModelDevice()
    result = latency(kernels(device), device=device)
    assert result.host_ns == pytest.approx(20_000, rel=0.2)
    assert result.method == "event"
    assert result.before is not None
    assert result.before.power_w == 250.0


def test_enough_samples_and_no_more() -> None:
    device = ModelDevice(jitter=0.002)
    result = latency(kernels(device), device=device)
    assert len(result.block_ns) == 30
    assert result.stopped_by == "precision"
    assert result.interval is not None
    assert result.interval.low_ns <= result.median_ns <= result.interval.high_ns
    assert result.interval.confidence >= 0.95


def test_noise_asks_for_more_samples() -> None:
    device = ModelDevice(jitter=0.5)
    result = latency(kernels(device, count=1), device=device, budget_s=30)
    assert len(result.block_ns) > 60
    interval = result.interval
    assert result.stopped_by == "precision"
    assert interval is not None
    assert (interval.high_ns - interval.low_ns) / 2 <= 0.01 * result.median_ns


def test_the_budget_ends_it_and_that_is_said() -> None:
    device = ModelDevice()
    began = device.host_ns
    result = latency(kernels(device, 1, 300_000_000), device=device, budget_s=3)
    assert result.stopped_by == "budget"
    assert len(result.block_ns) == 10
    assert device.host_ns - began < 3e9 * 1.5 + 5 * 3e8
    assert {"few-samples", "not-steady"} <= codes(result)


def test_one_call_longer_than_the_budget_is_one_sample() -> None:
    device = ModelDevice()
    result = latency(kernels(device, 1, 2_000_000_000), device=device, budget_s=1)
    assert len(result.block_ns) == 1
    assert result.std_ns is None
    assert result.interval is None
    assert "one-sample" in codes(result)


def test_short_calls_share_a_sample() -> None:
    device = ModelDevice()
    result = latency(kernels(device, 1, 2_000), device=device)
    assert result.calls_per_sample > 20
    assert min(result.block_ns) >= MIN_BLOCK_NS / 2
    # Back to back, the host is the slower one.
    assert result.median_ns == pytest.approx(5_000, rel=0.1)


def test_the_number_of_calls_can_be_chosen() -> None:
    device = ModelDevice()
    result = latency(kernels(device), device=device, calls_per_sample=7)
    assert result.calls_per_sample == 7
    assert result.median_ns == pytest.approx(4 * KERNEL_NS, rel=0.01)


@pytest.mark.parametrize("slow", [3, 6, 9, 12, 20])
def test_warm_up_waits_until_calls_are_quick(slow: int) -> None:
    device = ModelDevice(jitter=0.01)
    calls = 0

    def slow_at_first() -> object:
        nonlocal calls
        calls += 1
        device.launch(30_000_000 if calls <= slow else 1_000_000)
        return calls

    result = latency(slow_at_first, device=device)
    assert result.is_steady
    assert result.warmup_calls >= slow
    assert max(result.samples_ns) < 1_100_000
    assert max(*result.warmup_ns, result.first_call_ns) > 29_000_000
    assert result.first_call_ns == pytest.approx(30_000_000, rel=0.01)


def test_without_warm_up_the_first_call_is_a_sample_and_the_result_says_so() -> None:
    device = ModelDevice(jitter=0.001)
    calls = 0

    def slow_at_first() -> object:
        nonlocal calls
        calls += 1
        device.launch(900_000_000 if calls == 1 else 1_000_000)
        return calls

    result = latency(slow_at_first, device=device, warmup=False)
    assert result.samples_ns[0] > 8e8
    assert result.first_call_ns == result.block_ns[0]
    assert result.warmup_calls == 0
    assert result.warmup_ns == ()
    assert "no-warm-up" in codes(result)


def test_a_fixed_warm_up_is_what_was_asked_for() -> None:
    device = ModelDevice()
    result = latency(kernels(device), device=device, warmup=3)
    assert result.is_steady is None
    assert result.warmup_calls == 3 + 3  # the first call, the watched one, and one that shows how long a block is


def test_a_planted_host_sync_is_found_where_it_is() -> None:
    device = ModelDevice()

    def with_item() -> object:
        device.launch(KERNEL_NS)
        value = device.item()
        device.launch(KERNEL_NS)
        return value

    (found,) = (mistake for mistake in latency(with_item, device=device).mistakes if mistake.code == "host-sync")
    line = with_item.__code__.co_firstlineno + 2
    assert f"test_latency.py:{line}" in found.message
    assert "once" in found.message


def test_inputs_and_parameters_on_the_cpu_are_found() -> None:
    device = ModelDevice()
    model = ModelModule()

    def run(x: ModelTensor) -> object:
        device.launch(KERNEL_NS)
        return model(x)

    result = latency(run, ModelTensor(np.ones(3)), device=device)
    assert {"cpu-inputs", "cpu-parameters"} <= codes(result)
    there = model.to("cuda:0")
    assert there is model
    assert not codes(latency(run, ModelTensor(np.ones(3), "cuda:0"), device=device))


def test_the_l2_cache_is_flushed_before_each_call() -> None:
    device = ModelDevice()
    warm = latency(kernels(device, 1, 1_000_000), device=device)
    cold = latency(kernels(device, 1, 1_000_000), device=device, flush_l2=True)
    assert cold.calls_per_sample == 1
    assert device.flushes >= len(cold.block_ns)
    assert cold.median_ns == pytest.approx(1.5 * warm.median_ns, rel=0.02)


def test_fresh_inputs_are_copies_made_before_the_clock() -> None:
    device = ModelDevice()
    given = ModelTensor(np.ones(3), "cuda:0")
    seen: list[int] = []

    def run(x: ModelTensor) -> object:
        seen.append(id(x))
        x.data += 1  # works in place
        device.launch(KERNEL_NS)
        return x

    latency(run, given, device=device, fresh_inputs=True, max_samples=5, min_samples=5)
    assert given.data.tolist() == [1, 1, 1]
    made: list[int] = []

    def make() -> tuple[ModelTensor]:
        device.work(50_000_000)  # costs the host, and must not be in the figure
        made.append(1)
        return (ModelTensor(np.ones(3), "cuda:0"),)

    result = latency(run, device=device, fresh_inputs=make, method="synchronised")
    assert len(made) >= len(result.block_ns)
    assert result.median_ns == pytest.approx(KERNEL_NS, rel=0.01)


def test_a_graph_replays_without_the_hosts_launches() -> None:
    device = ModelDevice()
    many = kernels(device, 200, 2_000)
    eager = latency(many, device=device)
    graph = latency(many, device=device, graph=True)
    assert eager.median_ns == pytest.approx(200 * 5_000, rel=0.05)
    assert graph.median_ns == pytest.approx(200 * 2_000, rel=0.1)
    assert graph.graph


def test_throttling_is_told() -> None:
    device = ModelDevice(throttling=("hardware thermal slowdown",))
    assert "throttled" in codes(latency(kernels(device), device=device))


def test_naive_does_not_pile_up_work_without_end() -> None:
    device = ModelDevice(jitter=0.3)
    began = device.host_ns
    latency(kernels(device, 1, 50_000_000), device=device, method="naive", budget_s=2)
    assert device.host_ns - began < 6e9


def test_what_is_noisy_and_what_drifts_is_told() -> None:
    noisy = ModelDevice(jitter=1.0)
    assert "noisy" in codes(latency(kernels(noisy, 1), device=noisy, budget_s=1))
    drifting = ModelDevice()
    calls = 0

    def slower() -> object:
        nonlocal calls
        calls += 1
        drifting.launch(1_000_000 * (1 + max(0, calls - 60) // 4))
        return calls

    assert "drift" in codes(latency(slower, device=drifting, budget_s=0.5))


# On the CPU, with the real clock.


def test_on_the_cpu_it_is_the_wall_clock() -> None:
    result = latency(sorted, [3, 2, 1], budget_s=0.3)
    assert (result.method, result.device, result.host_ns, result.before) == ("wall", "cpu", None, None)
    assert "perf_counter" in result.clock
    assert result.calls_per_sample >= 1  # how many, and how long they take, is the machine's affair
    assert result.median_ns > 0


def test_sleeping_takes_at_least_as_long_as_asked() -> None:
    result = latency(time.sleep, 0.005, budget_s=0.2)  # how much longer is the machine's affair
    assert result.median_ns >= 5e6
    assert result.calls_per_sample == 1


@pytest.mark.parametrize("options", [{"graph": True}, {"flush_l2": True}, {"method": "event"}])
def test_the_cpu_says_what_it_does_not_have(options: dict[str, bool]) -> None:
    with pytest.raises(DeviceError, match="need"):
        latency(sorted, [1], device="cpu", **options)  # type: ignore[arg-type]


def test_all_methods_on_the_cpu_are_one() -> None:
    (only,) = methods(sorted, [1, 2], budget_s=0.05).latencies
    assert only.method == "wall"


def test_lazy_and_empty_results_are_told() -> None:
    assert "lazy-result" in codes(latency(lambda: (n for n in range(10**9)), budget_s=0.05))
    assert "lazy-result" in codes(latency(lambda: map(str, range(10)), budget_s=0.05))
    assert "unused-result" in codes(latency(lambda: None, budget_s=0.05))

    async def later() -> int:
        return 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # never awaited: that is the mistake
        assert "lazy-result" in codes(latency(later, budget_s=0.01, warmup=1, max_samples=3))
        gc.collect()


def test_named_inputs() -> None:
    result = latency(sorted, [1, 2, 3], kwargs={"reverse": True}, budget_s=0.05)
    assert result.median_ns > 0
    assert latency(sorted, [1], kwargs={"reverse": True}, fresh_inputs=True, budget_s=0.05).calls_per_sample <= 64


def test_the_collector_is_put_back() -> None:
    assert gc.isenabled()
    with pytest.raises(TargetError):
        latency(lambda: 1 / 0)
    assert gc.isenabled()


def test_what_the_function_raises_is_one_sentence_and_its_cause() -> None:
    def bad() -> None:
        raise ValueError("no such luck\nand more")

    with pytest.raises(TargetError, match="raised ValueError: no such luck") as caught:
        latency(bad)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "guess"}, "no method"),
        ({"confidence": 1.5}, "confidence"),
        ({"budget_s": 0}, "budget"),
        ({"min_samples": 0}, "1 or more"),
        ({"calls_per_sample": 0}, "1 or more"),
        ({"warmup": -1}, "Warm-up"),
        ({"graph": True, "fresh_inputs": True}, "replays"),
        ({"mode": "sleeping", "device": "cpu"}, "no mode"),
    ],
)
def test_choices_that_make_no_sense(options: dict[str, object], text: str) -> None:
    with pytest.raises(MeasureError, match=text):
        latency(sorted, [1], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["tpu", "mps", "cuda:x"])
def test_devices_that_cannot_be_timed(device: str) -> None:
    with pytest.raises(DeviceError, match="Cannot time on"):
        latency(sorted, [1], device=device)


def test_inputs_on_another_accelerator_are_not_timed_as_if_on_the_cpu() -> None:
    with pytest.raises(DeviceError, match="mps"):
        latency(lambda x: x, ModelTensor(np.ones(2), "mps:0"))


def test_not_callable() -> None:
    with pytest.raises(MeasureError, match="cannot be called"):
        latency(5)  # type: ignore[arg-type]


def test_what_a_copy_inside_the_timed_part_costs() -> None:
    device = ModelDevice()

    @dataclass
    class OnHost(ModelTensor):
        def to(self, device_name: str) -> ModelTensor:
            if self.device == "cpu" != device_name:
                device.launch(30_000)
            return OnHost(self.data, str(device_name))

    def work(x: ModelTensor) -> ModelTensor:
        assert x.device == "cuda:0"
        device.launch(100_000)
        return x

    found = methods(work, OnHost(np.ones(4), "cuda:0"), device=device)
    assert found.copy_ns == pytest.approx(30_000, rel=0.05)
    assert "copy inside" in str(found)
    assert "adds 30." in str(found)
    assert methods(kernels(device), device=device).with_copy is None


def test_where_each_mistake_shows() -> None:
    device = ModelDevice()

    def work(x: ModelTensor) -> ModelTensor:
        device.launch(3_000 * len(x.data))
        return ModelTensor(x.data, device.name)

    found = methods_by_size(work, device.tensor(1, 4), sizes=[256, 1], device=device, budget_s=0.05)
    small, large = (point.methods for point in found.points)
    assert set(small.said) == set(large.said) == {"launches only", "loop, no wait", "no warm-up", "copies inside"}
    assert small.said["launches only"] == pytest.approx(small.best.median_ns, rel=0.1)  # the launch is all of it
    assert large.said["launches only"] < 0.02 * large.best.median_ns
    assert large.loop is not None
    assert large.loop.calls_per_sample > 10
    assert large.said["loop, no wait"] < 0.02 * large.best.median_ns
    shown = " ".join(str(found).split())
    assert "launches only: off by more than 10 % at size 256." in shown
    assert "copies inside: within 10 % at every size." in shown


def test_a_loop_that_would_take_longer_than_the_budget_is_left_out() -> None:
    device = ModelDevice()

    def work() -> object:
        device.launch(20_000_000)
        return 1

    found = methods(work, device=device, budget_s=0.2)
    assert found.loop is None
    assert "loop, no wait" not in found.said
