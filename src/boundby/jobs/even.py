"""The job as it would be if its ranks were even: every stage does as much, every stretch between two collectives takes
what those like it take, and every transfer what is usual for it. The work itself stays the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from boundby.jobs.chain import Chain
from boundby.jobs.meetings import Matched
from boundby.model.arrays import BoolArray, Int64Array, factorize
from boundby.native.chain import NONE

Float = npt.NDArray[np.float64]
_BEGIN, _END, _ALONE = -3, -2, -1


class Even:
    """What is alike in a job. ``stages``: ranks that do the same; ``step_of_event``: the job's step of each event."""

    def __init__(
        self, matched: Matched, chain: Chain, stages: Sequence[tuple[int, ...]], step_of_event: Int64Array
    ) -> None:
        self.chain, self.stages = chain, stages
        role = _roles(matched, stages)
        self.transfer_like = factorize(role, matched.bytes)[1]
        self.slot_like, self.is_first = _slots(chain, role, stages, step_of_event)

    def stretches(self, table: Float) -> Float:
        """Own time per slot, shape (slots,), each the mean of those like it; ``table``: the factor of each cell. What
        comes before a rank's first collective stays as it is."""
        own = self.chain.own(table)
        count = np.bincount(self.slot_like)
        mean: Float = (np.bincount(self.slot_like, own) / np.maximum(count, 1))[self.slot_like]
        return np.where(self.is_first, own, mean)

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


def _slots(
    chain: Chain, role: Int64Array, stages: Sequence[tuple[int, ...]], step_of_event: Int64Array
) -> tuple[Int64Array, BoolArray]:
    """Which slots are alike: of one stage, between the same two kinds of events, the same of these in a step. And which
    are a rank's first."""
    course = chain.course
    slots = len(course.work_at) - 1
    slot = np.arange(len(course.rank)) + course.rank
    step = np.full(slots, _END, np.int64)
    ends = np.full(slots, _END, np.int64)
    step[slot] = step_of_event
    known = np.append(role, _ALONE)[np.where(course.instance == NONE, len(role), course.instance)]
    ends[slot] = 2 * known + course.is_join
    begins = np.append(_BEGIN, ends[:-1])
    is_first = np.zeros(slots, bool)
    is_first[np.append(0, course.tail[:-1] + 1)] = True
    begins[is_first] = _BEGIN
    rank = np.searchsorted(course.tail, np.arange(slots))
    stage_of = np.zeros(course.ranks, np.int64)
    for place, members in enumerate(stages):
        stage_of[list(members)] = place
    alike = factorize(rank, step, begins, ends)[1]
    order = np.argsort(alike, kind="stable")
    nth = np.empty(slots, np.int64)
    nth[order] = np.arange(slots) - np.searchsorted(alike[order], alike[order])
    return factorize(stage_of[rank], begins, ends, nth)[1], is_first


__all__ = ["Even"]
