"""Columns that say of each row what a small table says of its number: looked up for the rows that are asked for."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model.arrays import pick


class Looked(Struct, frozen=True, eq=False):
    """A column that takes no memory of its own; it is indexed like one."""

    table: npt.NDArray[np.integer]  # the last is what stands where a row has no number
    number: npt.NDArray[np.integer]  # of each row: its place in the table, or -1

    @overload
    def __getitem__(self, rows: int) -> int: ...
    @overload
    def __getitem__(self, rows: slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> npt.NDArray[Any]: ...
    def __getitem__(self, rows: int | slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> int | npt.NDArray[Any]:
        return int(self.table[self.number[rows]]) if isinstance(rows, int) else self.of(self.number[rows])

    def of(self, number: npt.NDArray[np.integer]) -> npt.NDArray[Any]:
        """What rows of these numbers hold."""
        return pick(self.table, number, int(self.table[-1]))
