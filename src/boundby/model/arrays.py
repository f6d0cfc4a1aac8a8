"""Small array helpers that NumPy lacks or does slowly."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


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
        values, index = np.unique(column, return_inverse=True)
        code = code * len(values) + index.reshape(-1)
    if code.min() == code.max():
        first, inverse = np.zeros(1, np.intp), code
    else:
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    rows = np.stack([np.asarray(column)[first] for column in columns], axis=1)
    return rows.astype(np.int64), inverse.reshape(-1)
