"""The line of the user's own program that a call or a stretch of the host's time is of.

It is the innermost frame that the user wrote: none of a framework, of boundby, of the profiler or of the runtime, no
wrapper around everything, no ``main``. A function in C has no line, only its binary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from boundby.evidence.context import Rows, RuleContext, once
from boundby.evidence.operators import has_sources, stacks_of_calls
from boundby.model.arrays import Int64Array, unique
from boundby.model.door import MOST_WRITTEN_BYTES, read_text
from boundby.model.intervals import IntervalSet, contains, cut
from boundby.model.late import expression
from boundby.model.scale import CURVE, HALF, LABEL, NEARLY_ALL
from boundby.results.report import CodeLine
from boundby.trace.stacks import Backtraces, StackSource, file_name, is_interpreter, is_plumbing, is_user_python
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.python import ENGINES, Frame, engine_of, is_boundby

# What the CPU did in given intervals: the functions that most samples fall into.
#
# Three readings of one sample: ``leaf`` is the function the CPU was in; ``user`` the innermost function that is not
# the interpreter's, the C library's, the kernel's, the driver's or the profiler's (see frames.py); ``python`` the
# innermost Python function outside installed packages, of the Python stacks. Where the interpreter itself comes
# first, it runs Python code, and is called so. nsys may take a backtrace of some samples only: the others count by
# the one frame that was recorded of them.

LEVELS = ("leaf", "user", "python")
PYTHON_CODE = "(Python code)"  # the interpreter itself
UNKNOWN = "(unknown)"
_PYTHON_LINE = expression(r"(?:\.py|^In \[\d+\])(?::\d+)?$")  # a file's, or a cell's of a notebook; not told: none
_NAME = expression(r"^[\w.<>]+$")
_TORCH_BINARY = expression(r"^lib(?:torch|c10)")
# Longer names are cut.
LONGEST_SYMBOL = LABEL
_TEMPLATE, _ARGUMENTS = expression(r"<[^<>]*>"), expression(r"\([^()]*\)")


class Hotspot(Struct, frozen=True):
    """A function and the samples that fell into it. ``module``: its binary, or the Python file and line."""

    symbol: str
    module: str
    samples: int
    share: float  # of the samples counted

    @property
    def short_symbol(self) -> str:
        """The function as people call it; of a line of source where it stands."""
        if self.is_engine:
            return self.symbol
        return file_name(self.module) if self.is_source else short_symbol(self.symbol)

    @property
    def place(self) -> str:
        """The function, and of a Python one its file and line: ``forward (model.py:31)``; of a line of source both:
        ``model.py:34 x.item()``."""
        if self.is_source:
            shown = self.symbol if len(self.symbol) <= LONGEST_SYMBOL else f"{self.symbol[: LONGEST_SYMBOL - 3]}..."
            return f"{self.short_symbol} {shown}"
        is_python = _PYTHON_LINE.search(self.module)
        return f"{self.short_symbol} ({file_name(self.module)})" if is_python else self.short_symbol

    @property
    def is_source(self) -> bool:
        """Whether the symbol is a line of Python and no function."""
        is_named = self.is_engine or _NAME.match(self.symbol) is not None
        return _PYTHON_LINE.search(self.module) is not None and not is_named

    @property
    def is_compiled(self) -> bool:
        """Whether it is a function of a binary, no line and no function of Python."""
        return self.symbol != PYTHON_CODE and not self.is_engine and _PYTHON_LINE.search(self.module) is None

    @property
    def is_of_torch(self) -> bool:
        """Whether it is a function of PyTorch's own libraries."""
        return _TORCH_BINARY.search(self.module) is not None

    @property
    def is_of_standard_library(self) -> bool:
        """Whether it is a function of the C++ standard library."""
        return self.short_symbol.startswith("std::")

    @property
    def is_engine(self) -> bool:
        """Whether torch works off there what it was told: a backward pass, an optimizer's step."""
        return self.symbol in ENGINES.values()

    @property
    def label(self) -> str:
        """``decode (libjpeg.so) 61 %``."""
        return f"{self.short_symbol} ({self.module}) {self.share:.0%}"


def short_symbol(symbol: str) -> str:
    """A function's name without template parameters and arguments: ``ns::Class::method``."""
    if symbol == PYTHON_CODE:
        return "Python code"
    short = symbol.replace("(anonymous namespace)::", "")
    for pattern in (_TEMPLATE, _ARGUMENTS):
        while (shorter := pattern.sub("", short)) != short:
            short = shorter
    short = short.removesuffix(" const").strip().rsplit(" ", 1)[-1] or symbol
    return short if len(short) <= LONGEST_SYMBOL else f"...{short[3 - LONGEST_SYMBOL :]}"


def are_sampled(trace: Trace) -> bool:
    """Whether `hottest` can find anything."""
    if len(trace.python_frames):
        return True
    if not (trace.captured.backtraces or trace.captured.python_stacks):
        return False
    rows = [trace.backtraces.load().rows(source) for source in (StackSource.PYTHON, StackSource.SAMPLE)]
    return any(span.stop > span.start for span in rows)


def hottest(
    trace: Trace,
    threads: int | Iterable[int] | None,
    intervals: IntervalSet | None = None,
    *,
    limit: int = 10,
    level: str = "user",
) -> tuple[Hotspot, ...]:
    """The functions with most samples of these threads (None: all) inside the intervals (None: always).

    ``level`` is ``leaf``, ``user`` or ``python``. Ordered by samples, then name. Empty where no backtraces of samples
    were captured, and where none falls into the intervals.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {LEVELS}, not {level!r}")
    if len(trace.python_frames):
        return _longest(trace, threads, intervals, limit) if level == "python" else ()
    captured = trace.captured
    if not (captured.python_stacks if level == "python" else captured.backtraces):
        return ()
    stacks = trace.backtraces.load()
    rows = stacks.rows(StackSource.PYTHON if level == "python" else StackSource.SAMPLE)
    events = stacks.events
    wanted = np.ones(rows.stop - rows.start, bool)
    if threads is not None:
        wanted &= np.isin(events.thread[rows], [threads] if isinstance(threads, int) else list(threads))
    if intervals is not None:
        wanted &= contains(intervals, events.start_ns[rows]) >= 0
    distinct, counts = np.unique(events.stack[rows][wanted], return_counts=True)
    total = int(counts.sum())
    times_of: dict[tuple[str, str], int] = {}
    for stack, count in zip(distinct.tolist(), counts.tolist(), strict=True):
        key = _function(stacks, stack, level)
        times_of[key] = times_of.get(key, 0) + count
    ranked = sorted(times_of.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Hotspot(*key, count, count / total) for key, count in ranked[:limit])


def _longest(
    trace: Trace, threads: int | Iterable[int] | None, intervals: IntervalSet | None, limit: int
) -> tuple[Hotspot, ...]:
    """Functions with most time, where every Python function is recorded: ``samples`` are nanoseconds then."""
    frames = trace.frames
    chosen = unique(trace.python_frames.thread).tolist() if threads is None else threads
    times: dict[tuple[str, str], int] = {}
    for thread in [chosen] if isinstance(chosen, int) else chosen:
        steps = frames.innermost(thread)
        if not len(steps.time):
            continue
        asked = frames.covered(thread) if intervals is None else intervals
        start, end, _, row = cut(asked.start, asked.end, steps)
        inside = np.bincount(row[row >= 0], (end - start)[row >= 0]).astype(np.int64)
        rows = np.flatnonzero(inside)
        for frame, time_ns in zip(frames.of_rows(thread, rows), inside[rows].tolist(), strict=True):
            key = (frame.function, f"{frame.file}:{frame.line}" if frame.line else frame.file)
            times[key] = times.get(key, 0) + time_ns
    total = sum(times.values())
    ranked = sorted(times.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Hotspot(*key, time_ns, time_ns / total) for key, time_ns in ranked[:limit])


def _function(stacks: Backtraces, stack: int, level: str) -> tuple[str, str]:
    """(symbol, module) that a stack stands for."""
    frames = stacks.frames_of(stack).tolist()
    if not frames:
        return UNKNOWN, ""
    if level == "python":
        return _python_function(stacks, [frame for frame in frames if not is_boundby(stacks.module(frame))])
    if level == "leaf":
        return _named(stacks, frames[0])
    for frame in frames:
        symbol, module = stacks.symbol(frame), stacks.module(frame)
        if is_interpreter(module):
            return PYTHON_CODE, file_name(module)  # whatever lies further out was called from Python code
        if not is_plumbing(symbol, module):
            return _named(stacks, frame)
    return _named(stacks, frames[0])


def _python_function(stacks: Backtraces, frames: Sequence[int]) -> tuple[str, str]:
    """Function and file of a stack of Python frames: the user's own line, by the name of the engine that it is in."""
    if not frames:
        return UNKNOWN, ""
    own = next((index for index, frame in enumerate(frames) if is_user_python(stacks.module(frame))), 0)
    engine = next((engine_name for frame in frames[:own] if (engine_name := engine_of(stacks.module(frame)))), "")
    frame = frames[own]
    return engine or stacks.symbol(frame), f"{stacks.module(frame)}:{int(stacks.frames.line[frame])}"


def _named(stacks: Backtraces, frame: int) -> tuple[str, str]:
    """Addresses without a symbol count together for each binary: each by itself would say nothing."""
    symbol = stacks.symbol(frame) if stacks.frames.is_resolved[frame] else UNKNOWN
    return symbol, file_name(stacks.module(frame))


#: A function that holds less of a stretch does not stand for it.
MOSTLY = HALF
_WRAPPER = expression(
    r"^(?:main|_?main_?\w*|<module>|<lambda>|_?wrapper\w*|_?wrapped\w*|inner|_fn|decorate_context|__call__|_call_impl"
    r"|_wrapped_call_impl|run_module_as_main|__enter__|__exit__|\w*profil(?:e|er|ing)\w*)$"
)
# Binaries that the user did not write, and symbols of such as are linked into his.
_INSTALLED_BINARY = expression(r"^lib[\w+.-]*\.so|/(?:site|dist)-packages/|^\[|^other$")
_LINKED_IN = expression(
    r"^(?:__?cuda\w*|cuda[A-Z]\w*|cudaError|libcudart_static\w*|curand\w*|cublas\w*|cudnn\w*|std::|__gnu"
    r"|operator (?:new|delete)|_start|P?MPI_\w+|0x[0-9a-f]+|\[|(?:void )?(?:thrust|cub)::|pybind11::"
    r"|jl_\w+|gc_\w+|_?_?kmp\w*"
    r"|GOMP\w*|__nv\w*)"
)


def line_of_calls(context: RuleContext, calls: Rows, weight: Int64Array | None = None) -> CodeLine | None:
    """The line from which most of these calls (rows of ``context.calls``), by their weight, were made."""
    calls = np.asarray(calls)
    weights = np.ones(len(calls), np.int64) if weight is None else np.maximum(weight, 1)
    calls, weights = calls[calls >= 0], weights[calls >= 0]
    if not has_sources(context.trace) or not len(calls):
        return None
    # Asked at points spread evenly over the weight, each call as often as it deserves.
    until = np.cumsum(weights)
    points = np.linspace(1, until[-1], CURVE)
    asked, often = np.unique(np.searchsorted(until, points), return_counts=True)
    counted = Counter[CodeLine]()
    of_call, stacks = stacks_of_calls(context.timeline, calls[asked])
    around = _around_all(context)
    lines = [own_line(stack, around) for stack in stacks]
    for number, times in zip(of_call, often.tolist(), strict=True):
        if (line := lines[number]) is not None:
            counted[line] += times
    return _best(context.trace, counted)


@once
def _around_all(context: RuleContext) -> CodeLine | None:
    """The line from which nearly all GPU work is launched, a call of the whole model: it tells none of its parts from
    another. None where there is none. Ask with ``_around_all(context)``."""
    launching = np.flatnonzero(context.calls.of_operation >= 0)
    if not len(launching):
        return None
    launching = context.calls.of_operation[launching]
    asked = unique(launching[np.linspace(0, len(launching) - 1, CURVE).astype(np.intp)])
    of_call, stacks = stacks_of_calls(context.timeline, asked)
    lines = [own_line(stack) for stack in stacks]
    line, times = Counter(lines[number] for number in of_call).most_common(1)[0]
    return line if times >= NEARLY_ALL * len(asked) else None


def line_of_spots(trace: Trace, spots: Iterable[Hotspot]) -> CodeLine | None:
    """The line of the function that samples show, where it holds most of them and is the user's."""
    for spot in spots:
        if spot.share < MOSTLY:
            break
        file, _, line = spot.module.rpartition(":")
        if file and line.isdigit():
            lines = [CodeLine(file, int(line), *(("", spot.symbol) if spot.is_source else (spot.symbol,)))]
        elif spot.module.endswith(".py"):
            return None  # the line is not told
        else:
            lines = [CodeLine(spot.module, None, spot.symbol)]
        if (own := own_line(lines)) is not None:
            return _best(trace, {own: spot.samples})
    return None


def own_line(stack: Iterable[CodeLine], around: CodeLine | None = None) -> CodeLine | None:
    """The innermost line of a stack that the user wrote; where all of it is a library of models or servers, or the line
    is ``around`` all there is, the library's."""
    own, library, wrapper = _innermost(stack)
    return (None if own == around else own) or library or own or wrapper


def _innermost(stack: Iterable[CodeLine]) -> tuple[CodeLine | None, CodeLine | None, CodeLine | None]:
    """The user's own line, and of what lies inside it the innermost of a library of models or servers, and the
    innermost wrapper that has a line."""
    library: CodeLine | None = None
    wrapper: CodeLine | None = None
    for line in stack:
        distance = _distance(line)
        if distance > 1:
            continue
        if _WRAPPER.match(short_symbol(line.function)) and not line.source:
            wrapper = wrapper or (line if line.line and not distance else None)
        elif distance:
            library = library or line
        else:
            return line, library, wrapper
    return None, library, wrapper


def _distance(line: CodeLine) -> int:
    """0: the user's own, 1: a library of models or servers, 2: none that he could change."""
    if line.line or line.file.endswith(".py"):
        return Frame(line.function, line.file, line.line or 0).distance
    if not line.file or _INSTALLED_BINARY.search(line.file) or _INSTALLED_BINARY.search(file_name(line.file)):
        return 2
    return 2 if _LINKED_IN.match(line.function) or is_plumbing(line.function, line.file) else 0


def _best(trace: Trace, found: dict[CodeLine, int]) -> CodeLine | None:
    if not found:
        return None
    line = min(
        found, key=lambda candidate: (-found[candidate], candidate.file, candidate.line or 0, candidate.function)
    )
    if line.line is None:
        return replace(line, function=short_symbol(line.function))
    return line if line.source else replace(line, source=_source(line, trace.path))


def _source(line: CodeLine, report: str) -> str:
    """The line's text, where the file is at hand and no newer than the report; else empty."""
    try:
        path = Path(line.file)
        if path.stat().st_mtime > Path(report).stat().st_mtime:
            return ""
        return _lines(path)[(line.line or 1) - 1].strip()
    except (OSError, ValueError, IndexError):
        return ""


@cache
def _lines(path: Path) -> list[str]:
    return read_text(path, MOST_WRITTEN_BYTES).splitlines()
