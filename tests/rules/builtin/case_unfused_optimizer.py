"""An optimizer tensor by tensor, and one that takes all at once."""

from __future__ import annotations

from boundby.simulate.instructions import US, Instruction, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.hardware import elementwise
from tests.rules.builtin.harness import RuleCases, Source, without

PRODUCT = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"
FUSED = (
    "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float>>(T1)"
)


def _training(*update: Instruction) -> Source:
    step = [Loop(4, [Work(20 * US), Launch(PRODUCT, 50 * US)]), Range("Optimizer.step#AdamW.step", update)]
    return Source(program(Loop(20, [Range("step {i}", step)]), Sync()))


def tensor_by_tensor() -> Source:
    one = [
        part
        for what in ("Mul", "Add", "Addcmul", "Sqrt", "Addcdiv")
        for part in (Work(15 * US), Launch(elementwise(what), 3 * US))
    ]
    return _training(Loop(12, one))


def fused() -> Source:
    return _training(Work(15 * US), Launch(FUSED, 30 * US))


def without_calls() -> Source:
    return without(tensor_by_tensor(), "api")


CASES = RuleCases(positive=tensor_by_tensor, negative=fused, missing=without_calls)
