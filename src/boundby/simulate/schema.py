"""Tables of nsys' SQLite exports as real ones of four generations hold them: columns, their order and their types."""

from __future__ import annotations

import functools
import random
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

GENERATIONS = ("2019", "2022", "2023", "2026")

# One word a column: NAME, then ``!`` for NOT NULL, ``*`` for the primary key, ``:T`` for TEXT, ``:R`` for REAL (all
# others are INTEGER), and ``@FROM-TO`` for the generations that have it (both included, either may be left out).
_OPERATION = "start! end! deviceId! contextId! greenContextId@2023- streamId! correlationId globalPid"
_CUDA_GPU = (
    "vmId! name!:T pciBusId:T globalMemoryBandwidth! globalMemorySize! constantMemorySize! l2CacheSize! "
    "numThreadsPerWarp! coreClockRate! numMemcpyEngines! numMultiprocessors! maxIPC! maxWarpsPerMultiprocessor! "
    "maxBlocksPerMultiprocessor! maxRegistersPerBlock! maxSharedMemoryPerBlock! maxThreadsPerBlock! maxBlockDimX! "
    "maxBlockDimY! maxBlockDimZ! maxGridDimX! maxGridDimY! maxGridDimZ! computeCapabilityMajor! "
    "computeCapabilityMinor! deviceId! pid maxSharedMemoryPerMultiprocessor maxRegistersPerMultiprocessor"
)
_GPU = (
    "vmId! deviceId!@-2019 id!@2022- name:T busLocation:T isDiscrete l2CacheSize@2022- totalMemory@2022- "
    "memoryBandwidth@2022- clockRate@2022- smCount@2022- pwGpuId@2022- uuid:T@2022- luid@2022- chipName:T@2022- "
    "cuDevice@2022- maxShmemPerSm@2022- maxRegistersPerSm@2022- threadsPerWarp@2022- asyncEngines@2022- "
    "maxWarpsPerSm@2022- maxBlocksPerSm@2022- computeMajor@2022- computeMinor@2022- smMajor@2022- smMinor@2022-"
)
_OPENACC = (
    "start! end! nameId! globalTid eventKind! DeviceType! lineNo! cuDeviceId! cuContextId! cuStreamId! srcFile funcName"
)
_OPENACC_TABLES = {
    "DATA": " bytes! varName",
    "LAUNCH": " numGangs! numWorkers! vectorLength! kernelName",
    "OTHER": "",
}
_OPENMP = "start! end! eventClass! globalTid correlationId nameId! eventKind parallelId"
_TABLES: dict[str, str] = {
    "StringIds": "id!* value!:T",
    "ANALYSIS_FILE@2023-": "id!* filename:T contentId globalPid!",
    "ProcessStreams": "globalPid! filenameId! contentId!",
    "ANALYSIS_DETAILS@2022-": "globalVid! duration! startTime! stopTime!",
    "PROCESSES@2022-": "globalPid pid name:T",
    "DIAGNOSTIC_EVENT@2023-": "timestamp! timestampType! source! severity! text!:T globalPid",
    "SCHED_EVENTS": "start! cpu! isSchedIn! globalTid threadState@2026- threadBlock@2026-",
    "COMPOSITE_EVENTS": "id!* start! cpu threadState globalTid cpuCycles!",
    "PROFILER_OVERHEAD": "start! end! globalTid correlationId@-2019 nameId! returnValue!@-2023 overheadType!@2026-",
    "CUPTI_ACTIVITY_KIND_OVERHEAD@2026-": "start! end! eventClass! globalTid correlationId nameId overheadType!",
    "OSRT_API": (
        "start! end! eventClass! globalTid correlationId@-2019 nameId! returnValue! nestingLevel callchainId!"
    ),
    "NVTX_EVENTS": (
        "start! end eventType! rangeId category color text:T globalTid endGlobalTid textId domainId uint64Value "
        "int64Value doubleValue:R uint32Value int32Value floatValue:R jsonTextId jsonText:T binaryData:T@2026-"
    ),
    **{f"CUPTI_ACTIVITY_KIND_OPENACC_{kind}@2022-": _OPENACC + more for kind, more in _OPENACC_TABLES.items()},
    **{f"OPENMP_EVENT_KIND_{kind}@2022-": _OPENMP for kind in ("PARALLEL", "SYNC_REGION_WAIT", "TASK")},
    "MPI_COLLECTIVES_EVENTS@2023-": (
        "start! end globalTid textId! commHandle rootRank size recvSize requestHandle@2026-"
    ),
    "MPI_P2P_EVENTS@2023-": "start! end globalTid textId! commHandle tag remoteRank size requestHandle@2026-",
    "MPI_START_WAIT_EVENTS@2023-": "start! end globalTid textId! requestHandle@2026-",
    "MPI_OTHER_EVENTS@2023-": "start! end globalTid textId!",
    "MPI_RANKS@2023-": "globalTid! rank!",
    "MPI_COMMUNICATORS@2023-": (
        "rank! timestamp! commHandle! parentHandle localRank size groupRoot groupRootUid members:T"
    ),
    "CUDNN_EVENTS@2022-": "start! end! eventClass! globalTid nameId!",
    "CUBLAS_EVENTS@2022-": "start! end! eventClass! globalTid nameId!",
    "OSRT_FILE_ACCESS_EVENTS@2026-": (
        "fileAccessId! threadId! startedAt! endedAt! eventType! apiCallId! bytesProcessed! context!:T"
    ),
    "OSRT_FILE_ACCESS_DESCRIPTORS@2026-": "fileAccessId! processId! openedAt! closedAt! filePath!:T",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId@2022-"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_OPERATION} bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId "
        "dstContextId migrationCause@2022- graphNodeId virtualAddress@2022- copyCount@2026-"
    ),
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": (
        "start! globalPid! address! originalFaultPc@2022- CpuInstruction! module unresolvedFaultPc sourceFile "
        "sourceLine"
    ),
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "start! end! globalPid! deviceId! address! numberOfPageFaults! faultAccessType!",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_OPERATION} value! bytes! graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        f"{_OPERATION} deprecatedSyncType@2026- syncType! eventId! eventSyncId@2026-"
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT@2022-": (
        "deviceId! contextId! greenContextId@2023- streamId! correlationId globalPid eventId!"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_OPERATION} demangledName! shortName! mangledName@2022- launchType cacheConfig registersPerThread! gridX! "
        "gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! dynamicSharedMemory! localMemoryPerThread! "
        "localMemoryTotal! gridId! sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig@2022- "
        "qmdBulkReleaseDone@2026- qmdPreexitDone@2026- qmdLastCtaDone@2026- graphId@2026- clusterX@2026- "
        "clusterY@2026- clusterZ@2026- clusterSchedulingPolicy@2026- maxPotentialClusterSize@2026- "
        "maxActiveClusters@2026- sharedMemoryRequestedPercentage@2026- tensorSizeMinusOneElements!:T@2026-"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE@2022-": f"{_OPERATION} graphId! graphExecId!",
    "ThreadNames": "nameId! priority globalTid",
    "TARGET_INFO_CUDA_GPU@-2019": _CUDA_GPU,
    "TARGET_INFO_GPU": _GPU,
    "TARGET_INFO_CUDA_STREAM": "streamId! hwId! vmId! processId! contextId! priority! flag!",
    "TARGET_INFO_CUDA_DEVICE@2026-": "gpuId cudaId! pid! uuid:T numMultiprocessors",
    "TARGET_INFO_GPU_METRICS@2022-": "typeId! sourceId! typeName!:T metricId! metricName!:T",
    "GPU_METRICS@2022-": "rawTimestamp@2026- timestamp typeId! metricId! value!",
    "CUDA_GPU_MEMORY_USAGE_EVENTS@2022-": (
        "start! globalPid! deviceId! contextId! address! pc! bytes! memKind! memoryOperationType! name correlationId "
        "streamId@2023- localMemoryPoolAddress@2023-"
    ),
    "GPU_MEMORY_BUDGET_EVENTS@2022-": "timestamp! globalTid gpu! newBudget segmentGroup",
    "GPU_MEMORY_USAGE_EVENTS@2022-": "timestamp! globalTid gpu! newUsage segmentGroup",
    "TOTAL_BYTES_RESIDENT_IN_SEGMENT_EVENTS@2022-": (
        "timestamp! globalTid gpu! totalBytesResident segmentGroup segmentId"
    ),
    "ENUM_CUDA_MEMCPY_OPER@2023-": "id!* name:T label:T",
    "ENUM_CUDA_MEM_KIND@2023-": "id!* name:T label:T",
    "ENUM_CUPTI_SYNC_TYPE@2023-": "id!* name:T label:T",
    "META_DATA_CAPTURE@2023-": "name!:T value:T",
    "EXPORT_META_DATA@2022-2022": "name!:T value:T",
    "META_DATA_EXPORT@2023-": "name!:T value:T",
}

_COPIES = "UNKNOWN HtoD DtoH HtoA AtoH AtoA AtoD DtoA DtoD HtoH PtoP UVM_HtoD UVM_DtoH UVM_DtoD"
_MEMORIES = "pageable pinned device array managed device_static managed_static unknown"
COPY_KINDS = {name: code for code, name in enumerate(_COPIES.split())}
MEMORY_KINDS = {name: code for code, name in enumerate(_MEMORIES.split())}
#: How a stream relates to the null stream (CUPTI_ACTIVITY_STREAM_CREATE_FLAG_*).
STREAM_FLAGS = {"default": 1, "non_blocking": 2, "null": 3}
#: syncType of (event, stream, device, wait of a stream): the codes changed, and so nobody may trust them.
SYNC_CODES = {"2019": (1, 3, 4, 2), "2022": (1, 3, 4, 2), "2023": (1, 3, 4, 2), "2026": (1, 2, 4, 3)}
ENUMS: dict[str, dict[int, str]] = {
    "ENUM_CUDA_MEMCPY_OPER": {code: f"CUDA_MEMCPY_KIND_{name.upper()}" for name, code in COPY_KINDS.items()},
    "ENUM_CUDA_MEM_KIND": {code: f"CUDA_MEMOPR_MEMORY_KIND_{name.upper()}" for name, code in MEMORY_KINDS.items()},
    "ENUM_CUPTI_SYNC_TYPE": {1: "EVENT_SYNCHRONIZE", 2: "STREAM_WAIT_EVENT", 3: "STREAM_SYNCHRONIZE"},
}
VERSIONS = {
    "2022": ("2022.1.1.61", "2.9.1"),
    "2023": ("2023.4.4.54", "3.7.2"),
    "2026": ("2026.2.1.210", "3.25.0"),
}


class ExportColumn:
    """One column: its name and what its declaration says."""

    def __init__(self, word: str) -> None:
        word, _, self.generations = word.partition("@")
        name, _, kind = word.partition(":")
        self.type = {"": "INTEGER", "T": "TEXT", "R": "REAL"}[kind]
        self.is_required = "!" in name
        self.is_key = "*" in name
        self.name = name.rstrip("!*")

    def declaration(self) -> str:
        """As in nsys' CREATE TABLE statements."""
        required = " NOT NULL" if self.is_required else ""
        return f"    {self.name:<27} {self.type}{required}{' PRIMARY KEY' if self.is_key else ''}"

    def filler(self) -> int | str | None:
        """What stands where a row says nothing."""
        if not self.is_required:
            return None
        return "[]" if self.type == "TEXT" else 0


@functools.cache
def tables(generation: str) -> dict[str, tuple[ExportColumn, ...]]:
    """All tables that exports of a generation can hold, in the exporter's order."""
    found = {}
    for word, text in _TABLES.items():
        name, _, generations = word.partition("@")
        if _covers(generations, generation):
            columns = (ExportColumn(column) for column in text.split())
            found[name] = tuple(column for column in columns if _covers(column.generations, generation))
    return found


def _covers(generations: str, generation: str) -> bool:
    first, dash, last = generations.partition("-")
    return not dash or (first or "0000") <= generation <= (last or "9999")


_TIMES = frozenset(("start", "end", "timestamp"))


class Name(str):
    """A text that the export keeps in StringIds."""


Value = int | float | str | bytes | None
Row = dict[str, Value]


def write_tables(
    path: Path,
    schema: Mapping[str, tuple[ExportColumn, ...]],
    rows: Mapping[str, list[Row]],
    shuffle: int | None,
    shift: int,
    drop: frozenset[str],
    empty_tables: bool,
    page_size: int,
) -> Path:
    """Write the file, as ``Export.write`` says."""
    order = list(schema.items())
    chance = None if shuffle is None else random.Random(shuffle)
    if chance:
        chance.shuffle(order)
        rows = {table: chance.sample(found, len(found)) for table, found in rows.items()}
    texts = _number_texts(rows, chance)
    strings: list[Row] = [{"id": number, "value": text} for text, number in texts.items()]
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for table, columns in order:
            found = strings if table == "StringIds" else rows.get(table, [])
            if table not in drop and (found or empty_tables):
                kept = [column for column in columns if not {f"{table}.{column.name}", f"*.{column.name}"} & drop]
                _write_table(connection, table, kept, found, texts, shift)
        connection.execute("COMMIT")
    return path


def _number_texts(rows: Mapping[str, list[Row]], chance: random.Random | None) -> dict[str, int]:
    texts = dict.fromkeys(str(v) for found in rows.values() for row in found for v in row.values() if type(v) is Name)
    order = list(texts)
    if chance:
        chance.shuffle(order)
    return {text: number for number, text in enumerate(order, start=1)}


def _write_table(
    connection: sqlite3.Connection,
    table: str,
    columns: list[ExportColumn],
    rows: list[Row],
    texts: Mapping[str, int],
    shift: int,
) -> None:
    declared = ",\n".join(column.declaration() for column in columns)
    connection.execute(f'CREATE TABLE "{table}" (\n{declared}\n)')

    def value(row: Row, column: ExportColumn) -> Value:
        found = row.get(column.name)
        if found is None:
            return column.filler()
        if type(found) is Name:
            return texts[found]
        return found + shift if column.name in _TIMES and isinstance(found, int) else found

    marks = ", ".join("?" for _ in columns)
    values = ([value(row, column) for column in columns] for row in rows)
    connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
