"""A seeded part of ``python -m benchmarks.fuzz``: damaged inputs give one sentence, or a result that holds."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks import fuzz

#: How many of each kind: a few CPU seconds.
CASES = {"sqlite": 8, "beside": 6, "counters": 6, "kineto": 20, "saved-json": 12, "jobs": 4}


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


def test_a_part_that_follows_coverage(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="pip install atheris, on Linux, to follow coverage")
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "benchmarks.fuzz_guided", "--kind", "kineto", "--cases", "150", "--seed", "7"]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done 150 runs" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_crashes_noise_and_hangs_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(*uses: Callable[[Path], object]) -> str | list[str]:
        return fuzz.isolated(lambda: (fuzz.outcome(use, tmp_path) for use in uses), tmp_path)

    assert of(lambda _: None, lambda _: None) == [fuzz.REPORT] * 2
    assert of(lambda _: None, lambda _: os.kill(os.getpid(), signal.SIGKILL)) == "ended by SIGKILL"
    assert of(lambda _: os.write(2, b"warning")) == "on stderr: warning"
    assert "ZeroDivisionError" in of(lambda _: None, lambda _: 1 // 0)[1]
    assert "SystemExit" in of(lambda _: sys.exit(3))
    monkeypatch.setattr(fuzz, "LONGEST_S", 1)
    assert of(lambda _: time.sleep(900)) == "over 1 s"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_failures_are_told_by_the_seeds_that_bring_them_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_text("whole")

    def write(path: Path, chance: random.Random) -> None:
        path.write_text(str(chance.random()))

    def use(path: Path) -> None:
        if path.read_text() in bad:
            os.kill(os.getpid(), signal.SIGKILL)

    def drawn(seed: int) -> str:
        chance = random.Random(seed)
        chance.random()  # for the source
        return str(chance.random())

    bad = {drawn(7), drawn(13)}
    monkeypatch.setitem(fuzz.KINDS, "any", fuzz.Kind(lambda *_: [source], write, use))
    told: list[str] = []
    found = fuzz.run("any", 20, 0, None, told.append)
    assert found == {fuzz.REPORT: 18, "ended by SIGKILL": 2}
    failures = [text for text in told if "seed" in text]
    assert failures == ["any --seed 7: ended by SIGKILL", "any --seed 13: ended by SIGKILL"]
