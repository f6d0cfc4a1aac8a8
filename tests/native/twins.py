"""The passes of the native core in Python and NumPy: what each must equal. `without_core` puts them in its place."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from functools import cache
from heapq import heapify, heappop, heappush
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution import gaps as of_gaps
from boundby.attribution import segments as of_segments
from boundby.attribution.gaps import _LATEST_WAITS, _BlockedTime, _Dividing
from boundby.attribution.groundwork import TraceContext
from boundby.attribution.host_state import ELSEWHERE, INPUT, LAUNCH_LIMIT_NS
from boundby.attribution.regions import ROOT
from boundby.attribution.segments import NO_THREAD, Segments
from boundby.correlation import correlate
from boundby.model import arrays, intervals
from boundby.model.arrays import (
    MISSING,
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
    Tally,
    ascend,
    bounds,
    factorize,
    in_order,
    pick,
    places,
    sorted_distinct,
    unique,
)
from boundby.model.causes import CAUSES, Cause
from boundby.model.intervals import (
    EMPTY,
    NOTHING,
    CoveredTime,
    IntervalSet,
    Nesting,
    Overlay,
    StepFunction,
    cut,
    expand,
    simplify,
)
from boundby.native import passes
from boundby.native.passes import (
    _COLUMN_TYPES,
    _COLUMNS,
    _ENTRIES,
    _ENTRY_TYPES,
    _WRONG_BACKSLASH,
    BLOCK,
    FIRST_INSTANT,
    FIRST_KERNEL,
    LAST_INSTANT,
    NUMBER,
    PHASES,
    RAW,
    TEXT,
    Costs,
    Divided,
    Following,
    JsonEvents,
    Layer,
    Links,
    NotJsonError,
    Pass,
    Pieces,
    __name__,
    _by_key,
    _double,
    _new,
)
from boundby.plot_data import lanes
from boundby.results.plot_data import CauseBins
from boundby.stats import instances
from boundby.trace.tables import NO_CORRELATION


@contextmanager
def without_core() -> Iterator[None]:
    """Every pass is the one below, wherever it is called from."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, twin in _callers():
            patch.setattr(module, name, twin)
        patch.setattr(CoveredTime, "until", _until)
        yield


@cache
def _callers() -> list[tuple[ModuleType, str, Any]]:
    """Where the native passes are known, under which name, and the twin of each."""
    of_home = [(sys.modules[home], *pair) for home, pairs in _PASSES.items() for pair in pairs.items()]
    twin_of = {id(getattr(home, name)): twin for home, name, twin in of_home}
    modules = [sys.modules[name] for name in sorted(sys.modules) if name.startswith(("boundby.", "tests.native."))]
    return [
        (module, name, twin_of[id(value)])
        for module in modules
        for name, value in vars(module).items()
        if id(value) in twin_of
    ]


# --- arrays


def _few(flat: npt.NDArray[Any]) -> tuple[int, BoolArray] | None:
    if flat.dtype.kind != "i" or len(flat) == 0:
        return None
    low, high = bounds(flat)
    if high - low + 1 > 2 * len(flat) + 1:
        return None
    seen = np.zeros(high - low + 1, bool)
    seen[flat.astype(np.int64) - low] = True
    return low, seen


def _distinct(_: object) -> None:
    """Found by sorting."""


def _pick(values: npt.NDArray[Any], rows: npt.NDArray[Any], missing: int) -> npt.NDArray[Any]:
    if len(values) == 0:
        return np.full(len(rows), missing, values.dtype)
    picked: npt.NDArray[Any] = values[np.maximum(rows, 0)]
    picked[rows < 0] = missing
    return picked


def _blank(values: Int64Array, where: BoolArray, *, at_most: bool = False) -> Int64Array:
    return np.where(where, np.minimum(values, 0) if at_most else 0, values)


def _places(values: npt.NDArray[Any], wanted: npt.NDArray[Any], side: Any = "left") -> npt.NDArray[np.intp]:
    return np.searchsorted(values, wanted, side=side)


def _order_of(values: npt.NDArray[Any]) -> int:
    return int((values[1:] >= values[:-1]).all()) + int((values[1:] > values[:-1]).all())


def _marked(rows: npt.NDArray[Any], size: int) -> BoolArray:
    found = np.zeros(size + 1, bool)  # the first is for negative ones
    found[np.maximum(rows, -1).astype(np.int64) + 1] = True
    return found[1:]


def _queue_depth(launch: npt.NDArray[np.int64], start: npt.NDArray[np.int64]) -> Int64Array:
    launches, starts = (column if ascend([column]) else np.sort(column) for column in (launch, start))
    started = np.searchsorted(starts, launch, side="right")
    depth: Int64Array = np.maximum(np.searchsorted(launches, launch) - started, 0).astype(np.int64)
    return depth


def _range_maximum(values: Int64Array, first: npt.NDArray[np.intp], stop: npt.NDArray[np.intp]) -> Int64Array:
    length = np.maximum(stop - first, 0)
    result = np.zeros(len(first), np.int64)
    table, width = values, 1
    while True:
        rows = np.flatnonzero((length >= width) & (length < 2 * width))
        if len(rows):
            result[rows] = np.maximum(table[first[rows]], table[stop[rows] - width])
        if 2 * width > int(length.max(initial=0)):
            return result
        table, width = np.maximum(table[:-width], table[width:]), 2 * width


def _order_statistics(
    values: Int64Array, first: npt.NDArray[np.intp], stop: npt.NDArray[np.intp], ranks: npt.NDArray[np.intp]
) -> Int64Array:
    found: Int64Array = np.empty(ranks.shape, np.int64)
    for row, (low, high) in enumerate(zip(first.tolist(), stop.tolist(), strict=True)):
        values[low:high].sort()
        found[row] = values[low:high][ranks[row]]
    return found


def _into_groups(
    group: npt.NDArray[Any], values: Int64Array, _: Int64Array, begins: Int64Array | None = None
) -> Int64Array:
    return values[np.argsort(group if begins is None else begins[group], kind="stable")]


def _group_sums(
    group: npt.NDArray[Any], value: npt.NDArray[Any], groups: int, since: Int64Array | None = None
) -> Int64Array:
    total: Int64Array = np.zeros(groups, np.int64)
    np.add.at(total, group, value if since is None else value - since)
    return total


def _group_counts(group: npt.NDArray[Any], groups: int) -> Int64Array:
    return np.bincount(group, minlength=groups).astype(np.int64)


def _tally(group: npt.NDArray[Any], label: npt.NDArray[Any], start: Int64Array | None, end: npt.NDArray[Any]) -> Tally:
    if len(group) == 0:
        return Tally(*(np.empty(0, np.int64) for _ in range(4)))
    pairs, of_row = factorize(group, label)
    ns = end if start is None else end - start
    return Tally(pairs[:, 0], pairs[:, 1], _group_counts(of_row, len(pairs)), _group_sums(of_row, ns, len(pairs)))


# --- intervals and steps


def _union(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> IntervalSet:
    kept = end > start
    start, end = start[kept], end[kept]
    if len(start) == 0:
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.empty(len(start), bool)
    first[0] = True
    np.greater(start[1:], reach[:-1], out=first[1:])
    last = np.append(first[1:], True)
    return IntervalSet(start[first].astype(np.int64), reach[last].astype(np.int64))


def _overlay(a: IntervalSet, b: IntervalSet) -> Overlay:
    first = np.searchsorted(b.end, a.start, side="right")
    stop = np.searchsorted(b.start, a.end, side="left")
    left, right = expand(first, np.maximum(stop, first))
    start = np.maximum(a.start[left], b.start[right])
    end = np.minimum(a.end[left], b.end[right])
    return Overlay(start, end, left, right)


def _until(self: CoveredTime, time: npt.NDArray[Any]) -> Int64Array:
    index = np.searchsorted(self._start, time, side="right")
    covered = self._before[index]
    if len(self._end):
        inside = np.maximum(self._end[np.maximum(index - 1, 0)] - time, 0)
        covered = covered - np.where(index > 0, inside, 0)
    return covered.astype(np.int64)


def _contains(intervals: IntervalSet, time: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    index = np.searchsorted(intervals.start, time, side="right") - 1
    if len(intervals.end) == 0:
        return np.full(len(time), -1, np.intp)
    inside = (index >= 0) & (time < intervals.end[np.maximum(index, 0)])
    return np.where(inside, index, -1).astype(np.intp)


def _cut(
    start: npt.NDArray[Any], end: npt.NDArray[Any], steps: StepFunction
) -> tuple[Int64Array, Int64Array, npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    first = np.searchsorted(steps.time, start, side="right")
    stop = np.maximum(np.searchsorted(steps.time, end, side="left"), first)
    inner = stop - first
    row = np.repeat(np.arange(len(start), dtype=np.intp), inner + 1)
    offset = np.arange(len(row), dtype=np.intp) - np.repeat(np.cumsum(inner + 1) - (inner + 1), inner + 1)
    step = first[row] + offset - 1  # the step in force at the piece's start
    if len(steps.time) == 0:
        return start.astype(np.int64), end.astype(np.int64), row, np.full(len(row), NOTHING, np.int64)
    known = np.maximum(step, 0)
    begin = np.where(offset == 0, start[row], steps.time[known])
    finish = np.where(offset == inner[row], end[row], steps.time[np.minimum(step + 1, len(steps.time) - 1)])
    value = np.where(step >= 0, steps.value[known], NOTHING)
    return begin.astype(np.int64), finish.astype(np.int64), row, value


def _nested(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> Nesting | None:
    parent = _proper_parents(start, end)
    if parent is None:
        return None
    rows = np.arange(len(start))
    # At an end its parent takes over. Ends sort before starts at one instant, inner ends before outer ones, so
    # that the last step at an instant is the one that holds.
    time = np.concatenate((end, start))
    value = np.concatenate((parent, rows))
    is_start = np.repeat((0, 1), len(rows))
    within = np.concatenate((-rows, rows))
    order = np.lexsort((within, is_start, time))
    steps = StepFunction(time[order].astype(np.int64), value[order].astype(np.int64))
    # Ranges without length would leave themselves open: their end sorts before their start.
    empty = (end == start)[np.maximum(steps.value, 0)] & (is_start[order] == 1)
    if empty.any():
        steps = StepFunction(steps.time[~empty], steps.value[~empty])
    return Nesting(parent, simplify(steps))


def _proper_parents(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """Parents by nesting depth, without a loop over rows; None where ranges overlap without nesting."""
    count = len(start)
    rows = np.arange(count, dtype=np.int64)
    depth = rows - np.searchsorted(np.sort(end), start, side="right")
    # An empty range counts itself as ended before it starts; so do later empty ones at its instant.
    instants = np.flatnonzero(end == start)
    if len(instants):
        at_same = np.searchsorted(end[instants], start, side="right") - np.searchsorted(
            end[instants], start, side="left"
        )
        before = np.cumsum(end == start) - (end == start)
        first_at = np.searchsorted(start, start, side="left")
        depth = depth + at_same - (before - before[first_at])
    if (depth < 0).any():
        return None
    key = depth * count + rows
    order = np.argsort(key)
    place = np.searchsorted(key[order], key - count, side="left") - 1
    parent = np.where((depth > 0) & (place >= 0), order[np.maximum(place, 0)], NOTHING)
    child = parent >= 0
    proper = bool(
        (depth[parent[child]] == depth[child] - 1).all()
        and (end[parent[child]] >= end[child]).all()
        and ((depth == 0) | child).all()
    )
    return parent if proper else None


# --- figures, calls, drawing, texts


def _intervals_in(
    intervals: IntervalSet, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]
) -> tuple[Int64Array, Int64Array, Int64Array]:
    start, end = intervals
    first = places(end, low, side="right")
    stop = np.maximum(places(start, high, side="left"), first)
    count = np.where(high > low, stop - first, 0).astype(np.int64)
    some = count > 0
    covered, longest = np.zeros(len(low), np.int64), np.zeros(len(low), np.int64)
    if not some.any():
        return count, covered, longest
    covered[some] = CoveredTime(intervals).within(low[some], high[some])
    left, right = first[some], stop[some] - 1
    edges = np.maximum(
        np.minimum(end[left], high[some]) - np.maximum(start[left], low[some]),
        np.minimum(end[right], high[some]) - np.maximum(start[right], low[some]),
    )
    longest[some] = np.maximum(edges, _range_maximum(end - start, left + 1, right))
    return count, covered, longest


def _join(
    wanted: Iterable[tuple[Int32Array, Int64Array]], correlation: Int64Array, process: Int64Array, launches: BoolArray
) -> list[npt.NDArray[Any]]:
    known: dict[tuple[int, int], int] = {}
    for chosen in (np.flatnonzero(launches), np.flatnonzero(~launches)):
        for row in chosen.tolist():
            known.setdefault((int(process[row]), int(correlation[row])), row)
    found = []
    for of_process, number in wanted:
        keys = zip(of_process.tolist(), number.tolist(), strict=True)
        found.append(np.array([-1 if key[1] == NO_CORRELATION else known.get(key, -1) for key in keys], np.int64))
    return found


def _cause_bins(segments: Segments, edges: Int64Array) -> CauseBins:
    causes, bins = len(CAUSES), np.arange(len(edges))
    begun = places(edges, segments.start_ns, side="right") * causes + segments.cause
    until = np.cumsum(_group_sums(begun, segments.length_ns, len(edges) * causes + causes).reshape(-1, causes), axis=0)[
        :-1
    ]
    last = places(segments.start_ns, edges) - 1  # that began before each edge, and may go on beyond it
    beyond = np.maximum(pick(segments.end_ns, last, 0) - edges, 0)
    until[bins, pick(segments.cause, last, 0)] -= np.where(last >= 0, beyond, 0)
    return CauseBins(edges, np.diff(until, axis=0))


def _groups_of(start: Int64Array, end: Int64Array, resolution: int, most: int | None = None) -> npt.NDArray[np.intp]:
    new = np.ones(len(start), bool)
    if resolution:
        alone = end - start >= resolution
        stretch = start // resolution
        new[1:] = alone[1:] | alone[:-1] | (stretch[1:] != stretch[:-1])
    return np.flatnonzero(new)[:most]


def _grouped(
    first: npt.NDArray[np.intp], value: npt.NDArray[Any], start: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    if not len(first):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    group = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(value))))
    most = _tally(group, value, start, end).prevailing(np.zeros(len(first), np.int64))
    return most, np.maximum.reduceat(end, first), np.add.reduceat(end - start, first)


def distinct_texts(written: passes.Bytes, offset: Int32Array) -> tuple[Int32Array, Int32Array]:
    """Numbers by a dict."""
    whole, places = written.tobytes(), offset.tolist()
    known: dict[bytes, int] = {}
    number = [known.setdefault(whole[low:high], len(known)) for low, high in itertools.pairwise(places)]
    numbers = np.array(number, np.int32)
    return numbers, np.unique(numbers, return_index=True)[1].astype(np.int32)


# --- the account


def _states(given: Iterable[Layer], otherwise: int, extra: Int64Array) -> StepFunction:
    layers = [layer for layer in given if len(layer.start)]
    cuts = sorted_distinct(extra, *(bound for layer in layers for bound in layer[:2]))
    cuts = cuts[(cuts > FIRST_INSTANT) & (cuts < LAST_INSTANT)]
    state = np.full(len(cuts), otherwise, np.int64)
    for layer in layers:
        place = _contains(IntervalSet(layer.start, layer.end), cuts)
        inside = (place >= 0) & (state != layer.spared)
        state[inside] = layer.state[place[inside]] if isinstance(layer.state, np.ndarray) else layer.state
    return simplify(StepFunction(cuts, state))


def _covering(busy: Segments, idle: Segments) -> Segments:
    return of_segments.concatenate(busy, idle).packed()


def _around(
    idle: IntervalSet, start_ns: Int64Array, end_ns: Int64Array, launched_ns: Int64Array, low: int
) -> tuple[Int32Array, Int32Array, Int64Array]:
    following = places(start_ns, idle.end, side="left")
    following = np.where(following < len(start_ns), following, NOTHING)
    previous = _last_ended(end_ns, launched_ns, idle.start)
    telling = np.where(following != NOTHING, following, np.maximum(previous, 0))
    return following.astype(np.int32), telling.astype(np.int32), pick(launched_ns, previous, low)


def _last_ended(end_ns: Int64Array, launch_ns: Int64Array, time_ns: Int64Array) -> npt.NDArray[np.intp]:
    """The operation that ended last at or before each instant, of equals the one launched last; NOTHING for none."""
    by_end = in_order(end_ns, launch_ns)
    place = places(end_ns[by_end], time_ns, side="right") - 1
    return place if isinstance(by_end, slice) else pick(by_end, place, NOTHING)


class _Pieces(NamedTuple):
    """Parts of gaps. ``owner`` is a region already known, or NOTHING: ask the thread at that instant."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    state: npt.NDArray[np.int64]
    thread: npt.NDArray[np.int64]
    gap: npt.NDArray[np.intp]
    owner: npt.NDArray[np.int64]

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> _Pieces:
        return _Pieces(*(column[rows] for column in self))


def _divided(context: TraceContext, thread: int, waits: _BlockedTime, gaps: _Dividing) -> Divided:
    blocked = CoveredTime(context.host_state.logical_thread_blocked(thread))
    wait, wait_start_ns = _longest_waits(context, waits, gaps)
    pieces = _divide(context, thread, blocked, replace(gaps, wait=wait.astype(np.int32)), wait_start_ns)
    columns = pieces.start_ns, pieces.end_ns, pieces.cause, pieces.region, pieces.thread
    return Divided(*columns, wait.astype(np.int32), gaps.costs(pieces), 0)


def _delayed_until(context: TraceContext, gaps: _Dividing) -> Int64Array:
    """When each gap's launch was made at the latest: waits after that delayed something else."""
    return np.maximum(np.minimum(pick(context.calls.start_ns, gaps.launch, LAST_INSTANT), gaps.end_ns), gaps.since_ns)


def _divide(
    context: TraceContext, thread: int, blocked: CoveredTime, gaps: _Dividing, wait_start_ns: Int64Array
) -> Segments:
    """The pieces of the gaps of one responsible thread: its states, launch latency, waiting for the device to begin."""
    launch_end = pick(context.calls.end_ns, gaps.launch, LAST_INSTANT)
    host_end = np.clip(launch_end, gaps.start_ns, gaps.end_ns)
    arrive_end = np.clip(np.minimum(launch_end, gaps.end_ns) + LAUNCH_LIMIT_NS, host_end, gaps.end_ns)
    rows = np.arange(len(gaps), dtype=np.intp)
    region = pick(context.launch_region, gaps.operation, ROOT).astype(np.int64)
    start, end, row, state = cut(gaps.start_ns, host_end, context.host_state.responsible(thread))
    host = _Pieces(start, end, state, np.full(len(row), thread, np.int64), row, np.full(len(row), NOTHING, np.int64))
    host = _chase(context, thread, host)
    latency = _constant(host_end, arrive_end, Cause.CUDA_API, thread, rows, region)
    waiting = _constant(arrive_end, gaps.end_ns, Cause.DEVICE_WAIT, thread, rows, region)
    pieces = _debit_syncs(context, blocked, gaps, wait_start_ns, _stack(host, latency))
    return _own(context, _stack(pieces, waiting))


def _constant(
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    cause: Cause,
    thread: int,
    gap: npt.NDArray[np.intp],
    owner: npt.NDArray[np.int64],
) -> _Pieces:
    count = len(start)
    return _Pieces(start, end, np.full(count, int(cause)), np.full(count, thread, np.int64), gap, owner)


def _stack(*parts: _Pieces) -> _Pieces:
    stacked = _Pieces(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return stacked.take(stacked.end > stacked.start)


def _chase(context: TraceContext, thread: int, pieces: _Pieces) -> _Pieces:
    """While the thread sleeps, whoever of its process runs is responsible; failing that, the sleep is."""
    settled = []
    for other in context.host_state.running_elsewhere(thread):
        sleeping = (pieces.state == Cause.HOST_BLOCKED) | (pieces.state == ELSEWHERE)
        if not sleeping.any():
            break
        settled.append(pieces.take(~sleeping))
        asleep = pieces.take(sleeping)
        start, end, row, state = cut(asleep.start, asleep.end, context.host_state.running(other, thread))
        runs = state != NOTHING
        pieces = _Pieces(
            start,
            end,
            np.where(runs, state, asleep.state[row]),
            np.where(runs, other, asleep.thread[row]),
            asleep.gap[row],
            asleep.owner[row],
        )
    pieces = _stack(*settled, pieces)
    state = np.where(pieces.state == ELSEWHERE, int(context.host_state.awake), pieces.state)
    return pieces._replace(state=np.where(state == INPUT, int(Cause.HOST_BLOCKED), state))


def _debit_syncs(
    context: TraceContext, blocked: CoveredTime, gaps: _Dividing, wait_start_ns: Int64Array, pieces: _Pieces
) -> _Pieces:
    """Turn up to W of each gap into ``sync``: W is how long the host was ``blocked`` since the operation before.

    Had it not waited, the next launch would have come W earlier. What lies in a sync call goes first, then the
    earliest part. Time in which the device itself delays a launched operation is not the host's to save.
    """
    budget = blocked.within(gaps.since_ns, _delayed_until(context, gaps))
    in_sync = pieces.state == Cause.SYNC
    length = pieces.end - pieces.start
    np.subtract.at(budget, pieces.gap[in_sync], length[in_sync])
    order = np.lexsort((pieces.start, pieces.gap))
    pieces, in_sync, length = pieces.take(order), in_sync[order], length[order]
    debitable = np.where(in_sync, 0, length)
    before = np.cumsum(debitable) - debitable
    first = np.flatnonzero(np.append(True, pieces.gap[1:] != pieces.gap[:-1])) if len(order) else order
    sizes = np.diff(np.append(first, len(order)))
    before = before - np.repeat(before[first], sizes)
    taken = np.clip(budget[pieces.gap] - before, 0, debitable)
    taken = np.where(in_sync, length, taken)
    blamed = _waiting_regions(context, gaps, wait_start_ns)[pieces.gap]
    middle = pieces.start + taken
    synced = pieces._replace(
        end=middle,
        state=np.full(len(order), int(Cause.SYNC)),
        owner=np.where(blamed != NOTHING, blamed, pieces.owner),
    )
    return _stack(synced, pieces._replace(start=middle))


def _waiting_regions(context: TraceContext, gaps: _Dividing, wait_start_ns: Int64Array) -> Int64Array:
    """The region in which the wait that is to blame for each gap began; NOTHING where nobody waited."""
    region = np.full(len(gaps), NOTHING, np.int64)
    thread = pick(context.calls.thread, gaps.wait, NO_THREAD)
    for member in unique(thread[thread != NO_THREAD]).tolist():
        mine = thread == member
        region[mine] = context.ownership.at(member, wait_start_ns[mine])
    return region


def _longest_waits(context: TraceContext, waits: _BlockedTime, gaps: _Dividing) -> tuple[Int64Array, Int64Array]:
    """The call with the longest wait since the operation before each gap (NOTHING: nobody waited), and its begin."""
    until = _delayed_until(context, gaps)
    stop = places(waits.start, until, side="left")
    first = places(waits.reach, gaps.since_ns, side="right")
    first = np.minimum(np.maximum(first, stop - _LATEST_WAITS), stop)
    row, wait = expand(first, stop)
    overlap = np.minimum(waits.end[wait], until[row]) - np.maximum(waits.start[wait], gaps.since_ns[row])
    order = np.lexsort((wait, overlap))  # the last write wins: the longest, of equals the latest
    order = order[overlap[order] > 0]
    longest = np.full(len(gaps), NOTHING, np.int64)
    longest[row[order]] = wait[order]
    return pick(waits.call, longest, NOTHING), pick(waits.start, longest, NOTHING)


def _own(context: TraceContext, pieces: _Pieces) -> Segments:
    """Give every piece its region: the one known, else the one open on its thread, cut where that changes."""
    known = pieces.owner != NOTHING
    fixed = pieces.take(known)
    parts = [of_segments.make(fixed.start, fixed.end, fixed.state, fixed.owner, fixed.thread)]
    open_ = pieces.take(~known)
    for thread in unique(open_.thread).tolist():
        mine = open_.take(open_.thread == thread)
        start, end, row, rows = cut(mine.start, mine.end, context.ownership.steps(thread))
        region = context.ownership.region_of(rows)
        parts.append(of_segments.make(start, end, mine.state[row], region, np.full(len(row), thread, np.int64)))
    return of_segments.concatenate(*parts)


def _cut_intervals(
    columns: dict[str, Int64Array], settings: dict[str, int]
) -> tuple[Int32Array, Int32Array, Int8Array, Int32Array]:
    start, end, row, owner = cut(
        columns["low"], columns["high"], StepFunction(columns["step_time"], columns["step_range"])
    )
    start, end, inner, cause = cut(start, end, StepFunction(columns["state_time"], columns["state"]))
    region = pick(columns["region_of_range"], owner[inner], settings["root"])
    cause = np.where(cause >= 0, cause, settings["otherwise"])
    node, ns, most = np.asarray(columns["node"])[row[inner]], end - start, np.iinfo(np.int32).max
    times = -(-ns // most)
    part = np.repeat(np.arange(len(ns)), times)
    ns = ns[part] - most * (np.arange(len(part)) - np.repeat(np.cumsum(times) - times, times))
    ns = np.minimum(ns, most).astype(np.int32)
    return node[part].astype(np.int32), ns, cause[part].astype(np.int8), region[part].astype(np.int32)


# --- the replay


def _forward(links: Links, costs: Costs, order: Int32Array, *, calibrates: bool = False) -> Pass:
    one_pass = _new(links, costs, order, calibrates)
    link, cost, now = _elements(links), _elements(costs), _elements(one_pass)
    for event in now.order:
        _happen(link, cost, now, event)
    return one_pass


def _assign_slots(*_: object) -> None:
    """Passes are made one by one."""


def _shorten(interval_ns: Int64Array, pieces: Pieces, mine: BoolArray) -> Int64Array:
    left: Int64Array = interval_ns.copy()
    np.subtract.at(left, np.repeat(np.arange(len(left)), np.diff(pieces.at))[mine], pieces.ns[mine])
    return left


def _find_late(
    links: Links, costs: Costs, call_start: Int64Array, call_end: Int64Array, turn: Int64Array
) -> npt.NDArray[np.intp]:
    row, node = links.wait_for, links.waiting
    launched = np.append(call_start, passes.NEVER)[links.launch]
    return np.flatnonzero(costs.waits[node] & (turn[row] >= call_end[node]) & (launched[row] < call_end[node]))


class Turns(Struct, frozen=True):
    """See structs.h."""

    next_at: Int32Array
    next: Int32Array
    pending: Int32Array
    key: Int64Array
    heap: Int32Array


def _in_turns(links: Links, costs: Costs, order: Int32Array, following: Following) -> Pass:
    one_pass, count = _new(links, costs, order, False), len(order)
    turns = Turns(
        following.next_at,
        following.next,
        np.zeros(count, np.int32),
        np.zeros(count, np.int64),
        np.zeros(count, np.int32),
    )
    _run_in_turns(links, costs, one_pass, turns)
    return one_pass


def _run_in_turns(links: Links, costs: Costs, one_pass: Pass, turns: Turns) -> None:
    link, cost, now, turn = _elements(links), _elements(costs), _elements(one_pass), _elements(turns)

    def following(place: int) -> Iterator[int]:
        event = now.order[place]
        for edge in range(turn.next_at[place], turn.next_at[place + 1]):
            after = now.order[turn.next[edge]]
            hangs = event >= 0 or after < 0 or (cost.waits[after >> 1] if after & 1 else cost.has_queue_limit)
            if hangs:
                yield turn.next[edge]

    def key(place: int) -> int:
        event = now.order[place]
        if event >= 0:
            return (_ends_at if event & 1 else _begins_at)(link, cost, now, event >> 1)
        row = ~event
        node, before = link.launch[row], link.before[row]
        due = _ready_at(link, cost, now, row)
        due += cost.unexplained_delay_ns[row] if node >= 0 or before >= 0 else 0
        due = max(due, now.call_start[node]) if node >= 0 else due
        return max(due, now.start[before]) if before >= 0 else due

    for place in range(now.events):
        for after in following(place):
            turn.pending[after] += 1
    able = [(key(place), place) for place in range(now.events) if turn.pending[place] == 0]
    heapify(able)
    while able:
        _, place = heappop(able)
        _happen(link, cost, now, now.order[place])
        for after in following(place):
            turn.pending[after] -= 1
            if turn.pending[after] == 0:
                heappush(able, (key(after), after))


def _happen(link: Links, cost: Costs, now: Pass, event: int) -> None:
    if event < 0:
        _run_operation(link, cost, now, ~event)
    elif event & 1:
        _end_node(link, cost, now, event >> 1)
    else:
        _begin_node(link, cost, now, event >> 1)


def _elements(record: Any) -> Any:
    """The record with memory views instead of its arrays: elements are quicker to get at, and plain integers."""
    names = {name for kind in type(record).__mro__ for name in vars(kind).get("__annotations__", ())}
    columns = {name: getattr(record, name) for name in names}
    views: dict[str, Any] = {name: column.data for name, column in columns.items() if isinstance(column, np.ndarray)}
    return record.changed(**views) if isinstance(record, Costs) else replace(record, **views)


def _begins_at(link: Links, cost: Costs, now: Pass, node: int) -> int:
    """A node begins: after the one before it on its chain, its waker, and room in its stream's queue."""
    chain, waker, slot = link.chain[node], link.follows[node], link.queue_slot[node]
    time: int
    if now.begun[chain]:
        time = now.clock[chain] + cost.interval_ns[node]
    else:  # a thread that another one began, or one that was there from the beginning
        time = passes.NEVER if waker >= 0 else link.node_begin_ns[node]
    if waker >= 0:
        time = max(time, now.call_end[waker] + link.follow_lag_ns[node])
    if cost.has_queue_limit and slot >= 0:
        time = max(time, now.end[slot] + link.queue_slot_lag_ns[node])
    return time


def _begin_node(link: Links, cost: Costs, now: Pass, node: int) -> None:
    chain, time = link.chain[node], _begins_at(link, cost, now, node)
    now.begun[chain] = True
    if now.calibrates:
        delay = link.node_begin_ns[node] - time
        now.interval_ns[node] += delay
        if link.follows[node] >= 0:
            now.follow_lag_ns[node] += delay
        if link.queue_slot[node] >= 0:
            now.queue_slot_lag_ns[node] += delay
        time = link.node_begin_ns[node]
    now.call_start[node] = time
    now.call_end[node] = now.clock[chain] = time + cost.call_ns[node]


def _ends_at(link: Links, cost: Costs, now: Pass, node: int) -> int:
    """A node that waits ends: not before the operations it waits for."""
    chain, done = link.chain[node], int(now.call_end[node])
    if not cost.waits[node]:
        return done
    for edge in range(link.wait_at[node], link.wait_at[node + 1]):
        row = link.wait_for[edge]
        other = link.launch[row]
        if other >= 0 and link.chain[other] != chain and now.call_start[other] > now.call_start[node]:
            continue  # another thread launches it after this call now
        done = max(done, (now.start if link.waits_for_start[node] else now.end)[row] + cost.wait_lag_ns[node])
    return done


def _end_node(link: Links, cost: Costs, now: Pass, node: int) -> None:
    if not cost.waits[node]:
        return
    chain, done = link.chain[node], _ends_at(link, cost, now, node)
    if now.calibrates:
        now.call_ns[node] += link.node_end_ns[node] - done
        now.wait_lag_ns[node] += link.node_end_ns[node] - done
        done = link.node_end_ns[node]
    now.call_end[node] = done
    now.clock[chain] = max(now.clock[chain], done)


def _find_room(link: Links, now: Pass, row: int, ready: int) -> int:
    """When an operation that is ready at a time finds room on its device among the operations of other lanes."""
    lane, kind = link.lane[row], link.kind[row]
    first, room = link.lane_first[lane], ready
    if kind >= FIRST_KERNEL and now.front[first] > room:
        room = now.front[first]  # none overtakes a kernel that waits for room
    for other in range(first, link.lane_stop[lane]):
        if other != lane and now.lane_end[other] > room and link.excludes[kind * link.kinds + now.lane_kind[other]]:
            room = now.lane_end[other]
    if now.calibrates:
        now.lead_ns[row] = max(0, room - max(link.start_ns[row], ready))
    start: int = max(ready, room - (now.lead_ns if now.calibrates else link.unexplained_lead_ns)[row])
    if kind >= FIRST_KERNEL and start > now.front[first]:
        now.front[first] = start
    return start


def _ready_at(link: Links, cost: Costs, now: Pass, row: int) -> int:
    """When an operation is ready: launched, and what it comes after is done."""
    node, before, ready = link.launch[row], link.before[row], passes.NEVER
    if node < 0 and before < 0:
        return int(link.start_ns[row])
    if node >= 0:
        ready = (now.call_end if link.from_call_end[row] else now.call_start)[node] + cost.launch_latency_ns[row]
    if before >= 0:
        ready = max(ready, now.end[before] + cost.switch_ns[row])
    for edge in range(link.after_at[row], link.after_at[row + 1]):
        ready = max(ready, now.end[link.after_what[edge]] + cost.switch_ns[row])
    return ready


def _run_operation(link: Links, cost: Costs, now: Pass, row: int) -> None:
    node, before, lane = link.launch[row], link.before[row], link.lane[row]
    start = ready = _ready_at(link, cost, now, row)
    delay = 0
    if node >= 0 or before >= 0:
        start = _find_room(link, now, row, ready) if lane >= 0 else ready
        if now.calibrates:
            now.delay_ns[row] = link.start_ns[row] - start
        delay = (now.delay_ns if now.calibrates else cost.unexplained_delay_ns)[row]
        start += delay
    now.start[row] = start
    now.end[row] = start + cost.duration_ns[row]
    if not now.keeps_turns:
        return
    # Its turn comes when it is ready and what nothing explains has passed; never before what it follows.
    due = min(ready + delay, start)
    if node >= 0:
        due = max(due, now.call_start[node])
    if before >= 0:
        due = max(due, now.start[before])
    now.turn[row] = due
    if lane >= 0:
        now.lane_end[lane], now.lane_kind[lane] = now.end[row], link.kind[row]
        now.block_end[lane // BLOCK] = max(now.block_end[lane // BLOCK], now.end[row])


# --- events of a Chrome trace


def scanned(text: bytes, keys: Iterable[str]) -> JsonEvents:
    """The events of a text by Python's own JSON."""
    keys = tuple(keys)
    try:
        whole = text.rstrip(b"\0 \t\r\n").decode("utf-8", "replace")
        decoder = json.JSONDecoder(strict=False, parse_float=_Number, parse_int=_Number, parse_constant=_nothing)
        try:
            data = decoder.decode(whole)
        except ValueError:
            data = decoder.decode(_WRONG_BACKSLASH.sub(_double, whole))
    except ValueError as error:
        at = int(getattr(error, "pos", 0))
        raise NotJsonError(at, is_cut=at >= len(text) - 1) from None
    top = {} if isinstance(data, list) else data
    rows = data if isinstance(data, list) else data.get("traceEvents", [])
    index: dict[str, int] = {}

    def number_of(value: Any) -> int:
        return index.setdefault(value, len(index)) if isinstance(value, str) and not isinstance(value, _Number) else -1

    columns: list[list[int]] = [[] for _ in _COLUMNS]
    entries: list[list[int]] = [[] for _ in _ENTRIES]
    places = {key: place for place, key in enumerate(keys)}
    for event in rows if isinstance(rows, list) else ():
        if not isinstance(event, dict) or event.get("ph") not in tuple(PHASES):
            continue
        row = len(columns[0])
        arguments = event.get("args")
        for key, value in arguments.items() if isinstance(arguments, dict) else ():
            if key in places:
                kind, found = passes.NOTHING, MISSING
                if isinstance(value, _Number):
                    kind, found = NUMBER, value.integer(0)
                elif isinstance(value, str):
                    kind, found = TEXT, number_of(value)
                elif isinstance(value, (list, dict)):
                    kind, found = RAW, number_of(json.dumps(value, default=str))
                for column, what in zip(entries, (row, places[key], kind, found), strict=True):
                    column.append(what)
        times = [event[key].integer(3) if isinstance(event.get(key), _Number) else MISSING for key in ("ts", "dur")]
        who = [_identity(event.get(key)) for key in ("pid", "tid")]
        values = (ord(event["ph"]), number_of(event.get("cat")), number_of(event.get("name")), *who, *times)
        for column, what in zip(columns, values, strict=True):
            column.append(what)
    arrays = {name: np.array(column, kind) for name, column, kind in zip(_COLUMNS, columns, _COLUMN_TYPES, strict=True)}
    of_entries = [np.array(column, kind) for column, kind in zip(entries, _ENTRY_TYPES, strict=True)]
    beside = {key: _numbers(value) for key, value in top.items() if key != "traceEvents"}
    return JsonEvents(**arrays, texts=tuple(index), top=beside, _arguments=_by_key(keys, of_entries))


class _Number(str):
    """A number as it stands in the text."""

    __slots__ = ()

    def integer(self, shift: int) -> int:
        with contextlib.suppress(InvalidOperation, OverflowError):
            value = int((abs(Decimal(self)) * 10**shift + Decimal("0.5")) // 1)
            if value < 1 << 63:
                return -value if self[0] == "-" else value
        return MISSING


def _nothing(_: str) -> None:
    """NaN and infinities are no numbers."""


def _identity(value: Any) -> int:
    if isinstance(value, _Number):
        return value.integer(0)
    found = re.search(r"-?\d+", value) if isinstance(value, str) else None
    return int(found.group()) if found and int(found.group()) < 1 << 63 else MISSING


def _numbers(value: Any) -> Any:
    """What stands beside the events, with numbers as numbers."""
    if isinstance(value, _Number):
        return float(value) if set(value) & set(".eE") else int(value)
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    return [_numbers(inner) for inner in value] if isinstance(value, list) else value


_PASSES: dict[str, dict[str, Any]] = {
    arrays.__name__: {
        "_few": _few,
        "_distinct": _distinct,
        "pick": _pick,
        "blank": _blank,
        "places": _places,
        "order_of": _order_of,
        "marked": _marked,
        "queue_depth": _queue_depth,
        "range_maximum": _range_maximum,
        "order_statistics": _order_statistics,
        "into_groups": _into_groups,
        "group_sums": _group_sums,
        "group_counts": _group_counts,
        "tally": _tally,
    },
    intervals.__name__: {
        "union": _union,
        "overlay": _overlay,
        "contains": _contains,
        "cut": _cut,
        "_nested": _nested,
    },
    instances.__name__: {"intervals_in": _intervals_in},
    correlate.__name__: {"_join": _join},
    lanes.__name__: {"cause_bins": _cause_bins, "groups_of": _groups_of, "grouped": _grouped},
    passes.__name__: {"distinct_texts": distinct_texts},
    of_segments.__name__: {"covering": _covering},
    of_gaps.__name__: {"_divided": _divided},
    passes.__name__: {"states": _states, "around": _around},
    __name__: {"cut_intervals": _cut_intervals},
    passes.__name__: {
        "forward": _forward,
        "assign_slots": _assign_slots,
        "shorten": _shorten,
        "in_turns": _in_turns,
        "find_late": _find_late,
    },
}
