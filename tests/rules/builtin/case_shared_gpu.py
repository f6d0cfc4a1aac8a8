"""A device that another process takes in slices, one that is its own, and kernels that were not captured."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, program
from boundby.trace.tables import Trace
from tests.rules.builtin.hardware import on_gpu
from tests.rules.builtin.harness import RuleCases, Source, without

KINDS = 7
STEPS = 60
SLICE_NS = 2_700_000


def _plain() -> Source:
    step = [Launch(f"part_{number}", (100 + 20 * number) * US) for number in range(KINDS)]
    return on_gpu(Source(program(Loop(STEPS, [Range("step {i}", step)]), Sync())))


def alone() -> Source:
    return _plain()


def _delayed(source: Source, every: int, slice_ns: int) -> Source:
    """Every so many kernels the device does something else for a slice, in turns before a kernel and inside one."""

    def slices(trace: Trace) -> Trace:
        trace = source.change(trace) if source.change else trace
        table = trace.operations
        number = np.arange(len(table))
        is_held = (number % every == every - 1) & (number > 10)
        inside = is_held & ((number // every) % 2 == 0)
        before = np.cumsum(np.where(is_held, slice_ns, 0))
        start = table.start_ns + before - np.where(inside, slice_ns, 0)
        return replace(trace, operations=replace(table, start_ns=start, end_ns=table.end_ns + before))

    return source.changed(slices)


def shared() -> Source:
    return _delayed(_plain(), 9, SLICE_NS)


def hot() -> Source:
    """The second half of the run at a lower clock."""
    source = _plain()

    def slow(trace: Trace) -> Trace:
        trace = source.change(trace) if source.change else trace
        table = trace.operations
        late = np.arange(len(table)) >= len(table) // 2
        extra = np.where(late, (table.end_ns - table.start_ns) * 3 // 10, 0)
        ended = np.cumsum(extra)
        return replace(
            trace, operations=replace(table, start_ns=table.start_ns + ended - extra, end_ns=table.end_ns + ended)
        )

    return source.changed(slow)


def without_kernels() -> Source:
    return without(shared(), "operations")


CASES = RuleCases(positive=shared, negative=alone, missing=without_kernels, also=("unsteady",))
