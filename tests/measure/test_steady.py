"""Warm-up detection on series whose end of warm-up is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boundby.measure.sampling import MIN_STEADY, cut, steady_from

SEEDS = st.integers(0, 10_000)


def noise(number: int, seed: int, deviation: float = 0.02) -> np.ndarray:
    return np.random.default_rng(seed).normal(1.0, deviation, number)


def ended_at(series: np.ndarray) -> int | None:
    """How many values it takes until the series is called steady, as it grows."""
    return next((number for number in range(1, len(series) + 1) if steady_from(series[:number]) is not None), None)


@given(SEEDS, st.integers(1, 40), st.floats(1.15, 100))
@settings(max_examples=60)
def test_a_step_is_cut_where_it_is(seed: int, slow: int, factor: float) -> None:
    series = 1e6 * noise(slow + 120, seed)
    series[:slow] *= factor
    found = steady_from(series)
    assert found is not None
    assert slow <= found <= slow + 40  # chance may make a few more look worth leaving out


@given(SEEDS, st.integers(10, 40))
@settings(max_examples=60)
def test_warm_up_does_not_end_before_a_step(seed: int, slow: int) -> None:
    series = 1e6 * noise(slow + 80, seed)
    series[:slow] *= 3
    # Before the step the slow values are steady too, and nobody can know better: MIN_STEADY of them end it. So the
    # step is early enough here for the rule to see it.
    early = series[slow - 4 :]
    end = ended_at(early)
    assert end is not None
    assert end >= 4 + MIN_STEADY
    assert steady_from(early[:end]) is not None
    assert (steady_from(early[:end]) or 0) >= 4


@given(SEEDS, st.integers(20, 80))
@settings(max_examples=60)
def test_a_ramp_is_cut_near_its_end(seed: int, length: int) -> None:
    series = 1e6 * noise(length + 150, seed, 0.01)
    series[:length] *= np.linspace(3.0, 1.0, length)
    found = steady_from(series)
    assert found is not None
    assert found >= 0.85 * length
    assert series[found:].mean() == pytest.approx(1e6, rel=0.02)


@given(SEEDS)
@settings(max_examples=40)
def test_a_ramp_alone_is_never_steady(seed: int) -> None:
    series = 1e6 * noise(60, seed, 0.005) * np.linspace(3.0, 1.0, 60)
    assert steady_from(series) is None


@given(SEEDS, st.floats(0.0, 0.2))
@settings(max_examples=60)
def test_what_is_steady_from_the_start_needs_little(seed: int, deviation: float) -> None:
    series = 1e6 * np.abs(noise(200, seed, deviation))
    end = ended_at(series)
    assert end is not None
    assert end <= 6 * MIN_STEADY


@given(st.integers(2, 8), st.floats(0.05, 0.5), SEEDS)
@settings(max_examples=60)
def test_a_periodic_series_is_steady(period: int, depth: float, seed: int) -> None:
    series = 1e6 * (noise(240, seed, 0.005) + depth * np.sin(2 * np.pi * np.arange(240) / period))
    end = ended_at(series)
    assert end is not None
    assert end <= 12 * MIN_STEADY


@given(SEEDS, st.integers(50, 99), st.floats(2, 1000))
@settings(max_examples=40)
def test_single_slow_calls_do_not_restart_it(seed: int, place: int, factor: float) -> None:
    series = 1e6 * noise(100, seed)
    series[place] *= factor
    found = steady_from(series)
    assert found is not None
    assert found <= 50


def test_a_drift_below_tolerance_does_not_matter() -> None:
    assert steady_from(1e6 * np.linspace(1.005, 1.0, 100)) is not None


def test_equal_times_are_steady_as_soon_as_may_be() -> None:
    assert steady_from([5.0] * (MIN_STEADY - 1)) is None
    assert steady_from([5.0] * MIN_STEADY) == 0


def test_scale_does_not_matter() -> None:
    series = noise(100, 3)
    series[:20] *= 2
    assert cut(series) == cut(1e9 * series)


def test_nothing_is_not_steady() -> None:
    assert steady_from([]) is None
    assert cut([]) == 0
