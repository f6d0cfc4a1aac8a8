"""Texts that lie one after the other in one array of bytes, as columns of texts do."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int32Array, Int64Array
from boundby.model.library import run

Bytes = npt.NDArray[np.uint8]

_FIRST_SLOTS = 1 << 14
_MORE_SLOTS = 16  # times as many, where there are too few
_END = 10  # "\n": what texts are joined with to be decoded all at once


def distinct_texts(written: Bytes, offset: Int32Array) -> tuple[Int32Array, Int32Array]:
    """The number of each text among the distinct ones, in order of first sight, and where each of these stands first.
    Text ``row`` reaches from ``offset[row]`` to ``offset[row + 1]``, which the caller has looked at."""
    rows = len(offset) - 1
    number, first = np.empty(rows, np.int32), np.empty(rows, np.int32)
    size = _FIRST_SLOTS
    while True:
        slots = np.full(size, -1, np.int32)
        found = run("boundby_distinct_texts", written, offset, rows, slots, size, number, first)
        if found >= 0:
            return number, first[:found].copy()
        size *= _MORE_SLOTS


def texts_at(written: Bytes, begin: npt.NDArray[Any], end: npt.NDArray[Any]) -> list[str]:
    """The texts that reach from here to there; what is not UTF-8 in them is replaced."""
    size: Int64Array = (end - begin).astype(np.int64) + 1
    after = np.cumsum(size)
    place = np.repeat(begin - (after - size), size) + np.arange(after[-1] if len(after) else 0)
    place[after - 1] = 0  # not of the text
    together = written[place] if len(written) else np.zeros(len(place), np.uint8)
    together[after - 1] = _END
    try:
        texts = together.tobytes().decode("utf-8").split(chr(_END))
    except UnicodeDecodeError:
        texts = []
    if len(texts) == len(size) + 1:  # else a text holds the byte that they were joined with
        return texts[:-1]
    whole = written.tobytes()
    return [whole[low:high].decode("utf-8", "replace") for low, high in zip(begin.tolist(), end.tolist(), strict=True)]
