"""Copies on the device between kernels, few of them, and copies that were not captured."""

from __future__ import annotations

from boundby.simulate.instructions import MS, Copy, Launch, Loop, Range, Sync, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _copies(size_bytes: int) -> Source:
    return Source(
        program(Loop(20, [Range("step {i}", [Launch("part", 1 * MS), Copy(size_bytes, "DtoD", "device")])]), Sync())
    )


def large() -> Source:
    return _copies(400_000_000)


def small() -> Source:
    return _copies(1_000_000)


def without_copies() -> Source:
    return without(large(), "operations")


CASES = RuleCases(positive=large, negative=small, missing=without_copies, also=("hot-kernel",))
