"""Devices that can be delayed: whatever keeps this protocol (a modelled one; CUDA is refused, see docs/prove.md)."""

from __future__ import annotations

import time
from typing import Any, Protocol


class DelayedDevice(Protocol):
    """A device that works off what it is given, in order, while the host goes on."""

    name: str

    def synchronize(self) -> None:
        """Return when all is done."""

    def delay(self, ns: int) -> None:
        """Put a delay of this length behind what was given so far; 0: none."""

    def delayed_ns(self) -> float:
        """How long such delays took since this was last asked (all is done)."""

    def mark(self) -> Any:
        """Remember when what was given so far is done."""

    def when_ns(self, mark: Any) -> float:
        """When that was (all is done), on any clock."""


def register(device: DelayedDevice) -> bool:
    """Make a device known to the experiment that runs this program; False: none does."""
    for conductor in conductors:
        conductor.device = device
    return bool(conductors)


#: The experiments that run in this process: at most one.
conductors: list[Any] = []


def wait_ns(ns: int) -> int:
    """Sleep, and say for how long: a busy wait would take the core from a loader."""
    begin = time.perf_counter_ns()
    time.sleep(ns / 1e9)
    return time.perf_counter_ns() - begin
