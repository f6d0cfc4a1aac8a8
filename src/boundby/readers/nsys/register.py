"""The register of tables: each table that nsys is known to export, what it holds, and whether boundby reads it.

What is read is what the readers declare (``DECLARED`` of each). What is not read stands here, so that a report can name
it. docs/tables.md (``python -m benchmarks.tables``) and the line of ``--full`` are made from this register.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import chain
from typing import NamedTuple

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
    known = read_tables().keys()
    rest = (table for table in database.tables - database.views if table not in known)
    found = [told for table in rest if not fnmatchcase(table, LABELS) for told in _told(database, table)]
    return tuple(sorted(found, key=lambda table: (-(table.rows or 0), table.name)))


def _told(database: Database, table: str) -> Iterator[UnreadTable]:
    """The table, if it has rows; of one that is damaged nobody knows how many."""
    try:
        rows = database.row_count(table)
    except UserError:
        rows = None
    if rows != 0:
        fits = (gives for pattern, gives in NOT_READ.items() if fnmatchcase(table, pattern))
        yield UnreadTable(table, rows, next(fits, UNKNOWN))
