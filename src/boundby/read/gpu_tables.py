"""Kernels, graphs, copies, sets and migrations: the tables of what ran on the devices."""

from __future__ import annotations

import numpy as np

from boundby.model.arrays import factorize
from boundby.model.report import GpuInfo
from boundby.model.trace import (
    NO_CORRELATION,
    Direction,
    Int8Array,
    Int32Array,
    Int64Array,
    MemoryKind,
    Operations,
    OpKind,
)
from boundby.read.columns import MISSING, Database, as_text
from boundby.read.identity import Identities
from boundby.read.names import NamePool
from boundby.timeline.calls import is_communication

_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId")
_TABLES: tuple[tuple[str, OpKind, tuple[str, ...]], ...] = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", OpKind.KERNEL, ("demangledName", "shortName")),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", OpKind.GRAPH, ()),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", OpKind.MEMCPY, ("bytes", "copyKind", "srcKind", "dstKind")),
    ("CUPTI_ACTIVITY_KIND_MEMSET", OpKind.MEMSET, ("bytes",)),
)
_ALL = (*_COMMON, "demangledName", "shortName", "bytes", "copyKind", "srcKind", "dstKind")

# Fallbacks where a trace has no ENUM tables (before 2022.4).
_DEFAULT_DIRECTION = {1: "HTOD", 2: "DTOH", 3: "HTOD", 4: "DTOH", 5: "DTOD", 6: "DTOD", 7: "DTOD", 8: "DTOD"} | {
    9: "HTOH",
    10: "PTOP",
    11: "UVM_HTOD",
    12: "UVM_DTOH",
    13: "UVM_DTOD",
}
_DEFAULT_MEMORY = {0: "PAGEABLE", 1: "PINNED", 2: "DEVICE", 3: "ARRAY", 4: "MANAGED"}
_ARRAY_DIRECTION = {"HTOA": "HTOD", "ATOH": "DTOH", "ATOA": "DTOD", "ATOD": "DTOD", "DTOA": "DTOD"}
_MEMORY_OF_NAME = {
    "PAGEABLE": MemoryKind.PAGEABLE,
    "PINNED": MemoryKind.PINNED,
    "DEVICE": MemoryKind.DEVICE,
    "DEVICE_STATIC": MemoryKind.DEVICE,
    "ARRAY": MemoryKind.DEVICE,
    "MANAGED": MemoryKind.MANAGED,
    "MANAGED_STATIC": MemoryKind.MANAGED,
}


def read_operations(database: Database) -> dict[str, Int64Array]:
    """All GPU operations as raw columns of one length, with ``kind``."""
    parts: dict[str, list[Int64Array]] = {column: [] for column in (*_ALL, "kind")}
    for table, kind, extra in _TABLES:
        rows = database.columns(table, (*_COMMON, *extra))
        count = len(rows["start"])
        for column in _ALL:
            parts[column].append(rows[column] if column in rows else np.full(count, MISSING, np.int64))
        parts["kind"].append(np.full(count, int(kind), np.int64))
    raw = {column: np.concatenate(part) for column, part in parts.items()}
    raw["deviceId"] = np.where(raw["deviceId"] == MISSING, 0, raw["deviceId"])
    return raw


def read_gpus(database: Database, raw: dict[str, Int64Array]) -> tuple[tuple[GpuInfo, ...], dict[tuple[int, int], int]]:
    """The GPUs, used ones first by id, and the index of the GPU that each (process key, CUDA ordinal) used.

    A device keeps the id the tables give it. Only where two processes mean different GPUs by one ordinal
    (CUDA_VISIBLE_DEVICES) does the GPU's own id take its place.
    """
    names = _gpu_names(database)
    mapping = database.columns("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    gpu_of = {
        (pid, ordinal): gpu
        for gpu, ordinal, pid in zip(*(mapping[c].tolist() for c in ("gpuId", "cudaId", "pid")), strict=True)
        if gpu != MISSING
    }
    places, _ = factorize(raw["globalPid"], raw["deviceId"])
    used = [(key, (key >> 24) & 0xFFFFFF, ordinal) for key, ordinal in places.tolist()]
    physical = {(key, ordinal): gpu_of.get((pid, ordinal), ordinal) for key, pid, ordinal in used}
    meanings: dict[int, set[int]] = {}
    for (_, ordinal), gpu in physical.items():
        meanings.setdefault(ordinal, set()).add(gpu)
    one_to_one = all(len(gpus) == 1 for gpus in meanings.values()) and len(
        {gpu for gpus in meanings.values() for gpu in gpus}
    ) == len(meanings)
    shown = {place: (place[1] if one_to_one else gpu) for place, gpu in physical.items()}
    label = {shown[place]: names.get(gpu, f"GPU {gpu}") for place, gpu in physical.items()}
    ids = sorted(label)
    taken = set(physical.values())
    rest = [GpuInfo(gpu, name, used=False) for gpu, name in sorted(names.items()) if gpu not in taken]
    gpus = (*(GpuInfo(number, label[number]) for number in ids), *rest)
    return gpus, {place: ids.index(number) for place, number in shown.items()}


def _gpu_names(database: Database) -> dict[int, str]:
    for table, number in (
        ("TARGET_INFO_GPU", "id"),
        ("TARGET_INFO_CUDA_GPU", "deviceId"),
        ("TARGET_INFO_GPU", "deviceId"),
    ):
        if database.has(table, number, "name"):
            rows = database.rows(f'SELECT "{number}", name FROM "{table}" ORDER BY 1, 2')
            return {gpu: as_text(name) or f"GPU {gpu}" for gpu, name in rows if isinstance(gpu, int)}
    return {}


def operations(
    database: Database,
    raw: dict[str, Int64Array],
    device_of: dict[tuple[int, int], int],
    identities: Identities,
    pool: NamePool,
) -> Operations:
    """The operations of all devices in a total order: device, start, end, then every other column."""
    direction, is_migration = _directions(database, raw["copyKind"])
    memory = _memory_lookup(database)
    kind = np.where((raw["kind"] == OpKind.MEMCPY) & is_migration, int(OpKind.MIGRATION), raw["kind"])
    short = pool.add_ids(database, raw["shortName"], unknown="")
    texts = pool.names()
    communicates = np.array([is_communication(text) for text in texts] or [False], bool)
    table = Operations(
        start_ns=raw["start"],
        end_ns=raw["end"],
        device=_devices(raw, device_of),
        process=identities.processes(raw["globalPid"]),
        stream=raw["streamId"],
        correlation=np.where(raw["correlationId"] == MISSING, NO_CORRELATION, raw["correlationId"]),
        kind=kind.astype(np.int8),
        name=pool.add_ids(database, raw["demangledName"], unknown=""),
        bytes=np.where(raw["bytes"] == MISSING, 0, raw["bytes"]),
        direction=direction,
        source=_lookup(memory, raw["srcKind"]),
        target=_lookup(memory, raw["dstKind"]),
        is_communication=communicates[short] & (kind == OpKind.KERNEL),
    )
    columns = (table.bytes, pool.ranks(table.name), table.correlation, table.stream, table.process, table.kind)
    return table.take(np.lexsort((*columns, table.end_ns, table.start_ns, table.device)))


def _devices(raw: dict[str, Int64Array], device_of: dict[tuple[int, int], int]) -> Int32Array:
    places, inverse = factorize(raw["globalPid"], raw["deviceId"])
    index = np.array([device_of[(key, ordinal)] for key, ordinal in places.tolist()], np.int32)
    return index[inverse]


def _directions(
    database: Database, copy_kind: Int64Array
) -> tuple[Int8Array, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    names = _enum(database, "ENUM_CUDA_MEMCPY_OPER", "CUDA_MEMCPY_KIND_") or _DEFAULT_DIRECTION
    plain = {code: name.removeprefix("UVM_") for code, name in names.items()}
    codes = {
        code: int(Direction[_ARRAY_DIRECTION.get(name, name)])
        for code, name in plain.items()
        if _ARRAY_DIRECTION.get(name, name) in Direction.__members__
    }
    migrations = [code for code, name in names.items() if name.startswith("UVM_")]
    return _lookup(codes, copy_kind), np.isin(copy_kind, migrations)


def _memory_lookup(database: Database) -> dict[int, int]:
    names = _enum(database, "ENUM_CUDA_MEM_KIND", "CUDA_MEMOPR_MEMORY_KIND_") or _DEFAULT_MEMORY
    return {code: int(_MEMORY_OF_NAME[name]) for code, name in names.items() if name in _MEMORY_OF_NAME}


def _enum(database: Database, table: str, prefix: str) -> dict[int, str]:
    if not database.has(table, "id", "name"):
        return {}
    rows = database.rows(f'SELECT id, name FROM "{table}"')
    return {number: str(name).removeprefix(prefix) for number, name in rows if isinstance(number, int)}


def _lookup(codes: dict[int, int], values: Int64Array) -> Int8Array:
    if len(values) == 0:
        return np.empty(0, np.int8)
    distinct, inverse = np.unique(values, return_inverse=True)
    return np.array([codes.get(int(value), -1) for value in distinct], np.int8)[inverse]
