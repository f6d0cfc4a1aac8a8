"""The native account equals the plain one to the nanosecond: its passes on random columns, all of it on random programs
and real traces."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.model.arrays import (
    Int64Array,
    as_slice,
    factorize,
    first_rows,
    into_groups,
    marked,
    order_of,
    order_statistics,
    pick,
    places,
    queue_depth,
    range_maximum,
    ranked,
    running_maximum,
    tally,
    translated,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.intervals import CoveredTime, IntervalSet, StepFunction, contains, cut, overlay, union
from boundby.native.passes import (
    COLUMNS,
    FIRST_INSTANT,
    LAST_INSTANT,
    TABLES,
    Costs,
    Layer,
    cut_intervals,
    divide,
    states,
)
from boundby.readers import read_trace
from boundby.replay.build import build_graph
from boundby.stats.figures import measure
from boundby.stats.instances import intervals_in
from boundby.trace.tables import Trace
from tests.attribution.strategies import host_sequences
from tests.native.twins import without_core
from tests.support.program import Program
from tests.support.traces import trace_names, trace_path

#: Columns of tuples are compared, and what these hold; what works things out when asked is not.
_LAZY = ("HostState", "Compilations")


def assert_same(one: Any, other: Any, where: str = "") -> None:
    """Every array, of the same type, and every value in two results."""
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, where
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), where
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other), where
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            assert_same(first, second, f"{where}[{place}]")
    elif isinstance(one, Struct):
        for name in one.__struct_fields__:
            assert_same(getattr(one, name), getattr(other, name), f"{where}.{name}")
    elif isinstance(one, Costs):
        for name in COLUMNS:
            assert_same(getattr(one, name), getattr(other, name), f"{where}.{name}")
        assert one.has_queue_limit == other.has_queue_limit, where
    elif isinstance(one, dict):
        assert_same(list(one.items()), list(other.items()), where)
    elif type(one).__name__ not in _LAZY:
        assert one == other or one != one, where


def both(function: Callable[[], Any]) -> None:
    """The same with the library and without."""
    native = function()
    with without_core():
        assert_same(native, function())


times = st.lists(st.integers(-30, 60), max_size=25).map(lambda values: np.array(values, np.int64))
ordered = times.map(np.sort)


def intervals(values: Int64Array) -> IntervalSet:
    """A set whose bounds are these values."""
    bounds = np.array(sorted({*values.tolist()}), np.int64)
    return IntervalSet(bounds[: len(bounds) // 2 * 2 : 2], bounds[1::2])


def steps(values: Int64Array) -> StepFunction:
    time = np.array(sorted({*values.tolist()}), np.int64)
    return StepFunction(time, np.resize(np.array([3, -1, 5, 1], np.int64), len(time)))


@settings(max_examples=80, deadline=None)
@given(times, times, ordered, times)
def test_intervals(first: Int64Array, second: Int64Array, third: Int64Array, asked: Int64Array) -> None:
    count = min(len(first), len(second))
    one, other = intervals(first), intervals(third)
    both(lambda: union(first[:count], second[:count]))
    both(lambda: union(np.sort(first[:count]), np.sort(first[:count]) + second[:count]))
    both(lambda: [places(third, asked, side) for side in ("left", "right")])
    both(lambda: contains(one, asked))
    both(lambda: CoveredTime(one).until(asked))
    both(lambda: overlay(one, other))
    both(lambda: cut(first[:count], second[:count], steps(third)))
    both(lambda: cut(*other, steps(first)))


@pytest.mark.parametrize("span", [3, 1 << 10, 1 << 40])
def test_order_statistics_of_many(span: int) -> None:
    random = np.random.default_rng(span)
    values = random.integers(-span, span, 100_000)
    first, stop = np.array([10_000, 20_000, 0, 0]), np.array([20_000, 60_000, 60_000, 100_000])
    for part in (0.0, 0.02, 0.5, 0.95, 1.0):
        rank = ((stop - first - 2) * part).astype(np.int64)
        both(lambda: order_statistics(values.copy(), first, stop, np.stack((rank, rank + 1, rank // 2), axis=1)))  # noqa: B023
    launch, start = np.sort(values), np.sort(values + random.integers(0, 9, len(values)))
    both(lambda: queue_depth(launch, start))
    both(lambda: queue_depth(values, values + 9))
    one = intervals(values)
    both(lambda: intervals_in(one, values[:2_000], values[2_000:4_000]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=300), st.integers(1, 5), st.randoms())
def test_order_statistics(given_values: list[int], groups: int, random: Random) -> None:
    values = np.array(given_values, np.int64)
    group = np.array([random.randrange(groups) for _ in given_values], np.int64)
    bounds = np.sort(
        np.array([(random.randrange(len(values)), random.randrange(len(values))) for _ in range(9)]), axis=1
    )
    both(lambda: range_maximum(values, bounds[:, 0], bounds[:, 1]))
    both(lambda: into_groups(group, values, np.bincount(group, minlength=groups)))
    first, stop = np.array([len(values) // 3, 0]), np.array([len(values) // 3 + 1, len(values)])
    ranks = np.array([(0, 0, 0), (len(values) // 2, len(values) - 1, len(values) // 5)])
    both(lambda: order_statistics(values.copy(), first, stop, ranks))
    both(
        lambda: into_groups(
            group, values, (count := np.bincount(group, minlength=6)), (np.cumsum(count[::-1]) - count[::-1])[::-1]
        )
    )
    many = np.tile(values, 9)[: 1 << 11]  # too few are sorted
    many = np.append(many, np.arange(1 << 10) * random.randrange(2))
    both(lambda: ranked(many))
    both(lambda: [order_of(column) for column in (values, np.sort(values), np.unique(values), values.astype(np.int8))])
    both(lambda: [translated(column, lambda value: 3 * value, np.int32) for column in (many, values, values + 70)])
    both(lambda: [first_rows(values), running_maximum(values), running_maximum(np.sort(values))])
    for rows in (values + 70, np.sort(values) + 70, np.unique(values) + 70, np.arange(7, 9 + len(values))):
        assert np.array_equal(np.arange(rows.max() + 1)[as_slice(rows)], rows)
    both(lambda: marked(np.maximum(values, -1), 70))
    both(lambda: factorize(many, np.resize(group, len(many)), -many))
    for kind in (np.int8, np.int16, np.int32, np.int64):
        both(partial(tally, group.astype(kind), values.astype(kind), values, np.abs(values)))
        both(partial(tally, values.astype(kind), np.arange(len(values)), values, np.abs(values)))
        own, rows = values.astype(kind), np.minimum(values, 0).astype(kind)
        both(partial(unique, many.astype(kind)))
        both(partial(ranked, own))
        both(partial(pick, own, group % len(values) - 1, 5))
        both(partial(pick, values > 0, rows, False))
    with pytest.raises(IndexError, match="behind"):
        pick(values, np.array([0, len(values)]), 0)


def test_rows_that_share_a_hash_are_told_apart() -> None:
    """Multiplication and shifts can be undone: what makes the hash of one row is found for another first column."""
    inverse, mask = pow(0xBF58476D1CE4E5B9, -1, 1 << 64), (1 << 64) - 1

    def mixed(hash_: int, value: int) -> int:
        product = (hash_ ^ value & mask) * 0xBF58476D1CE4E5B9 & mask
        return product ^ product >> 29

    def before(hash_: int, value: int) -> int:
        product = hash_ ^ hash_ >> 29 ^ hash_ >> 58
        return product * inverse & mask ^ value & mask

    wanted = mixed(mixed(0x9E3779B97F4A7C15, 3), 5)
    other = 77
    second = before(wanted, 0) ^ mixed(0x9E3779B97F4A7C15, other)
    assert mixed(mixed(0x9E3779B97F4A7C15, other), second) == wanted
    one = np.resize(np.array([3, other], np.int64), 1 << 11)
    two = np.resize(np.array([5, second - (second >> 63 << 64)], np.int64), 1 << 11)
    both(lambda: factorize(one, two))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(times, st.sampled_from((0, 4, None)), st.sampled_from((-1, 4))), max_size=6), ordered)
def test_states(given_layers: list[tuple[Int64Array, int | None, int]], extra: Int64Array) -> None:
    layers = []
    for bounds, state, spared in given_layers:
        start, end = intervals(bounds)
        layers.append(Layer(start, end, 10 + np.arange(len(start)) if state is None else state, spared))
    layers.append(Layer(np.array([FIRST_INSTANT, 20], np.int64), np.array([5, LAST_INSTANT], np.int64), 7))
    both(lambda: states(layers, 1, extra))


@settings(max_examples=60, deadline=None)
@given(times, times)
def test_states_of_intervals_that_overlap(start: Int64Array, end: Int64Array) -> None:
    count = min(len(start), len(end))
    layers = (Layer(np.sort(start[:count]), np.sort(start[:count]) + np.abs(end[:count]), Cause.CPU),)
    both(lambda: states(layers, 0, np.empty(0, np.int64)))


def test_columns_that_do_not_fit_are_refused() -> None:
    none = np.empty(0, np.int64)
    with pytest.raises(ValueError, match="fit"):
        states((Layer(np.zeros(2, np.int64), np.zeros(1, np.int64), 0),), 0, none)
    nothing = StepFunction(none, none)
    gaps = dict.fromkeys(("start", "end", "since", "launch", "operation"), none)
    calls = dict.fromkeys(("call_start", "call_end", "launch_region"), none)
    waits = dict.fromkeys(("wait_start", "wait_end", "wait_reach", "wait_call", "wait_owner"), none)
    blocked = (none, none, np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="fit"):
        divide(gaps | {"end": np.zeros(1, np.int64)}, calls, nothing, (), {0: nothing}, none, blocked, waits, {})
    with pytest.raises(ValueError, match="fit"):
        divide(gaps, calls, nothing, [(5, nothing)], {0: nothing}, none, blocked, waits, {})
    with pytest.raises(ValueError, match="fit"):
        cut_intervals(dict.fromkeys(chain(*TABLES.values()), none) | {"low": np.zeros(1, np.int64)}, {})


def worked_out(trace: Trace) -> tuple[Timeline, Any, Any, Any]:
    """All that the account, the figures and the graph hold."""
    timeline = build_timeline(trace, parse_window("gpu"), find=True)
    return timeline, timeline.waits, measure(timeline), build_graph(timeline) if len(timeline.calls) else None


def test_an_interval_that_32_bits_do_not_hold_is_several_pieces() -> None:
    far = 5 << 30
    one = {"low": 0, "high": far, "node": 7, "step_time": 10, "step_range": 0, "region_of_range": 4}
    columns = {name: np.array([value]) for name, value in one.items()}
    columns |= {"state_time": np.array([100, far - 5]), "state": np.array([int(Cause.INIT), int(Cause.CPU)])}
    node, ns, cause, region = cut_intervals(columns, {"otherwise": int(Cause.UNATTRIBUTED), "root": 0})
    assert set(node.tolist()) == {7}
    assert ns[:2].tolist() == [10, 90]
    assert int(ns.astype(np.int64).sum()) == far
    assert cause.tolist() == [Cause.UNATTRIBUTED] * 2 + [Cause.INIT] * (len(ns) - 3) + [Cause.CPU]
    assert region.tolist() == [0] + [4] * (len(ns) - 1)


@settings(max_examples=20, deadline=None)
@given(host_sequences(threads=3, devices=2, processes=2, most=12))
def test_random_programs(program: Program) -> None:
    trace = program.trace()
    both(lambda: worked_out(trace))


@pytest.mark.parametrize("name", [name for name in trace_names() if not name.startswith("oddities")][::3])
def test_real_traces(name: str) -> None:
    trace = read_trace(trace_path(name))
    if len(trace.operations):
        both(lambda: worked_out(trace))
