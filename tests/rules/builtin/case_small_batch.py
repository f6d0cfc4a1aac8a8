"""Short kernels of few blocks in ever changing order, of many blocks, and of an unknown number."""

from __future__ import annotations

import random

from boundby.simulate.instructions import US, Instruction, Launch, Sync, Work, program
from tests.rules.builtin.hardware import UNKNOWN, on_gpu
from tests.rules.builtin.harness import RuleCases, Source


def _program() -> Source:
    chance = random.Random(0)
    parts: list[Instruction] = []
    for _ in range(800):
        parts += [Work(15 * US), Launch(f"op_{chance.randrange(50)}", 4 * US)]
    return Source(program(parts, Sync()))


def few_blocks() -> Source:
    return on_gpu(_program(), shapes={f"op_{number}": (8, 128) for number in range(50)})


def many_blocks() -> Source:
    return on_gpu(_program())


def not_told() -> Source:
    return on_gpu(_program(), UNKNOWN)


CASES = RuleCases(positive=few_blocks, negative=many_blocks, missing=not_told, also=("trace-no-nvtx",))
