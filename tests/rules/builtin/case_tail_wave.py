"""Long kernels of one block more than the GPU has places, of whole turns, and of an unknown number."""

from __future__ import annotations

from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.hardware import UNKNOWN, on_gpu
from tests.rules.builtin.harness import RuleCases, Source

SGEMM = "ampere_sgemm_128x64_tn"


def kernels(blocks: int, name: str = "scan", length: int = 400 * US) -> Source:
    """Steps of one long kernel of this name and so many blocks, and of another that fills the GPU."""
    step = Range("step {i}", [Work(30 * US), Launch(name, length), Launch("update", 500 * US)])
    return on_gpu(Source(program(Loop(20, [step]), Sync())), shapes={name: (blocks, 256)})


def one_block_more() -> Source:
    return kernels(120)


def whole_turns() -> Source:
    return kernels(216)


def not_told() -> Source:
    return on_gpu(kernels(120), UNKNOWN)


CASES = RuleCases(positive=one_block_more, negative=whole_turns, missing=not_told, also=("hot-kernel",))
