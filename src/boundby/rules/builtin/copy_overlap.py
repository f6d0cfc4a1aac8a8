"""Copies that kernels could hide and do not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.device_work import device_work
from boundby.evidence.transfers import Transfer, transfers
from boundby.model.arrays import factorize, unique
from boundby.model.causes import Cause
from boundby.model.scale import HABIT, HALF, QUARTER
from boundby.model.units import counted, duration
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule


def _check(context: RuleContext) -> Iterator[Match]:
    copies = CopySet(context, _on_streams_of_kernels(context, transfers(context).rows(Transfer.PINNED)))
    if copies.exposed_ns < context.least_ns or len(copies) < HABIT:
        return
    turns, kernels_ns = _turns(copies)
    hidden = 1 - copies.exposed_ns / max(copies.total_ns, 1)
    if turns < HABIT or hidden > QUARTER:
        return
    most = min(copies.saving_without(Cause.GPU_COPY)[1], kernels_ns)
    yield copies.match(
        f"{counted(len(copies), 'pinned copy does', 'pinned copies do')} not overlap with kernels: "
        f"{duration(copies.exposed_ns)} of copying comes on top of them",
        copies.evidence(turns=turns, hidden_fraction=round(hidden, 4), kernels_between_ns=kernels_ns),
        (round(HALF * most), most),
        (
            context.program.pick(
                "Copy the next piece on a stream of its own while this one computes: two buffers and two streams, "
                "cudaMemcpyAsync, and cudaStreamWaitEvent before the kernel that reads it",
                torch="Copy the next batch on a stream of its own while this one computes: "
                'with torch.cuda.stream(copy_stream): next_batch = next_batch.to("cuda", non_blocking=True), then '
                "torch.cuda.current_stream().wait_stream(copy_stream)",
                directives="Copy the next piece while this one computes: OpenACC async(queue) on update and loop, "
                "OpenMP nowait and depend on target update",
            ),
            "They are on a stream that also runs kernels, where everything waits its turn",
        ),
        cost_ns=copies.exposed_ns,
    )


def _on_streams_of_kernels(context: RuleContext, rows: Rows) -> Rows:
    """Those on a stream that also runs kernels. Why others do not overlap, this rule could not tell."""
    if not len(rows):
        return rows
    table = context.operations
    both = np.concatenate((rows, np.flatnonzero(device_work(context).is_kernel)))
    _, stream = factorize(table.device[both], table.process[both], table.stream[both])
    chosen: Rows = rows[np.isin(stream[: len(rows)], stream[len(rows) :])]
    return chosen


def _turns(copies: CopySet) -> tuple[int, int]:
    """How often kernels run after a copy and before the next (on one device), and how long they run in between."""
    work, table = device_work(copies.context), copies.context.operations
    turns, kernels_ns = 0, 0
    for device, rows in copies.per_device():
        kernels = np.flatnonzero(work.is_kernel & (table.device == device))
        after = np.searchsorted(np.sort(table.start_ns[rows]), table.start_ns[kernels])
        inside = (after > 0) & (after <= len(rows))
        turns += len(unique(after[inside]))
        kernels_ns += int(work.exposed_ns[kernels[inside]].sum())
    return turns, kernels_ns


RULE = Rule(
    id="copy-overlap",
    title="Copies do not overlap with kernels",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_check,
    needs=("memcpy", "kernels"),
)
