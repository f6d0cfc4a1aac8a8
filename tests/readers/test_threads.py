"""Threads and streams by the ten thousand: those that take turns count as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import boundby
from boundby.model import intervals
from boundby.model.intervals import taking_turns
from boundby.readers import read_trace, sanitize
from boundby.trace.stacks import Backtraces, LazyBacktraces, StackEvents, no_backtraces
from boundby.trace.tables import Trace
from tests.readers.kineto.trace import PID, Kineto
from tests.support.invariants import check_invariants

MOST = 20


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (intervals, sanitize):
        monkeypatch.setattr(module, "MOST_APART", MOST)


def lanes(path: Path, count: int, *, again: bool = False) -> Path:
    """Each operator on a thread and each kernel on a stream of its own; ``again``: all of them return at the end."""
    made = Kineto()
    made.event("cpu_op", "main", 0, 20.0 * count * (1 + again), tid=PID)
    for number in range(count * (1 + again)):
        lane, at = number % count, 20.0 * number
        made.event("cpu_op", "aten::mm", at, 18, tid=1000 + lane)
        made.event("cuda_runtime", "cudaLaunchKernel", at + 1, 5, tid=1000 + lane, args={"correlation": number + 1})
        made.kernel(at + 8, 10, number + 1, stream=7 + lane)
    return made.write(path)


def told(trace: Trace) -> str:
    return " ".join(warning.message for warning in trace.warnings if warning.code == "threads-in-turn")


def test_threads_that_live_one_after_the_other_are_one(tmp_path: Path) -> None:
    path = lanes(tmp_path / "lanes.json", MOST)
    trace = read_trace(path)
    assert [(thread.tid, thread.name) for thread in trace.threads] == [(PID, ""), (1000, f"{MOST} threads in turn")]
    assert told(trace).startswith(f"Process {PID} has {MOST + 1} threads, which are shown as 2: those that live one")
    assert "still there are" not in told(trace)
    assert (np.diff(trace.api.start_ns) > 0).all()
    assert (len(trace.api), len(trace.ranges)) == (MOST, MOST + 1)
    report = boundby.analyze(path)
    check_invariants(report)
    assert "threads-in-turn" in {warning.code for warning in report.trace.warnings}


def test_of_those_that_live_at_once_some_share_a_thread(tmp_path: Path) -> None:
    path = lanes(tmp_path / "lanes.json", 3 * MOST, again=True)
    trace = read_trace(path)
    assert len(trace.threads) == MOST
    assert "too many to tell all of them apart" in told(trace)
    assert trace.threads[0].tid == PID
    assert len(trace.api) == 6 * MOST
    check_invariants(boundby.analyze(path))


def test_few_threads_stay_what_they_are(tmp_path: Path) -> None:
    trace = read_trace(lanes(tmp_path / "lanes.json", MOST - 1))
    assert len(trace.threads) == MOST
    assert not told(trace)


def test_each_has_a_lane_of_its_own_while_they_are_few() -> None:
    who, at = np.repeat(np.arange(2 * MOST), 2), np.arange(4 * MOST)
    assert taking_turns(who[: 2 * MOST], MOST, at[: 2 * MOST], at[: 2 * MOST] + 1).tolist() == list(range(MOST))
    assert not taking_turns(who, 2 * MOST, at, at + 1).any()


def test_backtraces_follow_their_threads() -> None:
    events = StackEvents(
        np.array([5, 9, 7]), np.array([0, 1, 2], np.int32), np.zeros(3, np.int8), np.arange(3, dtype=np.int32)
    )
    empty = no_backtraces()
    read = Backtraces(events, empty.first, empty.frame, empty.frames, ())
    moved = LazyBacktraces(lambda: read).of_threads(np.array([1, 0, 1])).load().events
    assert (moved.thread.tolist(), moved.start_ns.tolist(), moved.stack.tolist()) == ([0, 1, 1], [9, 5, 7], [1, 0, 2])
