"""Kernels whose blocks are smaller than a warp."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, Rows, RuleContext
from boundby.evidence.device_work import (
    device_work,
    kernel_name,
    named_top,
    operation_examples,
    place_of,
    saving_by_speed,
)
from boundby.evidence.kernels import WARP
from boundby.model.units import count, counted, duration, percent
from boundby.rules.rule import Match, Rule, Threshold


def small_block_rows(context: RuleContext) -> Rows:
    """Kernels with more than one block, of fewer threads than a warp has."""
    work = device_work(context)
    return np.flatnonzero(work.is_kernel & (work.threads > 0) & (work.threads < WARP) & (work.blocks > 1))


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    if work.busy_kernels_ns() < context.least_ns:
        return
    if not (work.threads[work.is_kernel] > 0).any():
        raise CannotCheckError("the trace tells no launch shapes")
    rows = small_block_rows(context)
    exposed = int(work.exposed_ns[rows].sum())
    if exposed < max(context.least_ns, RULE.threshold(context, "share_fraction") * context.longest_window_ns):
        return
    lanes = float(np.average(work.threads[rows] / WARP, weights=work.duration_ns[rows]))
    longest = int(rows[np.argmax(work.duration_ns[rows])])
    total = int(work.duration_ns[rows].sum())
    yield Match(
        region=place_of(context, rows),
        title=f"{counted(len(rows), 'kernel', 'kernels')} ({duration(total)}) "
        f"{'has' if len(rows) == 1 else 'have'} blocks smaller than a warp: "
        f"{percent(1 - lanes)} of their lanes idle",
        evidence={
            "count": len(rows),
            "total_ns": total,
            "share_of_kernel_time_fraction": round(exposed / max(work.busy_kernels_ns(), 1), 4),
            "threads_per_block": sorted({int(value) for value in work.threads[rows]})[:5],
            "lanes_used_fraction": round(lanes, 4),
            "kernels": named_top(context, rows),
        },
        saving_ns=saving_by_speed(
            context, rows, RULE.threshold(context, "full_least"), min(1 / lanes, RULE.threshold(context, "full_most"))
        ),
        advice=(
            f"{kernel_name(context, longest)} launches {count(int(work.blocks[longest]))} blocks of "
            f"{int(work.threads[longest])} threads: launch blocks of 128 or 256 threads and "
            f"{count(int(work.blocks[longest]))} x {int(work.threads[longest])} / 256 of them",
            "Numba: kernel[(n + 255) // 256, 256](data); CuPy and Triton: block sizes that are multiples of 32",
        ),
        examples=operation_examples(
            context, rows, lambda row: f"{kernel_name(context, row)}, {work.blocks[row]} blocks of {work.threads[row]}"
        ),
        instances=len(rows),
    )


RULE = Rule(
    id="small-blocks",
    title="Blocks smaller than a warp",
    group="gpu_compute",
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("share_fraction", 0.02, "fraction of the window", "Below, full warps would gain too little."),
        Threshold("full_least", 1.5, "times", "Work that lanes share need not become as many times faster."),
        Threshold("full_most", 8.0, "times", "Memory limits a kernel long before all lanes of 32 count."),
    ),
)
