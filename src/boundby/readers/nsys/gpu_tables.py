"""Kernels, graphs, copies, sets and migrations: the tables of what ran on the devices."""

from __future__ import annotations

import numpy as np

from boundby.model.arrays import Int8Array, Int32Array, Int64Array, factorize
from boundby.readers.nsys.columns import MISSING, Database, as_text
from boundby.readers.nsys.identity import Identities
from boundby.readers.nsys.names import NamePool
from boundby.trace.facts import GpuInfo
from boundby.trace.tables import NO_CORRELATION, Direction, GpuFacts, LaunchShapes, MemoryKind, Operations, OpKind
from boundby.trace.vocabulary.cuda import is_communication

_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId")
_TABLES: tuple[tuple[str, OpKind, tuple[str, ...]], ...] = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", OpKind.KERNEL, ("demangledName", "shortName")),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", OpKind.GRAPH, ()),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", OpKind.MEMCPY, ("bytes", "copyKind", "srcKind", "dstKind")),
    ("CUPTI_ACTIVITY_KIND_MEMSET", OpKind.MEMSET, ("bytes",)),
)
_ALL = (*_COMMON, "demangledName", "shortName", "bytes", "copyKind", "srcKind", "dstKind")
_GRID, _BLOCK = ("gridX", "gridY", "gridZ"), ("blockX", "blockY", "blockZ")
_SHAPE = (*_GRID, *_BLOCK, "registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
_MOST_SHAPE = 1 << 31  # no dimension, register count or shared size is larger

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


def read_operations(database: Database) -> tuple[dict[str, Int64Array], LaunchShapes]:
    """All GPU operations as raw columns of one length, with ``kind`` and ``shape``: the row of the launch shapes that
    come with them, -1 for what is no kernel."""
    parts: dict[str, list[Int64Array]] = {column: [] for column in (*_ALL, "kind", "shape")}
    shapes = LaunchShapes.empty()
    for table, kind, extra in _TABLES:
        rows = database.columns(table, (*_COMMON, *extra, *(_SHAPE if kind == OpKind.KERNEL else ())))
        count = len(rows["start"])
        parts["shape"].append(np.full(count, -1, np.int64))
        if kind == OpKind.KERNEL and count:
            shapes, parts["shape"][-1] = _shapes(rows)
        for column in _ALL:
            parts[column].append(rows[column] if column in rows else np.full(count, MISSING, np.int64))
        parts["kind"].append(np.full(count, int(kind), np.int64))
    raw = {column: np.concatenate(part) for column, part in parts.items()}
    raw["deviceId"] = np.where(raw["deviceId"] == MISSING, 0, raw["deviceId"])
    return raw, shapes


def _shapes(rows: dict[str, Int64Array]) -> tuple[LaunchShapes, Int64Array]:
    """The distinct launch shapes, and the row of each kernel's; what is missing or impossible counts as not told."""
    known = {column: np.where((rows[column] < 0) | (rows[column] > _MOST_SHAPE), 0, rows[column]) for column in _SHAPE}
    most = float(1 << 62)

    def product(columns: tuple[str, ...]) -> Int64Array:
        exact = np.minimum(np.prod([known[column].astype(np.float64) for column in columns], axis=0), most)
        found: Int64Array = exact.astype(np.int64)
        return found

    shared = known["staticSharedMemory"] + known["dynamicSharedMemory"]
    distinct, index = factorize(product(_GRID), product(_BLOCK), known["registersPerThread"], shared)
    return LaunchShapes(*(np.ascontiguousarray(column) for column in distinct.T)), index.astype(np.int64)


def read_gpus(
    database: Database, raw: dict[str, Int64Array]
) -> tuple[tuple[GpuInfo, ...], dict[tuple[int, int], int], tuple[GpuFacts, ...]]:
    """The GPUs, used ones first by id, the index of the GPU that each (process key, CUDA ordinal) used, and what is
    told of each GPU.

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
    facts = _gpu_facts(database)
    meant = {shown[place]: gpu for place, gpu in physical.items()}
    told = tuple(facts.get(meant.get(gpu.id, gpu.id) if gpu.used else gpu.id, GpuFacts()) for gpu in gpus)
    return gpus, {place: ids.index(number) for place, number in shown.items()}, told


# The columns of GpuFacts, by the table that tells them: TARGET_INFO_GPU since 2022, before that TARGET_INFO_CUDA_GPU.
_FACTS = (
    (
        "TARGET_INFO_GPU",
        "id",
        *("smCount", "computeMajor", "computeMinor", "maxWarpsPerSm"),
        *("maxRegistersPerSm", "maxShmemPerSm"),
    ),
    (
        "TARGET_INFO_CUDA_GPU",
        "deviceId",
        *("numMultiprocessors", "computeCapabilityMajor", "computeCapabilityMinor", "maxWarpsPerMultiprocessor"),
        *("maxRegistersPerMultiprocessor", "maxSharedMemoryPerMultiprocessor"),
    ),
)


def _gpu_facts(database: Database) -> dict[int, GpuFacts]:
    """What is told of each GPU's hardware, by its id."""
    for table, *columns in _FACTS:
        if not database.has(table, *columns[:4]):
            continue
        told = [column if database.has(table, column) else None for column in columns]
        selected = ", ".join("NULL" if column is None else f'"{column}"' for column in told)
        found = {}
        for gpu, *values in database.rows(f'SELECT {selected} FROM "{table}"'):
            if isinstance(gpu, int):
                sm, major, minor, *rest = (value if isinstance(value, int) and value > 0 else 0 for value in values)
                found[gpu] = GpuFacts(sm, (major, minor), *rest)
        return found
    return {}


def read_page_faults(database: Database) -> dict[str, int]:
    """Page faults of managed memory in the whole trace, by who faulted; only those that were captured."""
    found = {}
    for who, table, counted in (
        ("cpu", "CUDA_UM_CPU_PAGE_FAULT_EVENTS", ""),
        ("gpu", "CUDA_UM_GPU_PAGE_FAULT_EVENTS", "numberOfPageFaults"),
    ):
        if table in database.tables:
            number = f'sum("{counted}")' if counted and database.has(table, counted) else "count(*)"
            ((value,),) = database.rows(f'SELECT {number} FROM "{table}"')
            found[who] = value if isinstance(value, int) else 0
    return found


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
        shape=raw["shape"].astype(np.int32),
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
