"""Which call launched which operation, and what each call is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

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
    is_in,
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
from boundby.model.scale import (
    CLOCK_ERROR_NS,
    DENSE,
    HABIT,
    HALF,
    LAUNCH_NS,
    MANY,
    NEGLIGIBLE,
    NEXT_TO_NOTHING,
    TENFOLD,
)
from boundby.model.units import percent, plural
from boundby.trace.facts import CLOCKS_APART_NS, TraceWarning
from boundby.trace.tables import NO_CORRELATION, CallTable, OpKind, Trace
from boundby.trace.vocabulary.cuda import CallClass, is_profiler_call

# Device clocks that run apart from the host's: detect it, estimate the shift.
#
# No operation can start before the call that launches it, and a copy that holds its call ends before the call returns.
# Timestamps of both sides are fitted to one clock by the profiler, good to a few microseconds; when many operations
# start earlier than that the device's clock is behind, when many end later it is ahead.

# Fewer copies that hold their call say nothing of a clock that is ahead.
LEAST_COPIES = HABIT
# More than this fraction of operations starting before their launch is beyond noise and broken rows.
SKEWED_FRACTION = NEGLIGIBLE
# More than this fraction of such copies ending after their call is no row that is broken here or there.
AHEAD_FRACTION = HALF
# The shift is taken from this quantile of (launch - start): the few beyond it are broken rows, not the clock.
ROBUST_QUANTILE = 1 - NEXT_TO_NOTHING
# Of so many operations one starts within this of its call's end: in 30 real traces 170 us at most, mostly 10 us.
LEAST_LAUNCHED = MANY
MOST_LATENCY_NS = 300_000
# The quickest operation of any healthy trace starts about this long after its launching call has begun.
LEAST_LATENCY_NS = CLOCK_ERROR_NS


class ClockShift(Struct, frozen=True):
    """``shift_ns`` is to be added to device times. ``early_fraction`` of operations start before their launch;
    ``late_fraction`` of the copies that hold their call end after it returned."""

    shift_ns: int
    early_fraction: float
    late_fraction: float = 0.0
    unshown_ns: int = 0  # so far ahead it may be besides: no operation starts sooner after its call

    @property
    def because(self) -> str:
        """What shows that the clock is off."""
        if self.shift_ns < 0:
            return f"{percent(self.late_fraction)} of its blocking copies seemed to end after their call had returned"
        return f"{percent(self.early_fraction)} of its operations seemed to start before their launch"


NO_SHIFT = ClockShift(0, 0.0)


def estimate_shift(operation_start: Int64Array, launch_start: Int64Array, late: Int64Array | None = None) -> ClockShift:
    """The shift that puts one device's operations after their launches, or NO_SHIFT for a healthy clock.

    Shapes: both (n,), for operations whose launching call is known; ``late``: (m,), by how much copies that hold their
    call end after it has returned (negative: before). The estimate is the smallest shift that is consistent with
    causality, so true launch latencies are at least those reported, and true returns at most as late.
    """
    if len(operation_start) == 0:
        return NO_SHIFT
    early: npt.NDArray[np.int64] = launch_start - operation_start
    fraction = float((early > CLOCKS_APART_NS).mean())
    if fraction > SKEWED_FRACTION:
        shift = int(np.quantile(early, ROBUST_QUANTILE, method="inverted_cdf")) + LEAST_LATENCY_NS
        return ClockShift(max(shift, 0), fraction)
    # Where every operation starts late after its launch as well, one wait that returned too early is enough.
    is_slow = len(early) >= LEAST_LAUNCHED and -int(early.max()) > MOST_LATENCY_NS
    enough = 1 if is_slow else LEAST_COPIES
    ahead = float((late > CLOCKS_APART_NS).mean()) if late is not None and len(late) >= enough else 0.0
    if late is None or ahead <= AHEAD_FRACTION:
        return ClockShift(0, fraction, ahead)
    # Never so far that operations would start before their launch.
    room = -int(np.quantile(early, ROBUST_QUANTILE, method="inverted_cdf")) - LEAST_LATENCY_NS
    back = min(int(np.quantile(late, ROBUST_QUANTILE, method="inverted_cdf")), room)
    if is_slow and room - back > MOST_LATENCY_NS:  # it is ahead, and the quickest launch shows by how much
        back = room
    return ClockShift(-max(back, 0), fraction, ahead)


# A first call counts as loading code when it takes this many times the median of the later ones, and as many times what
# a call that loads nothing takes at most: no ordinary hiccup (page fault) explains it. Real lazy loads take 0.1 ms (a
# kernel of a small program) to 1.3 s.
FIRST_LOAD_FACTOR = TENFOLD
USUAL_CALL_NS = LAUNCH_NS
FIRST_LOAD_MINIMUM_NS = FIRST_LOAD_FACTOR * USUAL_CALL_NS


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
    is_dense = low >= 0 and high <= DENSE * len(key)  # numbers that run on: a table instead of a search
    joined: list[npt.NDArray[Any]] = []
    if is_dense:
        row_of = np.empty(high + 1, np.int32)
        run("boundby_numbered", key, key.itemsize, launches, len(key), high, row_of)
        for of_process, number in wanted:
            joined.append(np.empty(len(number), np.int32))
            values = integers(number)
            asks = np.ascontiguousarray(of_process, np.int32), values, values.itemsize, len(values)
            run("boundby_join", row_of, high, *asks, NO_CORRELATION, stride, joined[-1])
        return joined
    order = np.lexsort((np.arange(len(key)), ~launches, key))
    for of_process, number in wanted:
        asked, of_key = (number != NO_CORRELATION) & (of_process >= 0), of_process.astype(np.int64) * stride + number
        row = order[np.minimum(places(key[order], of_key, side="left"), len(key) - 1)]
        joined.append(np.where((key[row] == of_key) & asked, row, -1))
    return joined


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
    controls = [name_id for name_id in unique(name).tolist() if is_profiler_call(trace.names[name_id])]
    kernels, others = as_rows(is_launched), np.flatnonzero((kind == CallClass.OTHER) & ~is_in(name, controls))
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
    begins = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    size = np.diff(np.append(begins, len(group)))
    middle = np.minimum(begins + 1 + (size - 1) // 2, len(call) - 1)
    usual = np.where(size > 1, duration[call[middle]], overall)
    loads[call[begins[duration[call[begins]] > FIRST_LOAD_FACTOR * usual]]] = True
    return loads


# Waits whose call is not on record while the capture's own row of the wait is: put back where that row lies.
#
# A profiler writes a wait for the device twice, as a call and as a row of its table of waits, which has the same time
# to within a microsecond. Where only the row is left, the host would seem to work on its own all that time.


def restored(trace: Trace, calls: Calls) -> Trace:
    """The trace with the calls of such waits; itself where there are none. Only where it is plain what call it was (all
    on record that name streams and events as it does are of one class) and which thread made it (see ``_threads``)."""
    points, api = trace.stream_points, trace.api
    inside = (points.start_ns >= trace.span_ns[0]) & (points.end_ns <= trace.span_ns[1])
    rows = np.flatnonzero(inside & ~points.is_record & (points.end_ns > points.start_ns) & (points.process >= 0))
    if not len(rows) or not len(api) or not bool((calls.of_point[rows] < 0).any()):
        return trace
    stride = int(max(api.correlation.max(), points.correlation[rows].max())) + 1
    key = trace.process_of_thread[api.thread] * stride + api.correlation
    order = np.argsort(key, kind="stable")
    wanted = points.process[rows].astype(np.int64) * stride + points.correlation[rows]
    position = np.searchsorted(key[order], wanted)
    call = order[np.minimum(position, len(order) - 1)]
    is_known = key[call] == wanted
    lost = np.flatnonzero(~is_known)
    if not len(lost):
        return trace
    shape = (points.stream[rows] >= 0) * 2 + (points.event[rows] >= 0)
    name = np.full(len(rows), -1, np.int32)
    for each in unique(shape[lost]).tolist():
        names = api.name[call[is_known & (shape == each)]]
        if len(names) and len(unique(trace.call_class[names])) == 1:
            name[shape == each] = np.bincount(names[names >= 0], minlength=1).argmax()
    lost = lost[name[lost] >= 0]
    start, end = points.start_ns[rows[lost]], points.end_ns[rows[lost]]
    thread = _threads(trace, key[order], order, wanted[lost], points.process[rows[lost]])
    free = np.flatnonzero(_is_free(api, thread, start, end))
    if not len(free):
        return trace
    columns: dict[str, npt.NDArray[Any]] = {
        "start_ns": start[free],
        "end_ns": end[free],
        "thread": thread[free],
        "correlation": points.correlation[rows[lost[free]]],
        "name": name[lost[free]],
        "has_failed": np.zeros(len(free), bool),
    }
    text = (
        f"{plural(len(free), 'call')} that wait for the device {'is' if len(free) == 1 else 'are'} missing, but not "
        "what the profiler wrote of the waits: put back from there."
    )
    warnings = (*trace.warnings, TraceWarning("waits-restored", text))
    return replace(trace, api=api.and_more(columns).sorted(trace.names), warnings=warnings)


def _threads(
    trace: Trace,
    key: Int64Array,
    order: npt.NDArray[np.intp],
    wanted: Int64Array,
    process: npt.NDArray[np.int32],
) -> npt.NDArray[np.int64]:
    """The thread of each lost call: that of the calls before and after it, since a process numbers its calls in order,
    or the only one of the process that calls; -1 where that is not plain. One after all calls on record is the
    profiler's own: it waits for the device before it stops. ``key``: of all calls, as ``order`` sorts them."""
    thread, position = np.append(trace.api.thread[order].astype(np.int64), -1), np.searchsorted(key, wanted)
    before, after = (
        np.where(_process(trace, thread[at]) == process, thread[at], -1) for at in (position - 1, position)
    )
    callers = unique(trace.api.thread)
    alone = np.bincount(_process(trace, callers), minlength=len(trace.processes))[process] == 1
    return np.where(alone | (before == after), after, -1)


def _process(trace: Trace, thread: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    process: npt.NDArray[np.int64] = np.append(trace.process_of_thread, -1)[thread]
    return process


def _is_free(api: CallTable, thread: npt.NDArray[np.int64], start: Int64Array, end: Int64Array) -> BoolArray:
    """Whether each thread is in none of its recorded calls from start to end."""
    free: BoolArray = thread >= 0
    for each in unique(thread[free]).tolist():
        rows, own = np.flatnonzero(thread == each), api.rows_of(each)
        ended = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(api.end_ns[own]))
        free[rows] = ended[np.searchsorted(api.start_ns[own], end[rows])] <= start[rows]
    return free
