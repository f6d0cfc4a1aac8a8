"""What ran on the devices, row by row: kinds, shapes, and how much of each operation is exposed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import RuleContext
from boundby.model.arrays import Int32Array
from boundby.model.causes import Cause
from boundby.model.intervals import Coverage, exposed, union
from boundby.model.units import count, duration
from boundby.results.report import Example
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.kernels import kernel_label, kinds_of_kernels

Bool = npt.NDArray[np.bool_]
Int = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

# More examples than this are never compared: the longest are enough.
MOST_EXAMPLES = 20

_FRAMEWORKS = (
    ("torch", ("at::native::", "aten::", "c10::")),
    ("cudf", ("cudf::", "libcudf")),
    ("openmp", ("nvkernel_", "__omp_offloading", "__nv_main", "_gpu__red")),
)


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


def device_work(context: RuleContext) -> DeviceWork:
    """The columns of one trace. Ask for it with ``context.once(device_work)``."""
    trace = context.timeline.trace
    table = trace.operations
    size = len(table)
    in_window, shown = np.zeros(size, bool), np.zeros(size, np.int64)
    computes = (table.kind <= OpKind.GRAPH) & ~table.is_communication
    for device in context.timeline.devices:
        rows = device.operations.rows
        start = np.clip(table.start_ns[rows], device.low_ns, device.high_ns)
        end = np.clip(table.end_ns[rows], device.low_ns, device.high_ns)
        in_window[rows] = (table.end_ns[rows] > device.low_ns) & (table.start_ns[rows] < device.high_ns)
        above = union(start[:0], end[:0])
        for mine in (computes[rows], table.is_communication[rows], table.kind[rows] >= OpKind.MEMCPY):
            chosen = np.flatnonzero(mine)
            pieces, owner = exposed(start[chosen], end[chosen])
            covered = Coverage(above).within(pieces.start, pieces.end)
            shown[rows[chosen[owner]]] = pieces.end - pieces.start - covered
            above = union(np.concatenate((above.start, start[chosen])), np.concatenate((above.end, end[chosen])))
    used = np.unique(table.name[table.kind == OpKind.KERNEL])  # ranges can bring a hundred thousand names of their own
    kinds = np.zeros(len(trace.names) + 1, np.int8)
    kinds[used] = kinds_of_kernels([trace.names[name] for name in used])
    told = np.array([facts.multiprocessors for facts in trace.gpu_facts] or [0] * len(trace.gpus), np.int64)
    kernels = computes & (table.kind == OpKind.KERNEL) & in_window
    rows = np.flatnonzero(kernels)
    columns = (table.stream, table.process, table.device)
    rows = rows[np.lexsort((rows, table.end_ns[rows], table.start_ns[rows], *(column[rows] for column in columns)))]
    follows = np.ones(len(rows), bool)
    follows[:1] = False
    for column in columns:
        follows[1:] &= column[rows][1:] == column[rows][:-1]
    return DeviceWork(
        duration_ns=table.end_ns - table.start_ns,
        exposed_ns=shown,
        in_window=in_window,
        is_kernel=kernels,
        kind=kinds[table.name],
        blocks=_of_shape(trace.shapes.blocks, table.shape),
        threads=_of_shape(trace.shapes.threads, table.shape),
        registers=_of_shape(trace.shapes.registers, table.shape),
        shared_bytes=_of_shape(trace.shapes.shared_bytes, table.shape),
        multiprocessors=told[table.device] if size else np.zeros(0, np.int64),
        stream_order=rows,
        follows=follows,
    )


def _of_shape(column: Int, shape: Int32Array) -> Int | Int32Array:
    """A launch shape's figure for each operation, 0 where it is not told; in half the memory where 32 bits hold it."""
    told = np.append(column, 0)
    return (told if told.max() > np.iinfo(np.int32).max else told.astype(np.int32))[shape]


def framework(context: RuleContext) -> str:
    """What the program is written with, as far as names of kernels and ranges tell: ``torch``, ``cudf``, ``openmp``
    (or OpenACC), else ``cuda``."""
    names = context.timeline.trace.names
    for found, marks in _FRAMEWORKS:
        if any(mark in name for name in names for mark in marks):
            return found
    return "cuda"


def mask_of(context: RuleContext, rows: Rows) -> Bool:
    """A mask over ``trace.operations`` of these rows."""
    mask = np.zeros(len(context.timeline.trace.operations), bool)
    mask[rows] = True
    return mask


def place_of(context: RuleContext, rows: Rows) -> int:
    """The region that launched these operations, weighted by their time."""
    weight = np.maximum(context.once(device_work).duration_ns[rows], 1)
    return context.place(context.timeline.launch_region[rows], weight)


def kernel_name(context: RuleContext, row: int) -> str:
    """The label of the kernel in a row."""
    trace = context.timeline.trace
    return kernel_label(trace.names[trace.operations.name[row]])


def operation_examples(
    context: RuleContext, rows: Rows, what: Callable[[int], str] | None = None
) -> tuple[Example, ...]:
    """The longest of these operations as examples. ``what`` names a row."""
    table = context.timeline.trace.operations
    longest = rows[np.lexsort((rows, table.start_ns[rows] - table.end_ns[rows]))][:MOST_EXAMPLES].tolist()
    return tuple(
        Example(
            start_ns=int(table.start_ns[row]),
            duration_ns=int(table.end_ns[row] - table.start_ns[row]),
            what=what(row) if what else kernel_name(context, row),
        )
        for row in longest
    )


def top_kernels(context: RuleContext, rows: Rows, most: int = 5) -> list[TopKernel]:
    """The kernels, by label, that take most of the time of these rows, most first."""
    work, trace = context.once(device_work), context.timeline.trace
    distinct, index = np.unique(trace.operations.name[rows], return_inverse=True)
    of_label: dict[str, list[int]] = {}
    for number, name in enumerate(distinct.tolist()):
        of_label.setdefault(kernel_label(trace.names[name]), []).append(number)
    found = []
    for label, numbers in of_label.items():
        mine = rows[np.isin(index, numbers)]
        found.append(TopKernel(label, mine, int(work.duration_ns[mine].sum())))
    return sorted(found, key=lambda one: (-one.total_ns, one.label))[:most]


def named_top(context: RuleContext, rows: Rows, most: int = 5) -> list[str]:
    """``label: 12 x, 3.40 ms`` of each of the top kernels, for evidence."""
    top = top_kernels(context, rows, most)
    return [f"{one.label}: {count(len(one.rows))} x, {duration(one.total_ns)}" for one in top]


def saving_by_speed(context: RuleContext, rows: Rows, least: float, most: float) -> tuple[int, int]:
    """What running these ``least`` to ``most`` times as fast saves: by replay, else by their share."""
    found = context.saving_by_speed(mask_of(context, rows), least, most)
    if found is not None:
        return found
    return 0, round(_most_exposed(context, rows) * (1 - 1 / most))


def saving_without(context: RuleContext, cause: Cause, rows: Rows) -> tuple[int, int]:
    """What these taking no time would save: by replay, else by what they hold of the account."""
    found = context.saving((cause.key,), operations=mask_of(context, rows))
    return (0, _most_exposed(context, rows)) if found is None else found


def scaled(saving: tuple[int, int], least: float, most: float) -> tuple[int, int]:
    """A part of a saving: from ``least`` of its low to ``most`` of its high end."""
    return round(saving[0] * least), round(saving[1] * most)


def _most_exposed(context: RuleContext, rows: Rows) -> int:
    """Time that these alone hold of a device: the most of any, as devices run side by side."""
    exposed_ns = context.once(device_work).exposed_ns
    device = context.timeline.trace.operations.device
    return max((int(exposed_ns[rows[device[rows] == one]].sum()) for one in np.unique(device[rows])), default=0)
