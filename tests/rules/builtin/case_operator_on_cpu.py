"""A distance matrix on the CPU in every step; the same operators with their kernels; no operator ranges."""

from __future__ import annotations

from boundby.simulate.instructions import MS, US, Instruction, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _step(*extra: Instruction) -> Source:
    forward = [Range("aten::mm, seq = {i}", [Work(20 * US), Launch("gemm", 200 * US)]) for _ in range(4)]
    step = Range("step {i}", [*extra, Range("forward", forward)])
    return Source(program(Loop(20, [step]), Sync()))


def on_the_cpu() -> Source:
    return _step(Range("aten::cdist, seq = {i}", [Work(3 * MS)]))


def on_the_device() -> Source:
    return _step(Range("aten::cdist, seq = {i}", [Work(20 * US), Launch("cdist_kernel", 300 * US)]))


def without_ranges() -> Source:
    return without(on_the_cpu(), "ranges")


CASES = RuleCases(positive=on_the_cpu, negative=on_the_device, missing=without_ranges)
