"""Small array helpers that NumPy lacks or does slowly."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

#: Stands in a column of int64 for what is not told: NULL, an absent column or argument.
MISSING = int(np.iinfo(np.int64).min)

Scalar = TypeVar("Scalar", bound=np.generic)


def sorted_distinct(*arrays: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """All distinct values, ascending. By sorting: several times faster than np.unique's hash on timestamps."""
    values = np.sort(np.concatenate(arrays).astype(np.int64, copy=False))
    if len(values) == 0:
        return values
    new = np.empty(len(values), bool)
    new[0] = True
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return values[new]


def factorize(*columns: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp]]:
    """Distinct rows of equally long columns, shape (k, columns) in ascending order, and each row's index in them."""
    size = len(columns[0])
    code = np.zeros(size, np.int64)
    if size == 0:
        return np.empty((0, len(columns)), np.int64), code
    for column in columns:
        if column.min() == column.max():
            continue
        count, index = _ranks(column)
        code = code * count + index
    count, inverse = _ranks(code)
    place = np.empty(count, np.intp)
    place[inverse] = np.arange(size)
    rows = np.stack([np.asarray(column)[place] for column in columns], axis=1)
    return rows.astype(np.int64), inverse


def _ranks(values: npt.NDArray[Any]) -> tuple[int, npt.NDArray[np.intp]]:
    """How many distinct integers there are, and the place of each among them."""
    low, high = int(values.min()), int(values.max())
    if high - low > 2 * len(values):
        distinct, index = np.unique(values, return_inverse=True)
        return len(distinct), index.reshape(-1)
    shifted = values.astype(np.int64) - low  # few different numbers: no need to sort
    seen = np.zeros(high - low + 1, bool)
    seen[shifted] = True
    return int(np.count_nonzero(seen)), (np.cumsum(seen) - 1)[shifted]


def pick(values: npt.NDArray[Scalar], rows: npt.NDArray[Any], missing: int) -> npt.NDArray[Scalar]:
    """``values[rows]``, with ``missing`` where a row is negative: there is none. Shape of ``rows``."""
    picked = np.full(len(rows), missing, values.dtype)
    known = np.flatnonzero(rows >= 0)
    picked[known] = values[rows[known]]
    return picked


def rows_of(column: npt.NDArray[Any], value: int) -> slice:
    """The rows that hold a value, in a column that is sorted."""
    low, high = np.searchsorted(column, [value, value + 1]).tolist()
    return slice(low, high)


def queue_depth(launch: npt.NDArray[np.int64], start: npt.NDArray[np.int64]) -> Int64Array:
    """For each operation, how many launched before it (itself excluded) had not started when it was launched."""
    launched = np.searchsorted(np.sort(launch), launch, side="left")
    started = np.searchsorted(np.sort(start), launch, side="right")
    depth: Int64Array = np.maximum(launched - started, 0).astype(np.int64)
    return depth


def range_maximum(values: Int64Array, first: npt.NDArray[np.intp], stop: npt.NDArray[np.intp]) -> Int64Array:
    """Maximum of ``values[first:stop]`` for each pair, 0 where that is empty, by a sparse table. O(n log n)."""
    length = np.maximum(stop - first, 0)
    result = np.zeros(len(first), np.int64)
    table, width = values, 1
    while True:
        rows = np.flatnonzero((length >= width) & (length < 2 * width))
        if len(rows):
            result[rows] = np.maximum(table[first[rows]], table[stop[rows] - width])
        if 2 * width > int(length.max(initial=0)):
            return result
        table, width = np.maximum(table[:-width], table[width:]), 2 * width


def group_sums(group: npt.NDArray[Any], value: npt.NDArray[Any], groups: int) -> Int64Array:
    """The integer values of each group summed, shape (groups,)."""
    total: Int64Array = np.zeros(groups, np.int64)
    np.add.at(total, group, value)
    return total


def heaviest(
    group: npt.NDArray[Any], value: npt.NDArray[Any], weight: npt.NDArray[Any], groups: int
) -> npt.NDArray[np.int64]:
    """The value that holds most of each group's weight, of equals the smallest; shape (groups,), 0 for empty ones."""
    pairs, of_row = factorize(group, value)
    total = group_sums(of_row, weight, len(pairs))
    prevailing = np.zeros(groups, np.int64)
    order = np.lexsort((-pairs[:, 1], total))  # the last write wins
    prevailing[pairs[order, 0]] = pairs[order, 1]
    return prevailing
