"""cuDNN's conversions between NCHW and NHWC around tensor-core convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work, named_top, operation_examples, place_of, saving_without, scaled
from boundby.model.causes import Cause
from boundby.model.units import counted, duration, percent
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.vocabulary.kernels import KernelKind


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    rows = np.flatnonzero(work.is_kernel & (work.kind == KernelKind.LAYOUT))
    exposed = int(work.exposed_ns[rows].sum())
    share = exposed / max(work.busy_kernels_ns(), 1)
    if exposed < context.least_ns or share < RULE.threshold(context, "share_fraction"):
        return
    total = int(work.duration_ns[rows].sum())
    least = RULE.threshold(context, "avoided_least")
    yield Match(
        region=place_of(context, rows),
        title=f"{counted(len(rows), 'conversion', 'conversions')} between NCHW and NHWC "
        f"{'takes' if len(rows) == 1 else 'take'} {duration(total)}, "
        f"{percent(share)} of kernel time",
        evidence={
            "count": len(rows),
            "total_ns": total,
            "share_of_kernel_time_fraction": round(share, 4),
            "kernels": named_top(context, rows),
        },
        saving_ns=scaled(saving_without(context, Cause.GPU_COMPUTE, rows), least, 1.0),
        advice=(
            "model = model.to(memory_format=torch.channels_last) and batch = batch.to(memory_format="
            "torch.channels_last) (3D: torch.channels_last_3d), so that cuDNN's NHWC kernels need no conversion",
            "Look for operations that fall back to NCHW between the convolutions (view, flatten, custom kernels)",
        ),
        examples=operation_examples(context, rows),
        instances=len(rows),
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
