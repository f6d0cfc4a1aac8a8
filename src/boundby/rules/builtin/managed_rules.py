"""The rules on managed memory: it migrates between host and device, kernels wait for its pages, and the host reads it
back a page fault at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext, SavingNs
from boundby.evidence.device_work import device_work
from boundby.evidence.host_idleness import Idleness, host_pieces, places
from boundby.evidence.transfers import Paged, paged
from boundby.model.causes import Cause
from boundby.model.scale import MANY, QUARTER
from boundby.model.units import count, counted, duration, size
from boundby.rules.builtin._operations import CopySet, KernelSet
from boundby.rules.builtin._telling import match, while_idle
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import OpKind

_CAPTURE = (
    "nsys profile --cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true records the faults that start the "
    "migrations, and so which kernels wait for them"
)


def _migrates(context: RuleContext) -> Iterator[Match]:
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
            *_migration_advice(context, pages),
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
    """The kernels run, so the account has them as computing: during so much of that pages come in."""
    faults = f"{count(pages.faults)} page faults, " if pages.faults else ""
    moved = f"{count(len(migrations))} migrations, {size(migrations.byte_count)} in all"
    return (
        f"{counted(len(kernels), 'kernel runs', 'kernels run')} for {duration(kernels.total_ns)}, and the GPU fetches "
        f"pages of managed memory for {duration(pages.stalled_ns)} of that ({faults}{moved})"
    )


def _saving(migrations: CopySet, kernels: KernelSet, pages: Paged) -> SavingNs:
    """Of what moves in the open, a part; and of what kernels wait for at most all: how much of that they do beside
    waiting no record says."""
    context = migrations.context
    least, most = QUARTER, 1.0
    low, high = migrations.saving_without(Cause.GPU_COPY, least, most) if len(migrations) else (0, 0)
    if not len(kernels):
        return low, high
    own_ns = max(
        kernels.total_ns - pages.stalled_ns, kernels.total_ns // round(MEMORY.threshold(context, "faster_most"))
    )
    return low, high + min(kernels.saving_by_speed(1.0, kernels.total_ns / max(own_ns, 1))[1], pages.stalled_ns)


def _migration_advice(context: RuleContext, pages: Paged) -> tuple[str, ...]:
    if pages.evictions:
        return (
            "Work in pieces that fit, with explicit copies of the next piece beside the kernels of this one: more is "
            f"in use than the device holds, and {count(pages.evictions)} migrations make room for others. Prefetching "
            "alone evicts what is needed next",
        )
    return context.program.pick(
        (
            "cudaMemPrefetchAsync(pointer, bytes, device, stream) before the first kernel that reads it moves it in "
            "large pieces, ahead of time",
            "Use cudaMalloc and explicit copies where it is clear when the host and the GPU need the data",
        ),
        python=("Switch the library's managed allocator off if the data fits the device",),
        directives=(
            "Say when the host and the GPU need the data: data regions with copyin and copyout, compiled without "
            "managed memory (-gpu=nomanaged in nvc and nvfortran)",
            "cudaMemPrefetchAsync before the first kernel that reads it moves it in large pieces, ahead of time",
        ),
    )


MEMORY = Rule(
    id="managed-memory",
    title="Managed memory migrates page by page, and kernels wait for it",
    group="gpu_copy",
    causes=(Cause.GPU_COPY, Cause.GPU_COMPUTE),  # kernels wait for the pages they touch
    check=_migrates,
    needs=("memcpy",),
    thresholds=(
        Threshold("faster_most", 50.0, "times", "A kernel that waits for pages all its time still computes a little."),
    ),
)


def _read_back(context: RuleContext) -> Iterator[Match]:
    pieces, table = host_pieces(context), context.operations
    read_back = np.flatnonzero(paged(context).read_back)
    for place in places(context, pieces.of_kind(Idleness.PAGES)):
        around = pieces.start_ns[place.rows].min(), pieces.end_ns[place.rows].max()
        moves = read_back[(table.start_ns[read_back] >= around[0]) & (table.start_ns[read_back] <= around[1])]
        byte_count = int(table.bytes[moves].sum())
        yield match(
            context,
            place,
            f"the host reads {size(byte_count)} of managed memory back by page faults{while_idle(context)}, in "
            f"{counted(len(moves), 'migration', 'migrations')} of {size(byte_count / max(len(moves), 1))}"
            f", for {duration(place.total_ns)}",
            "reads managed memory back",
            evidence={"migrations": len(moves), "bytes": byte_count},
            advice=_read_back_advice(context),
            removed_least=0.0,
        )


def _read_back_advice(context: RuleContext) -> tuple[str, ...]:
    on_gpu = "Work on the result on the GPU (a check, a sum, a norm), and read back only the number that is left"
    return context.program.pick(
        (
            "cudaMemPrefetchAsync(pointer, bytes, cudaCpuDeviceId, stream) and cudaStreamSynchronize(stream) before "
            "the host reads: one copy at the rate of the bus instead of a page fault for each piece",
            on_gpu,
        ),
        python=(on_gpu,),
        directives=(
            "Copy the result with an update directive (update self, update from) before the host reads it, compiled "
            "without managed memory",
            on_gpu,
        ),
    )


READ_BACK = Rule(
    id="managed-read-back",
    title="The host reads managed memory back by page faults",
    group="host",
    cause=Cause.CPU,
    check=_read_back,
    needs=("memcpy", "cuda_api"),
)
