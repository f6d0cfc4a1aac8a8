"""Attention written out, and fused; and a softmax that is none."""

from __future__ import annotations

from boundby.simulate.instructions import US, Instruction, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.hardware import EXP, REDUCE_MAX, REDUCE_SUM, elementwise
from tests.rules.builtin.harness import RuleCases, Source, without

PRODUCT = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float>(float *, const float *, int)"


def layers(*attention: Instruction) -> Source:
    layer = [Work(20 * US), Launch(PRODUCT, 300 * US), *attention, Launch(PRODUCT, 300 * US)]
    return Source(program(Loop(20, [Range("step {i}", [Loop(4, layer)])]), Sync()))


def written_out() -> Source:
    steps = [elementwise("Mul"), elementwise("Where"), REDUCE_MAX, elementwise("Sub"), EXP, REDUCE_SUM]
    return layers(*(Launch(kernel, 40 * US) for kernel in (*steps, elementwise("Div"))))


def one_softmax_kernel() -> Source:
    return layers(Launch(elementwise("Mul"), 40 * US), Launch(SOFTMAX, 80 * US))


def fused() -> Source:
    return layers(Launch(FLASH, 150 * US))


def without_kernels() -> Source:
    return without(written_out(), "operations")


CASES = RuleCases(positive=written_out, negative=fused, missing=without_kernels)
