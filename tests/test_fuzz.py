"""A seeded part of ``python -m benchmarks.fuzz``: damaged inputs give one sentence, or a result that holds."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from benchmarks import fuzz

#: How many of each kind: a few CPU seconds.
CASES = {"sqlite": 25, "kineto": 60, "saved-json": 40, "jobs": 10}


@pytest.mark.parametrize("name", fuzz.KINDS)
def test_damage_gives_a_sentence_or_a_result_that_holds(name: str, tmp_path: Path) -> None:
    kind = fuzz.KINDS[name]
    (tmp_path / "sources").mkdir()
    sources = kind.sources(tmp_path / "sources", None)
    outcomes = set()
    for seed in range(CASES[name]):
        (tmp_path / f"{seed}").mkdir()
        what = fuzz.outcome(kind.use_of(seed), fuzz.make(kind, sources, seed, tmp_path / f"{seed}"))
        assert what in (fuzz.SENTENCE, fuzz.REPORT), f"seed {seed}: {what}"
        outcomes.add(what)
    assert fuzz.REPORT in outcomes


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_crashes_noise_and_hangs_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "LONGEST_S", 1)
    path = tmp_path / "any"
    assert fuzz.isolated(lambda _: None, path) == fuzz.REPORT
    assert fuzz.isolated(lambda _: os.kill(os.getpid(), signal.SIGKILL), path) == "ended by SIGKILL"
    assert fuzz.isolated(lambda _: os.write(2, b"warning"), path) == "on stderr: warning"
    assert fuzz.isolated(lambda _: time.sleep(9), path) == "over 1 s"
    assert "ZeroDivisionError" in fuzz.isolated(lambda _: 1 // 0, path)
