"""Many short kernels, each of which waits for its launch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
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
from boundby.model.units import count, duration
from boundby.rules.builtin.small_batch import RULE as SMALL_BATCH
from boundby.rules.rule import Match, Rule, Threshold

# Why a CUDA graph does not hold them as they are, by whether something always comes in between.
_ORDER = {
    True: (
        "Waits, allocations and copies to or from the host cut them into short pieces: without those, a CUDA graph "
        "could hold them",
    ),
    False: (
        "They repeat in no fixed order: make shapes and control flow the same (padding, buckets), and a CUDA graph "
        "can hold them",
    ),
}


def _check(context: RuleContext) -> Iterator[Match]:
    found, work = launches(context), device_work(context)
    rows = found.rows(Part.REST)
    if not worth_a_look(context, rows, RULE.threshold(context, "count"), RULE.threshold(context, "share_fraction")):
        return
    operations = found.operation[rows]
    if small_grid_share(context, operations) >= SMALL_BATCH.threshold(context, "small_fraction"):
        return  # small-batch says so
    median = float(np.median(work.duration_ns[operations]))
    if median > RULE.threshold(context, "kernel_ns"):
        return
    evidence, behind = launch_evidence(context, found, rows), behind_input(context)
    low, high = found.saving(context, Part.REST)
    least, most = RULE.threshold(context, "avoided_least"), RULE.threshold(context, "avoided_most")
    gap = evidence["launch_to_launch_median_ns"]
    pace = f", one every {duration(float(str(gap)))}" if gap is not None else ""
    yield Match(
        region=launch_place(context, found, rows),
        title=f"{count(len(rows))} kernels of {duration(median)} (median) are launched one by one{pace}{behind}",
        evidence={
            **evidence,
            "interrupted_fraction": round(found.interrupted, 4),
            "idle_in_launching_ns": context.time_ns(Cause.CUDA_API),
            "kernels": named_top(context, operations),
        },
        saving_ns=(0 if behind else round(least * low), round(most * high)),
        advice=(
            "torch.compile(function) fuses small operations, so that there are fewer to launch",
            "Work on whole tensors in place of Python loops over rows, samples or parameters",
            *_ORDER[found.interrupted >= RULE.threshold(context, "interrupted_fraction")],
        ),
        examples=launch_examples(context, rows),
        instances=len(rows),
    )


RULE = Rule(
    id="launch-overhead",
    title="Many short kernels wait for their launches",
    group="cuda_api",
    cause=Cause.CUDA_API,
    check=_check,
    needs=("kernels", "cuda_api"),
    thresholds=(
        Threshold("count", 100, "launches", "Fewer cannot take a share of the time that matters."),
        Threshold("share_fraction", 0.3, "fraction of launches", "Fewer are the odds and ends beside what repeats."),
        Threshold(
            "interrupted_fraction", 0.5, "fraction", "From half on, what comes in between is the reason, not the order."
        ),
        Threshold("kernel_ns", 20_000, "ns", "Longer kernels hide an ordinary launch."),
        Threshold("avoided_least", 0.3, "fraction", "Fusion that finds little still saves a third of the launches."),
        Threshold("avoided_most", 0.8, "fraction", "Some launches always remain."),
    ),
)
