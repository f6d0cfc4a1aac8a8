"""What ran on the devices, row by row: kinds, shapes, and how much of each operation is exposed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import Bool, Int, Rows, RuleContext, SavingNs, once
from boundby.model.arrays import Int32Array, compact, narrow, pick, shared
from boundby.model.intervals import Coverage, exposed, union
from boundby.model.records import dataclass
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.kernels import kernel_label


@dataclass(frozen=True)
class DeviceWork:
    """Columns over the rows of ``trace.operations``. Shapes are 0 where they are not told."""

    duration_ns: Int
    exposed_ns: Int  # of which no operation of a higher class, and no earlier one of its own class, covers
    in_window: Bool
    is_kernel: Bool  # that is not communication, in the window
    kind: npt.NDArray[np.int8]  # KernelKind; meaningless for what is no kernel
    blocks: Int | Int32Array
    threads: Int | Int32Array
    registers: Int | Int32Array
    shared_bytes: Int | Int32Array
    multiprocessors: Int32Array  # of the device
    stream_order: Rows  # kernels in the window by device, process, stream, start
    follows: Bool  # of each in that order: the one before it is on the same stream

    @property
    def is_copy(self) -> Bool:
        """Rows in the window that are copies, sets or migrations."""
        return self.in_window & ~self.is_kernel

    def busy_kernels_ns(self) -> int:
        """Time in which kernels run, over all devices."""
        return int(self.exposed_ns[self.is_kernel].sum())


@once
def device_work(context: RuleContext) -> DeviceWork:
    """The columns of one trace."""
    trace, table = context.trace, context.operations
    in_window, exposed_ns = np.zeros(len(table), bool), np.zeros(len(table), np.int64)
    computes = (table.kind <= OpKind.GRAPH) & ~table.is_communication
    for device in context.timeline.devices:
        mine, rows = device.operations.table, device.operations.rows
        start = np.clip(mine.start_ns, device.low_ns, device.high_ns)
        end = np.clip(mine.end_ns, device.low_ns, device.high_ns)
        in_window[rows] = (mine.end_ns > device.low_ns) & (mine.start_ns < device.high_ns)
        above: list[tuple[Int, Int]] = []
        for of_class in (computes[rows], mine.is_communication, mine.kind >= OpKind.MEMCPY):
            chosen = np.flatnonzero(of_class)
            if not len(chosen):
                continue
            of_these = start[chosen], end[chosen]
            pieces, owner = exposed(*of_these)
            alone_ns = pieces.end - pieces.start
            if above:
                higher = union(*(np.concatenate(column) for column in zip(*above, strict=True)))
                alone_ns -= Coverage(higher).within(*pieces)
            exposed_ns[rows[chosen[owner]]] = alone_ns
            above.append(of_these)
    multiprocessors = [facts.multiprocessors for facts in trace.gpu_facts] or [0] * len(trace.gpus)
    is_kernel = computes & (table.kind == OpKind.KERNEL) & in_window
    rows = np.flatnonzero(is_kernel)
    every = (column[rows] for column in (table.stream, table.process, table.device))
    columns = [column for column in every if len(column) and bool((column != column[0]).any())]
    start_ns = table.start_ns[rows]
    if columns or not bool((start_ns[1:] > start_ns[:-1]).all()):
        order = np.lexsort((rows, table.end_ns[rows], start_ns, *columns))
        rows, columns = rows[order], [column[order] for column in columns]
    follows = np.ones(len(rows), bool)
    follows[:1] = False
    for column in columns:
        follows[1:] &= column[1:] == column[:-1]
    duration_ns = table.end_ns - table.start_ns
    return DeviceWork(
        duration_ns=duration_ns,
        exposed_ns=shared(exposed_ns, duration_ns),
        in_window=in_window,
        is_kernel=is_kernel,
        kind=pick(trace.kernel_kind, table.name, trace.kernel_kind[-1] if len(trace.kernel_kind) else 0),
        blocks=_of_shape(trace.shapes.blocks, table.shape),
        threads=_of_shape(trace.shapes.threads, table.shape),
        registers=_of_shape(trace.shapes.registers, table.shape),
        shared_bytes=_of_shape(trace.shapes.shared_bytes, table.shape),
        multiprocessors=compact(pick(np.array(multiprocessors, np.int32), table.device, 0)),
        stream_order=narrow(rows),
        follows=follows,
    )


@once
def busy_of_devices(context: RuleContext) -> tuple[int, ...]:
    """Time in which each device computes, in the timeline's order; communication, which may be waiting, is left out."""
    work, device = device_work(context), context.operations.device
    return tuple(int(work.exposed_ns[work.is_kernel & (device == one.index)].sum()) for one in context.timeline.devices)


def _of_shape(column: Int, shape: Int32Array) -> Int | Int32Array:
    """A launch shape's figure for each operation, 0 where it is not told; in half the memory where 32 bits hold it."""
    figures = np.append(column, 0)
    return compact(pick(figures if figures.max() > np.iinfo(np.int32).max else figures.astype(np.int32), shape, 0))


def kernel_name(context: RuleContext, row: int) -> str:
    """The label of the kernel in a row."""
    return kernel_label(context.trace.names[context.operations.name[row]])


def scaled(saving: SavingNs, least: float, most: float) -> SavingNs:
    """A part of a saving: from ``least`` of its low to ``most`` of its high end."""
    return round(saving[0] * least), round(saving[1] * most)
