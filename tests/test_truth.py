"""Real traces whose truth is stated: verdict and first screen agree with what an expert read from the rows."""

from __future__ import annotations

import pytest
from benchmarks import court

from tests.support.traces import ABSENT, analysis_of, traces_folder

STATED = court.truths(folder) if (folder := traces_folder()) else {}
#: Told wrongly today, each by an issue that is open.
OPEN: set[str] = set()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason="an open issue names it")] * (name in OPEN))
        for name in sorted(STATED) or [ABSENT]
    ],
)
def test_verdict_and_screen_agree_with_the_truth(name: str) -> None:
    if name == ABSENT:
        pytest.skip("no real traces to test on")
    judged = court.judge(name, analysis_of(name).report, STATED[name])

    assert judged.is_good, court.line(judged, STATED[name])
