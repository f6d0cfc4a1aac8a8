"""Two GPUs that reduce after every step, one of them late; both alike; one GPU only.

The simulator's communication kernels do not wait for each other, so the late one's partner is given the length that it
would have: until the late one has come, and then as long as that one takes.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from boundby.simulate.instructions import MS, US, Launch, Loop, Process, Program, Range, Sync, Thread, Work
from boundby.trace.tables import Trace
from tests.rules.builtin.harness import RuleCases, Source, pattern

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def _ranks(*compute_ns: int) -> Program:
    def rank(device: int, size: int) -> Process:
        reduce = Launch(NCCL, 500 * US, device=device, comm=True)
        pause = Work(max(compute_ns) - size + 2 * MS)  # its next step begins with the others'
        step = Range("step {i}", [Launch("gemm", size, device=device), reduce, Sync(device=device), pause])
        return Process((Thread((Loop(20, [step]),)),))

    return Program(tuple(rank(device, size) for device, size in enumerate(compute_ns)), "ranks")


def _wait_for_each_other(trace: Trace) -> Trace:
    """The n-th collective of every device ends where the last of them ends."""
    table = trace.operations
    end = table.end_ns.copy()
    rows = [np.flatnonzero(table.is_communication & (table.device == gpu)) for gpu in range(len(trace.gpus))]
    for matched in zip(*(one[np.argsort(table.start_ns[one], kind="stable")] for one in rows), strict=True):
        together = np.array(matched)
        end[together] = end[together].max()
    return replace(trace, operations=replace(table, end_ns=end))


def one_late() -> Source:
    return Source(_ranks(2 * MS, 4 * MS), change=_wait_for_each_other)


def alike() -> Source:
    return Source(_ranks(2 * MS, 2 * MS), change=_wait_for_each_other)


def one_gpu() -> Source:
    return pattern("comm")


CASES = RuleCases(
    positive=one_late, negative=alike, missing=one_gpu, also=("comm-exposed", "gpu-balance", "host-work", "sync-call")
)
