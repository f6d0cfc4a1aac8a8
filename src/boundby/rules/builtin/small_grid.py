"""Long kernels with fewer blocks than the GPU has multiprocessors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, Rows, RuleContext
from boundby.evidence.device_work import SHORT_KERNEL_NS, device_work, kernel_name
from boundby.evidence.kernels import BLOCK_THREADS
from boundby.model.arrays import is_in
from boundby.model.causes import Cause
from boundby.model.intervals import CoveredTime, union
from boundby.model.scale import SMALL
from boundby.model.units import counted, duration, percent
from boundby.replay.device_concurrency import WARP
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.builtin._shapes import (
    distinct_shapes,
    few_block_rows,
    small_grid_rows,
)
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.kernel_names import is_library_kernel


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    long_enough = np.flatnonzero(work.is_kernel & (work.duration_ns >= SHORT_KERNEL_NS))
    if int(work.exposed_ns[long_enough].sum()) < context.least_ns:
        return
    if not ((work.blocks[long_enough] > 0) & (work.multiprocessors[long_enough] > 0)).any():
        raise CannotCheckError("the trace holds no launch shapes, or not how many multiprocessors the GPU has")
    alone = _kernels(context, small_grid_rows(context))
    few = few_block_rows(context)
    yield from _beside(context, few[~is_in(few, alone.rows)])
    if alone.exposed_ns < context.least_ns:
        return
    used = _used(alone)
    kernels = counted(len(alone), "long kernel", "long kernels")
    copying_ns = _copying_ns(context, alone.rows)
    beside = f", {duration(copying_ns)} of it beside copies, which stay" if copying_ns >= alone.total_ns // 2 else ""
    yield alone.match(
        f"{kernels} ({duration(alone.total_ns)}) {'runs' if len(alone) == 1 else 'run'} alone on {percent(used)} of "
        f"the GPU's multiprocessors{beside}",
        alone.evidence(**_shapes(alone)),
        (0, alone.saving_by_speed(1.0, _filled(context, used) / _lanes_used(alone))[1]),
        (
            *_advice(alone),
            "Where the work cannot be split, run independent kernels beside it on another stream",
        ),
        cost_ns=alone.total_ns,
    ).advising(code=_code(alone))


def _copying_ns(context: RuleContext, rows: Rows) -> int:
    """For how much of their time these kernels' devices copy as well."""
    work, table = device_work(context), context.operations
    inside_ns = 0
    for device, kernels in KernelSet(context, rows).per_device():
        copies = np.flatnonzero(work.in_window & (table.kind >= OpKind.MEMCPY) & (table.device == device))
        busy = CoveredTime(union(table.start_ns[copies], table.end_ns[copies]))
        inside_ns += int(busy.within(table.start_ns[kernels], table.end_ns[kernels]).sum())
    return inside_ns


def _beside(context: RuleContext, rows: Rows) -> Iterator[Match]:
    """Single kernels of few blocks that take long although others run beside them: what else runs hides them, and as
    soon as that is shorter, they are what the program waits for."""
    work = device_work(context)
    least_ns = SMALL * context.longest_window_ns
    beside = _kernels(context, rows[work.duration_ns[rows] >= least_ns])
    if len(beside) == 0:
        return
    most = _filled(context, _used(beside))
    saved = context.saving_by_speed(beside.rows, most, most)
    few = "1 block" if work.blocks[beside.rows].max() == 1 else "few blocks"
    yield beside.match(
        f"{counted(len(beside), f'kernel of {few} takes', f'kernels of {few} take')} {duration(beside.total_ns)} "
        f"beside other kernels: {', '.join(beside.named(3))}",
        {
            "count": len(beside),
            "total_ns": beside.total_ns,
            **_shapes(beside),
            "kernels": beside.named(),
            f"saving_if_{round(most)}_times_as_fast_ns": None if saved is None else min(saved[0], beside.total_ns),
        },
        None,  # what runs beside them hides it, or some of it
        (
            *_advice(beside),
            "What runs beside them hides them now: it must get shorter too before the program does",
        ),
        severity="low",
    ).advising(code=_code(beside))


def _advice(kernels: KernelSet) -> tuple[str, ...]:
    """What to do about the longest: a kernel of a library is not the user's to rewrite, its call is."""
    context, launches = kernels.context, _launched(kernels)
    if not is_library_kernel(context.trace.names[context.operations.name[kernels.longest]]):
        work, row = device_work(context), kernels.longest
        if int(work.blocks[row]) * int(work.threads[row]) < WARP:
            return (f"{launches}: let each thread take one element, and launch a thread for each",)
        return (f"{launches}: launch more blocks, each with less of the work, at least two for each multiprocessor",)
    return (
        context.program.pick(
            f"{launches}: it is a library's: give it more to do in one call (a larger batch, batched calls)",
            torch=f"{launches}: it is a library's: give it more to do in one call: a larger batch, or batched calls "
            "(torch.bmm, torch.stack, vmap) instead of a loop over samples",
        ),
    )


def _code(kernels: KernelSet) -> str:
    """A launch that fills the GPU, where the kernel is the program's own in CUDA."""
    work, row = device_work(kernels.context), kernels.longest
    if is_library_kernel(kernels.context.trace.names[kernels.context.operations.name[row]]):
        return ""
    threads = min(int(work.threads[row]), BLOCK_THREADS) if work.threads[row] >= WARP else BLOCK_THREADS
    name = kernel_name(kernels.context, row).partition(" ")[0]
    grid = f"(n + {threads - 1}) / {threads}"
    return kernels.context.program.pick(
        "",
        cpp=f"{name}<<<{grid}, {threads}>>>(...);  // n: elements, one thread for each",
        numba=f"{name}[{grid.replace('/', '//')}, {threads}](...)  # n: elements, one thread for each",
        julia=f"@cuda threads={threads} blocks=cld(n, {threads}) {name}(...)  # one thread for each element",
        directives="#pragma acc parallel loop gang vector collapse(2)  // more iterations for the GPU to share",
    )


def _kernels(context: RuleContext, rows: Rows) -> KernelSet:
    """These kernels; as examples with their shape."""
    work = device_work(context)
    return KernelSet(
        context, rows, lambda row: f"{kernel_name(context, row)}, {_blocks(work.blocks[row])} of {work.threads[row]}"
    )


def _used(kernels: KernelSet) -> float:
    """The part of the multiprocessors that has a block."""
    work = device_work(kernels.context)
    return kernels.mean(work.blocks[kernels.rows] / work.multiprocessors[kernels.rows])


def _filled(context: RuleContext, used: float) -> float:
    """How many times as fast they would run on all multiprocessors, at most."""
    return min(1 / used, RULE.threshold(context, "filled_most"))


def _lanes_used(kernels: KernelSet) -> float:
    """The part of a warp that works, where blocks are smaller than one."""
    threads = device_work(kernels.context).threads[kernels.rows]
    return kernels.mean(np.where(threads > 0, np.minimum(threads, WARP), WARP) / WARP)  # 0: not told


def _shapes(kernels: KernelSet) -> dict[str, object]:
    """Their grids, for evidence."""
    work = device_work(kernels.context)
    return {
        "blocks": distinct_shapes(work.blocks[kernels.rows]),
        "multiprocessors": int(work.multiprocessors[kernels.longest]),
        "multiprocessors_used_fraction": round(_used(kernels), 4),
    }


def _launched(kernels: KernelSet) -> str:
    """``gemm launches 4 blocks of 1,024 threads on 108 multiprocessors``: the longest."""
    work, row = device_work(kernels.context), kernels.longest
    return (
        f"{kernel_name(kernels.context, row)} launches {_blocks(work.blocks[row])} of {_threads(work.threads[row])} on "
        f"{work.multiprocessors[row]} multiprocessors"
    )


def _blocks(number: int) -> str:
    return "1 block" if number == 1 else f"{number:,} blocks"


def _threads(number: int) -> str:
    return "1 thread" if number == 1 else f"{number:,} threads"


RULE = Rule(
    id="small-grid",
    title="Long kernels use few of the multiprocessors",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_check,
    needs=("kernels",),
    thresholds=(Threshold("filled_most", 8.0, "times", "Work that fits in few blocks seldom splits into a hundred."),),
)
