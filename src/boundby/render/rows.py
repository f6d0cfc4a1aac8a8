"""A report as flat tables, for CSV, pandas and SQLite: one dict a row, the same columns in the same order always.

Paths are joined with ``/``; times keep their nanoseconds; ``None`` means "not captured".
"""

from __future__ import annotations

from collections.abc import Mapping

from boundby.model.causes import CAUSE_KEYS
from boundby.render.text import valid
from boundby.results.report import (
    Copies,
    DeviceReport,
    Distribution,
    Finding,
    LaunchLatency,
    RegionReport,
    Report,
    ThreadReport,
    Verdict,
)

Scalar = str | int | float | None
Row = dict[str, Scalar]

#: column -> type, in order. Every column may hold None where the trace lacks the data.
_VERDICT: dict[str, type] = {
    "bound": str,
    "confidence": str,
    "saving_ns": int,
    "runner_up": str,
    "runner_up_saving_ns": int,
    "bound_next": str,
    "because": str,
}
_TIME: dict[str, type] = {f"{key}_ns": int for key in CAUSE_KEYS}
_ACTIVITY: dict[str, type] = {
    "gap_count": int,
    "gap_total_ns": int,
    "gap_longest_ns": int,
    "kernel_count": int,
    "kernel_total_ns": int,
    "kernel_median_ns": float,
    "api_calls": int,
    "api_total_ns": int,
    "api_per_ms": float,
    "sync_count": int,
    "sync_blocked_ns": int,
    "sync_per_ms": float,
    "copy_count": int,
    "copy_bytes": int,
    "copy_total_ns": int,
    "launch_latency_median_ns": float,
    "launch_latency_p95_ns": float,
    "queue_depth_median": float,
}
DEVICE_COLUMNS: dict[str, type] = {
    "device": int,
    "name": str,
    **{key: _VERDICT[key] for key in _VERDICT},
    "window_start_ns": int,
    "window_end_ns": int,
    "window_ns": int,
    "busy_ns": int,
    "idle_ns": int,
    "startup_ns": int,
    "shutdown_ns": int,
    "gpu_utilization": float,
    "cpu_utilization": float,
    "host_active_ns": int,
    **_TIME,
    **_ACTIVITY,
    "queue_depth_max": int,
    "clock_shift_ns": int,
}
THREAD_COLUMNS: dict[str, type] = {
    "pid": int,
    "tid": int,
    "name": str,
    **_VERDICT,
    "total_ns": int,
    "cpu_utilization": float,
    **_TIME,
}
REGION_COLUMNS: dict[str, type] = {
    "path": str,
    "name": str,
    "depth": int,
    "domain": str,
    "instances": int,
    "share": float,
    **_VERDICT,
    "total_ns": int,
    **_TIME,
    "exclusive_ns": int,
    **{f"exclusive_{key}_ns": int for key in CAUSE_KEYS},
    **{f"host_{name}_ns": kind for name, kind in (("total", int), ("mean", float), ("median", float))},
    "host_p95_ns": float,
    "host_max_ns": int,
    **{f"projected_{name}_ns": kind for name, kind in (("total", int), ("mean", float), ("median", float))},
    "projected_p95_ns": float,
    "projected_max_ns": int,
    "gpu_utilization": float,
    "gpu_utilization_host": float,
    "cpu_utilization": float,
    **_ACTIVITY,
    "threads": int,
    "open_instances": int,
    "found": bool,
}
FINDING_COLUMNS: dict[str, type] = {
    "rank": int,
    "rule": str,
    "severity": str,
    "title": str,
    "region": str,
    "saving_low_ns": int,
    "saving_high_ns": int,
    "advice": str,
    "docs": str,
    "instances": int,
    "disproof": str,
}


def devices(report: Report) -> list[Row]:
    """One row per device, with the columns of ``DEVICE_COLUMNS``."""
    return [_ordered(_device(device), DEVICE_COLUMNS) for device in report.devices]


def threads(report: Report) -> list[Row]:
    """One row per thread of a trace without GPU work, with the columns of ``THREAD_COLUMNS``."""
    return [_ordered(_thread(thread), THREAD_COLUMNS) for thread in report.threads]


def regions(report: Report) -> list[Row]:
    """One row per region, the root (path ``""``) included, with the columns of ``REGION_COLUMNS``."""
    return [_ordered(_region(region), REGION_COLUMNS) for region in report.regions]


def findings(report: Report) -> list[Row]:
    """One row per finding, in rank order, with the columns of ``FINDING_COLUMNS``."""
    return [_ordered(_finding(rank, finding), FINDING_COLUMNS) for rank, finding in enumerate(report.findings, 1)]


def joined(path: tuple[str, ...]) -> str:
    """``step/forward``; empty for the root."""
    return "/".join(path)


def _ordered(row: Row, columns: Mapping[str, type]) -> Row:
    return {name: valid(value) if isinstance(value := row[name], str) else value for name in columns}


def _verdict(verdict: Verdict) -> Row:
    other = verdict.runner_up
    return {
        "bound": verdict.bound,
        "confidence": verdict.confidence,
        "saving_ns": verdict.saving_ns,
        "runner_up": other.cause if other else None,
        "runner_up_saving_ns": other.saving_ns if other else None,
        "bound_next": verdict.bound_next,
        "because": verdict.because,
    }


def _time(time: Mapping[str, int], prefix: str = "") -> Row:
    return {f"{prefix}{key}_ns": time.get(key, 0) for key in CAUSE_KEYS}


def _distribution(prefix: str, found: Distribution | None) -> Row:
    return {
        f"{prefix}_total_ns": found.total_ns if found else None,
        f"{prefix}_mean_ns": found.mean_ns if found else None,
        f"{prefix}_median_ns": found.median_ns if found else None,
        f"{prefix}_p95_ns": found.p95_ns if found else None,
        f"{prefix}_max_ns": found.max_ns if found else None,
    }


def _activity(of: DeviceReport | RegionReport) -> Row:
    latency: LaunchLatency | None = of.launch_latency
    copies: list[Copies] = list(of.memcpy.values())
    return {
        "gap_count": of.gaps.count,
        "gap_total_ns": of.gaps.total_ns,
        "gap_longest_ns": of.gaps.longest_ns,
        "kernel_count": of.kernels.count,
        "kernel_total_ns": of.kernels.total_ns,
        "kernel_median_ns": of.kernels.median_ns,
        "api_calls": of.api.calls,
        "api_total_ns": of.api.total_ns,
        "api_per_ms": of.api.per_ms,
        "sync_count": of.sync.count,
        "sync_blocked_ns": of.sync.blocked_ns,
        "sync_per_ms": of.sync.per_ms,
        "copy_count": sum(copy.count for copy in copies),
        "copy_bytes": sum(copy.bytes for copy in copies),
        "copy_total_ns": sum(copy.total_ns for copy in copies),
        "launch_latency_median_ns": latency.median_ns if latency else None,
        "launch_latency_p95_ns": latency.p95_ns if latency else None,
        "queue_depth_median": of.queue_depth_median,
    }


def _device(device: DeviceReport) -> Row:
    return {
        "device": device.id,
        "name": device.name,
        **_verdict(device.verdict),
        "window_start_ns": device.window_start_ns,
        "window_end_ns": device.window_end_ns,
        "window_ns": device.window_ns,
        "busy_ns": device.busy_ns,
        "idle_ns": device.idle_ns,
        "startup_ns": device.startup_ns,
        "shutdown_ns": device.shutdown_ns,
        "gpu_utilization": device.gpu_utilization,
        "cpu_utilization": device.cpu_utilization,
        "host_active_ns": device.host_active_ns,
        **_time(device.time),
        **_activity(device),
        "queue_depth_max": device.queue_depth_max,
        "clock_shift_ns": device.clock_shift_ns,
    }


def _thread(thread: ThreadReport) -> Row:
    return {
        "pid": thread.pid,
        "tid": thread.tid,
        "name": thread.name,
        **_verdict(thread.verdict),
        "total_ns": thread.total_ns,
        "cpu_utilization": thread.cpu_utilization,
        **_time(thread.time),
    }


def _region(region: RegionReport) -> Row:
    return {
        "path": joined(region.path),
        "name": region.path[-1] if region.path else "",
        "depth": region.depth,
        "domain": region.domain,
        "instances": region.instances,
        "share": region.share,
        **_verdict(region.verdict),
        "total_ns": region.total_ns,
        **_time(region.time),
        "exclusive_ns": sum(region.time_exclusive.values()),
        **_time(region.time_exclusive, "exclusive_"),
        **_distribution("host", region.host),
        **_distribution("projected", region.projected),
        "gpu_utilization": region.gpu_utilization,
        "gpu_utilization_host": region.gpu_utilization_host,
        "cpu_utilization": region.cpu_utilization,
        **_activity(region),
        "threads": region.threads,
        "open_instances": region.open_instances,
        "found": region.found,
    }


def _finding(rank: int, finding: Finding) -> Row:
    low, high = finding.saving_ns or (None, None)
    return {
        "rank": rank,
        "rule": finding.rule,
        "severity": finding.severity,
        "title": finding.title,
        "region": joined(finding.region) if finding.region is not None else None,
        "saving_low_ns": low,
        "saving_high_ns": high,
        "advice": "\n".join(finding.advice),
        "docs": finding.docs,
        "instances": finding.instances,
        "disproof": finding.disproof,
    }
