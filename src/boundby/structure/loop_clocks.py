"""Clocks of a loop: short runs of launches that come evenly, once an iteration; and where iterations begin by them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

LEAST_ITERATIONS = 3
# A clock's distances lie within this factor of their median, but for so many of them (checkpoints, evaluations).
LENGTH_FACTOR = 1.75
OUTLIERS = 0.15
LEAST_IN_TURN = 0.25  # of the clocks of a loop
GRAM_SIZES = (1, 2, 4, 8)
_MOST_LEVELS = 16  # candidates looked at; the true one stands out by its many clocks
_LEAST_SUPPORT = 0.002  # clocks times occurrences, of the most that any level has: less comes about by chance
_SPACING_STEP = 1.1  # clocks of one loop lie within a step or two of each other
_MOST_CLOCKS = 400  # of one loop that are looked at; more say the same again
_EDGE_FACTOR = 2.5  # a first iteration may be longer by so much: it warms up
_MOST_LEADERS = 8  # clocks at the begin of an iteration that stand in for each other


class Grams:
    """Numbers for runs of 1, 2, 4, ... tokens, equal for equal runs; made when asked for."""

    def __init__(self, tokens: Ints) -> None:
        self.count = len(tokens)
        self._ids: dict[int, Ints] = {}
        self._order: dict[int, npt.NDArray[np.intp]] = {}
        self._number(1, tokens)

    def of(self, size: int) -> Ints:
        """The gram that begins at each place; the last ``size - 1`` places have none."""
        if size not in self._ids:
            half = self.of(size // 2)
            self._number(size, half[: len(half) - size // 2] * (int(half.max(initial=0)) + 1) + half[size // 2 :])
        return self._ids[size]

    def order(self, size: int) -> npt.NDArray[np.intp]:
        """Places ordered by the gram that begins there, equal ones in order of place."""
        self.of(size)
        return self._order[size]

    def _number(self, size: int, key: Ints) -> None:
        order = np.argsort(key, kind="stable")
        ranked = key[order]
        ids = np.empty(len(key), np.int64)
        ids[order] = np.cumsum(np.append(False, ranked[1:] != ranked[:-1])[: len(key)])
        self._ids[size], self._order[size] = ids, order


@dataclass(frozen=True)
class Clocks:
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
        groups.append(_group(grams, near, count, size_of, first, float(np.median(spacing[near]))))
    return groups


def _group(grams: Grams, rows: npt.NDArray[np.intp], count: Ints, size: Ints, first: Ints, spacing: float) -> Clocks:
    """The clocks of these rows; of very many the earliest, and some of the rest."""
    begin = np.empty(len(rows), np.int64)
    for each in GRAM_SIZES:
        mine = size[rows] == each
        if mine.any():
            begin[mine] = grams.order(each)[first[rows[mine]]]
    order = np.lexsort((size[rows], begin))
    support = int(count[rows].sum())
    if len(rows) > _MOST_CLOCKS:
        some = np.linspace(_MOST_CLOCKS // 4, len(rows) - 1, _MOST_CLOCKS * 3 // 4).astype(np.int64)
        order = order[np.unique(np.append(np.arange(_MOST_CLOCKS // 4), some))]
    rows = rows[order]
    places = [grams.order(int(size[row]))[first[row] : first[row] + count[row]] for row in rows.tolist()]
    return Clocks(np.concatenate(places).astype(np.int64), count[rows], size[rows], spacing, support)


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
    median = np.zeros(len(count))
    median[rows] = middle
    far = (distance > LENGTH_FACTOR * median[gram]) | (distance * LENGTH_FACTOR < median[gram])
    outliers = np.bincount(gram, weights=far, minlength=len(count))
    # The first distance may always be off: a warm-up.
    even = enough & (outliers <= np.maximum(OUTLIERS * distances, np.where(distances >= LEAST_ITERATIONS, 1, 0)))
    return np.where(even, median, 0.0)


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
        begin = np.unique(np.concatenate((begin, middle)))
    return begin


def _ranked(group: Ints) -> tuple[Ints, Ints]:
    """Dense numbers for groups, and the size of each."""
    _, number, size = np.unique(group, return_inverse=True, return_counts=True)
    return number.reshape(-1).astype(np.int64), size.astype(np.int64)


def _medians(values: Ints, group: Ints, size: Ints) -> Ints:
    """The (lower) median of each group's values."""
    order = np.lexsort((values, group))
    first = np.cumsum(size) - size
    found: Ints = values[order][first + (size - 1) // 2]
    return found


def ticks_in_turn(begin: Ints, clocks: Clocks, clock: Ints) -> npt.NDArray[np.bool_]:
    """Which clocks tick once between two of these places, but for some."""
    block = np.searchsorted(begin, clocks.place, side="right") - 1
    known = (block >= 0) & (block < len(begin) - 1)
    key = clock[known] * (len(begin) - 1) + block[known]
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
    known = np.zeros(len(clocks.count), bool)
    known[telling(in_turn & (usual < far), clocks)] = True
    # A first tick in what came before the loop: many other clocks are silent after it, and none is where it should be.
    first = (block == 0) & known[clock]
    heard = np.unique(clock[first]).size / max(int(known.sum()), 1)
    right = float((np.abs(offset - usual[clock])[first] <= max(2, clocks.spacing / 50)).mean()) if first.any() else 0.0
    if heard < 0.6 and right < 0.3 and len(ticks) > LEAST_ITERATIONS:
        return cut_iterations(ticks[1:], in_turn, clocks, clock, count)
    early = np.zeros(len(clocks.count), bool)
    early[clock[(block < 0) & (ticks[0] - clocks.place < _EDGE_FACTOR * clocks.spacing)]] = True
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(usual[rows], kind="stable")]
    is_early = early[rows]
    wrong = np.append(0, np.cumsum(is_early)) + np.append(np.cumsum(~is_early[::-1])[::-1], 0)
    place = int(len(wrong) - 1 - np.argmin(wrong[::-1]))
    leading = rows[place : place + _MOST_LEADERS]
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
    whole = place <= OUTLIERS * len(rows)  # nearly all clocks tick after this one's last tick: an iteration too
    stop = latest if whole or missing[-1] else min(int(begin[-1]), count)
    begin = np.unique(np.clip(begin if whole else begin[:-1], 0, count - 1))
    return begin, max(stop, int(begin[-1]) + 1)
