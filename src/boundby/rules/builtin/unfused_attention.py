"""Attention written out as matrix products, masks and softmax instead of one fused kernel."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work
from boundby.evidence.kernels import attention
from boundby.model.causes import Cause
from boundby.model.scale import HABIT
from boundby.model.units import count, duration, percent
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.rule import Match, Rule, Threshold

_16_BITS = "In 16 bits (BF16, FP16) the flash kernel is chosen, in FP32 the memory-efficient one"
# By whether a mask is seen.
_TORCH = {
    True: (
        "out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask) instead of "
        "q @ k.transpose(-2, -1), mask, softmax and @ v",
        f"If the mask is causal, is_causal=True takes its place and is faster. {_16_BITS}",
    ),
    False: (
        "out = torch.nn.functional.scaled_dot_product_attention(q, k, v) instead of q @ k.transpose(-2, -1), softmax "
        "and @ v",
        f"A mask or bias that is added before softmax goes in as attn_mask=. {_16_BITS}",
    ),
}


def _check(context: RuleContext) -> Iterator[Match]:
    written_out = attention(context)
    kernels = KernelSet(context, written_out.between)
    if written_out.instances < HABIT or kernels.exposed_ns < context.least_ns:
        return
    least, most = RULE.threshold(context, "fused_least"), RULE.threshold(context, "fused_most")
    yield kernels.match(
        f"attention is unfused {count(written_out.instances)} times: {count(len(kernels))} kernels between its "
        f"matrix products take {duration(kernels.total_ns)}, {percent(kernels.share)} of kernel time",
        kernels.evidence(
            count=written_out.instances,
            forward_count=written_out.forward,
            backward_count=written_out.instances - written_out.forward,
            kernels_between=len(kernels),
            matrix_products_ns=int(device_work(context).duration_ns[written_out.products].sum()),
            assumed_speed_up=[least, most],
        ),
        kernels.saving_by_speed(least, most),
        (
            *context.program.pick(
                (
                    "A fused attention kernel instead of products, scale, mask and softmax: FlashAttention, cuDNN's, "
                    "CUTLASS'",
                ),
                torch=_TORCH[written_out.is_masked],
                jax=(
                    "jax.nn.dot_product_attention(q, k, v, "
                    f'{"mask=mask, " if written_out.is_masked else ""}implementation="cudnn")',
                ),
            ),
        ),
        instances=written_out.instances,
        cost_ns=kernels.total_ns,
    ).advising(mask=", attn_mask=mask" if written_out.is_masked else "", jax_mask="mask=mask, " * written_out.is_masked)


RULE = Rule(
    id="unfused-attention",
    title="Attention is not fused",
    group="gpu_compute",
    causes=(Cause.GPU_COMPUTE, Cause.CUDA_API),  # fewer kernels, and fewer calls for them
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("fused_least", 2.0, "times", "Short sequences leave the fused kernel little to gain."),
        Threshold("fused_most", 20.0, "times", "Fused, these steps take hardly any time beside the products."),
    ),
)
