"""The longest part of a sequence that ascends, and what lies out of it."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from boundby.model.arrays import BoolArray, Int64Array

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
