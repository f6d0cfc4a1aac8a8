"""Managed memory that migrates page by page, copies in its place, and none at all."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from boundby.simulate.instructions import US, Copy, Launch, Loop, Range, Work, program
from boundby.trace.tables import OpKind, Trace
from tests.rules.builtin.harness import RuleCases, Source, pattern, without

KERNELS = [Launch(f"part_{number}", 150 * US) for number in range(4)]


def copies() -> Source:
    step = [Work(20 * US), *[Copy(60 << 10)] * 20, *KERNELS]
    return Source(program(Loop(20, [Range("step {i}", step)])))


def migrations() -> Source:
    def change(trace: Trace) -> Trace:
        """Copies become migrations, which belong to no call."""
        table = trace.operations
        moved = table.kind == OpKind.MEMCPY
        kind = np.where(moved, int(OpKind.MIGRATION), table.kind).astype(np.int8)
        return replace(trace, operations=replace(table, kind=kind, correlation=np.where(moved, 0, table.correlation)))

    return copies().changed(change)


def without_operations() -> Source:
    return without(pattern("copy"), "operations")


CASES = RuleCases(positive=migrations, negative=copies, missing=without_operations, also=("host-work",))
