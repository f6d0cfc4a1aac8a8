"""Reader for the SQLite exports of nsys, schema 1.x (2019) to 3.25 (2026).

Every variation of exports (tests/readers/test_facts.py) is met by probing columns, never by asking a version.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from boundby.model.arrays import Int64Array
from boundby.model.errors import InputError
from boundby.readers.nsys import callchains, gpu_tables, host_tables, metadata, stream_tables
from boundby.readers.nsys.columns import MISSING, Database
from boundby.readers.nsys.database import export_again, open_readonly
from boundby.readers.nsys.identity import Identities
from boundby.readers.nsys.names import NamePool
from boundby.readers.nsys.sift import sift
from boundby.trace.stacks import LazyBacktraces
from boundby.trace.tables import Trace

Progress = Callable[[str, float | None], None]

_KNOWN_PREFIXES = ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "ENUM_NSYS_")
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


def read_sqlite(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    source: str = "nsys-sqlite",
    progress: Progress | None = None,
) -> Trace:
    """Read an nsys SQLite export into a Trace.

    ``name`` and ``source`` say where the export came from when it was made from another report. Raises
    InputError for anything that is not a readable export with at least one event. The file is opened read-only
    and nothing is created beside it.
    """
    step = progress or _silent
    location = Path(path)
    shown = location if name is None else Path(name)
    with open_readonly(location) as connection:
        database = Database(connection, shown)
        _check_tables(database)
        step("reading GPU operations", 0.0)
        raw_operations, shapes = gpu_tables.read_operations(database)
        page_faults = gpu_tables.read_page_faults(database)
        step("reading CUDA API calls", 0.3)
        raw_api = host_tables.read_api(database)
        step("reading NVTX ranges", 0.6)
        raw_ranges = host_tables.read_ranges(database)
        step("reading host events", 0.8)
        raw_os = host_tables.read_os_calls(database)
        raw_schedule = host_tables.read_schedule(database)
        raw_samples = host_tables.read_samples(database)
        raw_overhead = host_tables.read_overhead(database)
        raw_points = stream_tables.read_points(database)
        about = metadata.read_metadata(database)
        notes = sift(
            shown,
            {
                "GPU operations": raw_operations,
                "CUDA API calls": raw_api,
                "NVTX ranges": raw_ranges,
                "OS runtime calls": raw_os,
                "context switches": raw_schedule,
                "CPU samples": raw_samples,
                "profiler overheads": raw_overhead,
            },
        )
        span = _span(raw_operations, raw_api, raw_ranges, raw_os, raw_schedule, raw_samples)
        if span is None:
            raise _no_events(database, about)
        tables = (raw_api, raw_ranges, raw_os, raw_schedule, raw_samples, raw_overhead)
        identities = Identities.collect(
            threads=[table["globalTid"] for table in tables], processes=[raw_operations["globalPid"]]
        )
        pool = NamePool()
        gpus, device_of, gpu_facts = gpu_tables.read_gpus(database, raw_operations)
        has_graph_nodes = bool((raw_operations["graphNodeId"] != MISSING).any())
        # Raw columns are dropped as soon as their table is built: at a million kernels they weigh most.
        operations = gpu_tables.operations(database, raw_operations, device_of, identities, pool)
        raw_operations.clear()
        calls = host_tables.api_calls(database, raw_api, identities, pool, span[1])
        raw_api.clear()
        ranges, domains = host_tables.ranges(database, raw_ranges, identities, pool, span[1])
        raw_ranges.clear()
        os_calls = host_tables.intervals(database, raw_os, identities, pool, span[1])
        overhead = host_tables.intervals(database, raw_overhead, identities, pool, span[1])
        schedule = host_tables.schedule(raw_schedule, identities)
        samples = host_tables.samples(raw_samples, identities)
        points = stream_tables.points(raw_points, device_of, identities)
        streams = stream_tables.streams(database, identities)
        threads, processes = identities.describe(database)
        captured = metadata.captured(
            database, operations, calls, ranges, os_calls, schedule, samples, has_graph_nodes=has_graph_nodes
        )
        has_chains, has_python = callchains.holds(database)
        captured = replace(captured, backtraces=has_chains, python_stacks=has_python)
        notes = (*notes, *callchains.lost_python_stacks(database))
    return Trace(
        path=name or str(path),
        source=source,
        operations=operations,
        api=calls,
        ranges=ranges,
        os_calls=os_calls,
        overhead=overhead,
        schedule=schedule,
        samples=samples,
        names=pool.names(),
        domains=domains,
        threads=threads,
        processes=processes,
        gpus=gpus,
        captured=captured,
        nsys_version=about.nsys_version,
        schema_version=about.schema_version,
        command=about.command,
        warnings=(*about.warnings, *notes),
        span_ns=span,
        metadata=about.capture,
        shapes=shapes,
        gpu_facts=gpu_facts,
        page_faults=page_faults,
        stream_points=points,
        streams=streams,
        backtraces=LazyBacktraces(partial(callchains.read_later, location, shown, identities)),
    )


def _silent(_stage: str, _fraction: float | None) -> None:
    """No progress is shown."""


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
                f"{database.path} is no export that boundby can read: "
                f"its table {table} has no column {' and none '.join(missing)}.",
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


def _span(*tables: dict[str, Int64Array]) -> tuple[int, int] | None:
    """First start and last end (or start, for instants) of any event in any table."""
    lows, highs = [], []
    for table in tables:
        start = table["start"]
        if len(start):
            lows.append(int(start.min()))
            highs.append(int(max(start.max(), np.max(table["end"]) if "end" in table else start.max())))
    return (min(lows), max(highs)) if lows else None
