"""A lock in every step; the same sleep behind the GPU; no calls."""

from __future__ import annotations

from boundby.simulate.instructions import MS, Launch, Loop, Range, Sleep, Sync, program
from tests.rules.builtin.harness import RuleCases, Source, without


def _step(kernel: int) -> Source:
    parts = [Range("forward", [Launch("gemm", kernel)]), Range("publish", [Sleep(4 * MS, "pthread_mutex_lock")])]
    return Source(program(Loop(20, [Range("step {i}", parts)]), Sync()))


def waits_for_a_lock() -> Source:
    return _step(1 * MS)


def waits_behind_the_gpu() -> Source:
    return _step(6 * MS)


def without_calls() -> Source:
    return without(waits_for_a_lock(), "api")


CASES = RuleCases(positive=waits_for_a_lock, negative=waits_behind_the_gpu, missing=without_calls)
