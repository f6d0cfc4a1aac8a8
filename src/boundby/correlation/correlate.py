"""Which call launched which operation, and what each call is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model.arrays import (
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
    as_rows,
    ascend,
    bounds,
    first_rows,
    is_any,
    is_even,
    median,
    narrow,
    pick,
    places,
    ranked,
    rows_of,
    shared,
    unique,
)
from boundby.model.library import integers, run
from boundby.trace.tables import NO_CORRELATION, OpKind, Trace
from boundby.trace.vocabulary.cuda import CallClass

# A first call counts as loading code when it takes this many times the median of the later ones, and as many times what
# a call that loads nothing takes at most: no ordinary hiccup (page fault) explains it. Real lazy loads take 0.1 ms (a
# kernel of a small program) to 1.3 s.
FIRST_LOAD_FACTOR = 10
USUAL_CALL_NS = 10_000
FIRST_LOAD_MINIMUM_NS = FIRST_LOAD_FACTOR * USUAL_CALL_NS
# Calls are looked up in a table that has at most so many places for each of them.
_DENSE = 4


class Calls(Struct, frozen=True, dict=True):
    """Outermost API calls, disjoint on each thread, ordered by thread and start; and the call of each operation."""

    start_ns: Int64Array
    end_ns: Int64Array
    thread: Int32Array
    name: Int32Array
    kind: Int8Array  # CallClass
    is_first_load: BoolArray  # loads a module or creates a context by being the first of its kind
    of_operation: npt.NDArray[np.int64]  # per operation: row here, or -1
    of_point: npt.NDArray[np.int64]  # per row of Trace.stream_points: row here, or -1
    has_failed: BoolArray  # returned an error: what it was to launch never ran
    correlation: Int64Array  # its own number in its process

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def launched_ns(self) -> Int64Array:
        """Per operation: when its call was made; 0 without one. Until `forget`."""
        return pick(self.start_ns, self.of_operation, 0)

    @cached_property
    def names(self) -> Int32Array:
        """The distinct names, ascending."""
        return unique(self.name)

    def forget(self) -> None:
        """Keep no longer what can be worked out again."""
        vars(self).pop("launched_ns", None)

    def rows_of(self, thread: int) -> slice:
        """The rows of one thread."""
        return rows_of(self.thread, thread)


def correlate(trace: Trace) -> Calls:
    """Drop calls nested in others, join operations with their launching calls, and classify the calls."""
    api = trace.api
    outermost, start = _outermost(api.start_ns, api.end_ns, api.thread)
    rows: slice | npt.NDArray[np.intp] = slice(None) if outermost.all() else np.flatnonzero(outermost)
    # Every call's outermost call: nested ones follow theirs.
    root = None if isinstance(rows, slice) else np.cumsum(outermost) - 1
    kind_of_all = pick(trace.call_class, api.name, int(trace.call_class[-1]))
    kind = kind_of_all[rows]
    # A call is as strong as what runs inside it: cudaMemcpy -> cuMemcpyDtoH is one blocking copy.
    launches = is_any(kind_of_all, (CallClass.LAUNCH, CallClass.BLOCKING_COPY))
    call_process = trace.process_of(api.thread)
    operations, points = trace.operations, trace.stream_points

    wanted = (operations.process, operations.correlation), (points.process, points.correlation)
    joined = _join(wanted, api.correlation, call_process, launches)
    of_operation, of_point = (narrow(row if root is None else pick(root, row, -1)) for row in joined)
    start, end, thread, name = start[rows], api.end_ns[rows], api.thread[rows], api.name[rows]
    first = _first_loads(trace, of_operation, start, end, kind, name, call_process[rows], thread)
    return Calls(
        *(start, end, thread, name, kind, first, of_operation, of_point), api.has_failed[rows], api.correlation[rows]
    )


def _outermost(start: Int64Array, end: Int64Array, thread: npt.NDArray[Any]) -> tuple[BoolArray, Int64Array]:
    """Mask of calls not inside an earlier one of their thread, and starts trimmed to where that one ended."""
    outermost = np.ones(len(start), bool)
    if is_even(thread) and bool((start[1:] >= end[:-1]).all()) and ascend([end]):
        return outermost, start  # one after the other
    trimmed = start.copy()
    bounds = np.flatnonzero(np.diff(thread)) + 1
    for low, high in zip([0, *bounds.tolist()], [*bounds.tolist(), len(start)], strict=True):
        if high - low < 2:
            continue
        reach = np.maximum.accumulate(end[low:high])[:-1]
        outermost[low + 1 : high] = ~((start[low + 1 : high] < reach) & (end[low + 1 : high] <= reach))
        trimmed[low + 1 : high] = np.maximum(start[low + 1 : high], np.minimum(reach, end[low + 1 : high]))
    return outermost, shared(trimmed, start)


def _join(
    wanted: Sequence[tuple[Int32Array, Int64Array]],
    correlation: Int64Array,
    process: Int64Array,
    launches: BoolArray,
) -> list[npt.NDArray[Any]]:
    """For each wanted (process, correlation id) of some tables the API row that has them, or -1. Launch-class rows win
    ties."""
    if len(correlation) == 0:
        return [np.full(len(number), -1, np.int64) for _, number in wanted]
    stride = max(int(number.max(initial=0)) for number in (correlation, *(number for _, number in wanted))) + 1
    is_sole = is_even(process) and process[0] == 0
    key = integers(correlation) if is_sole else process * stride + correlation
    low, high = bounds(key)
    is_dense = low >= 0 and high <= _DENSE * len(key)  # numbers that run on: a table instead of a search
    found: list[npt.NDArray[Any]] = []
    if is_dense:
        row_of = np.empty(high + 1, np.int32)
        run("boundby_numbered", key, key.itemsize, launches, len(key), high, row_of)
        for of_process, number in wanted:
            found.append(np.empty(len(number), np.int32))
            known = integers(number)
            asks = np.ascontiguousarray(of_process, np.int32), known, known.itemsize, len(known)
            run("boundby_join", row_of, high, *asks, NO_CORRELATION, stride, found[-1])
        return found
    order = np.lexsort((np.arange(len(key)), ~launches, key))
    for of_process, number in wanted:
        asked, of_key = (number != NO_CORRELATION) & (of_process >= 0), of_process.astype(np.int64) * stride + number
        row = order[np.minimum(places(key[order], of_key, side="left"), len(key) - 1)]
        found.append(np.where((key[row] == of_key) & asked, row, -1))
    return found


def _first_loads(
    trace: Trace,
    of_operation: npt.NDArray[np.int64],
    start: Int64Array,
    end: Int64Array,
    kind: Int8Array,
    name: Int32Array,
    process: Int64Array,
    thread: Int32Array,
) -> BoolArray:
    """Calls that load code or create a context by being the first: of a kernel, or of a bookkeeping function."""
    operations = trace.operations
    loads = np.zeros(len(start), bool)
    is_launched = pick(kind, of_operation, -1) == CallClass.LAUNCH
    is_launched &= operations.kind == OpKind.KERNEL
    kernels, others = as_rows(is_launched), np.flatnonzero(kind == CallClass.OTHER)
    for names, processes, call in (
        (operations.name[kernels], operations.process[kernels], of_operation[kernels]),
        (name[others], process[others], others),
    ):
        if len(call):
            several = not is_even(processes)
            group = names.astype(np.int64) * (len(trace.processes) + 1) + processes if several else names
            is_in_order = is_even(thread) and ascend([call])  # calls of a thread are
            loads |= _long_firsts(group, call, start, end, is_in_order=is_in_order)
    return loads


def _long_firsts(
    group: npt.NDArray[np.integer],
    call: npt.NDArray[np.int64],
    start: Int64Array,
    end: Int64Array,
    *,
    is_in_order: bool,
) -> BoolArray:
    """Calls that are the first of their group and take far longer than the group's later ones.

    A group of one is compared with the median of all calls given, as far as these are no longer than calls that load
    nothing. ``is_in_order``: they stand in order of time.
    """
    loads = np.zeros(len(start), bool)
    if is_in_order:
        first = first_rows(group)
    else:
        groups, group = ranked(group)
        by_time = np.argsort(start[call], kind="stable")
        first = np.empty(len(groups), np.intp)
        first[group[by_time[::-1]]] = by_time[::-1]  # the last write wins: the first call
    earliest = call[first]
    if not bool((end[earliest] - start[earliest] > FIRST_LOAD_MINIMUM_NS).any()):
        return loads
    if is_in_order:
        _, group = ranked(group)
    duration = end - start
    is_slow = duration[earliest] > FIRST_LOAD_MINIMUM_NS
    overall = min(float(median(duration[call])), USUAL_CALL_NS)
    # Median of the later calls of each group: sort durations within groups, the first call put in front.
    is_first = np.zeros(len(call), bool)
    is_first[first] = True
    asked = is_slow[group]
    group, call, is_first = group[asked], call[asked], is_first[asked]
    by_length = np.lexsort((np.where(is_first, -1, duration[call]), group))
    group, call = group[by_length], call[by_length]
    place = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    size = np.diff(np.append(place, len(group)))
    middle = np.minimum(place + 1 + (size - 1) // 2, len(call) - 1)
    usual = np.where(size > 1, duration[call[middle]], overall)
    loads[call[place[duration[call[place]] > FIRST_LOAD_FACTOR * usual]]] = True
    return loads
