"""A seeded part of ``python -m benchmarks.kills``: what was saved survives a kill at any instant."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import kills

from boundby import api
from boundby.render import store
from boundby.results import saved


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_results_survive_kills_at_any_instant(tmp_path: Path) -> None:
    found = kills.run(12, 3, tmp_path)
    assert set(found) <= {"killed at work", "had ended"}
    assert kills.count(tmp_path) >= 2


def test_what_is_lost_would_be_told(tmp_path: Path) -> None:
    report = api.analyze(kills._SAMPLE)
    kills.put(tmp_path, report, saved.render(report))
    assert kills.wrong(tmp_path, [saved.render(report)], 1) == ""
    assert kills.wrong(tmp_path, ["another"], 1) == "result.json is half-written"
    assert kills.wrong(tmp_path, [saved.render(report)], 2) == "runs.db has lost 1 reports"
    with store._open(tmp_path / "runs.db") as database:
        database.execute("INSERT INTO reports (path) VALUES ('half')")
    assert "devices" in kills.wrong(tmp_path, [saved.render(report)], 1)
