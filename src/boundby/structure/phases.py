"""Where a program's behaviour changes: the mix of what it launches, and how fast.

Launches are counted in equal portions. A boundary between portions is a change if what lies before and after it (up to
the next change) is mostly different work, or the same work many times as fast. Only large, lasting changes count: a
phase that is none would mislead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import ranked
from boundby.model.scale import HABIT, HALF, LIST

Ints = npt.NDArray[np.int64]

PORTIONS = 64  # pieces of the trace of which each has a rate of launches
LEAST_PER_PORTION = LIST  # launches: fewer say little about a mix
LEAST_PORTIONS = HABIT  # a phase is at least that long
# Two mixes differ by so much of their launches (half the sum of absolute differences of the shares).
MIX_CHANGE = HALF
RATE_CHANGE = 8.0  # times as many launches a second
_MOST_TOKENS = 64  # the most frequent; all others count as one


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
    found: list[int] = []
    pending = [(0, portions)]
    while pending:
        low, high = pending.pop()
        places = np.arange(low + LEAST_PORTIONS, high - LEAST_PORTIONS + 1)
        if len(places) == 0:
            continue
        before, after = total[places] - total[low], total[high] - total[places]
        mix = np.abs(before / before.sum(axis=1)[:, None] - after / after.sum(axis=1)[:, None]).sum(axis=1) / 2
        fast = before.sum(axis=1) / np.maximum(time[places] - time[low], 1)
        faster = after.sum(axis=1) / np.maximum(time[high] - time[places], 1)
        rate = np.abs(np.log(np.maximum(fast, 1e-12) / np.maximum(faster, 1e-12))) / np.log(RATE_CHANGE)
        score = np.maximum(mix / MIX_CHANGE, rate)
        best = int(np.argmax(score))
        if score[best] >= 1:
            place = int(places[best])
            found.append(int(bounds[place]))
            pending += [(low, place), (place, high)]
    return sorted(found)
