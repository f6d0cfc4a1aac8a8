"""Work cut into chunks so small that calling takes longer than running them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work
from boundby.evidence.launches import launches
from boundby.model.arrays import median
from boundby.model.causes import Cause
from boundby.model.units import counted, duration, percent, size
from boundby.rules.builtin._launches import COUNT, SMALL_BATCH
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import Direction, OpKind


def _check(context: RuleContext) -> Iterator[Match]:
    work, table, calls = device_work(context), context.operations, context.calls
    idle_ns = context.time_ns(Cause.CUDA_API)
    if idle_ns < RULE.threshold(context, "share_fraction") * context.window_ns or idle_ns < context.least_ns:
        return
    if context.program.is_torch or len(launches(context).call) >= COUNT.of(context, SMALL_BATCH):
        return  # batches are set by a loader there, and rules on launches speak of many
    ways = np.isin(table.direction, (Direction.HTOD, Direction.DTOH))
    copies = np.flatnonzero(work.in_window & (table.kind == OpKind.MEMCPY) & ways & (table.bytes > 0))
    if len(copies) < RULE.threshold(context, "copies"):
        return
    common, times = CopySet(context, copies).common_size
    chunks = CopySet(context, copies[table.bytes[copies] == common])
    rows = np.concatenate((chunks.rows, np.flatnonzero(work.is_kernel)))
    call = calls.of_operation[rows]
    if times < RULE.threshold(context, "copies") or not work.is_kernel.any() or (call < 0).any():
        return
    call_ns, run_ns = float(median(context.call_ns(call))), float(median(work.duration_ns[rows]))
    if run_ns >= call_ns:
        return
    low, high = context.saving((Cause.CUDA_API.key,)) or context.account_saving(Cause.CUDA_API)
    least, most = RULE.threshold(context, "avoided_least"), RULE.threshold(context, "avoided_most")
    yield chunks.match(
        f"the work is cut into chunks of {size(common)}: {counted(len(rows), 'copy or kernel', 'copies and kernels')} "
        f"of {duration(run_ns)} (median), each of which takes {duration(call_ns)} to call; launching is "
        f"{percent(idle_ns / max(context.window_ns, 1))} of the window",
        chunks.evidence(call_median_ns=round(call_ns), run_median_ns=round(run_ns), idle_in_launching_ns=idle_ns),
        (round(low * least), round(min(high, idle_ns) * most)),
        (
            "Larger chunks: a copy or kernel should run for several times as long as its call, here some "
            f"{size(common * max(round(4 * call_ns / max(run_ns, 1)), 2))} each; two or three chunks in flight hide "
            "copies as well as many",
        ),
        cost_ns=idle_ns,
    )


RULE = Rule(
    id="small-chunks",
    title="Chunks too small to be worth a call each",
    group="cuda_api",
    cause=Cause.CUDA_API,
    check=_check,
    needs=("kernels", "cuda_api", "memcpy"),
    thresholds=(
        Threshold("share_fraction", 0.3, "fraction of the window", "Below, launching is not what takes the time."),
        Threshold("copies", 4, "count", "Fewer copies of one size are not chunks of one."),
        Threshold("avoided_least", 0.2, "fraction", "First calls, streams and memory take their time at any size."),
        Threshold("avoided_most", 0.9, "fraction", "Some calls always remain."),
    ),
)
