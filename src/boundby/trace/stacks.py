"""Backtraces as column tables: every distinct stack once, as a run of distinct frames, nearest frame first.

They are large and few questions need them, so a ``Trace`` holds them unread (``LazyBacktraces``) until one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache, cached_property
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array, rows_of, unique
from boundby.model.errors import InputError, OutOfBoundsError
from boundby.model.intervals import IntervalSet, Nesting, StepFunction, nest, union
from boundby.model.late import expression, once
from boundby.model.units import US
from boundby.trace.vocabulary.python import Frame, engine_of, is_boundby, is_profiler, read_frame, sleeps_on

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
        """The frames of one stack, nearest (innermost) first, in the order the profiler recorded; none of NOTHING."""
        return self.frame[self.first[stack] : self.first[stack + 1]] if stack >= 0 else self.frame[:0]

    def not_empty(self, stack: Int32Array) -> Int32Array:
        """These stacks (-1: none), but none where one has no frames."""
        return np.where(self.first[stack + 1] > self.first[stack], stack, -1).astype(np.int32)

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

    def of_threads(self, place: Int64Array) -> LazyBacktraces:
        """These backtraces, with another index into ``Trace.threads`` for each thread: shape (threads,)."""

        def read() -> Backtraces:
            stacks = self._read()
            events = replace(stacks.events, thread=place[stacks.events.thread].astype(np.int32))
            order = np.lexsort((events.stack, events.start_ns, events.thread, events.source))
            columns = {name: getattr(events, name)[order] for name in events.__struct_fields__}
            return replace(stacks, events=StackEvents(**columns))

        return LazyBacktraces(read)


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
    """True for a Python file that is neither installed (site-packages) nor part of Python or boundby."""
    return bool(file) and not _LIBRARY_FILE.search(file) and not is_boundby(file)


def describe_frame(stacks: Backtraces, frame: int) -> str:
    """``compute_loss (train.py:42)`` for a Python frame, ``at::native::item [libtorch_cpu.so]`` for another."""
    symbol, module = stacks.symbol(frame), stacks.module(frame)
    line = int(stacks.frames.line[frame])
    if module.endswith((".py", ".pyx")) or line:
        where = f"{file_name(module)}:{line}" if line else file_name(module)
        return f"{symbol} ({where})"
    return f"{symbol} [{file_name(module)}]"


# Python functions from call to return, as stacks: which are open on a thread at an instant, and which is innermost.

#: How far what nests in truth may overlap in PyTorch's traces: in microseconds until 2024, in a double's since.
ROUNDED_NS = US


class FrameStacks:
    """The frames of a trace; columns as of `Intervals`, ordered by thread."""

    def __init__(
        self, start_ns: Int64Array, end_ns: Int64Array, thread: Int32Array, name: Int32Array, names: Sequence[str]
    ) -> None:
        self._start_ns, self._end_ns, self._thread, self._name, self._names = start_ns, end_ns, thread, name, names
        self._best: dict[int, dict[int, tuple[Frame, ...]]] = {}

    def __len__(self) -> int:
        return len(self._start_ns)

    @once
    def rows(self, thread: int) -> slice:
        """The rows of one thread."""
        return rows_of(self._thread, thread)

    @once
    def _nesting(self, thread: int) -> Nesting:
        rows = self.rows(thread)
        return nest(self._start_ns[rows], self._end_ns[rows], ROUNDED_NS)

    def _frame(self, thread: int, row: int) -> Frame:
        """The frame of a row, counted from the thread's first. Those that were open when the recording began bear the
        line that began it: nothing that they did later is of that line."""
        frame = read_frame(self._names[self._name[self.rows(thread).start + row]])
        return replace(frame, line=0) if row < self._open_before(thread) else frame

    @once
    def _open_before(self, thread: int) -> int:
        """How many of a thread's first frames, each within the one before it, led to the profiler's own."""
        parent, names = self._nesting(thread).parent, self._name[self.rows(thread)]
        for row, (around, name) in enumerate(zip(parent.tolist(), names.tolist(), strict=True)):
            if around != row - 1:
                return 0
            if is_profiler(read_frame(self._names[name]).file):
                return row
        return 0

    def innermost(self, thread: int) -> StepFunction:
        """The innermost open frame over time, counted from the thread's first row; NOTHING (-1): none."""
        return self._nesting(thread).innermost

    def covered(self, thread: int) -> IntervalSet:
        """When any frame is open on a thread."""
        rows = self.rows(thread)
        return union(self._start_ns[rows], self._end_ns[rows])

    def within(self, thread: int, function: str) -> IntervalSet:
        """When a thread is in a Python function of this name, or in what it calls."""
        rows = self.rows(thread)
        used = unique(self._name[rows]).tolist()
        named = [name for name in used if (frame := read_frame(self._names[name])).line and frame.function == function]
        is_named = np.isin(self._name[rows], named)
        return union(self._start_ns[rows][is_named], self._end_ns[rows][is_named])

    def asleep(self, thread: int) -> dict[str, IntervalSet]:
        """When a thread's innermost function is one that waits in the operating system, by what on."""
        rows, steps = self.rows(thread), self.innermost(thread)
        if not len(steps.time):
            return {}
        until = np.append(steps.time[1:], steps.time[-1:])
        kind = np.append(self._name[rows], -1)[steps.value]
        return {
            what: union(steps.time[chosen], until[chosen])
            for what, names in self._sleeps.items()
            if (chosen := np.isin(kind, names)).any()
        }

    @cached_property
    def _sleeps(self) -> dict[str, list[int]]:
        """The names in which a thread sleeps, by what on."""
        by_kind: dict[str, list[int]] = {}
        for number in unique(self._name[self._name >= 0]).tolist():
            if what := sleeps_on(self._names[number]):
                by_kind.setdefault(what, []).append(number)
        return by_kind

    def at(self, thread: int, time_ns: int) -> list[Frame]:
        """The frames that are open at an instant, innermost first."""
        nesting = self._nesting(thread)
        row = int(nesting.innermost.at(np.array([time_ns], np.int64))[0])
        frames = []
        while row >= 0:
            frames.append(self._frame(thread, row))
            row = int(nesting.parent[row])
        return frames

    def of_rows(self, thread: int, rows: npt.NDArray[Any]) -> list[Frame]:
        """For each innermost frame (as ``innermost`` counts) the frame that speaks of the program: of those open there
        the innermost of the program's own code, else of a library, else the innermost. What torch works off by itself
        (a backward pass) bears that name, at the line that asked for it."""
        parent = self._nesting(thread).parent
        memo = self._best.setdefault(thread, {})

        def best(row: int) -> Frame:
            chain = []
            while row >= 0 and row not in memo:
                chain.append(row)
                row = int(parent[row])
            above = memo[row] if row >= 0 else ()
            for inner in reversed(chain):
                above = memo[inner] = _prefer(self._frame(thread, inner), above)
            return above[0]

        return [best(row) for row in rows.tolist()]


def _prefer(frame: Frame, above: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frame that speaks of the program, given the one that does so around it."""
    if not above or frame.distance <= above[0].distance:
        return (frame,)
    engine = engine_of(frame.file)
    return (replace(above[0], function=engine),) if engine else above


def own_first(frames: list[Frame]) -> list[Frame]:
    """A stack (innermost first) from the innermost frame of the program's own code outwards, else of a library's."""
    nearest = min((frame.distance for frame in frames), default=0)
    index = next((position for position, frame in enumerate(frames) if frame.distance == nearest), 0)
    return frames[index:]
