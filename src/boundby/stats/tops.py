"""What ran or was called longest, by name: kernels and CUDA API calls of every region with its descendants."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from boundby.attribution.regions import Regions
from boundby.attribution.timeline import Timeline
from boundby.model.arrays import Int32Array, Int64Array, factorize, group_counts, group_sums, pick, ranked
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
    table = timeline.trace.operations
    is_kernel = table.kind[chosen.rows] <= OpKind.GRAPH
    rows = chosen.rows[is_kernel]
    duration = table.end_ns[rows] - table.start_ns[rows]
    return _tops(timeline, chosen.region[is_kernel], table.name[rows], duration, kernel_label)


def top_calls(
    timeline: Timeline, rows: npt.NDArray[np.intp], region: npt.NDArray[np.integer] | None = None
) -> list[tuple[Top, ...]]:
    """Of every region, the CUDA API calls among these rows with most time, what they waited included."""
    calls = timeline.calls
    region = timeline.call_region[rows] if region is None else region
    return _tops(timeline, region, calls.name[rows], calls.end_ns[rows] - calls.start_ns[rows], plain_name)


def _tops(
    timeline: Timeline,
    region: npt.NDArray[np.integer],
    name: Int32Array | Int64Array,
    duration_ns: Int,
    label: Callable[[str], str],
) -> list[tuple[Top, ...]]:
    """Totals by region (with descendants) and label, the longest first. Shapes (n,); ``name``: into Trace.names."""
    tops: list[tuple[Top, ...]] = [()] * len(timeline.ownership.regions)
    if len(name) == 0:
        return tops
    used, index = ranked(name)
    names = [timeline.trace.names[number] if number >= 0 else "" for number in used.tolist()]
    labels = [label(text) if text else GRAPH for text in names]
    distinct = sorted(set(labels))
    place = {text: number for number, text in enumerate(distinct)}
    of_row = pick(np.array([place[text] for text in labels], np.int64), index, 0)
    region, of_row, count, total = _pairs(region, of_row, None, duration_ns)
    region, of_row, count, total = _with_ancestors(timeline.ownership.regions, region, of_row, count, total)
    order = np.lexsort((of_row, -total, region))
    region, of_row, count, total = region[order], of_row[order], count[order], total[order]
    first = np.flatnonzero(np.append(True, region[1:] != region[:-1])) if len(region) else np.empty(0, np.intp)
    for low, high in itertools.pairwise([*first.tolist(), len(region)]):
        shown = slice(low, min(high, low + MOST_NAMES))
        columns = (of_row[shown].tolist(), count[shown].tolist(), total[shown].tolist())
        tops[int(region[low])] = tuple(Top(distinct[row], times, ns) for row, times, ns in zip(*columns, strict=True))
    return tops


def _pairs(region: npt.NDArray[np.integer], label: Int, count: Int | None, total: Int) -> tuple[Int, Int, Int, Int]:
    """One row for each pair of region and label, with sums; without ``count`` each row counts once."""
    pairs, of_row = factorize(region, label)
    counts = group_counts(of_row, len(pairs)) if count is None else group_sums(of_row, count, len(pairs))
    return pairs[:, 0], pairs[:, 1], counts, group_sums(of_row, total, len(pairs))


def _with_ancestors(regions: Regions, region: Int, label: Int, count: Int, total: Int) -> tuple[Int, Int, Int, Int]:
    """The same pairs once more for every region around theirs."""
    columns = [(region, label, count, total)]
    while len(region):
        region = regions.parent[region]
        inside = region >= 0
        region, label, count, total = region[inside], label[inside], count[inside], total[inside]
        columns.append((region, label, count, total))
    return _pairs(*(np.concatenate(column) for column in zip(*columns, strict=True)))
