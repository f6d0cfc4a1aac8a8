"""Copies named asynchronous that are not: their host memory is pageable, so the host stands by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.waits import Group, WaitKind, waits_of
from boundby.model.causes import Cause
from boundby.model.units import duration, size
from boundby.rules.builtin._waiting import Keys, Words, matches
from boundby.rules.rule import Match, Rule

_PYTHON = ("Keep the host side in pinned memory, made once, and copy asynchronously on a stream",)
_TORCH = ("Pin the host's memory and do not block: DataLoader(pin_memory=True), x.to(device, non_blocking=True)",)
_OTHER = ("Pin the host's memory once: cudaMallocHost, or cudaHostRegister for memory that exists already",)


def check(context: RuleContext) -> Iterator[Match]:
    return matches(context, WaitKind.PAGEABLE, _keys, _words)


def _keys(_: RuleContext, rows: Rows) -> Keys:
    return ["copy"], np.zeros(len(rows), np.intp)


def _words(context: RuleContext, group: Group) -> Words:
    copied = np.isin(context.calls.of_operation, waits_of(context).call[group.rows])
    moved = int(context.operations.bytes[copied].sum())
    copies, plural = ("a copy", "s") if group.incidents == 1 else (f"{group.incidents:,} copies", "")
    return Words(
        f"the host stands by while {copies} of pageable memory ({size(moved)}) wait{plural} for the GPU's earlier "
        f"work: {duration(group.held_ns)} in all",
        context.program.pick(_OTHER, torch=_TORCH, python=_PYTHON, julia=_PYTHON),
        {"moved_bytes": moved},
    )


RULE = Rule(
    id="sync-pageable-copy",
    title="Asynchronous copies from or to pageable memory hold the host",
    group="sync",
    cause=Cause.SYNC,
    check=check,
    needs=("cuda_api", "kernels"),
)
