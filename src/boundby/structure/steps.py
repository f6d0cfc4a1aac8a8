"""What a program's steps are, and how many of the first ones are warm-up: the one definition of each.

Rules, pages, windows and comparisons ask here. Live measuring has another question, from when on a mean is steady
(measure/steady.py): there a drift of a hundredth matters, here only what misleads a reader of averages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from boundby.model.arrays import Int64Array, median
from boundby.model.expressions import expression
from boundby.model.scale import A_FEW_LINES, HALF, NOTABLE
from boundby.trace.vocabulary.ranges import is_step

# First instances that take so many times the median are warm-up: ordinary steps differ by less.
SLOWER = 1.5
# The last of them count only while their excess is this share of the largest: beside 50 ms, 0.1 ms is nothing.
LEAST_EXCESS = NOTABLE
# A step holds more than this of what is launched: two regions cannot both.
MOST_OF_IT = HALF
MOST_NAMED = A_FEW_LINES
_NO_STEP = expression(r"warm[-_ ]?up|^MPI_(?:Init|Finalize)", re.IGNORECASE)


class Candidate(NamedTuple):
    """A region that may be the program's step: what it is called, how often it ran, how long in all (ns), and what it
    launched in all."""

    path: tuple[str, ...]
    instances: int
    time_ns: int
    launches: int


def find_steps(regions: Sequence[Candidate], whole: Candidate) -> int | None:
    """Which region is plainly the program's step: it repeats or is numbered as a step, is no warm-up, and holds most of
    what the ``whole`` program launches (of one that launches nothing: most of its time); of several the outermost, then
    the one that takes most. None: none is, and a guess would be told as a fact."""
    found = [
        (len(one.path), -one.time_ns, number)
        for number, one in enumerate(regions)
        if _may_be(one)
        and (one.launches > MOST_OF_IT * whole.launches if whole.launches else one.time_ns > MOST_OF_IT * whole.time_ns)
    ]
    return min(found)[-1] if found else None


def likely_steps(regions: Sequence[Candidate]) -> tuple[str, ...]:
    """Paths to name where none is plainly the step: what repeats and launches most comes first."""
    found = sorted((one for one in regions if _may_be(one)), key=lambda one: (-one.launches, -one.time_ns, one.path))
    launching = [one for one in found if one.launches] or found
    return tuple("/".join(one.path) for one in launching[:MOST_NAMED])


def _may_be(one: Candidate) -> bool:
    if not one.path or any(_NO_STEP.search(name) for name in one.path):
        return False
    return one.instances > 1 or (one.launches > 0 and is_step(one.path[-1]))


def count_warm_up(duration_ns: Int64Array, slower: float = SLOWER) -> int:
    """How many of the first instances, in order of time, are warm-up: those before the first that takes less than
    ``slower`` times the median of all. Twice as many follow, else they vary. Shape: (instances,)."""
    if len(duration_ns) == 0:
        return 0
    usual = float(median(duration_ns))
    slow = duration_ns > slower * usual
    warm_up = int(np.argmin(slow)) if not slow.all() else 0
    if 2 * warm_up > len(duration_ns) - warm_up:
        return 0
    excess = duration_ns - usual
    while warm_up > 1 and excess[warm_up - 1] < LEAST_EXCESS * excess[:warm_up].max():
        warm_up -= 1
    return warm_up
