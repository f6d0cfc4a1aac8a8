"""Exports in nsys' own schema, as four generations of nsys write them: from plain calls, and of a simulated run."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import sqlite3
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from enum import IntEnum
from itertools import takewhile
from pathlib import Path

from msgspec import Struct

from boundby.__about__ import __version__
from boundby.model.errors import OutputError
from boundby.model.units import US
from boundby.results.write import give_name
from boundby.simulate.instructions import Node
from boundby.simulate.machine import CALLS, IDS_EACH, PAGE_FAULT, Do, Executed, Run, ScriptThread, Step, StepKind, Wait
from boundby.trace.tables import NO_STREAM

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
RUN_TABLES: dict[str, str] = {
    "StringIds": "id!* value!:T",
    "ANALYSIS_DETAILS@2022-": "globalVid! duration! startTime! stopTime!",
    "PROCESSES@2022-": "globalPid pid name:T",
    "SCHED_EVENTS": "start! cpu! isSchedIn! globalTid threadState@2026- threadBlock@2026-",
    "OSRT_API": (
        "start! end! eventClass! globalTid correlationId@-2019 nameId! returnValue! nestingLevel callchainId!"
    ),
    "NVTX_EVENTS": (
        "start! end eventType! rangeId category color text:T globalTid endGlobalTid textId domainId uint64Value "
        "int64Value doubleValue:R uint32Value int32Value floatValue:R jsonTextId jsonText:T binaryData:T@2026-"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId@2022-"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_OPERATION} bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId "
        "dstContextId migrationCause@2022- graphNodeId virtualAddress@2022- copyCount@2026-"
    ),
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
    "CUDA_GRAPH_NODE_EVENTS@2022-": "start! end! eventClass! globalTid nameId! graphNodeId! originalGraphNodeId",
    "ThreadNames": "nameId! priority globalTid",
    "TARGET_INFO_CUDA_GPU@-2019": _CUDA_GPU,
    "TARGET_INFO_GPU": _GPU,
    "TARGET_INFO_CUDA_STREAM": "streamId! hwId! vmId! processId! contextId! priority! flag!",
    "TARGET_INFO_CUDA_DEVICE@2026-": "gpuId cudaId! pid! uuid:T numMultiprocessors",
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
    """The tables that a run fills, as exports of a generation have them, in the exporter's order."""
    return tables_of(RUN_TABLES, generation)


def tables_of(declared: Mapping[str, str], generation: str) -> dict[str, tuple[ExportColumn, ...]]:
    """What a generation has of declared tables."""
    columns_of = {}
    for word, text in declared.items():
        name, _, generations = word.partition("@")
        if _covers(generations, generation):
            columns = (ExportColumn(column) for column in text.split())
            columns_of[name] = tuple(column for column in columns if _covers(column.generations, generation))
    return columns_of


def _covers(generations: str, generation: str) -> bool:
    first, dash, last = generations.partition("-")
    return not dash or (first or "0000") <= generation <= (last or "9999")


class Name(str):
    """A text that the export keeps in StringIds."""


Value = int | float | str | bytes | None
Row = dict[str, Value]


def write_tables(path: Path, schema: Mapping[str, tuple[ExportColumn, ...]], rows: Mapping[str, list[Row]]) -> Path:
    """Write the file: of a schema's tables those that have rows, in its order. Gives the path."""
    names = (
        str(value)
        for table_rows in rows.values()
        for row in table_rows
        for value in row.values()
        if type(value) is Name
    )
    texts = {text: number for number, text in enumerate(dict.fromkeys(names), start=1)}
    strings: list[Row] = [{"id": number, "value": text} for text, number in texts.items()]
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for table, columns in schema.items():
            if table_rows := strings if table == "StringIds" else rows.get(table, []):
                create_table(connection, table, columns)
                _fill_table(connection, table, columns, table_rows, texts)
        connection.execute("COMMIT")
    return path


def create_table(connection: sqlite3.Connection, table: str, columns: Iterable[ExportColumn]) -> None:
    """An empty table, declared as nsys does."""
    declared = ",\n".join(column.declaration() for column in columns)
    connection.execute(f'CREATE TABLE "{table}" (\n{declared}\n)')


def _fill_table(
    connection: sqlite3.Connection,
    table: str,
    columns: tuple[ExportColumn, ...],
    rows: list[Row],
    texts: Mapping[str, int],
) -> None:
    def value(row: Row, column: ExportColumn) -> Value:
        cell = row.get(column.name)
        if cell is None:
            return column.filler()
        return texts[cell] if type(cell) is Name else cell

    marks = ", ".join("?" for _ in columns)
    values = ([value(row, column) for column in columns] for row in rows)
    connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)


# What happened, as rows. Times are nanoseconds on the trace's own clock.

_MACHINE = 1 << 56  # the bits of a global id above the pid are never zero in real exports


class EventClass(IntEnum):
    """What a call's row is of."""

    RUNTIME = 0
    DRIVER = 1
    GRAPH_NODE = 77  # TRACE_PROCESS_EVENT_CUDA_GRAPH_NODE_CREATION


_STREAM_WAIT = 3  # place in SYNC_CODES
_SYNC_CALL = re.compile(r"(Event|Stream|Device|Ctx)Synchronize")


class ExportedThread(Struct, frozen=True):
    pid: int
    tid: int

    @property
    def global_tid(self) -> int:
        return _MACHINE | self.pid << 24 | self.tid

    @property
    def global_pid(self) -> int:
        return _MACHINE | self.pid << 24


class CallRow(Struct, frozen=True):
    """An API call: what GPU operations refer to."""

    thread: ExportedThread
    correlation: int


class RunExport:
    """Collects events; ``write`` makes the file. Every method that adds an event may be called in any order.

    ``about``: what the export's own metadata says besides, or instead of what nsys would write there.
    """

    def __init__(
        self, command: Collection[str] = ("python", "train.py"), about: Mapping[str, str] | None = None
    ) -> None:
        self.command = tuple(command)
        self.about = dict(about or {})
        self.rows: dict[str, list[Row]] = {}
        self._correlations: dict[int, int] = {}
        self._domains: dict[tuple[int, str], int] = {}
        self._gpus: dict[int, str] = {}
        self._facts: dict[int, dict[str, Value]] = {}

    def row(self, table: str, **values: Value) -> Row:
        """Any row of any table; columns that a generation lacks are left out, those not named are filled."""
        self.rows.setdefault(table, []).append(values)
        return values

    def thread(self, pid: int = 1000, tid: int | None = None, name: str | None = None) -> ExportedThread:
        thread = ExportedThread(pid, pid if tid is None else tid)
        if name is not None:
            self.row("ThreadNames", nameId=Name(name), priority=0, globalTid=thread.global_tid)
        if all(row["pid"] != pid for row in self.rows.get("PROCESSES", [])):
            self.row("PROCESSES", globalPid=thread.global_pid, pid=pid, name=self.command[0])
        return thread

    def gpu(self, number: int, name: str, facts: Mapping[str, Value] | None = None) -> None:
        """A GPU of the machine. Every device in use that is not named becomes one. ``facts``: columns of
        TARGET_INFO_GPU that tell of its hardware."""
        self._gpus[number] = name
        self._facts[number] = dict(facts or {})

    def api(
        self,
        thread: ExportedThread,
        start: int,
        end: int,
        name: str,
        *,
        correlation: int | None = None,
        event_class: int | None = None,
        returns: int = 0,
        stream: int = 7,
        event: int | None = None,
        device: int = 0,
    ) -> CallRow:
        """A runtime or driver call. A call that waits gets its row in the table of synchronizations, too, with the
        ``stream`` or ``event`` that it waits for."""
        number = self._correlations.get(thread.pid, 0) + 1 if correlation is None else correlation
        self._correlations[thread.pid] = max(number, self._correlations.get(thread.pid, 0))
        driver = name.startswith("cu") and not name.startswith("cuda")
        self.row(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=(EventClass.DRIVER if driver else EventClass.RUNTIME) if event_class is None else event_class,
            globalTid=thread.global_tid,
            correlationId=number,
            nameId=Name(name),
            returnValue=returns,
        )
        call = CallRow(thread, number)
        if match := _SYNC_CALL.search(name):
            code = ("Event", "Stream", "Device").index(match[1].replace("Ctx", "Device"))
            self.row(
                "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                **_sync(call, start, end, device, stream if code == 1 else NO_STREAM),
                syncType=code,  # by schema when written
                eventId=NO_STREAM if event is None else event,
            )
        return call

    def stream(self, thread: ExportedThread, stream: int, flag: str) -> None:
        """A stream of a process and how it relates to the null stream: default, non_blocking or null."""
        key = {"streamId": stream, "processId": thread.pid, "contextId": 1}
        self.row("TARGET_INFO_CUDA_STREAM", **key, flag=STREAM_FLAGS[flag])

    def record(self, call: CallRow, event: int, *, device: int = 0, stream: int = 7) -> Row:
        """What a cudaEventRecord call records."""
        columns = _operation(call, 0, 0, device, stream)
        return self.row("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **columns, eventId=event)

    def stream_wait(self, call: CallRow, start: int, end: int, event: int, *, device: int = 0, stream: int = 7) -> Row:
        """What a cudaStreamWaitEvent call makes a stream wait for. The row spans the call, not the wait."""
        columns = _sync(call, start, end, device, stream)
        return self.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **columns, syncType=_STREAM_WAIT, eventId=event)

    def kernel(
        self,
        call: CallRow | ExportedThread,
        start: int,
        end: int,
        *,
        name: str = "void gemm<float>(int)",
        device: int = 0,
        stream: int = 7,
        graph_node: int | None = None,
        shape: tuple[int, int, int] | None = None,
    ) -> Row:
        """A kernel. A launch of a graph may own many. ``shape``: blocks, threads of each, registers of each thread."""
        shape_columns = {}
        if shape is not None:
            shape_columns = {"gridX": shape[0], "blockX": shape[1], "registersPerThread": shape[2]}
            shape_columns |= dict.fromkeys(("gridY", "gridZ", "blockY", "blockZ"), 1)
        return self.row(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            **_operation(call, start, end, device, stream),
            demangledName=Name(name),
            shortName=Name(re.sub(r"^void |[<(].*", "", name)),
            graphNodeId=graph_node,
            **{"gridX": 1, "blockX": 128, **shape_columns},
        )

    def memcpy(
        self,
        call: CallRow | ExportedThread,
        start: int,
        end: int,
        *,
        bytes: int = 4096,
        kind: str = "HtoD",
        source: str = "pageable",
        target: str = "device",
        device: int = 0,
        stream: int = 7,
        cause: int | None = None,
    ) -> Row:
        """A copy; ``kind`` UVM_HtoD and the like, given a thread instead of a call, is a page migration, of a ``cause``
        (CUpti_ActivityUnifiedMemoryMigrationCause)."""
        return self.row(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            **_operation(call, start, end, device, stream),
            migrationCause=cause,
            bytes=bytes,
            copyKind=COPY_KINDS[kind],
            srcKind=MEMORY_KINDS[source],
            dstKind=MEMORY_KINDS[target],
        )

    def memset(
        self,
        call: CallRow | ExportedThread,
        start: int,
        end: int,
        *,
        bytes: int = 4096,
        device: int = 0,
        stream: int = 7,
    ) -> Row:
        columns = _operation(call, start, end, device, stream)
        return self.row("CUPTI_ACTIVITY_KIND_MEMSET", **columns, bytes=bytes, memKind=MEMORY_KINDS["device"])

    def graph(self, call: CallRow | ExportedThread, start: int, end: int, *, device: int = 0, stream: int = 7) -> Row:
        """A CUDA graph traced as one operation (schema 2022 on)."""
        columns = _operation(call, start, end, device, stream)
        return self.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **columns, graphId=1, graphExecId=2)

    def graph_node(self, thread: ExportedThread, time: int, node: int, original: int | None = None) -> Row:
        """A node of a CUDA graph was made, from an original where the graph is a copy."""
        return self.row(
            "CUDA_GRAPH_NODE_EVENTS",
            start=time,
            end=time,
            eventClass=EventClass.GRAPH_NODE,
            globalTid=thread.global_tid,
            nameId=Name("Graph Node Creation"),
            graphNodeId=node,
            originalGraphNodeId=original,
        )

    def nvtx(
        self,
        thread: ExportedThread,
        start: int,
        end: int | None,
        text: str,
        *,
        domain: str | None = None,
        registered: bool = False,
    ) -> Row:
        """A push/pop range; ``end=None``: still open. ``registered``: its text is an id."""
        return self.row(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=59,
            text=None if registered else text,
            textId=Name(text) if registered else None,
            globalTid=thread.global_tid,
            domainId=0 if domain is None else self._domain(thread, start, domain),
        )

    def _domain(self, thread: ExportedThread, start: int, name: str) -> int:
        """Domain ids count per process, from 1."""
        key = thread.pid, name
        if key not in self._domains:
            number = self._domains[key] = 1 + sum(pid == thread.pid for pid, _ in self._domains)
            self.row("NVTX_EVENTS", start=start, eventType=75, text=name, globalTid=thread.global_tid, domainId=number)
        return self._domains[key]

    def osrt(self, thread: ExportedThread, start: int, end: int, name: str) -> None:
        """An OS runtime call."""
        tid = thread.global_tid
        self.row("OSRT_API", start=start, end=end, eventClass=27, globalTid=tid, nameId=Name(name), nestingLevel=0)

    def sched(self, thread: ExportedThread, time: int, is_in: bool) -> None:
        """A context switch."""
        self.row("SCHED_EVENTS", start=time, cpu=0, isSchedIn=int(is_in), globalTid=thread.global_tid)

    def last_switch_ns(self, thread: ExportedThread) -> int:
        """When the thread that is being written was last switched; -1 before it ever was."""
        rows = self.rows.get("SCHED_EVENTS", [])
        last = rows[-1]["start"] if rows and rows[-1]["globalTid"] == thread.global_tid else -1
        assert isinstance(last, int)
        return last

    def write(self, path: Path, schema: str = "2023") -> Path:
        """Write the file and return its path."""
        return write_tables(path, tables(schema), self.complete(schema))

    def complete(self, schema: str) -> dict[str, list[Row]]:
        """The rows of a schema, with what the exporter itself would add."""
        rows = {table: list(table_rows) for table, table_rows in self.rows.items()}
        for row in rows.pop("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", []):
            coded = {**row, "syncType": SYNC_CODES[schema][int(row["syncType"] or 0)]}
            rows.setdefault("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", []).append(coded)
        used = sorted(set(self._used()))
        gpus = {gpu: self._gpus.get(gpu, "NVIDIA Test GPU") for gpu in (*(number for _, number in used), *self._gpus)}
        rows["TARGET_INFO_GPU"] = [
            {"id": n, "deviceId": n, "name": gpu, **self._facts.get(n, {})} for n, gpu in sorted(gpus.items())
        ]
        rows["TARGET_INFO_CUDA_GPU"] = [{"deviceId": n, "name": gpu} for n, gpu in sorted(gpus.items())]
        rows["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": gpu, "cudaId": gpu, "pid": pid} for pid, gpu in used]
        for table, names in ENUMS.items():
            rows[table] = [{"id": code, "name": name, "label": name} for code, name in names.items()]
        rows["ANALYSIS_DETAILS"] = [{"globalVid": _MACHINE, "duration": 1, "startTime": 0, "stopTime": 1}]
        words = {"PROCESS_0:COMMAND": self.command[0]}
        words |= {f"PROCESS_0:ARGUMENT_{number}": word for number, word in enumerate(self.command[1:])}
        rows["META_DATA_CAPTURE"] = _pairs(words)
        if schema in VERSIONS:
            product, number = VERSIONS[schema]
            about = {"EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems", "EXPORT_PRODUCT_VERSION": product}
            about |= {"EXPORT_SCHEMA_VERSION": number, **self.about}
            rows["EXPORT_META_DATA"] = rows["META_DATA_EXPORT"] = _pairs(about)
        return rows

    def _used(self) -> Iterator[tuple[int, int]]:
        """(process, CUDA ordinal) of every operation."""
        for table in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"):
            for row in self.rows.get(f"CUPTI_ACTIVITY_KIND_{table}", []):
                yield (int(row["globalPid"] or 0) >> 24) & 0xFFFFFF, int(row["deviceId"] or 0)


def _operation(call: CallRow | ExportedThread, start: int, end: int, device: int, stream: int) -> Row:
    thread, correlation = (call, 0) if isinstance(call, ExportedThread) else (call.thread, call.correlation)
    columns: Row = {"start": start, "end": end, "deviceId": device, "contextId": 1 + device, "streamId": stream}
    return {**columns, "correlationId": correlation, "globalPid": thread.global_pid}


def _sync(call: CallRow, start: int, end: int, device: int, stream: int) -> Row:
    """Of a sync nsys tells the context, and always GPU 0."""
    return {**_operation(call, start, end, device, stream), "deviceId": 0}


def _pairs(pairs: Mapping[str, str]) -> list[Row]:
    return [{"name": name, "value": value} for name, value in pairs.items()]


# A run as an export in nsys' own schema, marked as simulated.

#: What META_DATA_EXPORT says, and the name of every GPU (older schemas have no metadata).
PRODUCT = "boundby simulate"
GPU_NAME = "Simulated GPU"
#: The hardware of every GPU: MULTIPROCESSORS times BLOCKS_EACH blocks of THREADS threads fill it.
MULTIPROCESSORS, BLOCKS_EACH, THREADS, REGISTERS = 100, 8, 256, 32
GPU_FACTS = {"smCount": MULTIPROCESSORS, "threadsPerWarp": 32, "maxWarpsPerSm": 64, "maxBlocksPerSm": 32} | {
    "maxRegistersPerSm": 65_536,
    "maxShmemPerSm": 167_936,
    "computeMajor": 8,
    "computeMinor": 0,
}
FIRST_PID = IDS_EACH
_RECORDS, _SYNCS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
# As nsys numbers them: the default stream, those that programs make; each GPU of a process has numbers of its own.
DEFAULT_STREAM, FIRST_STREAM = 7, 13
_NODE_NS = US  # how long a captured node takes the host
_AT_A_FAULT = 2  # CUpti_ActivityUnifiedMemoryMigrationCause
#: nsys leaves shorter OS calls out.
OSRT_THRESHOLD_NS = US
# Version suffixes as CUPTI writes them; driver calls have none.
_VERSION = {"cudaLaunchKernel": "_v7000", "cudaGraphLaunch": "_v10000", "cudaStreamIsCapturing": "_v10000"}


class Capture(Struct, frozen=True):
    """Which kinds of data the capture holds beside CUDA's. ``graph_nodes``: graphs node by node, not as a whole.
    ``registered_ranges``: ranges name their text by number, as registered strings do. ``event_records``, ``syncs``: the
    rows that say where an event was recorded, and what a call or stream waited for; ``lost``: that part of both is
    missing here and there.
    """

    nvtx: bool = True
    osrt: bool = True
    sched: bool = True
    graph_nodes: bool = False
    registered_ranges: bool = False
    event_records: bool = True
    syncs: bool = True
    lost: float = 0.0


def to_export(run: Run, capture: Capture | None = None) -> RunExport:
    """The rows of a run."""
    return _Exporter(run, capture or Capture()).export


def write_export(run: Run, path: Path, schema: str = "2023", capture: Capture | None = None) -> Path:
    """Write a run as an export, whole or not at all and over nothing that is there. Raises OutputError."""
    if schema not in GENERATIONS:
        raise OutputError(f"There is no schema {schema}.", f"Choose one of {', '.join(GENERATIONS)}.")
    with new_file(path) as temporary:
        to_export(run, capture).write(temporary, schema)
    return path


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A place beside ``path`` to write to, which becomes ``path`` in the end if nothing went wrong and nothing else
    has taken the name."""
    try:
        if os.path.lexists(path):
            raise FileExistsError
        with tempfile.TemporaryDirectory(prefix=".boundby-", dir=path.parent) as folder:
            temporary = Path(folder) / "export.sqlite"
            yield temporary
            give_name(temporary, path)
    except FileExistsError:
        raise OutputError(f"{path} is already there.", "Choose another name, or remove it.") from None
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror or error}.", "Write elsewhere.") from error


class _Exporter:
    """Goes through a run thread by thread."""

    def __init__(self, run: Run, capture: Capture) -> None:
        self.run = run
        self.capture = capture
        program = run.script.program
        self.export = RunExport(
            program.command,
            {"EXPORT_PRODUCT_NAME": PRODUCT, "SIMULATED": f"by boundby {__version__}: {program.name}"},
        )
        self.clock = random.Random("clock")  # the error of device times is no part of what happened
        self.operations = {(operation.thread, operation.step): operation for operation in run.operations}
        self.events: dict[tuple[int, str], int] = {}
        self.graphs: dict[tuple[int, tuple[Node, ...]], int] = {}  # the number of each one's first node
        self.captured_ns = -_NODE_NS  # before this the next graph was captured
        self.gpus: set[int] = set()
        self.streams: set[tuple[int, int]] = set()
        lasting = [ends for ends, thread in zip(run.end_ns, run.script.threads, strict=True) if not thread.daemon]
        self.over = max((ends[-1] for ends in lasting if ends), default=0)  # when the program is
        for at, thread in enumerate(run.script.threads):
            if thread.traced:
                self.write_thread(at, thread)
        self.lose_rows()

    def lose_rows(self) -> None:
        """Leave out what the capture lacks of events and syncs."""
        capture, chance = self.capture, random.Random("lost rows")
        for table, is_there in ((_RECORDS, capture.event_records), (_SYNCS, capture.syncs)):
            rows = self.export.rows.pop(table, [])
            if kept := [row for row in rows if is_there and chance.random() >= capture.lost]:
                self.export.rows[table] = kept

    def write_thread(self, at: int, thread: ScriptThread) -> None:
        pid = FIRST_PID * (thread.process + 1)
        thread_id = self.export.thread(pid, pid + thread.number, thread.name)
        starts, ends = self.run.start_ns[at], [min(end, self.over) for end in self.run.end_ns[at]]
        if self.capture.sched and not thread.unseen:
            self.export.sched(thread_id, 0, True)
        open_ranges: list[int] = []
        for number, (step, start, end) in enumerate(zip(thread.steps, starts, ends, strict=False)):
            if step.do in CALLS:
                self.write_call(thread_id, step, start, end, self.operations.get((at, number)))
                if not thread.unseen and step.call != PAGE_FAULT:
                    self.write_wait(thread_id, step, start, end)
            elif step.do in (Do.SLEEP, Do.AWAIT) and not thread.unseen:
                self.write_sleep(thread_id, step, start, end)
            elif step.do == Do.PUSH:
                open_ranges.append(start)
            elif step.do == Do.POP and self.capture.nvtx:
                registered = self.capture.registered_ranges
                self.export.nvtx(
                    thread_id, open_ranges.pop(), end, step.text, domain=step.domain, registered=registered
                )
        if self.capture.sched and not thread.unseen:
            self.export.sched(thread_id, ends[-1] if ends else 0, False)

    def write_call(self, place: ExportedThread, step: Step, start: int, end: int, operation: Executed | None) -> None:
        if step.call == PAGE_FAULT:
            if operation is not None:
                self.write_operation(place, place, step, operation)
            return
        name = step.call + ("" if not step.call.startswith("cuda") else _VERSION.get(step.call, "_v3020"))
        event = self.event(place, step.text) if step.text else None
        stream = _stream(step)
        self.tell_stream(place, stream, is_null=step.stream == 0)
        call = self.export.api(place, start, end, name, stream=stream, event=event, device=step.device)
        if event is not None:
            if step.do == Do.RECORD:
                self.export.record(call, event, device=step.device, stream=stream)
            elif step.do == Do.WAIT_EVENT:
                self.export.stream_wait(call, start, end, event, device=step.device, stream=stream)
        if operation is not None:
            self.write_operation(place, call, step, operation)

    def write_wait(self, place: ExportedThread, step: Step, start: int, end: int) -> None:
        """A call that waits for the device sleeps, on a machine that does not spin."""
        if self.capture.sched and not self.run.script.machine.sync_spins and step.wait != Wait.NONE:
            own_ns = 0 if step.operation else step.init_ns  # memory is looked for once the device is done
            self.sleep(place, start, end - own_ns)

    def tell_stream(self, place: ExportedThread, stream: int, *, is_null: bool) -> None:
        """Every stream that a process names is in the table of its streams."""
        if (place.pid, stream) not in self.streams:
            self.streams.add((place.pid, stream))
            follows = self.run.script.machine.legacy_default_stream
            flag = "null" if is_null else "default" if follows else "non_blocking"
            self.export.stream(place, stream, flag)

    def write_operation(
        self, place: ExportedThread, call: CallRow | ExportedThread, step: Step, operation: Executed
    ) -> None:
        export, spec = self.export, operation.spec
        if step.device not in self.gpus:
            self.gpus.add(step.device)
            export.gpu(step.device, GPU_NAME, {**GPU_FACTS, "asyncEngines": 2 * self.run.script.machine.copy_engines})
        start = self.device_time(operation.start_ns)
        end = max(start, self.device_time(operation.end_ns))
        device, stream = step.device, _stream(step)
        shape = (max(round(spec.share / 1000 * MULTIPROCESSORS * BLOCKS_EACH), 1), THREADS, REGISTERS)
        if spec.kind == StepKind.GRAPH and self.capture.graph_nodes:
            stretch = (end - start) / spec.ns if spec.ns else 1.0  # what others on the device held the graph up
            first = self.graph_of(place, spec.captured)
            for number, (kernel, offset, length) in enumerate(spec.nodes):
                export.kernel(
                    *(call, start + round(offset * stretch), start + round((offset + length) * stretch)),
                    shape=shape,
                    name=kernel,
                    device=device,
                    stream=stream,
                    graph_node=first + number,
                )
        elif spec.kind == StepKind.GRAPH:
            export.graph(call, start, end, device=device, stream=stream)
        elif spec.kind == StepKind.SET:
            export.memset(call, start, end, bytes=spec.bytes, device=device, stream=stream)
        elif spec.kind == StepKind.COPY:
            faults = step.call == PAGE_FAULT
            export.memcpy(
                *(call, start, end),
                bytes=spec.bytes,
                kind=f"UVM_{spec.direction}" if faults else spec.direction,
                cause=_AT_A_FAULT if faults else None,
                source={"HtoD": spec.memory}.get(spec.direction, "device"),
                target={"DtoH": spec.memory}.get(spec.direction, "device"),
                device=device,
                stream=stream,
            )
        else:
            export.kernel(call, start, end, shape=shape, name=spec.name, device=device, stream=stream)

    def graph_of(self, place: ExportedThread, captured: tuple[Node, ...]) -> int:
        """The number of a graph's first node. The first time, its capture is told: some time before the program begins,
        as of a recording that begins when the program is warm."""
        key = place.pid, captured
        if key in self.graphs:
            return self.graphs[key]
        first = 1 + 2 * sum(len(nodes) for _, nodes in self.graphs)
        original = first + len(captured)
        self.graphs[key] = first
        if not any(node.within for node in captured):
            return first
        time = self.captured_ns - _NODE_NS * (len(captured) + 2)
        self.captured_ns, begin = time, time
        open_ranges: list[tuple[str, int]] = []
        for number, within in enumerate([*(node.within for node in captured), ()]):
            time += _NODE_NS
            pairs = zip(open_ranges, within, strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0][0] == pair[1], pairs))
            for name, since in reversed(open_ranges[shared:]):
                self.export.nvtx(place, since, time - 1, name)
            open_ranges[shared:] = [(name, time) for name in within[shared:]]
            if number < len(captured):
                self.export.graph_node(place, time + 1, original + number)
                self.export.graph_node(place, time + _NODE_NS * len(captured), first + number, original + number)
        self.export.nvtx(place, begin, time, "capture")
        return first

    def write_sleep(self, place: ExportedThread, step: Step, start: int, end: int) -> None:
        if end > start and self.capture.sched:
            self.sleep(place, start, end)
        if end - start >= OSRT_THRESHOLD_NS and self.capture.osrt:
            self.export.osrt(place, start, end, step.text if step.do == Do.SLEEP else "pthread_cond_wait")

    def sleep(self, place: ExportedThread, start: int, end: int) -> None:
        """Off the CPU. Who sleeps again at once was back for a nanosecond: switches of one instant have no order."""
        start = max(start, self.export.last_switch_ns(place) + 1)
        if start < end:
            self.export.sched(place, start, False)
            self.export.sched(place, end, True)

    def event(self, place: ExportedThread, name: str) -> int:
        """Event ids count per process, from 1."""
        key = place.pid, name
        return self.events.setdefault(key, 1 + sum(pid == place.pid for pid, _ in self.events))

    def device_time(self, time: int) -> int:
        machine = self.run.script.machine
        error = self.clock.randint(-machine.clock_noise_ns, machine.clock_noise_ns) if machine.clock_noise_ns else 0
        return time + round(time * machine.clock_drift) + machine.clock_skew_ns + error


def _stream(step: Step) -> int:
    number = DEFAULT_STREAM if step.stream == 0 else FIRST_STREAM + step.stream - 1
    return number + IDS_EACH * step.device
