"""Repeating iterations in a sequence of launches.

Launches are tokens (kernel name, copy direction). In every iteration of a loop most short runs of tokens (*grams*: 1,
2, 4 or 8 tokens in a row) occur as often as in every other; the grams that occur exactly once an iteration tick like
clocks: as often as each other, evenly, and in turns. So: count grams, keep those that come evenly, group them by their
spacing, and ask of each group whether it cuts the sequence into alike pieces. Of nested loops the outermost is taken,
unless it is only so many alike rounds of the inner one.

Iterations may differ: a warm-up with more or other launches, launches that come or go, inner loops of varying length.
What cannot be shown to repeat is not called an iteration: a wrong one is worse than none. O(n log n).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import sorted_distinct
from boundby.structure.loop_clocks import (
    LEAST_IN_TURN,
    LEAST_ITERATIONS,
    LENGTH_FACTOR,
    Clocks,
    Grams,
    Ints,
    cut_iterations,
    fill,
    find_clocks,
    telling,
    ticks_in_turn,
)

LEAST_LAUNCHES = 16  # in all iterations together: fewer may look alike by chance
# Iterations are alike if they hold this part of what most of them hold, and if this part of them is what most hold.
ALIKE = 0.7
ALIKE_EACH = 0.5  # asked of each iteration, if 0.7 is asked of the median
MOST = 0.8  # so many of the iterations must be so
LEAST_COVERAGE = 0.35  # of the launches looked at: less is an episode, not what the program does
# An outer loop that adds at most so much to alike rounds of an inner one is an artefact (a log line every 30 steps).
ADDED_LAUNCHES = 2
ADDED_FRACTION = 0.03  # of an inner iteration
WHOLE = 0.8  # of an iteration: one
LONGER_PAUSE = 1.5  # times as long
_TELLING_SIZES = (1, 2, 4, 8, 16, 32)
_CHANCE = 32  # grams of random tokens must be so much more numerous than places in an iteration
_MOST_REFERENCES = 8  # clocks that are tried as the one that all others are set against


@dataclass(frozen=True)
class Loop:
    """Iteration ``i`` is launches ``begin[i]`` up to (not with) ``end[i]``.

    Each ends where the next begins unless other work lies between them.
    """

    begin: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def launches(self) -> int:
        """Launches inside iterations."""
        return int((self.end - self.begin).sum())


class _Level(NamedTuple):
    loop: Loop
    spacing: float
    support: int
    typical: npt.NDArray[np.bool_]  # over launches: stands in a pair of launches that most iterations hold


def find_loop(tokens: Ints, start_ns: Ints, syncs_before: Ints, *, from_start: bool = True) -> Loop | None:
    """The outermost loop that most of the launches lie in, or None.

    ``tokens``, ``start_ns``: of each launch, in order of time. ``syncs_before``: how many blocking syncs came before.
    ``from_start``: nothing is known of what came before, so that the first launch may be in the midst of an iteration.
    """
    if len(tokens) < LEAST_LAUNCHES:
        return None
    grams = Grams(tokens)
    found = [
        level for clocks in find_clocks(grams) if (level := _judge(clocks, grams, start_ns, from_start)) is not None
    ]
    best: _Level | None = None
    while found:
        outer = max(level.spacing for level in found)
        same = [level for level in found if level.spacing > 0.8 * outer]  # one loop, told by other clocks
        found = [level for level in found if level.spacing <= 0.8 * outer]
        well = max(level.support for level in same) / 2
        level = max(same, key=lambda item: (item.support >= well, item.loop.launches, item.support))
        if best is None or _adds_nothing(best, level):
            best = level
    if best is None or not _is_worth_naming(best.loop, syncs_before):
        return None
    return best.loop


def _judge(clocks: Clocks, grams: Grams, start_ns: Ints, from_start: bool) -> _Level | None:
    """The level that a group of clocks stands for, if its pieces are alike; None if not."""
    clock = np.repeat(np.arange(len(clocks.count)), clocks.count)
    long = telling(np.ones(len(clocks.count), bool), clocks)
    tries = long[np.unique(np.linspace(0, len(long) - 1, _MOST_REFERENCES).astype(np.int64))].tolist()
    by_share = []
    for reference in tries:
        ticks = fill(clocks.places(reference), clocks, clock)
        in_turn = ticks_in_turn(ticks, clocks, clock)
        by_share.append((float(in_turn.mean()), -reference, ticks, in_turn))
    share, _, ticks, in_turn = max(by_share, key=lambda item: item[:2])
    if share < LEAST_IN_TURN:
        return None
    begin, stop = cut_iterations(ticks, in_turn, clocks, clock, grams.count)
    if len(begin) < LEAST_ITERATIONS:
        return None
    mine = in_turn[clock] & (clocks.place < stop)
    reach = clocks.place[mine] + clocks.size[clock[mine]]
    block = np.searchsorted(begin, clocks.place[mine], side="right") - 1
    near = (block >= 0) & (clocks.place[mine] - begin[np.maximum(block, 0)] <= LENGTH_FACTOR * clocks.spacing)
    end = begin + 1
    np.maximum.at(end, block[near], reach[near])
    following = np.append(begin[1:], stop)
    end = np.minimum(end, following)
    joined = following - begin <= LENGTH_FACTOR * clocks.spacing
    joined[-1] = False
    loop = _widen(begin, end, joined, grams)
    if from_start and loop.begin[0] == 0 and _is_cut_off(loop):
        loop = _turn_to_end(loop, start_ns)
    else:
        loop = _turn(loop, grams, start_ns)
    return _check(loop, clocks, grams, int(clocks.support * share))


def _widen(begin: Ints, end: Ints, joined: npt.NDArray[np.bool_], grams: Grams) -> Loop:
    """Take in what lies between the last clock of an iteration and the first of the next.

    It belongs to the end of the one or to the begin of the next: to the begin as far as it stands before the first
    iteration too, and what follows the last clock of all as far as it is alike.
    """
    ids, count = grams.of(1), grams.count
    between = begin[1:][joined[:-1]] - end[:-1][joined[:-1]]
    seam = int(np.median(between)) if len(between) else 0
    # A last iteration that is short says that the begin lies further back, or that its end has no clocks.
    short = int(np.median(np.diff(begin))) - int(end[-1] - begin[-1])
    room = max(seam, short)
    before, after = min(room, int(begin[0])), min(room, count - int(end[-1]))
    back = np.arange(1, before + 1)
    ahead = np.arange(after)
    earlier = _agree(ids, begin[1:][:, None] - back, begin[0] - back)
    like_last = begin[:-1] + (end[-1] - begin[-1]) if short > seam else end[:-1]
    later = _agree(ids, np.minimum(like_last[:, None] + ahead, count - 1), end[-1] + ahead)
    begin = begin - earlier
    rest = max(room - earlier, 0)
    last = end[-1] + min(later, rest)
    if later - rest >= WHOLE * (short + int(end[-1] - begin[-1] - earlier)):  # where all clocks stand around the seams
        begin, end = np.append(begin, last), np.append(end, end[-1] + later)
        joined = np.append(np.append(joined[:-1], True), False)
        last = int(end[-1])
    following = np.append(begin[1:], last)
    end = np.where(joined, following, np.minimum(end, following))
    end[-1] = last
    return Loop(begin, end)


def _agree(ids: Ints, usual: Ints, one: Ints) -> int:
    """How many tokens of ``one`` (places), from its first on, are what stands at most of the ``usual`` places.

    One may differ if more than as many again agree after it.
    """
    if usual.shape[1] == 0 or len(usual) == 0:
        return 0
    found = (ids[usual] == ids[one]).mean(axis=0) >= 0.5
    return int(np.argmax(np.append(0, np.cumsum(np.where(found, 1, -2)))))


def _turn(loop: Loop, grams: Grams, start_ns: Ints) -> Loop:
    """Where the loop's begin is open, since what came before or after it is alike, take the longest pause."""
    length = loop.end - loop.begin
    usual = int(np.median(length[:-1]))
    if (loop.end[:-1] != loop.begin[1:]).any():
        return loop
    ids = grams.of(1)
    spare = min(max(int(length[-1]) - usual, 0), usual // 2)
    reach = np.arange(1, min(usual // 2, int(loop.begin[0])) + 1)
    back = _agree(ids, loop.begin[1:][:, None] - reach, loop.begin[0] - reach)
    ahead = _agree(ids, loop.begin[1:][:, None] + np.arange(spare), loop.begin[0] + np.arange(spare))
    offsets = np.arange(-back, ahead + 1)
    at = loop.begin[1:][:, None] + offsets
    pause = np.median(start_ns[at] - start_ns[at - 1], axis=0)
    best = int(np.argmax(pause))
    if pause[best] < LONGER_PAUSE * pause[back]:
        return loop
    begin = loop.begin + offsets[best]
    return Loop(begin, np.append(begin[1:], loop.end[-1] + min(int(offsets[best]), 0)))


def _is_cut_off(loop: Loop) -> bool:
    """True if the last iteration lacks more than iterations differ by."""
    length = loop.end - loop.begin
    usual = float(np.median(length[:-1]))
    return bool(length[-1] < usual - max(ADDED_LAUNCHES, ADDED_FRACTION * usual))


def _turn_to_end(loop: Loop, start_ns: Ints) -> Loop:
    """Where launches begin in the midst of the loop, and end in the midst by that begin: the longer pause decides.

    A capture may start anywhere, and the program may have run to the end of its loop.
    """
    later = loop.begin + (loop.end[-1] - loop.begin[-1])
    inner = later[1:-1] if len(later) > 2 else later
    pause = np.median(start_ns[loop.begin[1:]] - start_ns[loop.begin[1:] - 1])
    if np.median(start_ns[inner] - start_ns[inner - 1]) < LONGER_PAUSE * pause:
        return loop
    return Loop(later[:-1], np.append(later[1:-1], loop.end[-1]))


def _check(loop: Loop, clocks: Clocks, grams: Grams, support: int) -> _Level | None:
    """A level if its iterations are alike, many enough, and cover most of the launches; odd first or last ones go."""
    if loop.launches < LEAST_COVERAGE * grams.count:
        return None
    size = _telling_size(loop, grams)
    held, made = _likeness(loop, grams, size)
    pair = 2 if np.median(loop.end - loop.begin) >= 2 else 1
    pairs_held, pairs_made = _likeness(loop, grams, pair)
    # At the edges a warm-up or a remainder may pass for an iteration: it must hold what the others hold.
    low = 0 if pairs_held[0] >= ALIKE_EACH else 1
    high = len(loop) if pairs_held[-1] >= ALIKE_EACH else len(loop) - 1
    loop = Loop(loop.begin[low:high], loop.end[low:high])
    held, made, pairs_held, pairs_made = (values[low:high] for values in (held, made, pairs_held, pairs_made))
    few = len(loop) < LEAST_ITERATIONS or loop.launches < LEAST_LAUNCHES
    if few or loop.launches < LEAST_COVERAGE * grams.count:
        return None
    alike = np.median(held) >= ALIKE_EACH and np.median(made) >= ALIKE_EACH
    alike &= np.median(pairs_held) >= ALIKE and np.median(pairs_made) >= ALIKE
    each = ((pairs_held >= ALIKE_EACH) & (pairs_made >= ALIKE_EACH)).mean() >= MOST
    if not (alike and each):
        return None
    return _Level(loop, clocks.spacing, support, _typical(loop, grams, 2))


def _telling_size(loop: Loop, grams: Grams) -> int:
    """Tokens in a row that alike iterations share and unlike ones do not.

    The less one launch tells of the next, the shorter: so long that random launches of this kind would make many more
    different runs than there are places in an iteration.
    """
    part = slice(int(loop.begin[0]), int(loop.end[-1]))
    choices = max(_entropy(grams.of(2)[part]) - _entropy(grams.of(1)[part]), 0.0)  # nats a launch, given the one before
    length = float(np.median(loop.end - loop.begin))
    feasible = [size for size in _TELLING_SIZES if 2 * size <= part.stop - part.start]
    return next((size for size in feasible if size * choices >= np.log(_CHANCE * length)), feasible[-1])


def _entropy(ids: Ints) -> float:
    """Of the distribution of these numbers, in nats."""
    share = np.bincount(ids) / max(len(ids), 1)
    share = share[share > 0]
    return float(-(share * np.log(share)).sum())


def _inside(loop: Loop, count: int) -> Ints:
    """The iteration of each launch; -1 outside."""
    owner = np.full(count, -1, np.int64)
    length = loop.end - loop.begin
    rows = np.repeat(loop.begin, length) + np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    owner[rows] = np.repeat(np.arange(len(loop)), length)
    return owner


def _likeness(loop: Loop, grams: Grams, size: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Of each iteration: which part of the usual grams it holds, and which part of its places begins a usual gram."""
    ids = grams.of(size)
    owner = _inside(loop, grams.count)[: len(ids)]
    inner = owner >= 0
    gram, iteration = ids[inner], owner[inner]
    pairs = sorted_distinct(gram * len(loop) + iteration)
    holders = np.bincount(pairs // len(loop), minlength=int(ids.max()) + 1)
    usual = holders > len(loop) / 2
    per = np.bincount(pairs % len(loop), weights=usual[pairs // len(loop)], minlength=len(loop))
    held = per / max(int(usual.sum()), 1)
    made = np.bincount(iteration, weights=usual[gram].astype(float), minlength=len(loop))
    return held, made / np.maximum(np.bincount(iteration, minlength=len(loop)), 1)


def _typical(loop: Loop, grams: Grams, size: int) -> npt.NDArray[np.bool_]:
    """Over launches: begins a gram that most iterations hold."""
    ids = grams.of(size)
    owner = _inside(loop, grams.count)[: len(ids)]
    inner = owner >= 0
    pairs = sorted_distinct(ids[inner] * len(loop) + owner[inner])
    usual = np.bincount(pairs // len(loop), minlength=int(ids.max()) + 1) > len(loop) / 2
    return np.append(usual[ids], np.ones(grams.count - len(ids), bool))


def _adds_nothing(outer: _Level, inner: _Level) -> bool:
    """True if the outer loop's iterations are rounds of the inner one and hardly anything else.

    What an outer loop adds stands around its begin, more of it than is odd in any two inner iterations.
    """
    odd = np.append(0, np.cumsum(~inner.typical))
    reach = int(inner.spacing)
    low = np.maximum(outer.loop.begin[1:] - reach, 0)
    high = np.minimum(outer.loop.begin[1:] + reach, len(inner.typical))
    around = float(np.median(odd[high] - odd[low]))
    usual = 2 * float(np.median(odd[inner.loop.end] - odd[inner.loop.begin]))
    return around - usual <= max(ADDED_LAUNCHES, ADDED_FRACTION * inner.spacing, usual)


def _is_worth_naming(loop: Loop, syncs_before: Ints) -> bool:
    """One launch over and over is a loop only if the host waits in every round."""
    if np.median(loop.end - loop.begin) >= 2:
        return True
    return bool((np.diff(syncs_before[loop.begin]) > 0).mean() >= 0.9)
