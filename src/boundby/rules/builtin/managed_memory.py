"""Managed memory that migrates between host and device, and kernels that wait for its pages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import Rows, RuleContext, SavingNs
from boundby.evidence.device_work import device_work
from boundby.model.arrays import without
from boundby.model.causes import Cause
from boundby.model.intervals import Coverage, IntervalSet, clip, union
from boundby.model.records import dataclass
from boundby.model.units import count, counted, duration, size
from boundby.rules.builtin._operations import CopySet, KernelSet
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import OpKind, PageEvents, Paging

_CAPTURE = (
    "nsys profile --cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true records the faults that start the "
    "migrations, and so which kernels wait for them"
)


@dataclass(frozen=True)
class Paged:
    """``kernels``: those that run while their GPU waits for pages, for ``stalled_ns`` together; ``faults`` of GPUs in
    the window; ``ahead``: migrations that the program or the driver asked for before anybody waited; ``evictions``."""

    kernels: Rows
    stalled_ns: int
    faults: int
    ahead: Rows
    evictions: int


def _paged(context: RuleContext) -> Paged:
    work, table = device_work(context), context.operations
    kernels, ahead, stalled_ns, faults, evictions = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)], 0, 0, 0
    for device in context.timeline.devices:
        events = _of_device(context.trace.page_events, device.index, device.shift.shift_ns)
        events = events.take((events.end_ns > device.low_ns) & (events.start_ns < device.high_ns))
        waits = np.isin(events.kind, (Paging.FAULT, Paging.FETCHED))
        waiting = clip(union(events.start_ns[waits], events.end_ns[waits]), device.low_ns, device.high_ns)
        if len(waiting.start):
            rows = np.flatnonzero(work.is_kernel & (table.device == device.index))
            held_ns = Coverage(waiting).within(table.start_ns[rows], table.end_ns[rows])
            kernels.append(rows[held_ns > 0])
            running: IntervalSet = union(table.start_ns[rows], table.end_ns[rows])
            stalled_ns += int(Coverage(waiting).within(running.start, running.end).sum())
        faults += int(events.count[events.kind == Paging.FAULT].sum())
        evictions += int((events.kind == Paging.EVICTED).sum())
        asked = events.start_ns[events.kind == Paging.PREFETCHED]
        moves = np.flatnonzero((table.kind == OpKind.MIGRATION) & (table.device == device.index))
        ahead.append(moves[np.isin(table.start_ns[moves], asked)])
    return Paged(np.concatenate(kernels), stalled_ns, faults, np.concatenate(ahead), evictions)


def _of_device(events: PageEvents, device: int, shift_ns: int) -> PageEvents:
    """The events of one device, on the host's clock."""
    mine = events.take(events.device == device)
    return PageEvents(mine.start_ns + shift_ns, mine.end_ns + shift_ns, mine.device, mine.kind, mine.count)


def _check(context: RuleContext) -> Iterator[Match]:
    paged = _paged(context)
    moves = np.flatnonzero(device_work(context).in_window & (context.operations.kind == OpKind.MIGRATION))
    migrations = CopySet(context, without(moves, paged.ahead))
    kernels = KernelSet(context, paged.kernels)
    cost_ns = migrations.exposed_ns + paged.stalled_ns
    if max(len(migrations), paged.faults) < RULE.threshold(context, "count") or cost_ns < context.least_ns:
        return
    is_kernels = paged.stalled_ns > migrations.exposed_ns
    about, faults = (kernels if is_kernels else migrations), context.trace.page_faults
    yield about.match(
        _stalled(kernels, migrations, paged) if is_kernels else _moved(migrations),
        {
            **(migrations.evidence() if len(migrations) else {"count": 0}),
            "cpu_page_faults_in_trace": faults.get("cpu"),
            "gpu_page_faults_in_trace": faults.get("gpu"),
            "kernels_that_wait_for_pages": len(kernels),
            "kernels_wait_ns": paged.stalled_ns,
            "evictions": paged.evictions,
            **({"kernels": kernels.named()} if len(kernels) else {}),
        },
        _saving(migrations, kernels, paged),
        (
            *_advice(context, paged),
            *(() if faults else (_CAPTURE,)),
        ),
        cost_ns=cost_ns if is_kernels else migrations.total_ns + paged.stalled_ns,
    )


def _moved(migrations: CopySet) -> str:
    what = "of managed memory"
    return (
        f"{counted(len(migrations), f'migration {what} moves', f'migrations {what} move')} "
        f"{size(migrations.byte_count)} in {migrations.took}, "
        f"{size(migrations.byte_count / len(migrations))} at a time"
    )


def _stalled(kernels: KernelSet, migrations: CopySet, paged: Paged) -> str:
    """The kernels run, so the account has them as computing: of their time so much is waiting."""
    faults = f"{count(paged.faults)} page faults, " if paged.faults else ""
    moved = f"{count(len(migrations))} migrations of {size(migrations.byte_count)}"
    return (
        f"{counted(len(kernels), 'kernel waits', 'kernels wait')} for pages of managed memory for "
        f"{duration(paged.stalled_ns)} of {duration(kernels.total_ns)} ({faults}{moved})"
    )


def _saving(migrations: CopySet, kernels: KernelSet, paged: Paged) -> SavingNs:
    """Of what moves in the open, a part; and of what kernels wait for at most all: how much of that they do beside
    waiting no record says."""
    context = migrations.context
    least, most = RULE.threshold(context, "avoided_least"), RULE.threshold(context, "avoided_most")
    low, high = migrations.saving_without(Cause.GPU_COPY, least, most) if len(migrations) else (0, 0)
    if not len(kernels):
        return low, high
    own_ns = max(kernels.total_ns - paged.stalled_ns, kernels.total_ns // round(RULE.threshold(context, "faster_most")))
    return low, high + min(kernels.saving_by_speed(1.0, kernels.total_ns / max(own_ns, 1))[1], paged.stalled_ns)


def _advice(context: RuleContext, paged: Paged) -> tuple[str, ...]:
    if paged.evictions:
        return (
            f"{count(paged.evictions)} migrations make room for others: more is in use than the device holds. Work in "
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
    cause=Cause.GPU_COPY,
    check=_check,
    needs=("memcpy",),
    thresholds=(
        Threshold("count", 10, "count", "A few migrations happen at any start."),
        Threshold("avoided_least", 0.3, "fraction", "The bytes still have to travel, though in larger pieces."),
        Threshold("avoided_most", 1.0, "fraction", "Prefetched ahead, they hide behind kernels."),
        Threshold("faster_most", 50.0, "times", "Whatever waits for pages all its time still has something to do."),
    ),
)
