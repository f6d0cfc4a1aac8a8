"""Regions: ranges with the same path in one domain, which owns each instant of each thread, and projected ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.correlation.correlate import Calls
from boundby.correlation.logical_threads import LogicalThreads
from boundby.model.arrays import (
    Int32Array,
    Int64Array,
    as_rows,
    ascend,
    compact,
    factorize,
    in_order,
    is_even,
    pick,
    places,
    range_maximum,
    rows_of,
    spread,
    unique,
)
from boundby.model.intervals import (
    CONSTANT_NOTHING,
    NOTHING,
    StepFunction,
    depths,
    latest_open,
    nearest,
    nest,
    otherwise,
)
from boundby.model.scale import CROWD, DEEPEST, LEVELS
from boundby.trace.facts import GRAPH_RANGES
from boundby.trace.tables import Trace

ROOT = 0  # the region that holds all others: number 0
#: Ranges that lie deeper, or in so many of their own name, count to the range that they lie in: recursion makes no
#: longer paths, and no program is annotated by hand to such a depth.
MOST_DEPTH, MOST_RECURSION = DEEPEST, LEVELS
#: Regions beyond these, longest first, count to the one that they lie in: names with ids that do not fold make one of
#: every range, of which nobody reads so many, and each takes half a millisecond.
MOST_REGIONS = CROWD


class Regions(Struct, frozen=True, dict=True):
    """The tree of regions. Index 0 is the root: path (), it owns what no range does.

    ``of_range`` maps every range to its region, ``range_parent`` to the range it lies in (NOTHING: none).
    """

    parent: npt.NDArray[np.int64]  # parent region; the root's is NOTHING
    name: tuple[str, ...]
    domain: tuple[str, ...]
    depth: Int64Array
    of_range: npt.NDArray[np.int64]
    range_parent: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.parent)

    def path(self, region: int) -> tuple[str, ...]:
        """Names from the outermost range to this one."""
        return self._paths[region]

    def where(self, matches: Callable[[str], object]) -> npt.NDArray[np.bool_]:
        """Mask over regions: those whose name matches, and all that lie in them."""
        return self.under(np.array([False, *(bool(matches(name)) for name in self.name[1:])]))

    def paths(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Of every region its path in other names, one a region."""
        all_paths: list[tuple[str, ...]] = [()]
        for parent, name in zip(self.parent[1:].tolist(), names[1:], strict=True):
            all_paths.append((*all_paths[parent], name))
        return all_paths

    @cached_property
    def _paths(self) -> list[tuple[str, ...]]:
        return self.paths(self.name)

    @cached_property
    def range_depth(self) -> npt.NDArray[np.integer]:
        """In how many ranges each range lies."""
        return _narrow_depths(self.range_parent)

    @cached_property
    def _levels(self) -> list[npt.NDArray[np.intp]]:
        """The regions of each depth, from those below the root on."""
        order = np.argsort(self.depth, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.depth[order])) + 1)[1:]

    @cached_property
    def preorder(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Of each region its place where every region stands before those in it, and where what lies in it ends."""
        size, position = self.accumulate(np.ones(len(self), np.int64)), np.zeros(len(self), np.intp)
        for rows in self._levels:
            rows = rows[np.argsort(self.parent[rows], kind="stable")]
            above = self.parent[rows]
            before = np.cumsum(size[rows]) - size[rows]
            first = np.flatnonzero(np.append(True, above[1:] != above[:-1]))
            before -= np.repeat(before[first], np.diff(np.append(first, len(rows))))
            position[rows] = position[above] + 1 + before
        return position, position + size

    def subtree(self, region: int) -> npt.NDArray[np.bool_]:
        """Mask over regions: this one and all that lie in it."""
        inside = np.zeros(len(self), bool)
        inside[region] = True
        for rows in self._levels[int(self.depth[region]) :]:
            inside[rows] |= inside[self.parent[rows]]
        return inside

    def under(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Mask over regions: these and all that lie in them."""
        return nearest(self.parent, mask) >= 0

    def accumulate(self, exclusive: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Sums over each region and its descendants, from a (regions, ...) array of exclusive values."""
        total: npt.NDArray[np.int64] = exclusive.copy()
        for rows in reversed(self._levels):
            np.add.at(total, self.parent[rows], total[rows])
        return total


def too_deep(regions: Regions, *, fold: bool = True) -> npt.NDArray[np.bool_]:
    """Mask over ranges: those beyond `MOST_DEPTH` or, where recursion folds, `MOST_RECURSION`."""
    if not fold:
        return (regions.depth > MOST_DEPTH)[regions.of_range]
    numbers = {pair: number for number, pair in enumerate(sorted({*zip(regions.domain, regions.name, strict=True)}))}
    label = np.array([numbers[pair] for pair in zip(regions.domain, regions.name, strict=True)], np.int64)
    of_own_name, rows = np.zeros(len(regions), np.int64), np.flatnonzero(regions.depth <= MOST_DEPTH)
    above = regions.parent[rows]
    while len(rows := rows[above > ROOT]):
        above = above[above > ROOT]
        of_own_name[rows] += label[above] == label[rows]
        above = regions.parent[above]
    return ((regions.depth > MOST_DEPTH) | (of_own_name >= MOST_RECURSION))[regions.of_range]


def too_many(regions: Regions, lengths_ns: Int64Array) -> npt.NDArray[np.bool_]:
    """Mask over ranges, which are this long: those of regions beyond `MOST_REGIONS`."""
    if len(regions) <= MOST_REGIONS:
        return np.zeros(len(lengths_ns), bool)
    total = np.zeros(len(regions), np.int64)
    np.add.at(total, regions.of_range, lengths_ns)
    kept = np.zeros(len(regions), bool)
    kept[np.lexsort((np.arange(len(regions)), regions.depth, -total))[: MOST_REGIONS - 1]] = True
    kept[ROOT] = True
    return regions.under(~kept)[regions.of_range]


class Ownership(Struct, frozen=True):
    """Which range owns each instant of each thread: its own, a borrowed one, or the process's start/end range."""

    regions: Regions
    _of_thread: tuple[StepFunction, ...]

    def ranges_at(self, thread: int | npt.NDArray[np.integer], time: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """The owning range at each instant of a thread, or of one thread each; NOTHING where none is open, or it is of
        no thread (-1)."""
        if isinstance(thread, int):
            return self._of_thread[thread].at(time)
        innermost, is_ordered = np.full(len(time), NOTHING, np.int32), ascend([thread])
        for number in unique(thread[thread >= 0]).tolist():
            rows = rows_of(thread, number) if is_ordered else np.flatnonzero(thread == number)
            innermost[rows] = self._of_thread[number].at(time[rows])
        return innermost

    def at(self, thread: int | npt.NDArray[np.integer], time: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The owning region at each instant of a thread, or of one thread each."""
        return self.region_of(self.ranges_at(thread, time))

    def region_of(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Regions of range rows; NOTHING becomes the root."""
        return pick(self.regions.of_range, rows, ROOT)

    def steps(self, thread: int) -> StepFunction:
        """The function behind ``ranges_at``: range rows over time."""
        return self._of_thread[thread]


def build_ownership(trace: Trace, logical_threads: LogicalThreads, *, fold: bool = True) -> Ownership:
    """Nest ranges per thread, let helper threads borrow, give every path its region."""
    ranges = trace.ranges
    parent = np.full(len(ranges), NOTHING, np.int64)
    own: list[StepFunction] = []
    pushed = np.flatnonzero(~ranges.is_start_end)
    thread_of = ranges.thread[pushed]
    for thread in range(len(trace.threads)):
        rows = pushed[rows_of(thread_of, thread)]
        nesting = nest(ranges.start_ns[rows], ranges.end_ns[rows], trace.rounded_ns)
        if len(rows):
            parent[rows] = np.where(nesting.parent >= 0, rows[np.maximum(nesting.parent, 0)], NOTHING)
        own.append(_renumber(nesting.innermost, rows))
    for thread in np.flatnonzero(logical_threads.is_delegate).tolist():
        rows = pushed[thread_of == thread]
        top = rows[parent[rows] == NOTHING]
        parent[top] = own[int(logical_threads.lender[thread])].at(ranges.start_ns[top])
    process_wide = _process_wide(trace)
    combined = []
    for thread, record in enumerate(trace.threads):
        steps = own[thread]
        if logical_threads.lender[thread] >= 0:
            steps = otherwise(steps, own[int(logical_threads.lender[thread])])
        combined.append(otherwise(steps, process_wide.get(record.process, CONSTANT_NOTHING)))
    return Ownership(_name_regions(trace, parent, fold=fold), tuple(combined))


def _renumber(steps: StepFunction, rows: npt.NDArray[np.intp]) -> StepFunction:
    if len(rows) == 0:
        return steps
    return StepFunction(steps.time, np.where(steps.value >= 0, rows[np.maximum(steps.value, 0)], NOTHING))


def _process_wide(trace: Trace) -> dict[int, StepFunction]:
    """Start/end ranges: the latest started one open in each process."""
    ranges = trace.ranges
    rows = np.flatnonzero(ranges.is_start_end)
    if len(rows) == 0:
        return {}
    process = trace.process_of_thread[ranges.thread[rows]]
    by_process = {}
    for number in unique(process).tolist():
        own = rows[process == number]
        own = own[np.lexsort((own, -ranges.end_ns[own], ranges.start_ns[own]))]
        by_process[number] = _renumber(latest_open(ranges.start_ns[own], ranges.end_ns[own]), own)
    return by_process


def _numbered(labels: Sequence[str]) -> tuple[Int32Array, list[str]]:
    """Which of the distinct labels each is, and those, ascending."""
    distinct = sorted(set(labels))
    number_of = {label: number for number, label in enumerate(distinct)}
    return np.array([number_of[label] for label in labels], np.int32), distinct


def _narrow_depths(parent: npt.NDArray[np.int64]) -> npt.NDArray[np.integer]:
    """`depths`, in 16 bits where they hold it, which are sorted most quickly."""
    depth = depths(parent)
    return depth.astype(np.int16) if int(depth.max(initial=0)) < 1 << 15 else depth


def _name_regions(trace: Trace, parent: npt.NDArray[np.int64], *, fold: bool) -> Regions:
    """One region per (parent region, domain, folded name), level by level from the outermost ranges."""
    ranges = trace.ranges
    used, shapes = trace.range_names
    which, label_texts = shapes.folded() if fold else _numbered(shapes.names)
    if trace.cut_names:
        labels = [label_texts[number] for number in which.tolist()]
        which, label_texts = _numbered(
            [
                f"{label} (cut)" if text in trace.cut_names else label
                for text, label in zip(shapes.names, labels, strict=True)
            ]
        )
    label_of_name = np.zeros(len(trace.names) + 1, np.int64)
    label_of_name[used] = which
    label = label_of_name[ranges.name]
    depth = _narrow_depths(parent)
    of_range = np.zeros(len(ranges), np.int64)
    taken: set[tuple[int, int]] = set()
    parents, names, domains, levels = [NOTHING], [""], [""], [0]
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(int(depth.max(initial=-1)) + 2))
    for level, (low, high) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        rows = order[low:high]
        above = np.where(parent[rows] >= 0, of_range[np.maximum(parent[rows], 0)], ROOT)
        if level > MOST_DEPTH:  # `too_deep` already, and so are those that lie in them
            of_range[rows] = above
            continue
        distinct, inverse = factorize(above, ranges.domain[rows], label[rows])
        of_range[rows] = inverse + len(parents)
        for region, domain, text in distinct.tolist():
            parents.append(region)
            domains.append(trace.domains[domain])
            # Equal names of several domains side by side: all below would have the same path.
            is_taken = (region, text) in taken
            taken.add((region, text))
            names.append(f"{label_texts[text]} [{trace.domains[domain]}]" if is_taken else label_texts[text])
            levels.append(level + 1)
    regions = Regions(
        parent=np.array(parents, np.int64),
        name=tuple(names),
        domain=tuple(domains),
        depth=np.array(levels, np.int64),
        of_range=of_range,
        range_parent=parent,
    )
    vars(regions)["range_depth"] = depth
    return regions


# Projected ranges: from the first start to the last end of the device work launched inside each range.

_NEVER = np.iinfo(np.int64)

Rows = slice | npt.NDArray[np.intp]


def project(
    trace: Trace, calls: Calls, regions: Regions, launch_range: npt.NDArray[np.integer], rows: Rows = slice(None)
) -> tuple[Int64Array, Int64Array]:
    """Projected start and end of every range, by the given operations.

    ``launch_range`` is the innermost range of each operation. Ranges that launched nothing have start > end (max
    int64 and min int64). A range holds what was launched while it was open: on its own thread (a start/end range:
    in its process), and what threads that borrowed it or a range inside it launched.
    """
    first = np.full(len(trace.ranges), _NEVER.max, np.int64)
    last = np.full(len(trace.ranges), _NEVER.min, np.int64)
    _while_open(trace, calls, rows, first, last)
    if _is_one_thread(trace, calls):
        return first, last
    around = launch_range[rows]
    inside = as_rows(around != NOTHING)
    np.minimum.at(first, around[inside], trace.operations.start_ns[rows][inside])
    np.maximum.at(last, around[inside], trace.operations.end_ns[rows][inside])
    depth = depths(regions.range_parent)
    for level in range(int(depth.max(initial=0)), 0, -1):
        below = np.flatnonzero(depth == level)
        above = regions.range_parent[below]
        np.minimum.at(first, above, first[below])
        np.maximum.at(last, above, last[below])
    return first, last


def _is_one_thread(trace: Trace, calls: Calls) -> bool:
    """Whether the one thread that calls opens all ranges, which nest: each holds what those inside it hold."""
    thread = unique(np.concatenate((calls.thread[:1], trace.ranges.thread[:1])))
    # Inside a graph ranges hold work that its launch does not tell.
    if any(warning.code == GRAPH_RANGES for warning in trace.warnings):
        return False
    is_alone = len(thread) < 2 and (is_even(calls.thread) or not len(calls)) and is_even(trace.ranges.thread)
    return is_alone and not trace.rounded_ns and not bool(trace.ranges.is_start_end.any())


def _while_open(trace: Trace, calls: Calls, rows: Rows, first: Int64Array, last: Int64Array) -> None:
    """Work launched while a range was open, however ranges overlap: by thread, for start/end ranges by process."""
    has_work = as_rows(calls.of_operation[rows] >= 0)
    start, end = trace.operations.start_ns[rows][has_work], trace.operations.end_ns[rows][has_work]
    if len(start) == 0 or len(trace.ranges) == 0:
        return
    ranges, launched = trace.ranges, calls.launched_ns[rows][has_work]
    if is_even(calls.thread):
        thread = compact(spread(int(calls.thread[0]), len(start), np.int32))
    else:
        thread = calls.thread[calls.of_operation[rows][has_work]]
    for of_call, of_range, kind in (
        (thread, ranges.thread, ~ranges.is_start_end),
        (trace.process_of(thread), trace.process_of(ranges.thread), ranges.is_start_end),
    ):
        for number in unique(of_range[kind]).tolist():
            chosen = as_rows(kind & (of_range == number))
            range_start, range_end = ranges.start_ns[chosen], ranges.end_ns[chosen]
            chosen = np.arange(len(ranges))[chosen]
            is_own = as_rows(of_call == number)
            order = in_order(launched[is_own])
            time, begin, finish = (column[is_own][order] for column in (launched, start, end))
            low = places(time, range_start, side="left")
            high = places(time, range_end, side="left")
            some = high > low
            chosen, low, high = chosen[some], low[some], high[some]
            earliest = begin[low] if ascend([begin]) else -range_maximum(-begin, low, high)
            latest = finish[high - 1] if ascend([finish]) else range_maximum(finish, low, high)
            first[chosen] = np.minimum(first[chosen], earliest)
            last[chosen] = np.maximum(last[chosen], latest)
