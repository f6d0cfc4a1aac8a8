"""A loop around cudaEventQuery before every step, and one question a step."""

from __future__ import annotations

from boundby.simulate.instructions import US, Call, Instruction, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without


def asks(times: int) -> Source:
    ask: list[Instruction] = [Call(1 * US, "cudaEventQuery"), Work(4 * US)]
    work = [part for number in range(6) for part in (Work(45 * US), Launch(f"gemm_{number}", 60 * US))]
    return Source(program(Loop(20, [Range("step {i}", [*work, Loop(times, ask)])]), Sync()))


def asks_in_a_loop() -> Source:
    return asks(60)


def asks_once() -> Source:
    return asks(1)


def without_calls() -> Source:
    return without(asks_in_a_loop(), "api")


CASES = RuleCases(
    positive=asks_in_a_loop, negative=asks_once, missing=without_calls, also=("cuda-graphs", "launch-overhead")
)
