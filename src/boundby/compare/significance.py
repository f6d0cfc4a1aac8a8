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

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from boundby.model.scale import NEGLIGIBLE
from boundby.model.statistics import Float, mann_whitney, median_ratio_interval, ranks, student_tail
from boundby.results.comparison import Significance

#: Of falsely calling one region of a comparison changed, after adjusting for the number of regions tested.
LEVEL = NEGLIGIBLE
#: With fewer on either side even complete separation is no proof at LEVEL (6 and 6: 2 of 924 orders).
FEWEST = 6
#: Smaller changes are not called changes, however sure: two runs of one program differ by as much (clocks, heat).
LEAST_CHANGE = NEGLIGIBLE
CONFIDENCE = 0.95
RESAMPLES = 400  # the ends of the interval are then known to about a tenth of its width


class Weighed(Struct, frozen=True):
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
    return Weighed(min(max(exact_enough, mann_whitney(one, other, inflation)[1], least), 1.0), effective)


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
    blocks = (_alike(one), _alike(other))
    interval = median_ratio_interval(one, other, CONFIDENCE, blocks, RESAMPLES)
    made = Significance(
        "same",
        series,
        *counts,
        *medians,
        change=_change(*medians),
        change_low=interval[0] - 1 if interval else None,
        change_high=interval[1] - 1 if interval else None,
        p_value=found.p_value,
    )
    if _separation(*found.effective) >= LEVEL:
        worth = min(found.effective)
        reason = f"instances drift together: {min(counts)} are worth {worth:.0f} independent ones, too few"
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
        return _with(item, "same", p_value, "within the usual spread of instances")
    if abs(change) < LEAST_CHANGE:
        return _with(item, "same", p_value, f"two runs cannot show a change below {LEAST_CHANGE:.0%}")
    return _with(item, "faster" if change < 0 else "slower", p_value, "")


def _with(item: Significance, status: str, p_value: float | None, reason: str) -> Significance:
    return replace(item, status=status, p_value=p_value, reason=reason)


def _change(before: float | None, after: float | None) -> float | None:
    return after / before - 1 if before and after is not None else None


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


def _alike(values: Float) -> int:
    """How many neighbours are alike: a block of the bootstrap."""
    return min(math.ceil(autocorrelation_time(values)), len(values))


def _separation(one: float, other: float) -> float:
    """Two-sided chance that so many independent values of both separate completely."""
    total = math.lgamma(one + other + 1) - math.lgamma(one + 1) - math.lgamma(other + 1)
    return min(1.0, 2 * math.exp(-total))
