"""Kernels, graphs, copies, sets and migrations, the GPUs they ran on, what calls say of streams and events, and what
the GPUs' counters say."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.model.arrays import (
    MISSING,
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
    compact,
    factorize,
    is_even,
    joined,
    median,
    narrow,
    pick,
    replaced,
    spread,
    thin,
    translated,
    unique,
)
from boundby.model.scale import DEEPEST
from boundby.model.units import PERCENT
from boundby.readers.nsys.database import Database, Reads, as_text
from boundby.readers.nsys.identity import Identities, Indexes, pid_of
from boundby.readers.nsys.pages import Since
from boundby.readers.sanitize import CORRELATIONS, MOST_SHAPE
from boundby.trace.facts import GpuInfo
from boundby.trace.tables import (
    NO_CORRELATION,
    NO_STREAM,
    Direction,
    GpuFacts,
    GraphNodes,
    LaunchShapes,
    MemoryKind,
    MetricSamples,
    Operations,
    OpKind,
    PageEvents,
    Paging,
    StreamPoints,
    StreamRole,
    Streams,
)
from boundby.trace.vocabulary.cuda import is_communication, is_expert_parallel
from boundby.trace.vocabulary.profiler import METRIC_COLUMNS, column_of

# Samples of the GPUs' counters: GPU_METRICS, or in exports of 2022 the same as JSON in GENERIC_EVENTS.
#
# A sample tells of the time from its timestamp to the next one's: in a real trace the graphics engine was active for
# 80 % of a sample, and the last kernel ended 80 us after its timestamp (of 100 us), then 1 % of the next.

_METRICS, _METRIC_NAMES, _EVENTS = "GPU_METRICS", "TARGET_INFO_GPU_METRICS", "GENERIC_EVENTS"
_SAMPLE, _NAMED = ("timestamp", "typeId", "metricId", "value"), ("typeId", "metricId", "metricName")
_RAW = "rawTimestamp"
_DATA = ("typeId", "data")
_OF_METRICS = (
    Reads(_METRICS, (*_SAMPLE, _RAW), "samples of the GPUs' counters"),
    Reads(_METRIC_NAMES, _NAMED, "names of the GPUs' counters"),
    Reads(_EVENTS, ("timestamp", _RAW, *_DATA), "in exports of 2022: samples of the GPUs' counters, as JSON"),
)
_DEVICE_BITS = 0xFF  # of a typeId: the GPU's number
_Counted = dict[str, Int64Array]  # start, type, place (in COLUMNS), value: of one length


def metric_samples(database: Database, gpu_ids: tuple[int, ...], since_ns: int | None = None) -> MetricSamples:
    """All samples (that begin then or later). ``gpu_ids``: the report's own number of each of Trace.gpus."""
    raw = _from_table(database) if database.holds(_METRICS) else _from_json(database)
    index_of = {gpu: index for index, gpu in enumerate(gpu_ids)}
    device = translated(raw["type"], lambda kind: index_of.get(kind & _DEVICE_BITS, -1), np.int32)
    kept = (device >= 0) & (raw["start"] >= (MISSING + 1 if since_ns is None else since_ns))
    kept &= (raw["value"] >= 0) & (raw["value"] <= PERCENT)
    if not kept.any():
        return MetricSamples.empty()
    return _sample_table(device[kept], {column: values[kept] for column, values in raw.items()})


def _sample_table(device: Int32Array, raw: _Counted) -> MetricSamples:
    """One row for each device and instant, with what each counter says then."""
    order = np.lexsort((raw["start"], device))
    device, raw = device[order], {column: values[order] for column, values in raw.items()}
    is_first = np.append(True, (np.diff(raw["start"]) != 0) | (np.diff(device) != 0))
    row, first = np.cumsum(is_first) - 1, np.flatnonzero(is_first)
    columns = {}
    for index, column in enumerate(METRIC_COLUMNS):
        own = raw["place"] == index
        sums = np.full(len(first), -1, np.int64)
        sums[row[own]] = 0
        np.add.at(sums, row[own], raw["value"][own])
        columns[column] = np.minimum(sums, PERCENT).astype(np.int8)
    start, device = raw["start"][first], device[first]
    end = np.empty_like(start)
    for gpu in unique(device).tolist():
        own = np.flatnonzero(device == gpu)
        steps = np.diff(start[own])
        usual = int(median(steps)) if len(steps) else 0
        end[own] = start[own] + np.append(np.where(steps > 2 * usual, usual, steps), usual)
    table = MetricSamples(start_ns=start, end_ns=end, device=device, **columns)
    return table.take(end > start)


def _from_table(database: Database) -> _Counted:
    places = _metric_places(database)
    numbers = tuple(sorted({number for _, number in places}))
    wanted = (*_SAMPLE, _RAW) if database.has(_METRICS, _RAW) else _SAMPLE
    sampled = database.columns(_METRICS, wanted, only=("metricId", numbers)) if numbers else {}
    if not sampled or not len(sampled["value"]):
        return _none()
    start = np.where(sampled["timestamp"] == MISSING, sampled.get(_RAW, sampled["timestamp"]), sampled["timestamp"])
    kinds, kind = np.unique(sampled["typeId"], return_inverse=True)
    ids, number = np.unique(sampled["metricId"], return_inverse=True)
    column_of = np.array([[places.get((a, b), -1) for b in ids.tolist()] for a in kinds.tolist()], np.int64)
    at = column_of[kind, number]
    is_known = (at >= 0) & (start != MISSING)
    columns = {"start": start, "type": sampled["typeId"], "place": at, "value": sampled["value"]}
    return {column: values[is_known] for column, values in columns.items()}


def _metric_places(database: Database) -> dict[tuple[int, int], int]:
    """The place in COLUMNS of each counter that is read, by type and number."""
    if not database.has(_METRIC_NAMES, *_NAMED):
        return {}
    place_of_metric = {}
    for kind, number, text in database.rows(f"SELECT typeId, metricId, metricName FROM {_METRIC_NAMES}"):
        column = column_of(as_text(text) or "")
        if column is not None and isinstance(kind, int) and isinstance(number, int):
            place_of_metric[kind, number] = METRIC_COLUMNS.index(column)
    return place_of_metric


def _from_json(database: Database) -> _Counted:
    """Samples of counters out of events that hold ``{"SM Active": "12", ...}``; other events name no such counter."""
    if not database.has(_EVENTS, *_DATA) or not database.holds(_EVENTS):
        return _none()
    numbers = database.columns(_EVENTS, ("timestamp", _RAW, "typeId"))
    which, texts = database.texts_of(_EVENTS, "data")
    start = np.where(numbers["timestamp"] == MISSING, numbers[_RAW], numbers["timestamp"])
    if len(which) != len(start):
        return _none()
    parts = [_none()]
    values = [_values(text) for text in texts]
    for place in sorted({place for sample in values for place in sample}):
        of_text = np.array([sample.get(place, -1) for sample in values] + [-1], np.int64)
        value = of_text[which]
        kept = (value >= 0) & (start != MISSING)
        count = int(np.count_nonzero(kept))
        columns = {"start": start, "type": numbers["typeId"], "place": np.full(len(kept), place), "value": value}
        parts.append({column: values_of[kept] for column, values_of in columns.items()} if count else _none())
    return {column: joined([part[column] for part in parts]) for column in parts[0]}


def _values(text: str) -> Mapping[int, int]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    values = {}
    for name, value in data.items() if isinstance(data, dict) else ():
        column = column_of(name)
        if column is not None and str(value).isdecimal() and len(str(value)) <= len(str(PERCENT)):
            values[METRIC_COLUMNS.index(column)] = int(value)
    return values


def _none() -> _Counted:
    return {column: np.empty(0, np.int64) for column in ("start", "type", "place", "value")}


Raw = dict[str, Int64Array]

_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId")
_TABLES: tuple[tuple[str, OpKind, tuple[str, ...]], ...] = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", OpKind.KERNEL, ("demangledName", "shortName")),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", OpKind.GRAPH, ("graphExecId",)),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", OpKind.MEMCPY, ("bytes", "copyKind", "srcKind", "dstKind")),
    ("CUPTI_ACTIVITY_KIND_MEMSET", OpKind.MEMSET, ("bytes",)),
)
_ALL = (*_COMMON, "demangledName", "shortName", "bytes", "copyKind", "srcKind", "dstKind")
_GRID, _BLOCK = ("gridX", "gridY", "gridZ"), ("blockX", "blockY", "blockZ")
_SHAPE = (*_GRID, *_BLOCK, "registersPerThread", "staticSharedMemory", "dynamicSharedMemory")

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

_LABEL = ("id", "name")
_PLACE = ("start", "end", "deviceId", "globalPid")
_POINT = ("streamId", "eventId", "correlationId", "globalPid", "deviceId", "contextId", "start", "end")
_POINT_TABLES = ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT")
_STREAM = ("streamId", "processId", "flag")
# Where the null stream of each context is told.
_NULL_STREAMS = (("TARGET_INFO_CUDA_NULL_STREAM", "streamId"), ("TARGET_INFO_CUDA_CONTEXT_INFO", "nullStreamId"))
_GPU_OF = ("gpuId", "cudaId", "pid")
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
_NAMES = (("TARGET_INFO_GPU", "id"), ("TARGET_INFO_CUDA_GPU", "deviceId"), ("TARGET_INFO_GPU", "deviceId"))
_GIVES = {OpKind.KERNEL: "kernels", OpKind.GRAPH: "CUDA graphs traced as one operation each"} | {
    OpKind.MEMCPY: "copies and migrations",
    OpKind.MEMSET: "memory sets",
}
_NODES = "CUDA_GRAPH_NODE_EVENTS"
_NODE = ("start", "globalTid", "graphNodeId", "originalGraphNodeId")
_GRAPHS = "CUDA_GRAPH_EVENTS"
_OF_GRAPHS = ("start", "globalTid", "graphId", "originalGraphId", "graphExecId")
DECLARED = (
    *(
        Reads(table, (*_COMMON, *extra, *(_SHAPE if kind == OpKind.KERNEL else ())), _GIVES[kind])
        for table, kind, extra in _TABLES
    ),
    *(Reads(table, _POINT, "which streams and events calls wait for") for table in _POINT_TABLES),
    *(Reads(table, tuple(columns), "GPUs and their hardware") for table, *columns in _FACTS),
    *(Reads(table, (number, "name"), "GPUs and their hardware") for table, number in _NAMES),
    Reads("TARGET_INFO_CUDA_DEVICE", _GPU_OF, "which GPU a process means by a number"),
    Reads("TARGET_INFO_CUDA_STREAM", _STREAM, "streams that wait for the null stream"),
    *(Reads(table, (stream, "processId"), "which stream is the null stream") for table, stream in _NULL_STREAMS),
    Reads("CUDA_UM_CPU_PAGE_FAULT_EVENTS", (), "page faults of the host on managed memory"),
    Reads("CUDA_UM_GPU_PAGE_FAULT_EVENTS", (*_PLACE, "numberOfPageFaults"), "page faults of GPUs on managed memory"),
    Reads("CUPTI_ACTIVITY_KIND_MEMCPY", ("migrationCause",), "why pages of managed memory moved"),
    Reads("ENUM_CUDA_MEMCPY_OPER", _LABEL, "labels of copy directions"),
    Reads("ENUM_CUDA_MEM_KIND", _LABEL, "labels of kinds of memory"),
    Reads(_NODES, _NODE, "when the nodes of CUDA graphs were captured"),
    Reads(_GRAPHS, _OF_GRAPHS, "when CUDA graphs were captured"),
    *_OF_METRICS,
)


def read_operations(database: Database, since_ns: int | None = None) -> tuple[Raw, LaunchShapes]:
    """All GPU operations (that begin then or later) as raw columns of one length, with ``kind`` and ``shape``: the row
    of the launch shapes that come with them, -1 for what is no kernel."""
    only = None if since_ns is None else Since("start", since_ns)
    parts: dict[str, list[Int64Array]] = {column: [] for column in (*_ALL, "kind", "shape")}
    shapes = LaunchShapes.empty()
    for table, kind, extra in _TABLES:
        wanted = (*_COMMON, *extra, *(_SHAPE if kind == OpKind.KERNEL else ()))
        rows = database.columns(table, wanted, only=only)
        count = len(rows["start"])
        if kind == OpKind.GRAPH:
            rows["graphNodeId"] = whole_graphs(rows["graphExecId"])
        parts["shape"].append(spread(-1, count))
        if kind == OpKind.KERNEL and count:
            shapes, parts["shape"][-1] = _shapes(rows)
        for column in _ALL:
            parts[column].append(rows[column] if column in rows else spread(MISSING, count))
        parts["kind"].append(spread(int(kind), count))
    raw = {column: joined(part) for column, part in parts.items()}
    raw["deviceId"] = replaced(raw["deviceId"], MISSING, 0)
    return raw, shapes


def _shapes(rows: Raw) -> tuple[LaunchShapes, Int64Array]:
    """The distinct launch shapes, and the row of each kernel's; what is missing or impossible counts as not told."""
    every, of_row = factorize(*(rows[column] for column in _SHAPE))
    raw_shape = {
        column: np.where((values < 0) | (values > MOST_SHAPE), 0, values)
        for column, values in zip(_SHAPE, every.T, strict=True)
    }
    most = float(1 << 62)

    def product(columns: tuple[str, ...]) -> Int64Array:
        exact = np.minimum(np.prod([raw_shape[column].astype(np.float64) for column in columns], axis=0), most)
        product_of: Int64Array = exact.astype(np.int64)
        return product_of

    shared = raw_shape["staticSharedMemory"] + raw_shape["dynamicSharedMemory"]
    parts = (
        product(_GRID),
        product(_BLOCK),
        raw_shape["registersPerThread"],
        shared,
        raw_shape["gridX"],
        raw_shape["gridY"],
    )
    distinct, index = factorize(*parts)
    blocks, threads, registers, shared, *grid = (np.ascontiguousarray(column) for column in distinct.T)
    shapes = LaunchShapes(blocks, threads, registers, shared, spread(-1, len(blocks)), *grid)
    return shapes, pick(index.astype(np.int64), of_row, 0)


class Gpus(Struct, frozen=True):
    """The GPUs of a report, used ones first by id, with what is told of each; ``places`` leads to them from (process
    key, CUDA ordinal)."""

    info: tuple[GpuInfo, ...]
    ids: tuple[int, ...]  # the report's own number of each
    facts: tuple[GpuFacts, ...]
    places: dict[tuple[int, int], int]

    def of(self, raw: Raw) -> Int32Array:
        """The GPU of each row; -1 where it is not told or did nothing."""
        devices, inverse = factorize(raw["globalPid"], raw["deviceId"])
        numbers = [self.places.get((key, ordinal), -1) for key, ordinal in devices.tolist()]
        return pick(np.array(numbers, np.int32), inverse, -1)


def read_gpus(database: Database, operations: Raw) -> Gpus:
    """The GPUs that the report lists or that operations ran on.

    A device keeps the id the tables give it. Only where two processes mean different GPUs by one ordinal
    (CUDA_VISIBLE_DEVICES) does the GPU's own id take its place.
    """
    names, facts = _gpu_names(database), _gpu_facts(database)
    mapping = database.columns("TARGET_INFO_CUDA_DEVICE", _GPU_OF)
    gpu_of = {
        (pid, ordinal): gpu
        for gpu, ordinal, pid in zip(*(mapping[c].tolist() for c in _GPU_OF), strict=True)
        if gpu != MISSING
    }
    devices, _ = factorize(operations["globalPid"], operations["deviceId"])
    physical = {(key, ordinal): gpu_of.get((pid_of(key), ordinal), ordinal) for key, ordinal in devices.tolist()}
    pairs = {(ordinal, gpu) for (_, ordinal), gpu in physical.items()}
    one_to_one = len(pairs) == len({ordinal for ordinal, _ in pairs}) == len({gpu for _, gpu in pairs})
    shown = {device: (device[1] if one_to_one else gpu) for device, gpu in physical.items()}
    meant = {shown[device]: gpu for device, gpu in physical.items()}
    ids = sorted(meant)
    # Where one that works is not listed, ids are of another numbering, and nobody knows which of the list do nothing.
    rest = sorted(set(names) - set(physical.values())) if set(physical.values()) <= set(names) else []
    used = tuple(GpuInfo(number, names.get(meant[number], f"GPU {meant[number]}")) for number in ids)
    return Gpus(
        info=(*used, *(GpuInfo(gpu, names[gpu], used=False) for gpu in rest)),
        ids=(*(meant[number] for number in ids), *rest),
        facts=tuple(facts.get(gpu, GpuFacts()) for gpu in (*(meant[number] for number in ids), *rest)),
        places={device: ids.index(number) for device, number in shown.items()},
    )


def _gpu_facts(database: Database) -> dict[int, GpuFacts]:
    """What is told of each GPU's hardware, by its id."""
    for table, *columns in _FACTS:
        if not database.has(table, *columns[:4]):
            continue
        available = [column if database.has(table, column) else None for column in columns]
        selected = ", ".join("NULL" if column is None else f'"{column}"' for column in available)
        facts = {}
        for gpu, *values in database.rows(f'SELECT {selected} FROM "{table}"'):
            if isinstance(gpu, int):
                sm, major, minor, *rest = (value if isinstance(value, int) and value > 0 else 0 for value in values)
                facts[gpu] = GpuFacts(sm, (major, minor), *rest)
        return facts
    return {}


def read_page_faults(database: Database) -> dict[str, int]:
    """Page faults of managed memory in the whole trace, by who faulted; only those that were captured."""
    by_process = {}
    for who, table, counted in (
        ("cpu", "CUDA_UM_CPU_PAGE_FAULT_EVENTS", ""),
        ("gpu", "CUDA_UM_GPU_PAGE_FAULT_EVENTS", "numberOfPageFaults"),
    ):
        if table in database.tables:
            number = f'sum("{counted}")' if counted and database.has(table, counted) else "count(*)"
            ((value,),) = database.rows(f'SELECT {number} FROM "{table}"')
            by_process[who] = value if isinstance(value, int) else 0
    return by_process


# CUpti_ActivityUnifiedMemoryMigrationCause. At a fault the driver moves the page (2, coherence) and speculatively those
# around it (3, prefetch): nobody asked for these either. What the program asks for (cudaMemPrefetchAsync) is 1, user.
_WHY_MOVED = {
    1: Paging.PREFETCHED,
    2: Paging.FETCHED,
    3: Paging.FETCHED,
    4: Paging.EVICTED,
    5: Paging.OTHER,
}


def page_events(database: Database, gpus: Gpus, has_migrations: bool) -> PageEvents:
    """Faults of GPUs on managed memory, and why pages moved; empty where neither is told."""
    parts: list[Raw] = []
    if has_migrations and database.has("CUPTI_ACTIVITY_KIND_MEMCPY", *_PLACE, "migrationCause"):
        moved = database.columns("CUPTI_ACTIVITY_KIND_MEMCPY", (*_PLACE, "migrationCause", "copyKind"))
        moved = {column: values[np.isin(moved["migrationCause"], list(_WHY_MOVED))] for column, values in moved.items()}
        kind = _lookup(_WHY_MOVED, moved["migrationCause"]).astype(np.int64)
        to_host = _directions(database, moved["copyKind"])[0] == Direction.DTOH
        parts.append({**moved, "kind": np.where(to_host & (kind == Paging.FETCHED), int(Paging.READ_BACK), kind)})
    if database.has("CUDA_UM_GPU_PAGE_FAULT_EVENTS", *_PLACE):
        faults = database.columns("CUDA_UM_GPU_PAGE_FAULT_EVENTS", (*_PLACE, "numberOfPageFaults"))
        parts.append({**faults, "kind": np.full(len(faults["start"]), int(Paging.FAULT), np.int64)})
    if not any(len(part["start"]) for part in parts):
        return PageEvents.empty()
    for part in parts:
        part.setdefault("numberOfPageFaults", np.ones(len(part["start"]), np.int64))
    raw = {c: np.concatenate([part[c] for part in parts]) for c in (*_PLACE, "kind", "numberOfPageFaults")}
    device = gpus.of(raw)
    good = (raw["start"] != MISSING) & (raw["end"] >= raw["start"]) & (device >= 0)
    return (
        PageEvents(
            start_ns=raw["start"],
            end_ns=raw["end"],
            device=device,
            kind=raw["kind"].astype(np.int8),
            count=np.maximum(raw["numberOfPageFaults"], 1),
        )
        .take(good)
        .sorted()
    )


def _gpu_names(database: Database) -> dict[int, str]:
    for table, number in _NAMES:
        if database.has(table, number, "name"):
            rows = database.rows(f'SELECT "{number}", name FROM "{table}" ORDER BY 1, 2')
            return {gpu: as_text(name) or f"GPU {gpu}" for gpu, name in rows if isinstance(gpu, int)}
    return {}


def operations(raw: Raw, gpus: Gpus, indexes: Indexes) -> tuple[Operations, GraphNodes]:
    """The operations of all devices, and the nodes of CUDA graphs."""
    direction, is_migration = _directions(indexes.database, raw["copyKind"])
    memory = memory_kinds(indexes.database)
    kind = compact(raw["kind"].astype(np.int8))
    if is_migration.any():
        kind = np.where((kind == OpKind.MEMCPY) & is_migration, np.int8(OpKind.MIGRATION), kind)
    indexes.names(unique(raw["shortName"]), unknown="")
    communicates = np.array([is_communication(text) for text in indexes.pool.names()], bool)
    if communicates.any():
        is_comm = pick(communicates, indexes.names(raw["shortName"], unknown=""), False) & (kind == OpKind.KERNEL)
    else:
        is_comm = np.zeros(len(kind), bool)
    demangled = indexes.names(raw["demangledName"], unknown="")
    to_experts = np.array([is_expert_parallel(text) for text in indexes.pool.names()], bool)
    if to_experts.any():
        is_comm |= pick(to_experts, demangled, False) & (kind == OpKind.KERNEL)
    process = indexes.identities.processes(raw["globalPid"])
    of_operation = replaced(raw["graphNodeId"], MISSING, -1)
    made = _made(indexes.database, indexes.identities)
    nodes, node = GraphNodes.of(
        np.concatenate((process, made["process"].astype(np.int32))), np.concatenate((of_operation, made["node"]))
    )
    table = Operations(
        start_ns=raw["start"],
        end_ns=raw["end"],
        device=compact(gpus.of(raw)),
        process=process,
        stream=thin(narrow(raw["streamId"])),
        correlation=narrow(replaced(raw["correlationId"], MISSING, NO_CORRELATION)),
        kind=kind,
        name=demangled,
        bytes=narrow(replaced(raw["bytes"], MISSING, 0)),
        direction=direction,
        source=_lookup(memory, raw["srcKind"]),
        target=_lookup(memory, raw["dstKind"]),
        is_communication=compact(is_comm),
        shape=compact(raw["shape"].astype(np.int32)),
        node=node[: len(process)],
    )
    return table.sorted(indexes.pool.names()), _captured(nodes, made)


def _directions(database: Database, copy_kind: Int64Array) -> tuple[Int8Array, BoolArray]:
    names = _enum(database, "ENUM_CUDA_MEMCPY_OPER", "CUDA_MEMCPY_KIND_") or _DEFAULT_DIRECTION
    plain = {code: name.removeprefix("UVM_") for code, name in names.items()}
    codes = {
        code: int(Direction[_ARRAY_DIRECTION.get(name, name)])
        for code, name in plain.items()
        if _ARRAY_DIRECTION.get(name, name) in Direction.__members__
    }
    migrations = {code for code, name in names.items() if name.startswith("UVM_")}
    return _lookup(codes, copy_kind), translated(copy_kind, migrations.__contains__, np.bool_)


def memory_kinds(database: Database) -> dict[int, int]:
    """The MemoryKind of each code."""
    names = _enum(database, "ENUM_CUDA_MEM_KIND", "CUDA_MEMOPR_MEMORY_KIND_") or _DEFAULT_MEMORY
    return {code: int(_MEMORY_OF_NAME[name]) for code, name in names.items() if name in _MEMORY_OF_NAME}


def _enum(database: Database, table: str, prefix: str) -> dict[int, str]:
    if not database.has(table, *_LABEL):
        return {}
    rows = database.rows(f'SELECT id, name FROM "{table}"')
    return {number: str(name).removeprefix(prefix) for number, name in rows if isinstance(number, int)}


def _lookup(codes: Mapping[int, int], values: Int64Array) -> Int8Array:
    return translated(values, lambda value: codes.get(value, -1), np.int8)


def read_points(database: Database) -> Raw:
    """Rows of syncs, stream waits and event records. Their ``syncType`` is not read: its codes cannot be trusted."""
    parts = [database.columns(table, _POINT) for table in _POINT_TABLES]
    raw = {column: joined([part[column] for part in parts]) for column in _POINT}
    raw["isRecord"] = joined([spread(number, len(part["streamId"])) for number, part in enumerate(parts)])
    return raw


def points(raw: Raw, gpus: Gpus, identities: Identities, operations: Operations) -> StreamPoints:
    """The rows that name a call. ``operations``: those of the report, whose streams tell GPUs."""
    good = (raw["correlationId"] > NO_CORRELATION) & (raw["correlationId"] < CORRELATIONS)
    good &= translated(raw["globalPid"], lambda pid: pid >= 0 and identities.has_process(pid), np.bool_)
    if not good.all():
        raw = {column: values[good] for column, values in raw.items()}
    is_timed = (raw["isRecord"] == 0) & (raw["start"] > MISSING) & (raw["end"] >= raw["start"])
    start, end = raw["start"], raw["end"]
    if not is_timed.all():
        start, end = (np.where(is_timed, column, 0) for column in (start, end))
    process, stream = identities.processes(raw["globalPid"]), _known(raw["streamId"])
    is_one = not len(operations) or is_even(operations.device)
    return StreamPoints(
        process=process,
        correlation=narrow(raw["correlationId"]),
        device=compact(gpus.of(raw) if is_one else _gpus_of_points(process, raw["contextId"], stream, operations)),
        stream=narrow(stream),
        event=narrow(_known(raw["eventId"])),
        is_record=compact(raw["isRecord"] == 1),
        start_ns=start,
        end_ns=end,
    ).sorted()


def _gpus_of_points(process: Int32Array, context: Int64Array, stream: Int64Array, operations: Operations) -> Int32Array:
    """The GPU of each row, where several are used: the one on which its stream's operations ran; else that of other
    streams of its context, else its process's only one, else -1. What the rows say themselves is not asked: of a sync
    nsys writes GPU 0, whichever it is (seen from 2022 to 2025)."""
    of_stream: dict[tuple[int, ...], set[int]] = {}
    ran, _ = factorize(operations.process, operations.stream, operations.device)
    for *key, gpu in ran.tolist():
        for key_part in (tuple(key), (key[0],)):
            of_stream.setdefault(key_part, set()).add(gpu)
    distinct, inverse = factorize(process, context, stream)
    of_context: dict[tuple[int, int], set[int]] = {}
    for number, of, lane in distinct.tolist():
        of_context.setdefault((number, of), set()).update(of_stream.get((number, lane), ()))
    gpu_of_key = []
    for number, of, lane in distinct.tolist():
        asked = (of_stream.get((number, lane), ()), of_context[number, of], of_stream.get((number,), ()))
        gpu_of_key.append(next((gpu for gpus in asked if len(gpus) == 1 for gpu in gpus), -1))
    return pick(np.array(gpu_of_key, np.int32), inverse, -1)


def _known(values: Int64Array) -> Int64Array:
    if is_even(values) and 0 <= values[0] < NO_STREAM:
        return values
    return np.where((values >= 0) & (values < NO_STREAM), values, -1)


def streams(database: Database, identities: Identities) -> Streams:
    """What is told of each stream's relation to the null stream."""
    raw = database.columns("TARGET_INFO_CUDA_STREAM", _STREAM)
    rows = list(zip(*(raw[column].tolist() for column in _STREAM), strict=True))
    listed = {(stream, pid) for stream, pid, _ in rows}
    for table, column in _NULL_STREAMS:
        of_contexts = database.columns(table, (column, "processId"))
        null = zip(of_contexts[column].tolist(), of_contexts["processId"].tolist(), strict=True)
        rows += [(stream, pid, StreamRole.NULL.value) for stream, pid in null if (stream, pid) not in listed]
    process_of = {pid_of(key): index for index, key in enumerate(identities.process_ids.tolist())}
    roles = {role.value for role in StreamRole}
    streams_found = sorted(
        {
            (process_of[pid], stream, flag)
            for stream, pid, flag in rows
            if pid in process_of and flag in roles and stream != MISSING and 0 <= stream < NO_STREAM
        }
    )
    column = np.array(streams_found, np.int64).reshape(-1, 3).T
    return Streams(column[0].astype(np.int32), column[1].copy(), column[2].astype(np.int8))


#: Where the numbers of graphs that can be launched begin, as nodes; and of those that they are made from.
_MADE = 1 << 60
_LAUNCHED = 2 * _MADE


def _made(database: Database, identities: Identities) -> dict[str, Int64Array]:
    """When nodes were made, of the threads that are known: ``start``, ``thread``, ``process``, ``node`` and the
    ``original`` of each."""
    raw = _events(database)
    thread = _places(identities.thread_ids, raw["globalTid"])
    is_made = np.flatnonzero((raw["start"] != MISSING) & (raw["graphNodeId"] != MISSING) & (thread >= 0))
    start, node, original = (raw[column][is_made] for column in ("start", "graphNodeId", "originalGraphNodeId"))
    process = identities.processes(raw["globalTid"][is_made]).astype(np.int64)
    return {"start": start, "thread": thread[is_made], "process": process, "node": node, "original": original}


def _captured(nodes: GraphNodes, made: dict[str, Int64Array]) -> GraphNodes:
    """The nodes, with the instant and the thread of the capture of each one's original, where the report tells them.

    A node that is launched is a clone: its row names the node that it was cloned from. The row of the first of these
    was written when the program added it to its graph."""
    start, thread, process, node, original = made.values()
    if not len(start):
        return nodes
    order = np.lexsort((start, original == MISSING, node, process))
    events = _Events(process[order], node[order])
    row = events.of(nodes.process, nodes.node)
    for _ in range(DEEPEST):
        above = np.where(row >= 0, events.of(nodes.process, original[order][np.maximum(row, 0)]), -1)
        if not (above >= 0).any():
            break
        row = np.where(above >= 0, above, row)
    node_row = order[np.maximum(row, 0)]
    first = np.where(original[node_row] != MISSING, original[node_row], node[node_row])
    return replace(
        nodes,
        original=np.where(row >= 0, first, nodes.node),
        thread=np.where(row >= 0, thread[node_row], -1).astype(np.int32),
        captured_ns=np.where(row >= 0, start[node_row], 0),
    )


def whole_graphs(number: Int64Array) -> Int64Array:
    """Launches of graphs by their numbers, as nodes."""
    return np.where((number >= 0) & (number < _MADE), number + _LAUNCHED, MISSING)


def _events(database: Database) -> dict[str, Int64Array]:
    """The making of nodes, of graphs and of what can be launched of them, all as nodes with what each is made from."""
    nodes, graphs = database.columns(_NODES, _NODE), database.columns(_GRAPHS, _OF_GRAPHS)
    graph, original, launched = (graphs[column] for column in _OF_GRAPHS[2:])
    made, source = (
        np.where((numbers >= 0) & (numbers < _MADE), numbers + _MADE, MISSING) for numbers in (graph, original)
    )
    is_launched = launched != MISSING
    raw_nodes = {
        "start": graphs["start"],
        "globalTid": graphs["globalTid"],
        "graphNodeId": np.where(is_launched, whole_graphs(launched), made),
        "originalGraphNodeId": np.where(is_launched, made, source),
    }
    return {column: np.concatenate((nodes[column], raw_nodes[column])) for column in _NODE}


def _places(ids: Int64Array, wanted: Int64Array) -> npt.NDArray[np.intp]:
    """Where each id stands among those in ascending order; -1 where it does not."""
    if not len(ids):
        return np.full(len(wanted), -1)
    position = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[position] == wanted, position, -1)


class _Events:
    """Rows in ascending order of process and node: the first of each is its."""

    def __init__(self, process: Int64Array, node: Int64Array) -> None:
        self._process, self._node = process, node
        self._bounds = np.searchsorted(self._process, np.arange(int(self._process.max()) + 2))

    def of(self, process: Int32Array, node: Int64Array) -> npt.NDArray[np.intp]:
        """The row of each node; -1 where there is none."""
        row = np.full(len(node), -1)
        for number in range(len(self._bounds) - 1):
            low, high = self._bounds[number : number + 2].tolist()
            own = np.flatnonzero(process == number)
            if high > low and len(own):
                position = np.minimum(np.searchsorted(self._node[low:high], node[own]), high - low - 1) + low
                row[own] = np.where(self._node[position] == node[own], position, -1)
        return row
