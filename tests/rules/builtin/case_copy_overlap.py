"""Copies in turn with kernels, copies behind kernels, and no copies."""

from __future__ import annotations

from boundby.simulate.instructions import US, Copy, Launch, Loop, Range, Record, Sync, WaitEvent, Work, program
from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def in_turn() -> Source:
    step = [Work(20 * US), Copy(16 << 20), Launch("gemm", 900 * US)]
    return Source(program(Loop(20, [Range("step {i}", step)]), Sync()))


def ahead() -> Source:
    """The next batch travels on a stream of its own while this one computes."""
    prefetch = [Copy(16 << 20, stream=1), Record("batch", stream=1)]
    step = [Work(20 * US), WaitEvent("batch"), *prefetch, Launch("gemm", 900 * US)]
    return Source(program(*prefetch, Loop(20, [Range("step {i}", step)]), Sync()))


def without_operations() -> Source:
    return without(pattern("copy"), "operations")


CASES = RuleCases(positive=in_turn, negative=ahead, missing=without_operations)
