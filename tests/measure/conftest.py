"""What measurements share in tests: a heap without what other tests left, and runs that are short on the real clock."""

from __future__ import annotations

import gc

import pytest

from boundby.measure import comparisons, sampling, sweeps


@pytest.fixture(scope="module", autouse=True)
def _nothing_else_to_collect() -> None:
    """Garbage is collected before every trial: what other tests made in this worker is none of it."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured on the real clock, but for a fraction of the time: the figures are noise, all else is as ever."""
    for module, name in (
        (sweeps, "_LATENCY_BUDGET_S"),
        (sweeps, "_BATCHES_NS"),
        (sweeps, "_BEST_NS"),
        (comparisons, "_ROUND_NS"),
        (sweeps, "_BUDGET_S"),
        (sampling, "MIN_WARMUP_NS"),
    ):
        whole = getattr(module, name)
        monkeypatch.setattr(module, name, type(whole)(whole / 20))
