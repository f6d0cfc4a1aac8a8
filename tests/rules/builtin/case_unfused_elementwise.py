"""Chains of elementwise kernels, and single ones."""

from __future__ import annotations

from boundby.simulate.instructions import US, Instruction, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.hardware import elementwise
from tests.rules.builtin.harness import RuleCases, Source, without

PRODUCT = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"


def _layers(*between: Instruction) -> Source:
    layer = [Work(20 * US), Launch(PRODUCT, 200 * US), *between]
    return Source(program(Loop(20, [Range("step {i}", [Loop(4, layer)])]), Sync()))


def chains() -> Source:
    return _layers(*(Launch(elementwise(what), 40 * US) for what in ("Mul", "Add", "Sigmoid", "Mul")))


def single() -> Source:
    return _layers(Launch(elementwise("Gelu"), 40 * US))


def without_kernels() -> Source:
    return without(chains(), "operations")


CASES = RuleCases(positive=chains, negative=single, missing=without_kernels)
