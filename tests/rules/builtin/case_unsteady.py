"""Steps of very different length, steps that are alike, and a program without ranges."""

from __future__ import annotations

from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _program(*lengths_us: int) -> Source:
    steps = [
        Range(f"step {number}", [Work(20 * US), *(Launch(f"part_{part}", length * US) for part in range(5))])
        for number, length in enumerate(lengths_us)
    ]
    return Source(program(Loop(6, steps), Sync()))


def different() -> Source:
    return _program(100, 400, 150, 300)


def alike() -> Source:
    return _program(200, 210, 205, 195)


def without_ranges() -> Source:
    return without(different(), "ranges")


CASES = RuleCases(positive=different, negative=alike, missing=without_ranges)
