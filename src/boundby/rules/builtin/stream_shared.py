"""Threads that work side by side launch onto one stream, and kernels too small for the GPU run one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.device_work import device_work
from boundby.model.arrays import ranked, unique
from boundby.model.scale import HALF, MANY, SLIGHT
from boundby.model.units import count, duration
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.rule import Match, Rule

# Kernels with more blocks than this, a multiprocessor, take as long side by side.
_SMALL = HALF


def _check(context: RuleContext) -> Iterator[Match]:
    calls, table, work = context.calls, context.operations, device_work(context)
    if not len(calls):
        raise CannotCheckError("the trace holds no CUDA API calls, so nothing shows which thread launched what")
    leader_of = context.timeline.logical_threads.leader
    if len(unique(leader_of[unique(calls.thread)])) < 2:
        return
    rows = np.flatnonzero(work.is_kernel & (calls.of_operation >= 0))
    leader = leader_of[calls.thread[calls.of_operation[rows]]]
    if len(unique(leader)) < 2:
        return
    if not (work.blocks[rows] > 0).any() or not (work.multiprocessors[rows] > 0).any():
        raise CannotCheckError("the trace holds no launch shapes, so not whether kernels would fit side by side")
    is_small = (work.blocks[rows] > 0) & (work.blocks[rows] <= _SMALL * work.multiprocessors[rows])
    key = np.stack((table.device[rows], table.process[rows], table.stream[rows]), axis=1)
    streams, of_row = np.unique(key, axis=0, return_inverse=True)
    worth = max(context.least_ns, SLIGHT * context.longest_window_ns)
    for number, (_, _, stream) in enumerate(streams.tolist()):
        here = np.flatnonzero(of_row.ravel() == number)
        here = here[np.argsort(table.start_ns[rows[here]], kind="stable")]
        leaders, of_leader = ranked(leader[here])
        if len(leaders) < 2 or int((np.diff(of_leader) != 0).sum()) < MANY:
            continue
        # Time of small kernels by thread: all but the longest's could run beside it.
        small_ns = np.bincount(of_leader, weights=np.where(is_small[here], work.exposed_ns[rows[here]], 0))
        most = int(small_ns.sum() - small_ns.max())
        if most < worth:
            continue
        small = int(is_small[here].sum())
        yield Match(
            region=KernelSet(context, rows[here]).region,
            title=f"{len(leaders)} threads launch onto stream {stream}; {count(small)} kernels too small for the GPU "
            f"run one after the other, {duration(int(small_ns.sum()))}",
            evidence={
                "threads": len(leaders),
                "stream": stream,
                "kernels": len(here),
                "small_kernels": small,
                "small_kernels_ns": int(small_ns.sum()),
            },
            saving_ns=(0, most),
            advice=(
                context.program.pick(
                    "Give each thread a stream of its own: cudaStreamNonBlocking, or nvcc --default-stream per-thread",
                    torch="Give each thread a stream of its own: with torch.cuda.stream(torch.cuda.Stream()): in the "
                    "thread",
                    python="Give each thread a stream of its own",
                    directives="Give each thread a queue of its own: async(queue) with another number in each",
                    julia="Give each task a stream of its own, as CUDA.jl does by default",
                ),
            ),
            examples=KernelSet(context, rows[here[is_small[here]]]).examples(),
            instances=small,
            is_unsure=True,
        )


RULE = Rule(
    id="stream-shared",
    title="Threads share one stream",
    group="streams",
    check=_check,
    needs=("kernels",),
)
