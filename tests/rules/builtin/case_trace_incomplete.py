"""Host work in a trace that does not tell work from sleep, and in one that does."""

from __future__ import annotations

from boundby.simulate.nsys_export import Capture
from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def blind() -> Source:
    return pattern("cpu", capture=Capture(osrt=False, sched=False))


def seeing() -> Source:
    return pattern("cpu")


def without_gpu() -> Source:
    return without(pattern("cpu"), "operations", "api")


CASES = RuleCases(positive=blind, negative=seeing, missing=without_gpu, also=("host-work",))
