"""Devices that can be delayed: CUDA, by a kernel that spins on the compute stream, and whatever keeps the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

NS_PER_MS = 1e6
#: A spin that is long beside its launch, and short beside a block.
CALIBRATED_CYCLES = 2_000_000


class DelayedDevice(Protocol):
    """A device that works off what it is given, in order, while the host goes on."""

    @property
    def name(self) -> str:
        """As the answer has it."""

    def synchronize(self) -> None:
        """Return when all is done."""

    def delay(self, ns: int) -> None:
        """Put a delay of this length into the work of the step: now, or behind what is given next; 0: none."""

    def delays_ns(self) -> Sequence[float]:
        """How long each such delay took since this was last asked (all is done)."""

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


class SpinningCuda:
    """The current CUDA device. Delays spin on the stream that is current where the step ends."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._base: Any = None
        self._cycles_per_ns = 0.0
        self._spans: list[tuple[Any, Any]] = []

    @property
    def name(self) -> str:
        return str(self._torch.cuda.get_device_name())

    def synchronize(self) -> None:
        if not self._cycles_per_ns:
            self._calibrate()
        self._base = self.mark()
        self._torch.cuda.synchronize()

    def delay(self, ns: int) -> None:
        if ns > 0:
            begin = self.mark()
            self._torch.cuda._sleep(int(ns * self._cycles_per_ns))
            self._spans.append((begin, self.mark()))

    def delays_ns(self) -> Sequence[float]:
        spans, self._spans = self._spans, []
        return [begin.elapsed_time(end) * NS_PER_MS for begin, end in spans]

    def mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def when_ns(self, mark: Any) -> float:
        return float(self._base.elapsed_time(mark)) * NS_PER_MS

    def _calibrate(self) -> None:
        """Cycles a nanosecond: a first spin wakes the clocks, a second one is timed."""
        for _ in range(2):
            begin = self.mark()
            self._torch.cuda._sleep(CALIBRATED_CYCLES)
            end = self.mark()
            self._torch.cuda.synchronize()
        self._cycles_per_ns = CALIBRATED_CYCLES / max(begin.elapsed_time(end) * NS_PER_MS, 1.0)
