"""The statistics against SciPy, and on samples whose answer is known."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundby.model import statistics

stats = pytest.importorskip("scipy.stats")

VALUES = st.lists(st.floats(1, 1e9), min_size=2, max_size=200)


def _ratio_interval(*given: object) -> tuple[float, float]:
    interval = statistics.median_ratio_interval(*given)  # type: ignore[arg-type]
    assert interval is not None
    return interval


@given(VALUES)
def test_figures_are_those_of_scipy(values: list[float]) -> None:
    assert statistics.median(values) == pytest.approx(stats.quantile(values, 0.5), rel=1e-12)
    assert statistics.mean(values) == pytest.approx(stats.tmean(values), rel=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of precision, where all values are equal
        assert statistics.std(values) == pytest.approx(stats.tstd(values), rel=1e-9, abs=1e-6)
    assert statistics.percentile(values, 90) == pytest.approx(stats.scoreatpercentile(values, 90), rel=1e-12)
    assert statistics.percentile(values, 99) == pytest.approx(stats.quantile(values, 0.99), rel=1e-12)
    assert statistics.spread(values) == pytest.approx(stats.iqr(values) / np.median(values), rel=1e-9, abs=1e-12)


def test_one_value_has_no_deviation_and_no_interval() -> None:
    assert statistics.std([5.0]) is None
    assert statistics.median_interval([5.0], 0.95) is None


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("number", [6, 7, 10, 11, 30, 101, 1000, 9999])
def test_the_interval_of_the_median_is_that_of_the_binomial(number: int, confidence: float) -> None:
    values = np.random.default_rng(number).permutation(np.arange(number, dtype=float))
    found = statistics.median_interval(values, confidence)
    assert found is not None
    low, high, reached = found
    rank = int(low)  # the values are their own ranks: so many lie below
    assert high == number - 1 - rank
    if rank == 0:
        assert reached == pytest.approx(1 - 2 * 0.5**number)
    tail = stats.binom.cdf(rank, number, 0.5)
    assert reached == pytest.approx(1 - 2 * tail, abs=1e-9)
    assert reached >= confidence or rank == 0
    if rank + 1 <= (number - 1) // 2:  # one further in would be too little
        assert 1 - 2 * stats.binom.cdf(rank + 1, number, 0.5) < confidence


@pytest.mark.parametrize("number", [30, 101, 1000])
def test_the_interval_agrees_with_the_quantile_test(number: int) -> None:
    values = np.random.default_rng(number).lognormal(size=number)
    found = statistics.median_interval(values, 0.95)
    theirs = stats.quantile_test(values, q=float(np.median(values)), p=0.5).confidence_interval(0.95)
    assert found is not None
    ordered = np.sort(values)
    assert abs(int(np.searchsorted(ordered, found[0])) - int(np.searchsorted(ordered, theirs.low))) <= 1
    assert abs(int(np.searchsorted(ordered, found[1])) - int(np.searchsorted(ordered, theirs.high))) <= 1


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    hits, said = 0, 0.0
    for _ in range(2000):
        found = statistics.median_interval(random.exponential(size=31), 0.95)
        assert found is not None
        hits += found[0] <= math.log(2) <= found[1]
        said = found[2]
    assert hits / 2000 == pytest.approx(said, abs=0.015)


def test_too_few_values_give_their_range_and_less_confidence() -> None:
    assert statistics.median_interval([3.0, 1.0, 2.0], 0.95) == (1.0, 3.0, 0.75)


@given(st.lists(st.integers(1, 30), min_size=8, max_size=60), st.lists(st.integers(1, 30), min_size=8, max_size=60))
def test_mann_whitney_is_that_of_scipy(a: list[int], b: list[int]) -> None:
    ours = statistics.mann_whitney(a, b)
    if len(set(a) | set(b)) == 1:
        assert ours[1] == 1.0
        return
    theirs = stats.mannwhitneyu(a, b, method="asymptotic")
    assert ours[0] == pytest.approx(theirs.statistic)
    assert ours[1] == pytest.approx(theirs.pvalue, rel=1e-9)


def test_the_interval_of_the_ratio_agrees_with_scipys_bootstrap_on_independent_samples() -> None:
    random = np.random.default_rng(3)
    a, b = random.normal(100, 5, 400), random.normal(90, 5, 400)
    low, high = _ratio_interval(a, b, 0.95, (20, 20), 2000)
    theirs = stats.bootstrap(
        (a, b), lambda x, y, axis: np.median(y, axis) / np.median(x, axis), n_resamples=2000, method="percentile", rng=1
    ).confidence_interval
    assert low == pytest.approx(theirs.low, abs=0.004)
    assert high == pytest.approx(theirs.high, abs=0.004)
    assert low < 0.9 < high


def test_the_interval_of_the_ratio_is_wider_where_neighbours_are_alike() -> None:
    random = np.random.default_rng(4)
    independent = 100 + random.normal(size=900)
    states = 100 + np.repeat(random.normal(size=30), 30)  # the machine changes its mind every 30 samples
    low, high = _ratio_interval(independent, independent, 0.95, (30, 30), 2000)
    slow_low, slow_high = _ratio_interval(states, states, 0.95, (30, 30), 2000)
    assert slow_high - slow_low > 3 * (high - low)
