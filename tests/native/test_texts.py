"""Columns of texts: the native pass equals the plain one, and texts come out as they went in."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from boundby.model.scale import ROOM
from boundby.native.passes import distinct_texts, texts_at
from tests.native import twins

TEXTS = st.lists(st.text(alphabet="ab1 \n\0ü", max_size=12).map(str.encode) | st.binary(max_size=3), max_size=60)


def column(parts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offset = np.cumsum([0, *map(len, parts)]).astype(np.int32)
    return np.frombuffer(b"".join(parts), np.uint8), offset


@settings(max_examples=200)
@given(TEXTS)
def test_native_and_plain_number_alike(parts: list[bytes]) -> None:
    for one, other in zip(distinct_texts(*column(parts)), twins.distinct_texts(*column(parts)), strict=True):
        assert one.tolist() == other.tolist()
        assert one.dtype == other.dtype


@given(TEXTS)
def test_texts_come_out_as_they_went_in(parts: list[bytes]) -> None:
    written, offset = column(parts)
    assert texts_at(written, offset[:-1], offset[1:]) == [part.decode("utf-8", "replace") for part in parts]


def test_more_texts_than_slots() -> None:
    parts = [str(number % 50_000).encode() for number in range(120_000)]
    number, first = distinct_texts(*column(parts))
    assert number.tolist() == [row % 50_000 for row in range(120_000)]
    assert first.tolist() == list(range(50_000))
    assert ROOM < 50_000
