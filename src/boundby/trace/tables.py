"""A trace as column tables: one NumPy array per column, rows in a total order, nothing derived.

Readers build it, the timeline reads it. Times are int64 nanoseconds on the trace's own clock. Threads and
processes are dense indexes into ``Trace.threads`` and ``Trace.processes``; names are indexes into
``Trace.names`` (-1: no name). Arrays are never written to after reading.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from boundby.model.arrays import (
    BoolArray,
    Float64Array,
    Int8Array,
    Int32Array,
    Int64Array,
    compact,
    factorize,
    is_any,
    is_even,
    is_in,
    least_two,
    merged,
    order_of,
    pick,
    ranked,
    rows_of,
    shared,
    spread,
    taken,
    unique,
)
from boundby.model.intervals import EMPTY, IntervalSet, union
from boundby.model.late import expression
from boundby.trace.facts import (
    BROKEN_ROWS,
    EXPORT_INCOMPLETE,
    PYTORCH,
    UNBELIEVABLE,
    Captured,
    Communicator,
    Cycle,
    Diagnostic,
    GpuInfo,
    HostMachine,
    JobPlace,
    ProcessGroup,
    TraceWarning,
    UnreadTable,
    Written,
)
from boundby.trace.stacks import NO_BACKTRACES, ROUNDED_NS, FrameStacks, LazyBacktraces
from boundby.trace.vocabulary.cuda import CallClass, OverheadClass, classify_call, classify_overhead
from boundby.trace.vocabulary.kernel_names import KernelKind, kind_of_kernel
from boundby.trace.vocabulary.last_words import LastWords
from boundby.trace.vocabulary.os import MessageKind, message_kind, receives, sends, sleep_kind
from boundby.trace.vocabulary.python import sleep_kind_of_frame
from boundby.trace.vocabulary.range_names import Shapes, is_library

NO_CORRELATION = 0  # CUPTI numbers calls from 1; managed-memory migrations carry 0
NO_STREAM = int(np.iinfo(np.uint32).max)  # how CUPTI writes "no stream" and "no event"


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


TableT = TypeVar("TableT", bound="ColumnTable")


#: The default of a column that need not be given: see ``UNTOLD``.
NOT_GIVEN: Any = None


class ColumnTable(Struct, frozen=True):
    """Columns of equal length. ``take`` picks rows of every column at once."""

    # The columns that rows are ordered by ("-": descending), so that nothing depends on the order in a file.
    ORDER: ClassVar[tuple[str, ...]] = ()
    # What stands in columns that are not given: of none of the rows anything is known.
    UNTOLD: ClassVar[Mapping[str, float]] = {}

    def __post_init__(self) -> None:
        for column, unknown in self.UNTOLD.items():
            if getattr(self, column) is None:
                force_setattr(self, column, spread(unknown, len(self), _DTYPES[self.__annotations__[column]]))

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    def take(self: TableT, rows: npt.NDArray[Any] | slice) -> TableT:
        """The table of the given rows (an index array, a boolean mask or a slice)."""
        if not isinstance(rows, slice) and rows.dtype == bool:
            rows = np.flatnonzero(rows)
        return replace(self, **{column: taken(getattr(self, column), rows) for column in self.__struct_fields__})

    def rows_of(self, thread: int) -> slice:
        """The rows of one thread, in a table ordered by thread."""
        return rows_of(getattr(self, "thread"), thread)  # noqa: B009 - not every table has the column

    def of_thread(self: TableT, thread: int) -> TableT:
        """The table of one thread's rows."""
        return self.take(self.rows_of(thread))

    def sorted(self: TableT, names: Sequence[str] = ()) -> TableT:
        """The rows in the table's own order; ``name`` counts by its text in ``names``."""

        def keys(columns: Sequence[str]) -> list[npt.NDArray[Any]]:
            values = {column: getattr(self, column.removeprefix("-")) for column in columns}
            return [
                -values[column]
                if column[0] == "-"
                else _text_ranks(values[column], names)
                if column == "name"
                else values[column]
                for column in columns
            ]

        for column in self.ORDER[:_LEADING]:  # the first that tells rows apart may tell all of them
            values = getattr(self, column.removeprefix("-"))
            if not is_even(values):
                if column[0] != "-" and column != "name" and order_of(values) == 2:
                    return self
                break
        leading = keys(self.ORDER[:_LEADING])
        if _ascend(leading):
            return self
        order = np.lexsort(leading[::-1])
        tied = np.ones(max(len(order) - 1, 0), bool)
        for key in leading:
            tied &= key[order[1:]] == key[order[:-1]]
        if tied.any():
            order = np.lexsort((*keys(self.ORDER[_LEADING:])[::-1], *leading[::-1]))
        return self.take(order)

    def and_more(self: TableT, columns: Mapping[str, npt.NDArray[Any]]) -> TableT:
        """These rows, and more behind them (out of order) of which only what the columns hold is known."""
        grown: dict[str, npt.NDArray[Any]] = {}
        for column in self.__struct_fields__:
            kind, own = _DTYPES[self.__annotations__[column]], getattr(self, column)
            more = columns[column] if column in columns else spread(self.UNTOLD[column], len(columns["start_ns"]), kind)
            grown[column] = np.concatenate((own, more)).astype(kind)
        return replace(self, **grown)

    @classmethod
    def empty(cls: type[TableT]) -> TableT:
        return cls(**{column: np.empty(0, _DTYPES[cls.__annotations__[column]]) for column in cls.__struct_fields__})


def _ascend(keys: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether each row comes after the one before it."""
    keys = [key for key in keys if not is_even(key)] or keys  # one value tells no rows apart
    if (order := order_of(keys[0])) != 1:
        return order == 2
    after = np.zeros(max(len(keys[0]) - 1, 0), bool)
    for key in reversed(keys):
        after = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & after)
    return bool(after.all())


# The first columns of an order tell nearly all rows apart; the others are only looked at where they do not.
_LEADING = 3
_DTYPES = {
    "Float64Array": np.float64,
    "Int64Array": np.int64,
    "Int32Array": np.int32,
    "Int8Array": np.int8,
    "BoolArray": np.bool_,
}


def _text_ranks(name: Int32Array, names: Sequence[str]) -> Int64Array:
    """A number for every row that sorts as its text does, whatever index the text has."""
    used, inverse = ranked(name)
    texts = [names[number] for number in used.tolist()]
    order = sorted(range(len(used)), key=texts.__getitem__)
    ranks = np.empty(len(used), np.int64)
    ranks[order] = np.arange(len(used))
    return ranks[inverse]


class Operations(ColumnTable, frozen=True, dict=True):
    """GPU operations, ordered by device, start, end and then every other column."""

    ORDER = ("device", "start_ns", "end_ns", "kind", "process", "stream", "correlation", "name", "bytes")
    UNTOLD = MappingProxyType({"shape": -1, "collective": -1, "node": -1})

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
    shape: Int32Array = NOT_GIVEN  # kernels: row of Trace.shapes, else -1
    collective: Int32Array = NOT_GIVEN  # row of Trace.collectives, else -1
    node: Int32Array = NOT_GIVEN  # row of Trace.graph_nodes, else -1

    @cached_property
    def busy(self) -> IntervalSet:
        """When at least one of them runs."""
        return union(self.start_ns, self.end_ns)

    def keep_busy(self, found: IntervalSet) -> None:
        """Have ``busy`` in columns that are kept anyway, and the times where no two run at once."""
        vars(self)["busy"] = found
        for column, kept in (("start_ns", found.start), ("end_ns", found.end)):
            force_setattr(self, column, shared(getattr(self, column), kept))

    @cached_property
    def is_pageable(self) -> BoolArray:
        """From or to pageable memory."""
        pageable: BoolArray = (self.source == MemoryKind.PAGEABLE) | (self.target == MemoryKind.PAGEABLE)
        return pageable


class LaunchShapes(ColumnTable, frozen=True):
    """The distinct shapes in which kernels were launched."""

    UNTOLD = MappingProxyType({"occupancy_percent": -1, "grid_x": 0, "grid_y": 0})

    blocks: Int64Array  # in the grid
    threads: Int64Array  # in a block
    registers: Int64Array  # of a thread; 0: not told
    shared_bytes: Int64Array  # of a block, static and dynamic
    occupancy_percent: Int64Array = NOT_GIVEN  # as CUPTI estimates it; -1
    grid_x: Int64Array = NOT_GIVEN  # 0: not told
    grid_y: Int64Array = NOT_GIVEN


class CollectiveTable(ColumnTable, frozen=True):
    """What is told of communication kernels, in no order: ``Operations.collective`` points here. -1: not told."""

    name: Int32Array  # of the collective ("_allgather_base"): index into Trace.names
    group: Int32Array  # index into Trace.process_groups
    dtype: Int32Array  # index into Trace.names
    group_size: Int64Array
    elements_in: Int64Array
    elements_out: Int64Array
    sequence: Int64Array  # number of the collective in its group
    uneven_percent: Int64Array  # of a collective of split sizes: the largest split, in percent of their mean


#: Bytes of an element, by the name that PyTorch has for its type, in small letters.
_BYTES_EACH = {
    **dict.fromkeys(("double", "long"), 8),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("char", "byte", "bool"), 1),
}


class GraphNodes(ColumnTable, frozen=True):
    """The nodes of CUDA graphs that operations ran for, or whose making is on record, in ascending order of process and
    node. A graph that is traced as a whole is one node."""

    process: Int32Array
    node: Int64Array  # its number in the graph that is launched
    original: Int64Array  # that of the node which it is a clone of; its own: of none, or not told
    thread: Int32Array  # which captured the original of it, index into Trace.threads; -1: not told
    captured_ns: Int64Array  # when; 0 where that is not told

    @classmethod
    def of(cls, process: Int32Array, node: Int64Array) -> tuple[GraphNodes, Int32Array]:
        """These nodes (-1: none), of whose capture nothing is told, and each one's row."""
        row = spread(-1, len(node), np.int32)
        if not len(rows := np.flatnonzero((node >= 0) & (process >= 0))):
            return cls.empty(), row
        distinct, of_row = factorize(process[rows], node[rows])
        row = row.copy()
        row[rows] = of_row
        count = len(distinct)
        number = distinct[:, 1].copy()
        unknown = spread(-1, count, np.int32), spread(0, count)
        return cls(distinct[:, 0].astype(np.int32), number, number, *unknown), row


class GraphRangeTable(Struct, frozen=True):
    """The ranges that were opened while one graph was captured, each before those in it; arrays of one length."""

    name: Int32Array  # in Trace.names
    domain: Int32Array  # in Trace.domains
    arguments: Int32Array  # in Trace.arguments, else -1
    last: Int64Array  # the place here of the last one that lies in each

    def __len__(self) -> int:
        return len(self.name)


class CapturedGraph(Struct, frozen=True):
    """One graph's capture. Names, domains and arguments count in the trace that holds it."""

    path: str  # of the recording
    pid: int
    ranges: GraphRangeTable
    work: Int8Array  # of each launch, in order: CallWork
    kernel: Int32Array  # what each launches, in Trace.names; -1: no kernel, or not told
    leaf: Int64Array  # the place of the innermost of ``ranges`` around each; -1: none
    nodes: Mapping[int, int]  # the launch of each node, by the node's number, clones' too; empty: not on record


class MemoryPoints(ColumnTable, frozen=True):
    """What a framework's allocator, or CUDA's in nsys reports, held after each allocation and release, ordered by
    device and time. Bytes."""

    ORDER = ("device", "start_ns", "allocated", "reserved", "delta")

    device: Int32Array  # index into Trace.gpus; -1: the host
    start_ns: Int64Array
    thread: Int32Array
    delta: Int64Array  # negative: a release
    allocated: Int64Array  # in use, after it
    reserved: Int64Array  # held from the device, after it
    address: Int64Array  # -1: not told


class MetricSamples(ColumnTable, frozen=True):
    """What a GPU's counters say of one stretch of time after another, ordered by device and time: per cent of the most
    that it can do; -1: not told."""

    ORDER = ("device", "start_ns", "end_ns")

    start_ns: Int64Array
    end_ns: Int64Array
    device: Int32Array  # index into Trace.gpus
    gr_active: Int8Array  # time in which any engine works
    sm_active: Int8Array  # multiprocessors that hold a warp
    sm_issue: Int8Array  # cycles in which an instruction is issued
    tensor_active: Int8Array
    warps: Int8Array  # held, of those that fit
    dram_read: Int8Array
    dram_write: Int8Array
    pcie_receive: Int8Array
    pcie_send: Int8Array
    nvlink_receive: Int8Array
    nvlink_send: Int8Array


class GpuFacts(Struct, frozen=True):
    """What the export tells of a GPU's hardware. 0: not told."""

    multiprocessors: int = 0
    capability: tuple[int, int] = (0, 0)  # compute capability
    warps_per_multiprocessor: int = 0
    registers_per_multiprocessor: int = 0
    shared_bytes_per_multiprocessor: int = 0


class CallTable(ColumnTable, frozen=True):
    """CUDA runtime and driver calls, ordered by thread, start, -end."""

    ORDER = ("thread", "start_ns", "-end_ns", "correlation", "name")
    UNTOLD = MappingProxyType({"has_failed": False, "kernel": -1})

    start_ns: Int64Array
    end_ns: Int64Array
    thread: Int32Array
    correlation: Int64Array
    name: Int32Array
    has_failed: BoolArray = NOT_GIVEN  # returned an error
    kernel: Int32Array = NOT_GIVEN  # what it launches, in Trace.names; -1


class Ranges(ColumnTable, frozen=True):
    """NVTX ranges, ordered by thread, start, -end. Ranges left open end where the trace ends."""

    ORDER = ("thread", "start_ns", "-end_ns", "name", "domain")
    UNTOLD = MappingProxyType({"arguments": -1, "sequence": -1, "payload": np.nan, "payload_name": -1})

    start_ns: Int64Array
    end_ns: Int64Array
    thread: Int32Array
    name: Int32Array
    domain: Int32Array  # index into Trace.domains
    is_start_end: BoolArray
    is_open: BoolArray
    arguments: Int32Array = NOT_GIVEN  # of Trace.arguments, else -1
    sequence: Int64Array = NOT_GIVEN  # of autograd: forward and backward
    payload: Float64Array = NOT_GIVEN  # the number it carries, else NaN
    payload_name: Int32Array = NOT_GIVEN  # what that is, in Trace.names; -1


class Construct(Struct, frozen=True, order=True):
    """What a directive of OpenACC does, and where it stands in the source. Empty, 0: not told."""

    file: str
    line: int
    what: str  # "enter data"
    variable: str

    def __str__(self) -> str:
        """``heat.c:51 enter data (u)``."""
        return " ".join(filter(None, (self.place, self.what, f"({self.variable})" if self.variable else "")))

    @property
    def place(self) -> str:
        """``heat.c:51``; empty where it is not told."""
        return f"{self.file}:{self.line}" if self.file and self.line > 0 else ""


class KernelSource(Struct, frozen=True):
    """Where a compiler wrote the source of a kernel, and how it launches it. Empty, 0: not told."""

    file: str
    warps: int
    stages: int
    parameters: str  # "XBLOCK=2,R0_BLOCK=2048"

    def __str__(self) -> str:
        """``/tmp/cmwj.py (num_warps=8, num_stages=1, XBLOCK=2)``."""
        numbers = (
            f"{name}={value}" for name, value in (("num_warps", self.warps), ("num_stages", self.stages)) if value
        )
        numbers_text = ", ".join((*numbers, *filter(None, self.parameters.split(","))))
        return f"{self.file} ({numbers_text})" if numbers_text else self.file


class OperatorArguments(Struct, frozen=True):
    """What an operator was called with, as JSON lists of one place per input; "" where it is not told."""

    sizes: str  # [[16, 559], [], [[3, 4], [5, 6]]]: a tensor's, none for what is no tensor, a list of tensors'
    types: str  # ["c10::BFloat16", "Scalar", "TensorList"]
    values: str  # ["", "-1", ""]: of what is no tensor
    strides: str = ""  # [[559, 1], [], [[4, 1], [6, 1]]]: as the sizes, how far apart neighbours lie


class Intervals(ColumnTable, frozen=True):
    """Named host intervals: OS runtime calls, profiler overhead. Ordered by thread, start, -end."""

    ORDER = ("thread", "start_ns", "-end_ns", "name")

    start_ns: Int64Array
    end_ns: Int64Array
    thread: Int32Array
    name: Int32Array


class FileAccesses(ColumnTable, frozen=True):
    """Reads and writes of files, ordered by start."""

    ORDER = ("start_ns", "end_ns", "tid", "name", "bytes", "is_write")

    start_ns: Int64Array
    end_ns: Int64Array
    tid: Int64Array  # the operating system's number of the thread
    name: Int32Array  # the file's path
    bytes: Int64Array
    is_write: BoolArray


class MessageTable(ColumnTable, frozen=True):
    """Calls of message passing (MPI, UCX), ordered by thread, start, -end. -1: not told. What each does its name says:
    ``Trace.message_kind``."""

    ORDER = ("thread", "start_ns", "-end_ns", "name", "peer", "tag")

    start_ns: Int64Array
    end_ns: Int64Array
    thread: Int32Array
    name: Int32Array
    communicator: Int64Array  # the process's own handle: see Trace.communicators
    peer: Int64Array  # of a message: the other rank; of a collective: its root; ranks of the communicator
    tag: Int64Array
    sent_bytes: Int64Array
    received_bytes: Int64Array
    is_open: BoolArray  # the recording, or the process, ended in it


class Schedule(ColumnTable, frozen=True, dict=True):
    """Context switches, ordered by thread and time."""

    ORDER = ("thread", "start_ns", "is_in")

    start_ns: Int64Array
    thread: Int32Array
    is_in: BoolArray

    @cached_property
    def begin_ns(self) -> int:
        """When the recording of switches began, as far as they tell: the first of any thread."""
        return int(self.start_ns.min())


class Samples(ColumnTable, frozen=True):
    """CPU samples, ordered by thread and time. A thread is sampled only while it runs."""

    ORDER = ("thread", "start_ns")

    start_ns: Int64Array
    thread: Int32Array


class StreamPoints(ColumnTable, frozen=True):
    """What calls say of streams and events: syncs, stream waits, event records. Ordered by process, correlation.

    A call is known by its process and correlation id, and what it does by its name.
    """

    ORDER = ("process", "correlation", "device", "stream", "event", "is_record", "start_ns", "end_ns")

    process: Int32Array
    correlation: Int64Array
    device: Int32Array  # index into Trace.gpus; -1: not told
    stream: Int64Array  # -1: none
    event: Int64Array  # -1: none
    is_record: BoolArray  # from the table of event records
    start_ns: Int64Array  # of a wait: within its call, to a microsecond; 0, as the end: not told
    end_ns: Int64Array


class StreamRole(IntEnum):
    """How a stream relates to the null stream (CUPTI's stream flags)."""

    UNKNOWN = 0
    FOLLOWS_NULL = 1  # waits for the null stream and is waited for by it
    INDEPENDENT = 2  # made with cudaStreamNonBlocking
    NULL = 3  # the null stream itself


class Streams(ColumnTable, frozen=True):
    """What is told of the streams of each process, ordered by process and stream."""

    process: Int32Array
    stream: Int64Array
    kind: Int8Array  # StreamRole


class ThreadRow(Struct, frozen=True):
    """``pid`` and ``tid`` are the operating system's; ``process`` indexes Trace.processes."""

    pid: int
    tid: int
    process: int
    name: str


class ProcessRow(Struct, frozen=True):
    pid: int
    name: str


class Paging(IntEnum):
    """What happens to pages of managed memory."""

    FAULT = 0  # a GPU touches pages that it does not have, and waits for them
    FETCHED = 1  # they move to a GPU because it touched them, or pages beside them
    PREFETCHED = 2  # they move because the program asked ahead
    EVICTED = 3  # they move to make room
    OTHER = 4
    READ_BACK = 5  # they move to the host because it touched them, or pages beside them


class PageEvents(ColumnTable, frozen=True):
    """What is told of managed memory besides its migrations, which are operations: faults of GPUs (where captured), and
    why each migration came about. ``count``: faults of a group, else 1."""

    ORDER: ClassVar[tuple[str, ...]] = ("device", "start_ns", "end_ns", "kind", "count")

    start_ns: Int64Array
    end_ns: Int64Array
    device: Int32Array  # index into Trace.gpus
    kind: Int8Array  # Paging
    count: Int64Array


_OF_EVENTS = ("operations", "api", "ranges", "os_calls", "overhead", "schedule", "samples", "python_frames")


# A command that a shell takes as it stands.
_CONTAINER = expression(r"(?:sudo )?(?:\S*/)?(?:docker|podman|nerdctl|singularity|apptainer|enroot|kubectl)\b")
_PLAIN_COMMAND = expression(r"^[\w ./:=,+@%~'\"\-\[\](){}*]+\Z")


class Trace(Struct, frozen=True, dict=True):
    """One report, read. Tables that were not captured are empty; ``captured`` tells which."""

    path: str
    source: str
    operations: Operations
    api: CallTable
    ranges: Ranges
    os_calls: Intervals
    overhead: Intervals
    schedule: Schedule
    samples: Samples
    names: tuple[str, ...]
    domains: tuple[str, ...]
    threads: tuple[ThreadRow, ...]
    processes: tuple[ProcessRow, ...]
    gpus: tuple[GpuInfo, ...]
    captured: Captured
    nsys_version: str | None = None  # that recorded it; None: not on record
    exported_by: str | None = None  # version of the nsys that exported it
    schema_version: str | None = None
    command: str | None = None
    warnings: tuple[TraceWarning, ...] = ()
    not_recorded: Mapping[str, str] = field(default_factory=dict)  # kind (capture.flags.KINDS) -> why, where known
    span_ns: tuple[int, int] = (0, 0)  # first and last instant of any event
    metadata: Mapping[str, str] = field(default_factory=dict)
    backtraces: LazyBacktraces = NO_BACKTRACES  # read when first asked for
    shapes: LaunchShapes = field(default_factory=LaunchShapes.empty)
    gpu_facts: tuple[GpuFacts, ...] = ()  # of each of ``gpus``; empty: not told
    page_faults: Mapping[str, int] = field(
        default_factory=dict
    )  # of managed memory, by "cpu", "gpu"; none: not captured
    page_events: PageEvents = field(default_factory=PageEvents.empty)
    stream_points: StreamPoints = field(default_factory=StreamPoints.empty)
    streams: Streams = field(default_factory=Streams.empty)
    collectives: CollectiveTable = field(default_factory=CollectiveTable.empty)
    graph_nodes: GraphNodes = field(default_factory=GraphNodes.empty)
    captured_graphs: tuple[CapturedGraph, ...] = ()  # in other recordings
    process_groups: tuple[ProcessGroup, ...] = ()  # of the job that this rank is part of
    place: JobPlace = JobPlace()  # which rank this is
    start_unix_ns: int | None = None  # Unix time of instant 0 of the trace's clock; None: not told
    python_frames: Intervals = field(default_factory=Intervals.empty)  # Python functions, from call to return
    operator_names: frozenset[str] = frozenset()  # of ranges that are known to be a framework's operators
    cycles: tuple[Cycle, ...] = ()  # stretches between which nothing was recorded, where there are several
    cut_names: frozenset[str] = frozenset()  # of ranges in which the recording began or ended
    arguments: tuple[OperatorArguments, ...] = ()  # distinct ones: see Ranges.arguments
    memory: MemoryPoints = field(default_factory=MemoryPoints.empty)
    constructs: Mapping[int, Construct] = field(default_factory=dict)  # by the name of their ranges
    kernel_sources: Mapping[str, KernelSource] = field(default_factory=dict)  # by the kernel's name
    file_accesses: FileAccesses = field(default_factory=FileAccesses.empty)
    messages: MessageTable = field(default_factory=MessageTable.empty)
    communicators: tuple[Communicator, ...] = ()  # of MPI, as each process knows them
    ranks: Mapping[int, int] = field(default_factory=dict)  # of MPI: by process, an index into ``processes``
    metric_samples: MetricSamples = field(default_factory=MetricSamples.empty)  # of the GPUs' counters
    not_read: tuple[UnreadTable, ...] = ()  # tables of the report that hold rows and that nothing reads
    written: tuple[Written, ...] = ()  # the ends of what processes wrote
    diagnostics: tuple[Diagnostic, ...] = ()  # what the profiler noted, the most severe first
    machine: HostMachine = HostMachine()
    last_words: LastWords | None = None  # of the program, where who ran it heard them
    exit_code: int | None = None  # of the program, as a shell has it; None: not known

    def migrations(self, why: Paging) -> npt.NDArray[np.intp]:
        """The operations that are migrations of this kind."""
        events, table = self.page_events, self.operations
        events = events.take(events.kind == why)
        moved = np.flatnonzero(table.kind == OpKind.MIGRATION) if len(events) else np.zeros(0, np.intp)
        moved_back: list[npt.NDArray[np.intp]] = [moved[:0]]
        for device in unique(events.device).tolist():
            own = moved[table.device[moved] == device]
            moved_back.append(own[is_in(table.start_ns[own], events.start_ns[events.device == device])])
        return merged(*moved_back)

    @cached_property
    def collective_bytes(self) -> Int64Array:
        """The size of each collective's message, the larger of what goes in and comes out; -1: not told."""
        collectives = self.collectives
        each = np.array([_BYTES_EACH.get(name.lower(), 1) for name in self.names] or [1], np.int64)
        width = pick(each, collectives.dtype, 1)
        bytes_moved: Int64Array = np.where(
            collectives.elements_in >= 0, np.maximum(collectives.elements_in, collectives.elements_out) * width, -1
        )
        return bytes_moved

    @property
    def main_cycle(self) -> Cycle | None:
        """The stretch that is judged unless another is asked for: that of most steps, and of several the last."""
        return max(self.cycles, key=lambda cycle: (cycle.steps, cycle.low_ns), default=None)

    def during(self, cycle: Cycle) -> Trace:
        """The trace with what begins in one stretch alone."""
        kept = {}
        for what in ("operations", "api", "ranges", "overhead", "python_frames", "memory"):
            table = getattr(self, what)
            kept[what] = table.take((table.start_ns >= cycle.low_ns) & (table.start_ns <= cycle.high_ns))
        return replace(self, **kept, span_ns=(cycle.low_ns, cycle.high_ns), cycles=())

    @cached_property
    def confirmed_ns(self) -> tuple[int, int]:
        """From when to when things happened by more than one row of the report."""
        tables = [getattr(self, name) for name in _OF_EVENTS if len(getattr(self, name))]
        starts = [time for table in tables for time in least_two(table.start_ns)]
        ends = [-time for table in tables for time in least_two(-getattr(table, "end_ns", table.start_ns))]
        return (sorted(starts)[1], sorted(ends)[-2]) if len(starts) > 1 else self.span_ns

    @property
    def is_damaged(self) -> bool:
        """Whether rows were left out, or changed, since they cannot be right, or whole tables may be missing."""
        return any(warning.code in (BROKEN_ROWS, EXPORT_INCOMPLETE) for warning in self.warnings)

    @property
    def is_unbelievable(self) -> bool:
        """Whether the times of so many rows contradict others that none can be relied on."""
        return any(warning.code == UNBELIEVABLE for warning in self.warnings)

    @property
    def how_it_runs(self) -> str:
        """What stands for the program in a command: its own command line; PROGRAM where it is not told, or holds signs
        that a shell acts on: whoever made the report could have written them. A profiler has to run where the program
        does, so that of what starts a container nothing can stand behind it."""
        if _CONTAINER.match(self.command or ""):
            return "PROGRAM_IN_THE_CONTAINER"
        return self.command if self.command and _PLAIN_COMMAND.match(self.command) else "PROGRAM"

    @property
    def is_told_by_frames(self) -> bool:
        """Whether operators and Python functions are all that shows what host threads do: no context switch, no OS call
        is ever recorded by what wrote the trace, so that outside of them nothing is known."""
        return self.source == PYTORCH

    @property
    def rounded_ns(self) -> int:
        """How far ranges of one thread may overlap though they nest."""
        return ROUNDED_NS if self.source == PYTORCH else 0

    @property
    def is_of_amd(self) -> bool:
        """Whether it is of AMD's devices, of which nsys knows nothing. Some have no name: then HIP's version tells."""
        return any(gpu.name.startswith(("AMD", "Instinct")) for gpu in self.gpus) or any(
            key in self.metadata for key in ("hip_runtime_version", "roctracer_version")
        )

    @cached_property
    def frames(self) -> FrameStacks:
        """The Python functions as stacks."""
        table = self.python_frames
        return FrameStacks(table.start_ns, table.end_ns, table.thread, table.name, self.names)

    @cached_property
    def process_of_thread(self) -> Int64Array:
        """The process of each of ``threads``: an index into ``processes``."""
        return np.array([thread.process for thread in self.threads], np.int64)

    def process_of(self, thread: Int32Array) -> Int64Array:
        """The process of each thread of a column, as above."""
        threads = thread[:1] if is_even(thread) else thread
        return compact(np.broadcast_to(pick(self.process_of_thread, threads, -1), thread.shape))

    @cached_property
    def range_names(self) -> tuple[Int32Array, Shapes]:
        """The names that ranges have: indexes into ``names``, ascending, and their texts and shapes."""
        used = unique(self.ranges.name)
        used = used[used >= 0]
        return used, Shapes.of([self.names[number] for number in used.tolist()])

    @cached_property
    def in_library(self) -> BoolArray:
        """Per range: whether a library opened it about itself."""
        return pick(np.array([is_library(domain) for domain in self.domains], bool), self.ranges.domain, False)

    @cached_property
    def call_class(self) -> Int8Array:
        """Per name: the CallClass of the CUDA call of that name. Like the other classes of names, one more entry than
        there are names: the last is for -1, no name."""
        return self._classify(self.api.name, classify_call, CallClass.OTHER)

    @cached_property
    def sleep_kind(self) -> Int8Array:
        """Per name: what the OS runtime call of that name blocks on, a place in SLEEPS; -1 where it does not."""
        return self._classify(self.os_calls.name, sleep_kind, -1)

    @cached_property
    def blocking_calls(self) -> tuple[Intervals, Int8Array]:
        """OS runtime calls, or the Python functions that make such calls; and per name what it blocks on, as above."""
        if not self.is_told_by_frames:
            return self.os_calls, self.sleep_kind
        kind = self._classify(self.python_frames.name, sleep_kind_of_frame, -1)
        return self.python_frames.take(kind[self.python_frames.name] >= 0), kind

    @cached_property
    def message_kind(self) -> Int8Array:
        """Per name: the MessageKind of the call of message passing of that name."""
        return self._classify(self.messages.name, message_kind, MessageKind.OTHER)

    @cached_property
    def passes_messages(self) -> tuple[BoolArray, BoolArray]:
        """Of each call of message passing whether it sends a message to one rank, and whether it receives one."""
        name = self.messages.name
        texts = {number: self.names[number] for number in unique(name).tolist()}
        return (
            is_in(name, [number for number, text in texts.items() if sends(text)]),
            is_in(name, [number for number, text in texts.items() if receives(text)]),
        )

    def in_messages(self, thread: int, kinds: Collection[MessageKind]) -> IntervalSet:
        """When a thread is inside calls of message passing of these kinds."""
        if not len(self.messages):
            return EMPTY
        calls = self.messages.of_thread(thread)
        chosen = is_any(self.message_kind[calls.name], kinds)
        return union(calls.start_ns[chosen], calls.end_ns[chosen])

    @cached_property
    def overhead_class(self) -> Int8Array:
        """Per name: the OverheadClass of the row of that name."""
        return self._classify(self.overhead.name, classify_overhead, OverheadClass.NONE)

    @cached_property
    def kernel_kind(self) -> Int8Array:
        """Per name: the KernelKind of the kernel of that name."""
        return self._classify(self.operations.name, kind_of_kernel, KernelKind.OTHER)

    def named(self, column: Int32Array, tells: Callable[[str], object]) -> BoolArray:
        """Of each name, and last of none (-1), whether a column has it and ``tells`` says so of its text."""
        return self._classify(column, lambda name: bool(tells(name)), 0).astype(bool)

    def is_named(self, column: Int32Array, tells: Callable[[str], object]) -> BoolArray:
        """Of each row of a column of names whether ``tells`` says so of its text; not where there is none."""
        return self.named(column, tells)[column]

    def _classify(self, used: Int32Array, classify: Callable[[str], int], otherwise: int) -> Int8Array:
        """Each text that a column uses is looked at once."""
        classes = np.full(len(self.names) + 1, int(otherwise), np.int8)
        numbers = unique(used)
        numbers = numbers[numbers >= 0]
        classes[numbers] = [int(classify(self.names[number])) for number in numbers.tolist()]
        return classes
