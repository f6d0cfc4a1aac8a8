"""The result of an analysis, as plain frozen data. Renderers read it and do no arithmetic on traces.

Fields stand in the order of the JSON (docs/json.md), which is written and read by these annotations, as flat tables
and the schema are: a new field needs no more than its line here and its value. All times are integer nanoseconds.
``None`` means "not captured"; zero is a measured zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Struct, field

from boundby.model.causes import BOUNDS
from boundby.model.open_kinds import KINDS
from boundby.model.scale import HANDFUL, NEARLY_ALL, SMALL
from boundby.results.saved import (
    JSON_ONLY,
    LATER,
    NO_COLUMN,
    UNWRITTEN,
    ColumnMark,
    Flat,
    Least,
    Named,
    Natural,
    NonNegative,
    OneOf,
    RegionPath,
    Saved,
    Times,
    derived,
)
from boundby.trace.facts import Captured, GpuInfo, ProgramEnd, TraceWarning, UnreadTable

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCES = ("high", "medium", "low")
DOUBTS = ("delays", "collectives", "contradictions", "sleeps", "lags", "calls")
#: Why a report holds no GPU work, in words.
NO_GPU_WORK = {
    "failed": "the program failed",
    "not_recorded": "CUDA was not recorded",
    "inside_driver": "the program is inside a CUDA call",
    "unused": "nothing ran on the GPU",
    "host_only": "nothing on record uses a GPU",
}
SEVERITIES = ("high", "medium", "low", "note")  # of findings, worst first


class Viewed:
    """A result that notebooks show as HTML and ``print`` as text, where a renderer has offered to."""

    view: ClassVar[Callable[[Any], str] | None] = None

    face: ClassVar[Callable[[Any], str] | None] = None

    def _repr_html_(self) -> str | None:
        view = type(self).view
        return None if view is None else view(self)

    def __str__(self) -> str:
        """``print(report)`` shows one screen, where a renderer has offered to."""
        face = type(self).face
        return repr(self) if face is None else face(self)


class AnalysisSummary(Struct, frozen=True):
    """What was asked for."""

    window: Annotated[str, "gpu, all, START:END or nvtx:NAME."] = "gpu"
    skip_first: Annotated[Natural, "Instances of the steps left out at the start."] = 0
    region_glob: Annotated[str | None, "Only regions that match were kept."] = None
    device_ids: Annotated[tuple[int, ...], "Only these devices; empty: all."] = ()
    process_ids: Annotated[tuple[int, ...], "Only these processes; empty: all."] = ()
    min_share: Annotated[NonNegative, "Only regions of at least this fraction were kept."] = 0.0
    fold: Annotated[bool, "Whether numbered names share a region."] = True
    rules_checked: Annotated[Natural, "Rules that looked and had what they need; 0: none was asked."] = 0
    rules_disabled: Annotated[tuple[str, ...], "Rules that were left out."] = ()
    thresholds: Annotated[Mapping[str, float], "Thresholds that were changed, as rule.name."] = field(
        default_factory=dict
    )
    show_all: Annotated[bool, "Whether findings below 1 % of the window are here too."] = False


class TraceSummary(Struct, frozen=True):
    """The report that was read."""

    path: Annotated[str, "As it was given."]
    source: Annotated[
        str, "Kind of file: nsys-sqlite, nsys-arrow, nsys-parquet, nsys-rep, nsys-qdrep or pytorch-profiler."
    ]
    nsys_version: Annotated[str | None, "Version of nsys that recorded it; null: not on record."] = None
    exported_by: Annotated[str | None, "Version of nsys that exported it, which may be another."] = None
    schema_version: Annotated[str | None, "Version of the export's schema."] = None
    command: Annotated[str | None, "What was profiled."] = None
    duration_ns: Annotated[Natural | None, "First to last event of any kind, nanoseconds."] = None
    gpus: Annotated[tuple[GpuInfo, ...], "The GPUs that the report lists."] = ()
    captured: Captured = field(default_factory=Captured)
    warnings: Annotated[tuple[TraceWarning, ...], "What lowers certainty."] = ()
    not_recorded: Annotated[
        Mapping[str, str],
        LATER,
        "Why cuda, nvtx, osrt, cpu_scheduling, gpu_metrics or cuda_graphs are not there, as far as that is known.",
    ] = field(default_factory=dict)
    program: Annotated[
        ProgramEnd | None, LATER, "How the program ended; null: nothing says that it failed or was interrupted."
    ] = None
    no_gpu_work: Annotated[NoGpuWork | None, LATER, "Why there is no GPU work; null where there is some."] = None

    not_read: Annotated[
        tuple[UnreadTable, ...], LATER, "Tables of an nsys report that hold rows and that boundby does not read."
    ] = ()

    @property
    def is_part(self) -> bool:
        """Whether only its last part was read, for want of memory; a warning has the figures."""
        return any(warning.code == "max-memory" for warning in self.warnings)


class Distribution(Struct, frozen=True):
    """Durations: count, sum and the usual order statistics, nanoseconds."""

    count: Annotated[Natural, "How many.", NO_COLUMN]
    total_ns: Annotated[Natural, "Sum."]
    mean_ns: Annotated[NonNegative, "Mean."]
    median_ns: Annotated[NonNegative, "Median."]
    p95_ns: Annotated[NonNegative, "95th percentile."]
    max_ns: Annotated[Natural, "Longest."]


class Work(Struct, frozen=True):
    """What operators have to do at least, by the sizes of their inputs, and how long the device would take for it at
    its published peaks. Only operators whose work is known count: ``known_ns`` of ``kernels_ns``."""

    flops: Annotated[Natural, "Floating-point operations; a multiplication with an addition counts as two."]
    matmul_flops: Annotated[Natural, "Of them in matrix products, convolutions and attention."]
    bytes: Annotated[Natural, "Bytes of inputs and outputs, each read or written once."]
    known_ns: Annotated[Natural, "Kernel time of operators whose work is known."]
    kernels_ns: Annotated[Natural, "Kernel time of all of them, communication left out."]
    at_peak_ns: Annotated[Natural | None, "What matrix products and the like take at the device's peak; null: unknown."]
    at_bandwidth_ns: Annotated[Natural | None, "What the bytes take at the device's memory bandwidth."]
    at_best_ns: Annotated[Natural | None, "The longer of both of each call, summed: the roofline."]
    measured_bytes: Annotated[
        Natural | None,
        LATER,
        "What the device's memory moved in known_ns, by the GPU's counters: then at_bandwidth_ns and at_best_ns are of"
        " this traffic; null: not sampled, or other time is mixed into the samples.",
    ] = None

    def of_window(self, window_ns: int) -> float | None:
        """The share of a window that the matrix products would take at the peak: model FLOPs utilization (MFU)."""
        return None if self.at_peak_ns is None or not window_ns else self.at_peak_ns / window_ns

    @property
    @derived(after="at_best_ns")
    def tflops(self) -> NonNegative | None:
        """Operations (1e12) a second of known kernel time."""
        return self.flops / self.known_ns / 1e3 if self.known_ns else None

    @property
    @derived(after="tflops")
    def gb_per_s(self) -> NonNegative | None:
        """Bytes (1e9) a second of known kernel time: measured ones where there are."""
        moved = self.bytes if self.measured_bytes is None else self.measured_bytes
        return moved / self.known_ns if self.known_ns else None

    @property
    @derived(after="gb_per_s")
    def roofline_fraction(self) -> NonNegative | None:
        """How near the known kernels come to what the device can do at most, in the nearer of both."""
        return None if self.at_best_ns is None or not self.known_ns else self.at_best_ns / self.known_ns


class OperatorShape(Struct, frozen=True):
    """All calls of one operator with inputs of the same sizes and types."""

    name: str
    sizes: Annotated[str, "Of its inputs, a JSON list of one place each; empty: not told."]
    types: Annotated[str, "Of its inputs; empty: not told."]
    calls: Annotated[Natural, "That launched a kernel."]
    kernels: Annotated[Natural, "What they launched."]
    total_ns: Annotated[Natural, "Kernel time."]
    share: Annotated[NonNegative, "Of all kernel time."]
    work: Annotated[Work | None, "What these calls have to do, and the device's peak; null: not known."] = None


class CollectiveSize(Struct, frozen=True):
    """All collectives of one kind among as many ranks with messages of one size."""

    name: Annotated[str, "As the trace has it: allreduce, _allgather_base."]
    ranks: Annotated[Natural | None, "In the group; null: not told."]
    bytes: Annotated[Natural, "Of a message: the larger of what goes in and what comes out."]
    count: Annotated[Natural, "How many."]
    total_ns: Annotated[Natural, "Sum of their durations, waiting for other ranks included."]
    median_ns: Annotated[NonNegative, "Median."]
    fastest_ns: Annotated[Natural, "Shortest."]
    gb_per_s: Annotated[NonNegative, "Bytes (1e9) of a message a second, at the median."]
    waiting_ns: Annotated[
        Natural, "At least so much of total_ns is waiting: beyond the fastest message as large or larger."
    ]


class Communication(Struct, frozen=True):
    """Communication on devices, and how much of it other kernels hide."""

    total_ns: Annotated[Natural, "Nanoseconds in which it runs (a union, not a sum); of a region on all devices."]
    exposed_ns: Annotated[Natural, "Of these, while no other kernel runs on the device."]
    hidden_of_each: Annotated[
        tuple[float, ...],
        NO_COLUMN,
        "Of the program's step: the hidden share in each one that communicates, in order of time; of many, a few"
        " hundred taken evenly. Empty of all else.",
    ] = ()

    @property
    @derived(after="exposed_ns")
    def hidden_fraction(self) -> NonNegative:
        """The share of its time in which other kernels run on the same device: overlap."""
        return 1 - self.exposed_ns / self.total_ns if self.total_ns else 0.0


CommunicationDone = Annotated[
    Communication | None, LATER, "Communication, and how much of it is hidden; null where nothing communicates."
]


class StepBreakdown(Struct, frozen=True):
    """One step of the program on one device: while the device works, and why it idles. What is left is unattributed,
    the device's own, or the profiler's."""

    device: Annotated[Natural, "Device id."]
    start_ns: Annotated[int, "On the trace's clock: its range begins, or the step before is over on the device."]
    length_ns: Annotated[Natural, "To the end of its range or of its work; what lies between steps is in none."]
    device_ns: Annotated[Natural, "Kernels, communication or copies run."]
    input_ns: Annotated[Natural, "The device idles: the host is blocked, as for input."]
    host_ns: Annotated[Natural, "The device idles: host code, launch overhead, syncs."]
    compile_ns: Annotated[Natural, "The device idles: initialization, as compilers, code loading, allocation."]
    queue_median: Annotated[NonNegative | None, "Operations launched and not yet begun: median at its launches."] = None

    @property
    @derived(after="compile_ns")
    def other_ns(self) -> int:
        """What is left of it."""
        return self.length_ns - self.device_ns - self.input_ns - self.host_ns - self.compile_ns


WorkDone = Annotated[Work | None, JSON_ONLY, "Work by the sizes of inputs; null where they are not told."]


class MemoryHeld(Struct, frozen=True):
    """What one region held."""

    path: tuple[str, ...]
    bytes: Annotated[Natural, "Allocated in it, and not released."]


class MemoryPoint(Struct, frozen=True):
    """One instant."""

    time_ns: Annotated[int, "On the trace's clock."]
    bytes: Annotated[Natural, "In use."]
    reserved_bytes: Annotated[Natural, "Held from the device."]


class Memory(Struct, frozen=True):
    """What the framework's allocator, in nsys reports CUDA's, held of a device over the recording. Bytes."""

    first_bytes: Annotated[int, "In use before the first event."]
    last_bytes: Annotated[int, "In use after the last one."]
    peak_bytes: Annotated[int, "Most in use."]
    peak_ns: Annotated[int, "When, on the trace's clock."]
    peak_path: Annotated[tuple[str, ...], "The region, no operator, that allocated last before it."]
    peak_reserved_bytes: Annotated[int, "Most held from the device."]
    before_bytes: Annotated[int, "In use at the peak and allocated before the recording: weights, optimizer, caches."]
    held: Annotated[tuple[MemoryHeld, ...], "Who allocated the rest of it: regions that are no operators, most first."]
    points: Annotated[tuple[MemoryPoint, ...], "Over time: of each stretch the instant with most in use."]


class RegionMemory(Struct, frozen=True):
    """What a region allocated of the devices' memory. Bytes."""

    allocated_bytes: Annotated[Natural, "All allocations."]
    kept_bytes: Annotated[int, "Allocations less releases: negative where it releases what others allocated."]
    peak_bytes: Annotated[Natural, "Most in use by the program after an event of this region."]
    held_at_peak_bytes: Annotated[Natural, "Allocated here and in use at the program's peak."]


MemoryDone = Annotated[RegionMemory | None, JSON_ONLY, "Allocations; null where they are not told."]


#: Counters tell of some work alone where it fills so much of the samples' time; else other time is mixed in.
UNMIXED = NEARLY_ALL


class Counters(Struct, frozen=True):
    """What a GPU's counters say, averaged over some time: fractions of the most that it can do; null: not sampled."""

    sampled_ns: Annotated[Natural, "Time under samples: operations that overlap count each."]
    alone_fraction: Annotated[
        NonNegative, "How much of their samples' time it fills: the rest mixes in what else runs, or idle time."
    ]
    gr_active: Annotated[NonNegative | None, "Time in which any engine works."] = None
    sm_active: Annotated[NonNegative | None, "Multiprocessors (SMs) that hold work."] = None
    sm_issue: Annotated[NonNegative | None, "Cycles in which an SM issues an instruction."] = None
    tensor_active: Annotated[NonNegative | None, "Tensor cores."] = None
    warps: Annotated[NonNegative | None, "Warps held, of those that fit."] = None
    dram_read: Annotated[NonNegative | None, "Memory bandwidth, reading."] = None
    dram_write: Annotated[NonNegative | None, "Memory bandwidth, writing."] = None
    pcie_receive: Annotated[NonNegative | None, "PCIe, to the GPU."] = None
    pcie_send: Annotated[NonNegative | None, "PCIe, from the GPU."] = None
    nvlink_receive: Annotated[NonNegative | None, "NVLink, to the GPU."] = None
    nvlink_send: Annotated[NonNegative | None, "NVLink, from the GPU."] = None

    @property
    def is_unmixed(self) -> bool:
        """Whether the samples tell of this time alone, or nearly."""
        return self.alone_fraction >= UNMIXED

    @property
    def dram(self) -> float | None:
        """Memory bandwidth, both ways."""
        return None if self.dram_read is None or self.dram_write is None else self.dram_read + self.dram_write


class KernelCounters(Struct, frozen=True):
    """The counters while a kernel of one name runs."""

    name: str
    total_ns: Annotated[Natural, "Sum of durations, nanoseconds."]
    counters: Counters


class MetricPoint(Struct, frozen=True):
    """The counters of one stretch of time."""

    time_ns: Annotated[int, "When it begins, on the trace's clock."]
    counters: Counters


class DeviceCounters(Struct, frozen=True):
    """A device's counters over its window."""

    window: Annotated[Counters | None, "All of it."]
    busy: Annotated[Counters | None, "While operations on record run."]
    idle: Annotated[Counters | None, "While none does."]
    kernels: Annotated[tuple[KernelCounters, ...], "Kernels with most time, by name."]
    points: Annotated[tuple[MetricPoint, ...], "Over time."]


CountersDone = Annotated[
    Counters | None, JSON_ONLY, "The GPU's counters while its operations run; null where not sampled."
]


class Gaps(Struct, frozen=True):
    """Idle intervals between busy ones."""

    count: Annotated[Natural, "How many."]
    total_ns: Annotated[Natural, "Sum, nanoseconds."]
    longest_ns: Annotated[Natural, "Longest, nanoseconds."]
    short_ns: Annotated[
        Natural, JSON_ONLY, "Of the sum, gaps that a launch and a framework's dispatch fill: up to 100 us each."
    ] = 0


class Top(Struct, frozen=True):
    """All of one name: what ran longest, or was called longest."""

    name: str
    count: Annotated[Natural, "How many."]
    total_ns: Annotated[Natural, "Sum of durations, nanoseconds."]


class Kernels(Struct, frozen=True):
    """Kernels."""

    count: Annotated[Natural, "How many."]
    total_ns: Annotated[Natural, "Sum of durations, nanoseconds; overlapping kernels count each."]
    median_ns: Annotated[NonNegative | None, "Median duration, nanoseconds; null without kernels."]
    top: Annotated[tuple[Top, ...], LATER, "Kernels with most time, by name."] = ()

    @property
    @derived(after="top", is_key=False)
    def top_name(self) -> str | None:
        """The kernel with most time; null without kernels."""
        return self.top[0].name if self.top else None


class ApiCalls(Struct, frozen=True):
    """CUDA API calls; nested runtime/driver pairs count once."""

    calls: Annotated[Natural, "How many."]
    total_ns: Annotated[Natural, "Time inside them, nanoseconds."]
    per_ms: Annotated[NonNegative | None, "Calls per millisecond of host time."]
    top: Annotated[tuple[Top, ...], LATER, "Of the window: calls with most time, by name, waits included."] = ()
    window_calls: Annotated[Natural | None, JSON_ONLY, "How many of them the analysis window holds."] = None
    window_ns: Annotated[Natural | None, JSON_ONLY, "Time inside those, nanoseconds."] = None

    @property
    def in_window(self) -> tuple[int, int]:
        """How many of them the analysis window holds, and their time: what stands beside sums of the window."""
        calls, total_ns = self.window_calls, self.window_ns
        return (self.calls, self.total_ns) if calls is None or total_ns is None else (calls, total_ns)

    @property
    @derived(after="top", is_key=False)
    def top_name(self) -> str | None:
        """The call with most time; null without calls."""
        return self.top[0].name if self.top else None


class Syncs(Struct, frozen=True):
    """Blocking syncs: calls in which the host waits for the device."""

    count: Annotated[Natural, "How many."]
    blocked_ns: Annotated[Natural, "Time the host waited, nanoseconds."]
    per_ms: Annotated[NonNegative | None, "Syncs per millisecond of host time."]


class Meanwhile(Struct, frozen=True):
    """What all threads of a region's processes do from its first instance to the end of its last, inside it or not."""

    api_calls: Annotated[Natural, "CUDA calls."]
    syncs: Annotated[Natural, "Blocking syncs."]
    kernels: Annotated[Natural, "Kernels launched."]
    copies: Annotated[Natural, "Memory copies launched."]


class Copies(Struct, frozen=True):
    """Copies of one direction."""

    count: Annotated[Natural, "How many."]
    bytes: Annotated[Natural, "Bytes."]
    total_ns: Annotated[Natural, "Sum of durations, nanoseconds."]
    pageable_count: Annotated[Natural, "Copies from or to pageable host memory."]
    small_count: Annotated[Natural, "Copies of at most 1 KiB: typical of a scalar read back."]
    bandwidth_bytes_per_s: Annotated[NonNegative | None, "Bytes per second over total_ns."]
    by_memory: Annotated[Mapping[str, Natural], "Bytes by kinds of memory, such as 'pageable -> device'."] = field(
        default_factory=dict
    )


class LaunchLatency(Struct, frozen=True):
    """Start of the launching API call to start of the operation, nanoseconds."""

    median_ns: Annotated[float, Named("median"), "Median."]
    p95_ns: Annotated[float, Named("p95"), "95th percentile."]


class Saving(Struct, frozen=True):
    """One cause and what removing it would save: how much shorter the window would be (an estimate)."""

    cause: Annotated[str, "Cause key."]
    saving_ns: Annotated[int, "Nanoseconds."]


class Check(Struct, frozen=True):
    """One line of the classic checklist: a value set against its rule of thumb."""

    name: Annotated[str, "What was measured."]
    value: Annotated[str, "The value, for people."]
    reading: Annotated[str, "What the value says."]
    points_to: Annotated[str | None, "The bound it speaks for, if any."]


class Sign(Struct, frozen=True):
    """One classic sign of a pattern, measured here."""

    name: Annotated[str, "What the pattern usually shows."]
    value: Annotated[str, "What was measured, for people."]
    is_met: Annotated[bool | None, Named("met"), "Whether it is so here; null: not captured, or left open."]
    limit: Annotated[str, LATER, "What is usual, for people."] = ""


class CodeLine(Struct, frozen=True):
    """A line of the program's own code."""

    file: Annotated[str, "As the program saw it; of a function in C the binary."]
    line: Annotated[int | None, "Its line; null where only the function is known."] = None
    function: Annotated[str, "The function around it."] = ""
    source: Annotated[str, "Its text, where the trace or the file tells it."] = ""


class FirstResponse(Struct, frozen=True):
    """One of the changes to try first, numbered where the trace can tell what it would save."""

    id: Annotated[str, "Pattern and response, such as sync.remove-waits; the same in every run."]
    title: Annotated[str, "What to change."]
    saving_ns: Annotated[
        tuple[int, int] | None,
        "Estimated saving, [low, high] in nanoseconds; null where no number can be told. Of init.warm-up,"
        " init.keep-compiled, init.runtime-start, cpu.start-once and gpu_copy.pinned-for-reuse: what another run saves;"
        " this one is no shorter. Of cpu.overlap-next-step: what each later step saves.",
    ] = None
    because: Annotated[str, "What here speaks for it, or why there is no number."] = ""
    action: Annotated[str, "The next step as code or a command, where the trace tells enough for one."] = ""
    needs: Annotated[str, "What it takes."] = ""
    caution: Annotated[str, "When not to do it."] = ""
    command: Annotated[str, "The command that reproduces the number, or explains the finding."] = ""
    is_search: Annotated[
        bool, "True: it finds out what to change; the saving is what the change is worth if there is one."
    ] = False
    code: Annotated[str, LATER, "What to write or type, one to three lines; empty where nobody can tell."] = ""
    where: Annotated[CodeLine | None, LATER, "The line of the program that it is about; null: not on record."] = None
    other: Annotated[
        str,
        LATER,
        "Cause key, where it is about another cause than the verdict's, or about its second one, too; else empty.",
    ] = ""


class NoGpuWork(Struct, frozen=True):
    """Why the report holds no GPU work, and what to do about it."""

    diagnosis: Annotated[str, OneOf(tuple(NO_GPU_WORK)), "What it is."]
    because: Annotated[str, "Why, without a full stop."]
    has_started_cuda: Annotated[bool, "Whether the profiler saw the program initialize CUDA."] = False
    response: Annotated[FirstResponse | None, "What to do; null: nothing is wrong with a program of the host."] = None

    @property
    def is_host_only(self) -> bool:
        """Whether the host's time is all that there is to judge."""
        return self.diagnosis == "host_only"

    def __str__(self) -> str:
        words = NO_GPU_WORK[self.diagnosis]
        return f"{words}: {self.because}" if self.because else words


class Lookalike(Struct, frozen=True):
    """What looks like the pattern and is something else, held against what is measured here."""

    text: Annotated[str, "What it is."]
    here: Annotated[Sign, "What tells the two apart; met where it is the pattern, not met where it may be the other."]


class Card(Struct, frozen=True):
    """What a verdict's pattern usually looks like, whether it does here, and what to do first."""

    pattern: Annotated[str, OneOf(BOUNDS), "The bound whose pattern it is; boundby explain teaches it."]
    signs: Annotated[tuple[Sign, ...], "The classic signs."] = ()
    stands: Annotated[str, "Why the verdict stands where classic signs are missing; empty where all are met."] = ""
    notes: Annotated[tuple[str, ...], "What else to know: waits that cost nothing, host timers that would lie."] = ()
    lookalikes: Annotated[
        tuple[Lookalike, ...], LATER, "What looks like it, where something measured here can tell them apart."
    ] = ()


class Uncertainty(Struct, frozen=True):
    """Something that the trace leaves open of a number: of a prediction, of the saving that decides a verdict."""

    kind: Annotated[str, OneOf(tuple(KINDS)), "What is open; docs/what-if.md has all kinds."]
    where: Annotated[tuple[str, ...], "Streams and threads of a prediction, causes of a verdict; empty: all of it."]
    low_ns: Annotated[Natural, "By how much smaller the number may be because of it, beyond what stands before it."]
    high_ns: Annotated[Natural, "By how much larger."]
    steps: Annotated[Natural, "By how many steps it lowers the confidence whatever these are."]
    sentence: Annotated[str, "What is open, in words."]

    @property
    @derived(after="sentence")
    def capture(self) -> str:
        """What would settle it; empty where nothing does."""
        return KINDS[self.kind].capture if self.kind in KINDS else ""


class Verdict(Struct, frozen=True):
    """What a device, thread or region is bound by, how sure, and what would come next."""

    bound: Annotated[str, OneOf(BOUNDS), "What it is bound by: the cause whose removal would save the most time."]
    confidence: Annotated[str, OneOf(CONFIDENCES), "How sure the verdict is."]
    reasons: Annotated[tuple[str, ...], "Why the confidence is not higher."] = ()
    because: Annotated[
        str,
        "The two or three numbers that decide the verdict, one short clause.",
        ColumnMark(after="bound_next"),
    ] = ""
    saving_ns: Annotated[
        int | None,
        "Nanoseconds the window would be shorter without the bound, by replay (an estimate; all but sync once nothing"
        " waits); by the account alone, what the device idles for it. Null for hidden and unknown, and by the account"
        " alone for the device's own work.",
    ] = None
    runner_up: Annotated[str | None, "The cause whose removal would save second most."] = None
    runner_up_saving_ns: Annotated[int | None, "The same of the runner-up."] = None
    bound_next: Annotated[str | None, "What it would be bound by once the bound is removed."] = None
    without_ns: Annotated[
        Natural | None,
        "The device's window without the bound alone, predicted by replay, nanoseconds; null for regions and where"
        " nothing was replayed.",
        NO_COLUMN,
    ] = None
    decided_by: Annotated[
        str,
        OneOf(("replay", "account")),
        "What decided the verdict: a replay of the trace's dependencies, or the account alone.",
        NO_COLUMN,
    ] = "account"
    mixed_of: Annotated[tuple[str, str] | None, "The two causes of a mixed verdict."] = None
    savings: Annotated[tuple[Saving, ...], "Every removable cause, best first."] = ()
    host_together_ns: Annotated[
        int | None,
        JSON_ONLY,
        "Nanoseconds the window would be shorter without all of the host's causes at once (cpu, host_blocked, cuda_api,"
        " sync, init), where that is more than the bound, though each alone is less; else null.",
    ] = None
    why_not: Annotated[
        str | None,
        JSON_ONLY,
        "Of unknown: why the trace cannot tell, and the capture that would; null where no cause stands out.",
    ] = None
    saving_range_ns: Annotated[
        tuple[int, int] | None,
        JSON_ONLY,
        "saving_ns at least and at most, whatever the missing records would have said; null: none are missing.",
    ] = None
    waits_for: Annotated[
        str,
        OneOf(("", "input", "ranks", "pages", "source", "fills")),
        JSON_ONLY,
        "Of host_blocked: what the host is blocked for, where the trace shows it: the next batch of input, other ranks"
        " in MPI, or a source outside of the program that sets its pace. Of cpu: pages, where page faults on managed"
        " memory take most of the host's time. Of gpu_copy: fills, where most of its work sets memory. Empty where the"
        " trace does not show it, and for other bounds.",
    ] = ""
    uncertainties: Annotated[
        tuple[Uncertainty, ...],
        JSON_ONLY,
        "What is open of the savings of the causes in ``where``, and of the verdict: reasons are its sentences.",
    ] = ()


class Coverage(Struct, frozen=True):
    """How much of what happened is on record."""

    launches_recorded_fraction: Annotated[
        NonNegative | None,
        "Of the launches whose work should be on record, those whose work is; null without launches.",
    ] = None
    host_state_fraction: Annotated[
        NonNegative | None, "Of the idle time, what the records of the host explain; null without idle time."
    ] = None
    launches: Annotated[Natural, "Launches whose work should be on record."] = 0
    launches_lost: Annotated[Natural, "Launches whose work is not."] = 0
    unrecorded_ns: Annotated[
        Natural, "Nanoseconds of unattributed in which work or calls may have run whose records are missing."
    ] = 0
    calls_lost_fraction: Annotated[
        NonNegative, LATER, "Of the CUDA calls that left other records, the part that has none of its own."
    ] = 0.0
    uncalled: Annotated[
        Natural, LATER, "Operations and waits on record that were called after the last CUDA call on record."
    ] = 0
    before_ns: Annotated[
        Natural, LATER, "Nanoseconds by which work whose records are missing may have begun before the window."
    ] = 0
    is_cpu_thinned: Annotated[
        bool, LATER, "Context switches are missing: being on a CPU and asleep are not told apart."
    ] = False
    unseen_ns: Annotated[
        Natural, LATER, "Nanoseconds in which the GPU's counters show it at work and no operation is on record."
    ] = 0

    @property
    def is_whole(self) -> bool:
        """Nothing is known to be missing of work and calls."""
        return self.has_calls and not self.launches_lost and not self.unrecorded_ns

    @property
    def has_calls(self) -> bool:
        """No CUDA call is known to be missing."""
        return not self.calls_lost_fraction and not self.uncalled


class Window(Struct, frozen=True):
    """The span that was accounted for."""

    start_ns: Annotated[int, "Nanoseconds on the trace's clock; can be negative."]
    end_ns: Annotated[int, "Nanoseconds on the trace's clock."]


class Copied(Struct, frozen=True):
    """Copies of all directions together."""

    count: int
    bytes: int
    total_ns: int


class _WithCopies:
    """What devices and regions have in common beyond their fields."""

    memcpy: Mapping[str, Copies]

    @property
    @derived(after="memcpy", is_key=False)
    def copied(self) -> Annotated[Copied, ColumnMark("copy")]:
        """Copies of all directions together."""
        each = self.memcpy.values()
        return Copied(
            sum(copies.count for copies in each),
            sum(copies.bytes for copies in each),
            sum(copies.total_ns for copies in each),
        )


Memcpy = Annotated[Mapping[str, Copies], "Copies by direction: HtoD, DtoH, DtoD, PtoP, ..."]
Latency = Annotated[
    LaunchLatency | None,
    Named("launch_latency_ns"),
    "Start of the launching API call to start of the operation; null without launches.",
]
QueueDepth = Annotated[NonNegative | None, "Operations launched and not yet started: median at launches."]
Exposed = Annotated[
    Natural | None,
    LATER,
    "Nanoseconds of the window that would go if the host did not wait: what waits expose, in whatever cause the account"
    " shows it; null where nothing was replayed.",
]
Preempted = Annotated[
    Natural, JSON_ONLY, "Of cpu: nanoseconds in which the responsible thread was runnable and waited for a core."
]
Cards = Annotated[tuple[Card, ...], LATER, "The patterns of the verdict: one, or two where it is mixed."]
FirstResponses = Annotated[
    tuple[FirstResponse, ...], LATER, "What to change first, best first; those without a number last."
]
BlockedOn = Annotated[Mapping[str, Natural], "What the host waited in: nanoseconds by kind (lock, sleep, file, ...)."]


class Phase(Struct, frozen=True):
    """A part of the window with another verdict than the rest."""

    window: Window
    bound: Annotated[str, OneOf(BOUNDS), "What this part is bound by, judged alone."]
    confidence: Annotated[str, OneOf(CONFIDENCES), "How sure that is."]
    saving_ns: Annotated[int | None, "Nanoseconds this part would be shorter without its bound."]


class Steady(Struct, frozen=True):
    """What the program does once it has set up and warmed up: its steps, where these are known."""

    region: Annotated[tuple[str, ...], "The path of the region that they are instances of; empty: no step is known."]
    window: Window
    steps: Annotated[Natural, "How many there are; 0: no step is known."]
    step_ns: Annotated[
        Natural | None,
        "Median nanoseconds from the begin of one on the device to that of the next; null: no step is known.",
    ]
    bound: Annotated[str, OneOf(BOUNDS), "What they are bound by, judged alone."]
    confidence: Annotated[str, OneOf(CONFIDENCES), "How sure that is."]
    saving_ns: Annotated[int | None, "Nanoseconds they would be shorter without their bound."]


class OneTimePart(Struct, frozen=True):
    """What the program does once, before its steady part."""

    name: Annotated[
        str,
        "The name of the program's range, where it says set-up or warm-up; else autotuning, uploads, copies, kernels, "
        "initialization, host code, blocked, or other (what is left).",
    ]
    span: Annotated[Window, "From its first to its last instant."]
    ns: Annotated[Natural, "Nanoseconds; the parts sum to what lies between the window's begin and the steady part."]


class OpenDoubt(Struct, frozen=True):
    """Something that the replay had to take as it was measured, because no recorded dependency explains it."""

    kind: Annotated[
        str,
        OneOf(DOUBTS),
        "delays: the device idled although work was ready. collectives: they may have waited for other ranks."
        " contradictions: dependencies that the times deny, dropped. sleeps: for no known reason. lags: syncs that"
        " returned late. calls: long ones that wait for nothing known.",
    ]
    share: Annotated[NonNegative, "Fraction of the device's window."]
    stream: Annotated[int | None, "The stream with most of it; null where it is a thread's."]
    tid: Annotated[int | None, "The thread with most of it; null where it is a stream's."]
    span: Annotated[Window, "From its first to its last on that stream or thread, on the host's clock."]


class DeviceReport(_WithCopies, Struct, frozen=True, kw_only=True):
    """A device's account, verdict and figures."""

    id: Annotated[Natural, "Device id, as in trace.gpus.", ColumnMark("device")]
    name: Annotated[str, "Name of the GPU."]
    window: Window
    busy_ns: Annotated[Natural, "Nanoseconds in which at least one operation ran (a union, not a sum)."]
    idle_ns: Annotated[Natural, "Nanoseconds in which none ran; busy_ns + idle_ns is the window."]
    startup_ns: Annotated[Natural, "Nanoseconds from the trace's first event to the window."]
    shutdown_ns: Annotated[Natural, "Nanoseconds from the window to the trace's last event."]
    cpu_utilization: Annotated[
        NonNegative | None, "Of the launching threads over the window, a fraction; null where not captured."
    ]
    host_active_ns: Annotated[
        Natural | None,
        "Nanoseconds in which the launching thread neither waits for the device nor sleeps; null where not captured.",
    ]
    verdict: Annotated[Verdict, Flat(), ColumnMark(after="name")]
    time: Annotated[Times, ColumnMark(""), "The account: nanoseconds by cause; they sum to the window."]
    gaps: Annotated[Gaps, ColumnMark("gap")]
    kernels: Annotated[Kernels, ColumnMark("kernel")]
    api: ApiCalls
    sync: Syncs
    memcpy: Memcpy
    launch_latency: Latency
    queue_depth_median: QueueDepth
    queue_depth_max: Annotated[Natural | None, "Most operations launched and not yet started."]
    clock_shift_ns: Annotated[int, "Nanoseconds added to device times to put them on the host's clock."] = 0
    processes: Annotated[tuple[int, ...], "Ids of the processes that used the device."] = ()
    checklist: Annotated[tuple[Check, ...], "The classic checklist with measured values."] = ()
    exposed_by_waits_ns: Exposed = None
    cards: Cards = ()
    first_responses: FirstResponses = ()
    coverage: Annotated[Coverage, LATER] = Coverage()
    phases: Annotated[
        tuple[Phase, ...],
        JSON_ONLY,
        "Where what lies before and after a change, the halves of the window, or what follows its first steps are not "
        "bound by the same as the whole: the two parts, each with its verdict. Else empty.",
    ] = ()
    steady: Annotated[
        Steady | None,
        JSON_ONLY,
        "The program's steady part, where a one-time part of the window lies before it; null where it is hardly any of "
        "the window, or none is known.",
    ] = None
    one_time: Annotated[
        tuple[OneTimePart, ...],
        JSON_ONLY,
        "What the window holds before the steady part, longest first, where that is hardly any of it, too; else empty.",
    ] = ()
    doubts: Annotated[
        tuple[OpenDoubt, ...], JSON_ONLY, "What the replay had to take as it was, largest first; it widens predictions."
    ] = ()
    preempted_ns: Preempted = 0
    memory: Annotated[Memory | None, JSON_ONLY, "Allocations over time; null where they are not told."] = None
    counters: Annotated[DeviceCounters | None, JSON_ONLY, "The GPU's counters; null where they were not sampled."] = (
        None
    )
    communication: CommunicationDone = None
    graphs: Annotated[Kernels | None, UNWRITTEN] = None  # CUDA graphs traced as one operation each; None: none were

    @property
    def max_saving_ns(self) -> int | None:
        """What the program as it ran would save without the bound alone; where that was not replayed, what the verdict
        says."""
        saving, without = self.verdict.saving_ns, self.verdict.without_ns
        return saving if saving is None or without is None else self.window_ns - without

    @property
    @derived(after="window", is_key=False)
    def window_ns(self) -> int:
        """Length of the window."""
        return self.window.end_ns - self.window.start_ns

    @property
    @derived(after="shutdown_ns")
    def gpu_utilization(self) -> NonNegative:
        """busy_ns as a fraction of the window."""
        return self.busy_ns / self.window_ns if self.window_ns else 0.0


class ThreadReport(Struct, frozen=True, kw_only=True):
    """A host thread's account and verdict, for traces without GPU work."""

    pid: Annotated[Natural, "Process id."]
    tid: Annotated[Natural, "Thread id."]
    name: Annotated[str, "Thread name."]
    total_ns: Annotated[Natural, "Nanoseconds covered by the thread's ranges (the whole trace, without ranges)."]
    cpu_utilization: Annotated[NonNegative | None, "Fraction of total_ns on a CPU; null where not captured."]
    verdict: Annotated[Verdict, Flat(), ColumnMark(after="name")]
    time: Annotated[Times, ColumnMark(""), "The account: nanoseconds by cause; they sum to total_ns."]
    blocked_on: BlockedOn
    cards: Cards = ()
    first_responses: FirstResponses = ()


class Instances(Struct, frozen=True):
    """Durations of the instances in order of time; of many, a few hundred taken evenly. They tell how much instances
    differ, so that a comparison can tell a change from chance."""

    host_ns: Annotated[tuple[int, ...], Named("host"), "Host durations in nanoseconds."] = ()
    projected_ns: Annotated[
        tuple[int, ...],
        Named("projected"),
        "Projected durations of the instances that launched GPU work, in nanoseconds.",
    ] = ()


class Payload(Struct, frozen=True):
    """The numbers that ranges carry as their NVTX payload: a batch size, tokens."""

    count: Annotated[Natural, "Ranges that carry one."]
    total: Annotated[float, "Sum."]
    least: Annotated[float, "Smallest."]
    most: Annotated[float, "Largest."]
    ns_per_unit: Annotated[NonNegative | None, "Median of an instance's nanoseconds over its number."]
    name: Annotated[str, LATER, "What the number is, such as tokens; empty where it has no name."] = ""


class RegionReport(_WithCopies, Struct, frozen=True, kw_only=True):
    """All ranges with one path in one domain, summed over devices and threads."""

    path: Annotated[RegionPath, "Names from the outermost range inwards. The root has [] and holds what no range owns."]
    domain: Annotated[str, "NVTX domain; empty for the default one."]
    instances: Annotated[Natural, "Ranges with this path."]
    share: Annotated[NonNegative, "Fraction of all devices' windows (or all threads' time), descendants included."]
    verdict: Annotated[Verdict, Flat()]
    time: Annotated[Times, ColumnMark(""), "The account with descendants: nanoseconds by cause, summed over devices."]
    time_exclusive: Annotated[
        Times,
        ColumnMark("exclusive"),
        "The account without descendants; over all regions these sum to the windows.",
    ]
    host: Annotated[Distribution, "Host intervals of the instances."]
    projected: Annotated[Distribution | None, "Projected intervals of the instances; null where nothing was launched."]
    gpu_utilization: Annotated[NonNegative | None, "Busy fraction of the projected intervals."]
    gpu_utilization_host: Annotated[NonNegative | None, "Busy fraction of the host intervals."]
    cpu_utilization: Annotated[NonNegative | None, "Fraction of the host intervals on a CPU; null where not captured."]
    gaps: Annotated[Gaps, ColumnMark("gap")]
    kernels: Annotated[Kernels, ColumnMark("kernel")]
    api: ApiCalls
    sync: Syncs
    memcpy: Memcpy
    launch_latency: Latency
    queue_depth_median: QueueDepth
    blocked_on: BlockedOn
    threads: Annotated[Natural, "Threads that opened such ranges."] = 1
    open_instances: Annotated[Natural, "Ranges that never closed: cut off at the end of the trace."] = 0
    found: Annotated[bool, LATER, "Found in the launches by boundby, not annotated in the program."] = False
    instance_ns: Annotated[Instances, LATER] = Instances()  # empty for the root
    exposed_by_waits_ns: Exposed = None
    cards: Cards = ()
    first_responses: FirstResponses = ()
    coverage: Annotated[Coverage, LATER] = Coverage()
    preempted_ns: Preempted = 0
    work: WorkDone = None
    memory: MemoryDone = None
    counters: CountersDone = None
    backward_kernels_ns: Annotated[
        Natural, JSON_ONLY, "Kernel time of the backward pass of this region's operators, by sequence numbers."
    ] = 0
    meanwhile: Annotated[
        Meanwhile | None, JSON_ONLY, "From its first instance to the end of its last; null without an instance."
    ] = None
    payload: Annotated[
        Payload | None, LATER, "What its ranges carry as NVTX payload; null where they carry no number."
    ] = None
    communication: CommunicationDone = None
    graphs: Annotated[Kernels | None, UNWRITTEN] = None
    host_active_ns: Annotated[
        Natural | None,
        JSON_ONLY,
        "Nanoseconds of the host intervals in which the thread neither waits for the device nor sleeps.",
    ] = None
    devices_each: Annotated[
        float,
        JSON_ONLY,
        "On how many devices' accounts one instance is: a program that drives several at once is on all of them.",
    ] = 1.0
    most_saved_ns: Annotated[
        Natural | None,
        JSON_ONLY,
        "The most that removing one cause there, or in a region below it, would save, as the program ran or without its"
        " waits; no less than what findings promise there, nor than what removing the bound everywhere saves,"
        " less the time outside of it; null where nothing can be told.",
    ] = None

    @property
    def max_saving_ns(self) -> int | None:
        """``most_saved_ns``; of results that lack it, what the verdict says."""
        return self.verdict.saving_ns if self.most_saved_ns is None else self.most_saved_ns

    @property
    @derived(after="path", is_key=False)
    def name(self) -> str:
        """The last name of the path."""
        return self.path[-1] if self.path else ""

    @property
    @derived(after="name", is_key=False)
    def depth(self) -> int:
        """How many ranges deep."""
        return len(self.path)

    @property
    @derived(after="verdict", is_key=False)
    def total_ns(self) -> int:
        """The account's time with descendants."""
        return sum(self.time.values())

    @property
    @derived(after="time", is_key=False)
    def exclusive_ns(self) -> int:
        """The account's time without descendants."""
        return sum(self.time_exclusive.values())

    @property
    def longest_ns(self) -> int:
        """What it takes, in the account or on the host, whichever is longer: no change there saves more."""
        return max(self.total_ns, self.host.total_ns)

    @property
    @derived(after="time_exclusive", is_column=False)
    def host_ns(self) -> Natural:
        """Sum of the host intervals, nanoseconds."""
        return self.host.total_ns

    @property
    @derived(after="host_ns", is_column=False)
    def projected_ns(self) -> Natural | None:
        """Sum of the projected intervals (first start to last end of the GPU work launched inside), nanoseconds; null
        where nothing was launched."""
        return self.projected.total_ns if self.projected else None


class Example(Struct, frozen=True):
    """One instance of what a finding is about, to look up in a timeline."""

    start_ns: Annotated[
        int,
        "When it begins, on the host's clock: of an operation on a device whose clock is off, what the trace holds plus"
        " the device's clock_shift_ns.",
    ]
    duration_ns: Annotated[Natural, "How long it takes."]
    what: Annotated[str, "Call or kernel, operator, source."]  # "cudaStreamSynchronize in aten::item, train.py:31"


class Finding(Struct, frozen=True):
    """Something to change (or to know): where, the evidence, what the change would save, and how to make it."""

    rule: Annotated[str, "Rule id."]
    severity: Annotated[
        str,
        OneOf(SEVERITIES),
        "Severity: high, medium, low; or note: saves nothing, but makes averages or verdicts less reliable.",
    ]
    title: Annotated[str, "One sentence."]
    region: Annotated[RegionPath | None, "Path of the region it is about."] = None
    evidence: Annotated[Mapping[str, object], "The numbers it rests on; keys depend on the rule."] = field(
        default_factory=dict
    )
    saving_ns: Annotated[tuple[int, int] | None, "Estimated saving, [low, high] in nanoseconds."] = None
    advice: Annotated[tuple[str, ...], ColumnMark(joined="\n"), "What to change, each a next step."] = ()
    docs: Annotated[str, "The page of the rule."] = ""
    examples: Annotated[tuple[Example, ...], "The worst instances, longest first."] = ()
    instances: Annotated[int, Least(1), "How many alike the finding stands for."] = 1
    disproof: Annotated[str, "What would prove it wrong."] = ""
    id: Annotated[str, LATER, ColumnMark("finding"), "Rule and region, the same in every run of the program."] = ""
    remedy: Annotated[str, LATER, "What it asks for: the id of a first response."] = ""
    change: Annotated[str, LATER, "The same in words."] = ""
    code: Annotated[str, LATER, "What to write or type, one to three lines; empty where nobody can tell."] = ""
    where: Annotated[CodeLine | None, JSON_ONLY, "The line of the program that it is about; null: not on record."] = (
        None
    )

    @property
    @derived(after="saving_ns", is_key=False)
    def saving_low_ns(self) -> int | None:
        """The least that the change would save."""
        return self.saving_ns[0] if self.saving_ns else None

    @property
    @derived(after="saving_low_ns", is_key=False)
    def saving_high_ns(self) -> int | None:
        """The most that the change would save."""
        return self.saving_ns[1] if self.saving_ns else None


class NotChecked(Struct, frozen=True):
    """A rule that lacked its data, or failed."""

    rule: Annotated[str, "Rule id."]
    reason: Annotated[str, "What was missing."]
    could_matter: Annotated[bool, "Whether what the rule looks for could be worth telling, by the account."] = True


#: Of the window: a prediction whose range is no wider is told as one number.
TOLD_ALONE = SMALL


class WhatIf(Struct, frozen=True):
    """A device's window as a scenario would leave it, predicted by replay."""

    scenario: Annotated[str, "Scenario id."]
    predicted_ns: Annotated[Natural, "Predicted length of the window, nanoseconds."]
    baseline_ns: Annotated[Natural, "Measured length of the window, nanoseconds."]
    device: Annotated[int, "Device id."] = 0
    low_ns: Annotated[
        Natural | None, LATER, "Shortest window that unrecorded data, missing records among it, allows."
    ] = None
    high_ns: Annotated[Natural | None, LATER, "Longest window that it allows."] = None
    confidence: Annotated[str, LATER, OneOf(CONFIDENCES), "How narrow that is."] = CONFIDENCES[-1]
    uncertainties: Annotated[
        tuple[Uncertainty, ...],
        JSON_ONLY,
        "All that is open, in the order in which it widens the range: predicted_ns less the sum of low_ns is low_ns,"
        " and with the sum of high_ns high_ns.",
    ] = ()

    @property
    @derived(after="device")
    def speedup(self) -> NonNegative | None:
        """baseline_ns / predicted_ns; null where nothing would remain."""
        return self.baseline_ns / self.predicted_ns if self.predicted_ns else None

    @property
    def ends_ns(self) -> tuple[int, int]:
        """The shortest and the longest window; of results that lack them, the predicted one."""
        ends = (self.predicted_ns if ns is None else ns for ns in (self.low_ns, self.high_ns))
        return next(ends), next(ends)

    @property
    def saved_ns(self) -> int:
        """What the scenario saves."""
        return self.baseline_ns - self.predicted_ns

    @property
    def saving_ns(self) -> tuple[int, int]:
        """What it saves at least and at most."""
        shortest_ns, longest_ns = self.ends_ns
        return self.baseline_ns - longest_ns, self.baseline_ns - shortest_ns

    @property
    def is_wide(self) -> bool:
        """Whether it is told as a range: one number would say more than the trace does."""
        shortest_ns, longest_ns = self.ends_ns
        return longest_ns - shortest_ns > TOLD_ALONE * self.baseline_ns

    @property
    def most_told_ns(self) -> int:
        """What it saves at most, as it is told."""
        return self.saving_ns[1] if self.is_wide else self.saved_ns


class Report(Saved, Viewed, Struct, frozen=True, kw_only=True):
    """What a GPU program is bound by, from one NVIDIA Nsight Systems report. ``boundby.analyze`` returns it; every
    format is made from it."""

    analysis: AnalysisSummary = AnalysisSummary()
    trace: TraceSummary
    devices: Annotated[tuple[DeviceReport, ...], "One account per device with GPU work."]
    threads: Annotated[
        tuple[ThreadReport, ...], "One account per annotated host thread, only where there is no GPU work."
    ] = ()
    regions: Annotated[tuple[RegionReport, ...], "Depth first, siblings by time; the root first."]
    findings: Annotated[tuple[Finding, ...], "What to change, best first."] = ()
    not_checked: Annotated[tuple[NotChecked, ...], "Rules that lacked their data."] = ()
    what_if: Annotated[tuple[WhatIf, ...], "Predictions with a cost removed; none where ``unreliable`` says why."] = ()
    unreliable: Annotated[
        str | None, LATER, "Why the trace cannot be replayed to be trusted, so that nothing is predicted; null: it can."
    ] = None

    operators: Annotated[
        tuple[OperatorShape, ...],
        LATER,
        "By the sizes of their inputs, most kernel time first; one table of them.",
    ] = ()

    collectives: Annotated[
        tuple[CollectiveSize, ...], LATER, "By kind and size of message, most time first; none where no size is told."
    ] = ()

    steps: Annotated[
        tuple[StepBreakdown, ...],
        LATER,
        "The program's steps on each device, in order of time; of many, a few hundred taken evenly. None where nothing"
        " is plainly the step.",
    ] = ()

    step_mfu: Annotated[
        NonNegative | None,
        LATER,
        "Of the program's steps: the share of their time that the matrix products in them would take at the device's"
        " peak (model FLOPs utilization). What lies between steps does not count; null where it is not known.",
    ] = None

    def __repr__(self) -> str:
        """One line; ``print`` shows the screen."""
        bounds = [f"GPU {device.id} {device.verdict.bound} ({device.verdict.confidence})" for device in self.devices]
        bounds = bounds or [f"{thread.name} {thread.verdict.bound}" for thread in self.threads]
        bounds_text = ", ".join(bounds[:HANDFUL]) + (", ..." if bounds[HANDFUL:] else "")
        return f"<boundby.Report of {self.trace.path}: {bounds_text or 'no verdict'}; {len(self.findings)} findings>"

    def metrics(self, prefix: str = "boundby/") -> dict[str, float]:
        """Figures for a tracker, as ``wandb.log``, ``mlflow.log_metrics`` and TensorBoard take them: stable names and
        floats. ``boundby/time/CAUSE`` are fractions that sum to 1; what was not recorded has no name."""
        from boundby.results.flat_tables import flat

        return flat(self, prefix)

    def regions_frame(self) -> pd.DataFrame:
        """One row per region, the root (path ``""``) included, as a pandas frame (needs pandas)."""
        return _frame(self, "regions")

    def devices_frame(self) -> pd.DataFrame:
        """One row per device as a pandas frame (needs pandas)."""
        return _frame(self, "devices")

    def findings_frame(self) -> pd.DataFrame:
        """One row per finding, best first, as a pandas frame (needs pandas)."""
        return _frame(self, "findings")

    def kernels_frame(self) -> pd.DataFrame:
        """Of each region, the root (path ``""``: in total) included, the kernels with most time, one row a name, as a
        pandas frame (needs pandas)."""
        return _frame(self, "kernels")

    def operators_frame(self) -> pd.DataFrame:
        """One row per operator and sizes of its inputs, most kernel time first, as a pandas frame (needs pandas)."""
        return _frame(self, "operators")

    def steps_frame(self) -> pd.DataFrame:
        """One row per step and device, in order of time, as a pandas frame (needs pandas)."""
        return _frame(self, "steps")

    def calls_frame(self) -> pd.DataFrame:
        """Of each region, the CUDA API calls with most time, waits included, one row a name, as a pandas frame (needs
        pandas)."""
        return _frame(self, "calls")


def _frame(report: Report, table: str) -> pd.DataFrame:
    from boundby.results.flat_tables import frame

    return frame(report, table)
