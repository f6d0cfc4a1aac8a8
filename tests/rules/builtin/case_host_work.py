"""Host work before a few kernels of every step; work that the GPU hides; no calls to set it between."""

from __future__ import annotations

from boundby.simulate.instructions import MS, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def computes_before_each_step() -> Source:
    return pattern("cpu")


def computes_behind_the_gpu() -> Source:
    return Source(program(Loop(20, [Range("step {i}", [Launch("gemm", 6 * MS), Work(4 * MS)])]), Sync()))


def without_calls() -> Source:
    return without(pattern("cpu"), "api")


CASES = RuleCases(positive=computes_before_each_step, negative=computes_behind_the_gpu, missing=without_calls)
