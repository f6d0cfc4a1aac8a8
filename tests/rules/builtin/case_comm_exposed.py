"""Communication after every step; the same beside a longer kernel; no kernels."""

from __future__ import annotations

from boundby.simulate.instructions import MS, US, Launch, Loop, Range, Record, Sync, WaitEvent, Work, program
from tests.rules.builtin.harness import RuleCases, Source, pattern, without

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def after_every_step() -> Source:
    return pattern("comm")


def beside_the_backward_pass() -> Source:
    step = Range(
        "step {i}",
        [
            Launch("gemm_grad", 1 * MS, share=0.8),
            Record("first"),
            WaitEvent("first", 2),
            Launch(NCCL, 1 * MS, 2, comm=True, share=0.2),
            Launch("gemm_grad", 3 * MS, share=0.8),
            Work(20 * US),
        ],
    )
    return Source(program(Loop(20, [step]), Sync()))


def without_kernels() -> Source:
    return without(pattern("comm"), "operations")


CASES = RuleCases(positive=after_every_step, negative=beside_the_backward_pass, missing=without_kernels)
