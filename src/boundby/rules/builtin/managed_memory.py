"""Managed memory that migrates between host and device, and kernels that wait for its pages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext, SavingNs
from boundby.evidence.device_work import device_work
from boundby.evidence.transfers import Paged, paged
from boundby.model.causes import Cause
from boundby.model.scale import MANY, QUARTER
from boundby.model.units import count, counted, duration, size
from boundby.rules.builtin._operations import CopySet, KernelSet
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import OpKind

_CAPTURE = (
    "nsys profile --cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true records the faults that start the "
    "migrations, and so which kernels wait for them"
)


def _check(context: RuleContext) -> Iterator[Match]:
    pages = paged(context)
    moves = np.flatnonzero(device_work(context).in_window & (context.operations.kind == OpKind.MIGRATION))
    migrations = CopySet(context, moves[~(pages.ahead | pages.read_back)[moves]])
    kernels = KernelSet(context, pages.kernels)
    cost_ns = migrations.exposed_ns + pages.stalled_ns
    if max(len(migrations), pages.faults) < MANY or cost_ns < context.least_ns:
        return
    is_kernels = pages.stalled_ns > migrations.exposed_ns
    about, faults = (kernels if is_kernels else migrations), context.trace.page_faults
    yield about.match(
        _stalled(kernels, migrations, pages) if is_kernels else _moved(migrations),
        {
            **(migrations.evidence() if len(migrations) else {"count": 0}),
            "cpu_page_faults_in_trace": faults.get("cpu"),
            "gpu_page_faults_in_trace": faults.get("gpu"),
            "kernels_that_wait_for_pages": len(kernels),
            "kernels_wait_ns": pages.stalled_ns,
            "evictions": pages.evictions,
            **({"kernels": kernels.named()} if len(kernels) else {}),
        },
        _saving(migrations, kernels, pages),
        (
            *_advice(context, pages),
            *(() if faults else (_CAPTURE,)),
        ),
        cost_ns=cost_ns if is_kernels else migrations.total_ns + pages.stalled_ns,
    )


def _moved(migrations: CopySet) -> str:
    what = "of managed memory"
    return (
        f"{counted(len(migrations), f'migration {what} moves', f'migrations {what} move')} "
        f"{size(migrations.byte_count)} in {migrations.took}, "
        f"{size(migrations.byte_count / len(migrations))} at a time"
    )


def _stalled(kernels: KernelSet, migrations: CopySet, pages: Paged) -> str:
    """The kernels run, so the account has them as computing: of their time so much is waiting."""
    faults = f"{count(pages.faults)} page faults, " if pages.faults else ""
    moved = f"{count(len(migrations))} migrations of {size(migrations.byte_count)}"
    return (
        f"{counted(len(kernels), 'kernel waits', 'kernels wait')} for pages of managed memory for "
        f"{duration(pages.stalled_ns)} of {duration(kernels.total_ns)} ({faults}{moved})"
    )


def _saving(migrations: CopySet, kernels: KernelSet, pages: Paged) -> SavingNs:
    """Of what moves in the open, a part; and of what kernels wait for at most all: how much of that they do beside
    waiting no record says."""
    context = migrations.context
    least, most = QUARTER, 1.0
    low, high = migrations.saving_without(Cause.GPU_COPY, least, most) if len(migrations) else (0, 0)
    if not len(kernels):
        return low, high
    own_ns = max(kernels.total_ns - pages.stalled_ns, kernels.total_ns // round(RULE.threshold(context, "faster_most")))
    return low, high + min(kernels.saving_by_speed(1.0, kernels.total_ns / max(own_ns, 1))[1], pages.stalled_ns)


def _advice(context: RuleContext, pages: Paged) -> tuple[str, ...]:
    if pages.evictions:
        return (
            f"{count(pages.evictions)} migrations make room for others: more is in use than the device holds. Work in "
            "pieces that fit, with explicit copies of the next piece beside the kernels of this one: prefetching alone "
            "evicts what is needed next",
        )
    return context.program.pick(
        (
            "cudaMemPrefetchAsync(pointer, bytes, device, stream) before the first kernel that reads it moves it in "
            "large pieces, ahead of time",
            "cudaMalloc and explicit copies, where it is clear who needs what when",
        ),
        python=("Switch the library's managed allocator off if the data fits the device",),
        directives=(
            "Say who needs what when: data regions with copyin and copyout, compiled without managed memory "
            "(-gpu=nomanaged in nvc and nvfortran)",
            "cudaMemPrefetchAsync before the first kernel that reads it moves it in large pieces, ahead of time",
        ),
    )


RULE = Rule(
    id="managed-memory",
    title="Managed memory migrates page by page, and kernels wait for it",
    group="gpu_copy",
    causes=(Cause.GPU_COPY, Cause.GPU_COMPUTE),  # kernels wait for the pages they touch
    check=_check,
    needs=("memcpy",),
    thresholds=(
        Threshold("faster_most", 50.0, "times", "Whatever waits for pages all its time still has something to do."),
    ),
)
