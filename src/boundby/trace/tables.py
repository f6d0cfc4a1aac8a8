"""A trace as column tables: one NumPy array per column, rows in a total order, nothing derived.

Readers build it, the timeline reads it. Times are int64 nanoseconds on the trace's own clock. Threads and
processes are dense indexes into ``Trace.threads`` and ``Trace.processes``; names are indexes into
``Trace.names`` (-1: no name). Arrays are never written to after reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array
from boundby.trace.facts import Captured, GpuInfo, TraceWarning
from boundby.trace.stacks import NO_BACKTRACES, LazyBacktraces

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
    "shape": np.int32,
    "is_record": np.bool_,
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
    shape: Int32Array = field(default_factory=lambda: np.empty(0, np.int32))  # kernels: row of Trace.shapes, else -1

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.start_ns):  # not given: no shape is known
            object.__setattr__(self, "shape", np.full(len(self.start_ns), -1, np.int32))


@dataclass(frozen=True)
class LaunchShapes(Table):
    """The distinct shapes in which kernels were launched."""

    blocks: Int64Array  # in the grid
    threads: Int64Array  # in a block
    registers: Int64Array  # of a thread; 0: not told
    shared_bytes: Int64Array  # of a block, static and dynamic


@dataclass(frozen=True)
class GpuFacts:
    """What the export tells of a GPU's hardware. 0: not told."""

    multiprocessors: int = 0
    capability: tuple[int, int] = (0, 0)  # compute capability
    warps_per_multiprocessor: int = 0
    registers_per_multiprocessor: int = 0
    shared_bytes_per_multiprocessor: int = 0


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
class StreamPoints(Table):
    """What calls say of streams and events: syncs, stream waits, event records. Ordered by process, correlation.

    A call is known by its process and correlation id, and what it does by its name.
    """

    process: Int32Array
    correlation: Int64Array
    device: Int32Array  # index into Trace.gpus; -1: not told
    stream: Int64Array  # -1: none
    event: Int64Array  # -1: none
    is_record: BoolArray  # from the table of event records


class StreamRole(IntEnum):
    """How a stream relates to the null stream (CUPTI's stream flags)."""

    UNKNOWN = 0
    FOLLOWS_NULL = 1  # waits for the null stream and is waited for by it
    INDEPENDENT = 2  # made with cudaStreamNonBlocking
    NULL = 3  # the null stream itself


@dataclass(frozen=True)
class Streams(Table):
    """What is told of the streams of each process, ordered by process and stream."""

    process: Int32Array
    stream: Int64Array
    kind: Int8Array  # StreamRole


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
    backtraces: LazyBacktraces = NO_BACKTRACES  # read when first asked for
    shapes: LaunchShapes = field(default_factory=LaunchShapes.empty)
    gpu_facts: tuple[GpuFacts, ...] = ()  # of each of ``gpus``; empty: not told
    page_faults: Mapping[str, int] = field(
        default_factory=dict
    )  # of managed memory, by "cpu", "gpu"; none: not captured
    stream_points: StreamPoints = field(default_factory=StreamPoints.empty)
    streams: Streams = field(default_factory=Streams.empty)

    @cached_property
    def process_of_thread(self) -> Int64Array:
        """The process of each of ``threads``: an index into ``processes``."""
        return np.array([thread.process for thread in self.threads], np.int64)
