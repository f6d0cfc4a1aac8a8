"""How much time and memory a stage of an analysis may take: one owner of both, asked wherever much work begins.

CPU time of the thread, so that how busy the machine is changes no answer; a wall clock besides, for what waits and does
not work. What is usual is about twenty-five times what reports of any size need: only what was made to take for ever
meets it. Memory is what the process grows by in the stage.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from boundby.model import door
from boundby.model.errors import OutOfBoundsError, OutOfMemoryError, OutOfTimeError
from boundby.model.scale import ANSWER_S, MOST

clock, wall = time.thread_time, time.monotonic
#: At least so much, and a second for so many events or bytes of a file: reports of 10 million kernels need a second for
#: 500,000 events in their longest stage, and are read at 50 MB/s and more.
LEAST_S = ANSWER_S
EVENTS_PER_S, BYTES_PER_S = 20_000, 4 << 20
#: So many times as long may pass by the wall clock: a thread that gets a seventieth of a core still has what is usual.
WALL_FACTOR = 3
#: A stage that knows its events may grow by so much, and by so much for each event. All stages of a report of 10
#: million kernels (25 million events) take 3.7 GB together: 150 bytes an event.
LEAST_BYTES, BYTES_PER_EVENT = 512 << 20, 1_500
#: Less than this of growth is no event's: modules, and what the C library keeps.
NOISE_BYTES = 64 << 20
#: Memory is looked at again after so long: 10 us each time, and no loop fills more than some MB meanwhile.
LOOK_EVERY_S = 0.01
_PAGES = Path("/proc/self/statm")


class _Stage:
    def __init__(self, doing: str, most_s: float, chosen_s: float | None, most_bytes: int | None) -> None:
        self.doing, self.most_s, self.chosen_s, self.most_bytes = doing, most_s, chosen_s, most_bytes
        self.begun_s = clock(), wall()
        self.ends_s = self.begun_s[0] + most_s
        self.begun_bytes = resident() if most_bytes is not None else 0
        self.looked_s = self.begun_s[1]
        self.elsewhere_s = 0.0  # by the wall clock, in stages inside

    def late(self) -> OutOfTimeError | None:
        """The thread has had no more time than has passed, which is known without asking the system."""
        cpu_s, wall_s = self.begun_s
        passed_s = wall() - wall_s
        if passed_s > self.ends_s - cpu_s and clock() > self.ends_s:
            return OutOfTimeError(self.doing, self.most_s)
        if passed_s - self.elsewhere_s > WALL_FACTOR * self.most_s:
            return OutOfTimeError(self.doing, WALL_FACTOR * self.most_s, "waiting and CPU time")
        return None

    def has_grown(self) -> bool:
        if self.most_bytes is None or wall() - self.looked_s < LOOK_EVERY_S:
            return False
        self.looked_s = wall()
        return resident() - self.begun_bytes > self.most_bytes


_current: ContextVar[_Stage | None] = ContextVar("stage", default=None)


def resident() -> int:
    """Bytes of this process in memory; where the system does not tell, the most that there ever were."""
    try:
        with _PAGES.open("rb", buffering=0) as pages:
            return int(pages.read(64).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError, IndexError):
        return _most_ever()


def _most_ever() -> int:
    try:
        import resource
        import sys
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextlib.contextmanager
def stage(
    doing: str,
    *,
    events: int | None = None,
    size: int = 0,
    most_s: float | None = None,
    most_bytes: int | None = None,
    room_bytes: int | None = None,
) -> Iterator[None]:
    """What is done inside takes as much CPU time and memory as is usual for so many events or bytes of a file, and no
    more memory than there is room, or `OutOfBoundsError` is raised where it next asks. ``most_s``, ``most_bytes``: what
    somebody allows in place of that; time in here and in all stages inside. A stage inside has time of its own."""
    outer = _current.get()
    chosen_s = outer.chosen_s if most_s is None and outer is not None else most_s
    parts_s = (events or 0) / EVENTS_PER_S + size / BYTES_PER_S
    usual_s = round(LEAST_S + parts_s)
    usual_bytes = None if events is None else LEAST_BYTES + BYTES_PER_EVENT * events
    bounds = [usual_bytes, room_bytes] if most_bytes is None else [most_bytes]
    bound = min((max(each, NOISE_BYTES) for each in bounds if each is not None), default=None)
    current = _Stage(doing, usual_s if chosen_s is None else chosen_s, chosen_s, bound)
    begun_s, token = (clock(), wall()), _current.set(current)
    try:
        yield
    finally:
        _current.reset(token)
        if outer is not None:
            outer.ends_s += clock() - begun_s[0]
            outer.elsewhere_s += wall() - begun_s[1]


def over() -> OutOfBoundsError | None:
    """What to say if the stage that this is in has had its time or its memory."""
    current = _current.get()
    if current is None:
        return None
    if (late := current.late()) is not None:
        return late
    if current.most_bytes is not None and current.has_grown():
        return OutOfMemoryError(current.doing, current.most_bytes)
    return None


def check() -> None:
    """Raise `OutOfBoundsError` if the stage that this is in has had its time or its memory."""
    if (error := over()) is not None:
        raise error


#: Parameters of glibc's ``mallopt``, both set to the most that it takes: from which size on memory is asked for and
#: given back by itself, and how much that is free stays at the end of the heap.
class _Mallopt(IntEnum):
    MMAP_THRESHOLD = -3
    TRIM_THRESHOLD = -1


_MOST_BYTES = 2**31 - 1


_process = {"is_own": False}


def own_process() -> None:
    """Nobody but boundby works in this process: it may say how the C library uses memory."""
    _process["is_own"] = True


def keep_freed() -> None:
    """Let the C library keep the memory of arrays that are gone for the next ones, in a process of boundby's own. Left
    to itself, glibc gives back what is larger than 32 MB, and every page of the next array is a fault. Best once what
    stays has been read: what reading leaves free before would be holes between that."""
    if sys.platform == "linux" and _process["is_own"]:
        with contextlib.suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            for parameter in _Mallopt:
                mallopt(parameter, _MOST_BYTES)


#: Without --max-memory an analysis may take this part of the machine's memory, or of its container's.
SHARE_OF_MACHINE = MOST
_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class Room(NamedTuple):
    """``from_ns``: all from this instant of the trace's clock on must be read, or nothing is; None: the last part that
    fits will do."""

    most_bytes: int
    from_ns: int | None = None


def machine_bytes() -> int | None:
    """The memory of this machine, or of the container that this runs in; None where neither is told."""
    limits = []
    with contextlib.suppress(ValueError, OSError, AttributeError):  # Windows has no sysconf
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in _CONTAINER:
        with contextlib.suppress(ValueError, OSError):  # "max": no limit
            limits.append(int(door.read_text(file)))
    return min((number for number in limits if number > 0), default=None)
