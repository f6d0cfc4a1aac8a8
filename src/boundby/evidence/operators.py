"""Which operator and which line of the program a CUDA call, and so a gap, comes from.

An *operator range* is an NVTX range that a framework opens around one of its operators (vocabulary/range_names.py).
*Library ranges* are those in the domain of a library that annotates itself (NCCL, cuBLAS, cuDNN, CUB, TensorRT, ...).
They are neither operators nor the user's. Every other range is the user's: a module, a region, a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import Timeline
from boundby.model.arrays import Int32Array, Int64Array, Looked, compact, factorize, places, unique
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
        names: list[str] = []
        row = self.of_range[call]
        while row >= 0:
            names.append(self.names[self._name_of_range[row]])
            row = int(self._enclosing[row])
        return tuple(names)


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
    """`sources_of` one call."""
    return sources_of(timeline, np.array([call]), limit)[0]


def sources_of(timeline: Timeline, rows: npt.NDArray[np.integer], limit: int = 8) -> list[tuple[str, ...]]:
    """Where in the program CUDA calls (rows of ``timeline.calls``) were made: frames of each, nearest first.

    Python frames (``compute_loss (train.py:42)``) where the trace holds them, from the innermost one of the program's
    own code outwards; else the C frames (``at::native::nonzero_cuda [libtorch_cuda.so]``) outside driver and profiler.
    Empty where no backtrace was taken of a call. ``limit``: at most so many frames.
    """
    trace = timeline.trace
    if len(trace.python_frames):
        opened = (own_first(_open_frames(timeline, call))[:limit] for call in rows.tolist())
        return [tuple(frame.label for frame in frames) for frames in opened]
    stacks = trace.backtraces.load()

    @cache
    def frames_of(python: int, binary: int) -> tuple[str, ...]:
        frames = stacks.frames_of(python).tolist()
        own = [index for index, frame in enumerate(frames) if is_user_python(stacks.module(frame))]
        frames = frames[own[0] if own else 0 :] or [
            frame
            for frame in stacks.frames_of(binary).tolist()
            if not is_plumbing(stacks.symbol(frame), stacks.module(frame))
        ]
        return tuple(describe_frame(stacks, frame) for frame in frames[:limit])

    python, binary = (
        _python_stacks(timeline, stacks, rows),
        _binary_stacks(timeline, stacks, rows, StackSource.CUDA),
    )
    return [*map(frames_of, python.tolist(), binary.tolist())]


def stacks_of_calls(timeline: Timeline, calls: npt.NDArray[np.integer]) -> tuple[list[int], list[list[CodeLine]]]:
    """All lines of each call's stack: which one each call has, and the different ones. A thread without
    Python of its own (autograd's) was given its work by one that has some: the innermost frames that are open there
    meanwhile are its."""
    trace = timeline.trace
    if len(trace.python_frames):
        opened = [_open_frames(timeline, call) for call in calls.tolist()]
        lines = [[CodeLine(frame.file, frame.line or None, frame.function) for frame in frames] for frames in opened]
        return [*range(len(calls))], lines
    stacks = trace.backtraces.load()
    stacks_found = _python_stacks(timeline, stacks, calls)
    for source in (StackSource.CUDA, StackSource.OS):  # a call of the system inside it has the same callers
        rest = np.flatnonzero(stacks_found == NOTHING)
        stacks_found[rest] = _binary_stacks(timeline, stacks, calls[rest], source)
    distinct, number = np.unique(stacks_found, return_inverse=True)
    return number.tolist(), [
        [_line_of(stacks, frame) for frame in stacks.frames_of(stack).tolist()] for stack in distinct.tolist()
    ]


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


def _python_stacks(timeline: Timeline, stacks: Backtraces, rows: npt.NDArray[np.integer]) -> Int32Array:
    """Of each call the Python stack that was taken nearest to it, and to no other call of its thread; NOTHING."""
    if not timeline.trace.captured.python_stacks:
        return np.full(len(rows), NOTHING, np.int32)
    calls = timeline.calls
    start, end, thread = calls.start_ns[rows], calls.end_ns[rows], calls.thread[rows]
    low, high, last = start - _PYTHON_SLACK_NS, end + _PYTHON_SLACK_NS, len(calls) - 1
    before, after = np.maximum(rows - 1, 0), np.minimum(rows + 1, last)
    np.maximum(low, calls.end_ns[before], out=low, where=(rows > 0) & (calls.thread[before] == thread))
    np.minimum(high, calls.start_ns[after], out=high, where=(rows < last) & (calls.thread[after] == thread))
    stack_of = np.full(len(rows), NOTHING, np.int32)
    for own, times, taken in _taken_on(stacks, StackSource.PYTHON, thread):
        first, stop = places(times, low[own]), places(times, high[own])
        following = np.clip(places(times, start[own]), first, stop)
        preceding = following - 1
        time_before, time_after = (times[np.clip(index, 0, len(times) - 1)] for index in (preceding, following))
        late = np.where(following < stop, np.maximum(time_after - end[own], 0), np.iinfo(np.int64).max)
        is_before = (preceding >= first) & (start[own] - time_before <= late)
        nearest = np.where(is_before, np.maximum(places(times, time_before), first), following)
        seen = first < stop
        stack_of[own[seen]] = taken[nearest[seen]]
    return stacks.not_empty(stack_of)


def _binary_stacks(
    timeline: Timeline, stacks: Backtraces, rows: npt.NDArray[np.integer], source: StackSource
) -> Int32Array:
    """Of each call the first backtrace that was taken in it; NOTHING."""
    stack_of = np.full(len(rows), NOTHING, np.int32)
    if not timeline.trace.captured.backtraces:
        return stack_of
    calls = timeline.calls
    start = calls.start_ns[rows]
    until = np.maximum(calls.end_ns[rows], start + 1)
    for own, times, taken in _taken_on(stacks, source, calls.thread[rows]):
        first = places(times, start[own])
        seen = first < places(times, until[own])
        stack_of[own[seen]] = taken[first[seen]]
    return stacks.not_empty(stack_of)


def _taken_on(
    stacks: Backtraces, source: StackSource, thread: Int32Array
) -> Iterator[tuple[npt.NDArray[np.intp], Int64Array, Int32Array]]:
    """Of each thread that has backtraces of this kind its rows here, when these were taken, and the stacks."""
    for number in unique(thread).tolist():
        rows = stacks.rows(source, number)
        if rows.start < rows.stop:
            yield np.flatnonzero(thread == number), stacks.events.start_ns[rows], stacks.events.stack[rows]
