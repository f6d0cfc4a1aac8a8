"""Damaged traces give a sentence, or a report that adds up (``benchmarks.damaged_traces`` does it far more often)."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.damaged_traces import outcome

from tests.readers.kineto.test_reader import small
from tests.support.damaged_json import damaged

SEEDS = 150


def test_damage_gives_a_sentence_or_a_report_that_adds_up(tmp_path: Path) -> None:
    text, path = small().text().encode(), tmp_path / "damaged.json"
    for seed in range(SEEDS):
        path.write_bytes(damaged(text, random.Random(seed)))
        assert not outcome(path, is_whole=seed % 3 == 0).startswith("Traceback"), seed
