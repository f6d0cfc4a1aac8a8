"""A scalar read back in every step, and one that is read once at the end."""

from __future__ import annotations

from boundby.simulate.instructions import US, Launch, Loop, Range, Work, item, program
from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def positive() -> Source:
    return pattern("sync")


def read_at_the_end() -> Source:
    layers = [part for _ in range(4) for part in (Work(15 * US), Launch("gemm", 200 * US))]
    return Source(program(Loop(20, [Range("step {i}", layers)]), item()))


def without_calls() -> Source:
    return without(positive(), "api")


CASES = RuleCases(
    positive=positive, negative=read_at_the_end, missing=without_calls, also=("cuda-graphs", "launch-overhead")
)
