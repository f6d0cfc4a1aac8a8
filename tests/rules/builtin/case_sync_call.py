"""cudaDeviceSynchronize in every step to take the time, and one at the end."""

from __future__ import annotations

from boundby.simulate.instructions import US, Instruction, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _work() -> list[Instruction]:
    return [part for number in range(8) for part in (Work(45 * US), Launch(f"gemm_{number}", 80 * US))]


def timed_by_waiting() -> Source:
    return Source(program(Loop(20, [Range("step {i}", [*_work(), Sync()])])))


def waits_once() -> Source:
    return Source(program(Loop(20, [Range("step {i}", _work())]), Sync()))


def without_calls() -> Source:
    return without(timed_by_waiting(), "api")


CASES = RuleCases(positive=timed_by_waiting, negative=waits_once, missing=without_calls)
