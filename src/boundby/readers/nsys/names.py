"""One pool of texts for the whole trace, so that tables hold small integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boundby.model.arrays import Int32Array, Int64Array
from boundby.readers.nsys.columns import MISSING, Database


class NamePool:
    """Gives every distinct text one index."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The index of a text, new or known."""
        return self._index.setdefault(text, len(self._index))

    def add_ids(self, database: Database, ids: Int64Array, *, unknown: str = "(unnamed)") -> Int32Array:
        """Indexes for StringIds ids. An id without a text, or MISSING, becomes ``unknown``."""
        if len(ids) == 0:
            return np.empty(0, np.int32)
        distinct, inverse = np.unique(ids, return_inverse=True)
        texts = database.strings(distinct[distinct != MISSING])
        index = [self.add(texts.get(int(number), unknown)) for number in distinct]
        return np.array(index, np.int32)[inverse]

    def add_texts(self, texts: Sequence[str]) -> Int32Array:
        """Indexes for texts that stand in their rows."""
        return np.array([self.add(text) for text in texts], np.int32)

    def ranks(self, index: Int32Array) -> Int64Array:
        """A number for every row that sorts as its text does, whatever numbers the export gave the texts."""
        distinct, inverse = np.unique(index, return_inverse=True)
        texts = list(self._index)
        order = sorted(range(len(distinct)), key=lambda place: texts[distinct[place]])
        ranks = np.empty(len(distinct), np.int64)
        ranks[order] = np.arange(len(distinct))
        return ranks[inverse]

    def names(self) -> tuple[str, ...]:
        """All texts, in index order."""
        return tuple(self._index)
