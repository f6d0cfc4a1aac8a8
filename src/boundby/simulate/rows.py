"""Writes small nsys SQLite exports from plain Python calls, as several generations of nsys would.

>>> export = Export()
>>> main = export.thread(pid=1, tid=1)
>>> launch = export.api(main, 0, 5_000, "cudaLaunchKernel")
>>> _ = export.kernel(launch, 9_000, 20_000)
>>> export.nvtx(main, 0, 6_000, "step")
>>> path = export.write(folder / "report.sqlite", schema="2023")  # doctest: +SKIP

Times are nanoseconds on the trace's own clock. An export can be written many times, in any schema.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from boundby.simulate.schema import (
    COPY_KINDS,
    ENUMS,
    MEMORY_KINDS,
    STREAM_FLAGS,
    SYNC_CODES,
    VERSIONS,
    Name,
    Row,
    Value,
    tables,
    write_tables,
)
from boundby.trace.tables import NO_STREAM
from boundby.trace.vocabulary.mpi import MessageKind, message_kind

_MACHINE = 1 << 56  # the bits of a global id above the pid are never zero in real exports
_DRIVER, _RUNTIME = 1, 0  # eventClass
_STREAM_WAIT = 3  # place in SYNC_CODES
_SYNC_CALL = re.compile(r"(Event|Stream|Device|Ctx)Synchronize")


class Thread(Struct, frozen=True):
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

    thread: Thread
    correlation: int


class Export:
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
        self._ordinals: dict[tuple[int, int], int | None] = {}

    def row(self, table: str, **values: Value) -> Row:
        """Any row of any table; columns that a generation lacks are left out, those not named are filled."""
        self.rows.setdefault(table, []).append(values)
        return values

    def thread(self, pid: int = 1000, tid: int | None = None, name: str | None = None) -> Thread:
        thread = Thread(pid, pid if tid is None else tid)
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

    def visible(self, thread: Thread, ordinal: int, gpu: int | None) -> None:
        """Which GPU a process means by a CUDA ordinal (only schema 2026 can tell)."""
        self._ordinals[thread.pid, ordinal] = gpu

    def api(
        self,
        thread: Thread,
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
            eventClass=(_DRIVER if driver else _RUNTIME) if event_class is None else event_class,
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

    def stream(self, thread: Thread, stream: int, flag: str) -> None:
        """A stream of a process and how it relates to the null stream: default, non_blocking or null."""
        key = {"streamId": stream, "processId": thread.pid, "contextId": 1}
        self.row("TARGET_INFO_CUDA_STREAM", **key, flag=STREAM_FLAGS[flag])

    def record(self, call: CallRow, event: int, *, device: int = 0, stream: int = 7) -> Row:
        """What a cudaEventRecord call records."""
        place = _operation(call, 0, 0, device, stream)
        return self.row("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **place, eventId=event)

    def stream_wait(self, call: CallRow, start: int, end: int, event: int, *, device: int = 0, stream: int = 7) -> Row:
        """What a cudaStreamWaitEvent call makes a stream wait for. The row spans the call, not the wait."""
        place = _sync(call, start, end, device, stream)
        return self.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **place, syncType=_STREAM_WAIT, eventId=event)

    def kernel(
        self,
        call: CallRow | Thread,
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
        told = {}
        if shape is not None:
            told = {"gridX": shape[0], "blockX": shape[1], "registersPerThread": shape[2]}
            told |= dict.fromkeys(("gridY", "gridZ", "blockY", "blockZ"), 1)
        return self.row(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            **_operation(call, start, end, device, stream),
            demangledName=Name(name),
            shortName=Name(re.sub(r"^void |[<(].*", "", name)),
            graphNodeId=graph_node,
            **{"gridX": 1, "blockX": 128, **told},
        )

    def memcpy(
        self,
        call: CallRow | Thread,
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
        self, call: CallRow | Thread, start: int, end: int, *, bytes: int = 4096, device: int = 0, stream: int = 7
    ) -> Row:
        place = _operation(call, start, end, device, stream)
        return self.row("CUPTI_ACTIVITY_KIND_MEMSET", **place, bytes=bytes, memKind=MEMORY_KINDS["device"])

    def graph(self, call: CallRow | Thread, start: int, end: int, *, device: int = 0, stream: int = 7) -> Row:
        """A CUDA graph traced as one operation (schema 2022 on)."""
        place = _operation(call, start, end, device, stream)
        return self.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **place, graphId=1, graphExecId=2)

    def nvtx(
        self,
        thread: Thread,
        start: int,
        end: int | None,
        text: str,
        *,
        domain: str | None = None,
        kind: str = "pushpop",
        registered: bool = False,
        payload: float | None = None,
        amounts: str | None = None,
    ) -> None:
        """A range; ``end=None``: still open. ``kind``: pushpop, startend, mark. ``registered``: its text is an id.
        ``payload``: a number that it carries. ``amounts``: an object of several, as JSON."""
        self.row(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType={"pushpop": 59, "startend": 60, "mark": 34}[kind],
            rangeId=len(self.rows.get("NVTX_EVENTS", ())) if kind == "startend" else None,
            int64Value=payload if isinstance(payload, int) else None,
            doubleValue=payload if isinstance(payload, float) else None,
            jsonTextId=Name(amounts) if amounts else None,
            text=None if registered else text,
            textId=Name(text) if registered else None,
            globalTid=thread.global_tid,
            endGlobalTid=thread.global_tid if kind == "startend" else None,
            domainId=0 if domain is None else self._domain(thread, start, domain),
        )

    def _domain(self, thread: Thread, start: int, name: str) -> int:
        """Domain ids count per process, from 1."""
        place = thread.pid, name
        if place not in self._domains:
            number = self._domains[place] = 1 + sum(pid == thread.pid for pid, _ in self._domains)
            self.row("NVTX_EVENTS", start=start, eventType=75, text=name, globalTid=thread.global_tid, domainId=number)
        return self._domains[place]

    def mpi_rank(self, thread: Thread, rank: int, size: int, handle: int, since: int = 0) -> None:
        """A rank of MPI, and its name for the communicator of all ``size`` ranks (before 2023 nothing tells it)."""
        self.row("MPI_RANKS", globalTid=thread.global_tid, rank=rank)
        place: Row = {"rank": rank, "timestamp": since, "commHandle": handle, "localRank": rank, "size": size}
        self.row("MPI_COMMUNICATORS", **place, parentHandle=0)

    def mpi(
        self,
        thread: Thread,
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

    def osrt(self, thread: Thread, start: int, end: int, name: str) -> None:
        """An OS runtime call."""
        tid = thread.global_tid
        self.row("OSRT_API", start=start, end=end, eventClass=27, globalTid=tid, nameId=Name(name), nestingLevel=0)

    def sched(self, thread: Thread, time: int, is_in: bool) -> None:
        """A context switch."""
        self.row("SCHED_EVENTS", start=time, cpu=0, isSchedIn=int(is_in), globalTid=thread.global_tid)

    def last_switch_ns(self, thread: Thread) -> int:
        """When the thread that is being written was last switched; -1 before it ever was."""
        rows = self.rows.get("SCHED_EVENTS", [])
        last = rows[-1]["start"] if rows and rows[-1]["globalTid"] == thread.global_tid else -1
        assert isinstance(last, int)
        return last

    def sample(self, thread: Thread, time: int) -> None:
        """A CPU sample."""
        number = len(self.rows.get("COMPOSITE_EVENTS", ())) + 1
        self.row("COMPOSITE_EVENTS", id=number, start=time, cpu=0, globalTid=thread.global_tid, cpuCycles=1)

    def overhead(
        self, thread: Thread, start: int, end: int, name: str = "CUDA profiling", *, cupti: bool = False
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
        page_size: int = 4096,
    ) -> Path:
        """Write the file and return its path.

        ``shuffle``: a seed that permutes rows, tables and the numbers of texts. ``shift``: added to all times.
        ``drop``: tables and ``table.column`` to leave out, ``*.column`` from all. ``empty_tables``: not lazily.
        """
        rows = self._complete(schema)
        return write_tables(path, tables(schema), rows, shuffle, shift, frozenset(drop), empty_tables, page_size)

    def _complete(self, schema: str) -> dict[str, list[Row]]:
        """The rows of a schema, with what the exporter itself would add."""
        rows = {table: list(found) for table, found in self.rows.items()}
        if schema < "2023":
            rows = _with_mpi_as_ranges(rows)
        for row in rows.pop("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", []):
            coded = {**row, "syncType": SYNC_CODES[schema][int(row["syncType"] or 0)]}
            rows.setdefault("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", []).append(coded)
        used = sorted({place for place in self._used() if place[1] is not None})
        gpus = {gpu: self._gpus.get(gpu, "NVIDIA Test GPU") for gpu in (*(number for _, number in used), *self._gpus)}
        rows["TARGET_INFO_GPU"] = [
            {"id": n, "deviceId": n, "name": gpu, **self._facts.get(n, {})} for n, gpu in sorted(gpus.items())
        ]
        rows["TARGET_INFO_CUDA_GPU"] = [{"deviceId": n, "name": gpu} for n, gpu in sorted(gpus.items())]
        ordinals = {place: place[1] for place in used} | self._ordinals
        rows["TARGET_INFO_CUDA_DEVICE"] = [
            {"gpuId": gpu, "cudaId": ordinal, "pid": pid} for (pid, ordinal), gpu in ordinals.items()
        ]
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


def _operation(call: CallRow | Thread, start: int, end: int, device: int, stream: int) -> Row:
    thread, correlation = (call, 0) if isinstance(call, Thread) else (call.thread, call.correlation)
    place: Row = {"start": start, "end": end, "deviceId": device, "contextId": 1 + device, "streamId": stream}
    return {**place, "correlationId": correlation, "globalPid": thread.global_pid}


def _sync(call: CallRow, start: int, end: int, device: int, stream: int) -> Row:
    """Of a sync nsys tells the context, and always GPU 0."""
    return {**_operation(call, start, end, device, stream), "deviceId": 0}


def _pairs(pairs: Mapping[str, str]) -> list[Row]:
    return [{"name": name, "value": value} for name, value in pairs.items()]
