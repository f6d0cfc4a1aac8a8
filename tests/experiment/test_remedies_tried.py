"""What is tried, how outputs are compared, and CUDA as the device, of which here only the calls are known."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from boundby.experiment import judgement, live
from boundby.experiment.inside import trial
from boundby.experiment.inside.delayed_device import SpinningCuda
from boundby.experiment.planning import ExperimentError


def test_only_what_a_wrapper_can_do_is_tried() -> None:
    live.check(["input_free", "host_blocked.workers", "init.allocator"])
    with pytest.raises(ExperimentError, match=r"'cpu\.vectorise' cannot be tried"):
        live.check(["cpu.vectorise"])


def test_every_remedy_is_one_of_the_first_responses() -> None:
    from boundby.rules import remedies

    assert {*live.WHOLE} <= {*remedies.by_key()}


def test_outputs_are_compared_unless_they_differ_by_themselves() -> None:
    assert live._outputs([1.0, 2.0], [1.0, 2.0], [1.0, 2.0]) == "The first 2 losses are equal to the bit."
    assert live._outputs([1.0, 2.0], [1.0, 2.0], [1.0, 1.98]) == "The first 2 losses differ by up to 1 %."
    assert "run to run" in live._outputs([1.0], [1.5], [1.0])
    assert live._outputs([], [], []) == "No losses were seen to compare."


def test_a_difference_of_runs_has_an_interval() -> None:
    saved, margin = live._difference([10.0, 11.0, 12.0], [5.0, 6.0, 7.0])
    assert saved == pytest.approx(5.0)
    assert margin == pytest.approx(2.776 * (2 / 3) ** 0.5, rel=1e-3)


def test_settings_of_the_environment_reach_the_program() -> None:
    env = live.environment(os.environ, "/nowhere", live.Wanted(("true",), remedy="init.lazy-loading"))
    assert env["CUDA_MODULE_LOADING"] == "LAZY"
    assert "CUDA_MODULE_LOADING" not in live.environment({}, "/nowhere", live.Wanted(("true",)))


def test_loaders_are_changed_as_the_remedy_says() -> None:
    given: dict[str, Any] = {}
    trial._LOADER[trial.WORKERS](given)
    trial._LOADER[trial.PREFETCH](given)
    trial._LOADER[trial.PERSISTENT](given)
    trial._LOADER[trial.PINNED](given)
    assert given == {"num_workers": 2, "prefetch_factor": 4, "persistent_workers": True, "pin_memory": True}


class _Event:
    """Of a device on which each call takes a millisecond; as on a real one, times exist once all is done."""

    done = 0
    now = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = -1

    def record(self) -> None:
        _Event.now += 1
        self.at = _Event.now

    def elapsed_time(self, other: _Event) -> float:
        assert 0 <= max(self.at, other.at) <= _Event.done, "not ready"
        return float(other.at - self.at)


def test_cuda_is_delayed_by_spins_that_are_timed() -> None:
    spins: list[int] = []

    def sleep(cycles: int) -> None:
        spins.append(cycles)
        _Event.now += 1

    def synchronize() -> None:
        _Event.done = _Event.now

    names = {"get_device_name": lambda: "a GPU", "synchronize": synchronize, "_sleep": sleep, "Event": _Event}
    device = SpinningCuda(SimpleNamespace(cuda=SimpleNamespace(**names)))
    device.synchronize()
    marks = [device.mark(), device.mark()]
    device.delay(500_000)
    device.delay(0)
    device.synchronize()
    assert device.name == "a GPU"
    assert device.when_ns(marks[1]) - device.when_ns(marks[0]) == 1e6
    assert spins[-1] == 500_000  # calibrated: 2,000,000 cycles in two of these milliseconds
    assert device.delays_ns() == [2e6]
    assert device.delays_ns() == []


def test_a_promise_is_of_steps_without_waits_for_a_core() -> None:
    """10 ms blocked in 100, of which 60 were waits for a core: a quarter of a step with a free one."""
    steps = SimpleNamespace(path=("step",), instances=9, time={"cpu": 90, "host_blocked": 10}, preempted_ns=60)
    report: Any = SimpleNamespace(what_if=(), devices=(), threads=(), regions=(steps,))
    assert judgement.promised_ns(report, "input_free", 4_000_000.0) == (1_000_000, 1_000_000)
    steps.preempted_ns = 100
    assert judgement.promised_ns(report, "input_free", 4_000_000.0) is None
