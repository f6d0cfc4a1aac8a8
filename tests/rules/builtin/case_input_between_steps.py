"""A PyTorch loop that sleeps between its steps, in no range; the same behind the GPU's work; no ranges."""

from __future__ import annotations

from boundby.simulate.instructions import MS, US, Launch, Loop, Range, Sleep, Sync, Work, program
from tests.rules.builtin.hardware import elementwise
from tests.rules.builtin.harness import RuleCases, Source, without


def _loop(kernel: int, slept: int = 3 * MS) -> Source:
    forward = Range("forward", [Launch(elementwise("Mul"), kernel), Work(20 * US), Launch("gemm", kernel)])
    step = Range("step {i}", [forward])
    return Source(program(Loop(12, [step, Sleep(slept, "clock_nanosleep")]), Sync()))


def sleeps_between_steps() -> Source:
    return _loop(1 * MS)


def hardly_between_steps() -> Source:
    return _loop(4 * MS, 40 * US)


def without_ranges() -> Source:
    return without(sleeps_between_steps(), "ranges")


CASES = RuleCases(positive=sleeps_between_steps, negative=hardly_between_steps, missing=without_ranges)
