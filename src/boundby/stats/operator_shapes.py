"""Operators by the shapes of their inputs: how often each is called, what its kernels take, and what of the device's
peak that is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline, rows_in_windows
from boundby.model.arrays import factorize, group_sums, unique
from boundby.model.intervals import NOTHING
from boundby.model.scale import TABLE
from boundby.results.report import OperatorShape
from boundby.stats.work import WorkedCalls, nearest_range, sizes_of
from boundby.trace.tables import OpKind, Trace
from boundby.trace.vocabulary.operator_names import operator_names


def operators_by_shape(timeline: Timeline, worked: WorkedCalls | None) -> tuple[OperatorShape, ...]:
    """Those whose kernels take most time; none where no operators are on record. A kernel counts for the innermost
    operator around its launch whose work is known, else for the innermost one."""
    trace, table = timeline.trace, timeline.trace.operations
    names, name_of_range = _operators(trace)
    if not names:
        return ()
    around = np.append(nearest_range(timeline.ownership.regions.range_parent, name_of_range >= 0), NOTHING)
    of_operation = around[timeline.launch_range]
    if worked is not None:
        of_operation = np.where(worked.around >= 0, worked.around, of_operation)
    rows = np.arange(len(table))[rows_in_windows(timeline.devices)] if timeline.devices else np.empty(0, np.intp)
    rows = rows[(table.kind[rows] <= OpKind.GRAPH)]
    all_ns = int((table.end_ns - table.start_ns)[rows].sum())
    rows = rows[of_operation[rows] >= 0]
    if not len(rows):
        return ()
    label = _labels(trace, name_of_range)
    keys, group = factorize(label[of_operation[rows]])
    called, first = np.unique(of_operation[rows], return_index=True)
    calls = np.bincount(group[first], minlength=len(keys))
    length = (table.end_ns - table.start_ns)[rows]
    total, kernels = group_sums(group, length, len(keys)), np.bincount(group, minlength=len(keys))
    example = np.full(len(keys), NOTHING)
    example[group[first][::-1]] = called[::-1]
    columns, known_ns = np.zeros((len(keys), 6)), np.zeros(len(keys), np.int64)
    if worked is not None:
        place = np.searchsorted(keys[:, 0], label[worked.rows])
        np.add.at(columns, place, worked.columns)
        counted = worked.is_counted[rows] & (worked.around[rows] >= 0)
        known_ns = group_sums(group[counted], length[counted], len(keys))
    found = [
        OperatorShape(
            name=names[name_of_range[row]],
            sizes=told[0],
            types=told[1],
            calls=int(calls[at]),
            kernels=int(kernels[at]),
            total_ns=int(total[at]),
            share=round(int(total[at]) / all_ns, 4) if all_ns else 0.0,
            work=None
            if worked is None
            else worked.work(np.rint(columns[at]).astype(np.int64), int(known_ns[at]), int(total[at])),
        )
        for at, row in enumerate(example.tolist())
        for told in (sizes_of(trace, row),)
    ]
    return tuple(sorted(found, key=lambda one: (-one.total_ns, one.name, one.sizes, one.types))[:TABLE])


def _operators(trace: Trace) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """The names of operators, and which of them each range is (NOTHING: none)."""
    used = unique(trace.ranges.name)
    names, number = operator_names([trace.names[name] for name in used.tolist()], trace.operator_names)
    of_name = np.full(len(trace.names) + 1, NOTHING, np.int64)
    of_name[used] = number
    return names, np.where(trace.in_library, NOTHING, of_name[trace.ranges.name])


def _labels(trace: Trace, name_of_range: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A number for each operator range; of equal names and shapes the same."""
    rows = np.flatnonzero(name_of_range >= 0)
    distinct, index = factorize(trace.ranges.name[rows], trace.ranges.arguments[rows], name_of_range[rows])
    number: dict[tuple[int, str, str], int] = {}
    first = np.full(len(distinct), NOTHING)
    first[index[::-1]] = rows[::-1]
    of_distinct = [
        number.setdefault((operator, *sizes_of(trace, row)), len(number))
        for operator, row in zip(distinct[:, 2].tolist(), first.tolist(), strict=True)
    ]
    label = np.full(len(trace.ranges), NOTHING, np.int64)
    label[rows] = np.array(of_distinct, np.int64)[index]
    return label
