"""Rows that cannot be right beside others: left out, and said so.

Calls of a thread, and operations on a stream, begin and end in the order of their correlation ids; calls of the OS end
in the order in which they began. A row that is out of this order by many others has a wrong time. Which rows those are,
the longest sequence tells that keeps the order. Rows that lie out of it by a few only stay: calls of several threads
race for a stream, kernels of one stream overlap, some calls run inside others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.model.arrays import (
    BoolArray,
    Int64Array,
    ascend,
    factorize,
    grouped,
    in_order,
    is_any,
    is_even,
    is_in,
    merged,
    pick,
    places,
    unique,
)
from boundby.model.intervals import CoveredTime, do_nest, union
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, HABIT, HALF, MANY, NEGLIGIBLE, QUARTER, SEVERAL, SMALL, TENFOLD
from boundby.trace.facts import BROKEN_ROWS, CLOCKS_APART_NS, UNBELIEVABLE, TraceWarning
from boundby.trace.tables import NO_CORRELATION, CallTable, Direction, Intervals, OpKind, Trace
from boundby.trace.vocabulary.cuda import CallClass, is_call
from boundby.trace.vocabulary.os import blocked_on, is_mpi
from boundby.trace.vocabulary.range_names import fold_names, is_step

# The longest part of a sequence that ascends, and what lies out of it.

#: What contradicts fewer others may be right: of 60 real traces, calls of two contradict one other each, and no
#: operation contradicts any.
LEAST_CONTRADICTED = 2


def out_of_order(values: Int64Array) -> BoolArray:
    """Which values lie out of the longest ascending sequence of all by at least `LEAST_CONTRADICTED` of its values."""
    kept = longest_ascending(values)
    sequence = values[kept]
    before = np.cumsum(kept)
    rank = np.where(
        sequence[np.minimum(before, len(sequence) - 1)] < values,
        np.searchsorted(sequence, values, side="left"),
        np.searchsorted(sequence, values, side="right"),
    )
    contradicts: BoolArray = ~kept & (np.abs(rank - before) >= LEAST_CONTRADICTED)
    return contradicts


def longest_ascending(values: Int64Array) -> BoolArray:
    """A mask of the longest sequence of values, in their order, that never falls. Only what is out of order comes here:
    so a loop will do."""
    ends: list[int] = []  # the least last value of a sequence of each length
    rows: list[int] = []  # its row
    before = np.full(len(values), -1)
    for row, value in enumerate(values.tolist()):
        length = bisect_right(ends, value)
        if length:
            before[row] = rows[length - 1]
        if length == len(ends):
            ends.append(value)
            rows.append(row)
        else:
            ends[length], rows[length] = value, row
    kept = np.zeros(len(values), bool)
    row = rows[-1] if rows else -1
    while row >= 0:
        kept[row] = True
        row = int(before[row])
    return kept


# Ranges whose times contradict those of others: they cross ranges of their thread, or leave the order of their
# numbers.
#
# Ranges that a thread pushes and pops lie in one another or apart: where two cross, one has a wrong time. Where many
# do, a program's ranges need not nest; those that a compiler's runtime opens and closes always do, and then nothing
# tells which of them are right. Steps follow one another as their numbers do. (Other ranges may lie in those of their
# name: a function may call itself, and a module that has a number is called again and again.)

#: So many ranges must be in order for each that is not.
LEAST_IN_ORDER = HABIT
_DIGITS = expression(r"0*(\d+)")


def broken_ranges(trace: Trace) -> BoolArray | None:
    """Single ranges out of the order of their numbers, calls of MPI that hold others, and of the rest those that
    cross."""
    ranges = trace.ranges
    broken = _holding_others(trace)
    for rows in _counted(trace):
        times = np.stack((ranges.start_ns[rows], ranges.end_ns[rows]), axis=1).ravel()
        if (times[1:] < times[:-1]).any():
            late = unique(rows[np.flatnonzero(out_of_order(times)) // 2])
            if len(late) * LEAST_IN_ORDER < len(rows):
                broken[late] = True
    nesting = np.flatnonzero(~broken & ~ranges.is_start_end & ~ranges.is_open & (ranges.end_ns > ranges.start_ns))
    if len(nesting):
        _, line = factorize(ranges.thread[nesting], ranges.domain[nesting])
        for rows in (nesting[members] for members in grouped(line)[1]):
            start, end = ranges.start_ns[rows], ranges.end_ns[rows]
            if not do_nest(start, end):
                crossing = rows[_crossing(start, end, trace.rounded_ns)]
                is_construct = int(ranges.name[rows[0]]) in trace.constructs
                broken[rows if is_construct and not len(crossing) else crossing] = True
    return broken if broken.any() else None


def _holding_others(trace: Trace) -> BoolArray:
    """Calls of MPI in which their thread begins several others, unless many do: a thread is in one at a time."""
    ranges = trace.ranges
    broken = np.zeros(len(ranges), bool)
    rows = np.flatnonzero(trace.is_named(ranges.name, is_mpi))
    for of_thread in grouped(ranges.thread[rows])[1] if len(rows) else ():
        own = rows[of_thread]
        start = merged(ranges.start_ns[own])
        held = np.searchsorted(start, ranges.end_ns[own]) - np.searchsorted(start, ranges.start_ns[own], side="right")
        holds = held >= LEAST_CONTRADICTED
        if holds.sum() <= max(MOST_BROKEN_FRACTION * len(own), 1):
            broken[own[holds]] = True
    return broken


def _counted(trace: Trace) -> list[npt.NDArray[np.intp]]:
    """The ranges of one thread whose names differ in nothing but a number that each has for itself, in the order of
    these numbers; of those that need not nest only steps."""
    ranges = trace.ranges
    names = unique(ranges.name)
    names = names[names >= 0].tolist()
    folded = fold_names([trace.names[name] for name in names])
    index_of = {text: index for index, text in enumerate(sorted(set(folded)))}
    group = np.full(len(trace.names) + 1, -1)
    for name, text in zip(names, folded, strict=True):
        if text.count("*") > trace.names[name].count("*"):
            group[name] = index_of[text]
    steps = np.array([is_step(text) for text in sorted(index_of)] + [False])
    of = group[ranges.name]
    rows = np.flatnonzero((of >= 0) & ~ranges.is_open & (~ranges.is_start_end | steps[of]))
    if not len(rows):
        return []
    _, key = factorize(ranges.thread[rows], ranges.domain[rows], of[rows])
    return [ordered for members in grouped(key)[1] if len(ordered := _by_number(trace, rows[members])) > LEAST_IN_ORDER]


def _by_number(trace: Trace, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """These ranges in the order of the numbers in their names; none where one is there twice."""
    digits = [_DIGITS.findall(trace.names[name]) for name in trace.ranges.name[rows].tolist()]
    numbers = [tuple((len(each), each) for each in each_digits) for each_digits in digits]
    order = sorted(range(len(rows)), key=numbers.__getitem__)
    return rows[order if len(set(numbers)) == len(rows) else []]


def _crossing(start: Int64Array, end: Int64Array, rounded_ns: int) -> list[int]:
    """Which of these ranges (in order of start, then -end) cross others: of two that cross, the one that crosses more;
    both where that does not tell. None where so many do that ranges need not nest here."""
    open_rows: list[int] = []
    rows: list[int] = []
    begins, ends = start.tolist(), end.tolist()
    for row, (begin, until) in enumerate(zip(begins, ends, strict=True)):
        while open_rows and ends[open_rows[-1]] <= begin + rounded_ns:
            open_rows.pop()
        is_kept = True
        while is_kept and open_rows and until > ends[open_rows[-1]] + rounded_ns:
            other = open_rows[-1]
            own, theirs = _crossings(start, end, row), _crossings(start, end, other)
            if theirs >= own:
                rows.append(open_rows.pop())
            if own >= theirs:
                rows.append(row)
                is_kept = False
        if len(rows) > min(SEVERAL, len(begins) // LEAST_IN_ORDER):
            return []
        if is_kept:
            open_rows.append(row)
    return rows


def _crossings(start: Int64Array, end: Int64Array, row: int) -> int:
    low, high = start[row], end[row]
    late = (start > low) & (start < high) & (end > high)
    early = (start < low) & (end > low) & (end < high)
    return int((late | early).sum())


#: Where more rows of a thread or stream than this are out of order, its order is none that could be relied on.
MOST_BROKEN_FRACTION = QUARTER
#: More rows than this that contradict rows of other tables tell of two clocks, and not of wrong rows.
SINGLE_FRACTION = NEGLIGIBLE
#: Where more rows than this have been left out, what is left is no more to be believed.
UNBELIEVABLE_FRACTION = SMALL
#: No device starts and ends a kernel in less (the shortest on record take 0.8 us), no CPU launches one, and no link
#: between host and device moves more in a nanosecond (the fastest 450 bytes).
SHORTEST_NS, MOST_BYTES_PER_NS = 300, 1_000
# What is in another unit is a thousandth, at least.
_THOUSAND = 1_000
#: Tables of rows that are held against each other, and what people call their rows.
_ROWS = {"api": "CUDA API calls", "operations": "GPU operations", "os_calls": "OS calls", "ranges": "NVTX ranges"}
_CONTRADICT = "had times that contradict those of many others"
_NEVER = np.iinfo(np.int64).max
_Columns = tuple[npt.NDArray[Any], ...]
_DEVICE_WAIT = expression(r"^(?:cuda|cu|hip)(?:Device|Ctx|Thread)Synchronize")


def without_broken(trace: Trace) -> Trace:
    """The trace without rows that are there twice, calls of which nothing tells what they are, and rows whose times
    contradict those of many others; and with warnings that say so."""
    notes, left_out = [], 0
    rows = sum(len(getattr(trace, table)) for table in _ROWS)
    checks: list[tuple[str, Callable[[Trace], BoolArray | None], str]]
    checks = [(table, partial(repeated, table), "were on record twice") for table in _ROWS]
    checks += [("api", nameless_calls, "had names that no known call of a GPU has")]
    checks += [
        (table, find, _CONTRADICT)
        for table, find in zip(_ROWS, (broken_calls, broken_operations, broken_os_calls, broken_ranges), strict=True)
    ]
    for table, find, why in checks:
        broken = find(trace)
        if broken is not None:
            left_out += int(broken.sum()) if why is _CONTRADICT else 0
            named = f" ({_unknown(trace, broken)})" if find is nameless_calls else ""
            mixed = _MIXED_UP if find is broken_operations and _are_of_graphs(trace, broken) else ""
            notes.append(f"{int(broken.sum()):,} of the {_ROWS[table]} {why}{named} and were left out.{mixed}")
            trace = replace(trace, **{table: getattr(trace, table).take(~broken)})
    warnings = [TraceWarning(BROKEN_ROWS, note) for note in notes]
    if left_out > UNBELIEVABLE_FRACTION * rows:
        text = f"{left_out:,} of {rows:,} rows have times that contradict others: no time in this report is sure. "
        warnings.append(TraceWarning(UNBELIEVABLE, f"{text}Export or capture it again."))
    if unlike := unlike_any_machine(trace):
        text = f"{unlike}: its times may be in another unit than nanoseconds, or most work is not on record."
        warnings.append(TraceWarning(UNBELIEVABLE, f"{text} Export or capture it again."))
    return replace(trace, warnings=(*trace.warnings, *warnings)) if warnings else trace


#: A known defect (CUPTI's release notes, CUDA 13.1 Update 1).
_MIXED_UP = (
    " They ran in CUDA graphs: before CUDA 13.1 Update 1 CUPTI mixes up the launches of graphs from the second"
    " recording of a process on. Take the first recording, or a newer CUDA."
)


def _are_of_graphs(trace: Trace, operations: BoolArray) -> bool:
    """Whether all of these operations have the number of a call that launches a graph."""
    chosen = trace.operations.take(operations)
    call = _calls_of(trace, chosen.process, chosen.correlation)
    names = {int(number) for number in unique(trace.api.name[call[call >= 0]])}
    return bool((call >= 0).all()) and all("GraphLaunch" in trace.names[number] for number in names)


def unlike_any_machine(trace: Trace) -> str | None:
    """What no machine does, where most rows of a kind say that it did: kernels and launches that take no time, copies
    faster than any memory, waits for a device that does nothing although all that was launched is on record, ranges of
    threads that call CUDA where nothing else ever is."""
    table, calls = trace.operations, trace.api
    if not len(table) or not len(calls):
        return None
    kind, launch = pick(trace.call_class, calls.name, -1), _launches(trace)
    lasted, busy = calls.end_ns - calls.start_ns, table.end_ns - table.start_ns
    copies = is_any(table.direction, (Direction.HTOD, Direction.DTOH)) & (table.kind == OpKind.MEMCPY)
    # Shorter waits are for kernels that would be shorter than any can be: those are found below.
    waits = np.flatnonzero((kind == CallClass.SYNC) & (lasted > _THOUSAND * SHORTEST_NS))
    works = union(table.start_ns, table.end_ns)
    within = CoveredTime(works).within(calls.start_ns[waits], calls.end_ns[waits])
    is_long = (lasted[waits] - within).sum() > TENFOLD * works.total
    launches = kind == CallClass.LAUNCH
    is_lost = launches.copy()
    is_lost[launch[launch >= 0]] = False
    if is_long and is_lost.sum() <= SMALL * launches.sum() and _mostly(within < SMALL * lasted[waits], HABIT):
        return f"The GPU does nothing during most of {len(waits):,} waits for it"
    moved, took = int(table.bytes[copies].sum()), int(np.maximum(busy[copies], SHORTEST_NS).sum())
    if moved > MOST_BYTES_PER_NS * took:
        return f"The {int(copies.sum()):,} copies between host and device are faster than any link"
    for what, lasts in ("kernels", busy[table.kind == OpKind.KERNEL]), ("launches", lasted[launches]):
        if _mostly(lasts < SHORTEST_NS, MANY):
            return f"Most of {len(lasts):,} {what} are shorter than any can be"
    return _ranges_beyond(trace)


def _ranges_beyond(trace: Trace) -> str | None:
    """Whether most ranges of threads that call CUDA lie beyond all else that is on record, as far as they do in another
    unit: a program may well go on for longer than it uses the GPU."""
    ranges = trace.ranges.take(is_in(trace.ranges.thread, unique(trace.api.thread)))
    others = (trace.operations, trace.api, trace.os_calls, trace.schedule, trace.samples, trace.python_frames)
    ends = [(int(table.start_ns.min()), int(table.start_ns.max())) for table in others if len(table)]
    low, high = min(first for first, _ in ends), max(last for _, last in ends)
    if not _mostly(ranges.start_ns > high, MANY) or int(ranges.start_ns.max()) - low <= HALF * _THOUSAND * (high - low):
        return None
    return f"Most of {len(ranges):,} NVTX ranges begin after all else that is on record"


def _mostly(is_so: BoolArray, least: int) -> bool:
    return len(is_so) >= least and bool(is_so.mean() > HALF)


def repeated(table: str, trace: Trace) -> BoolArray | None:
    """Rows that are the same as the one before them in all columns, where they are more than single ones: nodes of a
    graph may run beside each other, for as long, in one tick of the device's clock."""
    rows = getattr(trace, table)
    again = np.arange(1, len(rows))
    for column in ("start_ns", "end_ns", *rows.__struct_fields__):
        values = getattr(rows, column)
        if len(values) == len(rows):
            again = again[values[again] == values[again - 1]]
    if len(again) <= SINGLE_FRACTION * len(rows):
        return None
    broken = np.zeros(len(rows), bool)
    broken[again] = True
    return broken


def nameless_calls(trace: Trace) -> BoolArray | None:
    """Calls without a name that CUDA or HIP has and without work of theirs, where they take time: they may be waits."""
    calls = trace.api
    nameless: BoolArray = ~trace.is_named(calls.name, is_call)
    if not nameless.any():
        return None
    launches = _launches(trace)
    nameless[launches[launches >= 0]] = False
    lasted = calls.end_ns - calls.start_ns
    return nameless if lasted[nameless].sum() > SINGLE_FRACTION * lasted.sum() else None


def _unknown(trace: Trace, calls: BoolArray) -> str:
    """The names that take most time among calls that are not known, where they are words."""
    lasted = trace.api.end_ns - trace.api.start_ns
    total = np.bincount(np.maximum(trace.api.name[calls], 0), lasted[calls], len(trace.names))
    names = [trace.names[name] for name in np.argsort(-total, kind="stable").tolist() if total[name] > 0]
    shown = [name for name in names if name.isidentifier() and name.isascii()][:A_FEW_LINES]
    return f"{', '.join(shown) or 'no words'}: what they do is not known"


def broken_calls(trace: Trace) -> BoolArray | None:
    """API calls that begin or end before others of their thread that were made earlier (runtime calls run no runtime
    calls inside, driver calls no driver calls: each kind has an order of its own); and single ones that begin before
    others of their process that were made earlier."""
    calls = trace.api
    broken = None
    if not _is_in_order((calls.thread,), calls.correlation, calls.start_ns, calls.end_ns):
        is_driver = trace.is_named(calls.name, lambda name: name.startswith("cu") and not name.startswith("cuda"))
        broken = _broken(calls, (calls.thread, is_driver), calls.correlation)
    if len(unique(calls.thread)) > 1:
        early = _broken(calls, (trace.process_of(calls.thread),), calls.correlation, SINGLE_FRACTION, ends=False)
        broken = _either(broken, None if early is None else _single_of_thread(early, calls.thread))
    return broken


def broken_operations(trace: Trace) -> BoolArray | None:
    """Operations that begin or end before others of their stream that were launched earlier; migrations of pages that
    end after others of their direction that began later, since a link carries one at a time; and single operations that
    begin before their own launch, or end after a call has returned that waited for them."""
    table, calls = trace.operations, trace.api
    stream = table.device, table.process, table.stream
    broken = None
    if not len(table) or not len(calls):
        return None
    call = _launches(trace)
    if not _is_in_order(stream, table.correlation, table.start_ns, table.end_ns):
        # The ids of several threads need not follow one another: when each was launched then tells.
        rank = np.zeros(len(calls) + 1, np.int64)  # the last: of no call
        rank[np.argsort(calls.start_ns, kind="stable")] = np.arange(1, len(calls) + 1)
        broken = _either(_broken(table, stream, rank[call]), _single(_overtaking(trace, stream, rank[call], call)))
    begun = np.where(table.kind == OpKind.MIGRATION, _since_first(table.start_ns), NO_CORRELATION)
    migrations = _broken(table, (table.device, table.process, table.direction), begun)
    return _either(broken, migrations, _single(_before_launch(trace, call)), _single(_after_waits(trace, call)))


def _either(*masks: BoolArray | None) -> BoolArray | None:
    present = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(present) if present else None


def _single(broken: BoolArray) -> BoolArray | None:
    """Where these rows are single ones. More of them tell of clocks that run apart, and not of rows."""
    count = np.count_nonzero(broken)
    return broken if 0 < count <= max(SINGLE_FRACTION * len(broken), 1) else None


def _single_of_thread(broken: BoolArray, thread: npt.NDArray[Any]) -> BoolArray | None:
    """These rows where they are single ones among their thread's. A thread of which more rows contradict those of other
    threads, or all do, has ids that no other thread's follow."""
    calls = np.bincount(thread)
    contradicting = np.bincount(thread[broken], minlength=len(calls))
    is_single = (contradicting <= np.maximum(SINGLE_FRACTION * calls, 1)) & (contradicting < calls)
    broken = broken & is_single[thread]
    return broken if broken.any() else None


def _launches(trace: Trace) -> npt.NDArray[np.intp]:
    """The row in ``trace.api`` of the call that launched each operation; -1 without one."""
    return _calls_of(trace, trace.operations.process, trace.operations.correlation)


def _calls_of(trace: Trace, process: npt.NDArray[Any], correlation: Int64Array) -> npt.NDArray[np.intp]:
    """The row in ``trace.api`` of the call of a process that has this id; -1 without one."""
    calls = trace.api
    most = int(max(correlation.max(initial=0), calls.correlation.max(initial=0))) + 1
    asked = process.astype(np.int64) * most + correlation
    keys = trace.process_of(calls.thread).astype(np.int64) * most + calls.correlation
    order = in_order(keys)
    keys = keys[order]
    position = np.minimum(places(keys, asked), len(keys) - 1)
    is_known = (keys[position] == asked) & (correlation != NO_CORRELATION)
    return np.where(is_known, position if isinstance(order, slice) else order[position], -1)


def _before_launch(trace: Trace, call: npt.NDArray[np.intp]) -> BoolArray:
    begin = pick(trace.api.start_ns, call, np.iinfo(np.int64).min)
    return (call >= 0) & (trace.operations.start_ns < begin - CLOCKS_APART_NS)


def _overtaking(trace: Trace, stream: _Columns, rank: npt.NDArray[Any], call: npt.NDArray[np.intp]) -> BoolArray:
    """Operations that begin before the one of their stream that was launched before them, and before their own launch:
    by the one alone, either of the two may be wrong, and clocks may be apart by the other."""
    start_ns, is_overtaking = trace.operations.start_ns, np.zeros(len(rank), bool)
    order = in_order(*stream, rank)
    rows = np.arange(len(rank))[order]
    begin = pick(trace.api.start_ns, call, np.iinfo(np.int64).min)
    same = np.all([column[rows[1:]] == column[rows[:-1]] for column in (*stream, call >= 0)], axis=0)
    is_overtaking[rows[1:]] = same & (start_ns[rows[1:]] < np.minimum(start_ns[rows[:-1]], begin[rows[1:]]))
    return is_overtaking


def _after_waits(trace: Trace, call: npt.NDArray[np.intp]) -> BoolArray:
    """Operations that end after a call has returned which waited for them, and began after their launch."""
    table, calls = trace.operations, trace.api
    late, waits = np.zeros(len(table), bool), list(_waits(trace))
    # First against the waits for whatever device or stream: hardly an operation ends after one of them.
    every = _returned(calls, np.concatenate([wait for _, _, wait in waits]), pick(calls.end_ns, call, _NEVER))
    suspect = table.end_ns - CLOCKS_APART_NS > every
    for of_rows, of_waits, wait in waits if suspect.any() else ():
        rows = np.flatnonzero(suspect & _is_of_one_device(of_rows, table.device))
        _, part = factorize(*map(np.concatenate, zip([column[rows] for column in of_rows], of_waits, strict=True)))
        numbers, members = grouped(part[: len(rows)])
        for number, own in zip(*grouped(part[len(rows) :]), strict=True):
            if (at := int(np.searchsorted(numbers, number))) < len(numbers) and numbers[at] == number:
                ours = rows[members[at]]
                returned = _returned(calls, wait[own], calls.end_ns[call[ours]])
                late[ours] |= table.end_ns[ours] - CLOCKS_APART_NS > returned
    return late


def _returned(calls: CallTable, wait: npt.NDArray[np.intp], since_ns: Int64Array) -> Int64Array:
    """When the first of these waits returns that begin at these times or later; `_NEVER` without one."""
    chosen = wait[np.argsort(calls.start_ns[wait], kind="stable")]
    until = np.append(np.minimum.accumulate(calls.end_ns[chosen][::-1])[::-1], _NEVER)
    returned: Int64Array = until[places(calls.start_ns[chosen], since_ns)]
    return returned


def _waits(trace: Trace) -> Iterator[tuple[_Columns, _Columns, npt.NDArray[np.intp]]]:
    """Calls that waited for the device of their process, and those that waited for a stream of it: of which process
    (and stream) each operation is, of which each call is, and the rows of these."""
    table, calls, points = trace.operations, trace.api, trace.stream_points
    rows = np.flatnonzero(trace.is_named(calls.name, _DEVICE_WAIT.search) & ~calls.has_failed)
    yield (table.process,), (trace.process_of(calls.thread[rows]),), rows
    waits = np.flatnonzero(~points.is_record & (points.event < 0) & (points.stream >= 0))
    call = _calls_of(trace, points.process[waits], points.correlation[waits])
    is_wait = (call >= 0) & (pick(trace.call_class, pick(calls.name, call, -1), -1) == CallClass.SYNC)
    is_wait &= ~pick(calls.has_failed, call, True)
    of = (points.process[waits][is_wait], points.stream[waits][is_wait])
    yield (table.process, table.stream), of, call[is_wait]


def _is_of_one_device(columns: _Columns, device: npt.NDArray[Any]) -> BoolArray:
    """Of each row, whether all rows alike are of its device: else which device a call waits for is not told."""
    if is_even(device):
        return np.ones(len(device), bool)
    _, part = factorize(*columns)
    low, high = (np.full(len(part), fill, np.int64) for fill in (_NEVER, -1))
    np.minimum.at(low, part, device)
    np.maximum.at(high, part, device)
    is_one: BoolArray = (low == high)[part]
    return is_one


def broken_os_calls(trace: Trace) -> BoolArray | None:
    """OS calls that end after others of their thread which began later. A call that waits runs none inside; another one
    may (of `fork` 64 are known), but they do not cross."""
    calls = trace.os_calls
    if not len(calls):
        return None
    broken = _broken(calls, (calls.thread,), _since_first(calls.start_ns))
    if broken is None:
        return None
    for row in np.flatnonzero(broken).tolist():
        if blocked_on(trace.names[calls.name[row]]) is None:
            broken[row] = _crosses(calls.of_thread(int(calls.thread[row])), calls.start_ns[row], calls.end_ns[row])
    return broken if broken.any() else None


def _since_first(start_ns: Int64Array) -> Int64Array:
    """In which order they began, as a number above `NO_CORRELATION`."""
    number: Int64Array = start_ns - start_ns.min() + 1
    return number


def _crosses(calls: Intervals, low: int, high: int) -> bool:
    """Whether one of these begins before this interval and ends in it, or the other way round."""
    start, end = calls.start_ns, calls.end_ns
    late, early = (start > low) & (start < high) & (end > high), (start < low) & (end > low) & (end < high)
    return bool((late | early).any())


def _is_in_order(group: tuple[npt.NDArray[Any], ...], *columns: npt.NDArray[Any]) -> bool:
    """Whether all columns ascend within each group, in order of the first of them."""
    order = in_order(*group, columns[0])
    same = np.ones(max(len(columns[0]) - 1, 0), bool)
    for column in group:
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    return not any(bool((same & (column[order][1:] < column[order][:-1])).any()) for column in columns[1:])


def _broken(
    table: Any,
    group: tuple[npt.NDArray[Any], ...],
    number: npt.NDArray[Any],
    most: float = MOST_BROKEN_FRACTION,
    *,
    ends: bool = True,
) -> BoolArray | None:
    """Rows that are out of order by several others of their group; None: none are. ``number``: in whose order they
    are. ``most``: where more of a group are, its order is none. ``ends``: whether they end in that order, too."""
    columns = (table.start_ns, table.end_ns) if ends else (table.start_ns,)
    if len(table) <= LEAST_CONTRADICTED or all(ascend([column]) for column in (number, *columns)):
        return None
    broken = np.zeros(len(table), bool)
    for times in columns:
        order = in_order(*group, number, times)
        rows = np.arange(len(table))[order]
        rows = rows[number[rows] != NO_CORRELATION]
        ordered = [column[rows] for column in group]
        edges = np.flatnonzero(np.any([column[1:] != column[:-1] for column in ordered], axis=0)) + 1
        at = times[rows]
        falls = np.flatnonzero(at[1:] < at[:-1])
        if len(falls) == 0:
            continue
        bounds = np.concatenate(([0], edges, [len(rows)]))
        for block in unique(np.searchsorted(bounds, falls + 1, side="right") - 1).tolist():
            low, high = int(bounds[block]), int(bounds[block + 1])
            if low < high and (falls[(falls >= low) & (falls < high - 1)]).size:
                is_late = out_of_order(at[low:high])
                if is_late.sum() <= max(most * (high - low), 1):
                    broken[rows[low:high][is_late]] = True
    return broken if broken.any() else None
