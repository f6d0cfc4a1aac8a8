"""Reader for the exports of nsys, schema 1.x (2019) to 3.25 (2026).

Every variation of exports (tests/readers/test_facts.py) is met by probing columns, never by asking a version.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.model.arrays import Int64Array
from boundby.model.errors import InputError, SelectionError, UserError
from boundby.model.scale import PLENTY
from boundby.model.stage import NOISE_BYTES, Room
from boundby.model.units import MS, S, percent, size
from boundby.readers.files import export_again
from boundby.readers.nsys import (
    allocations,
    callchains,
    database,
    gpu_tables,
    host_tables,
    identity,
    metadata,
)
from boundby.readers.nsys.columnar import open_database
from boundby.readers.nsys.database import MISSING, Database, Reads
from boundby.readers.nsys.host_tables import Raw
from boundby.readers.nsys.host_tables import file_accesses as accesses_of
from boundby.readers.nsys.identity import Identities, Indexes, NamePool
from boundby.readers.sanitize import sanitize
from boundby.trace.facts import Captured, TraceWarning, UnreadTable
from boundby.trace.stacks import LazyBacktraces
from boundby.trace.tables import LaunchShapes, MemoryPoints, MetricSamples, OpKind, Trace

# The register of tables: each table that nsys is known to export, what it holds, and whether boundby reads it.
#
# What is read is what the readers declare (``DECLARED`` of each). What is not read stands here, so that a report can
# name it. docs/tables.md (``python -m benchmarks.tables``) and the line of ``--full`` are made from this register.

#: Each declares what it reads.
_READERS = (
    database,
    metadata,
    identity,
    gpu_tables,
    host_tables,
    allocations,
    callchains,
)
#: Tables, or patterns of their names, that are not read, and what they hold. The first that fits counts.
NOT_READ = {
    "ANALYSIS_DETAILS": "when the recording began and ended",
    "ANALYSIS_FILE": "files that the profiler packed into the report",
    "CPU_CORE_EVENTS": "events of CPU cores",
    "CUDA_GPU_MEMORY_POOL_EVENTS": "memory pools",
    "D3D12_*": "Direct3D 12",
    "DX1[12]_*": "Direct3D",
    "DXGI_*": "DXGI",
    "ETW_*": "Event Tracing for Windows",
    "FECS_EVENTS": "context switches inside the GPU",
    "FTRACE_*": "events of the Linux kernel",
    "GENERIC_EVENT_*": "which sources GENERIC_EVENTS come from",
    "GPU_CONTEXT_SWITCH_EVENTS": "context switches of the GPU between processes",
    "GPU_VIDEO_ENGINE_*": "work of video engines",
    "ISR_EVENTS": "interrupts",
    "KHR_DEBUG_EVENTS": "debug groups of OpenGL and Vulkan",
    "MFT_*": "Media Foundation transforms",
    "NET_*": "network cards and InfiniBand switches",
    "NIC_*": "network cards",
    "NVDRIVER_*": "events of the NVIDIA driver",
    "NVLINK_*": "NVLink",
    "NVMEDIA_*": "NvMedia",
    "NVTX_COUNTER*": "counters of NVTX",
    "NVTX_PAYLOAD_*": "schemas of values in NVTX ranges",
    "NVTX_SCOPES": "scopes of NVTX counters",
    "NVVIDEO_*": "video encoder and decoder calls",
    "OPENGL_*": "OpenGL",
    "OPENMP_*": "instants of OpenMP: locks made, tasks switched",
    "OPENXR_*": "OpenXR",
    "PERF_EVENT_*": "counters of CPU cores",
    "PMU_*": "counters of CPU cores",
    "PROCESS_*": "starts and ends of processes",
    "QNX_*": "QNX kernel events",
    "SLI_*": "links between GPUs, for graphics",
    "SOC_*": "counters of the chip",
    "STORAGE_*": "storage devices",
    "SYSCALL*": "system calls",
    "TARGET_INFO_NETWORK_METRICS": "names of network counters",
    "TARGET_INFO_NIC_INFO": "network cards of the machine",
    "TARGET_INFO_*": "the machine and the processes",
    "THREAD_*": "threads",
    "UCP_*": "workers of UCX",
    "UCX_*": "workers of UCX",
    "VULKAN_*": "Vulkan",
    "WDDM_*": "scheduling and memory of the GPU by Windows",
    "cuFile*": "GPUDirect Storage",
    "CUFILE_*": "GPUDirect Storage",
    # What statistics scripts, and exports before 2021, leave in a file.
    "*Stats": "sums that a script of nsys left",
    "DomainStrings": "names of NVTX domains, in exports of 2019 and 2020",
    "MemcpyOperationStrings": "labels of copies, in exports of 2019 and 2020",
    "UnwindMethodType": "labels of backtraces, in exports before 2023",
}
UNKNOWN = "no table of nsys that boundby knows"
#: Labels of codes: the same in every export of a version, so that none is missed.
LABELS = "ENUM_*"


class ReadTable(NamedTuple):
    """What a table that is read gives, and the columns that any reader asks it for."""

    gives: str
    columns: tuple[str, ...]


def read_tables() -> dict[str, ReadTable]:
    """The tables that are read, with their columns in order of the first reader that asks for them."""
    declared: dict[str, list[Reads]] = {}
    for reads in chain.from_iterable(reader.DECLARED for reader in _READERS):
        declared.setdefault(reads.table, []).append(reads)
    return {
        table: ReadTable(
            "; ".join(dict.fromkeys(reads.gives for reads in parts)),
            tuple(dict.fromkeys(column for reads in parts for column in reads.columns)),
        )
        for table, parts in declared.items()
    }


def unread(database: Database) -> tuple[UnreadTable, ...]:
    """The tables with rows that are not read, those with most rows first. Views hold nothing of their own."""
    tables_read = read_tables().keys()
    rest = (table for table in database.tables - database.views if table not in tables_read)
    unread_tables = [
        table_told for table in rest if not fnmatchcase(table, LABELS) for table_told in _told(database, table)
    ]
    return tuple(sorted(unread_tables, key=lambda table: (-(table.rows or 0), table.name)))


def _told(database: Database, table: str) -> Iterator[UnreadTable]:
    """The table, if it has rows; of one that is damaged nobody knows how many."""
    try:
        rows = database.row_count(table)
    except UserError:
        rows = None
    if rows != 0:
        fits = (gives for pattern, gives in NOT_READ.items() if fnmatchcase(table, pattern))
        yield UnreadTable(table, rows, next(fits, UNKNOWN))


#: Python, NumPy and boundby itself.
FIXED_BYTES = NOISE_BYTES
#: Bytes of each row, measured at the peak of whole analyses (docs/performance.md): tables, account, graph.
EVENT_BYTES, RANGE_BYTES = 180, 400
#: Bytes of each frame of a backtrace, measured alike; all backtraces are read, whatever part of the capture is.
FRAME_BYTES = EVENT_BYTES // 2
#: Bytes of each sample of a GPU's counter, measured at 1 and at 3 million.
COUNTER_BYTES = EVENT_BYTES // 3
_COUNTERS = "GPU_METRICS"
_BACKTRACES = ("SAMPLING_CALLCHAINS", "CUDA_CALLCHAINS", "OSRT_CALLCHAINS")
_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": EVENT_BYTES,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": EVENT_BYTES,
    "CUPTI_ACTIVITY_KIND_MEMCPY": EVENT_BYTES,
    "CUPTI_ACTIVITY_KIND_MEMSET": EVENT_BYTES,
    "CUPTI_ACTIVITY_KIND_RUNTIME": EVENT_BYTES,
    "CUPTI_ACTIVITY_KIND_DRIVER": EVENT_BYTES,
    "NVTX_EVENTS": RANGE_BYTES,
    "OSRT_API": EVENT_BYTES,
    "SCHED_EVENTS": EVENT_BYTES,
    "COMPOSITE_EVENTS": EVENT_BYTES,
}


def cut_to_fit(database: Database, room: Room) -> tuple[int, TraceWarning] | None:
    """From when on the export is to be read so that its analysis stays within the room, and what to say of it; None:
    all of it fits. Raises SelectionError where what must be read does not fit."""
    rows = {table: database.row_count(table) for table in _TABLES if database.has(table, "start")}
    frames = sum(database.row_count(table) for table in _BACKTRACES if database.has(table, "symbol"))
    counters = database.row_count(_COUNTERS) if database.has(_COUNTERS, "timestamp") else 0
    fixed = FIXED_BYTES + FRAME_BYTES * frames + COUNTER_BYTES * counters
    need = fixed + sum(_TABLES[table] * number for table, number in rows.items())
    if need <= room.most_bytes:
        return None
    whole = f"All of {database.path} would take about {size(need)} of memory, and {size(room.most_bytes)} are allowed"
    for_all = f"--max-memory {math.ceil(need / 1e6)}M"
    parts = [_sampled(database, table, number) for table, number in rows.items() if number]
    start_ns, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-start_ns, kind="stable")
    fits = int((np.cumsum(weight[order]) <= room.most_bytes - fixed).sum())
    if fits == 0:
        raise SelectionError(f"{whole}.", f"Allow more: {for_all} reads all of it.")
    begin = -(-int(start_ns[order[fits - 1]]) // MS) * MS
    if room.from_ns is not None and room.from_ns < begin:
        raise SelectionError(
            f"{whole}.",
            f"Analyse the last part, which fits: --window {begin // MS}ms: (or allow more: {for_all}).",
        )
    share = float(weight[order[:fits]].sum() / weight.sum())
    text = (
        f"{whole} (--max-memory): only what begins at {begin / 1e9:.3f} s or later was read, the last {percent(share)} "
        f"of it, as if the capture had begun there; {for_all} reads all of it."
    )
    return begin, TraceWarning("max-memory", text)


def _sampled(database: Database, table: str, rows: int) -> tuple[Int64Array, npt.NDArray[np.float64]]:
    """When some rows begin, and how many bytes each stands for."""
    wanted = np.unique(np.linspace(1, rows, PLENTY).astype(np.int64))
    if table in database.in_files:
        start = database.columns(table, ("start",))["start"][wanted - 1]
        return start, np.full(len(start), _TABLES[table] * rows / len(start))
    is_numbered = database.is_numbered(table)
    if is_numbered:
        query = f'SELECT start FROM "{table}" WHERE _rowid_ IN ({", ".join(map(str, wanted.tolist()))})'
    else:
        query = f'SELECT min(start) FROM "{table}" UNION ALL SELECT max(start) FROM "{table}"'
    row_ids = [value for (value,) in database.rows(query) if isinstance(value, int)] or [0]
    if not is_numbered:  # as if its events came evenly
        row_ids = [row_ids[0] + (row_ids[-1] - row_ids[0]) * number // PLENTY for number in range(PLENTY + 1)]
    return np.array(row_ids, np.int64), np.full(len(row_ids), _TABLES[table] * rows / len(row_ids))


Progress = Callable[[str, float | None], None]

_OPERATIONS = "GPU operations"
#: A device's clock may run so far behind the host's (a real trace: 0.15 s).
_CLOCKS_APART_NS = S
# What is said before each table is read, and which part of all reading is done by then.
_STAGES = {
    host_tables.CALLS: ("reading CUDA API calls", 0.3),
    host_tables.RANGES: ("reading NVTX ranges", 0.6),
    host_tables.OS_CALLS: ("reading host events", 0.8),
}
_KNOWN_PREFIXES = ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "ENUM_NSYS_", "MPI_")
_KNOWN_TABLES = ("NVTX_EVENTS", "OSRT_API", "SCHED_EVENTS", "COMPOSITE_EVENTS", "ProcessStreams", "PROFILER_OVERHEAD")
_INTERVAL = ("start", "end", "globalTid")
_REQUIRED = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": ("start", "end"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (*_INTERVAL, "nameId"),
    "NVTX_EVENTS": (*_INTERVAL, "eventType"),
    "OSRT_API": (*_INTERVAL, "nameId"),
    "SCHED_EVENTS": ("start", "isSchedIn", "globalTid"),
    "COMPOSITE_EVENTS": ("start", "globalTid"),
    "PROFILER_OVERHEAD": _INTERVAL,
}


def read(path: Path, *, name: str | None, source: str, progress: Progress, room: Room | None = None) -> Trace:
    """Read an nsys SQLite export into a Trace: see `boundby.readers.read_trace`."""
    shown = path if name is None else Path(name)
    with open_database(path, shown) as database:
        _check_tables(database)
        progress("reading GPU operations", 0.0)
        # A folder of columns is read whole.
        cut = None if room is None or path.is_dir() else cut_to_fit(database, room)
        since_ns = None if cut is None else cut[0]
        raw, shapes = _events(database, since_ns, progress)
        about = metadata.read_metadata(database)
        notes = about.warnings if cut is None else (cut[1], *about.warnings)
        broken = sanitize(shown, raw, export_again(shown))
        span = _span([table for what, table in raw.items() if what != host_tables.OVERHEAD])
        if span is None:
            raise _no_events(database, about)
        identities = Identities.collect(
            threads=[raw[what]["globalTid"] for what in host_tables.EVENTS], processes=[raw[_OPERATIONS]["globalPid"]]
        )
        indexes = Indexes(database, identities, NamePool(), span[1])
        built = _build(raw, indexes, since_ns)
        if since_ns is not None:  # nor what is told of calls that were left out
            told_of = np.isin(built.stream_points.correlation, built.api.correlation)
            built = replace(built, stream_points=built.stream_points.take(told_of))
        return replace(
            built,
            path=name or str(path),
            source=source,
            nsys_version=about.nsys_version,
            exported_by=about.exported_by,
            schema_version=about.schema_version,
            command=about.command,
            warnings=(
                *notes,
                *broken,
                *callchains.lost_python_stacks(database),
                *built.warnings,
            ),
            span_ns=span,
            metadata=about.capture,
            not_recorded=about.not_recorded,
            place=about.place,
            start_unix_ns=about.start_unix_ns,
            not_read=unread(database),
            written=metadata.read_written(database),
            diagnostics=about.diagnostics,
            machine=about.machine,
            shapes=shapes,
            page_faults=gpu_tables.read_page_faults(database),
            backtraces=LazyBacktraces(partial(callchains.read_later, path, shown, identities)),
        )


def _events(database: Database, since_ns: int | None, progress: Progress) -> tuple[dict[str, Raw], LaunchShapes]:
    """All tables of events, those that begin then or later, and the launch shapes of their kernels."""
    raw: dict[str, Raw] = {}
    early_ns = None if since_ns is None else since_ns - _CLOCKS_APART_NS
    raw[_OPERATIONS], shapes = gpu_tables.read_operations(database, early_ns)
    for what in host_tables.EVENTS:
        if what in _STAGES:
            progress(*_STAGES[what])
        raw[what] = host_tables.read_events(database, what, since_ns)
    if since_ns is not None:
        raw[_OPERATIONS] = _launched_since(raw, since_ns)
    return raw, shapes


def _launched_since(raw: dict[str, Raw], since_ns: int) -> Raw:
    """Operations that calls launched that are kept, and whatever runs from the first of these on."""
    operations = raw[_OPERATIONS]
    launched = np.isin(operations["correlationId"], raw[host_tables.CALLS]["correlationId"])
    launched &= operations["correlationId"] != MISSING
    first_ns = int(operations["start"][launched].min()) if launched.any() else since_ns
    kept = launched | (operations["start"] >= first_ns)
    return {column: values[kept] for column, values in operations.items()}


def _build(raw: dict[str, Raw], indexes: Indexes, since_ns: int | None) -> Trace:
    """The tables of a trace. Raw columns are dropped as their table is built: at a million kernels they weigh most."""
    database, identities = indexes.database, indexes.identities
    has_graph_nodes = bool((raw[_OPERATIONS]["graphNodeId"] != MISSING).any())
    gpus = gpu_tables.read_gpus(database, raw[_OPERATIONS])
    operations, graph_nodes = gpu_tables.operations(raw.pop(_OPERATIONS), gpus, indexes)
    api = host_tables.api_calls(raw.pop(host_tables.CALLS), indexes)
    ranges, domains, known_constructs = host_tables.with_constructs(
        *host_tables.ranges(raw.pop(host_tables.RANGES), indexes), raw.pop(host_tables.CONSTRUCTS), indexes
    )
    threads, processes = identities.describe(database)
    problems: list[TraceWarning] = []
    metric_samples = _beside(
        "The GPU's counters",
        partial(gpu_tables.metric_samples, database, gpus.ids, since_ns),
        MetricSamples.empty(),
        problems,
    )
    memory = _beside(
        "Allocations of GPU memory",
        partial(allocations.memory_points, database, gpus, identities, api, threads),
        MemoryPoints.empty(),
        problems,
    )
    budget: tuple[TraceWarning, ...] = _beside(
        "GPU memory budgets", partial(allocations.paging, database), (), problems
    )
    file_accesses = accesses_of(database, indexes)
    trace = Trace(
        path="",
        source="",
        operations=operations,
        graph_nodes=graph_nodes,
        api=api,
        ranges=ranges,
        os_calls=host_tables.intervals(raw.pop(host_tables.OS_CALLS), indexes),
        overhead=host_tables.intervals(raw.pop(host_tables.OVERHEAD), indexes),
        schedule=host_tables.schedule(raw.pop(host_tables.SWITCHES), indexes),
        samples=host_tables.samples(raw.pop(host_tables.SAMPLES), indexes),
        names=indexes.pool.names(),
        domains=domains,
        threads=threads,
        processes=processes,
        gpus=gpus.info,
        captured=Captured(),
        gpu_facts=gpus.facts,
        stream_points=gpu_tables.points(gpu_tables.read_points(database), gpus, identities, operations),
        streams=gpu_tables.streams(database, identities),
        constructs=known_constructs,
        file_accesses=file_accesses,
        metric_samples=metric_samples,
        memory=memory,
        warnings=(*problems, *budget),
        page_events=gpu_tables.page_events(database, gpus, bool((operations.kind == OpKind.MIGRATION).any())),
    )
    trace = replace(trace, captured=metadata.captured(database, trace, has_graph_nodes=has_graph_nodes))
    return host_tables.with_messages(trace, raw.pop(host_tables.MESSAGES), indexes)


_Found = TypeVar("_Found")


def _beside(what: str, read: Callable[[], _Found], nothing: _Found, problems: list[TraceWarning]) -> _Found:
    """What tells more about work that other tables hold: damage there is a warning, and the rest is read."""
    try:
        return read()
    except InputError:
        problems.append(
            TraceWarning("broken-rows", f"{what} cannot be read from this export: they count as not captured.")
        )
        return nothing


def _check_tables(database: Database) -> None:
    tables = database.tables
    if "StringTable" in tables and "StringIds" not in tables:
        raise InputError(
            f"{database.path} was written by nvprof, not by nsys.",
            "Capture with nsys instead: nsys profile --trace=cuda,nvtx,osrt PROGRAM",
        )
    if any(table.startswith(_KNOWN_PREFIXES) or table in _KNOWN_TABLES for table in tables):
        _check_columns(database)
        return
    if "StringIds" in tables:
        raise InputError(
            f"{database.path} is a half-written export: it holds texts but no events.", export_again(database.path)
        )
    if not tables:
        raise InputError(
            f"{database.path} is an empty SQLite database: the export did not finish.", export_again(database.path)
        )
    some = ", ".join(sorted(tables)[:3])
    raise InputError(
        f"{database.path} is an SQLite database of another program (tables: {some} ...), not an nsys export.",
        "Name a .nsys-rep report or the .sqlite file that nsys exported from it.",
    )


def _check_columns(database: Database) -> None:
    """Without these columns an account could be made, but it would be wrong."""
    for table, columns in _REQUIRED.items():
        missing = [column for column in columns if table in database.tables and not database.has(table, column)]
        if missing:
            raise InputError(
                f"{database.path} is not an export that boundby can read: "
                f"its table {table} has no column {' or '.join(missing)}.",
                export_again(database.path),
            )
    named = [table for table, columns in _REQUIRED.items() if "nameId" in columns and table in database.tables]
    if named and not database.has("StringIds", "id", "value"):
        raise InputError(
            f"{database.path} is incomplete: it lacks StringIds, the table of all names.", export_again(database.path)
        )


def _no_events(database: Database, about: metadata.Metadata) -> InputError:
    if about.is_complete:
        return InputError(
            f"{database.path} holds no events: the capture recorded nothing boundby can read.",
            "Capture again with: nsys profile --trace=cuda,nvtx,osrt PROGRAM",
        )
    return InputError(
        f"{database.path} is a half-written export: it ends before the first event table.", export_again(database.path)
    )


def _span(tables: list[Raw]) -> tuple[int, int] | None:
    """First start and last end (or start, for instants) of any event in any table."""
    lows, highs = [], []
    for table in tables:
        start = table["start"]
        if len(start):
            lows.append(int(start.min()))
            highs.append(int(max(start.max(), np.max(table["end"]) if "end" in table else start.max())))
    return (min(lows), max(highs)) if lows else None
