"""What a program's steps are, and how many of the first ones are warm-up: the one definition of each.

Rules, pages, windows and comparisons ask here. Live measuring has another question, from when on a mean is steady
(measure/steady.py): there a drift of a hundredth matters, here only what misleads a reader of averages.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from boundby.model.arrays import Int64Array

# First instances that take so many times the median are warm-up: ordinary steps differ by less.
SLOWER = 1.5
# At most this part of all instances is warm-up: later ones that differ are variance.
MOST_WARM_UP_SHARE = 0.34
# The last of them count only while their excess is this share of the largest: beside 50 ms, 0.1 ms is nothing.
LEAST_EXCESS = 0.1


def find_steps(regions: Iterable[tuple[int, int, int]]) -> int | None:
    """Which region looks like the steps of the program: of the outermost repeated ones the one that takes most.

    ``regions``: depth (the root's is 0), number of instances and time (ns) of each. None: nothing repeats.
    """
    repeated = [
        (depth, -time_ns, number)
        for number, (depth, instances, time_ns) in enumerate(regions)
        if depth and instances > 1
    ]
    return min(repeated)[-1] if repeated else None


def count_warm_up(duration_ns: Int64Array, slower: float = SLOWER) -> int:
    """How many of the first instances, in order of time, are warm-up: those before the first that takes less than
    ``slower`` times the median of all. Shape: (instances,)."""
    if len(duration_ns) == 0:
        return 0
    usual = float(np.median(duration_ns))
    slow = duration_ns > slower * usual
    warm_up = int(np.argmin(slow)) if not slow.all() else 0
    if warm_up > MOST_WARM_UP_SHARE * len(duration_ns):
        return 0
    excess = duration_ns - usual
    while warm_up > 1 and excess[warm_up - 1] < LEAST_EXCESS * excess[:warm_up].max():
        warm_up -= 1
    return warm_up
