"""Where operators were called from, as PyTorch 1.8 to 1.11 tell it: an argument of each operator, and no events.

``Call stack`` holds lines of Python, the innermost first: ``loss.py(7): forward;train.py(31): <module>``. ``Module
Hierarchy`` holds the modules of TorchScript, the outermost first: ``TOP(Net)::forward.conv1(Conv2d)::forward.``
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int64Array, rows_of, unique
from boundby.model.expressions import expression
from boundby.model.intervals import NOTHING, nest
from boundby.readers.kineto.columns import FRAME, Columns
from boundby.readers.sanitize import Raw, bounded
from boundby.trace.stacks import ROUNDED_NS, Backtraces, Frames, StackEvents, StackSource
from boundby.trace.tables import CallTable
from boundby.trace.vocabulary.python import read_frame

ARGUMENTS = ("Call stack", "Module Hierarchy")
_BETWEEN_FRAMES = expression(r";\s*")
_MODULE = expression(r"([^().:]+)\(([^()]*)\)::")
_OUTERMOST, _ITSELF = "TOP", "SELF"
_MOST_FRAMES = 256
_MOST_LINE = 1 << 31


def call_stacks(columns: Columns, raw: Raw, calls: CallTable) -> Backtraces | None:
    """The Python stack of each CUDA call: that of the innermost operator around it that has one. None: none is told, or
    Python functions are recorded as events."""
    told = columns.text(ARGUMENTS[0], raw["row"])
    if not (told >= 0).any() or (columns.kind == FRAME).any():
        return None
    call, text = [], []
    for thread, rows in _by_thread(raw, told >= 0):
        of_thread = rows_of(calls.thread, thread)
        innermost = nest(raw["start"][rows], raw["end"][rows], ROUNDED_NS).innermost.at(calls.start_ns[of_thread])
        inside = np.flatnonzero(innermost != NOTHING)
        call.append(inside + of_thread.start)
        text.append(told[rows[innermost[inside]]])
    if not call:
        return None
    taken_of = np.concatenate(call)
    distinct, stack = np.unique(np.concatenate(text), return_inverse=True)
    names: dict[str, int] = {}
    frames: dict[tuple[int, int, int], int] = {}
    stacks = [_stack(columns.events.texts[number], names, frames) for number in distinct.tolist()]
    symbol, module, line = np.array(list(frames), np.int32).reshape(-1, 3).T.copy()
    events = StackEvents(
        calls.start_ns[taken_of],
        calls.thread[taken_of],
        np.full(len(taken_of), StackSource.PYTHON, np.int8),
        stack.reshape(-1).astype(np.int32),
    )
    return Backtraces(
        events,
        np.cumsum([0, *map(len, stacks)]),
        np.array([frame for frames_of_one in stacks for frame in frames_of_one], np.int32),
        Frames(symbol, module, line, np.ones(len(frames), bool), np.zeros(len(frames), bool)),
        tuple(names),
    )


def _stack(text: str, names: dict[str, int], frames: dict[tuple[int, int, int], int]) -> list[int]:
    """The frames of a stack, the innermost first; ``names`` and ``frames`` grow by those that are new."""
    found = []
    for part in _BETWEEN_FRAMES.split(text)[:_MOST_FRAMES]:
        if part.strip():
            frame = read_frame(bounded(part.strip()))
            name, file = (names.setdefault(one, len(names)) for one in (frame.function, frame.file))
            key = name, file, frame.line if frame.line < _MOST_LINE else 0
            found.append(frames.setdefault(key, len(frames)))
    return found


def module_ranges(columns: Columns, raw: Raw) -> tuple[dict[str, Int64Array], list[str]]:
    """Ranges of modules, in no order, with the ``name`` of each in the names that are returned: from the first to the
    last of operators in a row that name the module, with no other operator or annotation between them."""
    told = columns.text(ARGUMENTS[1], raw["row"])
    names: dict[str, int] = {}
    found: list[tuple[int, int, int, int]] = []
    if (told >= 0).any():
        paths = {text: _modules(columns.events.texts[text]) for text in unique(told[told >= 0]).tolist()}
        for thread, rows in _by_thread(raw, told >= 0):
            rows = rows[nest(raw["start"][rows], raw["end"][rows], ROUNDED_NS).parent == NOTHING]
            of_thread = np.flatnonzero(raw["globalTid"] == thread)
            begins = np.sort(raw["start"][of_thread])
            for run in np.split(rows, _breaks(raw, rows, of_thread[told[of_thread] < 0])):
                row_paths = [paths[text] for text in told[run].tolist()]
                times = raw["start"][run].tolist(), raw["end"][run].tolist()
                for name, level, start, end in _runs(row_paths, *times):
                    following = begins[np.searchsorted(begins, end) :][:1].tolist()
                    until = min([end + level, *following])  # who holds another one ends after it, by a nanosecond
                    found.append((start, until, thread, names.setdefault(name, len(names))))
    table = np.array(found, np.int64).reshape(-1, 4).T.copy()
    return dict(zip(("start", "end", "globalTid", "name"), table, strict=True)), list(names)


def _by_thread(raw: Raw, chosen: npt.NDArray[np.bool_]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """The chosen rows of each thread, in order of start, then -end."""
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((-raw["end"][rows], raw["start"][rows], raw["globalTid"][rows]))]
    for thread in unique(raw["globalTid"][rows]).tolist():
        yield thread, rows[rows_of(raw["globalTid"][rows], thread)]


def _breaks(raw: Raw, rows: npt.NDArray[np.intp], others: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The places in ``rows`` before which another range begins or ends, since the end of the row before."""
    bounds = np.sort(np.concatenate([raw["start"][others], raw["end"][others]]))
    until = np.searchsorted(bounds, raw["start"][rows[1:]], side="right")
    since = np.searchsorted(bounds, raw["end"][rows[:-1]])
    return np.flatnonzero(until > since) + 1


def _modules(text: str) -> tuple[str, ...]:
    """The modules that a hierarchy names, the outermost first: ``Net``, ``conv1(Conv2d)``. Calls of a module's own
    methods are the module's."""
    found = []
    for name, kind in _MODULE.findall(text)[:_MOST_FRAMES]:
        if name == _OUTERMOST:
            found.append(bounded(kind or name))
        elif name != _ITSELF:
            found.append(bounded(f"{name}({kind})" if kind else name))
    return tuple(found)


def _runs(paths: list[tuple[str, ...]], starts: list[int], ends: list[int]) -> Iterator[tuple[str, int, int, int]]:
    """The name of each module's run of operators, how many levels it holds at least, its start and end."""
    open_since: list[tuple[str, int]] = []
    last = 0
    for path, start, end in zip([*paths, ()], [*starts, 0], [*ends, 0], strict=True):
        shared = 0
        while shared < min(len(path), len(open_since)) and open_since[shared][0] == path[shared]:
            shared += 1
        for place, (name, since) in enumerate(open_since[shared:], shared):
            yield name, len(open_since) - place, since, last
        open_since = [*open_since[:shared], *((name, start) for name in path[shared:])]
        last = end
