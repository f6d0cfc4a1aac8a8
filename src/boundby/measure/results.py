"""What was measured, as frozen data. Times are nanoseconds; raw ones are integers, those per call are floats.

Figures (median, percentiles, ...) are worked out from the raw samples when asked for and never stored, so that a
saved result can be judged again in any way. ``None`` means that a thing was not captured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, cast

from msgspec import Struct, field

from boundby.model import statistics
from boundby.model.errors import UserError
from boundby.results import saved
from boundby.results.saved import Saved, derived
from boundby.results.write import write_text

WALL, NAIVE, SYNCHRONISED, EVENT = "wall", "naive", "synchronised", "event"
METHODS = (NAIVE, SYNCHRONISED, EVENT)  # of a device that works on while the host goes ahead

#: method -> how it measures, for people.
METHOD_MEANING: Mapping[str, str] = {
    WALL: "wall clock (time.perf_counter_ns)",
    NAIVE: "wall clock, without waiting for the device",
    SYNCHRONISED: "wall clock, waiting for the device before and after",
    EVENT: "CUDA events on the current stream",
}


class Mistake(Struct, frozen=True):
    """Something that makes the figures say less, or other, than they seem to. ``code`` is its anchor in the docs."""

    code: str
    message: str
    advice: str = ""


class Interval(Struct, frozen=True):
    """A confidence interval. ``confidence`` is what it holds by construction: few samples may not reach what was
    asked for."""

    low_ns: float
    high_ns: float
    confidence: float
    of: str = "median"
    how: str = "order statistics"


class DeviceState(Struct, frozen=True):
    """A GPU as NVML or nvidia-smi describes it at one moment. None: not told."""

    source: str
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttling: tuple[str, ...] | None = None  # reasons that hold the clock down now; () none
    performance_state: int | None = None  # P0 is the fastest
    persistence_mode: bool | None = None  # off: the driver is loaded again for the first program, which takes a second


class MeasuredOn(Struct, frozen=True):
    """Where it was measured."""

    python: str
    platform: str
    processor: str
    logical_cores: int | None
    load_average: float | None  # over the last minute, when the measurement began
    torch: str | None = None  # version, where it was loaded
    torch_threads: int | None = None


class _Kept(Saved):
    """What every result can do: ``print`` shows its table."""

    written_by: ClassVar[str] = "boundby measure TARGET -o result.json"
    keeps_infinite: ClassVar[bool] = True

    def save(self, path: str | Path) -> None:
        """Write JSON that ``boundby.measure.load`` reads."""
        write_text(path, saved.render(self))

    def figure(self, path: str | Path) -> None:
        """Draw it as .png, .svg or .pdf, with matplotlib."""
        from boundby.measure import charts

        charts.draw(self, path)  # type: ignore[arg-type]

    def __str__(self) -> str:
        from boundby.measure import shown

        return shown.render(self)  # type: ignore[arg-type]


#: of a latency, worked out from its samples and written beside them
FIGURES = (
    "median_ns",
    "mean_ns",
    "std_ns",
    "min_ns",
    "max_ns",
    "p90_ns",
    "p99_ns",
    "host_ns",
    "spread_fraction",
    "calls",
    "interval",
)


class Latency(_Kept, Struct, frozen=True):
    """How long one call takes.

    A sample is a block of ``calls_per_sample`` calls timed together (1 unless a call is too short for the clock), so
    percentiles are those of blocks. ``samples_ns`` and every figure are per call.
    """

    kind: ClassVar[str] = "latency"

    name: str
    method: str  # WALL, NAIVE, SYNCHRONISED or EVENT
    device: str  # "cpu", "cuda:0"
    device_name: str
    clock: str
    block_ns: tuple[int, ...]  # raw: one a sample
    calls_per_sample: int
    host_block_ns: tuple[int, ...] | None  # until the calls of a sample had returned; None where that is block_ns
    first_call_ns: int
    warmup_ns: tuple[float, ...]  # per call, one a block, in order; not among the samples
    warmup_calls: int  # all calls before the samples: the first, a watched one, those that chose the block size
    is_steady: bool | None  # whether warm-up ended because times had settled; None: a fixed warm-up
    stopped_by: str  # "precision", "budget", "max_samples"
    confidence: float
    precision_asked: float  # half width of the interval as a fraction of the median
    mode: str | None  # "inference", "training"; None: as it was found
    graph: bool
    flush_l2: bool
    fresh_inputs: bool
    compiled_graphs: int | None  # torch.compile graphs made meanwhile; None: torch.compile was not in use
    before: DeviceState | None
    after: DeviceState | None
    machine: MeasuredOn
    mistakes: tuple[Mistake, ...] = ()

    @property
    @derived(after="mistakes")
    def figures(self) -> Mapping[str, object]:
        """What readers of the file want to know, worked out from the raw samples."""
        return {name: getattr(self, name) for name in FIGURES}

    @property
    def samples_ns(self) -> tuple[float, ...]:
        """Per call, one a sample."""
        return tuple(block / self.calls_per_sample for block in self.block_ns)

    @property
    def calls(self) -> int:
        return len(self.block_ns) * self.calls_per_sample

    @property
    def median_ns(self) -> float:
        return statistics.median(self.samples_ns)

    @property
    def mean_ns(self) -> float:
        return statistics.mean(self.samples_ns)

    @property
    def std_ns(self) -> float | None:
        """Of the sample (n - 1); None for a single one."""
        return statistics.std(self.samples_ns)

    @property
    def min_ns(self) -> float:
        return min(self.samples_ns)

    @property
    def max_ns(self) -> float:
        return max(self.samples_ns)

    @property
    def p90_ns(self) -> float:
        return statistics.percentile(self.samples_ns, 90)

    @property
    def p99_ns(self) -> float:
        return statistics.percentile(self.samples_ns, 99)

    @property
    def interval(self) -> Interval | None:
        """Of the median, by order statistics; None for a single sample."""
        ends = statistics.median_interval(self.samples_ns, self.confidence)
        return None if ends is None else Interval(*ends)

    @property
    def host_ns(self) -> float | None:
        """Median time until a call returned to the host; None where a call returns when its work is done."""
        if self.host_block_ns is None:
            return None
        return statistics.median(tuple(block / self.calls_per_sample for block in self.host_block_ns))

    @property
    def spread_fraction(self) -> float:
        """Width of the middle half of the samples, as a fraction of their median."""
        return statistics.spread(self.samples_ns)


class Methods(_Kept, Struct, frozen=True):
    """The same call by several methods, the one to believe last."""

    kind: ClassVar[str] = "methods"

    latencies: tuple[Latency, ...]
    with_copy: Latency | None = None  # the last method once more, the inputs' copy to the device inside the timed part
    loop: Latency | None = None  # many calls by the naive method, as if the last one's return were its end

    @property
    def copy_ns(self) -> float | None:
        """What that copy adds to a call, of medians; None where nothing was to be copied."""
        return None if self.with_copy is None else self.with_copy.median_ns - self.latencies[-1].median_ns

    @property
    def best(self) -> Latency:
        """By the method to believe."""
        return self.latencies[-1]

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return self.best.mistakes

    @property
    def said(self) -> Mapping[str, float]:
        """What each of the usual mistakes says of a call, in nanoseconds: those that can be made here."""
        naive = next((latency for latency in self.latencies if latency.method == NAIVE), None)
        first = self.best.first_call_ns if self.best.warmup_calls else 0
        ratios = {
            "launches only": naive.median_ns if naive else None,
            "loop, no wait": self.loop.median_ns if self.loop else None,
            "no warm-up": first or None,
            "copies inside": self.with_copy.median_ns if self.with_copy else None,
        }
        return {what: float(ns) for what, ns in ratios.items() if ns is not None}


class TimeOf(Struct, frozen=True):
    """A time, with its confidence interval where one is known."""

    median_ns: float
    low_ns: float | None = None
    high_ns: float | None = None

    @classmethod
    def of(cls, latency: Latency) -> TimeOf:
        interval = latency.interval
        if interval is None:
            return cls(latency.median_ns)
        return cls(latency.median_ns, interval.low_ns, interval.high_ns)


#: By size, and by what was timed.
Times = Mapping[tuple[int, str], TimeOf]


class MethodsPoint(Struct, frozen=True):
    """One size."""

    size: int
    methods: Methods


class MethodsBySize(_Kept, Struct, frozen=True):
    """The same function by several methods at several sizes: where each mistake shows."""

    kind: ClassVar[str] = "methods-by-size"

    points: tuple[MethodsPoint, ...]

    @property
    def times(self) -> Times:
        """Of one call, by the method to believe."""
        return {(point.size, "call"): TimeOf.of(point.methods.best) for point in self.points}

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return self.points[-1].methods.mistakes


class StageTimes(Struct, frozen=True):
    """One stage. All tuples have one entry for each time it was entered, in order."""

    name: str
    host_ns: tuple[int, ...]  # from entering to leaving, on the host
    device_ns: tuple[int, ...] | None  # between the stage's two events on its stream: work, and waiting for the host
    wait_ns: tuple[int, ...] | None  # from entering on the host until the stream came to it: earlier work
    begin_ns: tuple[int, ...] = ()  # from its pass's first stage until it was entered on the host


class StagesResult(_Kept, Struct, frozen=True):
    """A pipeline: each stage, and all of it from the first stage's start until its work was done."""

    kind: ClassVar[str] = "stages"

    device: str
    device_name: str
    clock: str
    stages: tuple[StageTimes, ...]
    end_to_end_ns: int
    passes: int  # how often the first stage was entered
    synchronised: bool  # the recorder waited for the device after every stage
    synchronised_estimate_ns: tuple[int, int] | None  # [low, high] of end_to_end_ns had it done so
    warmup_passes: int = 0  # the first ones, unlike the rest: left out of all figures
    mistakes: tuple[Mistake, ...] = ()
    machine: MeasuredOn | None = None
    after: DeviceState | None = None

    @property
    def pass_ns(self) -> float:
        """From end to end, of each pass."""
        return self.end_to_end_ns / max(1, self.passes)


class BatchPoint(Struct, frozen=True):
    """One batch size."""

    size: int
    median_ns: float  # one batch, from an idle device to an idle device
    low_ns: float  # confidence interval of that median
    high_ns: float
    batches: int  # run back to back
    total_ns: int  # for all of them
    peak_memory_bytes: int | None

    @property
    @derived(after="peak_memory_bytes")
    def samples_per_s(self) -> float:
        """Throughput of all batches."""
        return self.batches * self.size / self.total_ns * 1e9


class Throughput(_Kept, Struct, frozen=True):
    """Samples per second against batch size, the best size, and what ended the search."""

    kind: ClassVar[str] = "throughput"

    name: str
    device: str
    device_name: str
    clock: str
    points: tuple[BatchPoint, ...]  # by size
    best: BatchPoint  # measured again, for longer
    stopped_by: str  # "memory", "latency", "plateau", "max_batch", "budget", "error"
    limit: int | None  # the smallest size known not to do, where one is
    latency_limit_ns: int | None
    reason: str  # stopped_by, in words
    memory_returned_bytes: int | None  # memory in use afterwards less that before: 0 is right
    mode: str | None
    machine: MeasuredOn
    mistakes: tuple[Mistake, ...] = ()
    after: DeviceState | None = None

    @property
    def times(self) -> Times:
        """Of one batch."""
        return {(point.size, "batch"): TimeOf(point.median_ns, point.low_ns, point.high_ns) for point in self.points}


class SizePoint(Struct, frozen=True):
    """One size on both devices. ``gpu_*`` are None where there is no GPU."""

    size: int
    cpu_ns: float
    gpu_ns: float | None  # inputs and result stay on the device
    gpu_with_copies_ns: float | None  # inputs copied there and the result back
    equal: bool | None  # None: no numbers to compare
    largest_difference: float | None  # of the results, absolute
    cpu_quality: float | None = None  # what ``quality`` says of a result
    gpu_quality: float | None = None
    intervals_ns: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of the times above, by their names

    @property
    def times(self) -> Mapping[str, TimeOf]:
        """Those that were measured, by what was timed."""
        every = {"CPU": "cpu_ns", "GPU": "gpu_ns", "GPU with copies": "gpu_with_copies_ns"}
        by_what = {
            what: (getattr(self, name), self.intervals_ns.get(name, (None, None))) for what, name in every.items()
        }
        return {what: TimeOf(ns, *ends) for what, (ns, ends) in by_what.items() if ns is not None}


class Devices(_Kept, Struct, frozen=True):
    """A function at growing sizes on CPU and GPU."""

    kind: ClassVar[str] = "devices"

    name: str
    cpu_name: str
    gpu: str | None
    gpu_name: str | None
    points: tuple[SizePoint, ...]
    break_even: float | None  # the size from which on the GPU is quicker, between two measured ones
    break_even_with_copies: float | None
    rtol: float
    atol: float
    stopped_by: str
    mode: str | None
    machine: MeasuredOn
    mistakes: tuple[Mistake, ...] = ()
    quality: str | None = None  # what the figure of quality is called
    after: DeviceState | None = None

    @property
    def times(self) -> Times:
        """Of one call."""
        return {(point.size, what): time for point in self.points for what, time in point.times.items()}


class LatencyComparison(_Kept, Struct, frozen=True):
    """Two latencies against each other. ``ratio`` is B's median by A's: 0.8 means that B takes 20 % less."""

    kind: ClassVar[str] = "comparison"

    a: Latency
    b: Latency
    ratio: float
    ratio_low: float  # confidence interval of the ratio, by a bootstrap of blocks of neighbouring samples
    ratio_high: float
    confidence: float
    p_value: float | None  # Mann-Whitney U, two-sided; None: too few samples
    significant: bool | None  # both say so; None: too few samples to tell
    interleaved_rounds: int = 0  # measured in turns; 0: one after the other, or at different times
    mistakes: tuple[Mistake, ...] = field(default=())


class StageChange(Struct, frozen=True):
    """A stage of both pipelines. ``ratio`` is B's median by A's."""

    name: str
    clock: str  # "device", or "host" where one of the two has no times of the device
    ratio: float
    low: float  # its confidence interval
    high: float
    significant: bool | None  # None: too few passes to tell


class StagesComparison(_Kept, Struct, frozen=True):
    """Two pipelines, or one in two ways, against each other: stage by stage, and from end to end."""

    kind: ClassVar[str] = "stages-comparison"

    a: StagesResult
    b: StagesResult
    stages: tuple[StageChange, ...]  # those that both have
    confidence: float
    mistakes: tuple[Mistake, ...] = ()


#: What is measured over sizes.
Sweep = Throughput | Devices | MethodsBySize
SWEEPS = (Throughput, Devices, MethodsBySize)


class SizeChange(Struct, frozen=True):
    """One time at one size, in both results."""

    size: int
    what: str  # "batch", "call", "CPU", "GPU", "GPU with copies"
    a_ns: float
    b_ns: float
    low: float | None  # of the ratio B / A: by the ends of both intervals; None: not known of one of them
    high: float | None
    differs: bool | None  # the intervals do not meet; None: nobody can tell

    @property
    def ratio(self) -> float:
        return self.b_ns / self.a_ns if self.a_ns else float("inf")


class SweepSummary(Struct, frozen=True):
    """One of two compared results over sizes, in short."""

    name: str
    where: str  # the device, or both of them
    best: BatchPoint | None = None  # of a throughput
    break_even: float | None = None  # of CPU against GPU: the size from which on the GPU pays, without copies
    has_gpu: bool = True
    after: DeviceState | None = None


class SizesComparison(_Kept, Struct, frozen=True):
    """Two results over sizes against each other, at the sizes that both have."""

    kind: ClassVar[str] = "sizes-comparison"

    of: str  # what both are: "throughput", "devices", "methods-by-size"
    a: SweepSummary
    b: SweepSummary
    changes: tuple[SizeChange, ...]
    mistakes: tuple[Mistake, ...] = ()


Compared = LatencyComparison | StagesComparison | SizesComparison
KINDS = (Latency, Methods, *SWEEPS, StagesResult, LatencyComparison, StagesComparison, SizesComparison)
Result = Latency | Methods | Sweep | StagesResult | Compared


def loads(text: str, where: str = "The text") -> Result:
    """The result in a JSON text, its figures worked out again. Raises InputError: it is none, or of a later format."""
    return cast(Result, saved.loads(text, *KINDS, where=where))


def save(result: Result, path: str | Path) -> None:
    """Write a result as JSON, whole or not at all."""
    result.save(path)


def load(path: str | Path) -> Result:
    """Read a result that ``save`` or ``boundby measure -o`` wrote. Raises InputError if it is none."""
    return cast(Result, saved.load(path, *KINDS))


# What can be wrong with what is to be measured, or with where.


class TargetError(UserError):
    """What is to be measured cannot be found, raises, or gives nothing to measure."""


class DeviceError(UserError):
    """The device asked for is not here, or cannot be timed."""


class MeasureError(UserError):
    """Choices that do not go together, or a package that is missing for them."""


#: What torch and CUDA say where there is no GPU to use.
_NO_GPU = ("not compiled with CUDA", "No CUDA GPUs are available", "Found no NVIDIA driver")


def next_step(error: BaseException) -> str:
    """What to do about an error that the measured code raised."""
    if any(text in str(error) for text in _NO_GPU):
        return "There is no GPU here: put inputs and model on the CPU, or run it where there is one."
    return "Correct it, and measure again."
