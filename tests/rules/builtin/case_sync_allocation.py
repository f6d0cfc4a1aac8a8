"""cudaFree in every step, which waits; and memory freed once at the end."""

from __future__ import annotations

from boundby.simulate.instructions import US, Alloc, Instruction, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _work() -> list[Instruction]:
    return [part for number in range(6) for part in (Work(40 * US), Launch(f"gemm_{number}", 120 * US))]


def freed_in_the_loop() -> Source:
    step = Range("step {i}", [*_work(), Alloc(2 * US, waits=True, call="cudaFree"), *[Work(45 * US)] * 2])
    return Source(program(Loop(20, [step]), Sync()))


def freed_at_the_end() -> Source:
    return Source(program(Loop(20, [Range("step {i}", _work())]), Alloc(10 * US, waits=True, call="cudaFree")))


def without_calls() -> Source:
    return without(freed_in_the_loop(), "api")


CASES = RuleCases(positive=freed_in_the_loop, negative=freed_at_the_end, missing=without_calls)
