"""Interval algebra against sets of instants."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from boundby.model.arrays import factorize, group_sums, is_in, median, quantile, queue_depth, ranked, tally, without
from boundby.model.intervals import (
    CoveredTime,
    IntervalSet,
    clip,
    complement,
    contains,
    exposed,
    first_free_lanes,
    intersect,
    nearest,
    overlay,
    subtract,
    union,
)
from boundby.stats.instances import intervals_in, quantiles
from tests.native.twins import without_core

pairs = st.lists(st.tuples(st.integers(-20, 60), st.integers(-5, 25)), max_size=12)


def instants(intervals: IntervalSet) -> set[int]:
    return {
        t
        for start, end in zip(intervals.start.tolist(), intervals.end.tolist(), strict=True)
        for t in range(start, end)
    }


def make(rows: list[tuple[int, int]]) -> IntervalSet:
    start = np.array([low for low, _ in rows], np.int64)
    return union(start, start + np.array([length for _, length in rows], np.int64))


@given(pairs)
def test_union_is_sorted_disjoint_and_complete(rows: list[tuple[int, int]]) -> None:
    found = make(rows)
    assert instants(found) == {t for low, length in rows for t in range(low, low + length)}
    assert (found.end > found.start).all()
    assert (found.start[1:] > found.end[:-1]).all()
    assert found.total == len(instants(found))


@given(pairs, pairs, st.integers(-30, 30), st.integers(0, 60))
def test_set_operations(first: list[tuple[int, int]], second: list[tuple[int, int]], low: int, length: int) -> None:
    a, b, high = make(first), make(second), low + length
    assert instants(intersect(a, b)) == instants(a) & instants(b)
    assert instants(subtract(a, b)) == instants(a) - instants(b)
    assert instants(clip(a, low, high)) == instants(a) & set(range(low, high))
    assert instants(complement(a, low, high)) == set(range(low, high)) - instants(a)


@given(pairs, pairs)
def test_overlay_names_both_parents(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = make(first), make(second)
    pieces = overlay(a, b)
    assert (pieces.end > pieces.start).all()
    assert ((a.start[pieces.left] <= pieces.start) & (pieces.end <= a.end[pieces.left])).all()
    assert ((b.start[pieces.right] <= pieces.start) & (pieces.end <= b.end[pieces.right])).all()


@given(pairs, st.lists(st.integers(-40, 90), max_size=8))
def test_coverage_and_contains(rows: list[tuple[int, int]], times: list[int]) -> None:
    found, asked = make(rows), np.array(times, np.int64)
    covered = instants(found)
    assert CoveredTime(found).until(asked).tolist() == [sum(t < time for t in covered) for time in times]
    index = contains(found, asked)
    assert [number >= 0 for number in index.tolist()] == [time in covered for time in times]


@given(pairs)
def test_exposed_gives_each_instant_to_the_earliest_started(rows: list[tuple[int, int]]) -> None:
    rows = sorted((low, max(length, 0)) for low, length in rows)
    start = np.array([low for low, _ in rows], np.int64)
    end = start + np.array([length for _, length in rows], np.int64)
    pieces, owner = exposed(start, end)
    found = {t: int(o) for s, e, o in zip(pieces.start, pieces.end, owner, strict=True) for t in range(s, e)}
    wanted: dict[int, int] = {}
    for row, (low, length) in enumerate(rows):
        for time in range(low, low + length):
            wanted.setdefault(time, row)
    assert found == wanted


@given(pairs, st.lists(st.tuples(st.integers(-30, 80), st.integers(0, 60)), max_size=8))
def test_intervals_in(rows: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    found = make(rows)
    low = np.array([start for start, _ in windows], np.int64)
    high = low + np.array([length for _, length in windows], np.int64)
    count, covered, longest = intervals_in(found, low, high)
    for number, (start, length) in enumerate(windows):
        parts = [
            min(e, start + length) - max(s, start)
            for s, e in zip(found.start.tolist(), found.end.tolist(), strict=True)
            if min(e, start + length) > max(s, start)
        ]
        expected = len(parts), sum(parts), max(parts, default=0)
        assert (int(count[number]), int(covered[number]), int(longest[number])) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), min_size=1, max_size=40))
def test_group_quantiles_equal_numpy(rows: list[tuple[int, int]]) -> None:
    group = np.array([key for key, _ in rows], np.int64)
    value = np.array([number for _, number in rows], np.int64)
    found = quantiles(group, value, np.bincount(group, minlength=5), (0.0, 0.5, 0.95, 1.0))
    for key in range(5):
        wanted = np.quantile(value[group == key], (0.0, 0.5, 0.95, 1.0)) if (group == key).any() else np.nan
        assert np.allclose(found[:, key], wanted, equal_nan=True)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), max_size=30))
def test_queue_depth_by_definition(rows: list[tuple[int, int]]) -> None:
    launch = np.array([start for start, _ in rows], np.int64)
    start = launch + np.array([wait for _, wait in rows], np.int64)
    depth = queue_depth(launch, start)
    for number, time in enumerate(launch.tolist()):
        queued = sum(other < time < begun for other, begun in zip(launch.tolist(), start.tolist(), strict=True))
        instant = sum(
            begun == time and other == time for other, begun in zip(launch.tolist(), start.tolist(), strict=True)
        )
        assert int(depth[number]) == max(queued - instant, 0)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)), max_size=30), st.sampled_from([None, 3]))
def test_intervals_of_a_lane_do_not_overlap_and_none_is_wasted(rows: list[tuple[int, int]], most: int | None) -> None:
    start = np.array(sorted(start for start, _ in rows), np.int64)
    end = start + np.array([length for _, length in rows], np.int64)
    lane = first_free_lanes(start, end, most)
    for row, (begin, own) in enumerate(zip(start.tolist(), lane.tolist(), strict=True)):
        running = {int(lane[other]) for other in range(row) if end[other] > begin}
        if most is None:
            assert own == min(set(range(len(rows))) - running)
        else:
            assert own < most
            assert own == most - 1 or own not in running


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 9)), max_size=20))
def test_sums_and_the_prevailing_value_of_groups(rows: list[tuple[int, int, int]]) -> None:
    group, value, weight = np.array(rows, np.int64).reshape(-1, 3).T
    sums = [sum(w for g, _, w in rows if g == number) for number in range(4)]
    for width in (np.int8, np.int16, np.int32, np.int64):
        assert group_sums(group.astype(width), weight, 4).tolist() == sums
    found = tally(group, value, weight, 2 * weight)
    for number, prevailing in enumerate(found.prevailing(np.zeros(4, np.int64)).tolist()):
        held = {v: sum(w for g, u, w in rows if (g, u) == (number, v)) for g, v, _ in rows if g == number}
        assert prevailing == (min(held, key=lambda v: (-held[v], v)) if held else 0)


@given(st.lists(st.integers(-(2**60), 2**60) | st.integers(0, 9), min_size=1, max_size=9))
def test_a_median_is_that_of_numpy(values: list[int]) -> None:
    assert median(values) == np.median(np.array(values, np.int64))
    assert median(np.array(values, float)) == np.median(np.array(values, float))
    for part in (0.0, 0.1, 0.25, 0.5, 0.9, 1.0):
        assert quantile(np.array(values, np.int64), part) == np.quantile(np.array(values, np.int64), part)


@given(st.lists(st.integers(-9, 9)), st.lists(st.integers(-9, 9)))
def test_what_is_not_among_others_is_that_of_numpy(values: list[int], gone: list[int]) -> None:
    these, others = np.array(values, np.int32), np.array(gone, np.int64)
    assert without(these, others).tolist() == np.setdiff1d(these, others).tolist()


def test_distinct_rows_of_columns_of_any_width() -> None:
    random = np.random.default_rng(5)
    wide = [random.integers(-3, 3, 3_000), random.integers(-(2**40), 2**40, 9)[random.integers(0, 9, 3_000)]]
    narrow = [wide[0].astype(kind) for kind in (np.int8, np.int16, np.int32, np.bool_)]
    columns: list[npt.NDArray[np.generic]] = [*wide, *narrow]
    native = factorize(*columns)
    with without_core():
        plain = factorize(*columns)
    for one, other in zip(native, plain, strict=True):
        assert np.array_equal(one, other)


@given(st.lists(st.integers(-9, 9)), st.lists(st.integers(-9, 9)), st.lists(st.floats(-9, 9), min_size=1))
def test_what_numpy_says_with_masked_arrays(column: list[int], values: list[int], numbers: list[float]) -> None:
    whole, floats = np.array(column, np.int64), np.array(numbers)
    assert np.array_equal(is_in(whole, values), np.isin(whole, values))
    assert np.array_equal(is_in(whole.astype(np.int8), np.array(values, np.int64)), np.isin(whole, values))
    found, index = ranked(floats)
    expected, place = np.unique(floats, return_inverse=True)
    assert np.array_equal(found, expected)
    assert np.array_equal(index, place)
    for part in (0.0, 0.1, 0.5, 0.9):
        assert quantile(floats, part) == np.quantile(floats, part)


@given(st.lists(st.tuples(st.integers(-1, 9), st.booleans()), max_size=10))
def test_the_nearest_row_around(rows: list[tuple[int, bool]]) -> None:
    parent = [above if above < number else -1 for number, (above, _) in enumerate(rows)]
    is_so = [so for _, so in rows]
    wanted = []
    for number in range(len(rows)):
        while number >= 0 and not is_so[number]:
            number = parent[number]
        wanted.append(number)
    assert nearest(np.array(parent, np.int64), np.array(is_so, bool)).tolist() == wanted
