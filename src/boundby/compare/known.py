"""What is known of a quantity that a limit is held against: a number, an interval, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from boundby.compare.quantities import Number
from boundby.results.comparison import Comparison
from boundby.results.report import Coverage, DeviceReport, Report
from boundby.trace.facts import Captured

ANY = float("inf")
_OF_CALLS = ("sync.", "api.")
_OF_WORK = ("kernels.", "copies.", "gpu.", "gaps.", "share.gpu", "time.gpu", "gpu_utilization")
_OF_KERNELS = ("kernels.",)
_RUN_OR_SLEEP = ("cpu", "host_blocked")
_OF_HOST = tuple(
    f"{of}.{cause}"
    for of in ("share", "time")
    for cause in ("sync", "cuda_api", "init", "cpu", "host_blocked", "device_wait")
)


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
    found = {
        "/".join(region.path): Records(
            region.coverage, region.total_ns, region.instances, region.time, region.api.calls
        )
        for region in report.regions
    }
    return found | {f"GPU {item.id}": _of_device(item) for item in report.devices}


def _of_device(device: DeviceReport) -> Records:
    return Records(device.coverage, device.window_ns, 1, device.time, device.api.calls)


def known(quantity: str, value: Number, records: Records | None, captured: Captured) -> Known | None:
    """What is known of a measured quantity; None: it was not recorded."""
    if value is None or not _is_captured(quantity, captured):
        return None
    least = float(value)
    if quantity.startswith(_OF_CALLS) and records is not None and records.is_of_lost_calls:
        return None
    if quantity in _OF_HOST and records is not None and not captured.cuda_api:
        return Known(0.0, ANY, "by what is on record, but no CUDA call is")
    if records is None or records.coverage.is_whole:
        return _as_attributed(quantity, least, records, captured)
    low, high = _open(quantity, least, records)
    return Known(low, high, records.why)


def _as_attributed(quantity: str, value: float, records: Records | None, captured: Captured) -> Known:
    """Time that is not attributed may belong to any cause of the host; and without records of when threads ran or
    slept, what is called one of these two may be the other."""
    if quantity not in _OF_HOST or records is None:
        return Known(value, value)
    of, _, cause = quantity.partition(".")
    among = _RUN_OR_SLEEP if cause in _RUN_OR_SLEEP and not (captured.cpu_scheduling or captured.osrt) else (cause,)
    most_ns = sum(records.time.get(key, 0) for key in (*among, "unattributed"))
    most = most_ns / max(records.total_ns if of == "share" else records.instances, 1)
    return Known(0.0 if len(among) > 1 else value, max(most, value), "by what is on record, but not all of it is told")


def _is_captured(quantity: str, captured: Captured) -> bool:
    if quantity.startswith(_OF_CALLS):
        return captured.cuda_api
    if quantity.startswith(_OF_KERNELS):
        return captured.kernels or captured.cuda_graphs
    return not quantity.startswith(_OF_WORK) or captured.kernels or captured.cuda_graphs or captured.memcpy


def _open(quantity: str, value: float, records: Records) -> tuple[float, float]:
    """The least and the greatest it can be, whatever the missing records would have said."""
    coverage, each = records.coverage, max(records.instances, 1)
    open_ns, lost = coverage.unrecorded_ns, coverage.launches_lost
    if quantity.startswith(_OF_CALLS):
        return value, ANY
    if quantity in ("kernels.per_step", "copies.per_step"):
        return value, value + lost / each
    if quantity == "copies.bytes" or quantity.startswith("gpu."):
        return value, ANY if lost else value
    if quantity == "gaps.longest":
        return (0.0, value + open_ns) if lost or open_ns else (value, value)
    if quantity in _OF_HOST and coverage.calls_lost_fraction:
        return 0.0, ANY
    part = open_ns / max(records.total_ns, 1)
    if quantity == "gpu_utilization":
        return value, min(value + part, max(value, 1.0))
    if quantity.startswith("share."):
        less = part if quantity == "share.unattributed" else 0.0
        return max(value - less, 0.0), min(value + part, max(value, 1.0))
    if quantity.startswith("time.") and quantity != "time.total":
        less = open_ns / each if quantity == "time.unattributed" else 0.0
        return max(value - less, 0.0), value + open_ns / each
    return value, value


def findings(count: Number, report: Report) -> Known | None:
    """Of a number of findings: rules that were turned off, or lacked their data, may have had more."""
    if count is None or not report.analysis.rules_checked:
        return None
    if report.analysis.rules_disabled:
        return Known(
            count, ANY, f"by the rules that were asked, but {', '.join(report.analysis.rules_disabled)} was not"
        )
    unchecked = next((item for item in report.not_checked if item.could_matter), None)
    if unchecked is not None:
        return Known(
            count, ANY, f"by the rules that could be asked, but {unchecked.rule} could not: {unchecked.reason}"
        )
    return Known(count, count)


def new_findings(count: Number, after: Report, comparison: Comparison) -> Known | None:
    """Of a number of new findings: where the later report lost its records, more of them may be new."""
    if count is None or (not after.devices and comparison.devices):
        return None
    whole = next((device for device in after.devices if not device.coverage.is_whole), None)
    if whole is not None:
        return Known(count, ANY, _of_device(whole).why)
    gone = [item for item in comparison.findings if item.status == "unchecked"]
    if gone:
        return Known(count, ANY, f"by the rules that could be asked, but {gone[0].finding.rule} could not")
    return Known(count, ANY, _turned_off(after)) if after.analysis.rules_disabled else Known(count, count)


def _turned_off(report: Report) -> str:
    return f"by the rules that were asked, but {', '.join(report.analysis.rules_disabled)} was turned off"
