"""Chains of elementwise kernels that a compiler would fuse."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work, named_top, operation_examples, place_of, saving_by_speed
from boundby.evidence.kernels import elementwise_chains
from boundby.model.causes import Cause
from boundby.model.units import count, duration, percent
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    work, chains = device_work(context), elementwise_chains(context)
    rows = chains.rows[work.duration_ns[chains.rows] >= RULE.threshold(context, "kernel_ns")]
    exposed = int(work.exposed_ns[rows].sum())
    share = exposed / max(work.busy_kernels_ns(), 1)
    if exposed < context.least_ns or share < RULE.threshold(context, "share_fraction"):
        return
    least = RULE.threshold(context, "fused_least")
    most = max(least, min(chains.mean_length, RULE.threshold(context, "fused_most")))
    total = int(work.duration_ns[rows].sum())
    yield Match(
        region=place_of(context, rows),
        title=f"{count(len(rows))} elementwise and reduction kernels in chains of {chains.mean_length:.1f} take "
        f"{duration(total)}, {percent(share)} of kernel time",
        evidence={
            "count": len(rows),
            "chains": chains.count,
            "kernels_per_chain": round(chains.mean_length, 1),
            "total_ns": total,
            "share_of_kernel_time_fraction": round(share, 4),
            "assumed_speed_up": [least, round(most, 2)],
            "kernels": named_top(context, rows),
        },
        saving_ns=saving_by_speed(context, rows, least, most),
        advice=(
            "model = torch.compile(model): it fuses such chains, so that data passes through memory once, not once "
            "per operation",
            "Norms and activations written out: torch.nn.functional.layer_norm, rms_norm, gelu and silu are one "
            "kernel each",
        ),
        examples=operation_examples(context, rows),
        instances=len(rows),
        cost_ns=total,
    )


RULE = Rule(
    id="unfused-elementwise",
    title="Chains of elementwise kernels",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("share_fraction", 0.05, "fraction of kernel time", "Below, compiling for this alone does not pay."),
        Threshold("kernel_ns", 5_000, "ns", "Shorter kernels are limited by launching, not by memory."),
        Threshold("fused_least", 1.3, "times", "Some neighbours work on different data and cannot be fused."),
        Threshold("fused_most", 4.0, "times", "Inputs and outputs of the chain remain, however long it is."),
    ),
)
