"""Managed memory that migrates between host and device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.copying import copy_evidence, copy_examples
from boundby.evidence.devicework import device_work, place_of, saving_without, scaled
from boundby.model.causes import Cause
from boundby.model.units import counted, duration, size
from boundby.rules.rule import Match, Remedy, Rule, Threshold
from boundby.trace.tables import OpKind

_CAPTURE = (
    "nsys profile --cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true records the faults that start the "
    "migrations"
)


def _check(context: RuleContext) -> Iterator[Match]:
    work, trace = context.once(device_work), context.timeline.trace
    rows = np.flatnonzero(work.in_window & (trace.operations.kind == OpKind.MIGRATION))
    if len(rows) < context.threshold(RULE, "count") or int(work.exposed_ns[rows].sum()) < context.least_ns:
        return
    faults = trace.page_faults
    evidence = {
        **copy_evidence(context, rows),
        "cpu_page_faults_in_trace": faults.get("cpu"),
        "gpu_page_faults_in_trace": faults.get("gpu"),
    }
    byte_count, total = int(str(evidence["bytes"])), int(str(evidence["total_ns"]))
    yield Match(
        region=place_of(context, rows),
        title=f"{counted(len(rows), 'migration of managed memory moves', 'migrations of managed memory move')} "
        f"{size(byte_count)} in {duration(total)}, "
        f"{size(byte_count / len(rows))} at a time",
        evidence=evidence,
        saving_ns=scaled(
            saving_without(context, Cause.GPU_COPY, rows),
            context.threshold(RULE, "avoided_least"),
            context.threshold(RULE, "avoided_most"),
        ),
        advice=(
            "cudaMemPrefetchAsync(pointer, bytes, device, stream) before the first kernel that reads it moves it in "
            "large pieces, ahead of time",
            "cudaMalloc and explicit copies, where it is clear who needs what when",
            "CuPy, RAPIDS and Numba: switch the managed allocator off if the data fits the device",
            *(() if faults else (_CAPTURE,)),
        ),
        examples=copy_examples(context, rows),
        instances=len(rows),
        cost_ns=total,
    )


RULE = Rule(
    id="managed-memory",
    title="Managed memory migrates page by page",
    group="gpu_copy",
    picture="""\
kernel   | . fault . . fault . . fault . |       stalls at each page it lacks
copies      |64K|     |64K|     |64K|            thousands of small migrations
""",
    meaning="""\
Managed (unified) memory moves to whoever touches it, a page group at a time, when a page fault asks for it. A kernel
that faults waits; the host that reads a result pulls it back. Thousands of small migrations take far longer than one
copy of the same bytes, and kernels are slower for the faults besides, which this saving does not count.

Told by the migrations among the trace's copies; they belong to no call. Page faults are counted beside them where the
trace holds them.
""",
    remedies=(
        Remedy(
            "CUDA C++: prefetch.",
            "cudaMemPrefetchAsync(data, bytes, device, stream);\nkernel<<<grid, block, 0, stream>>>(data);\n"
            "cudaMemPrefetchAsync(data, bytes, cudaCpuDeviceId, stream);",
            language="cpp",
            caution="From CUDA 13 on the place is a cudaMemLocation. Prefetching what is not needed costs as much.",
        ),
        Remedy(
            "Say what is only read, so that copies can stay on both sides.",
            "cudaMemAdvise(table, bytes, cudaMemAdviseSetReadMostly, device);",
            language="cpp",
        ),
        Remedy(
            "RAPIDS: device memory from a pool.",
            "rmm.reinitialize(pool_allocator=True, managed_memory=False)",
            caution="Data larger than the device's memory then fails instead of migrating.",
        ),
    ),
    disproof="The data is larger than the device's memory, so that it has to move, or each page is touched only once.",
    check=_check,
    needs=("memcpy",),
    thresholds=(
        Threshold("count", 10, "count", "A few migrations are a beginning, not a habit."),
        Threshold("avoided_least", 0.3, "fraction", "The bytes still have to travel, though in larger pieces."),
        Threshold("avoided_most", 1.0, "fraction", "Prefetched ahead, they hide behind kernels."),
    ),
    see_also=("repeated-transfer", "pageable-copy"),
    references={
        "CUDA: maximizing unified memory performance": (
            "https://developer.nvidia.com/blog/maximizing-unified-memory-performance-cuda/"
        )
    },
)
