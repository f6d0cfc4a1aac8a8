"""Kernels too short and too small for the GPU: there is not enough work in each."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.chunks import chunks
from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.device_work import SHORT_KERNEL_NS
from boundby.model.causes import Cause
from boundby.model.scale import HALF, QUARTER
from boundby.model.units import count, duration, percent
from boundby.rules.builtin._launches import in_no_order
from boundby.rules.rule import Match, Rule


def _check(context: RuleContext) -> Iterator[Match]:
    small = in_no_order(context)
    if small is None or chunks(context) is not None:  # small-chunks speaks of those, with their copies
        return
    if small.small_share is None:
        raise CannotCheckError("the trace holds no launch shapes, or not how many multiprocessors the GPU has")
    if not small.are_small or small.median_ns > SHORT_KERNEL_NS:
        return
    yield small.match(
        f"{percent(small.small_share)} of {count(len(small))} kernels have fewer blocks than the GPU has "
        f"multiprocessors, and they take {duration(small.median_ns)} (median): too little work in each",
        {
            "idle_in_launching_ns": context.time_ns(Cause.CUDA_API),
            "kernels": small.kernels.named(),
        },
        small.saving_ns(QUARTER, HALF),  # a third more work in each, or twice as much
        (
            *context.program.pick(
                (
                    "More items in each launch: larger chunks, or one launch over several of them; kernels this small "
                    "take hardly longer for it",
                ),
                torch=(
                    "A larger batch, and so fewer steps: kernels this small take hardly longer for it",
                    "Inference: collect requests for a few milliseconds and run them as one batch",
                ),
                directives=("Collapse nested loops, and join neighbouring ones, so that each launch has more to do",),
            ),
        ),
    )


RULE = Rule(
    id="small-batch",
    title="Too little work in each kernel",
    group="cuda_api",
    cause=Cause.CUDA_API,
    check=_check,
    needs=("kernels", "cuda_api"),
)
