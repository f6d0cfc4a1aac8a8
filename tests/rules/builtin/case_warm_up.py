"""First steps that take longer, steps that are alike, and a program without ranges."""

from __future__ import annotations

from boundby.simulate.instructions import MS, US, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without

KERNELS = [Launch(f"part_{number}", 150 * US) for number in range(6)]


def _program(first_ns: int) -> Source:
    first = [Work(first_ns), *KERNELS, Sync()]
    step = [Work(20 * US), *KERNELS, Sync()]
    return Source(
        program(
            Launch("start", 10 * US),
            Range("step 0", first),
            Range("step 1", first),
            Loop(20, [Range("step {i}", step)]),
        )
    )


def slow_first() -> Source:
    return _program(5 * MS)


def alike() -> Source:
    return _program(20 * US)


def without_ranges() -> Source:
    return without(slow_first(), "ranges")


CASES = RuleCases(
    positive=slow_first, negative=alike, missing=without_ranges, also=("host-work", "sync-call", "host-phase")
)
