"""Two threads, one on the default stream, whose kernels must take turns; on independent streams; no calls."""

from __future__ import annotations

from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, Thread, Work, threads
from boundby.simulate.machine import Machine
from tests.rules.builtin.harness import RuleCases, Source, without


def _two_threads(*, legacy: bool) -> Source:
    def thread(name: str, stream: int) -> Thread:
        step = Range(f"{name} {{i}}", [Launch(f"gemm_{name}", 300 * US, stream, share=0.4), Work(40 * US)])
        return Thread((Loop(60, [step]), Sync()), name)

    machine = Machine(legacy_default_stream=legacy)
    return Source(threads(thread("a", 0), thread("b", 3), name="two threads"), machine)


def default_stream_between() -> Source:
    return _two_threads(legacy=True)


def side_by_side() -> Source:
    return _two_threads(legacy=False)


def without_calls() -> Source:
    return without(default_stream_between(), "api")


CASES = RuleCases(positive=default_stream_between, negative=side_by_side, missing=without_calls)
