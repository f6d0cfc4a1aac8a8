"""The line of the user's own program that a call or a stretch of the host's time is of.

It is the innermost frame that the user wrote: none of a framework, of boundby, of the profiler or of the runtime, no
wrapper around everything, no ``main``. A function in C has no line, only its binary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from boundby.evidence.context import Rows, RuleContext, once
from boundby.evidence.hotspots import Hotspot, short_symbol
from boundby.evidence.operators import has_sources, stacks_of_calls
from boundby.model.arrays import Int64Array, unique
from boundby.model.door import MOST_WRITTEN_BYTES, read_text
from boundby.model.expressions import expression
from boundby.model.scale import CURVE, HALF, NEARLY_ALL
from boundby.results.report import CodeLine
from boundby.trace.stacks import file_name, is_plumbing
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.python import Frame

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
    found = Counter[CodeLine]()
    of_call, stacks = stacks_of_calls(context.timeline, calls[asked])
    around = _around_all(context)
    lines = [own_line(stack, around) for stack in stacks]
    for number, times in zip(of_call, often.tolist(), strict=True):
        if (line := lines[number]) is not None:
            found[line] += times
    return _best(context.trace, found)


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
    line = min(found, key=lambda one: (-found[one], one.file, one.line or 0, one.function))
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
