"""Who holds up the job, by how much and why: each rank's own work held against that of the ranks that do the same.

Waits are in nobody's own work, so that a victim never looks slow. What differs is removed in a replay of the whole
job, and only what the job would gain by that counts: a slow rank that nobody waits for is no straggler.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.jobs.chain import Chain
from boundby.jobs.even import LEAST_SPREADS, Even, least_t, stages_of
from boundby.jobs.meetings import Aligned, Matched
from boundby.jobs.rank_summary import RankSummary, merged
from boundby.model.arrays import BoolArray, Int64Array, factorize, ranked, sorted_distinct
from boundby.model.causes import BUSY_CAUSES, CAUSES, Cause
from boundby.model.scale import (
    HABIT,
    HALF,
    LIST,
    MOST,
    NEARLY_ALL,
    NEXT_TO_NOTHING,
    NOTABLE,
    QUARTER,
    SEVERAL,
    SLIGHT,
    SMALL,
)
from boundby.model.statistics import MAD_TO_STD, OUTLYING
from boundby.native.passes import AT_ONCE
from boundby.structure.loop_detection import find_loop

Float = npt.NDArray[np.float64]
#: Nobody is accused of less than this share of the job's time, as it is without those accused before: ordinary devices
#: differ by a percent or two.
LEAST_SHARE = SLIGHT
#: Ordinary ups and downs of many ranks add up to more: chance is told of from here on.
LEAST_RANDOM_SHARE = SMALL
#: A step is an exception from so many times the usual deviation on, if it is this share of a step besides.
EXCEPTION_SPREADS = OUTLYING
EXCEPTION_SHARE = SLIGHT
#: Exceptions in more than this share of the steps are the rule.
MOSTLY = HALF
#: Work within steps is uneven where it differs from the usual by this share of itself: input lengths do, while kernels
#: of one size differ by a few percent.
LEAST_UNEVEN = NOTABLE
#: One rank has them where it holds this share of the time of all exceptions.
ONE_RANKS_SHARE = 0.6
#: A group's transfers are slow from this many times those of groups like it.
SLOW_LINK = 1 + QUARTER
#: Ranks, stages and links looked at in one replay.
_MOST_STEPS = 64
#: Fewer steps tell no habit from an exception.
FEW_STEPS = HABIT
#: Who is named saves at least so much: less is shown as nothing.
LEAST_NAMED_SHARE = NEXT_TO_NOTHING
#: Nobody can say how to be without these.
_LASTING = (Cause.UNATTRIBUTED, Cause.DEVICE_WAIT)
_IS_BUSY = np.isin(np.arange(len(CAUSES)), BUSY_CAUSES)
#: So many of the largest parts (a cause in a region) are taken out of all ranks, each by itself.
_MOST_PARTS = LIST
_MOST_CHANCES, _MOST_ROUNDS = HABIT, SEVERAL
#: Exceptions explain what even steps would save where they hold this much of it.
_EXPLAINS = MOST
#: Transfers of one kind (numbers of instances), and what the others' length is of theirs.
_Slow = list[tuple[list[int], float]]


class Culprit(Struct, frozen=True):
    """What one rank, stage, link or machine does beyond its peers. ``kind``: of `results.job_report.KINDS`."""

    kind: str
    ranks: tuple[int, ...]  # indexes of summaries
    cause: Cause
    region: tuple[str, ...]
    excess_ns: int  # own time beyond the peers', over the run
    share: float  # of that excess in this cause
    saving_ns: int  # of the job, on top of those before it
    steps: int  # in how many of the steps
    stage: int = -1


class Chance(Struct, frozen=True):
    """What ranks take turns in being late by, and what the job would gain if all did the same in each step."""

    cause: Cause
    region: tuple[str, ...]
    saving_ns: int


class Change(Struct, frozen=True):
    """The job's length if something were so on all ranks. ``cause``, ``region``: what would be gone; None: something
    else."""

    scenario: str
    length_ns: int
    cause: Cause | None = None
    region: tuple[str, ...] = ()


class Diagnosis(Struct, frozen=True):
    """``length_ns``: of the job, from the end of its first collective; as measured, and as replayed unchanged."""

    length_ns: int
    replayed_ns: int
    culprits: tuple[Culprit, ...]
    extras: tuple[Culprit, ...]
    chance: tuple[Chance, ...]
    what_if: tuple[Change, ...]
    stages: tuple[tuple[int, ...], ...]
    steps: int


class Job:
    """All ranks' own work as one table of pieces, and as sums by rank, step and key (region and cause)."""

    def __init__(self, summaries: Sequence[RankSummary], aligned: Aligned) -> None:
        self.summaries, self.aligned = summaries, aligned
        self.regions, self.regions_of = merged([summary.regions for summary in summaries])
        self.steps, self.of_step, self.together = _steps(summaries, aligned)
        self.begin_ns = float(_first_ends(summaries, aligned))
        step = np.concatenate([self._step_of_work(number) for number in range(len(summaries))])
        kinds = [
            numbers[summary.work.region] * len(CAUSES) + summary.work.cause
            for numbers, summary in zip(self.regions_of, summaries, strict=True)
        ]
        used, key = ranked(np.concatenate(kinds))
        self.cause = used % len(CAUSES)
        self.region = used // len(CAUSES)
        shape = len(summaries), self.steps, len(used)
        cells = int(np.prod(shape))
        rank = np.repeat(np.arange(len(summaries)), [len(summary.work) for summary in summaries])
        # What lies in no step is nobody's: its factor, behind the others, is always one.
        cell = np.where(step >= 0, (rank * self.steps + step) * len(used) + key, cells)
        self.chain = Chain(summaries, aligned, cell)
        summed = np.bincount(cell, self.chain.course.work_ns, cells + 1)[:cells]
        self.time: Float = summed.astype(np.float64).reshape(shape)
        self.kernels = np.array([summary.kernels.sum() for summary in summaries], np.float64)
        self.stages = stages_of(summaries, aligned)
        times = (summary.events.time_ns for summary in summaries)
        numbers = [np.searchsorted(summary.step_ns, at, "right") for summary, at in zip(summaries, times, strict=True)]
        of_event = [of[np.minimum(at, len(of) - 1)] for of, at in zip(self.of_step, numbers, strict=True)]
        kernels = np.concatenate([summary.events.kernels for summary in summaries])
        of_slot = [np.append(of, -1)[summary.work.event] for of, summary in zip(of_event, summaries, strict=True)]
        idle = ~_IS_BUSY[self.cause[key]] & (step < np.concatenate(of_slot))
        begun = self.begins()
        apart = np.where(np.isfinite(begun).all(axis=0), begun[1] - begun[0], np.inf)
        self.even = Even(aligned.matched, self.chain, self.stages, np.concatenate(of_event), kernels, idle, apart)
        ends = self.chain.replay(self._table([None]))
        windows = [summary.window_ns[1] for summary in summaries]
        measured = [clock.at(np.array([end]))[0] for clock, end in zip(aligned.clocks, windows, strict=True)]
        self.length_ns = float(max(measured, default=0)) - self.begin_ns
        self.replayed_ns = float(ends.max(initial=0)) - self.begin_ns
        #: Of a step that is going on when the job's time begins a part is missing: it tells no habit, and no exception.
        is_cut = self.begin_ns - begun[0] > SLIGHT * self.step_ns
        self.is_whole = ~is_cut | is_cut.all()

    def _step_of_work(self, rank: int) -> Int64Array:
        """The job's step of each row of a rank's work; -1: in none, or over when the job's time begins."""
        summary, clock = self.summaries[rank], self.aligned.clocks[rank]
        over = clock.at(np.append(summary.events.time_ns, summary.window_ns[1])) <= self.begin_ns
        step: Int64Array = np.where(over[summary.work.event], -1, self.of_step[rank][summary.work.step + 1])
        return step

    def begins(self) -> Float:
        """When the first and when the last rank begins each step, shape (2, steps); not finite: none does."""
        begun = np.full((2, self.steps), [[np.inf], [-np.inf]])
        for of, summary, clock in zip(self.of_step, self.summaries, self.aligned.clocks, strict=True):
            inside = of[1:] >= 0
            at, step = clock.at(summary.step_ns)[inside].astype(np.float64), of[1:][inside]
            first = np.flatnonzero(np.append(True, np.diff(step) != 0)[: len(step)])
            np.minimum.at(begun[0], step[first], at[first])
            np.maximum.at(begun[1], step[first], at[first])
        return begun

    def usual_step(self) -> tuple[int, int, int] | None:
        """A step of the usual length: its number, from 1, when the first rank begins it, and when the next is begun (on
        the job's clock). None: there are no steps."""
        begun = np.where(np.isfinite(self.begins()[0]), self.begins()[0], np.nan)
        length = np.diff(begun, append=self.begin_ns + self.length_ns)
        finite = np.flatnonzero(np.isfinite(length))
        if self.steps < 2 or not len(finite):
            return None
        step = int(finite[np.argsort(length[finite], kind="stable")[len(finite) // 2]])
        return step + 1, int(begun[step]), int(begun[step] + length[step])

    @property
    def step_ns(self) -> float:
        """How long a step takes, about."""
        return self.length_ns / max(self.steps, 1)

    def _table(self, factors: Sequence[Float | None]) -> Float:
        """Factors as the chain takes them, shape (cells and one more, variants)."""
        table = np.ones((self.time.size + 1, len(factors)))
        for variant, factor in enumerate(factors):
            if factor is not None:
                table[:-1, variant] = factor.ravel()
        return table

    def lengths(self, factors: Sequence[Float | None], transfers: Sequence[Float | None] | None = None) -> Float:
        """The job's length for each set of factors of ``time`` (shape (ranks, steps, keys)), relative to the replayed
        one so that what the replay gets wrong cancels."""
        of_steps: list[float] = []
        for low in range(0, len(factors), AT_ONCE):
            transfer = None
            if transfers is not None:
                plain = self.chain.transfer_ns
                transfer = np.stack(
                    [plain if changed is None else changed for changed in transfers[low : low + AT_ONCE]], axis=1
                )
            ends = self.chain.replay(self._table(factors[low : low + AT_ONCE]), transfer)
            of_steps += (ends.max(axis=0) - self.begin_ns).tolist()
        return np.array(of_steps) * self._scale

    @property
    def _scale(self) -> float:
        """What the replay gets wrong."""
        return self.length_ns / self.replayed_ns if self.replayed_ns else 1.0

    def even_length(self, factor: Float, transfer: Float | None = None, keys: BoolArray | None = None) -> float:
        """The job's length if stretches between the same collectives all took what they take on average; with ``keys``
        what these are of them."""
        if not self.even.is_known:
            return float(self.lengths([factor], [transfer])[0])
        if keys is None:
            own = self.even.stretches(self._table([factor])[:, 0])
        else:
            evened = self._table([np.where(keys, factor, 0.0)])[:, 0]
            evened[-1] = 0.0
            own = self.even.stretches(evened) + self.chain.own(self._table([np.where(keys, 0.0, factor)])[:, 0])
        ends = self.chain.replay_slots(own, self.chain.transfer_ns if transfer is None else transfer)
        return (float(ends.max(initial=0)) - self.begin_ns) * self._scale

    def longer_ns(self, factor: Float) -> Float:
        """By how much each rank's stretches, with their work multiplied, are longer than those like them."""
        table = self._table([factor])[:, 0]
        table[-1] = 0.0
        return self.even.longer_ns(table)

    def balanced_length(self) -> float:
        """The job's length if its ranks, steps and transfers were even; never more than it is."""
        usual = self.even.transfers() if self.steps >= FEW_STEPS else self.chain.transfer_ns
        movable = np.zeros_like(_IS_BUSY), _IS_BUSY, np.ones_like(_IS_BUSY)
        evened = [self.even.over_stages(self.time, which[self.cause]) for which in movable]
        plain: list[float] = self.lengths(evened, [usual] * len(evened)).tolist()
        return min(self.length_ns, *plain, *(self.even_length(candidate, usual) for candidate in evened))


def _first_ends(summaries: Sequence[RankSummary], aligned: Aligned) -> float:
    """When all ranks have left their first collective: before that, ranks begin at different times. Those of one report
    begin when all have."""
    matched = aligned.matched
    if aligned.begin_together:
        return float(max((summary.window_ns[0] for summary in summaries), default=0))
    if not len(matched):
        return float(min((summary.window_ns[0] for summary in summaries), default=0))
    first = np.full(len(summaries), np.iinfo(np.int64).max)
    np.minimum.at(first, matched.rank, matched.end_ns)
    return float(first[first < np.iinfo(np.int64).max].max())


def _steps(summaries: Sequence[RankSummary], aligned: Aligned) -> tuple[int, list[Int64Array], int]:
    """How many steps the job has, for each rank the job's step of each of its own (place 0: before the first), and how
    many of the program's make one: told apart on the job's clock, since profiles can begin at different steps. Without
    steps the whole run is one."""
    begun = [clock.at(summary.step_ns) for summary, clock in zip(summaries, aligned.clocks, strict=True)]
    if not begun or min(len(times) for times in begun) < 2:
        return 1, [np.zeros(len(summary.step_ns) + 1, np.int64) for summary in summaries], 1
    lead = max(range(len(begun)), key=lambda rank: (len(begun[rank]), -rank))
    reference, half = begun[lead], float(np.median(np.diff(begun[lead]))) / 2
    steps = []
    for times in begun:  # as many, and about when the others': they are the same, however late one begins
        same = len(times) == len(reference) and float(np.median(np.abs(times - reference))) < 2 * half
        steps.append(np.arange(len(times)) if same else np.searchsorted(reference, times + half, side="right") - 1)
    first = max(int(steps_of[0]) for steps_of in steps)  # since then all of them were recorded
    group = -(-(len(reference) - first) // _MOST_STEPS)
    counted = [np.where(steps_of < first, -1, (steps_of - first) // group) for steps_of in steps]
    return -(-(len(reference) - first) // group), [np.append(-1, steps_of) for steps_of in counted], group


def in_rounds(summaries: list[RankSummary], matched: Matched) -> list[RankSummary]:
    """The ranks of a program that tells no steps: what they all meet in again and again cuts the run into rounds, which
    are its steps. What comes before the loop and what comes after it are a step each. Without such a loop: as they
    are."""
    shared = np.flatnonzero(matched.size == len(summaries))
    if any(len(summary.step_ns) > 1 for summary in summaries) or not len(shared):
        return summaries
    kinds = {kind: number for number, kind in enumerate(sorted(set(matched.kind)))}
    kind = np.array([kinds[matched.kind[meeting]] for meeting in shared.tolist()], np.int64)
    token = factorize(kind, matched.bytes[shared], matched.group[shared])[1].astype(np.int64)
    begun_ns = np.maximum.reduceat(matched.end_ns, matched.first[:-1])[shared]
    loop = find_loop(token, begun_ns, np.arange(len(shared)))
    if loop is None:
        return summaries
    # A round begins where all have left what they met in before it.
    begins = sorted_distinct(loop.begin, loop.end)
    ends = shared[begins[(begins > 0) & (begins < len(shared))] - 1]
    return [_cut(summary, rank, matched, ends) for rank, summary in enumerate(summaries)]


def _cut(summary: RankSummary, place: int, matched: Matched, ends: Int64Array) -> RankSummary:
    """A rank whose steps begin with its window and where it has left each of these instances."""
    events = summary.events
    instance = np.append(matched.instance_of(place, len(summary.meetings)), -1)[events.meeting]
    last = np.full(len(matched) + 1, -1, np.int64)
    np.maximum.at(last, instance, np.arange(len(events)))
    edges = np.maximum.accumulate(last[ends])
    step_ns = np.append(summary.window_ns[0], events.time_ns[edges] + 1)
    step = np.searchsorted(edges, summary.work.event, side="left").astype(np.int32)
    return replace(summary, step_ns=step_ns, work=replace(summary.work, step=step))


def _spread(values: Float) -> Float:
    """The usual deviation from the median, per column."""
    spread: Float = MAD_TO_STD * np.median(np.abs(values - np.median(values, axis=0)), axis=0)
    return spread


def _is_sure(
    mean: Float, variance: Float, counted: npt.NDArray[np.int64], stages: Sequence[tuple[int, ...]]
) -> BoolArray:
    """Per row and cause: whether the mean of so many steps is no chance. Those that do the same vary alike: few steps
    of many tell how much, and whoever varies more is held against that. ``stages``: rows that do the same."""
    sure = np.zeros(mean.shape, bool)
    for members in stages:
        rows = list(members)
        usual = np.maximum(variance[rows], variance[rows].mean(axis=0))
        error = np.sqrt(usual / counted[rows]) + 1.0
        freedom = np.maximum(counted[rows] - 1, 1) * max(len(rows) - 1, 1)
        sure[rows] = np.abs(mean[rows]) > least_t(freedom) * error
    return sure


def diagnose(summaries: Sequence[RankSummary], aligned: Aligned) -> tuple[Diagnosis, Job]:
    """Culprits in the order of what the job would gain, and what else could be changed."""
    job = Job(summaries, aligned)
    return _Search(job).diagnosis(), job


def _known(culprits: Sequence[Culprit]) -> frozenset[tuple[int, str]]:
    """Ranks that are accused already, and as what."""
    return frozenset((rank, each.kind) for each in culprits for rank in each.ranks)


def _without_chance(culprits: list[Culprit], chance: list[Chance]) -> tuple[list[Culprit], list[Chance]]:
    """Where ranks take turns in something, that it befell one more often is chance, too."""
    turns = []
    for turn in chance:
        same = [culprit for culprit in culprits if culprit.kind == "exceptions" and culprit.cause == turn.cause]
        culprits = [culprit for culprit in culprits if culprit not in same]
        turns.append(replace(turn, saving_ns=turn.saving_ns + sum(culprit.saving_ns for culprit in same)))
    return culprits, turns


class _Search:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.least_ns = LEAST_SHARE * job.length_ns
        self.factor = np.ones_like(job.time)  # what has been removed so far
        self.transfer: Float | None = None
        self.evened = np.zeros(len(job.cause), bool)  # keys that are even within steps, too
        self.by_cause = np.stack([(job.cause == cause) for cause in range(len(CAUSES))], axis=1).astype(np.float64)
        self.has_peers = np.zeros(len(job.summaries), bool)
        self._look()

    def _look(self) -> None:
        """Hold every rank's work, as it is by now, against that of its peers."""
        self.time = self.job.time * self.factor
        self.usual = np.zeros_like(self.time)  # what the peers do
        for members in self.job.stages:
            self._compare(np.array(members))
        self.is_alone = self._alone()
        self.is_exception = self._exceptions()
        excess = np.where(self.is_alone[:, None], 0, self.time - self.usual)
        self.excess_of_cause = excess @ self.by_cause

    def _alone(self) -> npt.NDArray[np.bool_]:
        """Per rank and key: whether none of its peers (none at all, where it has none) is ever in that region, be it
        while the device is at work."""
        job = self.job
        regions = np.zeros((len(self.time), len(job.regions)), bool)
        for rank, inside in enumerate(job.regions_of):
            regions[rank, inside] = True
        alone = np.zeros_like(regions)
        for members in job.stages:
            rows = list(members)  # who has no peers is held against all
            others = regions[rows] if len(rows) > 1 else regions
            alone[rows] = regions[rows] & (others.sum(axis=0) == 1)
        alone[:, [number for number, path in enumerate(job.regions) if not path]] = False
        is_alone: npt.NDArray[np.bool_] = alone[:, job.region]
        return is_alone

    def _compare(self, members: Int64Array) -> None:
        time = self.time[members]
        if len(members) == 1:
            self.usual[members] = np.median(time, axis=1, keepdims=True)
            return
        self.has_peers[members] = True
        if len(members) > 8:
            self.usual[members] = np.median(time, axis=0)
            return
        for index, rank in enumerate(members.tolist()):
            others = np.sort(np.delete(time, index, axis=0), axis=0)  # of two the lower: the other may be slow, too
            self.usual[rank] = others[(len(others) - 1) // 2]

    def _exceptions(self) -> npt.NDArray[np.bool_]:
        """Per rank, step and cause: whether it does far more than it and its peers usually do. What a rank does in most
        steps is no exception."""
        time = np.where(self.is_alone[:, None], 0, self.time) @ self.by_cause
        excess = np.zeros_like(time)
        for members in self.job.stages:
            rows = list(members)
            # Held against the calmer ranks of the step: half of them may have an exception in one step.
            calm = np.percentile(time[rows], 25, axis=0) if len(rows) >= 4 else (self.usual[rows] @ self.by_cause)
            excess[rows] = time[rows] - calm
        excess -= np.median(excess, axis=1, keepdims=True)
        beyond = time - np.median(time, axis=1, keepdims=True)
        is_exception = np.zeros(excess.shape, bool)
        for members in self.job.stages:
            rows = list(members)
            least = EXCEPTION_SHARE * self.job.step_ns
            # Of two ranks each differs from the other in the steps of both: the calmer measure tells what is usual.
            ordinary = MAD_TO_STD * np.median(np.abs(beyond[rows]), axis=(0, 1))
            spread = np.minimum(MAD_TO_STD * np.median(np.abs(excess[rows]), axis=(0, 1)), ordinary)
            is_exception[rows] = excess[rows] > np.maximum(EXCEPTION_SPREADS * spread, least)
            # In one step all may have one: of the size of those that they have apart.
            apart = [excess[rows][:, :, cause][is_exception[rows][:, :, cause]] for cause in range(len(CAUSES))]
            size = np.array([np.median(excesses) / 2 if len(excesses) > 1 else np.inf for excesses in apart])
            is_exception[rows] |= beyond[rows] > np.maximum(np.maximum(EXCEPTION_SPREADS * ordinary, least), size)
        is_exception &= (is_exception.mean(axis=1, keepdims=True) <= MOSTLY) & self.job.is_whole[:, None]
        for members in self.job.stages:
            self._usual_without(list(members), is_exception[list(members)][:, :, self.job.cause])
        return is_exception

    def _usual_without(self, rows: list[int], odd: npt.NDArray[np.bool_]) -> None:
        """Instead of an exception a rank does what those without one do in that step, else what it does itself in
        others."""
        time, calm = self.time[rows], (~odd).sum(axis=0)
        middle = np.maximum(calm - 1, 0) // 2  # one of them may be slow
        others = np.take_along_axis(np.sort(np.where(odd, np.inf, time), axis=0), middle[None], axis=0)[0]
        own = np.median(time, axis=1, keepdims=True)
        self.usual[rows] = np.where(odd, np.where(calm > 0, others, own), self.usual[rows])

    def _turns(self, known: frozenset[tuple[int, str]], left_ns: float) -> tuple[Chance | None, list[Culprit]]:
        """What ranks take turns in, and whom that hid; None: nothing that matters."""
        before, least = self.factor, LEAST_RANDOM_SHARE * left_ns
        turns = self._random()
        for is_even in (False, True):  # worth nothing by itself, it may hide a rank, and that hides it
            if turns is None or turns.saving_ns >= least:
                return turns, []
            self.factor = before
            turns = self._random(is_even=is_even)
            culprits = [*self._ranks(known), *self._stages()]
            together_ns = left_ns - self._length()
            if turns is not None and culprits and together_ns >= least:
                each_ns = round(together_ns / (1 + len(culprits)))
                hidden = [
                    replace(culprit, saving_ns=min(each_ns, culprit.excess_ns * len(culprit.ranks)))
                    for culprit in culprits
                ]
                return replace(turns, saving_ns=each_ns), hidden
        self.factor = before
        return None, []

    def diagnosis(self) -> Diagnosis:
        job = self.job
        culprits, extras, chance = self._accused()
        if job.steps > 1:
            chance = self._micro_batches(chance)
        if self.evened.any():  # that may have hidden a rank or a stage
            culprits += [*self._ranks(_known(culprits)), *self._stages()]
            turns = self._random()
            if turns is not None and turns.saving_ns >= LEAST_RANDOM_SHARE * self._length():
                chance.append(turns)
        culprits, chance = _without_chance(culprits, chance)
        least_ns = LEAST_NAMED_SHARE * job.length_ns
        culprits.sort(key=lambda culprit: (-culprit.saving_ns, culprit.ranks))
        return Diagnosis(
            round(job.length_ns),
            round(job.replayed_ns),
            tuple(culprit for culprit in culprits if culprit.saving_ns > least_ns),
            tuple(culprit for culprit in extras if culprit.saving_ns > least_ns),
            tuple(culprit for culprit in chance if culprit.saving_ns > least_ns),
            self._what_if(),
            job.stages,
            job.steps,
        )

    def _accused(self) -> tuple[list[Culprit], list[Culprit], list[Chance]]:
        """Culprits, extras, and what ranks take turns at, round by round: each looks at what those before left."""
        job = self.job
        culprits: list[Culprit] = []
        extras: list[Culprit] = []
        chance: list[Chance] = []
        for _ in range(_MOST_ROUNDS):  # what is mended may have hidden something else, and the rest is then the whole
            left_ns = self._length()
            if left_ns <= 0:  # nothing is left that anybody could hold up
                break
            self.least_ns = LEAST_SHARE * left_ns
            accused = _known(culprits)
            added = self._extras()
            culprits_now = [*self._ranks(accused), *self._stages(), *self._links()]
            if not culprits_now and not added:
                culprits_now = self._together(accused)
            culprits, extras = culprits + culprits_now, extras + added
            if culprits_now or added:
                continue
            if len(chance) == _MOST_CHANCES or job.steps == 1:  # in one step nobody takes turns
                break
            turns, hidden = self._turns(accused, left_ns)
            culprits += hidden
            if turns is None:
                break
            chance.append(turns)
        return culprits, extras, chance

    def _length(self, factor: Float | None = None) -> float:
        """The job's length without what has been removed so far, or with these factors."""
        return float(self._lengths([self.factor if factor is None else factor])[0])

    def _lengths(self, factors: Sequence[Float]) -> Float:
        """As `_length`, for each of these factors."""
        if self.evened.any():
            return np.array([self.job.even_length(factor, self.transfer, self.evened) for factor in factors])
        return self.job.lengths(factors, [self.transfer] * len(factors))

    def _ranks(self, known: frozenset[tuple[int, str]]) -> list[Culprit]:
        """Ranks that do more than their peers, step for step or in exceptions, and that the job would gain by.
        ``known``: who has been named, as what."""
        slow = self._slow_ranks(known)
        removed = {rank: part for rank, (_, part) in slow.items()}
        time = self.time
        matter = self._that_matter(self._machines(removed), removed)
        return [
            self._told(slow[rank][0], (rank,), (time[rank] * (1 - removed[rank]))[None], saving)
            for rank, saving in matter
        ]

    def _slow_ranks(self, known: frozenset[tuple[int, str]]) -> dict[int, tuple[str, Float]]:
        """Ranks that do more than their peers, most first: how (kind), and the factors without."""
        self._look()
        job, excess = self.job, self.excess_of_cause
        regular = ~self.is_exception & job.is_whole[:, None]
        counted = np.maximum(regular.sum(axis=1), 1)
        mean = np.where(regular, excess, 0).sum(axis=1) / counted  # rank, cause
        squares = np.where(regular, (excess - mean[:, None]) ** 2, 0).sum(axis=1)
        spread = np.zeros_like(mean)
        for members in (list(members) for members in job.stages if len(members) >= 4):
            if len(members) > 16:
                spread[members] = _spread(mean[members])
                continue
            for rank in members:  # its own difference is no measure of what is usual
                others = mean[[other for other in members if other != rank]]
                spread[rank] = np.minimum(_spread(others), others.std(axis=0, ddof=1))  # of few either errs by far
        is_sure = _is_sure(mean, squares / np.maximum(counted - 1, 1), counted, job.stages)
        differs = self.has_peers[:, None] & is_sure & (np.abs(mean) > LEAST_SPREADS * spread)
        is_slow = differs & (mean * job.steps > self.least_ns / 2)
        exceptions = np.where(self.is_exception, np.maximum(excess, 0), 0).sum(axis=1)
        has_them = (exceptions > self.least_ns / 2) & (exceptions >= ONE_RANKS_SHARE * exceptions.sum(axis=0))
        is_slow[[rank for rank, kind in known if kind == "rank"]] = False
        has_them[[rank for rank, kind in known if kind == "exceptions"]] = False
        has_them &= ~is_slow.any(axis=1, keepdims=True)  # first what it always does
        candidates = []
        for rank in np.flatnonzero((is_slow | has_them).any(axis=1)).tolist():
            size = (mean * job.steps * is_slow + exceptions * has_them)[rank].sum()
            candidates.append((float(size), rank))
        candidates.sort(key=lambda candidate: (-candidate[0], candidate[1]))
        ranks = [rank for _, rank in candidates[: 16 * AT_ONCE]]
        slow = {}
        for rank in ranks:
            # A slow device idles less than others: that comes back with the rest. Not where it runs dry in each step,
            # and others wait for the OS for longer: these are slow themselves.
            idles_less = (mean[rank] < 0) & ~_IS_BUSY & (is_slow[rank] & _IS_BUSY).any()
            runs_dry = (self.time[rank] @ self.by_cause).min(axis=0) > 0
            idles_less &= ~(runs_dry & is_slow.any(axis=0) & (np.arange(len(CAUSES)) == Cause.HOST_BLOCKED))
            always = differs[rank] & (is_slow[rank] | idles_less)
            kind = "rank" if is_slow[rank].any() else "exceptions"
            slow[rank] = kind, self._like_peers(rank, always, has_them[rank])
        return slow

    def _together(self, known: frozenset[tuple[int, str]]) -> list[Culprit]:
        """Ranks and links that hide each other: one gone, the other takes as long, and only both are worth it."""
        ranks, links = self._slow_ranks(known), self._slow_links()
        ranks = dict(list(ranks.items())[:AT_ONCE])
        suspects = [*((rank, -1) for rank in ranks), *((-1, group) for group in links)]
        if not ranks or not links:
            return []

        def without_these(chosen: Sequence[tuple[int, int]]) -> tuple[Float, Float]:
            """Factors and transfers without a set of them."""
            slow = {rank: ranks[rank][1] for rank, _ in chosen if rank >= 0}
            return self._with(slow), self._faster({group: links[group] for rank, group in chosen if rank < 0})

        def lengths(*sets: Sequence[tuple[int, int]]) -> list[float]:
            """The job's length without each of these sets."""
            factors, transfers = zip(*map(without_these, sets), strict=True)
            accused: list[float] = self.job.lengths(factors, transfers).tolist()
            return accused

        now, without, *back = lengths(
            (), suspects, *([other for other in suspects if other != suspect] for suspect in suspects)
        )
        kept = [
            suspect for suspect, length in zip(suspects, back, strict=True) if length - without >= self.least_ns / 2
        ]
        saving = now - lengths(kept)[0]
        if now - without < self.least_ns or saving < self.least_ns:
            return []
        saving = round(saving / len(kept))
        accused = []
        for rank, group in kept:
            if rank >= 0:
                kind, removed = ranks[rank]
                accused.append(self._told(kind, (rank,), (self.time[rank] * (1 - removed))[None], saving))
            else:
                accused.append(self._link(group, links[group], saving))
        self.factor, self.transfer = without_these(kept)
        return accused

    def _extras(self) -> list[Culprit]:
        """What one rank does in regions where none of its peers ever is, as a log or a checkpoint."""
        self._look()
        alone = np.where(self.is_alone[:, None], self.time, 0)
        size = alone.sum(axis=(1, 2))
        order = [rank for rank in np.argsort(-size, kind="stable").tolist() if size[rank] > self.least_ns / 2]
        removed = {rank: np.where(self.is_alone[rank], 0.0, np.ones_like(self.time[rank])) for rank in order}
        matter = self._that_matter([(rank,) for rank in order[:AT_ONCE]], removed)
        return [self._told("extra", (rank,), alone[rank][None], saving) for rank, saving in matter]

    def _like_peers(self, rank: int, always: npt.NDArray[np.bool_], exceptions: npt.NDArray[np.bool_]) -> Float:
        """Factors, shape (steps, keys), that make a rank do what its peers do of these causes, with its own ups and
        downs; and without the exceptions of those."""
        job = self.job
        time, usual, odd = self.time[rank], self.usual[rank], self.is_exception[rank][:, job.cause]
        always, exceptions = always[job.cause], exceptions[job.cause]
        own, theirs = np.where(odd, 0, time).sum(axis=0), np.where(odd, 0, usual).sum(axis=0)
        ratio = np.divide(theirs, own, out=np.ones_like(own), where=own > 0)
        # It does so many times what they do, or so much more in each step, whichever tells its steps better.
        more = (own - theirs) / np.maximum((~odd).sum(axis=0), 1)
        times_off, more_off = (
            np.where(odd, 0, np.abs(off)).sum(axis=0) for off in (time * ratio - usual, time - more - usual)
        )
        without = np.divide(np.maximum(time - more, 0), time, out=np.ones_like(time), where=time > 0)
        factor = np.where(always, np.where(more_off < times_off, without, ratio), 1.0)
        missing = float(theirs[always & (own <= 0)].sum())
        factor *= 1 + missing / max(float((time * factor).sum()), 1.0)
        back = np.divide(usual, time, out=np.ones_like(time), where=time > 0)
        like: Float = np.asarray(np.where(odd & exceptions, back, factor), np.float64)
        return np.where(self.is_alone[rank], 1.0, like)

    def _with(self, changes: dict[int, Float]) -> Float:
        factor: Float = self.factor.copy()
        for rank, change in changes.items():
            factor[rank] *= change
        return factor

    def _that_matter(self, suspects: Sequence[tuple[int, ...]], removed: dict[int, Float]) -> list[tuple[int, int]]:
        """The ranks without whose excess the job is shorter, and by how much each on top of those before it. Two that
        are equally slow matter only together. ``suspects``: ranks, those of one machine at once."""
        if not suspects:
            return []

        def without(some: Sequence[tuple[int, ...]]) -> Float:
            return self._with({rank: removed[rank] for members in some for rank in members})

        lengths = self._lengths([without(suspects[: number + 1]) for number in range(len(suspects))]).tolist()
        now, pending, accused = self._length(), [], []
        for suspect, length in zip(suspects, lengths, strict=True):
            pending.append(suspect)
            if now - length >= self.least_ns:
                accused.append((pending, now - length, length))
                now, pending = length, []
        every = [suspect for together, _, _ in accused for suspect in together]
        matter = []
        for together, saving, length in accused:
            kept = list(together)
            if len(kept) > 1:
                back = (
                    self._lengths([without([other for other in every if other != suspect]) for suspect in together])
                    - length
                )
                kept = [
                    suspect for suspect, loss in zip(together, back.tolist(), strict=True) if loss >= self.least_ns / 2
                ]
            named = [rank for suspect in kept for rank in suspect]
            matter += [(rank, round(saving / len(named))) for rank in named]
        self.factor = self._with({rank: removed[rank] for rank, _ in matter})
        return matter

    def _machines(self, removed: dict[int, Float]) -> list[tuple[int, ...]]:
        """The ranks of which parts are ``removed``, in their order; those of one machine stand together where all of
        them have about as much of one cause removed."""
        excess = {rank: (self.time[rank] * (1 - part)).sum(axis=0) @ self.by_cause for rank, part in removed.items()}
        of_host: dict[str, list[int]] = {}
        for rank, summary in enumerate(self.job.summaries):
            of_host.setdefault(summary.host, []).append(rank)
        machine_of: dict[int, tuple[int, ...]] = {rank: (rank,) for rank in removed}
        for host, ranks in of_host.items():
            if host and set(ranks) <= set(removed):
                most = np.array([excess[rank].max() for rank in ranks])
                is_one_cause = len({int(excess[rank].argmax()) for rank in ranks}) == 1
                if is_one_cause and most.min() >= HALF * most.max():
                    machine_of |= dict.fromkeys(ranks, tuple(ranks))
        return list(dict.fromkeys(machine_of.values()))

    def _told(self, kind: str, ranks: tuple[int, ...], excess: Float, saving: int, stage: int = -1) -> Culprit:
        """Which cause and region the excess (members, steps, keys) lies in."""
        job = self.job
        by_key = excess.sum(axis=(0, 1)) / len(ranks)
        by_cause = by_key @ self.by_cause
        cause = int(np.argmax(by_cause))
        keys = np.flatnonzero(job.cause == cause)
        best = int(keys[np.argmax(by_key[keys])])
        return Culprit(
            kind,
            ranks,
            Cause(cause),
            job.regions[int(job.region[best])],
            round(float(by_key.sum())),
            float(by_cause[cause] / max(float(np.maximum(by_cause, 0).sum()), 1.0)),
            min(saving, int(np.maximum(excess, 0).sum())),  # no more than what is gone, whatever the replay errs by
            int((excess.sum(axis=2).mean(axis=0) > 0).sum()),
            stage,
        )

    def _stages(self) -> list[Culprit]:
        """Stages of a pipeline that do more than the others. Of one rank: its own doing, unless it has more kernels."""
        job, stages, culprits = self.job, self.job.stages, []
        if len(stages) < 2:
            return []
        self._look()
        time = np.where(self.is_alone[:, None], 0, self.time)
        # Of each stage what its middle rank does (of two the lower), by step and cause: one slow rank is no slow stage.
        typical = [np.sort(time[list(stage)] @ self.by_cause, axis=0)[(len(stage) - 1) // 2] for stage in stages]
        mean = np.stack(typical)
        kernels = np.array([job.kernels[list(members)].mean() for members in stages])
        usual = np.stack([np.median(np.delete(mean, stage, axis=0), axis=0) for stage in range(len(stages))])
        excess = (mean - usual).sum(axis=2)[:, job.is_whole]
        variance = excess.var(axis=1, ddof=1) if excess.shape[1] > 1 else np.zeros(len(stages))
        counted = np.full((len(stages), 1), excess.shape[1])
        is_sure = _is_sure(excess.mean(axis=1)[:, None], variance[:, None], counted, [tuple(range(len(stages)))])[:, 0]
        order = np.argsort(-excess.mean(axis=1), kind="stable").tolist()
        for stage in order:
            if not is_sure[stage] or excess[stage].mean() * job.steps < self.least_ns / 2:
                continue
            members = list(stages[stage])
            own, theirs = mean[stage].sum(axis=0), usual[stage].sum(axis=0)
            by_cause = np.divide(theirs, own, out=np.ones_like(own), where=own > 0)
            by_cause = np.where(_IS_BUSY, np.minimum(by_cause, 1), by_cause)  # what it does less of, it goes on doing
            more = kernels[stage] / max(float(np.median(np.delete(kernels, stage))), 1.0) - 1
            longer = float(own.sum() / max(theirs.sum(), 1.0)) - 1
            is_rank = len(members) == 1 and more < longer / 2
            factor = self.factor.copy()
            if is_rank or not _IS_BUSY[int(np.argmax(own - theirs))]:
                factor[members] *= by_cause[job.cause]
            else:  # layers can be moved to other stages, not left out
                factor *= job.even.over_stages(time, _IS_BUSY[job.cause])
            saving = self._length() - self._length(factor)
            if saving < self.least_ns:
                continue
            self.factor = factor
            difference = time[members] * (1 - by_cause[job.cause])
            kind = "rank" if is_rank else "stage"
            culprits.append(self._told(kind, tuple(members), difference, round(saving), stage))
        return culprits

    def _links(self) -> list[Culprit]:
        """Groups whose transfers take longer than those of groups that send as much, and that the job would gain by."""
        culprits = []
        for group, parts in self._slow_links().items():
            transfer = self._faster({group: parts})
            saving = self._length() - float(self.job.lengths([self.factor], [transfer])[0])
            if saving >= self.least_ns:
                culprits.append(self._link(group, parts, round(saving)))
                self.transfer = transfer
        return culprits

    def _slow_links(self) -> dict[int, _Slow]:
        """By group: its slow transfers, and what their length would have to be multiplied by."""
        job, matched = self.job, self.job.aligned.matched
        transfer_ns = job.chain.transfer_ns if self.transfer is None else self.transfer
        alike: dict[tuple[str, int, int], dict[int, list[int]]] = {}
        for number, (kind, size, group) in enumerate(
            zip(matched.kind, matched.bytes.tolist(), matched.group.tolist(), strict=True)
        ):
            if size >= 0 and matched.expected[number] == matched.size[number]:
                same = alike.setdefault((kind, size, int(matched.expected[number])), {})
                same.setdefault(group, []).append(number)
        slow: dict[int, _Slow] = {}
        for of_group in alike.values():
            if len(of_group) < 2:
                continue
            typical = {group: float(np.median(transfer_ns[rows])) for group, rows in of_group.items()}
            for group, rows in sorted(of_group.items()):
                usual = float(np.median([value for other, value in typical.items() if other != group]))
                if typical[group] > SLOW_LINK * usual:
                    slow.setdefault(group, []).append((rows, usual / typical[group]))
        return dict(sorted(slow.items()))

    def _faster(self, links: dict[int, _Slow]) -> Float:
        """Transfers as they are by now, with these as fast as others."""
        transfer = self.job.chain.transfer_ns if self.transfer is None else self.transfer
        for rows, ratio in (part for parts in links.values() for part in parts):
            transfer = transfer.copy()
            transfer[rows] *= ratio
        return transfer

    def _link(self, group: int, parts: _Slow, saving: int) -> Culprit:
        transfer = self.job.chain.transfer_ns if self.transfer is None else self.transfer
        excess = sum(float(transfer[rows].sum() * (1 - ratio)) for rows, ratio in parts)
        members = self.job.aligned.matched.groups[group]
        return Culprit("link", members, Cause.GPU_COMM, (), round(excess), 1.0, saving, len(parts[0][0]))

    def _random(self, *, is_even: bool = False) -> Chance | None:
        """What is left where ranks take turns at being late: what even steps would save (``is_even``: surely these, not
        steps without exceptions), and what they are uneven in."""
        job = self.job
        self._look()
        now = self._length()
        even = self._balanced()
        odd = self.is_exception[:, :, job.cause]
        usual = np.divide(self.usual, self.time, out=np.ones_like(job.time), where=self.time > 0)
        clipped = self.factor * np.where(odd, np.minimum(usual, 1), 1)
        candidates = []
        for instead in (clipped, even):  # exceptions first: where they explain it, the rest is ordinary
            by_key = np.where(self.evened, 0, np.maximum(job.time * (self.factor - instead), 0).sum(axis=(0, 1)))
            cause = int(np.argmax(by_key @ self.by_cause))
            if cause in _LASTING:
                return None
            only = np.where(job.cause == cause, instead, self.factor)
            saving = now - self._length(only)
            keys = np.flatnonzero(job.cause == cause)
            if len(keys):
                region = job.regions[int(job.region[int(keys[np.argmax(by_key[keys])])])]
                candidates.append((saving, Cause(cause), region, only))
        if not candidates:
            return None
        explains = not is_even and candidates[0][0] > max(candidates[-1][0] * _EXPLAINS, 0)
        saving, why, where, factor = candidates[0] if explains else candidates[-1]
        late = np.maximum(job.time * (self.factor - factor), 0).sum(axis=2)  # of each rank in each step
        most = max(late.sum(axis=1).max(), late.sum(axis=0).max())
        if most > NEARLY_ALL * late.sum():  # it is always the same, or only once
            return None
        self.factor = factor
        return Chance(why, where, max(round(min(saving, late.sum())), 0))

    def _micro_batches(self, chance: list[Chance]) -> list[Chance]:
        """``chance`` with what even stretches within the steps would save besides, where these differ by far more than
        kernels do."""
        job, left_ns = self.job, self._length()
        if left_ns - job.even_length(self.factor, self.transfer) < LEAST_RANDOM_SHARE * left_ns:
            return chance
        time = (job.time * self.factor).sum(axis=(0, 1))
        cause = max(range(len(CAUSES)), key=lambda cause_index: self._longer_ns(job.cause == cause_index).sum())
        of_cause = job.cause == cause
        if not of_cause.any() or cause in _LASTING:
            return chance
        longer = self._longer_ns(of_cause)
        if 2 * longer.sum() < LEAST_UNEVEN * time[of_cause].sum() or longer.max() > NEARLY_ALL * longer.sum():
            return chance
        saving = round(left_ns - job.even_length(self.factor, self.transfer, of_cause))
        if saving < LEAST_RANDOM_SHARE * left_ns:
            return chance
        keys = sorted(np.flatnonzero(of_cause).tolist(), key=lambda key: -float(time[key]))[:_MOST_PARTS]
        worst = max(keys, key=lambda key: self._longer_ns(np.arange(len(job.cause)) == key).sum())
        self.evened, self.least_ns = of_cause, LEAST_SHARE * (left_ns - saving)
        before = [turn for turn in chance if turn.cause == cause]
        if before:
            more = replace(before[0], saving_ns=before[0].saving_ns + saving)
            return [more if turn is before[0] else turn for turn in chance]
        return [*chance, Chance(Cause(cause), job.regions[int(job.region[worst])], saving)]

    def _longer_ns(self, keys: npt.NDArray[np.bool_]) -> Float:
        """By how much each rank's stretches of what is in ``keys`` are longer than those like them."""
        if not keys.any():
            return np.zeros(len(self.job.summaries))
        return self.job.longer_ns(np.where(keys, self.factor, 0.0))

    def _balanced(self) -> Float:
        """Every rank of a stage does the mean of it in each step."""
        job = self.job
        time = job.time * self.factor
        factor = self.factor.copy()
        for members in job.stages:
            rows = list(members)
            if len(rows) > 1:
                mean = time[rows].mean(axis=0, keepdims=True)
                factor[rows] *= np.divide(mean, time[rows], out=np.ones_like(time[rows]), where=time[rows] > 0)
        balanced: Float = factor
        return balanced

    def _what_if(self) -> tuple[Change, ...]:
        """The job's length if something were gone on all ranks: of all kinds of work, and of the largest parts."""
        job = self.job
        plain = np.ones_like(job.time)
        asked: list[Change] = []
        factors, transfers = [], []

        def ask(
            name: str,
            factor: Float,
            transfer: Float | None = None,
            cause: Cause | None = None,
            region: tuple[str, ...] = (),
        ) -> None:
            asked.append(Change(name, 0, cause, region))
            factors.append(factor)
            transfers.append(transfer)

        ask("transfer_free", plain, np.zeros_like(job.chain.transfer_ns))
        ask("transfer=2", plain, job.chain.transfer_ns / 2)
        ask("kernels=2", np.where(job.cause == Cause.GPU_COMPUTE, 0.5, 1.0) * plain)
        by_key = job.time.sum(axis=(0, 1))
        present = by_key @ self.by_cause
        for cause in map(Cause, range(len(CAUSES))):
            if present[cause] > 0 and cause != Cause.UNATTRIBUTED:
                ask(f"without {cause.key}", np.where(job.cause == cause, 0.0, 1.0) * plain, None, cause)
        largest = [key for key in np.argsort(-by_key, kind="stable").tolist() if job.cause[key] not in _LASTING]
        for key in [key for key in largest if job.regions[job.region[key]]][:_MOST_PARTS]:
            cause, region = Cause(int(job.cause[key])), job.regions[int(job.region[key])]
            factor = np.where(np.arange(len(job.cause)) == key, 0.0, 1.0) * plain
            ask(f"without {cause.key} in {'/'.join(region)}", factor, None, cause, region)
        lengths = job.lengths(factors, transfers).tolist()
        balance = Change("balance", max(round(job.balanced_length()), 0))
        rest = (
            replace(prediction, length_ns=max(round(length), 0))
            for prediction, length in zip(asked, lengths, strict=True)
        )
        return (balance, *rest)
