"""Batches from pageable memory, from pinned memory, and no copies."""

from __future__ import annotations

from boundby.simulate.instructions import US, Copy, Launch, Loop, Memory, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def _training(memory: Memory) -> Source:
    step = [Range("load", [Work(20 * US), Copy(8 << 20, "HtoD", memory)]), Range("forward", [Launch("gemm", 900 * US)])]
    return Source(program(Loop(20, [Range("step {i}", step)]), Sync()))


def pageable() -> Source:
    return _training("pageable")


def pinned() -> Source:
    return _training("pinned")


def without_operations() -> Source:
    return without(pattern("copy"), "operations")


CASES = RuleCases(positive=pageable, negative=pinned, missing=without_operations, also=("sync-pageable-copy",))
