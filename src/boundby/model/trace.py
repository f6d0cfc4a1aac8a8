"""A trace as column tables: one NumPy array per column, rows in a total order, nothing derived.

Readers build it, the timeline reads it. Times are int64 nanoseconds on the trace's own clock. Threads and
processes are dense indexes into ``Trace.threads`` and ``Trace.processes``; names are indexes into
``Trace.names`` (-1: no name). Arrays are never written to after reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from boundby.model.report import Captured, GpuInfo, TraceWarning

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int16Array = npt.NDArray[np.int16]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

NO_CORRELATION = 0  # CUPTI numbers calls from 1; managed-memory migrations carry 0


class OpKind(IntEnum):
    """What a GPU operation is."""

    KERNEL = 0
    GRAPH = 1  # a whole CUDA graph traced as one operation
    MEMCPY = 2
    MEMSET = 3
    MIGRATION = 4  # a managed-memory page migration: a copy without a call


class MemoryKind(IntEnum):
    """Where memory lies, in boundby's own numbering."""

    UNKNOWN = -1
    PAGEABLE = 0
    PINNED = 1
    DEVICE = 2
    MANAGED = 3


class Direction(IntEnum):
    """Direction of a copy, in boundby's own numbering."""

    OTHER = -1
    HTOD = 0
    DTOH = 1
    DTOD = 2
    PTOP = 3
    HTOH = 4


TableT = TypeVar("TableT", bound="Table")


@dataclass(frozen=True)
class Table:
    """Columns of equal length. ``take`` picks rows of every column at once."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self: TableT, rows: npt.NDArray[Any]) -> TableT:
        """The table of the given rows (an index array or a boolean mask)."""
        return replace(self, **{column.name: getattr(self, column.name)[rows] for column in fields(self)})

    @classmethod
    def empty(cls: type[TableT]) -> TableT:
        return cls(**{column.name: np.empty(0, _DTYPES.get(column.name, np.int64)) for column in fields(cls)})


_DTYPES: dict[str, type] = {
    "device": np.int32,
    "process": np.int32,
    "thread": np.int32,
    "stream": np.int64,
    "kind": np.int8,
    "name": np.int32,
    "direction": np.int8,
    "source": np.int8,
    "target": np.int8,
    "domain": np.int32,
    "is_start_end": np.bool_,
    "is_open": np.bool_,
    "is_in": np.bool_,
    "is_communication": np.bool_,
}


@dataclass(frozen=True)
class Operations(Table):
    """GPU operations, ordered by device, start, end and then every other column."""

    start_ns: Int64Array
    end_ns: Int64Array
    device: Int32Array  # index into Trace.gpus
    process: Int32Array
    stream: Int64Array
    correlation: Int64Array  # NO_CORRELATION where there is none
    kind: Int8Array  # OpKind
    name: Int32Array  # kernels: index into Trace.names
    bytes: Int64Array  # copies and sets; 0 for kernels
    direction: Int8Array  # Direction of copies and migrations
    source: Int8Array  # MemoryKind of copies
    target: Int8Array
    is_communication: BoolArray  # NCCL, NVSHMEM, ... kernels


@dataclass(frozen=True)
class ApiCalls(Table):
    """CUDA runtime and driver calls, ordered by thread, start, -end."""

    start_ns: Int64Array
    end_ns: Int64Array
    thread: Int32Array
    correlation: Int64Array
    name: Int32Array


@dataclass(frozen=True)
class Ranges(Table):
    """NVTX ranges, ordered by thread, start, -end. Ranges left open end where the trace ends."""

    start_ns: Int64Array
    end_ns: Int64Array
    thread: Int32Array
    name: Int32Array
    domain: Int32Array  # index into Trace.domains
    is_start_end: BoolArray
    is_open: BoolArray


@dataclass(frozen=True)
class Intervals(Table):
    """Named host intervals: OS runtime calls, profiler overhead. Ordered by thread, start, -end."""

    start_ns: Int64Array
    end_ns: Int64Array
    thread: Int32Array
    name: Int32Array


@dataclass(frozen=True)
class Schedule(Table):
    """Context switches, ordered by thread and time."""

    start_ns: Int64Array
    thread: Int32Array
    is_in: BoolArray


@dataclass(frozen=True)
class Samples(Table):
    """CPU samples, ordered by thread and time. A thread is sampled only while it runs."""

    start_ns: Int64Array
    thread: Int32Array


@dataclass(frozen=True)
class Thread:
    """``pid`` and ``tid`` are the operating system's; ``process`` indexes Trace.processes."""

    pid: int
    tid: int
    process: int
    name: str


@dataclass(frozen=True)
class Process:
    pid: int
    name: str


@dataclass(frozen=True)
class Trace:
    """One report, read. Tables that were not captured are empty; ``captured`` tells which."""

    path: str
    source: str
    operations: Operations
    api: ApiCalls
    ranges: Ranges
    os_calls: Intervals
    overhead: Intervals
    schedule: Schedule
    samples: Samples
    names: tuple[str, ...]
    domains: tuple[str, ...]
    threads: tuple[Thread, ...]
    processes: tuple[Process, ...]
    gpus: tuple[GpuInfo, ...]
    captured: Captured
    nsys_version: str | None = None
    schema_version: str | None = None
    command: str | None = None
    warnings: tuple[TraceWarning, ...] = ()
    span_ns: tuple[int, int] = (0, 0)  # first and last instant of any event
    metadata: Mapping[str, str] = field(default_factory=dict)
