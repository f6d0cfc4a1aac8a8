"""Kernels too short and too small for the GPU: there is not enough work in each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.device_work import device_work, named_top
from boundby.evidence.host_idleness import behind_input
from boundby.evidence.launches import (
    Part,
    launch_evidence,
    launch_examples,
    launch_place,
    launches,
    small_grid_share,
    worth_a_look,
)
from boundby.model.causes import Cause
from boundby.model.units import count, duration, percent
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    found, work = launches(context), device_work(context)
    rows = found.rows(Part.REST)
    if not worth_a_look(context, rows, RULE.threshold(context, "count"), RULE.threshold(context, "share_fraction")):
        return
    operations = found.operation[rows]
    if not ((work.blocks[operations] > 0) & (work.multiprocessors[operations] > 0)).any():
        raise CannotCheckError("the trace tells no launch shapes, or not how many multiprocessors the GPU has")
    small = small_grid_share(context, operations)
    median = float(np.median(work.duration_ns[operations]))
    if small < RULE.threshold(context, "small_fraction") or median > RULE.threshold(context, "kernel_ns"):
        return
    low, high = found.saving(context, Part.REST)
    least, most = RULE.threshold(context, "avoided_least"), RULE.threshold(context, "avoided_most")
    evidence, behind = launch_evidence(context, found, rows), behind_input(context)
    yield Match(
        region=launch_place(context, found, rows),
        title=f"{percent(small)} of {count(len(rows))} kernels have fewer blocks than the GPU has multiprocessors, and "
        f"they take {duration(median)} (median): too little work in each{behind}",
        evidence={
            **evidence,
            "idle_in_launching_ns": context.time_ns(Cause.CUDA_API),
            "kernels": named_top(context, operations),
        },
        saving_ns=(0 if behind else round(least * low), round(most * high)),
        advice=(
            "A larger batch: DataLoader(dataset, batch_size=2 * batch_size), half as many steps; kernels this small "
            "take hardly longer for it",
            "Inference: collect requests for a few milliseconds and run them as one batch",
        ),
        examples=launch_examples(context, rows),
        instances=len(rows),
    )


RULE = Rule(
    id="small-batch",
    title="Too little work in each kernel",
    group="cuda_api",
    check=_check,
    needs=("kernels", "cuda_api"),
    thresholds=(
        Threshold("count", 100, "launches", "Fewer cannot take a share of the time that matters."),
        Threshold("share_fraction", 0.3, "fraction of launches", "Fewer are the odds and ends beside what repeats."),
        Threshold("small_fraction", 0.7, "fraction", "Single small kernels are part of every program."),
        Threshold("kernel_ns", 10_000, "ns", "Longer kernels are no matter of launching: see small-grid."),
        Threshold("avoided_least", 0.25, "fraction", "A batch a third larger saves a quarter of the launches."),
        Threshold("avoided_most", 0.5, "fraction", "A batch twice as large halves the launches."),
    ),
)
