"""What is known of a quantity that a limit is held against: a number, an interval, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from boundby.compare.quantities import Number
from boundby.results.comparison import Comparison
from boundby.results.report import Coverage, DeviceReport, Report
from boundby.trace.facts import Captured

ANY = float("inf")
#: What less than this part of a window, or of its records, could show is no finding.
WORTH_A_FINDING = 0.01
_OF_CALLS = ("sync.", "api.")
_OF_WORK = ("kernels.", "copies.", "gpu.", "gaps.", "share.gpu", "time.gpu", "gpu_utilization")
_OF_KERNELS = ("kernels.",)
_HOST_CAUSES = ("sync", "cuda_api", "init", "cpu", "host_blocked", "device_wait", "profiler")
_OF_HOST = tuple(f"{of}.{cause}" for of in ("share", "time") for cause in _HOST_CAUSES)
#: While kernels run these are no cause: lost ones may have run all their time.
_BEHIND_KERNELS = ("gpu_comm", "gpu_copy")


class Known(NamedTuple):
    """The least and the greatest that a quantity can be, and why these differ."""

    low: float
    high: float
    why: str = ""

    @property
    def is_sure(self) -> bool:
        return self.low == self.high


class Records(NamedTuple):
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


def records_of(report: Report) -> dict[str, Records]:
    """By what a limit calls them."""
    devices = [item.coverage for item in report.devices]
    uncalled = sum(item.uncalled for item in devices)
    before_ns = max((item.before_ns for item in devices), default=0)
    found = {
        "/".join(region.path): Records(
            replace(region.coverage, uncalled=uncalled, before_ns=before_ns),
            region.total_ns,
            region.instances,
            region.time,
            region.api.calls,
        )
        for region in report.regions
    }
    return found | {f"GPU {item.id}": _of_device(item) for item in report.devices}


def _of_device(device: DeviceReport) -> Records:
    return Records(device.coverage, device.window_ns, 1, device.time, device.api.calls, is_device=True)


def known(quantity: str, value: Number, records: Records | None, captured: Captured) -> Known | None:
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
    told = _as_attributed(quantity, measured, records, captured)
    why = records.why if is_open else "by what is on record, but not all of it is told"
    return Known(min(low, told[0]), max(high, told[1]), why)


def _as_attributed(quantity: str, value: float, records: Records, captured: Captured) -> tuple[float, float]:
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


def _without_work(quantity: str, value: float, records: Records) -> tuple[float, float]:
    """The least and the greatest it can be, whatever the work that is missing, inside the window or before it."""
    coverage, each = records.coverage, max(records.instances, 1)
    lost, before_ns, total_ns = coverage.launches_lost, coverage.before_ns, max(records.total_ns, 1)
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
    if quantity == "gaps.longest":
        return 0.0, value + more_ns
    if quantity == "cpu_utilization":
        return (0.0, ANY) if before_ns else (value, value)
    if quantity in ("time", "time.total"):
        own_ns = before_ns if records.is_device else more_ns
        return value, value + own_ns / (1 if quantity == "time.total" else each)
    less_ns = more_ns if cause == "unattributed" else 0
    is_behind = cause in _BEHIND_KERNELS and lost
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
        return Known(
            count, ANY, f"by the rules that were asked, but {', '.join(report.analysis.rules_disabled)} was not"
        )
    if (lossy := _may_hide_findings(report)) is not None:
        return Known(count, ANY, lossy)
    unchecked = next((item for item in report.not_checked if item.could_matter), None)
    if unchecked is not None:
        return Known(
            count, ANY, f"by the rules that could be asked, but {unchecked.rule} could not: {unchecked.reason}"
        )
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
    return Known(count, ANY, _turned_off(after)) if after.analysis.rules_disabled else Known(count, count)


def _turned_off(report: Report) -> str:
    return f"by the rules that were asked, but {', '.join(report.analysis.rules_disabled)} was turned off"
