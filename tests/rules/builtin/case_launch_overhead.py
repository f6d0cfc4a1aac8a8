"""Short kernels in ever changing order, long ones, and calls that were not captured."""

from __future__ import annotations

import random

from boundby.simulate.instructions import US, Instruction, Launch, Sync, Work, program
from tests.rules.builtin.hardware import on_gpu
from tests.rules.builtin.harness import RuleCases, Source, without


def _program(kernel_ns: int) -> Source:
    chance = random.Random(0)
    parts: list[Instruction] = []
    for _ in range(800):
        parts += [Work(15 * US), Launch(f"op_{chance.randrange(50)}", kernel_ns)]
    return on_gpu(Source(program(parts, Sync())))


def short() -> Source:
    return _program(4 * US)


def long() -> Source:
    return _program(80 * US)


def without_calls() -> Source:
    return without(short(), "api")


CASES = RuleCases(positive=short, negative=long, missing=without_calls, also=("trace-no-nvtx",))
