"""Nesting of ranges, proper and improper."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from boundby.model.intervals import (
    NOTHING,
    StepFunction,
    close_leaks,
    cut,
    depths,
    latest_open,
    nest,
    otherwise,
    simplify,
)

free = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), max_size=12)


def ordered(rows: list[tuple[int, int]]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
    spans = sorted(((low, low + length) for low, length in rows), key=lambda span: (span[0], -span[1]))
    return np.array([low for low, _ in spans], np.int64), np.array([high for _, high in spans], np.int64)


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Ranges that nest properly, some of them empty or equal."""
    rows: list[tuple[int, int]] = []

    def fill(low: int, high: int, depth: int) -> None:
        while low < high and depth < 4 and draw(st.booleans()):
            start = draw(st.integers(low, high))
            end = draw(st.integers(start, high))
            rows.append((start, end - start))
            fill(start, end, depth + 1)
            low = end

    fill(0, 30, 0)
    return rows


@given(st.one_of(free, nested()))
def test_innermost_is_the_latest_started_open_range(rows: list[tuple[int, int]]) -> None:
    start, end = ordered(rows)
    times = np.arange(-1, 50)
    wanted = [max((row for row in range(len(start)) if start[row] <= t < end[row]), default=NOTHING) for t in times]
    assert nest(start, end).innermost.at(times).tolist() == wanted
    assert latest_open(start, end).at(times).tolist() == wanted


@given(st.one_of(free, nested()))
def test_parents_contain_their_children(rows: list[tuple[int, int]]) -> None:
    start, end = ordered(rows)
    parent = nest(start, end).parent
    for row, above in enumerate(parent.tolist()):
        if end[row] == start[row]:
            continue
        around = [r for r in range(row) if start[r] <= start[row] and end[r] >= end[row] and end[r] > start[row]]
        assert above == (max(around) if around else NOTHING)
    deepest = depths(parent)
    assert all(deepest[row] == (0 if above < 0 else deepest[above] + 1) for row, above in enumerate(parent))


steps = st.lists(st.tuples(st.integers(0, 20), st.integers(-1, 3)), max_size=8).map(
    lambda rows: simplify(
        StepFunction(
            np.array(sorted(time for time, _ in rows), np.int64), np.array([value for _, value in rows], np.int64)
        )
    )
)


@given(steps, steps)
def test_otherwise_falls_back(first: StepFunction, second: StepFunction) -> None:
    times = np.arange(-2, 25)
    a, b = first.at(times), second.at(times)
    assert otherwise(first, second).at(times).tolist() == np.where(a != NOTHING, a, b).tolist()


@given(steps, st.lists(st.tuples(st.integers(-3, 20), st.integers(1, 9)), max_size=6))
def test_cut_covers_each_interval_with_one_value_a_piece(function: StepFunction, rows: list[tuple[int, int]]) -> None:
    start = np.array([low for low, _ in rows], np.int64)
    end = start + np.array([length for _, length in rows], np.int64)
    begin, finish, row, value = cut(start, end, function)
    for number in range(len(rows)):
        mine = row == number
        times = [t for s, e in zip(begin[mine], finish[mine], strict=True) for t in range(s, e)]
        assert times == list(range(start[number], end[number]))
        values = [v for s, e, v in zip(begin[mine], finish[mine], value[mine], strict=True) for _ in range(s, e)]
        assert values == function.at(np.array(times)).tolist()


def test_forgotten_pops_do_not_nest_without_end() -> None:
    # step, forward, step, forward, step: never popped
    start = np.array([0, 1, 10, 11, 20], np.int64)
    end = close_leaks(start, np.full(5, 100, np.int64), np.array([1, 2, 1, 2, 1]))
    assert end.tolist() == [10, 10, 20, 20, 100]
    assert depths(nest(start, end).parent).tolist() == [0, 1, 0, 1, 0]
    once = close_leaks(np.array([0, 5]), np.array([9, 9]), np.array([1, 2]))
    assert once.tolist() == [9, 9]


def test_overlaps_of_rounding_are_none() -> None:
    """A child that outlasts its parent by a microsecond, and a range that reaches as far into the next."""
    start = np.array([0, 1_000, 2_000, 9_500, 9_800], np.int64)
    end = np.array([8_000, 9_000, 3_000, 12_000, 10_000], np.int64)
    assert nest(start, end, rounded_ns=1_000).parent.tolist() == [NOTHING, 0, 1, NOTHING, 3]
    following = np.array([0, 7_500], np.int64), np.array([8_000, 20_000], np.int64)
    assert nest(*following, rounded_ns=1_000).parent.tolist() == [NOTHING, NOTHING]
    assert nest(*following, rounded_ns=1_000).innermost.at(np.array([7_400, 7_600])).tolist() == [0, 1]


@given(nested())
def test_rounding_leaves_what_nests_alone(rows: list[tuple[int, int]]) -> None:
    start, end = ordered(rows)
    assert nest(start, end, rounded_ns=3).parent.tolist() == nest(start, end).parent.tolist()
