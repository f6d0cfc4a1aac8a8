"""How much time a stage of an analysis may take: one owner of it, asked wherever much work begins.

CPU time of the thread, so that how busy the machine is changes no answer. What is usual is about twenty-five times what
reports of any size need: only what was made to take for ever meets it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar

from boundby.model.errors import OutOfTimeError

clock, wall = time.thread_time, time.monotonic
#: At least so much, and a second for so many events or bytes of a file: reports of 10 million kernels need a second for
#: 500,000 events in their longest stage, and are read at 50 MB/s and more.
LEAST_S, EVENTS_PER_S, BYTES_PER_S = 60.0, 20_000, 4 << 20
#: Plain Python replays so much slower than the native core, in all.
PLAIN = 20


class _Stage:
    def __init__(self, doing: str, most_s: float, chosen_s: float | None) -> None:
        self.doing, self.most_s, self.chosen_s = doing, most_s, chosen_s
        self.begun_s = clock(), wall()
        self.ends_s = self.begun_s[0] + most_s

    def is_over(self) -> bool:
        """The thread has had no more time than has passed, which is known without asking the system."""
        cpu_s, wall_s = self.begun_s
        return wall() - wall_s > self.ends_s - cpu_s and clock() > self.ends_s


_current: ContextVar[_Stage | None] = ContextVar("stage", default=None)


@contextlib.contextmanager
def stage(doing: str, *, events: int = 0, size: int = 0, most_s: float | None = None) -> Iterator[None]:
    """What is done inside takes as much CPU time as is usual for so many events or bytes, or `OutOfTimeError` is raised
    where it next asks. ``most_s`` is what somebody allows in place of the usual, in here and in all stages inside. A
    stage inside has time of its own."""
    from boundby.model.library import core  # which asks for time itself

    outer = _current.get()
    chosen_s = outer.chosen_s if most_s is None and outer is not None else most_s
    usual_s = round(LEAST_S + (events / EVENTS_PER_S + size / BYTES_PER_S) * (PLAIN if core() is None else 1))
    mine = _Stage(doing, usual_s if chosen_s is None else chosen_s, chosen_s)
    begun_s, token = clock(), _current.set(mine)
    try:
        yield
    finally:
        _current.reset(token)
        if outer is not None:
            outer.ends_s += clock() - begun_s


def over() -> OutOfTimeError | None:
    """What to say if the stage that this is in has had its time."""
    mine = _current.get()
    return OutOfTimeError(mine.doing, mine.most_s) if mine is not None and mine.is_over() else None


def check() -> None:
    """Raise `OutOfTimeError` if the stage that this is in has had its time."""
    if (error := over()) is not None:
        raise error
