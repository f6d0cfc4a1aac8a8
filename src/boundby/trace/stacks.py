"""Backtraces as column tables: every distinct stack once, as a run of distinct frames, nearest frame first.

They are large and few questions need them, so a ``Trace`` holds them unread (``LazyBacktraces``) until one does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]


class StackSource(IntEnum):
    """What a backtrace was taken of."""

    SAMPLE = 0  # a CPU sample: where the thread ran
    CUDA = 1  # a CUDA API call
    OS = 2  # an OS runtime call
    PYTHON = 3  # a thread's Python stack: sampled, or taken at a CUDA call


@dataclass(frozen=True)
class Frames:
    """Distinct frames. ``symbol`` and ``module`` index ``Backtraces.names``; a Python frame's module is its file."""

    symbol: Int32Array
    module: Int32Array
    line: Int32Array  # 0: unknown
    is_resolved: BoolArray  # False: the symbol is only an address
    is_kernel: BoolArray  # runs in the operating system's kernel

    def __len__(self) -> int:
        return len(self.symbol)


@dataclass(frozen=True)
class StackEvents:
    """When which thread was seen with which stack, ordered by source, thread, time, stack."""

    start_ns: Int64Array  # of the sample, or of the call that the stack was taken of
    thread: Int32Array  # index into Trace.threads
    source: Int8Array  # StackSource
    stack: Int32Array

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True)
class Backtraces:
    """All backtraces of a trace. Stack ``s`` is ``frame[first[s]:first[s + 1]]``, the innermost frame first."""

    events: StackEvents
    first: Int64Array  # one more than there are stacks
    frame: Int32Array  # rows of ``frames``
    frames: Frames
    names: tuple[str, ...]

    def __len__(self) -> int:
        """The number of distinct stacks."""
        return len(self.first) - 1

    def frames_of(self, stack: int) -> Int32Array:
        """The frames of one stack, nearest (innermost) first, in the order the profiler recorded."""
        return self.frame[self.first[stack] : self.first[stack + 1]]

    def rows(self, source: StackSource, thread: int | None = None) -> slice:
        """The events of one kind, of one thread or of all."""
        low, high = np.searchsorted(self.events.source, [int(source), int(source) + 1]).tolist()
        if thread is not None:
            inside = np.searchsorted(self.events.thread[low:high], [thread, thread + 1])
            low, high = low + int(inside[0]), low + int(inside[1])
        return slice(low, high)

    def symbol(self, frame: int) -> str:
        """The function's name, or the address where it is not known."""
        return self.names[int(self.frames.symbol[frame])]

    def module(self, frame: int) -> str:
        """The binary (or, of a Python frame, the source file) that the function lies in."""
        return self.names[int(self.frames.module[frame])]


def no_backtraces() -> Backtraces:
    """What a trace without any backtrace holds."""
    none32, none_bool = np.empty(0, np.int32), np.empty(0, bool)
    return Backtraces(
        StackEvents(np.empty(0, np.int64), none32, np.empty(0, np.int8), none32),
        np.zeros(1, np.int64),
        none32,
        Frames(none32, none32, none32, none_bool, none_bool),
        (),
    )


class LazyBacktraces:
    """Backtraces that are read when somebody first asks for them.

    ``read`` may raise InputError if the report has gone or changed since. A report that is about to go (a temporary
    export) must be loaded before.
    """

    def __init__(self, read: Callable[[], Backtraces] = no_backtraces) -> None:
        self._read = read
        self._loaded: Backtraces | None = None

    def load(self) -> Backtraces:
        """All backtraces; later calls answer at once."""
        if self._loaded is None:
            self._loaded = self._read()
        return self._loaded


NO_BACKTRACES = LazyBacktraces()
