"""GPU work that begins after seconds, at once, and never."""

from __future__ import annotations

from boundby.simulate.instructions import US, Instruction, Launch, Loop, Range, S, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _program(*before: Instruction) -> Source:
    kernels = [Launch(f"part_{number}", 150 * US) for number in range(6)]
    return Source(program(*before, Loop(20, [Range("step {i}", [Work(20 * US), *kernels])]), Sync()))


def late() -> Source:
    return _program(Range("build model", [Work(5 * S)]))


def at_once() -> Source:
    return _program()


def without_kernels() -> Source:
    return without(late(), "operations")


CASES = RuleCases(positive=late, negative=at_once, missing=without_kernels)
