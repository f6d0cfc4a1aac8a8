"""Which operator and which line of the program a CUDA call, and so a gap, comes from.

An *operator range* is an NVTX range that a framework opens around one of its operators (vocabulary/range_names.py).
*Library ranges* are those in the domain of a library that annotates itself (NCCL, cuBLAS, cuDNN, CUB, TensorRT, ...).
They are neither operators nor the user's. Every other range is the user's: a module, a region, a step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import Timeline
from boundby.model.arrays import Int32Array, Int64Array, Looked, compact, factorize, unique
from boundby.model.intervals import NOTHING
from boundby.model.scale import BUSY_NS
from boundby.results.report import CodeLine
from boundby.trace.stacks import Backtraces, StackSource, describe_frame, is_plumbing, is_user_python, own_first
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.python import Frame
from boundby.trace.vocabulary.range_names import operator_names

# A Python stack taken at a call is stamped a little before or after it; no other call of the thread lies between.
_PYTHON_SLACK_NS = BUSY_NS


class Operators(Struct, frozen=True):
    """What each row of ``timeline.calls`` was called by.

    ``of_range`` is the innermost operator range around the call (a row of Trace.ranges; -1: none). ``outermost`` is the
    outermost operator inside the innermost user's range: what the program's own line called (-1: none). ``region`` is
    the innermost region that is the user's (0: none).
    """

    names: tuple[str, ...]
    outermost: Looked
    region: Looked
    of_range: Looked
    chain_of_range: Int32Array  # a number for each operator range; equal ones stand in equal chains
    _name_of_range: Int32Array  # -1 where a range is no operator
    _enclosing: Int32Array  # per range: the next operator range outwards, inside the same user's range; -1

    def chain(self, call: int) -> tuple[str, ...]:
        """Operators around a call, innermost first, up to the innermost range that is the user's."""
        found: list[str] = []
        row = self.of_range[call]
        while row >= 0:
            found.append(self.names[self._name_of_range[row]])
            row = int(self._enclosing[row])
        return tuple(found)


def operators_of(timeline: Timeline) -> Operators:
    """The operators around every call: on its own thread, else (a helper thread) what it borrows."""
    trace, parent = timeline.trace, timeline.ownership.regions.range_parent
    is_of_library = trace.in_library
    names, name_of_range = _operator_names(trace, is_of_library)
    is_op = name_of_range >= 0
    passing = np.flatnonzero(is_op | is_of_library)
    if not len(passing):
        return _without_operators(timeline)
    # Of each range, and in a last place of no range: the innermost operator range at or above it, below the user's; the
    # outermost one there; the innermost range of the user's; the next operator range outwards.
    inner, outer, enclosing, chain = (np.full(len(trace.ranges) + 1, NOTHING, np.int32) for _ in range(4))
    user, chains = np.append(np.arange(len(trace.ranges), dtype=np.int32), np.int32(NOTHING)), 0
    depth = timeline.ownership.regions.range_depth[passing]
    order = np.argsort(depth, kind="stable")
    for level in np.split(order, np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 1))):
        rows = passing[level]
        above, op = parent[rows], is_op[rows]
        enclosing[rows] = np.where(op, inner[above], NOTHING)
        inner[rows] = np.where(op, rows, inner[above])
        outer[rows] = np.where(op & (outer[above] < 0), rows, outer[above])
        user[rows] = user[above]
        below = rows[op]
        alike, number = factorize(name_of_range[below], chain[enclosing[below]])
        chain[below], chains = chains + number, chains + len(alike)
    around = timeline.call_range
    name_of_range = np.append(name_of_range, np.int32(NOTHING))

    def of_calls(of_range: npt.NDArray[np.integer]) -> Looked:
        return Looked(of_range.astype(np.int32, copy=False), around)

    return Operators(
        names=names,
        outermost=of_calls(name_of_range[outer]),
        region=of_calls(timeline.ownership.region_of(user)),
        of_range=of_calls(inner),
        chain_of_range=chain[:-1],
        _name_of_range=name_of_range,
        _enclosing=enclosing,
    )


def _without_operators(timeline: Timeline) -> Operators:
    """Where every range is the user's: nothing stands around calls but these."""
    size, regions = len(timeline.trace.ranges), timeline.ownership.regions
    none = compact(np.full(size + 1, NOTHING, np.int32))
    user = np.append(regions.of_range, ROOT).astype(np.int32)
    of_calls = Looked(none, timeline.call_range)
    return Operators((), of_calls, Looked(user, timeline.call_range), of_calls, none[:-1], none, none)


def _operator_names(trace: Trace, is_of_library: npt.NDArray[np.bool_]) -> tuple[tuple[str, ...], Int32Array]:
    """Folded operator names, and which of them each range is (-1: none). Each distinct text is looked at once."""
    used = unique(trace.ranges.name)
    names, number = operator_names([trace.names[name] for name in used.tolist()], trace.operator_names)
    of_name = np.full(len(trace.names) + 1, NOTHING, np.int32)
    of_name[used] = number
    return names, np.where(is_of_library, NOTHING, of_name[trace.ranges.name]).astype(np.int32)


def has_sources(trace: Trace) -> bool:
    """Whether the trace may tell where in the program any call was made."""
    return bool(len(trace.python_frames)) or trace.captured.python_stacks or trace.captured.backtraces


def source_of(timeline: Timeline, call: int, limit: int = 8) -> tuple[str, ...]:
    """Where in the program a CUDA call (a row of ``timeline.calls``) was made: frames, nearest first.

    Python frames (``compute_loss (train.py:42)``) where the trace holds them, from the innermost one of the program's
    own code outwards; else the C frames (``at::native::nonzero_cuda [libtorch_cuda.so]``) outside driver and profiler.
    Empty where no backtrace was taken of this call. ``limit``: at most so many frames.
    """
    trace = timeline.trace
    if len(trace.python_frames):
        return tuple(frame.label for frame in own_first(_open_frames(timeline, call))[:limit])
    stacks = trace.backtraces.load()
    frames = _python_frames(timeline, stacks, call)
    own = [place for place, frame in enumerate(frames) if is_user_python(stacks.module(frame))]
    frames = frames[own[0] if own else 0 :] or [
        frame
        for frame in _binary_frames(timeline, stacks, call, StackSource.CUDA)
        if not is_plumbing(stacks.symbol(frame), stacks.module(frame))
    ]
    return tuple(describe_frame(stacks, frame) for frame in frames[:limit])


def stack_of_call(timeline: Timeline, call: int) -> list[CodeLine]:
    """The same as lines, all of the stack. A thread without Python of its own (autograd's) was given its work by one
    that has some: the innermost frames that are open there meanwhile are its."""
    trace = timeline.trace
    if len(trace.python_frames):
        return [CodeLine(frame.file, frame.line or None, frame.function) for frame in _open_frames(timeline, call)]
    stacks = trace.backtraces.load()
    frames = _python_frames(timeline, stacks, call)
    for source in (StackSource.CUDA, StackSource.OS):  # a call of the system inside it has the same callers
        frames = frames or _binary_frames(timeline, stacks, call, source)
    return [_line_of(stacks, frame) for frame in frames]


def _line_of(stacks: Backtraces, frame: int) -> CodeLine:
    symbol, module, line = stacks.symbol(frame), stacks.module(frame), int(stacks.frames.line[frame])
    if not stacks.frames.is_resolved[frame]:
        return CodeLine("", None, symbol)
    is_source = bool(line) and not symbol.isidentifier() and not symbol.startswith("<")
    return CodeLine(module, line or None, "" if is_source else symbol, symbol if is_source else "")


def _open_frames(timeline: Timeline, call: int) -> list[Frame]:
    calls, frames = timeline.calls, timeline.trace.frames
    thread, at_ns = int(calls.thread[call]), int(calls.start_ns[call])
    if own := frames.at(thread, at_ns):
        return own
    others = (frames.at(other, at_ns) for other in unique(timeline.trace.python_frames.thread).tolist())
    return max(others, key=len, default=[])


def _python_frames(timeline: Timeline, stacks: Backtraces, call: int) -> list[int]:
    if not timeline.trace.captured.python_stacks:
        return []
    calls = timeline.calls
    start, end, of_thread = int(calls.start_ns[call]), int(calls.end_ns[call]), calls.rows_of(int(calls.thread[call]))
    before = int(calls.end_ns[call - 1]) if call > of_thread.start else start - _PYTHON_SLACK_NS
    after = int(calls.start_ns[call + 1]) if call + 1 < of_thread.stop else end + _PYTHON_SLACK_NS
    span = max(start - _PYTHON_SLACK_NS, before), min(end + _PYTHON_SLACK_NS, after)
    times, taken = _stacks_in(stacks, StackSource.PYTHON, int(calls.thread[call]), *span)
    if not len(taken):
        return []
    nearest = int(np.argmin(np.maximum(times - end, 0) + np.maximum(start - times, 0)))
    found: list[int] = stacks.frames_of(int(taken[nearest])).tolist()
    return found


def _binary_frames(timeline: Timeline, stacks: Backtraces, call: int, source: StackSource) -> list[int]:
    if not timeline.trace.captured.backtraces:
        return []
    calls = timeline.calls
    start, end = int(calls.start_ns[call]), int(calls.end_ns[call])
    _, taken = _stacks_in(stacks, source, int(calls.thread[call]), start, max(end, start + 1))
    frames: list[int] = stacks.frames_of(int(taken[0])).tolist() if len(taken) else []
    return frames


def _stacks_in(
    stacks: Backtraces, source: StackSource, thread: int, low_ns: int, high_ns: int
) -> tuple[Int64Array, Int32Array]:
    """When backtraces of a thread were taken in [low, high), and the stacks."""
    rows = stacks.rows(source, thread)
    inside = slice(*np.searchsorted(stacks.events.start_ns[rows], [low_ns, high_ns]).tolist())
    return stacks.events.start_ns[rows][inside], stacks.events.stack[rows][inside]
