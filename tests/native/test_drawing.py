"""The passes that draw a timeline: natively they give what NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from boundby.attribution.segments import make
from boundby.model.arrays import Int64Array
from boundby.model.causes import CAUSES
from boundby.plot_data.lanes import cause_bins, grouped, groups_of, resolution_for
from tests.native.twins import without_core

T = TypeVar("T")


def plainly(make_it: Callable[[], T]) -> T:
    """What the same gives without the native core."""
    with without_core():
        return make_it()


def rows(seed: int) -> tuple[np.random.Generator, Int64Array, Int64Array]:
    """Intervals in order of start, before and after 0."""
    random = np.random.default_rng(seed)
    start = np.sort(random.integers(-60, 60, random.integers(1, 40)))
    return random, start, start + random.integers(0, 30, len(start))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_groups_and_what_prevails_in_them(seed: int) -> None:
    random, start, end = rows(seed)
    resolution, most = int(random.integers(1, 40)), int(random.integers(1, 45))
    for limit in (len(start), most):

        def begun(limit: int = limit) -> Int64Array:
            return groups_of(start, end, resolution, limit)

        assert np.array_equal(begun(), plainly(begun))
    columns, span = [(start, end), (start, end)], int(random.integers(1, 1 << 30))
    assert resolution_for(columns, span, most) == plainly(lambda: resolution_for(columns, span, most))
    first, value = groups_of(start, end, resolution), random.integers(0, 5, len(start))
    for own in (value.astype(np.int8), value):

        def drawn(own: npt.NDArray[Any] = own) -> tuple[Int64Array, ...]:
            return grouped(first, own, start, end)

        assert np.array_equal(drawn(), plainly(drawn))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_bins_of_causes(seed: int) -> None:
    random, start, _ = rows(seed)
    start = np.unique(start)
    end = np.minimum(start + random.integers(1, 30, len(start)), np.append(start[1:], 200))
    segments = make(start, end, random.integers(0, len(CAUSES), len(start)), np.zeros(len(start), np.int64))
    edges = np.sort(random.integers(-80, 80, random.integers(2, 12)))
    assert np.array_equal(cause_bins(segments, edges).cause_ns, plainly(lambda: cause_bins(segments, edges)).cause_ns)
