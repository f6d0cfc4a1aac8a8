"""Memory that is allocated in every step, only in the first, and calls that were not captured."""

from __future__ import annotations

from boundby.simulate.instructions import US, Alloc, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without

WORK = [Work(20 * US), Launch("stencil_a", 200 * US), Launch("stencil_b", 200 * US), Launch("stencil_c", 200 * US)]


def every_step() -> Source:
    step = [Alloc(600 * US), *WORK, Alloc(300 * US, call="cudaFree")]
    return Source(program(Launch("warm_up", 10 * US), Loop(20, [Range("step {i}", step)]), Sync()))


def before() -> Source:
    return Source(program(Launch("warm_up", 10 * US), Alloc(5_000 * US), Loop(20, [Range("step {i}", WORK)]), Sync()))


def never() -> Source:
    return Source(program(Launch("warm_up", 10 * US), Loop(20, [Range("step {i}", WORK)]), Sync()))


def without_calls() -> Source:
    return without(every_step(), "api")


CASES = RuleCases(positive=every_step, negative=before, missing=without_calls)
