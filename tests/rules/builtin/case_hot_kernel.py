"""One kernel of the program's own that takes most of the time, and several that share it."""

from __future__ import annotations

from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without


def one() -> Source:
    step = Range("step {i}", [Work(30 * US), Launch("stencil", 800 * US), Launch("boundary", 100 * US)])
    return Source(program(Loop(20, [step]), Sync()))


def several() -> Source:
    kernels = [Launch(f"part_{number}", 150 * US) for number in range(6)]
    return Source(program(Loop(20, [Range("step {i}", [Work(30 * US), *kernels])]), Sync()))


def without_kernels() -> Source:
    return without(one(), "operations")


CASES = RuleCases(positive=one, negative=several, missing=without_kernels)
