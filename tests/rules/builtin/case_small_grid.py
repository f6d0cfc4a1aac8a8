"""Long kernels of few blocks, of many, and of an unknown number."""

from __future__ import annotations

from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.hardware import UNKNOWN, on_gpu
from tests.rules.builtin.harness import RuleCases, Source


def _program() -> Source:
    step = Range("step {i}", [Work(30 * US), Launch("scan", 400 * US), Launch("update", 300 * US)])
    return Source(program(Loop(20, [step]), Sync()))


def few_blocks() -> Source:
    return on_gpu(_program(), shapes={"scan": (4, 256)})


def many_blocks() -> Source:
    return on_gpu(_program())


def not_told() -> Source:
    return on_gpu(_program(), UNKNOWN)


CASES = RuleCases(positive=few_blocks, negative=many_blocks, missing=not_told)


def beside(long: int) -> Source:
    """A kernel of one block beside one that fills the GPU and takes twice as long."""
    step = Range(
        "step {i}", [Launch("wide", 2 * long, share=0.9), Launch("narrow", long, stream=1, share=0.01), Sync()]
    )
    return on_gpu(Source(program(Loop(4, [step]))), shapes={"narrow": (1, 256)})
