"""CUDA graphs traced as a whole, and node by node."""

from __future__ import annotations

from boundby.simulate.nsys_export import Capture
from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def whole() -> Source:
    return pattern("graphs")


def nodes() -> Source:
    return pattern("graphs", capture=Capture(graph_nodes=True))


def without_gpu() -> Source:
    return without(pattern("graphs"), "operations", "api")


CASES = RuleCases(positive=whole, negative=nodes, missing=without_gpu)
