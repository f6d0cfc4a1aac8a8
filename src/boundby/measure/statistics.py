"""The statistics of samples, on plain sequences of numbers. Checked against SciPy in the tests.

Medians and order statistics, since times have long right tails: one descheduled sample moves a mean, and not these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = Sequence[float] | NDArray[np.float64]

#: Resamples of the bootstrap: the ends of a 95 % interval then wobble by about a tenth of its width.
RESAMPLES = 2000
#: Elements drawn at once, so that many samples need little memory.
_CHUNK = 2_000_000
#: With fewer samples on either side the normal approximation of Mann-Whitney's U is poor.
MIN_FOR_TEST = 8


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


def mann_whitney(a: Numbers, b: Numbers) -> tuple[float, float] | None:
    """(U of ``a``, two-sided p): is a value of one sample larger than one of the other more often than not?

    Normal approximation with corrections for ties and continuity (SciPy: ``mannwhitneyu(method="asymptotic")``).
    None where either sample is too small for it.
    """
    if min(len(a), len(b)) < MIN_FOR_TEST:
        return None
    both = np.concatenate([np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    size_a, size_b, size = len(a), len(b), len(both)
    statistic = float(ranks[:size_a].sum()) - size_a * (size_a + 1) / 2
    ties = float((counts.astype(np.float64) ** 3 - counts).sum())
    variance = size_a * size_b / 12 * ((size + 1) - ties / (size * (size - 1)))
    if variance <= 0:
        return statistic, 1.0
    distance = max(0.0, abs(statistic - size_a * size_b / 2) - 0.5)
    return statistic, math.erfc(distance / math.sqrt(variance) / math.sqrt(2))


def median_ratio_interval(a: Numbers, b: Numbers, confidence: float, seed: int = 0) -> tuple[float, float]:
    """Interval of median(b) / median(a): percentiles of a circular block bootstrap.

    Neighbouring samples are alike (clocks, caches, another program for a while), so stretches of sqrt(n) neighbours are
    drawn and not single samples, which would make the interval too narrow.
    """
    random = np.random.default_rng(seed)
    ratios = _bootstrap_medians(b, random) / _bootstrap_medians(a, random)
    low, high = np.percentile(ratios, (50 * (1 - confidence), 50 * (1 + confidence)))
    return float(low), float(high)


def _bootstrap_medians(values: Numbers, random: np.random.Generator) -> NDArray[np.float64]:
    data = np.asarray(values, dtype=np.float64)
    number = len(data)
    length = max(1, math.isqrt(number))
    blocks = -(-number // length)
    steps = np.arange(length)
    medians = np.empty(RESAMPLES)
    chunk = max(1, _CHUNK // number)
    for begin in range(0, RESAMPLES, chunk):
        rows = min(chunk, RESAMPLES - begin)
        starts: NDArray[Any] = random.integers(0, number, (rows, blocks, 1))
        picks = ((starts + steps) % number).reshape(rows, -1)[:, :number]
        medians[begin : begin + rows] = np.median(data[picks], axis=1)
    return medians
