"""cuDNN converts layouts around each convolution, or does not."""

from __future__ import annotations

from boundby.simulate.instructions import US, Instruction, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without

IN = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(cudnn::ops::nchw2nhwc_params_t<T3>)"
OUT = "void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false>(cudnn::ops::nhwc2nchw_params_t<T3>)"
CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32"


def _training(*convolution: Instruction) -> Source:
    return Source(program(Loop(20, [Range("step {i}", [Work(30 * US), Loop(6, convolution)])]), Sync()))


def converts() -> Source:
    return _training(Launch(IN, 80 * US), Launch(CONVOLUTION, 400 * US), Launch(OUT, 60 * US))


def channels_last() -> Source:
    return _training(Launch(CONVOLUTION, 400 * US))


def without_kernels() -> Source:
    return without(converts(), "operations")


CASES = RuleCases(positive=converts, negative=channels_last, missing=without_kernels)
