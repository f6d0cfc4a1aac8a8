"""What a program's steps are, how many of the first ones are warm-up, and where its behaviour changes: one definition
of each.

Rules, pages, windows and comparisons ask here. Live measuring has another question, from when on a mean is steady
(measure/sampling.py): there a drift of a hundredth matters, here only what misleads a reader of averages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int64Array, median, ranked
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, HABIT, HALF, HALF_MORE, NOTABLE, SEVERAL, TENFOLD
from boundby.trace.vocabulary.range_names import is_step

# First instances that take so many times the median are warm-up: ordinary steps differ by less.
SLOWER = HALF_MORE
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
    candidates = [
        (len(region.path), -region.time_ns, number)
        for number, region in enumerate(regions)
        if _may_be(region)
        and (
            region.launches > MOST_OF_IT * whole.launches
            if whole.launches
            else region.time_ns > MOST_OF_IT * whole.time_ns
        )
    ]
    return min(candidates)[-1] if candidates else None


def likely_steps(regions: Sequence[Candidate]) -> tuple[str, ...]:
    """Paths to name where none is plainly the step: what repeats and launches most comes first."""
    candidates = sorted(
        (region for region in regions if _may_be(region)),
        key=lambda region: (-region.launches, -region.time_ns, region.path),
    )
    launching = [region for region in candidates if region.launches] or candidates
    return tuple("/".join(region.path) for region in launching[:MOST_NAMED])


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


# Where a program's behaviour changes: the mix of what it launches, and how fast.
#
# Launches are counted in equal portions. A boundary between portions is a change if what lies before and after it (up
# to the next change) is mostly different work, or the same work many times as fast. Only large, lasting changes count:
# a phase that is none would mislead.

Ints = npt.NDArray[np.int64]

PORTIONS = 64  # pieces of the trace of which each has a rate of launches
LEAST_PER_PORTION = SEVERAL  # launches: fewer say little about a mix
LEAST_PORTIONS = HABIT  # a phase is at least that long
# Two mixes differ by so much of their launches (half the sum of absolute differences of the shares).
MIX_CHANGE = HALF
RATE_CHANGE = TENFOLD  # times as many launches a second
_MOST_TOKENS = PORTIONS  # the most frequent; all others count as one


def find_changes(tokens: Ints, start_ns: Ints) -> list[int]:
    """Places in a run of launches at which a new phase begins; empty where it is all of a kind. O(n)."""
    portions = min(PORTIONS, len(tokens) // LEAST_PER_PORTION)
    if portions < 2 * LEAST_PORTIONS:
        return []
    bounds = np.linspace(0, len(tokens), portions + 1).astype(np.int64)
    ids = ranked(tokens)[1].reshape(-1)
    frequent = np.argsort(-np.bincount(ids), kind="stable")[:_MOST_TOKENS]
    column = np.full(int(ids.max()) + 1, len(frequent))
    column[frequent] = np.arange(len(frequent))
    portion = np.repeat(np.arange(portions), np.diff(bounds))
    width = len(frequent) + 1
    counts = np.bincount(portion * width + column[ids], minlength=portions * width).reshape(portions, width)
    total = np.vstack((np.zeros((1, width), np.int64), np.cumsum(counts, axis=0)))
    time = np.append(start_ns[bounds[:-1]], start_ns[-1])
    cuts: list[int] = []
    pending = [(0, portions)]
    while pending:
        low, high = pending.pop()
        positions = np.arange(low + LEAST_PORTIONS, high - LEAST_PORTIONS + 1)
        if len(positions) == 0:
            continue
        before, after = total[positions] - total[low], total[high] - total[positions]
        mix = np.abs(before / before.sum(axis=1)[:, None] - after / after.sum(axis=1)[:, None]).sum(axis=1) / 2
        fast = before.sum(axis=1) / np.maximum(time[positions] - time[low], 1)
        faster = after.sum(axis=1) / np.maximum(time[high] - time[positions], 1)
        rate = np.abs(np.log(np.maximum(fast, 1e-12) / np.maximum(faster, 1e-12))) / np.log(RATE_CHANGE)
        score = np.maximum(mix / MIX_CHANGE, rate)
        best = int(np.argmax(score))
        if score[best] >= 1:
            position = int(positions[best])
            cuts.append(int(bounds[position]))
            pending += [(low, position), (position, high)]
    return sorted(cuts)
