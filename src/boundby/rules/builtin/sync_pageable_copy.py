"""Copies named asynchronous that are not: their host memory is pageable, so the host stands by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence import waits as _waits
from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.units import duration, size
from boundby.rules.rule import Match, Rule

_PYTHON = ("Pin the host's memory and do not block: DataLoader(pin_memory=True), x.to(device, non_blocking=True)",)
_OTHER = ("Pin the host's memory once: cudaMallocHost, or cudaHostRegister for memory that is there already",)


def check(context: RuleContext) -> Iterator[Match]:
    waits = context.once(_waits.waits_of)
    timeline = context.timeline
    rows = waits.of_kind(_waits.PAGEABLE)
    moved = np.zeros(len(timeline.calls), np.int64)
    joined = np.flatnonzero(timeline.calls.of_operation >= 0)
    np.add.at(moved, timeline.calls.of_operation[joined], timeline.trace.operations.bytes[joined])
    for group in _waits.groups(context, waits, rows, ["copy"] * len(rows)):
        saved, told = _waits.saving(context, waits, group)
        total = int(moved[waits.call[group.rows]].sum())
        copies, plural = ("a copy", "s") if group.incidents == 1 else (f"{group.incidents:,} copies", "")
        yield Match(
            region=group.region,
            title=f"the host stands by while {copies} of pageable memory ({size(total)}) wait{plural} for the GPU's "
            f"earlier work: {duration(group.held_ns)} in all",
            evidence={**_waits.evidence(context, waits, group), "moved_bytes": total, **told},
            saving_ns=saved,
            advice=(_PYTHON if _waits.is_python(context) else _OTHER) + _waits.together_advice(context, told),
            examples=_waits.examples(context, waits, group),
            instances=group.incidents,
        )


RULE = Rule(
    id="sync-pageable-copy",
    title="Asynchronous copies from or to pageable memory hold the host",
    group="sync",
    cause=Cause.SYNC,
    check=check,
    needs=("cuda_api", "kernels"),
)
