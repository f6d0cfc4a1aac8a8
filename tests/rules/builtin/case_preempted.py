"""A thread whose core others take, one that has it for itself, and schedules that were not captured."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from boundby.simulate.instructions import MS, US, Launch, Loop, Range, Sleep, Sync, Work, program
from boundby.trace.tables import Trace
from tests.rules.builtin.harness import RuleCases, Source, without


def _steps() -> Source:
    def seen(trace: Trace) -> Trace:
        return replace(trace, captured=replace(trace.captured, osrt=True))

    step = Range("step {i}", [Work(10 * MS), Launch("part", 500 * US), Sync(), Sleep(5 * US, on="read")])
    return Source(program(Loop(20, [step]), Sync())).changed(seen)


def alone() -> Source:
    return _steps()


def crowded() -> Source:
    """Of every 10 ms of work the thread has its core for one half only."""

    def take(trace: Trace) -> Trace:
        schedule, ranges = trace.schedule, trace.ranges
        main = int(ranges.thread[0])
        out = ranges.start_ns + 2 * MS
        into = ranges.start_ns + 8 * MS
        crowded = replace(
            schedule,
            start_ns=np.concatenate((schedule.start_ns, out, into)),
            thread=np.concatenate((schedule.thread, np.full(2 * len(out), main, np.int32))),
            is_in=np.concatenate((schedule.is_in, np.zeros(len(out), bool), np.ones(len(out), bool))),
        )
        return replace(trace, schedule=crowded.sorted())

    source = _steps()
    return source.changed(lambda trace: take(source.change(trace) if source.change else trace))


def without_schedule() -> Source:
    return without(crowded(), "schedule")


CASES = RuleCases(
    positive=crowded, negative=alone, missing=without_schedule, also=("host-work", "host-wait", "sync-call")
)
