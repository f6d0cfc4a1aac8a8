"""Ranges whose times contradict those of others: they cross ranges of their thread, or leave the order of their
numbers.

Ranges that a thread pushes and pops lie in one another or apart: where two cross, one has a wrong time. Steps follow
one another as their numbers do. (Other ranges may lie in those of their name: a function may call itself, and a module
that has a number is called again and again.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import BoolArray, Int64Array, factorize, grouped, unique
from boundby.model.expressions import expression
from boundby.model.nesting import do_nest
from boundby.model.scale import HABIT
from boundby.readers.ascending import out_of_order
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.ranges import fold_names, is_step

#: Where ranges of one thread cross more often, they do not nest.
MOST_CROSSINGS = 8
#: So many ranges must be in order for each that is not.
LEAST_IN_ORDER = HABIT
_DIGITS = expression(r"0*(\d+)")


def broken_ranges(trace: Trace) -> BoolArray | None:
    """Single ranges out of the order of their numbers, and of the others those that cross."""
    ranges = trace.ranges
    broken = np.zeros(len(ranges), bool)
    for rows in _counted(trace):
        times = np.stack((ranges.start_ns[rows], ranges.end_ns[rows]), axis=1).ravel()
        if (times[1:] < times[:-1]).any():
            found = unique(rows[np.flatnonzero(out_of_order(times)) // 2])
            if len(found) * LEAST_IN_ORDER < len(rows):
                broken[found] = True
    nesting = np.flatnonzero(~broken & ~ranges.is_start_end & ~ranges.is_open & (ranges.end_ns > ranges.start_ns))
    if len(nesting):
        _, line = factorize(ranges.thread[nesting], ranges.domain[nesting])
        for rows in (nesting[places] for places in grouped(line)[1]):
            start, end = ranges.start_ns[rows], ranges.end_ns[rows]
            if not do_nest(start, end):
                broken[rows[_crossing(start, end, trace.rounded_ns)]] = True
    return broken if broken.any() else None


def _counted(trace: Trace) -> list[npt.NDArray[np.intp]]:
    """The ranges of one thread whose names differ in nothing but a number that each has for itself, in the order of
    these numbers; of those that need not nest only steps."""
    ranges = trace.ranges
    names = unique(ranges.name)
    names = names[names >= 0].tolist()
    folded = fold_names([trace.names[name] for name in names])
    places = {text: place for place, text in enumerate(sorted(set(folded)))}
    group = np.full(len(trace.names) + 1, -1)
    for name, text in zip(names, folded, strict=True):
        if text.count("*") > trace.names[name].count("*"):
            group[name] = places[text]
    steps = np.array([is_step(text) for text in sorted(places)] + [False])
    of = group[ranges.name]
    rows = np.flatnonzero((of >= 0) & ~ranges.is_open & (~ranges.is_start_end | steps[of]))
    if not len(rows):
        return []
    _, key = factorize(ranges.thread[rows], ranges.domain[rows], of[rows])
    return [ordered for places in grouped(key)[1] if len(ordered := _by_number(trace, rows[places])) > LEAST_IN_ORDER]


def _by_number(trace: Trace, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """These ranges in the order of the numbers in their names; none where one is there twice."""
    digits = [_DIGITS.findall(trace.names[name]) for name in trace.ranges.name[rows].tolist()]
    numbers = [tuple((len(each), each) for each in found) for found in digits]
    order = sorted(range(len(rows)), key=numbers.__getitem__)
    return rows[order if len(set(numbers)) == len(rows) else []]


def _crossing(start: Int64Array, end: Int64Array, rounded_ns: int) -> list[int]:
    """Which of these ranges (in order of start, then -end) cross others: of two that cross, the one that crosses more;
    both where that does not tell. None where so many do that ranges need not nest here."""
    open_rows: list[int] = []
    found: list[int] = []
    begins, ends = start.tolist(), end.tolist()
    for row, (begin, until) in enumerate(zip(begins, ends, strict=True)):
        while open_rows and ends[open_rows[-1]] <= begin + rounded_ns:
            open_rows.pop()
        is_kept = True
        while is_kept and open_rows and until > ends[open_rows[-1]] + rounded_ns:
            other = open_rows[-1]
            mine, theirs = _crossings(start, end, row), _crossings(start, end, other)
            if theirs >= mine:
                found.append(open_rows.pop())
            if mine >= theirs:
                found.append(row)
                is_kept = False
        if len(found) > min(MOST_CROSSINGS, len(begins) // LEAST_IN_ORDER):
            return []
        if is_kept:
            open_rows.append(row)
    return found


def _crossings(start: Int64Array, end: Int64Array, row: int) -> int:
    low, high = start[row], end[row]
    late = (start > low) & (start < high) & (end > high)
    early = (start < low) & (end > low) & (end < high)
    return int((late | early).sum())
