"""Ranks that do the same, and the job as it would be if its ranks were even: every stage does as much, every
stretch between two collectives takes what those like it take, and every transfer what is usual for it. The work
itself stays the same.

Stretches of one place in a step are alike, over all peers and steps. Places between the same kinds of collectives, with
the same kernels, are one where their means differ no more than chance makes them differ: what of micro-batches is known
from few is noise, and a pipeline would wait for the largest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from boundby.jobs.chain import Chain
from boundby.jobs.meetings import MESSAGE, Aligned, Matched, is_passing, joined
from boundby.jobs.rank_summary import RankSummary
from boundby.model.arrays import BoolArray, Int64Array, factorize, pick, ranked
from boundby.model.intervals import NOTHING
from boundby.model.scale import HALF, NEARLY_ALL, NOTABLE, SMALL
from boundby.native.passes import NONE

#: Ranks whose kernels are so much the same (of all that either launched, what both did) do the same work.
ALIKE = NEARLY_ALL
#: Ranks that share less do not, whatever they meet in.
UNLIKE = HALF


def stages_of(summaries: Sequence[RankSummary], aligned: Aligned) -> tuple[tuple[int, ...], ...]:
    """Ranks that do the same: those that meet in collectives. Ranks of one pipeline, which pass work on to each other,
    do not; a group that holds two of them spans stages. Pipelines that meet in no group of one stage have the same
    stages where their kernels say so; ranks that meet and launch other kernels are apart."""
    count, matched = len(summaries), aligned.matched
    passing: set[tuple[int, ...]] = set()
    groups: set[tuple[int, ...]] = set()
    for number, kind in sorted(set(zip(matched.group.tolist(), matched.kind, strict=True))):
        members = matched.groups[number]
        if kind == MESSAGE:  # ranks that tell each other what they computed do the same work as often as not
            continue
        passes = len(members) == 2 and is_passing(kind) and (count > 2 or summaries[0].world_size == 2)
        (passing if passes else groups).add(members)
    pipeline = joined(count, passing)
    alike = joined(count, (group for group in groups if len({pipeline[rank] for rank in group}) == len(group)))
    stages = [tuple(members) for members in _members(alike)]
    kernels = [summary.kinds_of_kernels for summary in summaries]
    if passing and all(len(members) == 1 for members in stages):
        stages = _of_pipelines(_members(pipeline), kernels)
    parts = (part for members in stages for part in _apart(members, kernels))
    return tuple(sorted(parts, key=lambda members: members))


def _members(first: Sequence[int]) -> list[list[int]]:
    by_first: dict[int, list[int]] = {}
    for rank, leader in enumerate(first):
        by_first.setdefault(leader, []).append(rank)
    return [members for _, members in sorted(by_first.items())]


def _of_pipelines(pipelines: Sequence[Sequence[int]], kernels: Sequence[Int64Array]) -> list[tuple[int, ...]]:
    """The ranks at the same place of pipelines that are as long, where all launch the same kernels there."""
    of_length: dict[int, list[Sequence[int]]] = {}
    for pipeline in pipelines:
        of_length.setdefault(len(pipeline), []).append(pipeline)
    members_of: list[tuple[int, ...]] = []
    for same in of_length.values():
        for members in zip(*same, strict=True):
            is_same = all(_likeness(kernels[members[0]], kernels[other]) >= ALIKE for other in members[1:])
            members_of += [members] if is_same else [(rank,) for rank in members]
    return members_of


def _apart(members: tuple[int, ...], kernels: Sequence[Int64Array]) -> list[tuple[int, ...]]:
    """``members`` by what they launch, where that makes parts of several ranks each; else all of them."""
    parts: list[list[int]] = []
    for rank in members:
        like = (part for part in parts if _likeness(kernels[part[0]], kernels[rank]) >= UNLIKE)
        part = next(like, None)
        if part is None:
            parts.append([rank])
        else:
            part.append(rank)
    return [tuple(part) for part in parts] if min(map(len, parts)) > 1 else [members]


def _likeness(one: Int64Array, other: Int64Array) -> float:
    """Of all kernels that either launched the share that both did (Jaccard's, of numbers); 1 where neither has any."""
    both, at, match = np.intersect1d(one[:, 0], other[:, 0], assume_unique=True, return_indices=True)
    shared = int(np.minimum(one[at, 1], other[match, 1]).sum()) if len(both) else 0
    every = int(one[:, 1].sum() + other[:, 1].sum()) - shared
    return shared / every if every else 1.0


Float = npt.NDArray[np.float64]
_ALONE = NOTHING
#: Steps begin together where ranks' begins lie within this share of the most that any of them idles before.
_TOGETHER_SHARE = NOTABLE


class Even:
    """What is alike in a job; not known (``is_known``) where others lack more than a few of a rank's collectives, since
    places in a step are told by counting them. ``stages``: ranks that do the same; ``step_of_event``: the job's step of
    each event; ``kernels``: what began since the one before; ``idle``: rows of work in which ranks idle until a step
    begins; ``apart_ns``: how far apart ranks begin each step, shape (steps,)."""

    def __init__(
        self,
        matched: Matched,
        chain: Chain,
        stages: Sequence[tuple[int, ...]],
        step_of_event: Int64Array,
        kernels: Int64Array,
        idle: BoolArray,
        apart_ns: Float,
    ) -> None:
        self.chain, self.stages, self.idle = chain, stages, np.flatnonzero(idle)
        self.apart_ns, self.step = apart_ns, step_of_event
        role = _roles(matched, stages)
        self.transfer_like = factorize(role, matched.bytes)[1]
        course = chain.course
        rank = course.rank.astype(np.int64)
        self.slot = np.arange(len(rank)) + rank
        slots = len(course.work_at) - 1
        slot = np.repeat(np.arange(slots), np.diff(course.work_at))[self.idle]
        self.idle_at = np.searchsorted(self.slot, slot)
        # Steps of a rank stand together, since its events are in order of time.
        self.turn = np.cumsum(np.append(False, (np.diff(rank) != 0) | (np.diff(step_of_event) != 0))[: len(rank)])
        self.is_first = np.append(True, np.diff(rank) != 0)[: len(rank)]
        stage_of = np.zeros(course.ranks, np.int64)
        for stage, members in enumerate(stages):
            stage_of[list(members)] = stage
        of_event = np.append(role, _ALONE)[np.where(course.instance == NONE, len(role), course.instance)]
        nth = _nth(self.turn, of_event, course.is_join)
        # A wait is for the collective of that number, whether or not there were waits for those before it.
        self.is_known = bool(np.mean(course.instance == NONE) <= SMALL) if len(rank) else False
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
        self.is_usual = is_known & ~course.is_join & (2 * np.bincount(self.alike)[self.alike] > turns[stage_of[rank]])
        self.marks = self._in_usual_order(np.flatnonzero(self.is_usual & ~self.is_before))
        # Of what comes after the last collective of a step that is usual nothing else tells what it is like.
        last = np.full(int(self.turn.max(initial=-1)) + 1, NONE, np.int64)
        np.maximum.at(last, self.turn[self.marks], self.marks)
        self.stays = self.is_first | self.is_before | (np.arange(len(rank)) > last[self.turn])
        self.place, self.type = self._types(stage_of[rank], of_event, kernels)

    def _in_usual_order(self, marks: Int64Array) -> Int64Array:
        """Events step by step, those of a step in the order that is usual for what is alike: what comes at about the
        same time comes now in this order, now in that, and the work before both is before the same one of them."""
        done = self._done(self.chain.own(np.ones(int(self.chain.course.cell.max(initial=0)) + 1)))
        whole = np.zeros(int(self.turn.max(initial=-1)) + 1)
        np.maximum.at(whole, self.turn, done)
        share = np.divide(done, whole[self.turn], out=np.zeros_like(done), where=whole[self.turn] > 0)[marks]
        usual = _means(share, self.alike[marks], np.ones(len(marks), bool))
        return marks[np.lexsort((self.alike[marks], usual, self.turn[marks]))]

    def _types(self, stage: Int64Array, role: Int64Array, kernels: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Of each of ``marks``: its place in a step, and which places are between the same collectives and have the
        same kernels (one by itself whose kernels differ among those that are alike)."""
        turn, is_join = self.turn[self.marks], self.chain.course.is_join
        is_first = np.append(True, turn[1:] != turn[:-1])[: len(turn)]
        before = np.append(0, self.marks[:-1])[: len(turn)]
        begun = np.append(True, np.diff(self.turn) != 0)[: len(self.turn)]
        since = np.where(is_first, np.flatnonzero(begun)[turn] - 1, before)
        passed = np.append(np.cumsum(kernels), 0)  # the last: of what is before the first
        among = passed[self.marks] - passed[since]
        ends = role[self.marks], is_join[self.marks]
        begins = np.where(is_first, _ALONE, role[before]), is_first | is_join[before]
        kind_of = factorize(self.alike[self.marks], is_first)[1]
        kind = factorize(stage[self.marks], *ends, *begins, among)[1]
        kinds = np.full((2, int(kind_of.max(initial=-1)) + 1), [[len(kind)], [-1]])
        np.minimum.at(kinds[0], kind_of, kind)
        np.maximum.at(kinds[1], kind_of, kind)
        alone = len(kind) + np.arange(kinds.shape[1])
        return kind_of, ranked(np.where(kinds[0] == kinds[1], kinds[0], alone)[kind_of])[1]

    def stretches(self, table: Float) -> Float:
        """Own time per slot, shape (slots,): each event comes after as much own work of its step as those like it do on
        average. ``table``: the factor of each cell. What comes before a rank's first collective stays as it is."""
        own = self.chain.own(table)
        own[self.slot] -= self._waits_for_steps(table)
        done = self._done(own)
        usual = self._between(done, self._usual(done[self.marks]))
        first = np.append(True, np.diff(self.turn) != 0)[: len(self.turn)]
        stretch = np.where(first, usual, np.diff(usual, prepend=0.0))
        own[self.slot] = np.where(self.stays, own[self.slot], stretch)
        for members in self.stages:  # after the last collective
            tails = self.chain.course.tail[list(members)]
            own[tails] = own[tails].mean()
        return own

    def _done(self, own: Float) -> Float:
        """Per event the work of its step until then, from own time per slot."""
        passed = np.cumsum(np.where(self.is_first, 0.0, own[self.slot]))
        begun = np.flatnonzero(np.append(True, np.diff(self.turn) != 0)[: len(self.turn)])
        done: Float = passed - np.append(0.0, passed)[begun][self.turn]
        return done

    def _between(self, done: Float, usual: Float) -> Float:
        """What is done in a step until each event, where it is ``usual`` until each of ``marks``: what lies between two
        of these keeps its shares."""
        by_time = np.argsort(self.marks)
        marks, usual = self.marks[by_time], _rising(usual[by_time], self.turn[self.marks[by_time]])
        at = np.searchsorted(marks, np.arange(len(done)))
        until = pick(marks, np.where(at < len(marks), at, NONE), 0)
        since = pick(marks, at - 1, 0)
        is_inside = (at > 0) & (self.turn[since] == self.turn)
        low, low_usual = np.where(is_inside, done[since], 0.0), np.where(is_inside, np.append(usual, 0.0)[at - 1], 0.0)
        whole = done[until] - low
        share = np.divide(done - low, whole, out=(np.arange(len(done)) == until).astype(np.float64), where=whole > 0)
        between: Float = low_usual + share * (np.append(usual, 0.0)[at] - low_usual)
        return between

    def longer_ns(self, table: Float) -> Float:
        """By how much each rank's stretches, of which each cell's factor is in ``table``, are longer than those like
        them, in sum; others are as much shorter."""
        course, done = self.chain.course, self._done(self.chain.own(table))[self.marks]
        longer = np.maximum(self._stretches(done) - self._stretches(self._usual(done)), 0)
        return np.asarray(np.bincount(course.rank[self.marks], longer, course.ranks), np.float64)

    def _stretches(self, done: Float) -> Float:
        """Of each of ``marks`` what is done since the one before in its step."""
        turn = self.turn[self.marks]
        is_first = np.append(True, turn[1:] != turn[:-1])[: len(turn)]
        stretch: Float = np.where(is_first, done, np.diff(done, prepend=0.0))
        return stretch

    def _waits_for_steps(self, table: Float) -> Float:
        """Per event what its rank idles before it for others, though no collective tells: ranks that begin a step at
        the same instant, whenever each is done with the one before, wait for each other there."""
        course = self.chain.course
        idle = np.bincount(self.idle_at, (course.work_ns * table[course.cell])[self.idle], len(self.step))
        rows = np.unique(self.idle_at)
        rows = rows[self.step[rows] >= 0]
        of_step = [np.full(len(self.apart_ns), edge) for edge in (np.inf, 0.0)]
        np.minimum.at(of_step[0], self.step[rows], idle[rows])
        np.maximum.at(of_step[1], self.step[rows], idle[rows])
        ranks = np.bincount(self.step[rows], minlength=len(self.apart_ns))
        least = np.where(ranks < course.ranks, 0.0, of_step[0])  # some do not idle at all
        is_together = self.apart_ns < _TOGETHER_SHARE * (of_step[1] - least)
        waits = np.zeros(len(idle))
        step = self.step[rows]
        waits[rows] = np.where(is_together[step], np.maximum(idle[rows] - least[step], 0), 0)
        return waits

    def _usual(self, done: Float) -> Float:
        """What is done in a step until each of ``marks`` where stretches up to each take what is usual."""
        turn = self.turn[self.marks]
        is_first = np.append(True, turn[1:] != turn[:-1])[: len(turn)]
        stretch = self._stretches(done)
        is_whole = ~self.is_first[self.marks]  # the job's time begins within the stretch up to a rank's first event
        of_place = _means(stretch, self.place, is_whole)
        of_type = _means(stretch, self.type, is_whole)
        within: Float = np.bincount(self.type, is_whole * (stretch - of_place) ** 2).astype(np.float64)
        between: Float = np.bincount(self.type, is_whole * (of_place - of_type) ** 2).astype(np.float64)
        slots = np.bincount(factorize(self.type, self.place)[0][:, 0], minlength=len(within))
        is_one = is_by_chance(between, slots, within, np.bincount(self.type[is_whole], minlength=len(within)))
        usual = np.cumsum(np.where(is_one[self.type], of_type, of_place))
        begun: Float = usual - np.append(0.0, usual)[np.flatnonzero(is_first)][np.cumsum(is_first) - 1]
        return begun

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


def _rising(value: Float, turn: Int64Array) -> Float:
    """Values of which none is less than one before it in its turn (turns are numbered as they come)."""
    apart = turn * (float(value.max(initial=0)) + 1.0)
    rising: Float = np.maximum.accumulate(np.maximum(value, 0) + apart) - apart
    return rising


def _means(value: Float, group: Int64Array, counted: BoolArray) -> Float:
    """Of each value the mean of its group's that are counted; of a group without one the value itself."""
    count = np.bincount(group, counted)[group]
    mean: Float = np.where(count > 0, np.bincount(group, value * counted)[group] / np.maximum(count, 1), value)
    return mean


def _roles(matched: Matched, stages: Sequence[tuple[int, ...]]) -> Int64Array:
    """Per collective a number: the same for those of one kind, among as many ranks, of the same stages."""
    stage_of = {rank: stage for stage, members in enumerate(stages) for rank in members}
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


#: A difference counts from so many standard errors of its mean on (of a normal distribution: from few values it takes
#: more), or from so many times the usual difference between ranks.
LEAST_SPREADS = 4.0


def least_t(freedom: Int64Array) -> Float:
    """The number of standard errors that counts, where these rest on few values: Student's distribution (Wallace's
    approximation: within 3 % from six degrees of freedom on; from two to five up to half as much again)."""
    free = np.maximum(freedom, 1).astype(np.float64)
    quantile: Float = np.sqrt(free * np.expm1(LEAST_SPREADS**2 * (free - 5 / 6) / (free - 2 / 3 + 0.1 / free) ** 2))
    return quantile


def is_by_chance(between: Float, groups: Int64Array, within: Float, values: Int64Array) -> BoolArray:
    """Whether the means of so many groups differ no more than the values inside them explain. ``between``, ``within``:
    sums of squares; of the distribution of their ratio (Fisher's) Paulson's approximation."""
    over, free = np.maximum(groups - 1, 1).astype(np.float64), np.maximum(values - groups, 1).astype(np.float64)
    ratio = np.divide(between * free, within * over, out=np.where(between > 0, np.inf, 0.0), where=within > 0)
    root = np.cbrt(np.minimum(ratio, np.finfo(np.float64).max))
    errors = (root * (1 - 2 / (9 * free)) - (1 - 2 / (9 * over))) / np.sqrt(2 / (9 * over) + root**2 * 2 / (9 * free))
    alike: BoolArray = (groups < 2) | (values <= groups) | (errors <= LEAST_SPREADS)
    return alike
