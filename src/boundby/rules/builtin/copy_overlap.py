"""Copies that kernels could hide and do not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.device_work import device_work, place_of, saving_without
from boundby.evidence.transfers import Transfer, copy_evidence, copy_examples, transfers
from boundby.model.arrays import factorize
from boundby.model.causes import Cause
from boundby.model.units import counted, duration
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    rows = _on_streams_of_kernels(context, transfers(context).rows(Transfer.PINNED))
    exposed = int(work.exposed_ns[rows].sum())
    if exposed < context.least_ns or len(rows) < RULE.threshold(context, "count"):
        return
    turns, kernels_ns = _turns(context, rows)
    hidden = 1 - exposed / max(int(work.duration_ns[rows].sum()), 1)
    if turns < RULE.threshold(context, "turns") or hidden > RULE.threshold(context, "hidden_fraction"):
        return
    most = min(saving_without(context, Cause.GPU_COPY, rows)[1], kernels_ns)
    yield Match(
        region=place_of(context, rows),
        title=f"{counted(len(rows), 'pinned copy takes', 'pinned copies take')} turns with kernels: "
        f"{duration(exposed)} of copying is hidden "
        "behind none",
        evidence={
            **copy_evidence(context, rows),
            "turns": turns,
            "hidden_fraction": round(hidden, 4),
            "kernels_between_ns": kernels_ns,
        },
        saving_ns=(round(RULE.threshold(context, "hidden_least") * most), most),
        advice=(
            "Copy the next batch on a stream of its own while this one computes: with torch.cuda.stream(copy_stream): "
            'next_batch = next_batch.to("cuda", non_blocking=True), then '
            "torch.cuda.current_stream().wait_stream(copy_stream)",
            "They are on a stream that also runs kernels, where everything waits its turn",
        ),
        examples=copy_examples(context, rows),
        instances=len(rows),
        cost_ns=exposed,
    )


def _on_streams_of_kernels(context: RuleContext, rows: Rows) -> Rows:
    """Those on a stream that also runs kernels. Why others do not overlap, this rule could not tell."""
    work, table = device_work(context), context.operations
    columns = (table.device, table.process, table.stream)
    kernels = np.flatnonzero(work.is_kernel)
    both = np.concatenate((rows, kernels))
    _, stream = factorize(*(column[both] for column in columns))
    chosen: Rows = rows[np.isin(stream[: len(rows)], stream[len(rows) :])]
    return chosen


def _turns(context: RuleContext, rows: Rows) -> tuple[int, int]:
    """How often kernels run after a copy and before the next (on one device), and how long they run in between."""
    work, table = device_work(context), context.operations
    turns, kernels_ns = 0, 0
    for device in np.unique(table.device[rows]).tolist():
        mine = rows[table.device[rows] == device]
        kernels = np.flatnonzero(work.is_kernel & (table.device == device))
        after = np.searchsorted(np.sort(table.start_ns[mine]), table.start_ns[kernels])
        inside = (after > 0) & (after <= len(mine))
        turns += len(np.unique(after[inside]))
        kernels_ns += int(work.exposed_ns[kernels[inside]].sum())
    return turns, kernels_ns


RULE = Rule(
    id="copy-overlap",
    title="Copies do not overlap with kernels",
    group="gpu_copy",
    check=_check,
    needs=("memcpy", "kernels"),
    thresholds=(
        Threshold("count", 5, "copies", "Fewer are no loop."),
        Threshold("turns", 5, "count", "So often copies and kernels must alternate for prefetching to apply."),
        Threshold("hidden_fraction", 0.33, "fraction", "Copies that are hidden for more overlap already."),
        Threshold("hidden_least", 0.5, "fraction", "Of what could be hidden; the first and last never are."),
    ),
)
