"""Waits for the interpreter's lock are told from other waits by their backtraces."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from boundby.results.report import Finding
from boundby.rules.builtin.host_wait import RULE
from boundby.trace.stacks import Backtraces, Frames, LazyBacktraces, StackEvents, StackSource
from boundby.trace.tables import Trace
from tests.rules.builtin.case_host_wait import waits_for_a_lock
from tests.rules.builtin.harness import findings


def told(symbol: str) -> Finding:
    """The finding, if every OS call of the program was made by this function."""

    def change(trace: Trace) -> Trace:
        calls = trace.os_calls
        events = StackEvents(
            calls.start_ns,
            calls.thread,
            np.full(len(calls), StackSource.OS, np.int8),
            np.zeros(len(calls), np.int32),
        )
        frames = Frames(
            np.array([0, 1], np.int32),
            np.array([2, 3], np.int32),
            np.zeros(2, np.int32),
            np.ones(2, bool),
            np.zeros(2, bool),
        )
        names = ("pthread_cond_timedwait", symbol, "libc.so.6", "python3.11")
        stacks = Backtraces(events, np.array([0, 2]), np.array([0, 1], np.int32), frames, names)
        captured = replace(trace.captured, backtraces=True)
        return replace(trace, backtraces=LazyBacktraces(lambda: stacks), captured=captured)

    (found,) = findings(waits_for_a_lock().changed(change), RULE)
    return found


@pytest.mark.parametrize(
    ("symbol", "text"), [("take_gil", "for the interpreter's lock (GIL)"), ("publish_results", "for a lock")]
)
def test_the_backtrace_tells(symbol: str, text: str) -> None:
    assert text in told(symbol).title
