"""Attention written out as matrix products, masks and softmax instead of one fused kernel."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work, named_top, operation_examples, place_of, saving_by_speed
from boundby.evidence.kernels import attention
from boundby.model.causes import Cause
from boundby.model.units import count, duration, percent
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    work, found = device_work(context), attention(context)
    exposed = int(work.exposed_ns[found.between].sum())
    share = exposed / max(work.busy_kernels_ns(), 1)
    if found.instances < RULE.threshold(context, "count") or exposed < context.least_ns:
        return
    if share < RULE.threshold(context, "share_fraction"):
        return
    least, most = RULE.threshold(context, "fused_least"), RULE.threshold(context, "fused_most")
    total = int(work.duration_ns[found.between].sum())
    backward = found.instances - found.forward
    yield Match(
        region=place_of(context, found.between),
        title=f"attention is written out {count(found.instances)} times: {count(len(found.between))} kernels between "
        f"its matrix products take {duration(total)}, {percent(share)} of kernel time",
        evidence={
            "count": found.instances,
            "forward_count": found.forward,
            "backward_count": backward,
            "kernels_between": len(found.between),
            "total_ns": total,
            "share_of_kernel_time_fraction": round(share, 4),
            "matrix_products_ns": int(work.duration_ns[found.products].sum()),
            "assumed_speed_up": [least, most],
            "kernels": named_top(context, found.between),
        },
        saving_ns=saving_by_speed(context, found.between, least, most),
        advice=(
            "out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True) in place of "
            "q @ k.transpose(-2, -1), mask, softmax and @ v",
            "A custom mask goes in as attn_mask=; in 16 bits (BF16, FP16) the flash kernel is chosen, in FP32 the "
            "memory-efficient one",
        ),
        examples=operation_examples(context, found.between),
        instances=found.instances,
        cost_ns=total,
    )


RULE = Rule(
    id="unfused-attention",
    title="Attention is not fused",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("count", 3, "count", "One or two may be anything; layers and steps repeat attention."),
        Threshold("share_fraction", 0.02, "fraction of kernel time", "Below, the change is not worth testing."),
        Threshold("fused_least", 2.0, "times", "Short sequences leave the fused kernel little to win."),
        Threshold("fused_most", 20.0, "times", "Fused, these steps cost next to nothing beside the products."),
    ),
)
