"""Kernels that are compiled when they first run, the same without, and calls that were not captured."""

from __future__ import annotations

from boundby.simulate.instructions import MS, US, Init, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _program(compile_ns: int) -> Source:
    first = [
        item
        for number in range(4)
        for item in (
            Range("nvrtcCompileProgram", [Work(compile_ns)]),
            Init(100 * US, call="cuModuleLoadDataEx"),
            Launch(f"part_{number}", 500 * US),
        )
    ]
    step = Range("step {i}", [Work(20 * US), *(Launch(f"part_{number}", 500 * US) for number in range(4))])
    return Source(program(Launch("fill", 10 * US), *first, Loop(30, [step]), Sync()))


def compiles() -> Source:
    return _program(30 * MS)


def compiled() -> Source:
    """A lookup in a cache takes less than any compiler."""
    return _program(1 * MS)


def without_calls() -> Source:
    return without(compiles(), "api")


CASES = RuleCases(positive=compiles, negative=compiled, missing=without_calls, also=("lazy-initialization",))
