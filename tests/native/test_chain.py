"""A job replayed natively takes as long as in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.simulated.jobs import Job, simulate
from benchmarks.simulated.summaries import summaries

from boundby.jobs.diagnosis import Job as Joined
from boundby.jobs.merge import choose
from boundby.model import library
from boundby.native import chain


@pytest.mark.skipif(library.core() is None, reason=f"no native core: {library.why_not()}")
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "core", lambda: None)
        plain = joined.chain.replay(factor, transfer)
    assert native.shape == (job.ranks, 5)
    assert np.array_equal(native, plain)
