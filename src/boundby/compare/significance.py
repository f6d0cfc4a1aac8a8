"""Whether instances of one run are typically longer than those of another, or differ by chance.

The test is that of Brunner and Munzel (2000): it asks whether an instance of the one run is longer than one of the
other more often than not, on ranks, so that no shape of the distribution is assumed and single slow instances count
as one each; unlike the Mann-Whitney test it stays right where one run spreads more than the other. Neighbouring
instances are alike in most programs (caches, clocks, data of similar size), so that n of them tell less than n
independent ones would: variances are multiplied by each series' autocorrelation time, degrees of freedom divided by it.
For a handful of instances, where its distribution is only approximate, the p-value is no smaller than that of the
Mann-Whitney test, nor than what complete separation of so many would have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boundby.results.comparison import Significance

Float = npt.NDArray[np.float64]

#: Of falsely calling one region of a comparison changed, after adjusting for the number of regions tested.
LEVEL = 0.01
#: With fewer on either side even complete separation is no proof at LEVEL (6 and 6: 2 of 924 orders).
FEWEST = 6
#: Smaller changes are not called changes, however sure: two runs of one program differ by as much (clocks, heat).
LEAST_CHANGE = 0.01
CONFIDENCE = 0.95
RESAMPLES = 400  # the ends of the interval are then known to about a tenth of its width


@dataclass(frozen=True)
class Weighed:
    """``p_value`` two-sided; ``effective``: how many independent instances the two series are worth."""

    p_value: float
    effective: tuple[float, float]


def weigh(before: Sequence[float], after: Sequence[float]) -> Weighed:
    """Brunner and Munzel's test of two series in order of time."""
    one, other = np.asarray(before, float), np.asarray(after, float)
    sizes = (len(one), len(other))
    both = ranks(np.concatenate([one, other]))
    first, second = both[: sizes[0]], both[sizes[0] :]
    # Placements: how many of the other series lie below each value. Their variance is that of the statistic.
    place_one, place_other = first - ranks(one), second - ranks(other)
    inflation = (autocorrelation_time(one), autocorrelation_time(other))
    effective = (sizes[0] / inflation[0], sizes[1] / inflation[1])
    least = _separation(*effective)
    difference = float(second.mean() - first.mean())
    variances = (float(place_one.var(ddof=1)) * inflation[0], float(place_other.var(ddof=1)) * inflation[1])
    spread = sizes[0] * variances[0] + sizes[1] * variances[1]
    if difference == 0:
        return Weighed(1.0, effective)
    if spread == 0:  # no value of one lies among the other's
        return Weighed(least, effective)
    statistic = abs(difference) * sizes[0] * sizes[1] / (sum(sizes) * math.sqrt(spread))
    parts = (sizes[0] * variances[0], sizes[1] * variances[1])
    freedom = spread**2 / sum(part**2 / max(size - 1, 0.5) for part, size in zip(parts, effective, strict=True))
    exact_enough = student_tail(statistic, freedom)
    return Weighed(min(max(exact_enough, _mann_whitney(both, sizes, inflation), least), 1.0), effective)


def significance(before: Sequence[int], after: Sequence[int], series: str) -> tuple[Significance, float | None]:
    """The comparison of two series of durations, and its p-value before adjusting (None: nothing was tested)."""
    counts = (len(before), len(after))
    if min(counts) < FEWEST:
        reason = f"{min(counts)} instances are too few to tell: {FEWEST} are needed on both sides"
        medians = (float(np.median(before)) if before else None, float(np.median(after)) if after else None)
        return Significance("too_few", series, *counts, *medians, change=_change(*medians), reason=reason), None
    found = weigh(before, after)
    one, other = np.asarray(before, float), np.asarray(after, float)
    medians = (float(np.median(one)), float(np.median(other)))
    low, high = _interval(one, other)
    made = Significance(
        "same",
        series,
        *counts,
        *medians,
        change=_change(*medians),
        change_low=low,
        change_high=high,
        p_value=found.p_value,
    )
    if _separation(*found.effective) >= LEVEL:
        worth = min(found.effective)
        reason = f"instances drift together: {min(counts)} tell no more than {worth:.0f} independent ones, too few"
        return _with(made, "too_few", made.p_value, reason), None
    return made, found.p_value


def adjust(found: Sequence[tuple[Significance, float | None]]) -> list[Significance]:
    """Decide, after raising p-values for the number of regions tested (Benjamini and Hochberg), so that of two runs of
    one program any of many regions is called changed no more often than a single one would be."""
    tested = sorted(((p, index) for index, (_, p) in enumerate(found) if p is not None), reverse=True)
    result = [item for item, _ in found]
    adjusted = 1.0
    for rank, (p, index) in enumerate(tested):
        adjusted = min(adjusted, p * len(tested) / (len(tested) - rank))
        result[index] = _decided(result[index], adjusted)
    return result


def _decided(item: Significance, p_value: float) -> Significance:
    change = item.change or 0.0
    if p_value >= LEVEL:
        return _with(item, "same", p_value, "within what instances differ anyway")
    if abs(change) < LEAST_CHANGE:
        return _with(item, "same", p_value, f"a change below {LEAST_CHANGE:.0%} is none that two runs can show")
    return _with(item, "faster" if change < 0 else "slower", p_value, "")


def _with(item: Significance, status: str, p_value: float | None, reason: str) -> Significance:
    return replace(item, status=status, p_value=p_value, reason=reason)


def _change(before: float | None, after: float | None) -> float | None:
    return after / before - 1 if before and after is not None else None


def ranks(values: Float) -> Float:
    """From 1, equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    result: Float = (last - (counts - 1) / 2)[inverse]
    return result


def autocorrelation_time(values: Float) -> float:
    """How many neighbours are worth one independent value (at least 1), on ranks.

    1 + twice the sum of autocorrelations, as long as sums of neighbouring pairs stay positive (Geyer's initial
    positive sequence) and exceed what chance gives the first of them. A trend shows as a long time, rightly.
    """
    size = len(values)
    centred = ranks(values) - (size + 1) / 2
    variance = float(centred @ centred)
    if size < FEWEST or variance == 0:
        return 1.0
    # The sample's own mean pulls each autocorrelation down by about 1/n; give it back.
    correlation = [float(centred[:-lag] @ centred[lag:]) / variance + 1 / size for lag in range(1, size // 2 + 1)]
    if abs(correlation[0]) < 1.0 / math.sqrt(size):  # nothing that chance does not give
        return 1.0
    total = 1.0
    for lag in range(0, len(correlation) - 1, 2):
        pair = correlation[lag] + correlation[lag + 1]
        if pair <= 0:
            break
        total += 2 * pair
    return min(max(total, 1.0), size / 2)


def _separation(one: float, other: float) -> float:
    """Two-sided chance that so many independent values of both separate completely."""
    total = math.lgamma(one + other + 1) - math.lgamma(one + 1) - math.lgamma(other + 1)
    return min(1.0, 2 * math.exp(-total))


def _mann_whitney(both: Float, sizes: tuple[int, int], inflation: tuple[float, float]) -> float:
    """Two-sided, by the normal approximation with ties and continuity, its variance inflated likewise."""
    n, m = sizes
    total = n + m
    smaller = both[:n].sum() - n * (n + 1) / 2
    ties = np.unique(both, return_counts=True)[1].astype(float)
    variance = n * m / 12 * (total + 1 - float((ties**3 - ties).sum()) / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    inflated = variance * (m * inflation[0] + n * inflation[1]) / total
    z = max(abs(smaller - n * m / 2) - 0.5, 0.0) / math.sqrt(inflated)
    return math.erfc(z / math.sqrt(2))


def student_tail(statistic: float, freedom: float) -> float:
    """Two-sided tail of Student's t: the regularized incomplete beta function by its continued fraction."""
    x = freedom / (freedom + statistic * statistic)
    return _incomplete_beta(freedom / 2, 0.5, x)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Lentz's method (Numerical Recipes 6.4)."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for step in range(1, 1_000):
        for numerator in (
            step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step)),
            -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1)),
        ):
            d = 1 + numerator * d
            c = 1 + numerator / c
            d, c = 1 / (d if abs(d) > tiny else tiny), c if abs(c) > tiny else tiny
            result *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return result


def _interval(one: Float, other: Float) -> tuple[float | None, float | None]:
    """Confidence interval of the change of the median, by resampling blocks as long as instances stay alike."""
    chance = np.random.default_rng(0)  # the same question gets the same answer
    before, after = _medians(one, chance), _medians(other, chance)
    if not before.all():
        return None, None
    change = after / before - 1
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(change, [tail, 1 - tail])
    return float(low), float(high)


def _medians(values: Float, chance: np.random.Generator) -> Float:
    """Medians of resamples, made of blocks of neighbours."""
    size = len(values)
    block = min(math.ceil(autocorrelation_time(values)), size)
    blocks = -(-size // block)
    first = chance.integers(0, size, (RESAMPLES, blocks))
    places = (first[:, :, None] + np.arange(block)) % size  # the series as a circle, so that no end counts less
    found: Float = np.median(values[places.reshape(RESAMPLES, -1)[:, :size]], axis=1)
    return found
