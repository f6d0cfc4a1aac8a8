"""Exports in nsys' own schema from plain calls, with all that a real export can hold: also what no simulated run does
(MPI, samples, the profiler's own messages), in any order, cut or moved.

>>> export = Export()
>>> main = export.thread(pid=1, tid=1)
>>> launch = export.api(main, 0, 5_000, "cudaLaunchKernel")
>>> _ = export.kernel(launch, 9_000, 20_000)
>>> export.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0]["start"]
9000

Times are nanoseconds on the trace's own clock. An export can be written many times, in any schema.
"""

from __future__ import annotations

import functools
import random
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

from boundby.simulate.nsys_export import (
    RUN_TABLES,
    EventClass,
    ExportColumn,
    ExportedThread,
    Name,
    Row,
    RunExport,
    Value,
    create_table,
    tables_of,
    write_tables,
)
from boundby.trace.vocabulary.os import MessageKind, message_kind

_OPENACC = (
    "start! end! nameId! globalTid eventKind! DeviceType! lineNo! cuDeviceId! cuContextId! cuStreamId! srcFile funcName"
)
_OPENACC_TABLES = {
    "DATA": " bytes! varName",
    "LAUNCH": " numGangs! numWorkers! vectorLength! kernelName",
    "OTHER": "",
}
_OPENMP = "start! end! eventClass! globalTid correlationId nameId! eventKind parallelId"
#: What no simulated run fills.
_MORE_TABLES: dict[str, str] = {
    "ANALYSIS_FILE@2023-": "id!* filename:T contentId globalPid!",
    "ProcessStreams": "globalPid! filenameId! contentId!",
    "DIAGNOSTIC_EVENT@2023-": "timestamp! timestampType! source! severity! text!:T globalPid",
    "COMPOSITE_EVENTS": "id!* start! cpu threadState globalTid cpuCycles!",
    "PROFILER_OVERHEAD": "start! end! globalTid correlationId@-2019 nameId! returnValue!@-2023 overheadType!@2026-",
    "CUPTI_ACTIVITY_KIND_OVERHEAD@2026-": "start! end! eventClass! globalTid correlationId nameId overheadType!",
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
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": (
        "start! globalPid! address! originalFaultPc@2022- CpuInstruction! module unresolvedFaultPc sourceFile "
        "sourceLine"
    ),
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "start! end! globalPid! deviceId! address! numberOfPageFaults! faultAccessType!",
    "CUDA_GRAPH_EVENTS@2022-": "start! end! eventClass! globalTid nameId! graphId! originalGraphId graphExecId",
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
}
_TIMES = frozenset(("start", "end", "timestamp"))
_PAGE_BYTES = 4096  # SQLite's own
_NVTX_EVENTS = {"pushpop": 59, "startend": 60, "mark": 34}


@functools.cache
def tables(generation: str) -> dict[str, tuple[ExportColumn, ...]]:
    """All tables that exports of a generation can hold."""
    return tables_of({**RUN_TABLES, **_MORE_TABLES}, generation)


class Export(RunExport):
    """Collects events; ``write`` makes the file. Every method that adds an event may be called in any order."""

    def __init__(
        self, command: Collection[str] = ("python", "train.py"), about: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(command, about)
        self._ordinals: dict[tuple[int, int], int | None] = {}

    def visible(self, thread: ExportedThread, ordinal: int, gpu: int | None) -> None:
        """Which GPU a process means by a CUDA ordinal (only schema 2026 can tell)."""
        self._ordinals[thread.pid, ordinal] = gpu

    def nvtx(
        self,
        thread: ExportedThread,
        start: int,
        end: int | None,
        text: str,
        *,
        domain: str | None = None,
        registered: bool = False,
        kind: str = "pushpop",
        payload: float | None = None,
        amounts: str | None = None,
    ) -> Row:
        """A range; ``end=None``: still open. ``kind``: pushpop, startend, mark. ``registered``: its text is an id.
        ``payload``: a number that it carries. ``amounts``: an object of several, as JSON."""
        row = super().nvtx(thread, start, end, text, domain=domain, registered=registered)
        row["eventType"] = _NVTX_EVENTS[kind]
        if kind == "startend":
            row |= {"rangeId": len(self.rows["NVTX_EVENTS"]), "endGlobalTid": thread.global_tid}
        if payload is not None:
            row["int64Value" if isinstance(payload, int) else "doubleValue"] = payload
        if amounts:
            row["jsonTextId"] = Name(amounts)
        return row

    def graph_made(
        self, thread: ExportedThread, time: int, graph: int, *, original: int | None = None, launched: int | None = None
    ) -> Row:
        """A CUDA graph was made, from an original where it is a copy; ``launched``: what can be launched of it was,
        with this number."""
        return self.row(
            "CUDA_GRAPH_EVENTS",
            start=time,
            end=time,
            eventClass=EventClass.GRAPH_NODE,
            globalTid=thread.global_tid,
            nameId=Name("Graph Creation" if launched is None else "GraphExec Creation"),
            graphId=graph,
            originalGraphId=original,
            graphExecId=launched,
        )

    def mpi_rank(self, thread: ExportedThread, rank: int, size: int, handle: int, since: int = 0) -> None:
        """A rank of MPI, and its name for the communicator of all ``size`` ranks (before 2023 nothing tells it)."""
        self.row("MPI_RANKS", globalTid=thread.global_tid, rank=rank)
        place: Row = {"rank": rank, "timestamp": since, "commHandle": handle, "localRank": rank, "size": size}
        self.row("MPI_COMMUNICATORS", **place, parentHandle=0)

    def mpi(
        self,
        thread: ExportedThread,
        start: int,
        end: int | None,
        name: str,
        *,
        communicator: int | None = None,
        peer: int | None = None,
        tag: int | None = None,
        root: int | None = None,
        bytes: int | None = None,
        received: int | None = None,
    ) -> None:
        """A call of MPI: a row of the table of its kind, in schema 2022 and before a range of a domain of its own."""
        kind = message_kind(name)
        place: Row = {"start": start, "end": end, "globalTid": thread.global_tid, "textId": Name(name)}
        if kind == MessageKind.COLLECTIVE:
            more: Row = {"commHandle": communicator, "rootRank": root, "size": bytes, "recvSize": received}
            self.row("MPI_COLLECTIVES_EVENTS", **place, **more)
        elif peer is not None:
            more = {"commHandle": communicator, "tag": tag, "remoteRank": peer, "size": bytes}
            self.row("MPI_P2P_EVENTS", **place, **more)
        else:
            self.row("MPI_START_WAIT_EVENTS" if kind == MessageKind.WAIT else "MPI_OTHER_EVENTS", **place)

    def sample(self, thread: ExportedThread, time: int) -> None:
        """A CPU sample."""
        number = len(self.rows.get("COMPOSITE_EVENTS", ())) + 1
        self.row("COMPOSITE_EVENTS", id=number, start=time, cpu=0, globalTid=thread.global_tid, cpuCycles=1)

    def overhead(
        self, thread: ExportedThread, start: int, end: int, name: str = "CUDA profiling", *, cupti: bool = False
    ) -> None:
        """The profiler's own time; ``cupti``: in CUPTI's table, which only schema 2026 has."""
        table = "CUPTI_ACTIVITY_KIND_OVERHEAD" if cupti else "PROFILER_OVERHEAD"
        self.row(table, start=start, end=end, eventClass=103, globalTid=thread.global_tid, nameId=Name(name))

    def diagnostic(self, text: str, severity: int = 2) -> None:
        """A message of the profiler: severity 1 information, 2 warning, 3 error (schema 2023 on)."""
        self.row("DIAGNOSTIC_EVENT", timestamp=0, timestampType=2, source=3, severity=severity, text=text)

    def write(
        self,
        path: Path,
        schema: str = "2023",
        *,
        shuffle: int | None = None,
        shift: int = 0,
        drop: Collection[str] = (),
        empty_tables: bool = False,
        page_size: int = _PAGE_BYTES,
    ) -> Path:
        """Write the file and return its path.

        ``shuffle``: a seed that permutes rows, tables and the numbers of texts. ``shift``: added to all times.
        ``drop``: tables and ``table.column`` to leave out, ``*.column`` from all. ``empty_tables``: not lazily.
        """
        layout = _without(tables(schema), frozenset(drop))
        rows = _moved(self.complete(schema), shift)
        if shuffle is not None:
            layout, rows = _shuffled(layout, rows, random.Random(shuffle))
        write_tables(path, layout, rows)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            if empty_tables:
                there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
                for table in layout.keys() - there:
                    create_table(connection, table, layout[table])
            if page_size != _PAGE_BYTES:
                connection.execute(f"PRAGMA page_size = {page_size}")
                connection.execute("VACUUM")
        return path

    def complete(self, schema: str) -> dict[str, list[Row]]:
        """The rows of a schema, with what the exporter itself would add."""
        rows = super().complete(schema)
        gpus = {(row["pid"], row["cudaId"]): row["gpuId"] for row in rows["TARGET_INFO_CUDA_DEVICE"]} | self._ordinals
        rows["TARGET_INFO_CUDA_DEVICE"] = [
            {"gpuId": gpu, "cudaId": ordinal, "pid": pid} for (pid, ordinal), gpu in gpus.items()
        ]
        return _with_mpi_as_ranges(rows) if schema < "2023" else rows


def export_of(written: RunExport) -> Export:
    """The export of a run, to be written in other ways."""
    export = Export(written.command, written.about)
    vars(export).update(vars(written))
    return export


Layout = Mapping[str, tuple[ExportColumn, ...]]


def _without(layout: Layout, drop: frozenset[str]) -> Layout:
    return {
        table: tuple(column for column in columns if not {f"{table}.{column.name}", f"*.{column.name}"} & drop)
        for table, columns in layout.items()
        if table not in drop
    }


def _moved(rows: Mapping[str, list[Row]], shift: int) -> Mapping[str, list[Row]]:
    def value(column: str, found: Value) -> Value:
        return found + shift if column in _TIMES and isinstance(found, int) else found

    if not shift:
        return rows
    return {table: [{name: value(name, row[name]) for name in row} for row in found] for table, found in rows.items()}


def _shuffled(
    layout: Layout, rows: Mapping[str, list[Row]], chance: random.Random
) -> tuple[Layout, Mapping[str, list[Row]]]:
    """Tables and rows in another order, and with them the numbers of texts."""
    order, filled = list(layout), list(rows)
    chance.shuffle(order)
    chance.shuffle(filled)
    return {table: layout[table] for table in order}, {
        table: chance.sample(rows[table], len(rows[table])) for table in filled
    }


def _with_mpi_as_ranges(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Calls of MPI as nsys 2022 records them: ranges of a domain that each process creates."""
    calls = [row for table, found in rows.items() if table.startswith("MPI_") for row in found if "textId" in row]
    ranges = rows.get("NVTX_EVENTS", [])
    known = {(int(row["globalTid"] or 0) >> 24, int(row["domainId"] or 0)) for row in ranges}
    number = 1 + max((domain for _, domain in known), default=0)
    for process in sorted({int(row["globalTid"] or 0) >> 24 for row in calls}):
        created: Row = {"start": 0, "eventType": 75, "text": "MPI", "globalTid": process << 24, "domainId": number}
        ranges = [*ranges, created]
    told = ("start", "end", "globalTid", "textId")
    ranges = [*ranges, *({**{key: row[key] for key in told}, "eventType": 59, "domainId": number} for row in calls)]
    others = {table: found for table, found in rows.items() if not table.startswith("MPI_")}
    return {**others, "NVTX_EVENTS": ranges} if calls else others
