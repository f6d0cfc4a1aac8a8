"""One program as two profilers write it gives one verdict and one account."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.two_profilers import compare, run_of

#: Seeds of simulated programs: patterns and mixtures of one process.
SEEDS = (0, 1, 3, 4, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_give_the_same_or_what_json_cannot_hold_is_named(seed: int, tmp_path: Path) -> None:
    run = run_of(seed)
    assert run is not None
    pair = compare(seed, run, tmp_path)
    assert pair.is_same_account, pair.moved
    assert pair.is_same_verdict or pair.because == "how streams relate to the null stream", pair.bounds
