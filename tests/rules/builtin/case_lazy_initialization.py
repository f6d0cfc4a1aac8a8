"""Code that is loaded at the first launch, nothing to load, and calls that were not captured."""

from __future__ import annotations

from boundby.simulate.instructions import MS, US, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _program(load_ns: int) -> Source:
    kernels = [Launch(f"part_{number}", 150 * US, load_ns=load_ns) for number in range(6)]
    return Source(program(Launch("warm_up", 10 * US), Loop(20, [Range("step {i}", [Work(20 * US), *kernels])]), Sync()))


def loads() -> Source:
    return _program(4 * MS)


def loaded() -> Source:
    return _program(0)


def without_calls() -> Source:
    return without(loads(), "api")


CASES = RuleCases(positive=loads, negative=loaded, missing=without_calls, also=("warm-up",))
