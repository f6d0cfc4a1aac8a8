"""Managed memory that migrates between host and device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work, place_of, saving_without, scaled
from boundby.evidence.transfers import copy_evidence, copy_examples
from boundby.model.causes import Cause
from boundby.model.units import counted, duration, size
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import OpKind

_CAPTURE = (
    "nsys profile --cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true records the faults that start the "
    "migrations"
)


def _check(context: RuleContext) -> Iterator[Match]:
    work, trace = device_work(context), context.trace
    rows = np.flatnonzero(work.in_window & (trace.operations.kind == OpKind.MIGRATION))
    if len(rows) < RULE.threshold(context, "count") or int(work.exposed_ns[rows].sum()) < context.least_ns:
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
            RULE.threshold(context, "avoided_least"),
            RULE.threshold(context, "avoided_most"),
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
    cause=Cause.GPU_COPY,
    check=_check,
    needs=("memcpy",),
    thresholds=(
        Threshold("count", 10, "count", "A few migrations are a beginning, not a habit."),
        Threshold("avoided_least", 0.3, "fraction", "The bytes still have to travel, though in larger pieces."),
        Threshold("avoided_most", 1.0, "fraction", "Prefetched ahead, they hide behind kernels."),
    ),
)
