"""What ran or was called longest, by name: kernels and CUDA API calls of every region with its descendants."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from boundby.attribution.regions import Regions
from boundby.attribution.timeline import Timeline
from boundby.model.arrays import Tally, as_rows, factorize, group_sums, pick, ranked, tally
from boundby.results.report import Top
from boundby.stats.device import OperationSet
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import plain_name
from boundby.trace.vocabulary.kernels import kernel_label

Int = npt.NDArray[np.int64]
MOST_NAMES = 10  # of each region; the rest is small beside them
GRAPH = "graph (recorded as a whole)"  # what has no name: a graph launch at graph level


def top_kernels(timeline: Timeline, chosen: OperationSet) -> list[tuple[Top, ...]]:
    """Of every region, the kernels (and graphs traced as one operation) with most time."""
    table, region = timeline.trace.operations, chosen.region
    name, start, end = table.name[chosen.rows], table.start_ns[chosen.rows], table.end_ns[chosen.rows]
    mine = as_rows(table.kind[chosen.rows] <= OpKind.GRAPH)
    return _tops(timeline, tally(region[mine], name[mine], start[mine], end[mine]), kernel_label)


def top_calls(timeline: Timeline, called: Tally) -> list[tuple[Top, ...]]:
    """Of every region, the CUDA API calls (by name, see `calls_by_name`) with most time, what they waited included."""
    return _tops(timeline, called, plain_name)


def calls_by_name(
    timeline: Timeline, rows: slice | npt.NDArray[np.intp], region: npt.NDArray[np.integer] | None = None
) -> Tally:
    """These calls by region (their own) and name."""
    calls = timeline.calls
    region = timeline.call_region[rows] if region is None else region
    return tally(region, calls.name[rows], calls.start_ns[rows], calls.end_ns[rows])


def _tops(timeline: Timeline, found: Tally, label: Callable[[str], str]) -> list[tuple[Top, ...]]:
    """Totals by region (with descendants) and label, the longest first; ``found``: by region and name."""
    tops: list[tuple[Top, ...]] = [()] * len(timeline.ownership.regions)
    if len(found.group) == 0:
        return tops
    used, index = ranked(found.label)
    names = [timeline.trace.names[number] if number >= 0 else "" for number in used.tolist()]
    labels = [label(text) if text else GRAPH for text in names]
    distinct = sorted(set(labels))
    place = {text: number for number, text in enumerate(distinct)}
    of_row = pick(np.array([place[text] for text in labels], np.int64), index, 0)
    region, of_row, count, total = _with_ancestors(
        timeline.ownership.regions, found.group, of_row, found.rows, found.ns
    )
    order = np.lexsort((of_row, -total, region))
    region, of_row, count, total = region[order], of_row[order], count[order], total[order]
    first = np.flatnonzero(np.append(True, region[1:] != region[:-1])) if len(region) else np.empty(0, np.intp)
    for low, high in itertools.pairwise([*first.tolist(), len(region)]):
        shown = slice(low, min(high, low + MOST_NAMES))
        columns = (of_row[shown].tolist(), count[shown].tolist(), total[shown].tolist())
        tops[int(region[low])] = tuple(Top(distinct[row], times, ns) for row, times, ns in zip(*columns, strict=True))
    return tops


def _pairs(region: Int, label: Int, count: Int, total: Int) -> tuple[Int, Int, Int, Int]:
    """One row for each pair of region and label, with sums."""
    pairs, of_row = factorize(region, label)
    sums = group_sums(of_row, count, len(pairs)), group_sums(of_row, total, len(pairs))
    return pairs[:, 0], pairs[:, 1], *sums


def _with_ancestors(regions: Regions, region: Int, label: Int, count: Int, total: Int) -> tuple[Int, Int, Int, Int]:
    """The same pairs once more for every region around theirs."""
    columns = [(region, label, count, total)]
    while len(region):
        region = regions.parent[region]
        inside = region >= 0
        region, label, count, total = region[inside], label[inside], count[inside], total[inside]
        columns.append((region, label, count, total))
    return _pairs(*(np.concatenate(column) for column in zip(*columns, strict=True)))
