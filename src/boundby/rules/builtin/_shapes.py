"""Kernels whose launch shape leaves the GPU empty: a rule speaks about each kind, and other rules leave them out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import Int, Rows, RuleContext, once
from boundby.evidence.device_work import SHORT_KERNEL_NS, device_work
from boundby.model.arrays import merged, pick, unique
from boundby.model.scale import A_FEW_LINES, HALF, NEARLY_ALL
from boundby.replay.device_concurrency import WARP
from boundby.rules.builtin._operations import KernelSet
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.kernel_names import KernelKind

# Blocks for a multiprocessor: above half, filling the rest gains little.
FEW_BLOCKS = HALF
# Kernels that run together for more of the time fill the GPU together.
ALONE = NEARLY_ALL
# So many different shapes are shown as evidence.
_MOST_SHAPES = A_FEW_LINES


@once
def small_block_rows(context: RuleContext) -> Rows:
    """Kernels with more than one block, of fewer threads than a warp has."""
    threads, blocks = device_work(context).threads, device_work(context).blocks
    fits = (threads.table > 0) & (threads.table < WARP) & (blocks.table > 1)
    if not fits.any():
        return np.empty(0, np.intp)
    return np.flatnonzero(device_work(context).is_kernel & pick(fits, threads.number, False))


@once
def few_block_rows(context: RuleContext) -> Rows:
    """Long kernels on few of the multiprocessors; not those that walk a list of parameters, which have as many blocks
    as there are parameters."""
    work = device_work(context)
    rows = np.flatnonzero(work.is_kernel & (work.duration_ns >= SHORT_KERNEL_NS))
    rows = rows[work.kind[rows] != KernelKind.MULTI_TENSOR]
    blocks = work.blocks[rows]
    few: Rows = rows[(blocks > 0) & (blocks <= FEW_BLOCKS * work.multiprocessors[rows])]
    return few


@once
def small_grid_rows(context: RuleContext) -> Rows:
    """Those of them that run alone."""
    return alone_rows(context, few_block_rows(context))


def alone_rows(context: RuleContext, kernels: Rows) -> Rows:
    """Those of these kernels that no other kernel shares the device with for more than the rest of their time."""
    work, table = device_work(context), context.operations
    computes = work.in_window & (table.kind <= OpKind.GRAPH)
    alone = [np.zeros(0, np.intp)]
    for device, rows in KernelSet(context, kernels).per_device():
        others = np.flatnonzero(computes & (table.device == device))
        begun, ended = merged(table.start_ns[others]), merged(table.end_ns[others])
        own = work.duration_ns[rows]
        start, end = table.start_ns[rows], table.end_ns[rows]
        busy = _time_since(begun, end) - _time_since(ended, end) - _time_since(begun, start) + _time_since(ended, start)
        alone.append(rows[busy - own <= (1 - ALONE) * own])
    return merged(*alone)


def _time_since(events: Int, instants: Int) -> Int:
    """The time from each event (ascending) to an instant after it, summed over events. Shape of ``instants``."""
    before = np.searchsorted(events, instants)
    summed: Int = before * instants - np.append(0, np.cumsum(events))[before]
    return summed


def distinct_shapes(values: npt.NDArray[np.integer]) -> list[int]:
    """Different numbers of blocks or threads, smallest first, for evidence."""
    distinct: list[int] = unique(values)[:_MOST_SHAPES].tolist()
    return distinct
