"""What ran on the devices, row by row: kinds, shapes, and how much of each operation is exposed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import MOST_EXAMPLES, Bool, Int, Rows, RuleContext, SavingNs, once
from boundby.model.arrays import Int32Array
from boundby.model.causes import Cause
from boundby.model.intervals import EMPTY, Coverage, exposed, union
from boundby.model.units import count, duration
from boundby.results.report import Example
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
    multiprocessors: Int  # of the device
    stream_order: Rows  # kernels in the window by device, process, stream, start
    follows: Bool  # of each in that order: the one before it is on the same stream

    @property
    def is_copy(self) -> Bool:
        """Rows in the window that are copies, sets or migrations."""
        return self.in_window & ~self.is_kernel

    def busy_kernels_ns(self) -> int:
        """Time in which kernels run, over all devices."""
        return int(self.exposed_ns[self.is_kernel].sum())


@dataclass(frozen=True)
class TopKernel:
    """All kernels of one label."""

    label: str
    rows: Rows
    total_ns: int


@once
def device_work(context: RuleContext) -> DeviceWork:
    """The columns of one trace."""
    trace, table = context.trace, context.operations
    in_window, exposed_ns = np.zeros(len(table), bool), np.zeros(len(table), np.int64)
    computes = (table.kind <= OpKind.GRAPH) & ~table.is_communication
    for device in context.timeline.devices:
        rows = device.operations.rows
        start = np.clip(table.start_ns[rows], device.low_ns, device.high_ns)
        end = np.clip(table.end_ns[rows], device.low_ns, device.high_ns)
        in_window[rows] = (table.end_ns[rows] > device.low_ns) & (table.start_ns[rows] < device.high_ns)
        above = EMPTY
        for of_class in (computes[rows], table.is_communication[rows], table.kind[rows] >= OpKind.MEMCPY):
            chosen = np.flatnonzero(of_class)
            pieces, owner = exposed(start[chosen], end[chosen])
            covered = Coverage(above).within(pieces.start, pieces.end)
            exposed_ns[rows[chosen[owner]]] = pieces.end - pieces.start - covered
            above = union(np.concatenate((above.start, start[chosen])), np.concatenate((above.end, end[chosen])))
    multiprocessors = [facts.multiprocessors for facts in trace.gpu_facts] or [0] * len(trace.gpus)
    is_kernel = computes & (table.kind == OpKind.KERNEL) & in_window
    rows = np.flatnonzero(is_kernel)
    columns = (table.stream, table.process, table.device)
    rows = rows[np.lexsort((rows, table.end_ns[rows], table.start_ns[rows], *(column[rows] for column in columns)))]
    follows = np.ones(len(rows), bool)
    follows[:1] = False
    for column in columns:
        follows[1:] &= column[rows][1:] == column[rows][:-1]
    return DeviceWork(
        duration_ns=table.end_ns - table.start_ns,
        exposed_ns=exposed_ns,
        in_window=in_window,
        is_kernel=is_kernel,
        kind=trace.kernel_kind[table.name],
        blocks=_of_shape(trace.shapes.blocks, table.shape),
        threads=_of_shape(trace.shapes.threads, table.shape),
        registers=_of_shape(trace.shapes.registers, table.shape),
        shared_bytes=_of_shape(trace.shapes.shared_bytes, table.shape),
        multiprocessors=np.array([*multiprocessors, 0], np.int64)[table.device],
        stream_order=rows,
        follows=follows,
    )


def _of_shape(column: Int, shape: Int32Array) -> Int | Int32Array:
    """A launch shape's figure for each operation, 0 where it is not told; in half the memory where 32 bits hold it."""
    figures = np.append(column, 0)
    return (figures if figures.max() > np.iinfo(np.int32).max else figures.astype(np.int32))[shape]


def place_of(context: RuleContext, rows: Rows) -> int:
    """The region that launched these operations, weighted by their time."""
    weight = np.maximum(device_work(context).duration_ns[rows], 1)
    return context.place(context.timeline.launch_region[rows], weight)


def kernel_name(context: RuleContext, row: int) -> str:
    """The label of the kernel in a row."""
    return kernel_label(context.trace.names[context.operations.name[row]])


def operation_examples(
    context: RuleContext, rows: Rows, what: Callable[[int], str] | None = None
) -> tuple[Example, ...]:
    """The longest of these operations as examples. ``what`` names a row."""
    start_ns, duration_ns = context.operations.start_ns, context.operations.end_ns - context.operations.start_ns
    longest = rows[np.lexsort((rows, -duration_ns[rows]))][:MOST_EXAMPLES].tolist()
    return tuple(
        Example(int(start_ns[row]), int(duration_ns[row]), what(row) if what else kernel_name(context, row))
        for row in longest
    )


def top_kernels(context: RuleContext, rows: Rows, most: int = 5) -> list[TopKernel]:
    """The kernels, by label, that take most of the time of these rows, most first."""
    duration_ns = device_work(context).duration_ns
    distinct, index = np.unique(context.operations.name[rows], return_inverse=True)
    of_label: dict[str, list[int]] = {}
    for number, name in enumerate(distinct.tolist()):
        of_label.setdefault(kernel_label(context.trace.names[name]), []).append(number)
    kernels = []
    for label, numbers in of_label.items():
        of_kernel = rows[np.isin(index, numbers)]
        kernels.append(TopKernel(label, of_kernel, int(duration_ns[of_kernel].sum())))
    return sorted(kernels, key=lambda one: (-one.total_ns, one.label))[:most]


def named_top(context: RuleContext, rows: Rows, most: int = 5) -> list[str]:
    """``label: 12 x, 3.40 ms`` of each of the top kernels, for evidence."""
    top = top_kernels(context, rows, most)
    return [f"{one.label}: {count(len(one.rows))} x, {duration(one.total_ns)}" for one in top]


def saving_by_speed(context: RuleContext, rows: Rows, least: float, most: float) -> SavingNs:
    """What running these ``least`` to ``most`` times as fast saves: by replay, else by their share."""
    replayed = context.saving_by_speed(rows, least, most)
    return (0, round(_most_exposed(context, rows) * (1 - 1 / most))) if replayed is None else replayed


def saving_without(context: RuleContext, cause: Cause, rows: Rows) -> SavingNs:
    """What these taking no time would save: by replay, else by what they hold of the account."""
    replayed = context.saving((cause.key,), operations=rows)
    return (0, _most_exposed(context, rows)) if replayed is None else replayed


def scaled(saving: SavingNs, least: float, most: float) -> SavingNs:
    """A part of a saving: from ``least`` of its low to ``most`` of its high end."""
    return round(saving[0] * least), round(saving[1] * most)


def _most_exposed(context: RuleContext, rows: Rows) -> int:
    """Time that these alone hold of a device: the most of any, as devices run side by side."""
    exposed_ns, device = device_work(context).exposed_ns, context.operations.device
    return max((int(exposed_ns[rows[device[rows] == one]].sum()) for one in np.unique(device[rows])), default=0)
