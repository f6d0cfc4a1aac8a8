"""Two threads on one stream with kernels of a few blocks; with kernels that fill the GPU; without launch shapes."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, Thread, Work, threads
from boundby.trace.tables import GpuFacts, LaunchShapes, Trace
from tests.rules.builtin.harness import RuleCases, Source


def _two_threads() -> Source:
    def thread(name: str) -> Thread:
        step = Range(f"{name} {{i}}", [Launch(f"small_{name}", 60 * US), Work(20 * US)])
        return Thread((Loop(60, [step]), Sync()), name)

    return Source(threads(thread("a"), thread("b"), name="two threads"))


def _with_blocks(blocks: int) -> Source:
    def shape(trace: Trace) -> Trace:
        one = np.array([1], np.int64)
        return replace(
            trace,
            operations=replace(trace.operations, shape=np.zeros(len(trace.operations), np.int32)),
            shapes=LaunchShapes(blocks * one, 256 * one, 32 * one, 0 * one),
            gpu_facts=tuple(GpuFacts(multiprocessors=108) for _ in trace.gpus),
        )

    return _two_threads().changed(shape)


def few_blocks() -> Source:
    return _with_blocks(8)


def many_blocks() -> Source:
    return _with_blocks(2_000)


def no_shapes() -> Source:
    def forget(trace: Trace) -> Trace:
        return replace(trace, operations=replace(trace.operations, shape=np.full(len(trace.operations), -1, np.int32)))

    return _two_threads().changed(forget)


CASES = RuleCases(positive=few_blocks, negative=many_blocks, missing=no_shapes, also=("small-grid", "small-blocks"))
