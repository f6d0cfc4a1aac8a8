"""Step times, measured right: warm-up apart, and the device's work counted where it happens."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from boundby.annotate import steps

EVENTS, WALL = "cuda_event", "perf_counter"


@dataclass(frozen=True)
class StepTimes:
    """The times of the measured steps, by the clock named, and of all of them together by the wall clock."""

    step_ns: tuple[int, ...]
    total_ns: int
    clock: str

    @property
    def median_ns(self) -> int:
        return round(statistics.median(self.step_ns))

    @property
    def p95_ns(self) -> int:
        """The time that 95 % of the steps do not exceed."""
        return sorted(self.step_ns)[math.ceil(0.95 * len(self.step_ns)) - 1]

    @property
    def mean_ns(self) -> int:
        """By the wall clock, from an idle device to an idle device."""
        return round(self.total_ns / len(self.step_ns))


def measure(step: Callable[[int], Any], count: int, warmup: int, *, cuda: bool) -> StepTimes:
    """Run ``warmup`` and then ``count`` steps, marked as such in the trace.

    A call to the device returns before its work is done, so the host's clock around a step tells little. Waiting for
    the device after each step would tell more, but also keep a step from overlapping the next, which the mended
    variants live on. So CUDA events stand between the steps, and are read once all is done.
    """
    clock: _Clock = _EventClock() if cuda else _WallClock()
    begin = time.perf_counter_ns()
    for number in steps(range(warmup + count), warmup=warmup):
        if number == warmup:
            clock.wait()
            begin = time.perf_counter_ns()
            clock.tick()
        step(number)
        if number >= warmup:
            clock.tick()
    clock.wait()
    return StepTimes(clock.intervals(), time.perf_counter_ns() - begin, clock.name)


class _WallClock:
    name = WALL

    def __init__(self) -> None:
        self._ticks: list[int] = []

    def tick(self) -> None:
        self._ticks.append(time.perf_counter_ns())

    def wait(self) -> None:
        """Nothing runs on after it was asked for."""

    def intervals(self) -> tuple[int, ...]:
        return tuple(after - before for before, after in pairwise(self._ticks))


class _EventClock:
    name = EVENTS

    def __init__(self) -> None:
        self._cuda: Any = sys.modules["torch"].cuda
        self._ticks: list[Any] = []

    def tick(self) -> None:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        self._ticks.append(event)

    def wait(self) -> None:
        self._cuda.synchronize()

    def intervals(self) -> tuple[int, ...]:
        pairs = pairwise(self._ticks)
        return tuple(round(before.elapsed_time(after) * 1e6) for before, after in pairs)


_Clock = _WallClock | _EventClock
