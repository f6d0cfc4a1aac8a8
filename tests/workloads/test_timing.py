"""How steps are timed: warm-up apart, events between steps on a GPU, and no wait in between."""

from __future__ import annotations

import sys
import types

import pytest
from examples.workloads import timing
from examples.workloads.timing import EVENTS, WALL, StepTimes, measure


def test_median_p95_and_mean() -> None:
    times = StepTimes(tuple(range(1, 101)), total_ns=10_000, clock=WALL)
    assert (times.median_ns, times.p95_ns, times.mean_ns) == (50, 95, 100)
    assert StepTimes((7,), 7, WALL).p95_ns == 7


def test_warm_up_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    now_ns = 0
    monkeypatch.setattr(timing, "time", types.SimpleNamespace(perf_counter_ns=lambda: now_ns))

    def step(number: int) -> None:
        nonlocal now_ns
        seen.append(number)
        now_ns += 100 if number < 2 else number

    times = measure(step, 3, 2, cuda=False)
    assert seen == [0, 1, 2, 3, 4]
    assert (times.clock, times.step_ns, times.total_ns) == (WALL, (2, 3, 4), 9)


def test_on_a_gpu_events_stand_between_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Event:
        made = 0

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing
            self.number = Event.made
            Event.made += 1

        def record(self) -> None:
            told.append("event")

        def elapsed_time(self, other: Event) -> float:
            assert other.number == self.number + 1
            return 1.5 + self.number

    cuda = types.SimpleNamespace(
        Event=Event, synchronize=lambda: told.append("wait"), is_available=lambda: False, is_initialized=lambda: True
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    times = measure(lambda number: told.append(str(number)), 2, 1, cuda=True)
    assert told == ["0", "wait", "event", "1", "event", "2", "event", "wait"]
    assert times.step_ns == (1_500_000, 2_500_000)
    assert times.clock == EVENTS
