"""Kernels whose blocks do not divide evenly among the multiprocessors: the last turn leaves many of them idle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import CannotCheckError, Rows, RuleContext
from boundby.evidence.device_work import SHORT_KERNEL_NS, device_work, kernel_name
from boundby.evidence.kernels import theoretical_occupancy
from boundby.model.arrays import is_any
from boundby.model.causes import Cause
from boundby.model.scale import QUARTER, SLIGHT
from boundby.model.units import counted, duration, percent
from boundby.replay.device_concurrency import WARP
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.builtin._shapes import FEW_BLOCKS, alone_rows, distinct_shapes
from boundby.rules.rule import Match, Rule
from boundby.trace.vocabulary.kernel_names import MATMULS, KernelKind, is_library_kernel

# A library's kernels that arithmetic limits; its others wait for memory, which a last turn leaves busy.
_ARITHMETIC = (*MATMULS, KernelKind.ATTENTION, KernelKind.ATTENTION_FP32)


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    rows = np.flatnonzero(work.is_kernel & (work.duration_ns >= SHORT_KERNEL_NS))
    if int(work.exposed_ns[rows].sum()) < context.least_ns:
        return
    rows = rows[(work.blocks[rows] > 0) & (work.multiprocessors[rows] > 0)]
    if not len(rows):
        raise CannotCheckError("the trace holds no launch shapes, or not how many multiprocessors the GPU has")
    rows = rows[work.blocks[rows] > FEW_BLOCKS * work.multiprocessors[rows]]
    rows = rows[_idle(context, rows) >= QUARTER]
    rows = alone_rows(context, rows[_is_arithmetic(context, rows)])
    idle = _idle(context, rows)
    lost_ns = float((work.exposed_ns[rows] * idle).sum())
    if lost_ns < max(context.least_ns, SLIGHT * context.longest_window_ns):
        return
    kernels = KernelSet(context, rows, lambda row: f"{kernel_name(context, row)}, {work.blocks[row]:,} blocks")
    part = kernels.mean(idle)
    yield kernels.match(
        f"{counted(len(kernels), 'long kernel', 'long kernels')} ({duration(kernels.total_ns)}): the last turn of "
        f"blocks fills part of the GPU, and {percent(part)} of the multiprocessors' time is left idle",
        kernels.evidence(
            blocks=distinct_shapes(work.blocks[rows]),
            multiprocessors=int(work.multiprocessors[kernels.longest]),
            idle_fraction=round(part, 4),
            **_occupancy(context, kernels.longest),
        ),
        (0, kernels.saving_by_speed(1.0, 1 / (1 - part))[1]),
        _advice(kernels),
        cost_ns=round(float((work.duration_ns[rows] * idle).sum())),
    )


def _idle(context: RuleContext, rows: Rows) -> npt.NDArray[np.float64]:
    """The part of the multiprocessors' time in which they have no block, if all blocks take equally long."""
    work = device_work(context)
    blocks, places = work.blocks[rows].astype(np.float64), work.multiprocessors[rows].astype(np.float64)
    return 1 - blocks / (places * np.ceil(blocks / places))


def _is_arithmetic(context: RuleContext, rows: Rows) -> npt.NDArray[np.bool_]:
    """Kernels of the program's own, and of a library's those that arithmetic limits."""
    names = context.operations.name[rows]
    own = ~context.named(names, is_library_kernel)
    kind = device_work(context).kind[rows]
    chosen: npt.NDArray[np.bool_] = is_any(kind, _ARITHMETIC) | (own & (kind == KernelKind.OTHER))
    return chosen


def _occupancy(context: RuleContext, row: int) -> dict[str, object]:
    """How many blocks of a kernel a multiprocessor holds at a time, and how many waves its grid is, where told."""
    work, facts = device_work(context), context.trace.gpu_facts
    if not facts:
        return {}
    hardware, threads = facts[int(context.operations.device[row])], int(work.threads[row])
    found = theoretical_occupancy(hardware, threads, int(work.registers[row]), int(work.shared_bytes[row]))
    if found is None:
        return {}
    resident = max(round(found.fraction * hardware.warps_per_multiprocessor / max(-(-threads // WARP), 1)), 1)
    return {
        "theoretical_occupancy_fraction": round(found.fraction, 4),
        "blocks_resident_per_multiprocessor": resident,
        "waves": round(int(work.blocks[row]) / (resident * int(work.multiprocessors[row])), 2),
    }


def _advice(kernels: KernelSet) -> tuple[str, ...]:
    context, row, work = kernels.context, kernels.longest, device_work(kernels.context)
    blocks, places = int(work.blocks[row]), int(work.multiprocessors[row])
    turns, rest = -(-blocks // places), blocks % places
    what = f"{kernel_name(context, row)} launches {blocks:,} blocks on {places} multiprocessors: " + (
        f"{places - blocks} have none" if turns == 1 else f"{rest} are left for turn {turns}"
    )
    if is_library_kernel(context.trace.names[context.operations.name[row]]):
        sizes = (
            f"sizes (batch, sequence, width) that make {(turns - 1) * places or places:,} or {turns * places:,} blocks"
        )
        return (
            f"{what}. It is a library's, whose tiles follow from the shapes: {sizes} waste nothing",
            *context.program.pick((), torch=('torch.compile(mode="max-autotune") tries other tiles for each shape',)),
        )
    return (
        f"{what}. Launch as many blocks as fit at once (cudaOccupancyMaxActiveBlocksPerMultiprocessor times {places}) "
        "and let each take several pieces in a loop, or cut the work into several times as many, smaller blocks",
    )


RULE = Rule(
    id="tail-wave",
    title="The last wave of blocks fills part of the GPU",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_check,
    needs=("kernels",),
)
