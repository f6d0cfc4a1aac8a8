"""What ran on the devices, row by row: kinds, shapes, and how much of each operation is exposed."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.evidence.context import Bool, Int, Rows, RuleContext, SavingNs, once
from boundby.model.arrays import Looked, is_any, is_even, narrow, pick, shared
from boundby.model.intervals import CoveredTime, exposed, union
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.kernel_names import kernel_label

# Kernels that run for less than two launches take are limited by launching.
SHORT_KERNEL_NS = 2 * LAUNCH_LIMIT_NS


class DeviceWork(Struct, frozen=True, dict=True):
    """Columns over the rows of ``trace.operations``. Shapes are 0 where they are not told."""

    duration_ns: Int  # of those in a window what lies in it
    whole_ns: Int  # from start to end
    exposed_ns: Int  # of which no operation of a higher class, and no earlier one of its own class, covers
    in_window: Bool
    is_kernel: Bool  # that is not communication, in the window
    kind: Looked  # KernelKind; meaningless for what is no kernel
    blocks: Looked
    threads: Looked
    registers: Looked
    shared_bytes: Looked
    multiprocessors: Looked  # of the device

    @property
    def is_copy(self) -> Bool:
        """Rows in the window that are copies, sets or migrations."""
        return self.in_window & ~self.is_kernel

    @cached_property
    def busy_kernels_ns(self) -> int:
        """Time in which kernels run, over all devices."""
        return int(self.exposed_ns[self.is_kernel].sum())

    @cached_property
    def kernels_ns(self) -> int:
        """Their durations, summed: what shares of kernel time are of."""
        return int(self.duration_ns[self.is_kernel].sum())

    def kernels_of(self, kinds: Collection[int]) -> Rows:
        """Kernels of one of these kinds: where no name has one, no row is looked at."""
        fits = is_any(self.kind.table, kinds)
        if not fits.any():
            return np.empty(0, np.intp)
        return np.flatnonzero(self.is_kernel & pick(fits, self.kind.number, False))


@once
def device_work(context: RuleContext) -> DeviceWork:
    """The columns of one trace."""
    trace, table = context.trace, context.operations
    whole_ns = duration_ns = narrow(table.end_ns - table.start_ns)
    in_window, exposed_ns = np.zeros(len(table), bool), np.zeros(len(table), duration_ns.dtype)
    computes = (table.kind <= OpKind.GRAPH) & ~table.is_communication
    for device in context.timeline.devices:
        operations, at = device.operations.table, device.operations.rows
        in_window[at] = (operations.end_ns > device.low_ns) & (operations.start_ns < device.high_ns)
        start, end = operations.start_ns, operations.end_ns
        is_cut = bool((start < device.low_ns).any() or (end > device.high_ns).any())
        if is_cut:
            start, end = (np.clip(column, device.low_ns, device.high_ns) for column in (start, end))
            duration_ns = duration_ns.copy() if duration_ns is whole_ns else duration_ns
            duration_ns[at] = np.where(in_window[at], end - start, duration_ns[at])
        if bool((start[1:] >= end[:-1]).all()):  # nothing runs beside anything else
            exposed_ns[at] = end - start if is_cut else duration_ns[at]
            continue
        above: list[tuple[Int, Int]] = []
        for of_class in (computes[at], operations.is_communication, operations.kind >= OpKind.MEMCPY):
            chosen = np.flatnonzero(of_class)
            if not len(chosen):
                continue
            of_these = start[chosen], end[chosen]
            pieces, owner = exposed(*of_these)
            alone_ns = pieces.end - pieces.start
            if above:
                higher = union(*(np.concatenate(column) for column in zip(*above, strict=True)))
                alone_ns -= CoveredTime(higher).within(*pieces)
            exposed_ns[at][chosen[owner]] = alone_ns
            above.append(of_these)
    multiprocessors = [facts.multiprocessors for facts in trace.gpu_facts] or [0] * len(trace.gpus)
    shapes = trace.shapes
    return DeviceWork(
        duration_ns=duration_ns,
        whole_ns=whole_ns,
        exposed_ns=shared(narrow(exposed_ns), duration_ns),
        in_window=in_window,
        is_kernel=computes & (table.kind == OpKind.KERNEL) & in_window,
        kind=Looked(trace.kernel_kind, table.name),
        blocks=_looked(shapes.blocks, table.shape),
        threads=_looked(shapes.threads, table.shape),
        registers=_looked(shapes.registers, table.shape),
        shared_bytes=_looked(shapes.shared_bytes, table.shape),
        multiprocessors=_looked(np.array(multiprocessors, np.int64), table.device),
    )


def _looked(figures: Int, number: npt.NDArray[np.integer]) -> Looked:
    return Looked(np.append(figures, 0), number)


@once
def stream_order(context: RuleContext) -> tuple[Rows, Bool]:
    """Kernels in the window by device, process, stream and start; and of each whether the one before it in that order
    is on the same stream."""
    table, rows = context.operations, np.flatnonzero(device_work(context).is_kernel)
    every = (column[rows] for column in (table.stream, table.process, table.device))
    columns = [column for column in every if not is_even(column)]
    start_ns = table.start_ns[rows]
    if columns or not bool((start_ns[1:] > start_ns[:-1]).all()):
        order = np.lexsort((rows, table.end_ns[rows], start_ns, *columns))
        rows, columns = rows[order], [column[order] for column in columns]
    follows = np.ones(len(rows), bool)
    follows[:1] = False
    for column in columns:
        follows[1:] &= column[1:] == column[:-1]
    return narrow(rows), follows


@once
def busy_of_devices(context: RuleContext) -> tuple[int, ...]:
    """Time in which each device computes, in the timeline's order; communication, which may be waiting, is left out."""
    work, device = device_work(context), context.operations.device
    return tuple(int(work.exposed_ns[work.is_kernel & (device == gpu.index)].sum()) for gpu in context.timeline.devices)


def kernel_name(context: RuleContext, row: int) -> str:
    """The label of the kernel in a row."""
    return kernel_label(context.trace.names[context.operations.name[row]])


def scaled(saving: SavingNs, least: float, most: float) -> SavingNs:
    """A part of a saving: from ``least`` of its low to ``most`` of its high end."""
    return round(saving[0] * least), round(saving[1] * most)
