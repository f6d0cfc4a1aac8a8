"""A device whose clock is 2 ms behind, and one that is right."""

from __future__ import annotations

from boundby.simulate.machine import Machine
from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def skewed() -> Source:
    return pattern("healthy", machine=Machine(clock_skew_ns=-20_000_000))


def right() -> Source:
    return pattern("healthy")


def without_gpu() -> Source:
    return without(skewed(), "operations", "api")


CASES = RuleCases(positive=skewed, negative=right, missing=without_gpu)
