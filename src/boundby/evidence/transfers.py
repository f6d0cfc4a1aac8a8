"""Copies between host and device, row by row: whose rule each belongs to, how fast they are, what rules say of them."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.timeline import DeviceTimeline
from boundby.evidence.context import Bool, Int, Rows, RuleContext, once
from boundby.evidence.device_work import device_work
from boundby.model.arrays import compact, group_sums, is_any, is_in, merged, pick, scattered, spread, unique
from boundby.model.intervals import NOTHING, CoveredTime, IntervalSet, clip, subtract, union
from boundby.model.late import expression
from boundby.model.scale import HABIT, MOST, NEARLY_ALL, SMALL
from boundby.model.units import percent
from boundby.stats.device_figures import SMALL_COPY_BYTES
from boundby.trace.tables import Direction, MemoryKind, OpKind, Paging

# Below this a copy is latency, not bandwidth: a scalar, a flag, an index.
LEAST_BYTES = 1 << 16
# From this on a copy reaches the link's rate; shorter ones are partly set-up.
LARGE_BYTES = 4 << 20
# Data that goes out and comes back so often does so in every step.
LEAST_RETURNS = HABIT
RETURN_BYTES = LARGE_BYTES
# No host writes faster than this, so that data which is sent sooner was there before: it is what came out, or waited.
HOST_BYTES_PER_NS = 20.0
# Of a one-time upload, kernels fill no more than this part of its span.
UPLOAD_KERNELS = SMALL


# What large copies from pinned memory reach over 16 lanes of PCI Express, in GB/s: three quarters of the link's rate.
_OF_GENERATION = {3: 12.0, 4: 24.0, 5: 50.0}
_GENERATION = {
    (6, 0): 3,
    (6, 1): 3,
    (7, 0): 3,
    (7, 5): 3,
    (8, 0): 4,
    (8, 6): 4,
    (8, 9): 4,
    (9, 0): 5,
    (10, 0): 5,
    (12, 0): 5,
}
# On one chip or board with the processor: no PCI Express in between.
_NOT_PCIE = expression(r"GH200|GB200|GB300|GB10|Grace|Orin|Xavier|Tegra|Thor", re.IGNORECASE)
_HALF_WIDTH = expression(r"laptop|max-q|mobile", re.IGNORECASE)


#: How copies are told by where they go.
WAYS = {Direction.HTOD: "to the device", Direction.DTOH: "to the host", Direction.DTOD: "on the device"}


class Transfer(IntEnum):
    """Whose rule a copy belongs to: each belongs to one only."""

    NONE = 0  # too small, on the device, or from memory of unknown kind
    RETURNS = 1  # goes out and comes back
    PAGEABLE = 2
    PINNED = 3


class Transfers(Struct, frozen=True):
    """``part`` and ``host`` are columns over ``trace.operations``."""

    part: npt.NDArray[np.int8]  # Transfer
    host: npt.NDArray[np.int8]  # MemoryKind of the host's side; UNKNOWN where there is none
    returns: int  # how often data that had gone to the host came back

    def rows(self, part: Transfer) -> Rows:
        """The copies of one part."""
        return np.flatnonzero(self.part == part)


@once
def transfers(context: RuleContext) -> Transfers:
    """All copies of a trace."""
    work, table = device_work(context), context.operations
    rows = np.flatnonzero(is_any(table.direction, (Direction.HTOD, Direction.DTOH)))
    host = np.where(table.direction[rows] == Direction.HTOD, table.source[rows], table.target[rows]).astype(np.int8)
    hosts = scattered(len(table), rows, host)
    is_copy = work.in_window[rows] & (table.kind[rows] == OpKind.MEMCPY) & (table.bytes[rows] >= LEAST_BYTES)
    rows, host = rows[is_copy], host[is_copy]
    part = np.zeros(len(table), np.int8)
    part[rows[host == MemoryKind.PINNED]] = Transfer.PINNED
    part[rows[host == MemoryKind.PAGEABLE]] = Transfer.PAGEABLE
    returning, count = _returning(context, rows[table.bytes[rows] >= RETURN_BYTES])
    part[returning] = Transfer.RETURNS
    return Transfers(compact(part), compact(hosts), count)


def _returning(context: RuleContext, rows: Rows) -> tuple[Rows, int]:
    """Copies of one size that go to the host and back again and again, and how often they come back.

    A copy to the device counts as coming back if it begins after one to the host has ended and before the host could
    have written as many bytes again, and a kernel runs before the next one to the host. The first way in and the last
    way out are not among them: those have to be.
    """
    work, table = device_work(context), context.operations
    columns = (table.bytes, table.process, table.device)
    rows = rows[np.lexsort((rows, table.start_ns[rows], *(column[rows] for column in columns)))]
    new = np.any([np.diff(column[rows], prepend=-1) != 0 for column in columns], axis=0)
    kernels_of = {
        device: merged(table.start_ns[work.is_kernel & (table.device == device)])
        for device in unique(table.device[rows]).tolist()
    }
    returning, times = [np.empty(0, np.intp)], 0
    for copies in np.split(rows, np.flatnonzero(new)):
        out = table.direction[copies] == Direction.DTOH
        run = np.cumsum(np.diff(out, prepend=out[:1]))
        back = np.flatnonzero(out[:-1] & ~out[1:]) + 1
        waited = table.start_ns[copies[back]] - table.end_ns[copies[back - 1]]
        back = back[(waited >= 0) & (waited <= table.bytes[copies[back]] / HOST_BYTES_PER_NS)]
        if len(back):  # those after which a kernel runs before the next copy to the host
            kernels, start_ns = kernels_of[int(table.device[copies[0]])], table.start_ns[copies]
            until = np.append(start_ns, np.iinfo(np.int64).max)[np.searchsorted(run, run[back] + 1)]
            back = back[np.searchsorted(kernels, until) > np.searchsorted(kernels, start_ns[back])]
        if len(back) >= LEAST_RETURNS:
            returning.append(copies[np.isin(run, np.concatenate((run[back], run[back - 1])))])
            times += len(back)
    return merged(*returning), times


def bandwidth_of(context: RuleContext, rows: Rows) -> float:
    """Bytes over time of these copies, in GB/s; 0 without any."""
    work, table = device_work(context), context.operations
    total = int(work.whole_ns[rows].sum())
    return float(table.bytes[rows].sum()) / total if total else 0.0


def link_rate(context: RuleContext, device: int) -> tuple[float, str] | None:
    """What large pinned copies should reach to and from a device, in GB/s, and the link it assumes; None where the
    GPU does not tell."""
    trace = context.trace
    capability = trace.gpu_facts[device].capability if trace.gpu_facts else (0, 0)
    name = trace.gpus[device].name
    if capability not in _GENERATION or _NOT_PCIE.search(name):
        return None
    generation, lanes = _GENERATION[capability], 8 if _HALF_WIDTH.search(name) else 16
    return _OF_GENERATION[generation] * lanes / 16, f"PCIe {generation}.0 x{lanes}"


class BesideCopies(Struct, frozen=True):
    """Of a device's window: time in which copies run, and kernels beside none, all that copies could still hide
    behind."""

    copies_ns: int
    kernels_alone_ns: int


@once
def beside_copies(context: RuleContext) -> tuple[BesideCopies, ...]:
    """Of each device, in the timeline's order."""
    table, in_window = context.operations, device_work(context).in_window
    found = []
    for device in context.timeline.devices:
        of_device = in_window & (table.device == device.index)
        kernels, copies = (
            clip(union(table.start_ns[rows], table.end_ns[rows]), device.low_ns, device.high_ns)
            for rows in (of_device & (table.kind < OpKind.MEMCPY), of_device & (table.kind >= OpKind.MEMCPY))
        )
        found.append(BesideCopies(copies.total, subtract(kernels, copies).total))
    return tuple(found)


class FullLink(Struct, frozen=True):
    """Copies of one direction that take nearly all of a device's window: they wait for one another."""

    way: Direction
    busy_ns: int
    share: float  # of the window

    @property
    def text(self) -> str:
        """``the link is full for 91 % of the window with copies to the device, hidden or not``."""
        return f"the link is full for {percent(self.share)} of the window with copies {WAYS[self.way]}, hidden or not"


@once
def full_link(context: RuleContext) -> FullLink | None:
    """The fullest of all devices and both directions; None where copies leave room."""
    table, is_copy = context.operations, device_work(context).in_window & (context.operations.kind == OpKind.MEMCPY)
    found = []
    for device in context.timeline.devices:
        for way in (Direction.HTOD, Direction.DTOH):
            rows = is_copy & (table.direction == way) & (table.device == device.index)
            moves = clip(union(table.start_ns[rows], table.end_ns[rows]), device.low_ns, device.high_ns)
            found.append(FullLink(way, moves.total, moves.total / max(device.high_ns - device.low_ns, 1)))
    fullest = max(found, key=lambda one: one.share, default=None)
    return fullest if fullest is not None and fullest.share >= NEARLY_ALL else None


def is_upload(context: RuleContext, rows: Rows) -> bool:
    """Whether these copies lie together where next to no kernel runs: a model or a data set on its way in, once."""
    work, table = device_work(context), context.operations
    low, high = int(table.start_ns[rows].min()), int(table.end_ns[rows].max())
    inside = work.is_kernel & (table.start_ns >= low) & (table.start_ns < high)
    to_device = bool((table.direction[rows] == Direction.HTOD).all())
    return to_device and int(work.exposed_ns[inside].sum()) <= UPLOAD_KERNELS * (high - low)


def looks_like_a_model(sizes: Int) -> bool:
    """Whether copies of these sizes are parameters: several sizes recur, as layers do. A video, a data set or a batch
    is one piece, or pieces of one size."""
    _, times = np.unique(sizes, return_counts=True)
    return int(np.count_nonzero(times > 1)) > 1


# A scalar, a flag or a few indices are no batch.
LEAST_BATCH_BYTES = SMALL_COPY_BYTES
# Fewer steps are no habit.
LEAST_STEPS = HABIT


def batch_uploads(context: RuleContext, device: DeviceTimeline) -> Int:
    """By gap of a device: the bytes of the upload that ends it, where gaps end in uploads step after step: kernels run
    between one and the next, and less is read back than goes up (what the host makes of results is no input). Else 0.
    Shape (gaps,)."""
    table, gaps = context.operations, device.gaps
    none = spread(0, len(gaps))
    if not len(gaps):
        return none
    operation = gaps.operation.astype(np.int64)
    is_upload = (table.kind == OpKind.MEMCPY) & (table.direction == Direction.HTOD) & (table.bytes >= LEAST_BATCH_BYTES)
    ends = np.flatnonzero(pick(is_upload, operation, False) & (operation != NOTHING))
    if len(ends) < LEAST_STEPS:
        return none
    rows, of_device = operation[ends], table.device == device.index
    kernels = np.flatnonzero(device_work(context).is_kernel & of_device)
    kernels_ns = merged(table.start_ns[kernels])
    since = np.searchsorted(kernels_ns, table.start_ns[rows])
    is_first = np.append(True, since[1:] > since[:-1])  # of several copies with no kernel between them: one batch
    ends, rows, since = ends[is_first], rows[is_first], since[is_first]
    uploads = np.flatnonzero(is_upload & of_device)
    after = np.searchsorted(kernels_ns, table.start_ns[uploads])
    uploads, after = uploads[np.isin(after, since)], after[np.isin(after, since)]
    batch_bytes = group_sums(np.searchsorted(since, after), table.bytes[uploads], len(ends))
    back = np.flatnonzero((table.direction == Direction.DTOH) & of_device)
    back = back[np.argsort(table.start_ns[back], kind="stable")]
    read = np.append(0, np.cumsum(table.bytes[back], dtype=np.int64))
    read_before = read[np.searchsorted(table.start_ns[back], table.start_ns[rows])]
    is_step = np.diff(read_before, prepend=read_before[:1]) < batch_bytes
    if len(ends) < LEAST_STEPS or is_step.mean() < MOST:  # uploads come for other reasons
        return none
    return scattered(len(gaps), ends, batch_bytes)


class Paged(Struct, frozen=True):
    """``kernels``: those that run while their GPU waits for pages, for ``stalled_ns`` together; ``faults`` of GPUs in
    the window; ``evictions``. Masks over operations: ``ahead``, migrations that the program asked for before anybody
    waited, and ``read_back``, those to the host because it touched the pages."""

    kernels: Rows
    stalled_ns: int
    faults: int
    ahead: Bool
    read_back: Bool
    evictions: int


@once
def paged(context: RuleContext) -> Paged:
    """What the page events of the trace say of its kernels and migrations."""
    table = context.operations
    kernels, stalled_ns, faults, evictions = [np.zeros(0, np.intp)], 0, 0, 0
    ahead, read_back = np.zeros(len(table), bool), np.zeros(len(table), bool)
    if not len(context.trace.page_events):
        return Paged(kernels[0], 0, 0, ahead, read_back, 0)
    for mask, kind in ((ahead, Paging.PREFETCHED), (read_back, Paging.READ_BACK)):
        mask[context.trace.migrations(kind)] = True
    work = device_work(context)
    for device in context.timeline.devices:
        events = context.trace.page_events
        in_window = (events.end_ns > device.low_ns) & (events.start_ns < device.high_ns)
        events = events.take(in_window & (events.device == device.index))
        waits = is_in(events.kind, (Paging.FAULT, Paging.FETCHED))
        waiting = clip(union(events.start_ns[waits], events.end_ns[waits]), device.low_ns, device.high_ns)
        if len(waiting.start):
            rows = np.flatnonzero(work.is_kernel & (table.device == device.index))
            held_ns = CoveredTime(waiting).within(table.start_ns[rows], table.end_ns[rows])
            kernels.append(rows[held_ns > 0])
            running: IntervalSet = union(table.start_ns[rows], table.end_ns[rows])
            stalled_ns += int(CoveredTime(waiting).within(running.start, running.end).sum())
        faults += int(events.count[events.kind == Paging.FAULT].sum())
        evictions += int((events.kind == Paging.EVICTED).sum())
    return Paged(np.concatenate(kernels), stalled_ns, faults, ahead, read_back, evictions)
