"""Rows from the leaf pages of an SQLite table: `Leaves` is what ``pages.c`` is asked. SQLite itself judges it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from msgspec import Struct

from boundby.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array
from boundby.model.library import Record, run

NONE = -1
MOST_OUTPUTS = 32
#: A leaf page of 64 KiB tells of at most this many rows, whatever is damaged; there must be room for them.
MOST_ROWS_OF_PAGE = 1 << 15


class Found(IntEnum):
    """How a call ended: all pages read, something in them that SQLite must be asked about, or no more room."""

    DONE = 0
    NOT_PLAIN = 1
    NO_ROOM = 2
    NO_TEXT_ROOM = 3


class At(IntEnum):
    """Places in ``Leaves.state``."""

    NEXT_PAGE = 0
    ROWS = 1
    DEFERRED = 2
    TEXTS = 3
    HASHED = 4  # of which so many stand in ``slots``
    HAS_LAST = 5
    LAST_ROWID = 6


class Leaves(Record, Struct, frozen=True, eq=False):
    """Some leaf pages and which columns of their rows are wanted; ``state`` says how far it is, and moves on."""

    pages: Int8Array  # one after the other
    count: int
    page_size: int
    usable: int  # bytes of each page that SQLite uses
    output: Int32Array  # of each column of the table, its row in ``values``; NONE: not wanted
    columns: int
    outputs: int
    rowid_column: int  # the column that is the row's number; NONE
    text_column: int  # the column that holds texts, of which numbers come out; NONE
    has_default: BoolArray  # rows that lack the column hold something else than NULL in it
    is_decimal: BoolArray  # columns of decimals, of which the bits come out, of whole ones the number itself
    values: Int64Array  # of each output the address of its column, which must live as long; 0: none while it is even
    is_even: BoolArray  # of each output: rows so far hold one value, ``first``, and are not written
    first: Int64Array
    capacity: int
    deferred_row: Int64Array  # rows of which something wanted lies on another page
    deferred_rowid: Int64Array
    deferred_room: int
    slots: Int32Array  # hash table of the distinct texts
    slots_size: int  # a power of two
    text_end: Int64Array  # of each distinct text, where it ends in ``texts``
    texts: Int8Array
    texts_size: int
    state: Int64Array

    def read(self) -> Found:
        """Read on from ``state``. The library must be there."""
        self._check()
        return Found(run("boundby_leaves", self.structure))

    def _check(self) -> None:
        """Raise ValueError where an array is shorter than what is told of it: the C side trusts these lengths."""
        fits = (
            len(self.pages) >= self.count * self.page_size
            and 0 < self.usable <= self.page_size
            and len(self.output) == len(self.has_default) == len(self.is_decimal) == self.columns
            and self.values.shape == self.is_even.shape == self.first.shape == (self.outputs,)
            and bool((self.is_even | (self.values != 0)).all())
            and bool((self.output < self.outputs).all())
            and len(self.deferred_row) == len(self.deferred_rowid) == self.deferred_room >= MOST_ROWS_OF_PAGE
            and len(self.slots) == self.slots_size == 1 << (self.slots_size.bit_length() - 1)
            and len(self.text_end) * 2 >= self.slots_size
            and len(self.texts) == self.texts_size
            and len(self.state) == len(At)
        )
        if not fits or self.outputs > MOST_OUTPUTS or max(self.rowid_column, self.text_column) >= self.columns:
            raise ValueError("arrays and lengths do not fit")


def empty_slots(size: int) -> Int32Array:
    """A hash table without texts."""
    return np.full(size, NONE, np.int32)
