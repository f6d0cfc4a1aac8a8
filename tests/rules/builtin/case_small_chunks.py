"""Small copies and kernels in turn, large ones, and copies that were not captured."""

from __future__ import annotations

from boundby.simulate.instructions import US, Copy, Launch, Loop, Range, Sync, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _chunks(run_ns: int) -> Source:
    chunk = [Copy(32_768, "HtoD"), Launch("add", run_ns), Copy(32_768, "DtoH")]
    return Source(program(Loop(8, [Range("chunk {i}", chunk)]), Sync()))


def small() -> Source:
    return _chunks(2 * US)


def large() -> Source:
    return _chunks(500 * US)


def without_kernels() -> Source:
    return without(small(), "operations")


CASES = RuleCases(positive=small, negative=large, missing=without_kernels, also=("copy-exposed",))
