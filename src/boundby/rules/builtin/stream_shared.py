"""Threads that work side by side launch onto one stream, and kernels too small for the GPU run one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.device_work import device_work, operation_examples, place_of
from boundby.model.units import count, duration
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    timeline, work = context.timeline, device_work(context)
    if not len(timeline.calls):
        raise CannotCheckError("the trace holds no CUDA API calls, so nothing tells which thread launched what")
    table, call = timeline.trace.operations, timeline.calls.of_operation
    rows = np.flatnonzero(work.is_kernel & (call >= 0))
    if not len(rows):
        return
    leader = timeline.logical_threads.leader[timeline.calls.thread[call[rows]]]
    if len(np.unique(leader)) < 2:
        return
    if not (work.blocks[rows] > 0).any() or not (work.multiprocessors[rows] > 0).any():
        raise CannotCheckError("the trace tells no launch shapes, so not whether kernels would fit side by side")
    key = np.stack((table.device[rows], table.process[rows], table.stream[rows]), axis=1)
    for device, process, stream in np.unique(key, axis=0).tolist():
        mine = np.flatnonzero((key == (device, process, stream)).all(axis=1))
        mine = mine[np.argsort(table.start_ns[rows[mine]], kind="stable")]
        leaders, of_leader = np.unique(leader[mine], return_inverse=True)
        if len(leaders) < 2 or int((np.diff(of_leader) != 0).sum()) < RULE.threshold(context, "turns_least"):
            continue
        here = rows[mine]
        small = (work.blocks[here] > 0) & (work.blocks[here] <= 0.5 * work.multiprocessors[here])
        # Time of small kernels by thread: all but the longest's could run beside it.
        by_leader = np.bincount(of_leader, weights=np.where(small, work.exposed_ns[here], 0))
        most = int(by_leader.sum() - by_leader.max())
        if most < max(context.least_ns, RULE.threshold(context, "share_fraction") * context.longest_window_ns):
            continue
        yield Match(
            region=place_of(context, here),
            title=f"{len(leaders)} threads launch onto stream {stream}; {count(int(small.sum()))} kernels too small "
            f"for the GPU run one after the other, {duration(int(by_leader.sum()))}",
            evidence={
                "threads": len(leaders),
                "stream": stream,
                "kernels": len(here),
                "small_kernels": int(small.sum()),
                "small_kernels_ns": int(by_leader.sum()),
            },
            saving_ns=(0, most),
            advice=(
                "Give each thread a stream of its own: with torch.cuda.stream(torch.cuda.Stream()): in the thread "
                "(CUDA C++: cudaStreamNonBlocking, or nvcc --default-stream per-thread)",
            ),
            examples=operation_examples(context, here[small]),
            instances=int(small.sum()),
            severity="medium" if most >= 0.1 * context.longest_window_ns else None,
        )


RULE = Rule(
    id="stream-shared",
    title="Threads share one stream",
    group="streams",
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("turns_least", 20, "count", "Kernels must mix, else the threads merely follow each other."),
        Threshold("share_fraction", 0.03, "fraction of the window", "Below, it is not worth a change of streams."),
    ),
)
