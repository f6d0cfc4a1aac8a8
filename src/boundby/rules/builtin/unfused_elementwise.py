"""Chains of elementwise kernels that a compiler would fuse."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work
from boundby.evidence.kernels import elementwise_chains
from boundby.model.causes import Cause
from boundby.model.scale import SMALL
from boundby.model.units import count, duration, percent
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    chains = elementwise_chains(context)
    long_enough = device_work(context).duration_ns[chains.rows] >= LAUNCH_LIMIT_NS // 2
    kernels = KernelSet(context, chains.rows[long_enough])
    if kernels.exposed_ns < context.least_ns or kernels.share < SMALL:
        return
    least = RULE.threshold(context, "fused_least")
    most = max(least, min(chains.mean_length, RULE.threshold(context, "fused_most")))
    yield kernels.match(
        f"{count(len(kernels))} elementwise and reduction kernels in chains of about {chains.mean_length:.0f} take "
        f"{duration(kernels.total_ns)}, {percent(kernels.share)} of kernel time",
        kernels.evidence(
            chains=chains.count,
            kernels_per_chain=round(chains.mean_length, 1),
            assumed_speed_up=[least, round(most, 2)],
        ),
        kernels.saving_by_speed(least, most),
        (
            *context.program.pick(
                (
                    "One kernel that does the whole chain, so that data passes through memory once, not once per "
                    "operation",
                ),
                torch=(
                    "model = torch.compile(model): it fuses such chains, so that data passes through memory once, not "
                    "once per operation",
                    "Norms and activations written out: torch.nn.functional.layer_norm, rms_norm, gelu and silu are "
                    "one kernel each",
                ),
            ),
        ),
        cost_ns=kernels.total_ns,
    )


RULE = Rule(
    id="unfused-elementwise",
    title="Chains of elementwise kernels",
    group="gpu_compute",
    causes=(Cause.GPU_COMPUTE, Cause.CUDA_API),  # fewer kernels, and fewer calls for them
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("fused_least", 1.3, "times", "Some neighbours work on different data and cannot be fused."),
        Threshold("fused_most", 4.0, "times", "Inputs and outputs of the chain remain, however long it is."),
    ),
)
