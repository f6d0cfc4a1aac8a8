"""A device that is modelled by a thread: it works off what it is given, in order, while the host goes on."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


class Mark:
    """When what was given so far is done."""

    def __init__(self, then: Callable[[int], None] | None = None) -> None:
        self._done = threading.Event()
        self._then = then
        self.ns = 0

    def reach(self) -> None:
        """The device has come this far."""
        self.ns = time.perf_counter_ns()
        self._done.set()
        if self._then is not None:
            self._then(self.ns)

    def wait(self) -> None:
        """Return once the device has come this far."""
        self._done.wait()


class ModelledDevice:
    """Kernels that sleep. Keeps the protocol of `boundby.experiment.inside.delayed_device.DelayedDevice`."""

    name = "a modelled device"

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[tuple[int, bool] | Mark] = queue.SimpleQueue()
        self._delay_ns = 0
        self._delays_ns: list[float] = []
        threading.Thread(target=self._work, daemon=True).start()

    def launch(self, ms: float) -> None:
        """A kernel that takes so long, and behind the first one the delay that was asked for."""
        self._given.put((round(ms * 1e6), False))
        if self._delay_ns:
            self._given.put((self._delay_ns, True))
            self._delay_ns = 0

    def delay(self, ns: int) -> None:
        self._delay_ns = ns

    def mark(self, then: Callable[[int], None] | None = None) -> Mark:
        mark = Mark(then)
        self._given.put(mark)
        return mark

    def synchronize(self) -> None:
        self.mark().wait()

    def delays_ns(self) -> list[float]:
        delays, self._delays_ns = self._delays_ns, []
        return delays

    def when_ns(self, mark: Mark) -> float:
        return float(mark.ns)

    def _work(self) -> None:
        while True:
            given = self._given.get()
            if isinstance(given, Mark):
                given.reach()
                continue
            ns, is_delay = given
            begin = time.perf_counter_ns()
            time.sleep(ns / 1e9)
            if is_delay:
                self._delays_ns.append(time.perf_counter_ns() - begin)


def register(device: ModelledDevice) -> None:
    """Let the experiment that runs this program, if one does, delay the device."""
    inside: Any = sys.modules.get("_boundby_experiment.delayed_device")
    if inside is not None:
        inside.register(device)
