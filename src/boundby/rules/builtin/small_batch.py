"""Kernels too short and too small for the GPU: there is not enough work in each."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.chunks import chunks
from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.model.causes import Cause
from boundby.model.units import count, duration, percent
from boundby.rules.builtin._launches import COUNT, SHARE, SMALL, SMALL_BATCH, in_no_order
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    small = in_no_order(context, RULE)
    if small is None or chunks(context) is not None:  # small-chunks speaks of those, with their copies
        return
    if small.small_share is None:
        raise CannotCheckError("the trace holds no launch shapes, or not how many multiprocessors the GPU has")
    if not small.are_small or small.median_ns > RULE.threshold(context, "kernel_ns"):
        return
    yield small.match(
        f"{percent(small.small_share)} of {count(len(small))} kernels have fewer blocks than the GPU has "
        f"multiprocessors, and they take {duration(small.median_ns)} (median): too little work in each",
        {
            "idle_in_launching_ns": context.time_ns(Cause.CUDA_API),
            "kernels": small.kernels.named(),
        },
        small.saving_ns(RULE),
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
    id=SMALL_BATCH,
    title="Too little work in each kernel",
    group="cuda_api",
    cause=Cause.CUDA_API,
    check=_check,
    needs=("kernels", "cuda_api"),
    thresholds=(
        COUNT,
        SHARE,
        SMALL,
        Threshold("kernel_ns", 10_000, "ns", "Longer kernels are not limited by launching: see small-grid."),
        Threshold("avoided_least", 0.25, "fraction", "A batch a third larger saves a quarter of the launches."),
        Threshold("avoided_most", 0.5, "fraction", "A batch twice as large halves the launches."),
    ),
)
