"""A program captured without its ranges, and with them."""

from __future__ import annotations

from boundby.simulate.nsys_export import Capture
from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def plain() -> Source:
    return pattern("healthy", capture=Capture(nvtx=False))


def annotated() -> Source:
    return pattern("healthy")


def without_gpu() -> Source:
    return without(plain(), "operations", "api")


CASES = RuleCases(positive=plain, negative=annotated, missing=without_gpu)
