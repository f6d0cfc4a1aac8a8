"""Batches copied from pageable memory, and the same from pinned memory."""

from __future__ import annotations

from boundby.simulate.instructions import US, Copy, Instruction, Launch, Loop, Memory, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _batches(memory: Memory) -> Source:
    compute: list[Instruction] = [
        part for number in range(6) for part in (Work(60 * US), Launch(f"gemm_{number}", 120 * US))
    ]
    step = Range("step {i}", [Range("load", [Copy(1 << 19, "HtoD", memory)]), Range("forward", compute)])
    return Source(program(Loop(20, [step]), Sync()))


def pageable() -> Source:
    return _batches("pageable")


def pinned() -> Source:
    return _batches("pinned")


def without_calls() -> Source:
    return without(pageable(), "api")


CASES = RuleCases(positive=pageable, negative=pinned, missing=without_calls, also=("pageable-copy",))
