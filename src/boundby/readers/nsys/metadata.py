"""What was captured, by which nsys, with what it complained about."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

import numpy as np
from msgspec import Struct

from boundby.model.late import expression
from boundby.model.scale import LIST
from boundby.readers.nsys import callchains, host_tables
from boundby.readers.nsys.database import Database, Reads, as_text
from boundby.readers.nsys.identity import LOW_24
from boundby.trace.facts import (
    EXPORT_INCOMPLETE,
    LAUNCHING_SCRIPT,
    NO_GPU,
    Captured,
    Diagnostic,
    HostMachine,
    JobPlace,
    Severity,
    TraceWarning,
    Written,
)
from boundby.trace.tables import OpKind, Trace
from boundby.trace.vocabulary.last_words import TAIL
from boundby.trace.vocabulary.profiler import has_started_cuda, why_no_cuda

# nsys writes these into nearly every report; they say nothing about this one.
_NOISE = expression(
    r"^No \w[\w ]* events collected|^Not all [\w ]+ events might|^No MMAP events|^Scheduling information is absent"
    r"|^NVTX function nvtxDomainDestroy|might have not been started correctly|^Process was launched"
    r"|symbols? (?:might|could)",
    re.IGNORECASE,
)
_NOT_PERMITTED = expression(r"(?:context switch|thread sched|sampling)[^.]*(?:permi|paranoid|privilege|denied)", re.I)
_NO_COUNTERS = expression(r"ERR_NVGPUCTRPERM|insufficient privilege", re.IGNORECASE)
#: Files of nsys that it puts into the program lie in a folder that is named for its release.
_OWN_FILE = expression(r"nsight-systems(?:-cli)?[-/](\d{4}\.\d+\.\d+)/target-")
_NVTX_TRAP = "payload extension is incompatible"
_MOST_DIAGNOSTICS = LIST  # more of them hide the rest of the page


_PAIRS = ("name", "value")
DECLARED = (
    Reads("META_DATA_EXPORT", _PAIRS, "versions of nsys and of the schema"),
    Reads("EXPORT_META_DATA", _PAIRS, "versions of nsys and of the schema, in exports of 2022"),
    Reads("META_DATA_CAPTURE", _PAIRS, "the command, and what was asked for"),
    Reads("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",), "when the recording began"),
    Reads("TARGET_INFO_SYSTEM_ENV", ("name", "value"), "cores and driver of the machine"),
    Reads("ProcessStreams", ("globalPid", "filenameId", "contentId"), "the end of what the program printed"),
    Reads("DIAGNOSTIC_EVENT", ("severity", "text"), "what the profiler complained about"),
)


class Metadata(Struct, frozen=True):
    """Facts about capture and export. ``is_complete``: the exporter wrote its closing metadata (2022 on)."""

    nsys_version: str | None
    exported_by: str | None
    schema_version: str | None
    command: str | None
    warnings: tuple[TraceWarning, ...]
    capture: Mapping[str, str]
    not_recorded: Mapping[str, str]
    diagnostics: tuple[Diagnostic, ...]
    machine: HostMachine
    is_complete: bool
    place: JobPlace
    start_unix_ns: int | None


def read_metadata(database: Database) -> Metadata:
    """Read the metadata tables, under the names of any version."""
    export = dict(database.pairs("META_DATA_EXPORT") or database.pairs("EXPORT_META_DATA"))
    pairs = database.pairs("META_DATA_CAPTURE")
    capture = dict(reversed(pairs))  # of repeated names the first counts
    variables = (value.partition("=") for name, value in pairs if name == "PROCESS_0:ENVIRONMENT_VARIABLE")
    # Exports since 2022 close with their own metadata; older ones have neither it nor ANALYSIS tables.
    is_new = any(table.startswith("ANALYSIS_") for table in database.tables)
    is_complete = bool(export) or not is_new
    diagnostics, exported_by = read_diagnostics(database), export.get("EXPORT_PRODUCT_VERSION")
    warnings = _warnings(diagnostics)
    if not is_complete:
        text = "The export carries no closing metadata: it may have ended early, and tables may be missing."
        warnings.append(TraceWarning(EXPORT_INCOMPLETE, text))
    return Metadata(
        nsys_version=_recorder(database, diagnostics, exported_by),
        exported_by=exported_by,
        schema_version=export.get("EXPORT_SCHEMA_VERSION"),
        command=_command(capture),
        warnings=tuple(warnings),
        capture={name: value for name, value in capture.items() if "ENVIRONMENT" not in name},
        not_recorded=_not_recorded(database, pairs, warnings, diagnostics),
        diagnostics=diagnostics,
        machine=_machine(database),
        is_complete=is_complete,
        place=JobPlace.in_environment({name: value.strip('"') for name, _, value in variables}),
        start_unix_ns=_session_start_ns(database),
    )


def _recorder(database: Database, diagnostics: Sequence[Diagnostic], exported_by: str | None) -> str | None:
    """The version of nsys that recorded the report, by the paths of its own files in the program, such as
    ``/opt/nvidia/nsight-systems/2022.4.2/target-linux-x64/libToolsInjection64.so``; None: no such path is on record."""
    texts = [diagnostic.text for diagnostic in diagnostics]
    if database.has("StringIds", "value"):
        query = "SELECT value FROM StringIds WHERE value GLOB '*nsight-systems*/target-*' LIMIT 1"
        texts += [str(text) for (text,) in database.rows(query)]
    release = next((match[1] for text in texts if (match := _OWN_FILE.search(text))), None)
    return exported_by if release and (exported_by or "").startswith(f"{release}.") else release


def _not_recorded(
    database: Database,
    told: Sequence[tuple[str, str]],
    warnings: Sequence[TraceWarning],
    diagnostics: Sequence[Diagnostic],
) -> Mapping[str, str]:
    """Why kinds may be missing, as capture settings, target and diagnostics tell: what was asked for and did not come
    needs no flag. Says nothing of kinds that were not asked for."""
    asked = {value for name, value in told if name == "CAPTURE_EVENT_TYPE"}
    said = " ".join(warning.message for warning in warnings)
    reasons = {}
    if "Cuda" in asked:
        reasons["cuda"] = _no_cuda(database, diagnostics)
    if "NvtxEvents" in asked:
        reasons["nvtx"] = "none was opened: nvtxRangePush in C, C++ or Fortran opens them, boundby.annotate in Python"
        if any(warning.code == "nvtx-incompatible" for warning in warnings):
            reasons["nvtx"] = "the program's nvtx package is too new for this nsys: pip install nvtx==0.2.11"
    if "OSRuntime" in asked:
        reasons["osrt"] = "tracing was on, and no event came"
    if _NOT_PERMITTED.search(said):
        reasons["cpu_scheduling"] = "the system did not permit it (boundby doctor says how)"
    if any(name.startswith("GPU_METRICS_OPTIONS") for name, _ in told):
        reasons["gpu_metrics"] = "asked for, and the profiler delivered none"
    if _NO_COUNTERS.search(said):
        reasons["gpu_metrics"] = "the driver did not permit it: ERR_NVGPUCTRPERM"
    return reasons


def _no_cuda(database: Database, diagnostics: Sequence[Diagnostic]) -> str:
    if (refusal := why_no_cuda(diagnostics)) is not None:
        return refusal.because
    has_gpu = database.holds("TARGET_INFO_GPU") or has_started_cuda(diagnostics)
    return "tracing was on, and no event came" if has_gpu else NO_GPU


def _machine(database: Database) -> HostMachine:
    """Cores and driver of the machine that was recorded."""
    about = dict(database.pairs("TARGET_INFO_SYSTEM_ENV"))
    cores, driver = about.get("CpuCores", ""), about.get("CudaDriverVersion", "")
    cuda = f"{int(driver) // 1000}.{int(driver) % 1000 // 10}" if driver.isdecimal() and int(driver) else None
    return HostMachine(int(cores) if cores.isdecimal() and int(cores) else None, cuda, about.get("Hostname", ""))


def _session_start_ns(database: Database) -> int | None:
    """The wall clock at the zero of the report's times, as the target's machine had it."""
    if not database.has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
        return None
    rows = list(database.rows("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1"))
    return rows[0][0] if rows and isinstance(rows[0][0], int) else None


def _command(capture: Mapping[str, str]) -> str | None:
    """As it was typed: without the script in front."""
    program = capture.get("PROCESS_0:COMMAND")
    if not program:
        return None
    arguments: list[str] = []
    while (value := capture.get(f"PROCESS_0:ARGUMENT_{len(arguments)}")) is not None:
        arguments.append(value)
    if arguments and PurePath(arguments[0]).name == LAUNCHING_SCRIPT:
        return " ".join(arguments[1:])
    path = PurePath(program)  # ./main is what can be typed again; of a whole path the name tells enough
    return " ".join([path.name if path.is_absolute() else program, *arguments])


def _warnings(diagnostics: Sequence[Diagnostic]) -> list[TraceWarning]:
    warnings_read = [
        TraceWarning("profiler-error" if message.severity == Severity.ERROR else "profiler-warning", message.text)
        for message in diagnostics
        if message.severity >= Severity.WARNING and not _NOISE.search(message.text)
    ]
    trapped = any(_NVTX_TRAP in warning.message for warning in warnings_read)
    if trapped:
        trap = TraceWarning(
            "nvtx-incompatible",
            "The program's nvtx package is too new for this nsys, and its NVTX ranges were lost. "
            "Install nvtx==0.2.11, or capture with nsys 2024.4 or later.",
        )
        warnings_read = [trap, *(warning for warning in warnings_read if _NVTX_TRAP not in warning.message)]
    return warnings_read[:_MOST_DIAGNOSTICS]


def _annotated(domains: Sequence[str]) -> list[int]:
    """The domains that no compiler and no library records by itself."""
    return [number for number, name in enumerate(domains) if name not in host_tables.CONSTRUCT_DOMAINS.values()]


def captured(database: Database, trace: Trace, *, has_graph_nodes: bool) -> Captured:
    """Which kinds of data are there: a table that exists and is empty captured nothing."""
    kind = trace.operations.kind
    has_chains, has_python = callchains.holds(database)
    return Captured(
        kernels=bool((kind <= OpKind.GRAPH).any()),
        cuda_api=len(trace.api) > 0,
        memcpy=bool(np.isin(kind, (OpKind.MEMCPY, OpKind.MIGRATION)).any()),
        sync=database.holds("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"),
        nvtx=bool(np.isin(trace.ranges.domain, _annotated(trace.domains)).any()),
        osrt=len(trace.os_calls) > 0,
        cpu_scheduling=len(trace.schedule) > 0,
        cpu_samples=len(trace.samples) > 0,
        gpu_metrics=len(trace.metric_samples) > 0,
        cuda_graphs=bool((kind == OpKind.GRAPH).any()) or has_graph_nodes,
        backtraces=has_chains,
        python_stacks=has_python,
        memory=len(trace.memory) > 0,
    )


# The end of a stream tells how a program ended; a traceback and what its launcher adds take a few thousand characters.
_ERRORS, _OUTPUT = "stderr", "stdout"


def read_written(database: Database) -> tuple[Written, ...]:
    """The end of what each process wrote to its standard streams, in the order of processes."""
    if not database.has("ProcessStreams", "globalPid", "filenameId", "contentId"):
        return ()
    rows = database.rows(
        f"SELECT p.globalPid, name.value, substr(content.value, -{TAIL}) FROM ProcessStreams AS p"
        " JOIN StringIds AS name ON name.id = p.filenameId JOIN StringIds AS content ON content.id = p.contentId"
        " ORDER BY p.globalPid, p.filenameId"
    )
    written = []
    for process, name, value in rows:
        kind = next((kind for kind in (_ERRORS, _OUTPUT) if kind in (as_text(name) or "")), None)
        if kind is not None and (text := as_text(value)):
            pid = process >> 24 & LOW_24 if isinstance(process, int) else 0
            written.append(Written(pid, kind == _ERRORS, text))
    return tuple(written)


def read_diagnostics(database: Database) -> tuple[Diagnostic, ...]:
    """What the profiler noted, each text once and on one line, the most severe first."""
    if not database.has("DIAGNOSTIC_EVENT", "severity", "text"):
        return ()
    rows = database.rows("SELECT DISTINCT severity, text FROM DIAGNOSTIC_EVENT ORDER BY severity DESC, text")
    return tuple(
        Diagnostic(severity, " ".join(text.split()))
        for severity, value in rows
        if isinstance(severity, int) and (text := as_text(value))
    )
