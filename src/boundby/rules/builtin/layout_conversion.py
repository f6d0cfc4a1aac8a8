"""cuDNN's conversions between NCHW and NHWC around tensor-core convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work
from boundby.model.causes import Cause
from boundby.model.units import counted, duration, percent
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.vocabulary.kernels import KernelKind


def _check(context: RuleContext) -> Iterator[Match]:
    kernels = KernelSet(context, device_work(context).kernels_of([KernelKind.LAYOUT]))
    if kernels.exposed_ns < context.least_ns or kernels.share < RULE.threshold(context, "share_fraction"):
        return
    ways = "between NCHW and NHWC"
    yield kernels.match(
        f"{counted(len(kernels), f'conversion {ways} takes', f'conversions {ways} take')} "
        f"{duration(kernels.total_ns)}, {percent(kernels.share)} of kernel time",
        kernels.evidence(),
        kernels.saving_without(Cause.GPU_COMPUTE, RULE.threshold(context, "avoided_least")),
        (
            context.program.pick(
                "Give cuDNN its tensors in NHWC (CUDNN_TENSOR_NHWC), as its tensor-core kernels read them",
                torch="model = model.to(memory_format=torch.channels_last) and batch = batch.to(memory_format="
                "torch.channels_last) (3D: torch.channels_last_3d), so that cuDNN's NHWC kernels need no conversion",
            ),
            "Look for operations that fall back to NCHW between the convolutions (view, flatten, custom kernels)",
        ),
    )


RULE = Rule(
    id="layout-conversion",
    title="Convolutions convert their data's layout",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("share_fraction", 0.02, "fraction of kernel time", "Below, the change is not worth testing."),
        Threshold(
            "avoided_least", 0.5, "fraction", "Weights and layers that know only NCHW keep some of the conversions."
        ),
    ),
)
