"""What a limit can be set on: name, unit, what it means, and how it is read off a report or a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from boundby.model.causes import CAUSE_KEYS
from boundby.results.comparison import Comparison, RegionChange
from boundby.results.job import JobReport
from boundby.results.report import SEVERITIES, DeviceReport, Finding, Meanwhile, RegionReport, Report

Number = float | int | None


class Quantity(Struct, frozen=True):
    """``of_region`` and ``of_whole`` measure it (None: it does not exist there); a result of None: not captured.

    ``of_whole`` gives one value per device, by name; without a device, one value. ``needs`` is "" for a report,
    "comparison" for what only two runs have.
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


def _steps(read: Callable[[RegionReport], Number]) -> Callable[[Report, RegionReport | None], Mapping[str, Number]]:
    """Of the region that is the program's step; nothing where there is none."""
    return lambda _, steps: {"/".join(steps.path): read(steps)} if steps is not None else {}


def _per_step(
    read: Callable[[RegionReport], int], all_of: Callable[[Meanwhile], int]
) -> Callable[[Report, RegionReport | None], Mapping[str, Number]]:
    """All that the program does from its first step to the end of its last, by steps: threads that make input, say,
    work for the step outside of its ranges."""

    def of_step(steps: RegionReport) -> Number:
        found = steps.meanwhile
        return _each(max(read(steps), all_of(found) if found is not None else 0), steps)

    return _steps(of_step)


def _copies(region: RegionReport) -> int:
    return sum(copies.count for copies in region.memcpy.values())


def _each(total: float, region: RegionReport) -> float | None:
    return total / region.instances if region.instances else None


def _window(device: DeviceReport) -> int:
    return device.window_ns


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
    found = change.significance
    if found.status in ("too_few", "not_tested"):
        return None
    return found.change if found.status == "slower" else 0.0


def _improvement(change: RegionChange) -> Number:
    found = change.significance
    if found.status in ("too_few", "not_tested"):
        return None
    return -found.change if found.status == "faster" and found.change is not None else 0.0


def _all_regions(read: Callable[[RegionChange], Number]) -> Callable[[Comparison], Mapping[str, Number]]:
    """Of every region that can be tested."""

    def of_comparison(comparison: Comparison) -> Mapping[str, Number]:
        found = {"/".join(item.path): read(item) for item in comparison.regions if item.path}
        return {name: value for name, value in found.items() if value is not None}

    return of_comparison


def _device_changes(comparison: Comparison) -> Mapping[str, Number]:
    return {item.after.name: item.change for item in comparison.devices if item.after is not None}


_PER_STEP = "without a region, per step, of all threads from the first step to the end of the last"

QUANTITIES: dict[str, Quantity] = {
    "time": Quantity(
        "ns",
        "the account's time per instance, from its begin to its end: not what passes between two (hidden work: the"
        " host's); without a region, the whole window",
        of_region=_time_each,
        of_whole=_devices(_window),
    ),
    "time.total": Quantity("ns", "the account's time of all instances", of_region=lambda region: region.total_ns),
    "host.median": Quantity("ns", "median host duration", of_region=lambda region: region.host.median_ns),
    "host.p95": Quantity("ns", "95th percentile of the host durations", of_region=lambda region: region.host.p95_ns),
    "host.max": Quantity("ns", "longest host duration", of_region=lambda region: region.host.max_ns),
    "gpu.median": Quantity(
        "ns",
        "median projected duration: first start to last end of the GPU work launched inside",
        of_region=lambda region: region.projected.median_ns if region.projected else None,
    ),
    "gpu.p95": Quantity(
        "ns",
        "95th percentile of the projected durations",
        of_region=lambda region: region.projected.p95_ns if region.projected else None,
    ),
    "gpu.max": Quantity(
        "ns",
        "longest projected duration",
        of_region=lambda region: region.projected.max_ns if region.projected else None,
    ),
    "instances": Quantity("count", "how often the region ran", of_region=lambda region: region.instances),
    "share": Quantity("fraction", "share of all devices' windows", of_region=lambda region: region.share),
    "gpu_utilization": Quantity(
        "fraction",
        "busy time of the GPU; of a region, over its projected intervals",
        of_region=lambda region: region.gpu_utilization,
        of_whole=_devices(lambda device: device.gpu_utilization),
    ),
    "cpu_utilization": Quantity(
        "fraction",
        "CPU time of the launching threads",
        of_region=lambda region: region.cpu_utilization,
        of_whole=_devices(lambda device: device.cpu_utilization),
    ),
    **{f"share.{cause}": _share_of(cause) for cause in CAUSE_KEYS},
    **{f"time.{cause}": _time_of(cause) for cause in CAUSE_KEYS},
    "sync.count": Quantity(
        "count",
        "blocking syncs",
        of_region=lambda region: region.sync.count,
        of_whole=_devices(lambda device: device.sync.count),
    ),
    "sync.per_step": Quantity(
        "count",
        f"blocking syncs per instance; {_PER_STEP}",
        of_region=lambda region: _each(region.sync.count, region),
        of_whole=_per_step(lambda steps: steps.sync.count, lambda every: every.syncs),
    ),
    "sync.blocked": Quantity(
        "ns",
        "time per instance in which the host waits for the device; without a region, in all",
        of_region=lambda region: _each(region.sync.blocked_ns, region),
        of_whole=_devices(lambda device: device.sync.blocked_ns),
    ),
    "api.per_step": Quantity(
        "count",
        f"CUDA calls per instance; {_PER_STEP}",
        of_region=lambda region: _each(region.api.calls, region),
        of_whole=_per_step(lambda steps: steps.api.calls, lambda every: every.api_calls),
    ),
    "api.per_ms": Quantity(
        "per_ms",
        "CUDA calls per millisecond",
        of_region=lambda region: region.api.per_ms,
        of_whole=_devices(lambda device: device.api.per_ms),
    ),
    "kernels.per_step": Quantity(
        "count",
        f"kernels per instance; {_PER_STEP}",
        of_region=lambda region: _each(region.kernels.count, region),
        of_whole=_per_step(lambda steps: steps.kernels.count, lambda every: every.kernels),
    ),
    "copies.per_step": Quantity(
        "count",
        f"memory copies per instance; {_PER_STEP}",
        of_region=lambda region: _each(_copies(region), region),
        of_whole=_per_step(_copies, lambda every: every.copies),
    ),
    "copies.bytes": Quantity(
        "bytes",
        "bytes copied per instance; without a region, in all",
        of_region=lambda region: _each(sum(copies.bytes for copies in region.memcpy.values()), region),
        of_whole=_devices(lambda device: sum(copies.bytes for copies in device.memcpy.values())),
    ),
    "gaps.longest": Quantity(
        "ns",
        "longest time in which the GPU was idle",
        of_region=lambda region: region.gaps.longest_ns,
        of_whole=_devices(lambda device: device.gaps.longest_ns),
    ),
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
        where = "two runs" if quantity.needs_two else ""
        about = f"{quantity.about} [{where}]" if where else quantity.about
        lines.append(f"{name:<{width}}  {words[quantity.unit]:<9} {about}")
    return "\n".join(lines)
