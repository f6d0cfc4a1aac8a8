"""What a limit can be set on: name, unit, meaning, how it is read off a report or a comparison, what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from boundby.model.causes import CAUSE_KEYS
from boundby.model.scale import NEGLIGIBLE
from boundby.results.comparison import Comparison, RegionChange
from boundby.results.job_report import JobReport
from boundby.results.report import SEVERITIES, Coverage, DeviceReport, Finding, RegionReport, Report
from boundby.trace.facts import Captured

Number = float | int | None


class Quantity(Struct, frozen=True):
    """``of_region`` and ``of_whole`` measure it (None: it does not exist there); a result of None: not captured.

    ``of_whole`` gives one value per device, by name; without a device, one value.
    """

    unit: str  # "ns", "fraction" (0 to 1, or percent), "count", "per_ms" or "bytes"
    about: str
    of_region: Callable[[RegionReport], Number] | None = None
    of_whole: Callable[[Report, RegionReport | None], Mapping[str, Number]] | None = None
    of_change: Callable[[RegionChange], Number] | None = None
    of_comparison: Callable[[Comparison], Mapping[str, Number]] | None = None
    of_job: Callable[[JobReport], Mapping[str, Number]] | None = None

    @property
    def needs_two(self) -> bool:
        return self.of_change is not None or self.of_comparison is not None


def _devices(read: Callable[[DeviceReport], Number]) -> Callable[[Report, RegionReport | None], Mapping[str, Number]]:
    return lambda report, _: {f"GPU {device.id}": read(device) for device in report.devices}


def _alike(unit: str, about: str, path: str) -> Quantity:
    """What regions and devices have under the same name."""
    read = attrgetter(path)
    return Quantity(unit, about, of_region=read, of_whole=_devices(read))


def _per_step(about: str, read: Callable[[RegionReport], int], all_of: str) -> Quantity:
    """A count per instance; without a region, all that the program does from its first step to the end of its last, by
    steps: threads that make input, say, work for the step outside of its ranges. ``all_of``: of `Meanwhile`."""

    def of_steps(_: Report, steps: RegionReport | None) -> Mapping[str, Number]:
        if steps is None:
            return {}
        every = 0 if steps.meanwhile is None else getattr(steps.meanwhile, all_of)
        return {"/".join(steps.path): _each(max(read(steps), every), steps)}

    about = (
        f"{about} per instance; without a region, per step, of all threads from the first step to the end of the last"
    )
    return Quantity("count", about, of_region=lambda region: _each(read(region), region), of_whole=of_steps)


def _projected(about: str, figure: str) -> Quantity:
    return Quantity(
        "ns", about, of_region=lambda region: getattr(region.projected, figure) if region.projected else None
    )


def _copies(region: RegionReport) -> int:
    return sum(copies.count for copies in region.memcpy.values())


def _each(total: float, region: RegionReport) -> float | None:
    return total / region.instances if region.instances else None


def _time_each(region: RegionReport) -> Number:
    """The account's time; the host's where the account holds none of it (hidden work)."""
    return _each(region.total_ns or region.host.total_ns, region)


def _share_of(cause: str) -> Quantity:
    return Quantity(
        "fraction",
        f"share of the account that goes to {cause}",
        of_region=lambda region: region.time.get(cause, 0) / region.total_ns if region.total_ns else 0.0,
        of_whole=_devices(lambda device: device.time.get(cause, 0) / device.window_ns if device.window_ns else 0.0),
    )


def _time_of(cause: str) -> Quantity:
    return Quantity(
        "ns",
        f"the account's {cause} per instance; without a region, of the whole window",
        of_region=lambda region: _each(region.time.get(cause, 0), region),
        of_whole=_devices(lambda device: device.time.get(cause, 0)),
    )


def _counts(finding: Finding, severity: str | None) -> bool:
    return finding.severity == severity if severity else finding.severity != "note"


def _findings(severity: str | None) -> Quantity:
    about = f"findings of {severity} severity" if severity else "findings, notes left out"

    def of_whole(report: Report, _: RegionReport | None) -> Mapping[str, Number]:
        return {"": sum(_counts(item, severity) for item in report.findings)}

    return Quantity("count", about, of_whole=of_whole)


def _new(severity: str | None) -> Quantity:
    about = f"new findings of {severity} severity" if severity else "new findings, notes left out"

    def of_comparison(comparison: Comparison) -> Mapping[str, Number]:
        return {"": sum(_counts(item.finding, severity) for item in comparison.findings if item.status == "new")}

    return Quantity("count", about, of_comparison=of_comparison)


def _regression(change: RegionChange) -> Number:
    """By how much typical instances became slower; 0 where that is not significant, None where that is not known."""
    tested = change.significance
    if tested.status in ("too_few", "not_tested"):
        return None
    return tested.change if tested.status == "slower" else 0.0


def _improvement(change: RegionChange) -> Number:
    tested = change.significance
    if tested.status in ("too_few", "not_tested"):
        return None
    return -tested.change if tested.status == "faster" and tested.change is not None else 0.0


def _all_regions(read: Callable[[RegionChange], Number]) -> Callable[[Comparison], Mapping[str, Number]]:
    """Of every region that can be tested."""

    def of_comparison(comparison: Comparison) -> Mapping[str, Number]:
        values = {"/".join(item.path): read(item) for item in comparison.regions if item.path}
        return {name: value for name, value in values.items() if value is not None}

    return of_comparison


def _device_changes(comparison: Comparison) -> Mapping[str, Number]:
    return {item.after.name: item.change for item in comparison.devices if item.after is not None}


QUANTITIES: dict[str, Quantity] = {
    "time": Quantity(
        "ns",
        "the account's time per instance, from its begin to its end: not what passes between two (hidden work: the"
        " host's); without a region, the whole window",
        of_region=_time_each,
        of_whole=_devices(attrgetter("window_ns")),
    ),
    "time.total": Quantity("ns", "the account's time of all instances", of_region=lambda region: region.total_ns),
    "host.median": Quantity("ns", "median host duration", of_region=lambda region: region.host.median_ns),
    "host.p95": Quantity("ns", "95th percentile of the host durations", of_region=lambda region: region.host.p95_ns),
    "host.max": Quantity("ns", "longest host duration", of_region=lambda region: region.host.max_ns),
    "gpu.median": _projected(
        "median projected duration: first start to last end of the GPU work launched inside", "median_ns"
    ),
    "gpu.p95": _projected("95th percentile of the projected durations", "p95_ns"),
    "gpu.max": _projected("longest projected duration", "max_ns"),
    "instances": Quantity("count", "how often the region ran", of_region=lambda region: region.instances),
    "share": Quantity("fraction", "share of all devices' windows", of_region=lambda region: region.share),
    "gpu_utilization": _alike(
        "fraction", "busy time of the GPU; of a region, over its projected intervals", "gpu_utilization"
    ),
    "cpu_utilization": _alike("fraction", "CPU time of the launching threads", "cpu_utilization"),
    **{f"share.{cause}": _share_of(cause) for cause in CAUSE_KEYS},
    **{f"time.{cause}": _time_of(cause) for cause in CAUSE_KEYS},
    "sync.count": _alike("count", "blocking syncs", "sync.count"),
    "sync.per_step": _per_step("blocking syncs", attrgetter("sync.count"), "syncs"),
    "sync.blocked": Quantity(
        "ns",
        "time per instance in which the host waits for the device; without a region, in all",
        of_region=lambda region: _each(region.sync.blocked_ns, region),
        of_whole=_devices(lambda device: device.sync.blocked_ns),
    ),
    "api.per_step": _per_step("CUDA calls", attrgetter("api.calls"), "api_calls"),
    "api.per_ms": _alike("per_ms", "CUDA calls per millisecond", "api.per_ms"),
    "kernels.per_step": _per_step("kernels", attrgetter("kernels.count"), "kernels"),
    "copies.per_step": _per_step("memory copies", _copies, "copies"),
    "copies.bytes": Quantity(
        "bytes",
        "bytes copied per instance; without a region, in all",
        of_region=lambda region: _each(sum(copies.bytes for copies in region.memcpy.values()), region),
        of_whole=_devices(lambda device: sum(copies.bytes for copies in device.memcpy.values())),
    ),
    "gaps.longest": _alike("ns", "longest time in which the GPU was idle", "gaps.longest_ns"),
    "findings": _findings(None),
    **{f"findings.{severity}": _findings(severity) for severity in SEVERITIES},
    # Of a job of many ranks:
    "imbalance": Quantity(
        "fraction",
        "what perfect balance would save of a job [boundby job]",
        of_job=lambda job: {"": job.imbalance},
    ),
    "job.time": Quantity("ns", "length of a job [boundby job]", of_job=lambda job: {"": job.length_ns}),
    "stragglers": Quantity("count", "what holds a job up [boundby job]", of_job=lambda job: {"": len(job.stragglers)}),
    "waits": Quantity(
        "fraction",
        "share of its time that a rank waits for others [boundby job]",
        of_job=lambda job: {rank.name: rank.wait_ns / rank.window_ns if rank.window_ns else 0.0 for rank in job.ranks},
    ),
    # Of two runs:
    "regression": Quantity(
        "fraction",
        "by how much typical instances became slower, where that is significant (else 0); without a region, of the"
        " step; any-region.regression: of every region",
        of_change=_regression,
        of_comparison=_all_regions(_regression),
    ),
    "improvement": Quantity(
        "fraction",
        "by how much typical instances became faster, where that is significant (else 0)",
        of_change=_improvement,
        of_comparison=_all_regions(_improvement),
    ),
    "time.change": Quantity(
        "fraction",
        "change of the time per instance, significant or not (5 %: a twentieth more); without a region, of the window",
        of_change=lambda change: change.change,
        of_comparison=_device_changes,
    ),
    "findings.new": _new(None),
    **{f"findings.new.{severity}": _new(severity) for severity in SEVERITIES},
}


def listing() -> str:
    """All quantities as text, one a line."""
    width = max(len(name) for name in QUANTITIES)
    words = {"ns": "time", "fraction": "% or 0-1", "count": "number", "per_ms": "per ms", "bytes": "bytes"}
    lines = []
    for name, quantity in QUANTITIES.items():
        about = f"{quantity.about} [two runs]" if quantity.needs_two else quantity.about
        lines.append(f"{name:<{width}}  {words[quantity.unit]:<9} {about}")
    return "\n".join(lines)


# What is known of a quantity that a limit is held against: a number, an interval, or nothing.

ANY = float("inf")
#: What less than this part of a window, or of its records, could show is no finding.
WORTH_A_FINDING = NEGLIGIBLE
_OF_CALLS = ("sync.", "api.")
_OF_WORK = ("kernels.", "copies.", "gpu.", "gaps.", "share.gpu", "time.gpu", "gpu_utilization")
_OF_KERNELS = ("kernels.",)
_HOST_CAUSES = ("sync", "cuda_api", "init", "cpu", "host_blocked", "device_wait", "profiler")
_OF_HOST = tuple(f"{of}.{cause}" for of in ("share", "time") for cause in _HOST_CAUSES)
#: While kernels run these are no cause: lost ones may have run all their time.
_BEHIND_KERNELS = ("gpu_comm", "gpu_copy")


class Known(Struct, frozen=True):
    """The least and the greatest that a quantity can be, and why these differ."""

    low: float
    high: float
    why: str = ""

    @property
    def is_sure(self) -> bool:
        return self.low == self.high


class KnownRecords(Struct, frozen=True):
    """What is on record of a region or device that a limit is held against."""

    coverage: Coverage
    total_ns: int
    instances: int
    time: Mapping[str, int]
    calls: int
    is_device: bool = False

    @property
    def is_of_lost_calls(self) -> bool:
        """Nothing tells what the host did while the device worked: not one call is on record there."""
        return not self.calls and self.instances > 0 and 2 * self.time.get("unattributed", 0) > self.total_ns > 0

    @property
    def why(self) -> str:
        lost = (
            f"{self.coverage.launches_lost:,} of {self.coverage.launches:,} launches are on record without their work"
        )
        return f"by what is on record, but {lost if self.coverage.launches_lost else 'CUDA calls are missing'}"


def records_of(report: Report) -> dict[str, KnownRecords]:
    """By what a limit calls them."""
    devices = [item.coverage for item in report.devices]
    uncalled = sum(item.uncalled for item in devices)
    before_ns = max((item.before_ns for item in devices), default=0)
    by_name = {
        "/".join(region.path): KnownRecords(
            replace(region.coverage, uncalled=uncalled, before_ns=before_ns),
            region.total_ns,
            region.instances,
            region.time,
            region.api.calls,
        )
        for region in report.regions
    }
    return by_name | {f"GPU {item.id}": _of_device(item) for item in report.devices}


def _of_device(device: DeviceReport) -> KnownRecords:
    return KnownRecords(device.coverage, device.window_ns, 1, device.time, device.api.calls, is_device=True)


def known(quantity: str, value: Number, records: KnownRecords | None, captured: Captured) -> Known | None:
    """What is known of a measured quantity; None: it was not recorded."""
    if value is None or not _is_captured(quantity, captured):
        return None
    measured = float(value)
    if records is None:
        return Known(measured, measured)
    if quantity.startswith(_OF_CALLS) and records.is_of_lost_calls:
        return None
    if quantity in _OF_HOST and not captured.cuda_api:
        return Known(0.0, ANY, "by what is on record, but no CUDA call is")
    low, high = _without_work(quantity, measured, records)
    if not records.coverage.has_calls:
        low, high = _without_calls(quantity, low, high)
    is_open = (low, high) != (measured, measured)
    attributed = _as_attributed(quantity, measured, records, captured)
    why = records.why if is_open else "by what is on record, but not all of it is told"
    return Known(min(low, attributed[0]), max(high, attributed[1]), why)


def _as_attributed(quantity: str, value: float, records: KnownRecords, captured: Captured) -> tuple[float, float]:
    """Time that is not attributed may belong to any cause of the host, and what is called one of them may be another
    where the records are missing that tell these two apart: when threads ran, what they called, what ranges say."""
    if quantity not in _OF_HOST:
        return value, value
    of, _, cause = quantity.partition(".")
    is_told_by_switches = captured.cpu_scheduling and not records.coverage.is_cpu_thinned
    may_be: dict[str, tuple[str, ...]] = {
        "init": () if captured.nvtx else ("cpu", "host_blocked"),
        "host_blocked": () if is_told_by_switches else ("cpu",),
        "cpu": () if is_told_by_switches or captured.osrt else ("host_blocked",),
    }
    others = may_be.get(cause, ())
    most_ns = sum(records.time.get(key, 0) for key in (cause, *others, "unattributed"))
    most = most_ns / max(records.total_ns if of == "share" else records.instances, 1)
    is_taken = any(cause in claimed for claimed in may_be.values())
    return 0.0 if is_taken else value, max(most, value)


def _is_captured(quantity: str, captured: Captured) -> bool:
    if quantity.startswith(_OF_CALLS):
        return captured.cuda_api
    if quantity.startswith(_OF_KERNELS):
        return captured.kernels or captured.cuda_graphs
    return not quantity.startswith(_OF_WORK) or captured.kernels or captured.cuda_graphs or captured.memcpy


def _without_calls(quantity: str, low: float, high: float) -> tuple[float, float]:
    """The least and the greatest it can be where calls are missing. They tell what hosts did and whose work is whose,
    which the steps are, and so where the window begins and ends; ranges alone are what they were."""
    if quantity.startswith("host.") or quantity == "instances":
        return low, high
    is_sum = quantity.startswith(("sync.", "api.", "kernels.", "copies.")) and quantity != "api.per_ms"
    return low if is_sum else 0.0, ANY


def _without_work(quantity: str, value: float, records: KnownRecords) -> tuple[float, float]:
    """The least and the greatest it can be, whatever the work that is missing, inside the window or before it."""
    coverage, each = records.coverage, max(records.instances, 1)
    lost, before_ns = coverage.launches_lost, coverage.before_ns
    more_ns = coverage.unrecorded_ns + before_ns
    if not lost and not more_ns:
        return value, value
    of, _, cause = quantity.partition(".")
    if quantity in ("kernels.per_step", "copies.per_step"):
        return value, value + lost / each
    if quantity == "copies.bytes" or of == "gpu":
        return value, ANY if lost else value
    if of == "sync" or (of == "api" and before_ns):  # what was waited for may be lost, and so that it was
        return 0.0 if quantity == "api.per_ms" else value, ANY
    if quantity in ("time", "time.total"):
        own_ns = before_ns if records.is_device else more_ns
        return value, value + own_ns / (1 if quantity == "time.total" else each)
    whole: dict[str, tuple[float, float]] = {
        "gaps.longest": (0.0, value + more_ns),
        "cpu_utilization": (0.0, ANY) if before_ns else (value, value),
    }
    return whole.get(quantity) or _without_work_of_cause(of, cause, value, records)


def _without_work_of_cause(of: str, cause: str, value: float, records: KnownRecords) -> tuple[float, float]:
    """Between what a cause's time, or its share, may lie, whatever was not recorded."""
    coverage, each, total_ns = records.coverage, max(records.instances, 1), max(records.total_ns, 1)
    before_ns = coverage.before_ns
    more_ns = coverage.unrecorded_ns + before_ns
    less_ns = more_ns if cause == "unattributed" else 0
    is_behind = cause in _BEHIND_KERNELS and coverage.launches_lost
    if of == "time":
        return 0.0 if is_behind else max(value - less_ns / each, 0.0), value + more_ns / each
    if of in ("share", "gpu_utilization"):
        part = value * total_ns
        low = 0.0 if is_behind else max(part - less_ns, 0.0) / (total_ns + before_ns)
        return low, min((part + more_ns) / total_ns, max(value, 1.0))
    return value, value


def findings(count: Number, report: Report) -> Known | None:
    """Of a number of findings: rules that were turned off, or lacked their data, may have had more."""
    if count is None or not report.analysis.rules_checked:
        return None
    if report.analysis.rules_disabled:
        disabled = ", ".join(report.analysis.rules_disabled)
        return Known(count, ANY, f"by the rules that were asked, but {disabled} was not")
    if (lossy := _may_hide_findings(report)) is not None:
        return Known(count, ANY, lossy)
    unchecked = next((item for item in report.not_checked if item.could_matter), None)
    if unchecked is not None:
        text = f"by the rules that could be asked, but {unchecked.rule} could not: {unchecked.reason}"
        return Known(count, ANY, text)
    return Known(count, count)


def _may_hide_findings(report: Report) -> str | None:
    """Why a finding may be missing: so many records are that what is worth one may lie among them."""
    for device in report.devices:
        coverage = device.coverage
        open_ns = coverage.unrecorded_ns + coverage.before_ns
        parts = (
            coverage.launches_lost / max(coverage.launches, 1),
            coverage.calls_lost_fraction,
            coverage.uncalled / max(device.api.calls, 1),
            open_ns / max(device.window_ns, 1),
        )
        if max(parts) >= WORTH_A_FINDING:
            return _of_device(device).why
    return None


def new_findings(count: Number, after: Report, comparison: Comparison) -> Known | None:
    """Of a number of new findings: where the later report lost its records, more of them may be new."""
    if count is None or (not after.devices and comparison.devices):
        return None
    if (lossy := _may_hide_findings(after)) is not None:
        return Known(count, ANY, lossy)
    gone = [item for item in comparison.findings if item.status == "unchecked"]
    if gone:
        return Known(count, ANY, f"by the rules that could be asked, but {gone[0].finding.rule} could not")
    if after.analysis.rules_disabled:
        disabled = ", ".join(after.analysis.rules_disabled)
        return Known(count, ANY, f"by the rules that were asked, but {disabled} was turned off")
    return Known(count, count)
