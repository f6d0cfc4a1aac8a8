"""Two GPUs with unequal work, with equal work, and kernels that were not captured."""

from __future__ import annotations

from boundby.simulate.instructions import MS, Launch, Loop, Range, Sync, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _two(first_ns: int, second_ns: int) -> Source:
    both = [Launch("stage", first_ns), Launch("stage", second_ns, device=1)]
    return Source(program(Loop(20, [Range("step {i}", both)]), Sync(), Sync(device=1)))


def uneven() -> Source:
    return _two(3 * MS, 1 * MS)


def even() -> Source:
    return _two(2 * MS, 2 * MS)


def without_kernels() -> Source:
    return without(uneven(), "operations")


CASES = RuleCases(positive=uneven, negative=even, missing=without_kernels, also=("hot-kernel",))
