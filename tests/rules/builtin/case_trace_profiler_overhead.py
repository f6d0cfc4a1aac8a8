"""The profiler empties its buffers while the GPU waits, and does not."""

from __future__ import annotations

from boundby.trace.tables import Trace
from tests.rules.builtin.harness import RuleCases, Source, pattern, without
from tests.support.program import Program

US = 1_000


def _trace(flush: int) -> Trace:
    built = Program()
    for step in range(30):
        base = step * 400 * US
        built.push(base, base + 390 * US, f"step {step}")
        call = built.api(base, base + 5 * US, "cudaLaunchKernel")
        built.kernel(base + 8 * US, base + (390 - flush) * US, call)
        if flush:
            built.overhead(base + 10 * US, base + 390 * US)
    return built.trace()


def flushing() -> Source:
    return Source(_trace(flush=80))


def not_flushing() -> Source:
    return Source(_trace(flush=0))


def without_gpu() -> Source:
    return without(pattern("compute"), "operations", "api")


CASES = RuleCases(
    positive=flushing, negative=not_flushing, missing=without_gpu, also=("cuda-graphs", "host-work", "hot-kernel")
)
