"""One program as two profilers write it gives one verdict and one account."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.two_profilers import compare, run_of

#: Seeds of simulated programs: patterns and mixtures of one process.
SEEDS = (0, 1, 3, 4, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_both_formats_hold_gives_the_same(seed: int, tmp_path: Path) -> None:
    run = run_of(seed)
    assert run is not None
    pair = compare(seed, run, tmp_path)
    assert pair.is_same_verdict, pair.bounds
    assert pair.is_same_account, pair.moved
