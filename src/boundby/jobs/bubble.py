"""What ranks of a pipeline wait while its stages fill and drain in each step: its bubble.

The first micro-batch of a step has to pass all stages before the last one is at work, and the last one all of them
before the step is over. Even stages wait for that, too: for as long as one micro-batch takes the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from boundby.jobs.diagnosis import Job
from boundby.jobs.meetings import is_passing
from boundby.model.arrays import BoolArray, Int64Array, factorize
from boundby.model.causes import Cause
from boundby.model.scale import HALF
from boundby.results.job_report import Pipeline

#: Micro-batches are what is counted where so much of the kernels' time is in regions that are entered as often.
_MOSTLY = HALF
#: Stages that fill and drain wait at least so much of what the work of a micro-batch says: else they run otherwise, as
#: parts of the model that are dealt out in turns do (an interleaved schedule).
_LEAST_OF_EXPECTED = HALF
#: Device waits and what nobody knows are no work of a micro-batch.
_NO_WORK = (Cause.DEVICE_WAIT, Cause.UNATTRIBUTED)


def pipeline_of(job: Job, waits_ns: Sequence[int], balance_ns: float) -> Pipeline | None:
    """The job's pipeline and its bubble; None: it has none, or how many micro-batches a step has cannot be counted.

    ``waits_ns``: what each rank waits for others over the run; ``balance_ns``: what the job would gain by perfect
    balance, which is no part of the bubble.
    """
    passes = _passes_by_stage(job)
    if passes is None:
        return None
    counts = _entries_by_region(job)
    micro = _most_common(job, counts)
    if micro is None or not _fits(micro, passes):
        return None
    keys = (counts == micro)[job.region] & ~np.isin(job.cause, _NO_WORK)
    of_rank = job.time[:, :, keys].sum(axis=(1, 2))
    of_stage = np.array([of_rank[list(members)].mean() for members in job.stages])
    # The busiest stage does all its micro-batches, and waits for one in each of the others.
    expected_ns = float(of_stage.sum() - of_stage.max()) / micro
    left_ns = float(np.mean(waits_ns)) - balance_ns
    if not of_stage.all() or left_ns < _LEAST_OF_EXPECTED * expected_ns:
        return None
    # The job is no longer by it than its busiest rank waits: what others wait for that one is its work.
    bubble_ns = min(expected_ns, left_ns, waits_ns[int(of_rank.argmax())])
    return Pipeline(
        stages=len(job.stages), micro_batches=micro, bubble_ns=round(bubble_ns), saving_ns=round(bubble_ns / 2)
    )


def _passes_by_stage(job: Job) -> Int64Array | None:
    """How often each stage but the last and the one behind it pass something on to each other in a step; None: the
    stages are no row in which each has the next one as its neighbour, or they do so now more, now less often."""
    matched, last = job.aligned.matched, len(job.stages) - 1
    stage_of = {rank: stage_index for stage_index, members in enumerate(job.stages) for rank in members}
    beside = {
        number: min(stage_of[rank] for rank in members)
        for number, members in enumerate(matched.groups)
        if len(members) == 2 and abs(stage_of[members[0]] - stage_of[members[1]]) == 1
    }
    passes: list[set[float]] = [set() for _ in range(last)]
    passing = _is_passing(job)
    groups = matched.group[passing]
    if last < 1 or not set(groups.tolist()) <= set(beside):
        return None
    before = np.array([beside.get(number, -1) for number in range(len(matched.groups))], np.int64)
    for index, summary in enumerate(job.summaries):
        instance = matched.instance_of(index, len(summary.meetings))[summary.events.meeting]
        arrives = ~summary.events.is_join & (instance >= 0) & np.append(passing, False)[instance]
        step = np.searchsorted(summary.step_ns, summary.events.time_ns[arrives], "right") - 1
        pair = before[matched.group[instance[arrives]]]
        for stage in sorted({stage_of[index] - 1, stage_of[index]} & set(range(last))):
            times = np.bincount(step[(pair == stage) & (step >= 0)], minlength=len(summary.step_ns))
            passes[stage].add(float(np.median(times)) if len(times) else 0.0)
    if any(len(times) != 1 or not min(times).is_integer() for times in passes):
        return None
    return np.array([min(times) for times in passes], np.int64)


def _is_passing(job: Job) -> BoolArray:
    """Per instance: whether one stage passes on to another."""
    kinds = {kind: is_passing(kind) for kind in set(job.aligned.matched.kind)}
    return np.array([kinds[kind] for kind in job.aligned.matched.kind], bool)


def _entries_by_region(job: Job) -> Int64Array:
    """Per region of the job: how often in a step its kernels run anew after something was passed on, the same on all
    ranks that have it; -1: not the same."""
    counts = np.zeros((len(job.summaries), len(job.regions)))
    for rank, times in enumerate(_entries_by_rank(job)):
        counts[rank] = np.median(times, axis=1) if times.size else 0
    most, least = counts.max(axis=0), np.where(counts > 0, counts, np.inf).min(axis=0)
    same = (most == least) & (most == np.floor(most))
    entries: Int64Array = np.where(same, most, -1).astype(np.int64)
    return entries


def _entries_by_rank(job: Job) -> Iterator[Int64Array]:
    """Of each rank the same in each of its steps, shape (regions, steps)."""
    matched, passing = job.aligned.matched, np.append(_is_passing(job), False)
    for rank, summary in enumerate(job.summaries):
        instance = matched.instance_of(rank, len(summary.meetings))[summary.events.meeting]
        since = np.append(0, np.cumsum(passing[instance]))  # how much had been passed on before each event
        rows = np.flatnonzero((summary.work.cause == Cause.GPU_COMPUTE) & (summary.work.step >= 0))
        region, step = job.regions_of[rank][summary.work.region[rows]], summary.work.step[rows].astype(np.int64)
        entries = factorize(region, step, since[summary.work.event[rows]])[0]
        times = np.zeros((len(job.regions), len(summary.step_ns)), np.int64)
        np.add.at(times, (entries[:, 0], entries[:, 1]), 1)
        yield times


def _most_common(job: Job, counts: Int64Array) -> int | None:
    """The number of times that most of the kernels' time is entered a step; None: no such."""
    kernels = np.where(job.cause == Cause.GPU_COMPUTE, job.time.sum(axis=(0, 1)), 0.0)
    counted = counts[job.region]
    by_count = np.bincount(np.maximum(counted, 0), np.where(counted > 0, kernels, 0.0))
    most = int(by_count.argmax())
    return most if by_count[most] > _MOSTLY * kernels.sum() else None


def _fits(micro: int, passes: Int64Array) -> bool:
    """Whether so many micro-batches pass stages so often: forward, forward and backward, or with what goes forward and
    what comes back at the same time as one, as stages do that take turns at both (1F1B)."""
    behind = np.arange(len(passes), 0, -1)
    return any(
        np.array_equal(passes, expected) for expected in (0 * behind + micro, 0 * behind + 2 * micro)
    ) or np.array_equal(passes, micro + np.minimum(behind, micro))
