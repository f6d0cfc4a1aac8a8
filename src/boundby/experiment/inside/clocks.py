"""What a thread's clocks say: how long something took, and how much of that it ran, and could run and had no core."""

from __future__ import annotations

import time
from typing import NamedTuple


class Moment(NamedTuple):
    """A time, and how long this thread had run and had waited for a core until then; or what lies between two."""

    ns: int = 0
    cpu_ns: int = 0
    core_wait_ns: int = 0

    def plus(self, other: Moment) -> Moment:
        """Both together."""
        return Moment(*(one + more for one, more in zip(self, other, strict=True)))

    def minus(self, other: Moment) -> Moment:
        """What is left without the other."""
        return Moment(*(one - less for one, less in zip(self, other, strict=True)))

    @property
    def asleep_ns(self) -> int:
        """Neither did it run nor could it."""
        return max(self.ns - self.cpu_ns - self.core_wait_ns, 0)


def now() -> Moment:
    """This thread's."""
    core_wait_ns = _core_wait_ns()
    return Moment(time.perf_counter_ns(), time.thread_time_ns(), core_wait_ns)


def since(begin: Moment) -> Moment:
    """What this thread has taken since then."""
    return now().minus(begin)


def sleep(ns: int) -> Moment:
    """Sleep, and say for how long: a busy wait would take the core from a loader."""
    begin = now()
    time.sleep(ns / 1e9)
    return since(begin)


def _core_wait_ns() -> int:
    """By the kernel's file on this thread; 0 where there is none."""
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:  # noqa: PTH123
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
