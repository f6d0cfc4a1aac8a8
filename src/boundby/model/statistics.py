"""The statistics of samples, on plain sequences of numbers, for `measure` and `compare` alike.

Checked against SciPy in the tests; SciPy itself would more than double the light install.

Medians and order statistics, since times have long right tails: one descheduled sample moves a mean, and not these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from boundby.model.scale import PIECE_BYTES, SEVERAL

Float = NDArray[np.float64]
Numbers = Sequence[float] | Float

#: With fewer samples on either side the normal approximation of Mann-Whitney's U is poor.
MIN_FOR_TEST = SEVERAL
#: With fewer on either side even complete separation is no proof at one in a hundred (6 and 6: 2 of 924 orders).
FEWEST = 6
#: The usual rule of thumb: from so many on, chance evens out in a mean.
MANY_SAMPLES = 30
#: Of an interval or a test, unless somebody asks otherwise.
CONFIDENCE = 0.95
#: Median absolute deviation -> standard deviation of a normal distribution.
MAD_TO_STD = 1.4826
#: Deviations from the middle beyond which nothing of the same kind lies.
OUTLYING = 6.0


def median(values: Numbers) -> float:
    return float(np.median(values))


def mean(values: Numbers) -> float:
    return float(np.mean(values))


def std(values: Numbers) -> float | None:
    """Standard deviation of the sample (divided by n - 1); None for fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def percentile(values: Numbers, percent: float) -> float:
    """With linear interpolation between order statistics, as NumPy's and SciPy's default."""
    return float(np.percentile(values, percent))


def spread(values: Numbers) -> float:
    """Interquartile range as a fraction of the median."""
    low, middle, high = np.percentile(values, (25, 50, 75))
    return float((high - low) / middle) if middle > 0 else 0.0


def median_interval(values: Numbers, confidence: float) -> tuple[float, float, float] | None:
    """(low, high, confidence that it has) for the median, from order statistics, whatever the distribution.

    The median lies below the k-th smallest of n independent values with the probability that a Binomial(n, 1/2) is
    smaller than k. The largest k is taken with which both tails together stay within 1 - ``confidence``. With too
    few values for that (fewer than 6 for 95 %) it is the whole range, which holds the median with less confidence.
    None for fewer than two values.
    """
    number = len(values)
    if number < 2:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    tail = 0.0
    rank = 0  # values left out at either end
    term = -number * math.log(2)  # log of P(X = 0)
    while rank < (number - 1) // 2:
        with_next = tail + math.exp(term)
        if 2 * with_next > 1 - confidence:
            break
        tail = with_next
        term += math.log(number - rank) - math.log(rank + 1)
        rank += 1
    if rank == 0:
        return float(ordered[0]), float(ordered[-1]), 1 - 2.0 ** (1 - number)
    return float(ordered[rank - 1]), float(ordered[number - rank]), 1 - 2 * tail


def ranks(values: Float) -> Float:
    """From 1, equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    result: Float = (last - (counts - 1) / 2)[inverse]
    return result


def mann_whitney(a: Numbers, b: Numbers, inflation: tuple[float, float] = (1.0, 1.0)) -> tuple[float, float]:
    """(U of ``a``, two-sided p): is a value of one sample larger than one of the other more often than not?

    Normal approximation with corrections for ties and continuity (SciPy: ``mannwhitneyu(method="asymptotic")``), poor
    below `MIN_FOR_TEST` values. ``inflation``: how many neighbours of each series are worth one independent value.
    """
    both = ranks(np.concatenate([np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)]))
    size_a, size_b, size = len(a), len(b), len(both)
    statistic = float(both[:size_a].sum()) - size_a * (size_a + 1) / 2
    ties = np.unique(both, return_counts=True)[1].astype(np.float64)
    variance = size_a * size_b / 12 * (size + 1 - float((ties**3 - ties).sum()) / (size * (size - 1)))
    if variance <= 0:
        return statistic, 1.0
    variance *= (size_b * inflation[0] + size_a * inflation[1]) / size
    distance = max(abs(statistic - size_a * size_b / 2) - 0.5, 0.0)
    return statistic, math.erfc(distance / math.sqrt(variance) / math.sqrt(2))


def median_ratio_interval(
    a: Numbers, b: Numbers, confidence: float, blocks: tuple[int, int], resamples: int
) -> tuple[float, float] | None:
    """Interval of median(b) / median(a) by a circular block bootstrap; None where a median of ``a`` is 0.

    Neighbouring samples are alike (clocks, caches, another program for a while), so stretches of ``blocks`` neighbours
    are drawn and not single samples, which would make the interval too narrow (Politis and Romano, 1992).
    """
    random = np.random.default_rng(0)  # the same question gets the same answer
    before = _resampled_medians(a, blocks[0], resamples, random)
    after = _resampled_medians(b, blocks[1], resamples, random)
    if not before.all():
        return None
    low, high = np.quantile(after / before, ((1 - confidence) / 2, (1 + confidence) / 2))
    return float(low), float(high)


def _resampled_medians(values: Numbers, block: int, resamples: int, random: np.random.Generator) -> Float:
    """Medians of resamples, shape (resamples,). The series is a circle, so that no end counts less."""
    data = np.asarray(values, dtype=np.float64)
    number = len(data)
    blocks = -(-number // block)
    steps = np.arange(block)
    medians = np.empty(resamples)
    chunk = max(1, PIECE_BYTES // number)  # so that many samples need little memory
    for begin in range(0, resamples, chunk):
        rows = min(chunk, resamples - begin)
        first = random.integers(0, number, (rows, blocks, 1))
        picks = ((first + steps) % number).reshape(rows, -1)[:, :number]
        medians[begin : begin + rows] = np.median(data[picks], axis=1)
    return medians


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
