"""The job as it would be if its ranks were even: every stage does as much, every stretch between two collectives takes
what those like it take, and every transfer what is usual for it. The work itself stays the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from boundby.jobs.chain import Chain
from boundby.jobs.meetings import Matched
from boundby.model.arrays import BoolArray, Int64Array, factorize, pick
from boundby.native.chain import NONE

Float = npt.NDArray[np.float64]
_ALONE = -1


class Even:
    """What is alike in a job. ``stages``: ranks that do the same; ``step_of_event``: the job's step of each event."""

    def __init__(
        self, matched: Matched, chain: Chain, stages: Sequence[tuple[int, ...]], step_of_event: Int64Array
    ) -> None:
        self.chain, self.stages = chain, stages
        role = _roles(matched, stages)
        self.transfer_like = factorize(role, matched.bytes)[1]
        course = chain.course
        rank = course.rank.astype(np.int64)
        self.slot = np.arange(len(rank)) + rank
        # Steps of a rank stand together, since its events are in order of time.
        self.turn = np.cumsum(np.append(False, (np.diff(rank) != 0) | (np.diff(step_of_event) != 0))[: len(rank)])
        self.is_first = np.append(True, np.diff(rank) != 0)[: len(rank)]
        stage_of = np.zeros(course.ranks, np.int64)
        for place, members in enumerate(stages):
            stage_of[list(members)] = place
        of_event = np.append(role, _ALONE)[np.where(course.instance == NONE, len(role), course.instance)]
        nth = _nth(self.turn, of_event, course.is_join)
        # A wait is for the collective of that number, whether or not there were waits for those before it.
        part = rank * (len(role) + 1) + course.instance
        arrivals = np.flatnonzero(~course.is_join & (course.instance != NONE))
        arrivals = arrivals[np.argsort(part[arrivals], kind="stable")]
        at = np.searchsorted(part[arrivals], part)
        arrival = pick(arrivals, np.where(at < len(arrivals), at, NONE), 0)
        is_known = (course.instance != NONE) & (part[arrival] == part)
        nth = np.where(is_known, nth[arrival], nth)
        later = np.where(is_known, self.turn - self.turn[arrival], 0)
        self.is_before = step_of_event < 0  # the first step: it stays as it is
        self.alike = factorize(self.is_before, stage_of[rank], of_event, course.is_join, nth, later)[1]
        turns = np.bincount(
            stage_of[rank[np.append(True, np.diff(self.turn) != 0)[: len(rank)]]], minlength=len(stages)
        )
        self.is_usual = is_known & (2 * np.bincount(self.alike)[self.alike] > turns[stage_of[rank]])

    def stretches(self, table: Float) -> Float:
        """Own time per slot, shape (slots,): each event comes after as much own work of its step as those like it do on
        average. ``table``: the factor of each cell. What comes before a rank's first collective, and after its last,
        stays as it is."""
        own = self.chain.own(table)
        before = np.where(self.is_first, 0.0, own[self.slot])
        first = np.flatnonzero(np.append(True, np.diff(self.turn) != 0)[: len(self.turn)])
        passed = np.cumsum(before)
        done = passed - np.append(0.0, passed)[first][self.turn]
        usual = (np.bincount(self.alike, done) / np.maximum(np.bincount(self.alike), 1))[self.alike]
        usual = np.where(self.is_usual, usual, 0.0)
        apart = self.turn * (float(usual.max(initial=0.0)) + 1)  # the next step's begin after all of this one's
        usual = np.maximum.accumulate(usual + apart) - apart
        stretch = np.diff(usual, prepend=0.0)
        stretch[first] = usual[first]
        own[self.slot] = np.where(self.is_first | self.is_before, own[self.slot], stretch)
        return own

    def transfers(self) -> Float:
        """Per collective: the median of those like it."""
        plain = self.chain.transfer_ns
        order = np.lexsort((plain, self.transfer_like))
        count = np.bincount(self.transfer_like)
        first = np.cumsum(count) - count
        middle = (plain[order[first + (count - 1) // 2]] + plain[order[first + count // 2]]) / 2
        usual: Float = middle[self.transfer_like]
        return usual

    def over_stages(self, time: Float, movable: BoolArray) -> Float:
        """Factors, of the shape of ``time`` (ranks, steps, keys), by which every stage does the mean of all in what is
        ``movable`` (keys)."""
        factor = np.ones_like(time)
        done = np.array([time[list(members)][:, :, movable].sum() / len(members) for members in self.stages])
        for members, own in zip(self.stages, done.tolist(), strict=True):
            if own > 0:
                factor[list(members)] = np.where(movable, done.mean() / own, 1.0)
        return factor


def _roles(matched: Matched, stages: Sequence[tuple[int, ...]]) -> Int64Array:
    """Per collective a number: the same for those of one kind, among as many ranks, of the same stages."""
    stage_of = {rank: place for place, members in enumerate(stages) for rank in members}
    spans = [(len(group), tuple(sorted({stage_of[rank] for rank in group}))) for group in matched.groups]
    seen: dict[tuple[str, int, tuple[int, ...]], int] = {}
    roles = [
        seen.setdefault((kind, *spans[group]), len(seen))
        for kind, group in zip(matched.kind, matched.group.tolist(), strict=True)
    ]
    return np.array(roles, np.int64)


def _nth(*columns: npt.NDArray[np.generic]) -> Int64Array:
    """Per row how many like it come before."""
    alike = factorize(*columns)[1]
    order = np.argsort(alike, kind="stable")
    nth = np.empty(len(alike), np.int64)
    nth[order] = np.arange(len(alike)) - np.searchsorted(alike[order], alike[order])
    return nth


__all__ = ["Even"]
