"""A job replayed natively takes as long as in plain Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from benchmarks.simulated.jobs import Job, simulate
from benchmarks.simulated.summaries import summaries

from boundby.jobs.diagnosis import Job as Joined
from boundby.jobs.merge import choose
from boundby.native.passes import NONE, Course

Float = npt.NDArray[np.float64]


@pytest.mark.parametrize(
    "job",
    [
        Job(data=3, steps=4, seed=1),
        Job(data=2, tensor=2, pipeline=2, micro=2, steps=3, seed=2),
        Job(data=5, steps=1, layers=1, skew_ns=500_000_000, seed=3),
    ],
)
def test_both_say_the_same(job: Job) -> None:
    ranks, aligned, _ = choose(summaries(job, simulate(job)))
    joined = Joined(ranks, aligned)
    chance = np.random.default_rng(job.seed)
    factor = chance.uniform(0, 2, (joined.time.size + 1, 5))
    factor[:, 0] = 1
    transfer = joined.chain.transfer_ns[:, None] * chance.uniform(0, 3, 5)
    native = joined.chain.replay(factor, transfer)
    time = np.repeat(joined.chain.begin_ns.astype(np.float64)[:, None], 5, axis=1)
    plain = _plain(joined.chain.course, factor, transfer, time, np.full(transfer.shape, -np.inf))
    assert native.shape == (job.ranks, 5)
    assert np.array_equal(native, plain)


def _plain(course: Course, factor: Float, transfer: Float, time: Float, latest: Float) -> Float:
    """The oracle."""
    slots, work_ns = len(course.work_at) - 1, course.work_ns
    slot = np.repeat(np.arange(slots), np.diff(course.work_at))
    own = np.empty((slots, factor.shape[1]))
    for variant in range(factor.shape[1]):
        own[:, variant] = np.bincount(slot, work_ns * factor[course.cell, variant], slots)
    for low, high in zip(course.turn_at[:-1].tolist(), course.turn_at[1:].tolist(), strict=True):
        event = course.order[low:high]
        rank, met, queue, is_join = (one[event] for one in (course.rank, course.instance, course.queue, course.is_join))
        now = time[rank] + (own[event + rank] + course.fixed_ns[event, None])
        joins = is_join & (met != NONE)
        now[joins] = np.maximum(
            now[joins], latest[met[joins]] + transfer[met[joins]] + course.lag_ns[event[joins], None]
        )
        time[rank] = now
        behind = ~is_join & (queue != NONE)
        begun = latest[queue[behind]] + transfer[queue[behind]] + course.lag_ns[event[behind], None]
        now[behind] = np.maximum(now[behind], begun)
        arrives = ~is_join & (met != NONE)
        np.maximum.at(latest, met[arrives], now[arrives])
    ended: Float = time + own[course.tail]
    return ended
