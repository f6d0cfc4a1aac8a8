from __future__ import annotations

import math

import numpy as np
import pytest

from boundby.compare import between as subject
from boundby.compare.between import compare
from boundby.model.statistics import ranks, student_tail
from boundby.results.comparison import Significance
from tests.compare import pairs

stats = pytest.importorskip("scipy.stats", reason="SciPy is what the statistics are held against")


def series(chance: np.random.Generator, size: int, *, alike: float = 0.0, shift: float = 1.0) -> tuple[int, ...]:
    """Lognormal durations of about a millisecond, neighbours correlated by ``alike``."""
    noise = chance.normal(size=size + 40)
    values = np.zeros(size + 40)
    for index in range(1, size + 40):
        values[index] = alike * values[index - 1] + noise[index] * math.sqrt(1 - alike**2)
    return tuple(np.round(1e6 * shift * np.exp(0.05 * values[40:])).astype(int).tolist())


def decided(before: tuple[int, ...], after: tuple[int, ...]) -> Significance:
    return subject.adjust([subject.significance(before, after, "host")])[0]


@pytest.mark.parametrize(("one", "other"), [(12, 15), (40, 60), (240, 180)])
def test_the_p_value_is_that_of_scipy(one: int, other: int) -> None:
    chance = np.random.default_rng(one)
    for _ in range(20):
        first, second = chance.lognormal(0, 0.3, one).round(2), chance.lognormal(0.1, 0.5, other).round(2)
        if subject.autocorrelation_time(first) > 1 or subject.autocorrelation_time(second) > 1:
            continue
        brunner = float(stats.brunnermunzel(first, second).pvalue)
        whitney = float(stats.mannwhitneyu(first, second, method="asymptotic").pvalue)
        assert subject.weigh(first, second).p_value == pytest.approx(max(brunner, whitney), rel=1e-9)


@pytest.mark.parametrize("freedom", [0.7, 1.0, 3.3, 17.0, 400.0])
@pytest.mark.parametrize("statistic", [0.0, 0.3, 2.1, 9.0, 60.0])
def test_student(statistic: float, freedom: float) -> None:
    assert student_tail(statistic, freedom) == pytest.approx(2 * stats.t.sf(statistic, freedom), rel=1e-9)


def test_ranks() -> None:
    values = np.array([3.0, 1.0, 3.0, 2.0, 3.0])
    assert ranks(values).tolist() == stats.rankdata(values).tolist()


@pytest.mark.parametrize(("size", "alike"), [(8, 0.0), (20, 0.0), (60, 0.0), (240, 0.0), (60, 0.5), (240, 0.8)])
def test_equal_programs_are_rarely_called_different(size: int, alike: float) -> None:
    """At LEVEL 0.01, over 300 pairs: at most 2.7 % (three standard errors above)."""
    chance = np.random.default_rng(size)
    wrong = sum(
        subject.weigh(series(chance, size, alike=alike), series(chance, size + 3, alike=alike)).p_value < subject.LEVEL
        for _ in range(300)
    )
    assert wrong <= 0.027 * 300


@pytest.mark.parametrize(("size", "shift"), [(20, 1.1), (60, 1.05), (240, 1.03), (20, 0.9)])
def test_planted_changes_are_found(size: int, shift: float) -> None:
    """Of 5 % spread: 10 % with 20 instances, 5 % with 60, 3 % with 240, in at least 95 of 100: here
    in 38 of 40."""
    chance = np.random.default_rng(7)
    expected = "slower" if shift > 1 else "faster"
    found = [decided(series(chance, size), series(chance, size, shift=shift)).status for _ in range(40)]
    assert found.count(expected) >= 38
    assert set(found) <= {expected, "same"}


def test_many_regions_raise_no_more_false_alarms_than_one() -> None:
    chance = np.random.default_rng(3)
    alarms = 0
    for _ in range(12):
        pairs_ = [subject.significance(series(chance, 30), series(chance, 30), "host") for _ in range(20)]
        alarms += any(item.is_change for item in subject.adjust(pairs_))
    assert alarms <= 1


def test_the_adjusted_p_values_are_scipys() -> None:
    chance = np.random.default_rng(5)
    found = [
        subject.significance(series(chance, 30), series(chance, 30, shift=shift), "host")
        for shift in (1.0, 1.02, 1.05, 1.0, 1.1)
    ]
    expected = stats.false_discovery_control([p for _, p in found])
    assert [item.p_value for item in subject.adjust(found)] == pytest.approx(list(expected))


def test_the_interval_holds_the_true_change() -> None:
    chance = np.random.default_rng(11)
    inside = 0
    for _ in range(50):
        item = decided(series(chance, 80), series(chance, 80, shift=1.2))
        assert item.change_low is not None
        assert item.change_high is not None
        inside += item.change_low <= 0.2 <= item.change_high
    assert inside >= 44


def test_identical_series_are_the_same() -> None:
    values = series(np.random.default_rng(1), 50)
    item = decided(values, values)
    assert (item.status, item.p_value, item.change) == ("same", 1.0, 0.0)


def test_constant_series() -> None:
    assert decided((100,) * 20, (100,) * 20).status == "same"
    assert decided((100,) * 20, (120,) * 20).status == "slower"
    assert decided((0,) * 20, (5,) * 20).change is None


def test_a_sure_but_tiny_change_is_none() -> None:
    item = decided((1_000_000,) * 100, (1_004_000,) * 100)
    assert item.status == "same"
    assert "below 1%" in item.reason


@pytest.mark.parametrize(("one", "other"), [(0, 9), (5, 400), (1, 1)])
def test_few_instances_tell_nothing(one: int, other: int) -> None:
    item = decided((100,) * one, (500,) * other)
    assert item.status == "too_few"
    assert f"{one} instances are too few" in item.reason


def test_a_drift_is_not_many_instances() -> None:
    """Two ramps of 40: each is worth a few independent values, whatever their number."""
    item = decided(tuple(range(1_000, 1_400, 10)), tuple(range(1_050, 1_450, 10)))
    assert not item.is_change


def test_one_slow_instance_is_no_regression() -> None:
    values = list(series(np.random.default_rng(2), 40))
    slow = [values[0] * 400, *values[1:]]
    assert decided(tuple(values), tuple(slow)).status == "same"


@pytest.mark.parametrize("seed", range(3))
def test_simulated_runs_of_one_program_do_not_differ(seed: int) -> None:
    found = compare(pairs.run(pairs.training(), 2 * seed), pairs.run(pairs.training(), 2 * seed + 1))
    assert [item.significance.status for item in found.regions if item.path] == ["same"] * 5


@pytest.mark.parametrize("seed", range(2))
def test_a_slower_kernel_shows_where_it_is(seed: int) -> None:
    slower = pairs.training(gemm_ns=330_000)
    found = compare(pairs.run(pairs.training(), seed), pairs.run(slower, seed + 50))
    status = {item.path[-1]: item.significance.status for item in found.regions if item.path}
    expected = {"forward": "slower", "backward": "slower", "step *": "slower", "data": "same", "loss": "same"}
    assert status == expected
