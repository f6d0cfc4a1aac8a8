"""The register of tables: each table that nsys is known to export, what it holds, and whether boundby reads it.

What is read is what the readers declare (``DECLARED`` of each). What is not read stands here, so that a report can name
it. docs/tables.md and the line of ``--full`` are made from this register.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import chain

from msgspec import Struct

from boundby.model.errors import UserError
from boundby.readers.nsys import (
    allocations,
    callchains,
    database,
    gpu_tables,
    host_tables,
    identity,
    message_tables,
    metadata,
    metrics,
)
from boundby.readers.nsys.database import Database, Reads
from boundby.trace.facts import UnreadTable

READ, TOLD, NOT_READ = "read", "told only", "not read"
#: Each declares what it reads.
_READERS = (
    database,
    metadata,
    identity,
    gpu_tables,
    host_tables,
    message_tables,
    metrics,
    allocations,
    callchains,
)
#: Tables of which boundby tells that they are there.
_TOLD: dict[str, str] = {}
#: Tables, or patterns of their names, that are not read, and what they hold. The first that fits counts.
_NOT_READ = {
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
    "UCP_*": "workers and progress of UCX",
    "UCX_*": "workers and progress of UCX",
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
_LABELS = "ENUM_*"


class Registered(Struct, frozen=True):
    """One row of the register."""

    table: str  # or a pattern of names
    use: str
    gives: str
    columns: tuple[str, ...] = ()


def read_tables() -> dict[str, Registered]:
    """The tables that are read: the columns that any reader asks for, in order of the first that does."""
    declared: dict[str, list[Reads]] = {}
    for reads in chain.from_iterable(reader.DECLARED for reader in _READERS):
        declared.setdefault(reads.table, []).append(reads)
    return {
        table: Registered(
            table,
            READ,
            "; ".join(dict.fromkeys(reads.gives for reads in parts)),
            tuple(dict.fromkeys(column for reads in parts for column in reads.columns)),
        )
        for table, parts in declared.items()
    }


def register() -> tuple[Registered, ...]:
    """All of it: what is read, told and not read, each by name."""
    told = [Registered(table, TOLD, gives) for table, gives in _TOLD.items()]
    others = [Registered(table, NOT_READ, gives) for table, gives in _NOT_READ.items()]
    others.append(Registered(_LABELS, NOT_READ, "labels of codes; where no row here says that they are read"))
    return (
        *sorted(read_tables().values(), key=lambda row: row.table),
        *sorted(told, key=lambda row: row.table),
        *sorted(others, key=lambda row: row.table),
    )


def unread(database: Database) -> tuple[UnreadTable, ...]:
    """The tables with rows that are not read, those with most rows first. Views hold nothing of their own."""
    known = read_tables().keys() | _TOLD.keys()
    rest = (table for table in database.tables - database.views if table not in known)
    found = [told for table in rest if not fnmatchcase(table, _LABELS) for told in _told(database, table)]
    return tuple(sorted(found, key=lambda table: (-(table.rows or 0), table.name)))


def _told(database: Database, table: str) -> Iterator[UnreadTable]:
    """The table, if it has rows; of one that is damaged nobody knows how many."""
    try:
        rows = database.row_count(table)
    except UserError:
        rows = None
    if rows != 0:
        fits = (gives for pattern, gives in _NOT_READ.items() if fnmatchcase(table, pattern))
        yield UnreadTable(table, rows, next(fits, UNKNOWN))


_PAGE = """# Tables of a report

nsys writes each kind of data into a table of its own, some hundred kinds in all. This page is the register of them,
made by `python -m boundby.readers.nsys.register`: what boundby reads, and what it does not. `boundby analyze REPORT
--full` names the tables of a report that hold rows and are not read; the JSON has them as `trace.not_read`.

A table without a row here is named all the same, as one that boundby does not know.
"""


def page() -> str:
    """docs/tables.md: one table for each use."""
    parts = [_PAGE]
    for use, title in ((READ, "Read"), (TOLD, "Told only"), (NOT_READ, "Not read")):
        has_columns = use == READ
        head = "| table | what it gives | columns |" if has_columns else "| table | what it holds |"
        rule = "| --- | --- | --- |" if has_columns else "| --- | --- |"
        parts += [f"## {title}", "", head, rule]
        for row in register():
            columns = f" {', '.join(f'`{column}`' for column in row.columns)} |" if has_columns else ""
            parts += [f"| `{row.table}` | {row.gives} |{columns}"] if row.use == use else []
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
