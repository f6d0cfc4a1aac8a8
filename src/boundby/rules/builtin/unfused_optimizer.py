"""An optimizer that updates tensor by tensor."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work, named_top
from boundby.evidence.host_idleness import behind_input
from boundby.evidence.launches import Part, launch_evidence, launch_examples, launch_place, launches
from boundby.model.causes import Cause
from boundby.model.units import count, duration
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    found, work = launches(context), device_work(context)
    rows = found.rows(Part.OPTIMIZER)
    if len(rows) == 0:
        return
    median = float(np.median(work.duration_ns[found.operation[rows]]))
    if median > RULE.threshold(context, "kernel_ns"):
        return
    least, most = RULE.threshold(context, "avoided_least"), RULE.threshold(context, "avoided_most")
    # At least the launches go; at most the kernels too, which are too short to be limited by memory.
    low, high = found.saving(context, Part.OPTIMIZER)[0], found.saving(context, Part.OPTIMIZER, Cause.GPU_COMPUTE)[1]
    evidence, behind = launch_evidence(context, found, rows), behind_input(context)
    yield Match(
        region=launch_place(context, found, rows),
        title=f"the optimizer updates tensor by tensor: {count(len(rows))} kernels of {duration(median)}, launched one "
        f"by one{behind}",
        evidence={**evidence, "kernels": named_top(context, found.operation[rows])},
        saving_ns=(0 if behind else round(least * low), round(most * high)),
        advice=(
            _fused(context.path(launch_place(context, found, rows))),
            "A loop of your own over parameters: torch._foreach_mul_, torch._foreach_add_, torch._foreach_addcdiv_ "
            "take lists of tensors",
        ),
        examples=launch_examples(context, rows),
        instances=len(rows),
    )


# PyTorch's optimizers with one kernel for many tensors; the others have foreach=True.
FUSED = ("AdamW", "Adam", "SGD", "Adagrad")
_NAMED = re.compile(r"Optimizer\.step#(\w+)\.step")


def _fused(path: tuple[str, ...]) -> str:
    """How to ask for it, by the optimizer that PyTorch names its range after, where there is one."""
    named = [match[1] for name in path if (match := _NAMED.search(name))]
    name = named[-1] if named else "AdamW"
    if name in FUSED:
        others = "" if named else " (SGD, Adam and Adagrad have fused=True too; others foreach=True)"
        return f"torch.optim.{name}(params, lr=lr, fused=True) updates all tensors in a few kernels{others}"
    return (
        f"torch.optim.{name}(params, lr=lr, foreach=True) updates all tensors with a few kernels an operation ({name} "
        "has no fused kernel)"
    )


RULE = Rule(
    id="unfused-optimizer",
    title="The optimizer updates tensor by tensor",
    group="cuda_api",
    cause=Cause.GPU_COMPUTE,
    check=_check,
    needs=("kernels", "cuda_api"),
    thresholds=(
        Threshold("kernel_ns", 20_000, "ns", "Longer updates hide their launches."),
        Threshold("avoided_least", 0.7, "fraction", "foreach still takes ten to twenty launches a step."),
        Threshold("avoided_most", 1.0, "fraction", "Fused takes one for every few dozen tensors."),
    ),
)
