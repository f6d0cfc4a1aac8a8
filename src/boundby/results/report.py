"""The result of an analysis, as plain frozen data. Renderers read it and do no arithmetic on traces.

All times are integer nanoseconds. ``None`` means "not captured"; zero is a measured zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from boundby.trace.facts import Captured, GpuInfo, TraceWarning

if TYPE_CHECKING:
    import pandas as pd

FORMAT_VERSION = 1  # 1: first published form (docs/json.md). Keys are stable; more may be added.


@dataclass(frozen=True)
class TraceSummary:
    """What was analysed: the file, what ran, and what the capture holds."""

    path: str
    source: str  # "nsys-sqlite" | "nsys-rep" | "nsys-qdrep"
    nsys_version: str | None = None
    schema_version: str | None = None
    command: str | None = None
    gpus: tuple[GpuInfo, ...] = ()
    captured: Captured = field(default_factory=Captured)
    warnings: tuple[TraceWarning, ...] = ()
    duration_ns: int | None = None  # first to last event of any kind


@dataclass(frozen=True)
class Distribution:
    """Count, sum and the usual order statistics of a set of durations, in nanoseconds."""

    count: int
    total_ns: int
    mean_ns: float
    median_ns: float
    p95_ns: float
    max_ns: int


@dataclass(frozen=True)
class Gaps:
    """Idle intervals between busy ones."""

    count: int
    total_ns: int
    longest_ns: int


@dataclass(frozen=True)
class Kernels:
    count: int
    total_ns: int  # sum of durations: can exceed the time covered where kernels overlap
    median_ns: float | None


@dataclass(frozen=True)
class ApiCalls:
    calls: int
    total_ns: int
    per_ms: float | None  # calls per millisecond of host time


@dataclass(frozen=True)
class Syncs:
    """Blocking syncs: calls in which the host waits for the device."""

    count: int
    blocked_ns: int
    per_ms: float | None


@dataclass(frozen=True)
class Copies:
    """Copies of one direction. ``total_ns`` sums durations; bandwidth is bytes over that sum."""

    count: int
    bytes: int
    total_ns: int
    pageable_count: int
    small_count: int  # at most 1 KiB: typical of a scalar read back
    bandwidth_bytes_per_s: float | None
    by_memory: Mapping[str, int] = field(default_factory=dict)  # "pageable -> device": bytes


@dataclass(frozen=True)
class LaunchLatency:
    """Start of the launching call to start of the operation."""

    median_ns: float
    p95_ns: float


@dataclass(frozen=True)
class Saving:
    """How much shorter the window would be without one cause, by the account (an estimate)."""

    cause: str
    saving_ns: int


@dataclass(frozen=True)
class Check:
    """One line of the classic checklist: a measured value set against its rule of thumb."""

    name: str
    value: str
    reading: str
    points_to: str | None  # a bound it speaks for, if any


@dataclass(frozen=True)
class Verdict:
    """What a device or a region is bound by, how sure, and what would come next."""

    bound: str  # one of causes.BOUNDS
    confidence: str  # "high" | "medium" | "low"
    reasons: tuple[str, ...] = ()  # why the confidence is not higher
    saving_ns: int | None = None  # of removing the bound; None for hidden and unknown
    runner_up: Saving | None = None
    bound_next: str | None = None
    mixed_of: tuple[str, str] | None = None
    because: str = ""  # the two or three numbers that decide it, one short clause
    savings: tuple[Saving, ...] = ()  # every removable cause, best first
    without_ns: int | None = None  # the window without the bound alone, by replay (devices)
    decided_by: str = "account"  # "replay" where the trace's dependencies decided, else "account"


@dataclass(frozen=True)
class DeviceReport:
    """One device's account over its window. ``time`` sums to the window to the nanosecond."""

    id: int
    name: str
    window_start_ns: int
    window_end_ns: int
    busy_ns: int
    idle_ns: int
    startup_ns: int
    shutdown_ns: int
    time: Mapping[str, int]
    gaps: Gaps
    kernels: Kernels
    api: ApiCalls
    sync: Syncs
    memcpy: Mapping[str, Copies]
    launch_latency: LaunchLatency | None
    queue_depth_median: float | None
    queue_depth_max: int | None
    cpu_utilization: float | None  # of the launching threads, over the window
    host_active_ns: int | None  # launching thread neither waits for the device nor sleeps
    verdict: Verdict
    checklist: tuple[Check, ...] = ()
    graphs: Kernels | None = None  # CUDA graphs traced as one operation each; None: none were
    clock_shift_ns: int = 0  # added to device times to put them on the host's clock
    processes: tuple[int, ...] = ()

    @property
    def window_ns(self) -> int:
        return self.window_end_ns - self.window_start_ns

    @property
    def gpu_utilization(self) -> float:
        return self.busy_ns / self.window_ns if self.window_ns else 0.0


@dataclass(frozen=True)
class ThreadReport:
    """A host thread's account, for traces without GPU work. ``time`` sums to ``total_ns``."""

    pid: int
    tid: int
    name: str
    total_ns: int  # time covered by the thread's ranges (or the whole trace, without ranges)
    time: Mapping[str, int]
    blocked_on: Mapping[str, int]  # "lock", "sleep", "file", ...: ns
    cpu_utilization: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Instances:
    """Durations of a region's instances in order of time; of many, a few hundred taken evenly.

    They tell how much instances differ, so that a comparison can tell a change from chance.
    """

    host_ns: tuple[int, ...] = ()
    projected_ns: tuple[int, ...] = ()  # only of instances that launched GPU work


@dataclass(frozen=True)
class RegionReport:
    """All instances of one NVTX path in one domain, summed over devices and threads."""

    path: tuple[str, ...]
    domain: str
    instances: int
    host: Distribution
    projected: Distribution | None
    time: Mapping[str, int]  # with descendants
    time_exclusive: Mapping[str, int]  # without
    verdict: Verdict
    gpu_utilization: float | None  # over the projected intervals
    gpu_utilization_host: float | None  # over the host intervals
    cpu_utilization: float | None
    gaps: Gaps
    api: ApiCalls
    sync: Syncs
    memcpy: Mapping[str, Copies]
    kernels: Kernels
    launch_latency: LaunchLatency | None
    queue_depth_median: float | None
    blocked_on: Mapping[str, int]  # what the host slept on inside the region's own thread
    share: float  # of all devices' windows (or all threads' time)
    graphs: Kernels | None = None
    threads: int = 1
    open_instances: int = 0  # ranges that never closed: cut off at the end of the trace
    instance_ns: Instances = Instances()  # empty for the root, and in results of an earlier boundby
    found: bool = False  # found in the launches by boundby, not annotated in the program

    @property
    def total_ns(self) -> int:
        return sum(self.time.values())

    @property
    def depth(self) -> int:
        return len(self.path)


@dataclass(frozen=True)
class Example:
    """One instance of what a finding is about, to look up in a timeline.

    ``start_ns`` is on the host's clock, as calls, ranges and the times of regions are. Of an operation on a device
    whose clock is off that is what the trace holds plus the device's ``clock_shift_ns``.
    """

    start_ns: int
    duration_ns: int
    what: str  # "cudaStreamSynchronize in aten::item, train.py:31"


SEVERITIES = ("high", "medium", "low", "note")  # of findings, worst first


@dataclass(frozen=True)
class Finding:
    """Something to change (or to know): where, the evidence, what the change would save, and how to make it."""

    rule: str
    severity: str  # one of SEVERITIES; note: nothing is saved, but averages or verdicts suffer
    title: str
    region: tuple[str, ...] | None
    evidence: Mapping[str, object]
    saving_ns: tuple[int, int] | None  # low, high
    advice: tuple[str, ...]
    docs: str  # the page of the rule
    examples: tuple[Example, ...] = ()  # the worst instances, longest first
    instances: int = 1  # how many alike this stands for
    disproof: str = ""  # what would prove it wrong


@dataclass(frozen=True)
class NotChecked:
    """A rule that lacked its data, or failed. ``could_matter``: what it looks for could be worth telling here."""

    rule: str
    reason: str
    could_matter: bool = True


@dataclass(frozen=True)
class WhatIf:
    """A device's window as a scenario would leave it, predicted by replay."""

    scenario: str
    predicted_ns: int
    baseline_ns: int
    device: int = 0

    @property
    def speedup(self) -> float:
        return self.baseline_ns / self.predicted_ns if self.predicted_ns else float("inf")


@dataclass(frozen=True)
class Report:
    """Everything one analysis found. ``boundby.analyze`` returns it; every format is made from it."""

    trace: TraceSummary
    devices: tuple[DeviceReport, ...]
    threads: tuple[ThreadReport, ...]  # only where there is no GPU work
    regions: tuple[RegionReport, ...]  # depth first, siblings by time; the root has path ()
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    window: str = "gpu"
    region_glob: str | None = None
    min_share: float = 0.0
    skip_first: int = 0
    device_ids: tuple[int, ...] = ()  # empty: all
    process_ids: tuple[int, ...] = ()
    fold: bool = True
    rules_checked: int = 0  # rules that looked and had what they need; 0: none was asked
    rules_disabled: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)  # "rule.name": value, where users changed it
    show_all: bool = False  # findings below 1 % of the window too

    def to_dict(self) -> dict[str, object]:
        """The JSON form (docs/json.md) as plain dicts and lists."""
        from boundby.render.json import to_dict

        return to_dict(self)

    def regions_frame(self) -> pd.DataFrame:
        """One row per region as a pandas frame (needs pandas)."""
        from boundby.render.frames import regions_frame

        return regions_frame(self)

    def devices_frame(self) -> pd.DataFrame:
        """One row per device as a pandas frame (needs pandas)."""
        from boundby.render.frames import devices_frame

        return devices_frame(self)

    def findings_frame(self) -> pd.DataFrame:
        """One row per finding, best first, as a pandas frame (needs pandas)."""
        from boundby.render.frames import findings_frame

        return findings_frame(self)

    def _repr_html_(self) -> str:
        from boundby.render.html import fragment

        return fragment(self)
