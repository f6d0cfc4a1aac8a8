"""When has a series of times settled? Change detection, instead of a fixed number of warm-up calls.

The rule is the marginal standard error rule (MSER; White, "An effective truncation heuristic for bias reduction in
simulation output", 1997): leave out the first d values, for the d that makes the squared standard error of the mean
of the rest smallest. As long as values at the start differ from the later ones, leaving them out lowers the variance
by more than the loss of values raises it. Two additions for times:

- single slow values (a page fault, another process) are clipped, or the rule would cut after each of them;
- differences of less than ``TOLERANCE`` do not matter, so a drift of a thousandth does not warm up for ever.
"""

from __future__ import annotations

import numpy as np

from boundby.model.scale import NEGLIGIBLE, NOTABLE
from boundby.model.statistics import Numbers

#: Fewer values show nothing: every second of them would have to be alike by chance.
MIN_STEADY = 8
#: Fraction of the median below which a difference between early and late values does not matter.
TOLERANCE = NEGLIGIBLE
#: Values further from the median of the later half than this many of its deviations are clipped, but none within
#: ``CLIP_LEAST`` of it: the deviation of four values can be small by chance.
CLIP_DEVIATIONS = 6.0
#: Median absolute deviation -> standard deviation of a normal distribution.
_MAD_TO_STD = 1.4826


def cut(series: Numbers) -> int:
    """How many values at the start to leave out: 0 where they are like the rest."""
    values = np.asarray(series, dtype=np.float64)
    number = len(values)
    if number < 2:
        return 0
    late = values[number // 2 :]
    middle = float(np.median(late))
    deviation = float(np.median(np.abs(late - middle))) * _MAD_TO_STD
    reach = max(CLIP_DEVIATIONS * deviation, NOTABLE * abs(middle))
    clipped = np.clip(values - middle, -reach, reach)
    left = np.arange(number, 0, -1)  # how many remain when the first d are left out
    sums = np.cumsum(clipped[::-1])[::-1]
    squares = np.cumsum((clipped**2)[::-1])[::-1]
    variance = np.maximum(squares / left - (sums / left) ** 2, 0.0) + (TOLERANCE * middle) ** 2
    errors = variance / left
    # The last values are too few to have a variance worth the name.
    searched = max(1, number - max(2, number // 8))
    return int(np.argmin(errors[:searched]))


def steady_from(series: Numbers) -> int | None:
    """The index from which ``series`` is steady, or None if it is not, or not yet known.

    It is when at least ``MIN_STEADY`` values are left after the cut, and no fewer than were cut off.
    """
    number = len(series)
    if number < MIN_STEADY:
        return None
    index = cut(series)
    left = number - index
    return index if left >= MIN_STEADY and left >= index else None
