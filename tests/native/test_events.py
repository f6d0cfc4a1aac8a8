"""The native scanner of events and Python's own JSON read the same."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.native import passes
from tests.native.twins import scanned
from tests.readers.kineto.test_reader import small

KEYS = ("device", "stream", "correlation", "grid", "Input Dims")


@pytest.mark.parametrize("piece", [7, 100, 1 << 20])
def test_pieces_of_any_size_give_what_plain_python_reads(piece: int) -> None:
    text = small().text().encode()
    scanner = passes.EventScanner(KEYS)
    for low in range(0, len(text), piece):
        scanner.feed(text[low : low + piece])
    one, other = scanner.finish(), scanned(text, KEYS)
    for column in ("phase", "pid", "tid", "start_ns", "duration_ns"):
        assert np.array_equal(getattr(one, column), getattr(other, column)), column
    for column in ("name", "category"):
        names = [[found.texts[number] for number in getattr(found, column).tolist()] for found in (one, other)]
        assert names[0] == names[1]
    for key in KEYS:
        kind, value = one.argument(key)
        plain_kind, plain_value = other.argument(key)
        assert np.array_equal(kind, plain_kind)
        is_number = kind == passes.NUMBER
        assert np.array_equal(value[is_number], plain_value[is_number])
    assert one.top == other.top


def test_times_keep_their_nanoseconds() -> None:
    text = b'[{"ph": "X", "ts": 1712195495505582.988, "dur": 1e-3}, {"ph": "X", "ts": -0.5, "dur": 2.0005}]'
    for found in (scanned(text, ()), _scanned(text)):
        assert found.start_ns.tolist() == [1712195495505582988, -500]
        assert found.duration_ns.tolist() == [1, 2001]


def _scanned(text: bytes) -> passes.JsonEvents:
    scanner = passes.EventScanner(())
    scanner.feed(text)
    return scanner.finish()
