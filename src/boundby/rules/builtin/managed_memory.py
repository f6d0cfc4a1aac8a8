"""Managed memory that migrates between host and device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work
from boundby.model.causes import Cause
from boundby.model.units import counted, duration, size
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import OpKind

_CAPTURE = (
    "nsys profile --cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true records the faults that start the "
    "migrations"
)


def _check(context: RuleContext) -> Iterator[Match]:
    moves = np.flatnonzero(device_work(context).in_window & (context.operations.kind == OpKind.MIGRATION))
    migrations = CopySet(context, moves)
    if len(migrations) < RULE.threshold(context, "count") or migrations.exposed_ns < context.least_ns:
        return
    faults = context.trace.page_faults
    least, most = RULE.threshold(context, "avoided_least"), RULE.threshold(context, "avoided_most")
    what = "of managed memory"
    yield migrations.match(
        f"{counted(len(migrations), f'migration {what} moves', f'migrations {what} move')} "
        f"{size(migrations.byte_count)} in {duration(migrations.total_ns)}, "
        f"{size(migrations.byte_count / len(migrations))} at a time",
        migrations.evidence(cpu_page_faults_in_trace=faults.get("cpu"), gpu_page_faults_in_trace=faults.get("gpu")),
        migrations.saving_without(Cause.GPU_COPY, least, most),
        (
            *context.program.pick(
                (
                    "cudaMemPrefetchAsync(pointer, bytes, device, stream) before the first kernel that reads it moves "
                    "it "
                    "in large pieces, ahead of time",
                    "cudaMalloc and explicit copies, where it is clear who needs what when",
                ),
                python=("Switch the library's managed allocator off if the data fits the device",),
                directives=(
                    "Say who needs what when: data regions with copyin and copyout, compiled without managed memory "
                    "(-gpu=nomanaged in nvc and nvfortran)",
                    "cudaMemPrefetchAsync before the first kernel that reads it moves it in large pieces, ahead of "
                    "time",
                ),
            ),
            *(() if faults else (_CAPTURE,)),
        ),
        cost_ns=migrations.total_ns,
    )


RULE = Rule(
    id="managed-memory",
    title="Managed memory migrates page by page",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_check,
    needs=("memcpy",),
    thresholds=(
        Threshold("count", 10, "count", "A few migrations happen at any start."),
        Threshold("avoided_least", 0.3, "fraction", "The bytes still have to travel, though in larger pieces."),
        Threshold("avoided_most", 1.0, "fraction", "Prefetched ahead, they hide behind kernels."),
    ),
)
