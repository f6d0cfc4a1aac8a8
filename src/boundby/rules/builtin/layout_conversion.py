"""cuDNN's conversions between NCHW and NHWC around tensor-core convolutions."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work
from boundby.model.causes import Cause
from boundby.model.expressions import expression
from boundby.model.scale import HALF
from boundby.model.units import counted, duration, percent
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.rule import Match, Rule
from boundby.trace.tables import OperatorArguments
from boundby.trace.vocabulary.kernel_names import KernelKind

_CONVOLUTION = expression(r"^aten::(?:cudnn_|miopen_)?convolution(?:_overrideable)?$")
_IMAGES = 4  # batch, channels, height, width


def _planar_share(context: RuleContext) -> float | None:
    """Of the convolutions whose input's strides are told, those that get NCHW; None: of none they are."""
    trace = context.trace
    rows = np.flatnonzero(context.named(trace.ranges.name, _CONVOLUTION.match) & (trace.ranges.arguments >= 0))
    layouts = [_is_planar(trace.arguments[number]) for number in trace.ranges.arguments[rows].tolist()]
    decided = [is_planar for is_planar in layouts if is_planar is not None]
    return sum(decided) / len(decided) if decided else None


def _is_planar(arguments: OperatorArguments) -> bool | None:
    """Whether the first input is a batch of images whose channels lie in planes; None: it is none, or not told."""
    try:
        sizes, strides = (json.loads(text)[0] for text in (arguments.sizes, arguments.strides))
    except (ValueError, LookupError, TypeError):
        return None
    if not (isinstance(sizes, list) and isinstance(strides, list) and len(sizes) == len(strides) == _IMAGES):
        return None
    return None if sizes[1] == 1 else bool(strides[1] != 1)


def _check(context: RuleContext) -> Iterator[Match]:
    kernels = KernelSet(context, device_work(context).kernels_of([KernelKind.LAYOUT]))
    if kernels.exposed_ns < context.least_ns:
        return
    ways = "between NCHW and NHWC"
    planar = _planar_share(context)
    planar_share = f"; {percent(planar)} of the convolutions get NCHW inputs, by their strides" if planar else ""
    yield kernels.match(
        f"{counted(len(kernels), f'conversion {ways} takes', f'conversions {ways} take')} "
        f"{duration(kernels.total_ns)}, {percent(kernels.share)} of kernel time{planar_share}",
        kernels.evidence(convolutions_with_nchw_inputs_fraction=planar),
        kernels.saving_without(Cause.GPU_COMPUTE, HALF),
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
)
