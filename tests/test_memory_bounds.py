"""Memory is bounded by the size of a trace, whatever its shape (``python -m benchmarks.memory`` has more shapes)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks import memory

from boundby import api
from boundby.api import Analysis
from boundby.model import intervals, stage
from boundby.model.errors import OutOfMemoryError, OutOfTimeError
from boundby.model.library import run
from boundby.native import passes
from boundby.replay import build, events

SAMPLE = Path(__file__).parents[1] / "sample_reports" / "simulated_sync.sqlite"
STREAMS = 3


def test_streams_that_wait_for_each_other_keep_one_operation_of_each_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without launches between, a set of all earlier points grew by 1.37 a round: 50 rounds took 6.8 GB."""
    seen: list[events.Events] = []

    def resolved(*arguments: object) -> events.Events:
        seen.append(events.resolve_events(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(build, "resolve_events", resolved)
    analysis = Analysis(memory.crossed(600, STREAMS).write(tmp_path / "crossed.sqlite"))
    assert analysis.predictor
    assert 0 < len(seen[0].operations.who) <= STREAMS * len(analysis.trace.operations)


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets stages whose name begins so take all memory."""

    def grow(name: str) -> None:
        def resident() -> int:
            current = stage._current.get()
            is_it = current is not None and current.doing.startswith(name)
            return 1 << 50 if is_it and hasattr(current, "looked_s") else 0

        monkeypatch.setattr(stage, "resident", resident)
        monkeypatch.setattr(stage, "LOOK_EVERY_S", 0.0)

    return grow


@pytest.mark.parametrize(
    ("given", "is_over"),
    [
        ({"events": 0}, True),  # what is usual for so few events
        ({"events": 0, "most_bytes": 2 << 30}, False),  # somebody allows more
        ({"events": 1 << 30, "most_bytes": 1 << 20}, True),  # or less
        ({"events": 1 << 30, "room_bytes": 1 << 20}, True),
        ({"events": 0, "room_bytes": 2 << 30}, True),  # that there is room is no leave
    ],
)
def test_who_allows_more_memory_gets_it(given: dict[str, int], is_over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    grown = iter([0])
    monkeypatch.setattr(stage, "resident", lambda: next(grown, 1 << 30))
    monkeypatch.setattr(stage, "LOOK_EVERY_S", 0.0)
    with stage.stage("something", **given):
        assert isinstance(stage.over(), OutOfMemoryError) == is_over


def test_replays_that_take_all_memory_leave_the_account_to_decide(growing: Callable[[str], None]) -> None:
    growing("replaying")
    report = api.analyze(SAMPLE)
    assert report.what_if == ()
    assert report.devices[0].verdict.decided_by == "account"
    with pytest.raises(OutOfMemoryError, match=r"Replaying took over .* MB of memory\."):
        api.what_if(SAMPLE, ["no_sync"])


def test_an_account_that_takes_all_memory_is_one_sentence(growing: Callable[[str], None]) -> None:
    growing("accounting")
    with pytest.raises(OutOfMemoryError, match=r"Accounting .* took over .* MB of memory\. .*--max-memory"):
        api.analyze(SAMPLE)


def test_what_waits_and_does_not_work_is_late_by_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(stage, "wall", lambda: now[0])
    monkeypatch.setattr(stage, "clock", lambda: 0.0)
    with stage.stage("reading a view"):
        with stage.stage("something inside"):
            now[0] += stage.WALL_FACTOR * stage.LEAST_S
        stage.check()
        now[0] += stage.WALL_FACTOR * stage.LEAST_S
        stage.check()
        now[0] += 1
        with pytest.raises(OutOfTimeError, match="took over 180 s of waiting and CPU time"):
            stage.check()


def test_work_grows_with_threads_and_not_with_their_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads of a process launch in turn, and sleep: what runs meanwhile is worked out once for all of them."""

    def calls_of_the_core(threads: int) -> int:
        counted = 0

        def count(function: str, *arguments: Any) -> int:
            nonlocal counted
            counted += 1
            return run(function, *arguments)

        export = memory.threads(10 * threads, threads).write(tmp_path / f"{threads}.sqlite")
        for module in (intervals, passes):
            monkeypatch.setattr(module, "run", count)
        assert Analysis(export).report
        return counted

    assert calls_of_the_core(80) < 3 * calls_of_the_core(40)
