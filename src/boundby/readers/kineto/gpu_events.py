"""Kernels, copies and sets of a Kineto trace, the GPUs they ran on, and what is told of communication."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from msgspec import Struct

from boundby.model.arrays import MISSING, BoolArray, Int32Array, Int64Array, factorize, unique
from boundby.model.late import expression
from boundby.model.scale import MOST_MEMBERS
from boundby.readers.kineto.columns import (
    CALL,
    COPY,
    KERNEL,
    Columns,
    configured_groups,
    integers,
    listed_ranks,
    objects,
)
from boundby.readers.sanitize import MOST_SHAPE, Raw
from boundby.trace.facts import GpuInfo, ProcessGroup
from boundby.trace.tables import (
    NO_CORRELATION,
    CollectiveTable,
    Direction,
    GpuFacts,
    GraphNodes,
    LaunchShapes,
    MemoryKind,
    Operations,
    OpKind,
)
from boundby.trace.vocabulary.cuda import is_communication

_COPY = expression(r"Mem(?:cpy|set)\s*(\w+)?\s*(?:\((.*?)(?:\s*->\s*(.*?))?\)\s*$)?", re.IGNORECASE)
# What others than CUDA call it: CopyDeviceToHost, MEMORY_COPY_HOST_TO_DEVICE, Memcpy D2M (M: the host's memory).
_WAY = expression(r"(?:\b|_|copy|memory)(host|device|[HDM])_?(?:to|2)_?(host|device|[HDM])(?![a-z])", re.IGNORECASE)
_DIRECTIONS = {direction.name: int(direction) for direction in Direction}
_MEMORY_KINDS = {
    "pageable": MemoryKind.PAGEABLE,
    "pinned": MemoryKind.PINNED,
    "device": MemoryKind.DEVICE,
    "array": MemoryKind.DEVICE,
    "device static": MemoryKind.DEVICE,
    "managed": MemoryKind.MANAGED,
    "managed static": MemoryKind.MANAGED,
}
_NO_RANKS: tuple[int, ...] = ()
_MOST_SUM = float(1 << 62)
# HIP's other launches take blocks: hip_ext.h names these calls' sizes globalWorkSize.
_IN_WORK_ITEMS = frozenset(("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel"))


class KinetoGpus(Struct, frozen=True):
    """The GPUs, used ones first by id, with what is told of each; ``place`` leads to them from their ids."""

    info: tuple[GpuInfo, ...]
    facts: tuple[GpuFacts, ...]
    place: dict[int, int]

    def of(self, device: Int64Array) -> Int32Array:
        """The GPU of each id; -1: none."""
        used, inverse = np.unique(device, return_inverse=True)
        indexes = [self.place.get(number, -1) for number in used.tolist()]
        return np.array(indexes or [0], np.int32)[inverse.reshape(-1)]

    def of_visible(self, device: Int64Array) -> Int32Array:
        """The GPU of each number that PyTorch has for it; -1: none. On AMD operations have the numbers of agents, and
        PyTorch counts the GPUs that it sees: the same ones in the same order, where they are equally many."""
        visible, working = unique(device).tolist(), [gpu.id for gpu in self.info if gpu.used]
        if set(visible) <= set(self.place) or len(visible) != len(working):
            return self.of(device)
        agent = dict(zip(visible, sorted(working), strict=True))
        return self.of(np.array([agent[number] for number in device.tolist()], np.int64))


class KinetoDevice(Struct, frozen=True):
    """All that is told of devices."""

    gpus: KinetoGpus
    operations: Operations
    shapes: LaunchShapes
    collectives: CollectiveTable
    groups: tuple[ProcessGroup, ...]
    nodes: GraphNodes


def devices_of(columns: Columns, rows: Int64Array) -> Int64Array:
    """The device id of each event on one: its argument, else the process that it is filed under, else 0."""
    device, pid = columns.within("device", rows, 0, MOST_MEMBERS, -1), columns.events.pid[rows]
    device = np.where(device < 0, pid, device)
    return np.where((device < 0) | (device >= MOST_MEMBERS), 0, device)


def gpu_operations(columns: Columns, raw: Raw, process: Int32Array) -> KinetoDevice:
    """The operations of all devices; ``process``: whose each is."""
    rows = raw["row"]
    kind, ids = columns.kind[rows], devices_of(columns, rows)
    is_kernel = kind == KERNEL
    name = columns.events.name[rows].astype(np.int64)
    kernel = np.where(is_kernel, name, -1)
    names = np.full(len(rows), -1, np.int32)
    names[is_kernel] = columns.name_of(rows[is_kernel])
    copies = columns.each(np.where(is_kernel, -1, name), _copy, (-1, -1, -1))
    direction, source, target = np.array(copies, np.int8).reshape(-1, 3).T.copy()
    shapes, shape = _shapes(columns, rows, is_kernel)
    gpus = _gpus(columns.events.top, ids)
    communicates = np.array(columns.each(kernel, is_communication, otherwise=False), bool)
    collectives, groups, collective = _collectives(columns, rows)
    kinds = np.where(is_kernel, OpKind.KERNEL, np.where(kind == COPY, OpKind.MEMCPY, OpKind.MEMSET))
    stream = columns.number("stream", rows)
    nodes, node = GraphNodes.of(process, columns.within("graph node id", rows, 1, 1 << 62, -1))
    table = Operations(
        start_ns=raw["start"],
        end_ns=raw["end"],
        device=gpus.of(ids),
        process=process,
        stream=np.where(stream == MISSING, np.maximum(columns.events.tid[rows], 0), stream),
        correlation=np.where(raw["correlationId"] == MISSING, NO_CORRELATION, raw["correlationId"]),
        kind=kinds.astype(np.int8),
        name=names,
        bytes=np.where(raw["bytes"] == MISSING, 0, raw["bytes"]),
        direction=direction,
        source=source,
        target=target,
        is_communication=communicates,
        shape=shape,
        collective=collective,
        node=node,
    )
    return KinetoDevice(gpus, table.sorted(columns.names), shapes, collectives, groups, nodes)


def _gpus(top: dict[str, Any], ids: Int64Array) -> KinetoGpus:
    by_id = {
        properties["id"]: properties
        for properties in objects(top.get("deviceProperties"))
        if isinstance(properties.get("id"), int)
    }
    names = {number: str(properties.get("name") or f"GPU {number}") for number, properties in by_id.items()}
    # AMD numbers devices among all agents, so that an id can be none of the list's: where all are alike, it is of them.
    alike = next(iter(by_id.values())) if len(set(names.values())) == 1 else {}
    used = unique(ids).tolist()
    info = [GpuInfo(number, names.get(number) or str(alike.get("name") or f"GPU {number}")) for number in used]
    if set(used) <= set(by_id):  # else nobody knows which of the list these are, and so which do nothing
        info += [GpuInfo(number, names[number], used=False) for number in sorted(set(by_id) - set(used))]
    facts = tuple(_facts(by_id.get(gpu.id, alike)) for gpu in info)
    return KinetoGpus(tuple(info), facts, {gpu.id: index for index, gpu in enumerate(info)})


def _facts(told: dict[str, Any]) -> GpuFacts:
    def value(*keys: str) -> int:
        return next((told[key] for key in keys if isinstance(told.get(key), int) and told[key] > 0), 0)

    return GpuFacts(
        multiprocessors=value("numSms"),
        capability=(value("computeMajor"), value("computeMinor")),
        warps_per_multiprocessor=value("maxThreadsPerMultiprocessor") // max(value("warpSize"), 1),
        registers_per_multiprocessor=value("regsPerMultiprocessor"),
        shared_bytes_per_multiprocessor=value("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
    )


def _copy(name: str) -> tuple[int, int, int]:
    """Direction, source and target of a copy or set, by its name: ``Memcpy HtoD (Pageable -> Device)``."""
    match = _COPY.match(name)
    direction, source, target = match.groups() if match else (None, None, None)
    ends = [int(_MEMORY_KINDS.get((text or "").strip().lower(), MemoryKind.UNKNOWN)) for text in (source, target)]
    if (direction := (direction or "").upper()) not in _DIRECTIONS and (way := _WAY.search(name)):
        direction = "TO".join("D" if end[0] in "dD" else "H" for end in way.groups())
    return _DIRECTIONS.get(direction, int(Direction.OTHER)), ends[0], ends[1]


def _shapes(columns: Columns, rows: Int64Array, is_kernel: BoolArray) -> tuple[LaunchShapes, Int32Array]:
    """The distinct launch shapes, and the row of each operation's (-1: no kernel, or not told)."""

    def sizes(key: str) -> Int64Array:
        return np.array(columns.each(columns.text(key, rows), _sizes, (0, 0, 0)), np.int64).reshape(-1, 3)

    grid, block = sizes("grid"), sizes("block")
    in_items = _launched_in_work_items(columns, rows)
    grid[in_items] = -(-grid // np.maximum(block, 1))[in_items]
    blocks, threads = (_product(each) for each in (grid, block))
    registers, shared = (
        columns.within(key, rows, 0, MOST_SHAPE, 0) for key in ("registers per thread", "shared memory")
    )
    occupancy = columns.within("est. achieved occupancy %", rows, 0, 101, -1)
    is_full = is_kernel & (blocks > 0) & (threads > 0)
    shape = np.full(len(rows), -1, np.int32)
    plane = np.where((grid[:, :2] > 0).all(axis=1), grid[:, :2].T, 0)  # where either is not told, neither is
    every = blocks, threads, registers, shared, occupancy, *plane
    distinct, shape[is_full] = factorize(*(column[is_full] for column in every))
    return LaunchShapes(*(np.ascontiguousarray(column) for column in distinct.T)), shape


def _sizes(text: str) -> tuple[int, int, int]:
    """The three sizes of a grid or block; 0: not told."""
    x, y, z = (size if 0 < size < MOST_SHAPE else 0 for size in (*integers(text), 0, 0, 0)[:3])
    return x, y, z


def _product(sizes: Int64Array) -> Int64Array:
    """How many a grid or block of these sizes has, of shape (n, 3); 0: no size is told."""
    many = np.minimum(np.maximum(sizes, 1).prod(axis=1, dtype=np.float64), _MOST_SUM).astype(np.int64)
    return np.where((sizes > 0).any(axis=1), many, 0)


def _launched_in_work_items(columns: Columns, rows: Int64Array) -> BoolArray:
    """The operations whose call was given the grid in work-items, as OpenCL does, and not in blocks."""
    calls = np.flatnonzero(columns.kind == CALL)
    named = np.array(columns.each(columns.events.name[calls], _IN_WORK_ITEMS.__contains__, otherwise=False), bool)
    launched = columns.number("correlation", calls[named])
    return np.isin(columns.number("correlation", rows), launched[launched != MISSING])


def _collectives(columns: Columns, rows: Int64Array) -> tuple[CollectiveTable, tuple[ProcessGroup, ...], Int32Array]:
    """What is told of communication, the groups, and the row of each operation's collective (-1: none is told)."""
    names = columns.text("Collective name", rows)
    chosen = np.flatnonzero(names >= 0)
    own = rows[chosen]
    collective = np.full(len(rows), -1, np.int32)
    collective[chosen] = np.arange(len(chosen))
    groups = {group.name: group for group in configured_groups(columns.events.top)}
    named = rows[names >= 0]
    for name, description, ranks in zip(
        columns.each(columns.text("Process Group Name", named), str, ""),
        columns.each(columns.text("Process Group Description", named), str, ""),
        columns.each(columns.text("Process Group Ranks", named), listed_ranks, _NO_RANKS),
        strict=True,
    ):
        groups.setdefault(name, ProcessGroup(name, description, ranks))
    index = {name: number for number, name in enumerate(groups)}
    of_row = columns.each(columns.text("Process Group Name", own), str, "")
    keys = ("Group size", "In msg nelems", "Out msg nelems", "Seq")
    size, elements_in, elements_out, sequence = (columns.within(key, own, 0, 1 << 62, -1) for key in keys)
    splits = [columns.each(columns.text(key, own), _unevenness, -1) for key in ("In split size", "Out split size")]
    table = CollectiveTable(
        name=columns.name(names[chosen]),
        group=np.array([index.get(name, -1) for name in of_row], np.int32),
        dtype=columns.name(columns.text("dtype", own)),
        group_size=size,
        elements_in=elements_in,
        elements_out=elements_out,
        sequence=sequence,
        uneven_percent=np.array(splits, np.int64).max(axis=0),
    )
    return table, tuple(groups.values()), collective


def _unevenness(text: str) -> int:
    """The largest of split sizes in percent of their mean; -1 without any."""
    sizes = [size for size in integers(text) if 0 <= size < MOST_SHAPE]
    total = sum(sizes)
    return round(100 * max(sizes) * len(sizes) / total) if total else -1
