"""Kernels whose blocks are smaller than a warp."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.device_work import device_work, kernel_name
from boundby.evidence.kernels import BLOCK_THREADS
from boundby.model.arrays import pick
from boundby.model.causes import Cause
from boundby.model.scale import HALF
from boundby.model.units import count, counted, duration, percent
from boundby.replay.device_concurrency import WARP
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.builtin._shapes import distinct_shapes, small_block_rows
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.vocabulary.kernel_names import is_library_kernel


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    if work.busy_kernels_ns < context.least_ns:
        return
    if not (work.is_kernel & pick(work.threads.table > 0, work.threads.number, False)).any():
        raise CannotCheckError("the trace holds no launch shapes")
    kernels = KernelSet(
        context,
        small_block_rows(context),
        lambda row: f"{kernel_name(context, row)}, {work.blocks[row]} blocks of {work.threads[row]}",
    )
    if kernels.exposed_ns < context.least_ns:
        return
    lanes = kernels.mean(work.threads[kernels.rows] / WARP)
    least, most = 1 + HALF, RULE.threshold(context, "full_most")
    blocks, threads = int(work.blocks[kernels.longest]), int(work.threads[kernels.longest])
    name = kernel_name(context, kernels.longest)
    # Wide enough for full warps, and as many blocks as there are multiprocessors where the threads suffice.
    places = max(int(work.multiprocessors[kernels.longest]), 1)
    wide = min(max(blocks * threads // places // WARP, 1) * WARP, BLOCK_THREADS)
    fewer = -(-blocks * threads // wide)
    yield kernels.match(
        f"{counted(len(kernels), 'kernel', 'kernels')} ({duration(kernels.total_ns)}) "
        f"{'has' if len(kernels) == 1 else 'have'} blocks smaller than a warp: {percent(1 - lanes)} of their "
        "lanes idle",
        kernels.evidence(
            threads_per_block=distinct_shapes(work.threads[kernels.rows]), lanes_used_fraction=round(lanes, 4)
        ),
        kernels.saving_by_speed(least, min(1 / lanes, most)),
        (
            f"{name} launches {count(blocks)} blocks of {threads} threads: launch as many threads in blocks of {WARP} "
            f"or more, {count(fewer)} blocks of {wide} here",
            *context.program.pick((), python=("CuPy, Numba and Triton: block sizes that are multiples of 32",)),
        ),
    ).advising(
        code=context.program.pick(
            "",
            cpp=f"{name}<<<{fewer}, {wide}>>>(...);  // now <<<{blocks}, {threads}>>>",
            numba=f"{name}[{fewer}, {wide}](...)  # now [{blocks}, {threads}]",
            julia=f"@cuda threads={wide} blocks={fewer} {name}(...)",
        )
        if not is_library_kernel(context.trace.names[context.operations.name[kernels.longest]])
        else ""
    )


RULE = Rule(
    id="small-blocks",
    title="Blocks smaller than a warp",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_check,
    needs=("kernels",),
    thresholds=(Threshold("full_most", 8.0, "times", "Memory limits a kernel long before all lanes of 32 count."),),
)
