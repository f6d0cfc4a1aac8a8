"""A report whose profiler says that it dropped events, and one that complains of something else."""

from __future__ import annotations

from msgspec.structs import replace

from boundby.trace.facts import TraceWarning
from boundby.trace.tables import Trace
from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def _warned(message: str) -> Source:
    def warn(trace: Trace) -> Trace:
        return replace(trace, warnings=(TraceWarning("profiler-warning", message),))

    return pattern("healthy").changed(warn)


def dropped() -> Source:
    return _warned("Not enough buffer space: 1234 CUDA events were dropped.")


def unrelated() -> Source:
    return _warned("Unable to collect kernel IP samples and backtraces. perf event paranoid level is 2.")


def without_gpu() -> Source:
    return without(pattern("healthy"), "operations", "api")


CASES = RuleCases(positive=dropped, negative=unrelated, missing=without_gpu)
