"""Repeating iterations in a sequence of launches.

Launches are tokens (kernel name, copy direction). In every iteration of a loop most short runs of tokens (*grams*: 1,
2, 4 or 8 tokens in a row) occur as often as in every other; the grams that occur exactly once an iteration tick like
*clocks*: as often as each other, evenly, and in turns. So: count grams, keep those that come evenly, group them by
their spacing, and ask of each group whether it cuts the sequence into alike pieces. Of nested loops the outermost is
taken, unless it is only so many alike rounds of the inner one.

Iterations may differ: a warm-up with more or other launches, launches that come or go, inner loops of varying length.
What cannot be shown to repeat is not called an iteration: a wrong one is worse than none. O(n log n).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model.arrays import median, places, ranked, sorted_distinct, unique
from boundby.model.late import once
from boundby.model.scale import (
    HABIT,
    HALF,
    HALF_MORE,
    HARDLY,
    MANY,
    MARGIN,
    MOST,
    NEARLY_ALL,
    NOTABLE,
    PLENTY,
    QUARTER,
    SEVERAL,
    SLIGHT,
)

Ints = npt.NDArray[np.int64]

LEAST_ITERATIONS = HABIT
# A clock's distances lie within this factor of their median, but for so many of them (checkpoints, evaluations).
LENGTH_FACTOR = 1.75
OUTLIERS = 0.15
LEAST_IN_TURN = QUARTER  # of the clocks of a loop
_TELLING_SIZES = (1, 2, 4, 8, 16, 32)
GRAM_SIZES = _TELLING_SIZES[:4]  # launches in a row that are a clock of a loop
_MOST_LEVELS = MANY  # candidates looked at; the true one stands out by its many clocks
_LEAST_SUPPORT = HARDLY  # clocks times occurrences, of the most that any level has: less comes about by chance
_MOST_CLOCKS = PLENTY  # of one loop that are looked at; more say the same again
_SPACING_STEP = 1 + NOTABLE  # clocks of one loop lie within a step or two of each other
_EDGE_FACTOR = 2.5  # a first iteration may be longer by so much: it warms up
_MOST_LEADERS = SEVERAL  # clocks at the begin of an iteration that stand in for each other
LEAST_LAUNCHES = MANY  # in all iterations together: fewer may look alike by chance
# Iterations are alike if they hold this part of what most of them hold, and if this part of them is what most hold.
ALIKE = 0.7
ALIKE_EACH = HALF  # asked of each iteration, if 0.7 is asked of the median
LEAST_COVERAGE = QUARTER  # of the launches looked at: less is an episode, not what the program does
# An outer loop that adds at most so much to alike rounds of an inner one is an artefact (a log line every 30 steps).
ADDED_LAUNCHES = 2
ADDED_FRACTION = SLIGHT  # of an inner iteration
WHOLE = MOST  # of an iteration: one
LONGER_PAUSE = HALF_MORE  # times as long
_CHANCE = MANY  # grams of random tokens must be so much more numerous than places in an iteration
_MOST_REFERENCES = SEVERAL  # clocks that are tried as the one that all others are set against

# Clocks whose spacings lie within this factor tell of one loop: an outer one holds two inner iterations or more.
SAME_LOOP = MOST
# Of those the one that holds most launches is taken, among such with this part of the best support or more.
WELL_SUPPORTED = HALF
# A first tick that stands before the loop: less than this part of the other clocks are heard in its iteration, and less
# than this part of them where they should be, give or take a launch or two (a fiftieth of the iteration).
HEARD, RIGHT_PLACE = HALF, QUARTER
# A place belongs to an iteration if this part of the iterations hold the same token there; one that differs is passed
# over if more than as many as this agree after it.
AGREE = HALF
# One launch over and over is a loop only if the host waits in nearly every round.
WAITS_EACH_ROUND = NEARLY_ALL


class Grams:
    """Numbers for runs of 1, 2, 4, ... tokens, equal for equal runs; made when asked for."""

    def __init__(self, tokens: Ints) -> None:
        self.count, self._tokens = len(tokens), tokens

    def of(self, size: int) -> Ints:
        """The gram that begins at each place; the last ``size - 1`` places have none."""
        return self._numbered(size)[0]

    def order(self, size: int) -> npt.NDArray[np.intp]:
        """Places ordered by the gram that begins there, equal ones in order of place."""
        return self._numbered(size)[1]

    @once
    def _numbered(self, size: int) -> tuple[Ints, npt.NDArray[np.intp]]:
        key = self._tokens
        if size > 1:
            half = self.of(size // 2)
            key = half[: len(half) - size // 2] * (int(half.max(initial=0)) + 1) + half[size // 2 :]
        order = np.argsort(key, kind="stable")
        ranked = key[order]
        ids = np.empty(len(key), np.int64)
        ids[order] = np.cumsum(np.append(False, ranked[1:] != ranked[:-1])[: len(key)])
        return ids, order


class Clocks(Struct, frozen=True):
    """Grams that come evenly, about as far apart and about as often as each other, ordered by their first place."""

    place: Ints  # places of the first clock, ascending, then of the second, ...
    count: Ints  # places of each clock
    size: Ints  # tokens of each clock
    spacing: float
    support: int  # places of all clocks of the kind, those left out here too

    def places(self, clock: int) -> Ints:
        first = int(self.count[:clock].sum())
        return self.place[first : first + int(self.count[clock])]


def find_clocks(grams: Grams) -> list[Clocks]:
    """Groups of alike clocks, those with most support first."""
    parts = []
    for size in GRAM_SIZES:
        if grams.count < 2 * size:
            break
        ids, order = grams.of(size), grams.order(size)
        count = np.bincount(ids)
        first = np.cumsum(count) - count
        spacing = _even_spacing(ids[order], order, count)
        rows = np.flatnonzero(
            (spacing > 0) & (size <= np.maximum(spacing / 2, 1))
        )  # longer ones tell of two iterations
        parts.append((count[rows], spacing[rows], np.full(len(rows), size), first[rows]))
    count, spacing, size_of, first = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    groups: list[Clocks] = []
    step = np.round(np.log(np.maximum(spacing, 1)) / np.log(_SPACING_STEP)).astype(np.int64)
    support = np.bincount(step, weights=count) if len(step) else np.empty(0)
    for peak in np.argsort(-support, kind="stable")[:_MOST_LEVELS].tolist():
        if support[peak] < _LEAST_SUPPORT * support.max() or support[peak] == 0:
            break
        near = np.flatnonzero(np.abs(step - peak) <= 1)
        by_count = near[np.argsort(count[near], kind="stable")]
        usual = count[by_count[np.searchsorted(np.cumsum(count[by_count]), count[near].sum() / 2)]]
        near = near[np.abs(count[near] - usual) <= np.maximum(OUTLIERS * usual, 1)]
        groups.append(_group(grams, near, count, size_of, first, float(median(spacing[near]))))
    return groups


def _group(grams: Grams, rows: npt.NDArray[np.intp], count: Ints, size: Ints, first: Ints, spacing: float) -> Clocks:
    """The clocks of these rows; of very many the earliest, and some of the rest."""
    begin = np.empty(len(rows), np.int64)
    for each in GRAM_SIZES:
        is_own = size[rows] == each
        if is_own.any():
            begin[is_own] = grams.order(each)[first[rows[is_own]]]
    order = np.lexsort((size[rows], begin))
    support = int(count[rows].sum())
    if len(rows) > _MOST_CLOCKS:
        some = np.linspace(_MOST_CLOCKS // 4, len(rows) - 1, _MOST_CLOCKS * 3 // 4).astype(np.int64)
        order = order[unique(np.append(np.arange(_MOST_CLOCKS // 4), some))]
    rows = rows[order]
    every = [grams.order(int(size[row]))[first[row] : first[row] + count[row]] for row in rows.tolist()]
    return Clocks(np.concatenate(every).astype(np.int64), count[rows], size[rows], spacing, support)


def _even_spacing(ids: Ints, place: npt.NDArray[np.intp], count: Ints) -> npt.NDArray[np.float64]:
    """The median distance between occurrences of each gram; 0 where they are too few or come unevenly."""
    spacing = np.zeros(len(count))
    enough = count >= LEAST_ITERATIONS
    if not enough.any():
        return spacing
    inner = (ids[1:] == ids[:-1]) & enough[ids[1:]]
    gram, distance = ids[1:][inner], np.diff(place)[inner].astype(np.int64)
    by_size = np.sort((gram << 32) | distance) & 0xFFFFFFFF
    distances = np.where(enough, count - 1, 0)
    begin = np.cumsum(distances) - distances
    rows = np.flatnonzero(enough)
    middle = by_size[begin[rows] + distances[rows] // 2].astype(float)
    middle_of = np.zeros(len(count))
    middle_of[rows] = middle
    far = (distance > LENGTH_FACTOR * middle_of[gram]) | (distance * LENGTH_FACTOR < middle_of[gram])
    outliers = np.bincount(gram, weights=far, minlength=len(count))
    # The first distance may always be off: a warm-up.
    even = enough & (outliers <= np.maximum(OUTLIERS * distances, np.where(distances >= LEAST_ITERATIONS, 1, 0)))
    return np.where(even, middle_of, 0.0)


def fill(begin: Ints, clocks: Clocks, clock: Ints) -> Ints:
    """A clock's places, and where it missed an iteration, where other clocks say that it should have been."""
    for _ in range(2):
        gap = np.diff(begin)
        if not (gap > LENGTH_FACTOR * clocks.spacing).any():
            break
        block = np.searchsorted(begin, clocks.place, side="right") - 1
        offset = clocks.place - begin[np.maximum(block, 0)]
        usual = _medians(np.where(block >= 0, offset, np.iinfo(np.int64).max), clock, clocks.count)
        implied = clocks.place - usual[clock]
        owner = np.searchsorted(begin, implied, side="right") - 1
        inside = (owner >= 0) & (owner < len(gap))
        owner = np.clip(owner, 0, len(gap) - 1)
        wide = inside & (gap[owner] > LENGTH_FACTOR * clocks.spacing)
        wide &= (implied - begin[owner] > clocks.spacing / LENGTH_FACTOR) & (
            begin[owner + 1] - implied > clocks.spacing / LENGTH_FACTOR
        )
        wide &= implied - begin[owner] <= LENGTH_FACTOR * clocks.spacing
        # Two iterations: other clocks tick twice. One long iteration: once.
        wide[1:] &= (clock[1:] == clock[:-1]) & (block[1:] == block[:-1])
        votes = np.bincount(owner[wide], minlength=len(gap))
        wide &= votes[owner] >= LEAST_IN_TURN * len(clocks.count)
        if not wide.any():
            break
        middle = _medians(implied[wide], *_ranked(owner[wide]))
        begin = unique(np.concatenate((begin, middle)))
    return begin


def _ranked(group: Ints) -> tuple[Ints, Ints]:
    """Dense numbers for groups, and the size of each."""
    _, number = ranked(group)
    return number.astype(np.int64), np.bincount(number).astype(np.int64)


def _medians(values: Ints, group: Ints, size: Ints) -> Ints:
    """The (lower) median of each group's values."""
    order = np.lexsort((values, group))
    first = np.cumsum(size) - size
    middle: Ints = values[order][first + (size - 1) // 2]
    return middle


def ticks_in_turn(begin: Ints, clocks: Clocks, clock: Ints) -> npt.NDArray[np.bool_]:
    """Which clocks tick once between two of these places, but for some."""
    block = places(begin, clocks.place, side="right") - 1
    is_inside = (block >= 0) & (block < len(begin) - 1)
    key = clock[is_inside] * (len(begin) - 1) + block[is_inside]
    ticks = np.bincount(key, minlength=len(clocks.count) * (len(begin) - 1)).reshape(len(clocks.count), len(begin) - 1)
    once: npt.NDArray[np.bool_] = (ticks != 1).sum(axis=1) <= np.maximum(OUTLIERS * (len(begin) - 1), 1)
    return once


def telling(of: npt.NDArray[np.bool_], clocks: Clocks) -> npt.NDArray[np.intp]:
    """The long ones of these clocks if there are enough of them: short ones come up by chance."""
    for size in sorted(set(clocks.size.tolist()), reverse=True):
        rows = np.flatnonzero(of & (clocks.size >= size))
        if len(rows) >= LEAST_IN_TURN * of.sum():
            return rows
    return np.flatnonzero(of)


def cut_iterations(
    ticks: Ints, in_turn: npt.NDArray[np.bool_], clocks: Clocks, clock: Ints, count: int
) -> tuple[Ints, int]:
    """Where iterations begin, from the ticks of one clock in them; and where the last of them ends at the latest.

    The clocks that tick before this one's first tick belong to the begin of an iteration, the others to the end.
    """
    far = np.iinfo(np.int64).max
    block = np.searchsorted(ticks, clocks.place, side="right") - 1
    offset = clocks.place - ticks[np.maximum(block, 0)]
    inner = (block > 0) & (block < len(ticks) - 1)
    usual = _medians(np.where(inner, offset, far), clock, clocks.count)
    is_telling = np.zeros(len(clocks.count), bool)
    is_telling[telling(in_turn & (usual < far), clocks)] = True
    # A first tick in what came before the loop: many other clocks are silent after it, and none is where it should be.
    first = (block == 0) & is_telling[clock]
    heard = unique(clock[first]).size / max(int(is_telling.sum()), 1)
    jitter = max(ADDED_LAUNCHES, clocks.spacing * MARGIN)
    right = float((np.abs(offset - usual[clock])[first] <= jitter).mean()) if first.any() else 0.0
    if heard < HEARD and right < RIGHT_PLACE and len(ticks) > LEAST_ITERATIONS:
        return cut_iterations(ticks[1:], in_turn, clocks, clock, count)
    early = np.zeros(len(clocks.count), bool)
    early[clock[(block < 0) & (ticks[0] - clocks.place < _EDGE_FACTOR * clocks.spacing)]] = True
    rows = np.flatnonzero(is_telling)
    rows = rows[np.argsort(usual[rows], kind="stable")]
    is_early = early[rows]
    wrong = np.append(0, np.cumsum(is_early)) + np.append(np.cumsum(~is_early[::-1])[::-1], 0)
    position = int(len(wrong) - 1 - np.argmin(wrong[::-1]))
    leading = rows[position : position + _MOST_LEADERS]
    if len(leading) == 0:
        return ticks, min(count, int(ticks[-1] + LENGTH_FACTOR * clocks.spacing))
    begin = np.full(len(ticks) + 1, -1, np.int64)
    for row in leading[::-1].tolist():  # the foremost last: it overrides
        at = clock == row
        where = clocks.place[at] - (usual[row] - usual[leading[0]])
        number = block[at] + 1
        if (number == 0).any():  # of several before the first tick, the last
            number = np.where((number == 0) & (np.arange(len(number)) < int((number == 0).sum()) - 1), -1, number)
        good = (number >= 0) & ((number > 0) | (ticks[0] - where < _EDGE_FACTOR * clocks.spacing))
        begin[number[good]] = where[good]
    missing = begin < 0
    previous = np.append(ticks[0] - int(clocks.spacing), ticks)
    begin = np.where(missing, previous + usual[leading[0]], begin)
    latest = min(count, int(ticks[-1] + LENGTH_FACTOR * clocks.spacing))
    whole = position <= OUTLIERS * len(rows)  # nearly all clocks tick after this one's last tick: an iteration too
    stop = latest if whole or missing[-1] else min(int(begin[-1]), count)
    begin = unique(np.clip(begin if whole else begin[:-1], 0, count - 1))
    return begin, max(stop, int(begin[-1]) + 1)


class DetectedLoop(Struct, frozen=True):
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


class _Level(Struct, frozen=True):
    loop: DetectedLoop
    spacing: float
    support: int
    typical: npt.NDArray[np.bool_]  # over launches: stands in a pair of launches that most iterations hold


def find_loop(tokens: Ints, start_ns: Ints, syncs_before: Ints, *, from_start: bool = True) -> DetectedLoop | None:
    """The outermost loop that most of the launches lie in, or None.

    ``tokens``, ``start_ns``: of each launch, in order of time. ``syncs_before``: how many blocking syncs came before.
    ``from_start``: nothing is known of what came before, so that the first launch may be in the middle of an iteration.
    """
    if len(tokens) < LEAST_LAUNCHES:
        return None
    grams = Grams(tokens)
    levels = [
        level for clocks in find_clocks(grams) if (level := _judge(clocks, grams, start_ns, from_start)) is not None
    ]
    best: _Level | None = None
    while levels:
        outer = max(level.spacing for level in levels)
        same = [level for level in levels if level.spacing > SAME_LOOP * outer]  # one loop, told by other clocks
        levels = [level for level in levels if level.spacing <= SAME_LOOP * outer]
        well = max(level.support for level in same) * WELL_SUPPORTED
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
    tries = long[unique(np.linspace(0, len(long) - 1, _MOST_REFERENCES).astype(np.int64))].tolist()
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
    is_own = in_turn[clock] & (clocks.place < stop)
    reach = clocks.place[is_own] + clocks.size[clock[is_own]]
    block = np.searchsorted(begin, clocks.place[is_own], side="right") - 1
    near = (block >= 0) & (clocks.place[is_own] - begin[np.maximum(block, 0)] <= LENGTH_FACTOR * clocks.spacing)
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


def _widen(begin: Ints, end: Ints, joined: npt.NDArray[np.bool_], grams: Grams) -> DetectedLoop:
    """Take in what lies between the last clock of an iteration and the first of the next.

    It belongs to the end of the one or to the begin of the next: to the begin as far as it stands before the first
    iteration too, and what follows the last clock of all as far as it is alike.
    """
    ids, count = grams.of(1), grams.count
    between = begin[1:][joined[:-1]] - end[:-1][joined[:-1]]
    seam = int(median(between)) if len(between) else 0
    # A last iteration that is short says that the begin lies further back, or that its end has no clocks.
    short = int(median(np.diff(begin))) - int(end[-1] - begin[-1])
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
    return DetectedLoop(begin, end)


def _agree(ids: Ints, usual: Ints, one: Ints) -> int:
    """How many tokens of ``one`` (places), from its first on, are what stands at most of the ``usual`` places.

    One may differ if more than as many again agree after it.
    """
    if usual.shape[1] == 0 or len(usual) == 0:
        return 0
    agrees = (ids[usual] == ids[one]).mean(axis=0) >= AGREE
    return int(np.argmax(np.append(0, np.cumsum(np.where(agrees, 1, -2)))))


def _turn(loop: DetectedLoop, grams: Grams, start_ns: Ints) -> DetectedLoop:
    """Where the loop's begin is open, since what came before or after it is alike, take the longest pause."""
    length = loop.end - loop.begin
    usual = int(median(length[:-1]))
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
    return DetectedLoop(begin, np.append(begin[1:], loop.end[-1] + min(int(offsets[best]), 0)))


def _is_cut_off(loop: DetectedLoop) -> bool:
    """True if the last iteration lacks more than iterations differ by."""
    length = loop.end - loop.begin
    usual = float(median(length[:-1]))
    return bool(length[-1] < usual - max(ADDED_LAUNCHES, ADDED_FRACTION * usual))


def _turn_to_end(loop: DetectedLoop, start_ns: Ints) -> DetectedLoop:
    """Where launches begin in the middle of the loop, and end in the midst by that begin: the longer pause decides.

    A capture may start anywhere, and the program may have run to the end of its loop.
    """
    later = loop.begin + (loop.end[-1] - loop.begin[-1])
    inner = later[1:-1] if len(later) > 2 else later
    pause = median(start_ns[loop.begin[1:]] - start_ns[loop.begin[1:] - 1])
    if median(start_ns[inner] - start_ns[inner - 1]) < LONGER_PAUSE * pause:
        return loop
    return DetectedLoop(later[:-1], np.append(later[1:-1], loop.end[-1]))


def _check(loop: DetectedLoop, clocks: Clocks, grams: Grams, support: int) -> _Level | None:
    """A level if its iterations are alike, many enough, and cover most of the launches; odd first or last ones go."""
    if loop.launches < LEAST_COVERAGE * grams.count:
        return None
    size = _telling_size(loop, grams)
    held, made = _likeness(loop, grams, size)
    pair = 2 if median(loop.end - loop.begin) >= 2 else 1
    pairs_held, pairs_made = _likeness(loop, grams, pair)
    # At the edges a warm-up or a remainder may pass for an iteration: it must hold what the others hold.
    low = 0 if pairs_held[0] >= ALIKE_EACH else 1
    high = len(loop) if pairs_held[-1] >= ALIKE_EACH else len(loop) - 1
    loop = DetectedLoop(loop.begin[low:high], loop.end[low:high])
    held, made, pairs_held, pairs_made = (values[low:high] for values in (held, made, pairs_held, pairs_made))
    few = len(loop) < LEAST_ITERATIONS or loop.launches < LEAST_LAUNCHES
    if few or loop.launches < LEAST_COVERAGE * grams.count:
        return None
    each = ((pairs_held >= ALIKE_EACH) & (pairs_made >= ALIKE_EACH)).mean() >= MOST
    is_alike = min(median(held), median(made)) >= ALIKE_EACH and min(median(pairs_held), median(pairs_made)) >= ALIKE
    if not (is_alike and each):
        return None
    return _Level(loop, clocks.spacing, support, _typical(loop, grams, 2))


def _telling_size(loop: DetectedLoop, grams: Grams) -> int:
    """Tokens in a row that alike iterations share and unlike ones do not.

    The less one launch tells of the next, the shorter: so long that random launches of this kind would make many more
    different runs than there are places in an iteration.
    """
    part = slice(int(loop.begin[0]), int(loop.end[-1]))
    choices = max(_entropy(grams.of(2)[part]) - _entropy(grams.of(1)[part]), 0.0)  # nats a launch, given the one before
    length = float(median(loop.end - loop.begin))
    feasible = [size for size in _TELLING_SIZES if 2 * size <= part.stop - part.start]
    return next((size for size in feasible if size * choices >= np.log(_CHANCE * length)), feasible[-1])


def _entropy(ids: Ints) -> float:
    """Of the distribution of these numbers, in nats."""
    share = np.bincount(ids) / max(len(ids), 1)
    share = share[share > 0]
    return float(-(share * np.log(share)).sum())


def _inside(loop: DetectedLoop, count: int) -> Ints:
    """The iteration of each launch; -1 outside."""
    owner = np.full(count, -1, np.int64)
    length = loop.end - loop.begin
    rows = np.repeat(loop.begin, length) + np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    owner[rows] = np.repeat(np.arange(len(loop)), length)
    return owner


def _likeness(loop: DetectedLoop, grams: Grams, size: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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


def _typical(loop: DetectedLoop, grams: Grams, size: int) -> npt.NDArray[np.bool_]:
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
    around = float(median(odd[high] - odd[low]))
    usual = 2 * float(median(odd[inner.loop.end] - odd[inner.loop.begin]))
    return around - usual <= max(ADDED_LAUNCHES, ADDED_FRACTION * inner.spacing, usual)


def _is_worth_naming(loop: DetectedLoop, syncs_before: Ints) -> bool:
    """One launch over and over is a loop only if the host waits in every round."""
    if median(loop.end - loop.begin) >= 2:
        return True
    return bool((np.diff(syncs_before[loop.begin]) > 0).mean() >= WAITS_EACH_ROUND)
