"""Rows whose times contradict those of many others: left out, and said so.

Calls of a thread, and operations on a stream, begin and end in the order of their correlation ids; calls of the OS end
in the order in which they began. A row that is out of this order by many others has a wrong time. Which rows those are,
the longest sequence tells that keeps the order. Rows that lie out of it by a few only stay: calls of several threads
race for a stream, kernels of one stream overlap, some calls run inside others.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import BoolArray, Int64Array, ascend, in_order, pick, places, unique
from boundby.model.expressions import expression
from boundby.model.records import replace
from boundby.trace.facts import BROKEN_ROWS, TraceWarning
from boundby.trace.tables import NO_CORRELATION, Intervals, Trace
from boundby.trace.vocabulary.os import blocked_on
from boundby.trace.vocabulary.ranges import fold_names

#: A row that contradicts fewer others may be right: of 60 real traces, calls of two contradict one other each, and no
#: operation contradicts any.
LEAST_CONTRADICTED = 2
#: Where more rows of a thread or stream than this are out of order, its order is none that could be relied on.
MOST_BROKEN_FRACTION = 1 / 3
#: More rows than this that contradict rows of other tables tell of two clocks, and not of wrong rows.
SINGLE_FRACTION = 0.01
#: Clocks of device and host differ by so much.
CLOCK_ERROR_NS = 20_000
_DIGITS = expression(r"0*(\d+)")
_DEVICE_WAIT = expression(r"^(?:cuda|cu|hip)(?:Device|Ctx|Thread)Synchronize")


def without_broken(trace: Trace) -> Trace:
    """The trace without rows whose times contradict those of many others, and with a warning that says so."""
    notes = []
    for table, what, broken_rows in (
        ("api", "CUDA API calls", broken_calls),
        ("operations", "GPU operations", broken_operations),
        ("os_calls", "OS calls", broken_os_calls),
        ("ranges", "NVTX ranges", broken_ranges),
    ):
        broken = broken_rows(trace)
        if broken is not None:
            trace = replace(trace, **{table: getattr(trace, table).take(~broken)})
            count = f"{int(broken.sum()):,} of the {what}"
            notes.append(f"{count} had times that contradict those of many others and were left out.")
    warnings = (TraceWarning(BROKEN_ROWS, note) for note in notes)
    return replace(trace, warnings=(*trace.warnings, *warnings)) if notes else trace


def broken_calls(trace: Trace) -> BoolArray | None:
    """API calls that begin or end before others of their thread that were made earlier (runtime calls run no runtime
    calls inside, driver calls no driver calls: each kind has an order of its own); and single ones that begin before
    others of their process that were made earlier."""
    calls = trace.api
    process = trace.process_of(calls.thread)
    broken = None
    if not _is_in_order((calls.thread,), calls.correlation, calls.start_ns, calls.end_ns):
        is_driver = np.array([name.startswith("cu") and not name.startswith("cuda") for name in trace.names] + [False])
        broken = _broken(calls, (calls.thread, pick(is_driver, calls.name, False)), calls.correlation)
    if len(unique(calls.thread)) > 1:
        early = _broken(calls, (process,), calls.correlation, SINGLE_FRACTION, ends=False)
        broken = _either(broken, None if early is None else _single_of_thread(early, calls.thread))
    return broken


def broken_operations(trace: Trace) -> BoolArray | None:
    """Operations that begin or end before others of their stream that were launched earlier; and single ones that
    begin before their own launch, or end after a call has returned that waited for the device."""
    table, calls = trace.operations, trace.api
    stream = table.device, table.process, table.stream
    broken, call = None, None
    if _broken(table, stream, table.correlation) is not None:
        # The ids of several threads need not follow one another: when each was launched then tells.
        call = _launches(trace)
        rank = np.zeros(len(calls) + 1, np.int64)  # the last: of no call
        rank[np.argsort(calls.start_ns, kind="stable")] = np.arange(1, len(calls) + 1)
        broken = _broken(table, stream, rank[call])
    if len(table) and len(calls):
        call = _launches(trace) if call is None else call
        broken = _either(broken, _single(_before_launch(trace, call)), _single(_after_waits(trace, call)))
    return broken


def _either(*masks: BoolArray | None) -> BoolArray | None:
    told = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(told) if told else None


def _single(broken: BoolArray) -> BoolArray | None:
    """Where these rows are single ones. More of them tell of clocks that run apart, and not of rows."""
    count = int(broken.sum())
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
    table, calls = trace.operations, trace.api
    most = int(max(table.correlation.max(initial=0), calls.correlation.max(initial=0))) + 1
    asked = table.process.astype(np.int64) * most + table.correlation
    known = trace.process_of(calls.thread).astype(np.int64) * most + calls.correlation
    order = in_order(known)
    known = known[order]
    place = np.minimum(places(known, asked), len(known) - 1)
    rows = np.arange(len(calls))[order][place]
    return np.where((known[place] == asked) & (table.correlation != NO_CORRELATION), rows, -1)


def _before_launch(trace: Trace, call: npt.NDArray[np.intp]) -> BoolArray:
    begin = pick(trace.api.start_ns, call, np.iinfo(np.int64).min)
    return (call >= 0) & (trace.operations.start_ns < begin - CLOCK_ERROR_NS)


def _after_waits(trace: Trace, call: npt.NDArray[np.intp]) -> BoolArray:
    """Operations that end after a call has returned which waited for the device, and began after their launch."""
    table, calls = trace.operations, trace.api
    late = np.zeros(len(table), bool)
    is_wait = np.array([_DEVICE_WAIT.search(name) is not None for name in trace.names] + [False])
    waits = np.flatnonzero(pick(is_wait, calls.name, False) & ~calls.has_failed)
    process = trace.process_of(calls.thread)[waits]
    for number in unique(process).tolist():
        own = waits[process == number]
        own = own[np.argsort(calls.start_ns[own], kind="stable")]
        rows = np.flatnonzero((table.process == number) & (call >= 0))
        if len(unique(table.device[rows])) != 1:
            continue  # which device a call waits for is not told
        returned = np.minimum.accumulate(calls.end_ns[own][::-1])[::-1]
        place = places(calls.start_ns[own], calls.end_ns[call[rows]])
        until = returned[np.minimum(place, len(own) - 1)]
        late[rows] = (place < len(own)) & (table.end_ns[rows] > until + CLOCK_ERROR_NS)
    return late


def broken_os_calls(trace: Trace) -> BoolArray | None:
    """OS calls that end after others of their thread which began later. A call that waits runs none inside; another one
    may (of `fork` 64 are known), but they do not cross."""
    calls = trace.os_calls
    if not len(calls):
        return None
    broken = _broken(calls, (calls.thread,), calls.start_ns - calls.start_ns.min() + 1)
    if broken is None:
        return None
    for row in np.flatnonzero(broken).tolist():
        if blocked_on(trace.names[calls.name[row]]) is None:
            broken[row] = _crosses(calls.of_thread(int(calls.thread[row])), calls.start_ns[row], calls.end_ns[row])
    return broken if broken.any() else None


def broken_ranges(trace: Trace) -> BoolArray | None:
    """Single steps with others of their kind inside. Steps are ranges whose names differ in nothing but a number that
    each has for itself and that grows with time. (Other ranges may lie in those of their name: a function may call
    itself, and a module that has a number is called again and again.)"""
    ranges = trace.ranges
    if not len(ranges):
        return None
    names = unique(ranges.name)
    names = names[names >= 0].tolist()
    folded = fold_names([trace.names[name] for name in names])
    number = {text: place for place, text in enumerate(sorted(set(folded)))}
    group = np.full(len(trace.names) + 1, -1)
    group[names] = [number[text] for text in folded]
    name = group[ranges.name]
    began = np.where(ranges.is_open, NO_CORRELATION, ranges.start_ns - ranges.start_ns.min() + 1)
    broken = _broken(ranges, (ranges.thread, ranges.domain, name), began, SINGLE_FRACTION)
    if broken is None:
        return None
    is_numbered = np.zeros(len(trace.names) + 1, bool)
    is_numbered[names] = [
        text.count("*") > trace.names[name].count("*") for name, text in zip(names, folded, strict=True)
    ]
    broken &= is_numbered[ranges.name]
    for row in np.flatnonzero(broken).tolist():
        alike = (ranges.thread == ranges.thread[row]) & (ranges.domain == ranges.domain[row]) & (name == name[row])
        broken[row] = _are_counted([trace.names[each] for each in ranges.name[alike & ~broken]])
    return broken if broken.any() else None


def _are_counted(names: list[str]) -> bool:
    """Whether the numbers in these names grow from each to the next."""
    numbers = [[(len(digits), digits) for digits in _DIGITS.findall(name)] for name in names]
    return all(before < after for before, after in pairwise(numbers))


def _crosses(calls: Intervals, low: int, high: int) -> bool:
    """Whether one of these begins before this interval and ends in it, or the other way round."""
    start, end = calls.start_ns, calls.end_ns
    late, early = (start > low) & (start < high) & (end > high), (start < low) & (end > low) & (end < high)
    return bool((late | early).any())


def _is_in_order(group: tuple[npt.NDArray[Any], ...], *columns: npt.NDArray[Any]) -> bool:
    """Whether all columns ascend within each group of neighbours."""
    same = np.ones(max(len(columns[0]) - 1, 0), bool)
    for column in group:
        same &= column[1:] == column[:-1]
    return not any(bool((same & (column[1:] < column[:-1])).any()) for column in columns)


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
        for place in np.unique(np.searchsorted(bounds, falls + 1, side="right") - 1).tolist():
            low, high = int(bounds[place]), int(bounds[place + 1])
            if low < high and (falls[(falls >= low) & (falls < high - 1)]).size:
                found = out_of_order(at[low:high])
                if found.sum() <= max(most * (high - low), 1):
                    broken[rows[low:high][found]] = True
    return broken if broken.any() else None


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
