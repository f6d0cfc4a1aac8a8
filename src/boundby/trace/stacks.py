"""Backtraces as column tables: every distinct stack once, as a run of distinct frames, nearest frame first.

They are large and few questions need them, so a ``Trace`` holds them unread (``LazyBacktraces``) until one does.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache
from pathlib import PurePath

import numpy as np
from msgspec import Struct

from boundby.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array
from boundby.model.errors import InputError, OutOfBoundsError
from boundby.model.expressions import expression

#: The text of an NVTX mark that ``boundby profile`` writes of a thread's Python line begins so; JSON follows.
LINE_MARK = "boundby.line "


class StackSource(IntEnum):
    """What a backtrace was taken of."""

    SAMPLE = 0  # a CPU sample: where the thread ran
    CUDA = 1  # a CUDA API call
    OS = 2  # an OS runtime call
    PYTHON = 3  # a thread's Python stack: sampled, or taken at a CUDA call


class Frames(Struct, frozen=True):
    """Distinct frames. ``symbol`` and ``module`` index ``Backtraces.names``; a Python frame's module is its file."""

    symbol: Int32Array
    module: Int32Array
    line: Int32Array  # 0: unknown
    is_resolved: BoolArray  # False: the symbol is only an address
    is_kernel: BoolArray  # runs in the operating system's kernel

    def __len__(self) -> int:
        return len(self.symbol)


class StackEvents(Struct, frozen=True):
    """When which thread was seen with which stack, ordered by source, thread, time, stack."""

    start_ns: Int64Array  # of the sample, or of the call that the stack was taken of
    thread: Int32Array  # index into Trace.threads
    source: Int8Array  # StackSource
    stack: Int32Array

    def __len__(self) -> int:
        return len(self.start_ns)


class Backtraces(Struct, frozen=True):
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

    A report that is about to go (a temporary export) must be loaded before. What cannot be read any more, or is damaged
    (``read`` raises InputError), counts as not captured, and ``problem`` says why.
    """

    def __init__(self, read: Callable[[], Backtraces] = no_backtraces) -> None:
        self._read = read
        self._loaded: Backtraces | None = None
        self.problem: str | None = None  # known once they are loaded

    def load(self) -> Backtraces:
        """All backtraces; later calls answer at once."""
        if self._loaded is None:
            try:
                self._loaded = self._read()
            except (InputError, OutOfBoundsError) as error:
                self._loaded, self.problem = no_backtraces(), error.message
        return self._loaded


NO_BACKTRACES = LazyBacktraces()


# Which frames speak of the program is decided by the frame's binary (or Python file), never by its depth. libm and the
# language runtimes' own work (``operator new``, ``memcpy``) are done on the caller's behalf, so the caller is named.
_INTERPRETER = expression(r"^(?:lib)?python\d[\d.]*\w*(?:$|\.so)|^python$")
_PLUMBING = expression(
    r"^(?:libc|libpthread|ld|libdl|librt|libm|libstdc\+\+|libgcc_s|libunwind|libgomp|libiomp\d?|libomp|libtcmalloc\w*"
    r"|libjemalloc|linux-vdso|libToolsInjection\w*|libcupti|libcuda|libcudart|libnvidia-\w+|libnvToolsExt)"
    r"(?:[-.]\d[\w.+-]*)?(?:-[0-9a-f]+)?(?:$|\.so|-linux)|^libTools|^\[|^linux-vdso|^ld-linux",
)
# Entry points that stand in the program's own binary.
_ENTRY = expression(
    r"^(?:_start|_init|_fini|__libc_\w+|start_thread|__?clone\d?|\[Broken backtraces\]|\[Unknown\]|0x0)$"
)
_LIBRARY_FILE = expression(
    r"(?:^|/)(?:site-packages|dist-packages)/|(?:^|/)lib/python\d[\d.]*/|^<frozen |^<__array_function__"
)


@cache  # few binaries stand in many frames
def file_name(path: str) -> str:
    """The last part of a binary's or a file's path."""
    return PurePath(path).name


@cache
def is_interpreter(module: str) -> bool:
    """True for the Python interpreter's own binary (not its extension modules)."""
    return bool(_INTERPRETER.match(file_name(module)))


def is_plumbing(symbol: str, module: str) -> bool:
    """True for a frame that says nothing about the program: interpreter, C library, kernel, driver, profiler."""
    return is_interpreter(module) or _is_plumbing_binary(module) or bool(_ENTRY.match(symbol))


@cache
def _is_plumbing_binary(module: str) -> bool:
    return bool(_PLUMBING.match(file_name(module)))


def is_user_python(file: str) -> bool:
    """True for a Python file that is neither installed (site-packages) nor part of Python itself."""
    return bool(file) and not _LIBRARY_FILE.search(file)


def describe_frame(stacks: Backtraces, frame: int) -> str:
    """``compute_loss (train.py:42)`` for a Python frame, ``at::native::item [libtorch_cpu.so]`` for another."""
    symbol, module = stacks.symbol(frame), stacks.module(frame)
    line = int(stacks.frames.line[frame])
    if module.endswith((".py", ".pyx")) or line:
        place = f"{file_name(module)}:{line}" if line else file_name(module)
        return f"{symbol} ({place})"
    return f"{symbol} [{file_name(module)}]"
