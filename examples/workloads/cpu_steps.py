"""A small program without a GPU, annotated with NVTX: steps that load, compute, and hand over to a worker.

Usage: cpu_steps.py [STEPS]; it is also the workload ``cpu_steps``. One step takes 0.1 s: 40 ms asleep in ``load``,
50 ms of Python in ``compute`` (two times ``half``), and 10 ms in ``hand over``, where it waits until the worker thread
has slept through ``store``. The rest of the time the worker waits for its queue.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from boundby.annotate import nvtx_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from examples.workloads.registry import Setup, Step

LOAD_S = 0.040
HALF_S = 0.025
STORE_S = 0.010


def load() -> bytes:
    """Wait as for a slow disk, then read a file."""
    with nvtx_range("load"):
        time.sleep(LOAD_S)
        return Path(__file__).read_bytes()


def compute(data: bytes) -> int:
    """Keep one core busy for a known time, in two halves."""
    total = 0
    with nvtx_range("compute"):
        for _ in range(2):
            with nvtx_range("half"):
                end = time.perf_counter() + HALF_S
                while time.perf_counter() < end:
                    total = (total + sum(data)) % 65521
    return total


class Worker:
    """Stores results on a thread of its own; until it has, whoever hands over waits."""

    def __init__(self) -> None:
        self._results: queue.Queue[int | None] = queue.Queue()
        self._stored = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="worker")
        self._thread.start()

    def hand_over(self, result: int) -> None:
        with nvtx_range("hand over"):
            self._results.put(result)
            self._stored.acquire()

    def stop(self) -> None:
        self._results.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._results.get() is not None:
            with nvtx_range("store"):
                time.sleep(STORE_S)
            self._stored.release()


@contextmanager
def program(_setup: Setup) -> Iterator[Step]:
    """The same as a workload, whose steps are marked by what runs it. A step gives the sum that it handed over."""
    worker = Worker()

    def step(_number: int) -> int:
        result = compute(load())
        worker.hand_over(result)
        return result

    try:
        yield step
    finally:
        worker.stop()


def main(steps: int) -> None:
    """Run the steps."""
    worker = Worker()
    try:
        for _ in range(steps):
            with nvtx_range("step"):
                worker.hand_over(compute(load()))
    finally:  # also on Ctrl-C, or the worker would wait for ever
        worker.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
