"""JSON -> Report: the other direction of ``json.py``, for results that were saved.

Unknown keys are passed over (a later boundby may write more); a key that lacks, or holds something else than it
should, is an ``InputError`` that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from boundby.model.causes import CAUSE_KEYS
from boundby.model.errors import InputError
from boundby.results.report import (
    FORMAT_VERSION,
    ApiCalls,
    Check,
    Copies,
    DeviceReport,
    Distribution,
    Example,
    Finding,
    Gaps,
    Instances,
    Kernels,
    LaunchLatency,
    NotChecked,
    RegionReport,
    Report,
    Saving,
    Syncs,
    ThreadReport,
    TraceSummary,
    Verdict,
    WhatIf,
)
from boundby.trace.facts import Captured, GpuInfo, TraceWarning

Item = Mapping[str, Any]
T = TypeVar("T")

_CAPTURED = tuple(Captured.__dataclass_fields__)


def report_from(data: Mapping[str, object]) -> Report:
    """The report, or an ``InputError``."""
    version = data.get("format_version") if isinstance(data, Mapping) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError("This is not a result of boundby: it has no format_version.", _HOW)
    if version > FORMAT_VERSION:
        message = f"This result has format_version {version}; this boundby reads up to {FORMAT_VERSION}."
        raise InputError(message, "Update boundby: pip install --upgrade boundby")
    try:
        return _report(data)
    except KeyError as error:
        raise InputError(f"This is not a whole result of boundby: key {error} is missing.", _HOW) from error
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"This is not a result of boundby: {error}.", _HOW) from error


_HOW = "Write one with: boundby analyze REPORT --format json -o result.json"


def _report(data: Item) -> Report:
    analysis: Item = data.get("analysis", {})
    return Report(
        trace=_trace(data["trace"]),
        devices=_each(data["devices"], _device),
        threads=_each(data.get("threads", ()), _thread),
        regions=_each(data["regions"], _region),
        findings=_each(data["findings"], _finding),
        not_checked=_each(data["not_checked"], _not_checked),
        what_if=_each(data["what_if"], _what_if),
        window=analysis.get("window", "gpu"),
        region_glob=analysis.get("region_glob"),
        min_share=float(analysis.get("min_share", 0.0)),
        skip_first=int(analysis.get("skip_first", 0)),
        device_ids=tuple(analysis.get("device_ids", ())),
        process_ids=tuple(analysis.get("process_ids", ())),
        fold=bool(analysis.get("fold", True)),
        rules_checked=int(analysis.get("rules_checked", 0)),
        rules_disabled=tuple(analysis.get("rules_disabled", ())),
        thresholds={name: float(value) for name, value in analysis.get("thresholds", {}).items()},
        show_all=bool(analysis.get("show_all", False)),
    )


def _each(items: Sequence[Item], read: Callable[[Item], T]) -> tuple[T, ...]:
    return tuple(read(item) for item in items)


def _trace(item: Item) -> TraceSummary:
    return TraceSummary(
        path=item["path"],
        source=item["source"],
        nsys_version=item["nsys_version"],
        schema_version=item["schema_version"],
        command=item.get("command"),
        gpus=_each(item["gpus"], lambda gpu: GpuInfo(gpu["id"], gpu["name"], gpu.get("used", True))),
        captured=Captured(**{key: bool(item["captured"].get(key, False)) for key in _CAPTURED}),
        warnings=_each(item["warnings"], lambda warning: TraceWarning(warning["code"], warning["message"])),
        duration_ns=item.get("duration_ns"),
    )


def _verdict(item: Item) -> Verdict:
    mixed = item.get("mixed_of")
    cause = item.get("runner_up")
    return Verdict(
        bound=item["bound"],
        confidence=item["confidence"],
        reasons=tuple(item.get("reasons", ())),
        saving_ns=item.get("saving_ns"),
        runner_up=Saving(cause, item["runner_up_saving_ns"]) if cause is not None else None,
        bound_next=item.get("bound_next"),
        without_ns=item.get("without_ns"),
        decided_by=item.get("decided_by", "account"),
        mixed_of=(mixed[0], mixed[1]) if mixed else None,
        because=item.get("because", ""),
        savings=_each(item.get("savings", ()), lambda saving: Saving(saving["cause"], saving["saving_ns"])),
    )


def _time(item: Item) -> dict[str, int]:
    return {key: int(item[key]) for key in CAUSE_KEYS}


def _copies(item: Item) -> Copies:
    return Copies(
        count=item["count"],
        bytes=item["bytes"],
        total_ns=item["total_ns"],
        pageable_count=item["pageable_count"],
        small_count=item["small_count"],
        bandwidth_bytes_per_s=item["bandwidth_bytes_per_s"],
        by_memory=dict(item["by_memory"]),
    )


def _memcpy(item: Item) -> dict[str, Copies]:
    return {kind: _copies(copies) for kind, copies in item["memcpy"].items()}


def _distribution(item: Item) -> Distribution:
    return Distribution(
        item["count"], item["total_ns"], item["mean_ns"], item["median_ns"], item["p95_ns"], item["max_ns"]
    )


def _gaps(item: Item) -> Gaps:
    return Gaps(item["count"], item["total_ns"], item["longest_ns"])


def _kernels(item: Item) -> Kernels:
    return Kernels(item["count"], item["total_ns"], item["median_ns"])


def _api(item: Item) -> ApiCalls:
    return ApiCalls(item["calls"], item["total_ns"], item["per_ms"])


def _syncs(item: Item) -> Syncs:
    return Syncs(item["count"], item["blocked_ns"], item["per_ms"])


def _latency(item: Item | None) -> LaunchLatency | None:
    return LaunchLatency(item["median"], item["p95"]) if item is not None else None


def _device(item: Item) -> DeviceReport:
    return DeviceReport(
        id=item["id"],
        name=item["name"],
        window_start_ns=item["window"]["start_ns"],
        window_end_ns=item["window"]["end_ns"],
        busy_ns=item["busy_ns"],
        idle_ns=item["idle_ns"],
        startup_ns=item["startup_ns"],
        shutdown_ns=item["shutdown_ns"],
        time=_time(item["time"]),
        gaps=_gaps(item["gaps"]),
        kernels=_kernels(item["kernels"]),
        api=_api(item["api"]),
        sync=_syncs(item["sync"]),
        memcpy=_memcpy(item),
        launch_latency=_latency(item["launch_latency_ns"]),
        queue_depth_median=item["queue_depth_median"],
        queue_depth_max=item["queue_depth_max"],
        cpu_utilization=item["cpu_utilization"],
        host_active_ns=item["host_active_ns"],
        verdict=_verdict(item),
        checklist=_each(item["checklist"], _check),
        clock_shift_ns=item["clock_shift_ns"],
        processes=tuple(item["processes"]),
    )


def _check(item: Item) -> Check:
    return Check(item["name"], item["value"], item["reading"], item["points_to"])


def _thread(item: Item) -> ThreadReport:
    return ThreadReport(
        pid=item["pid"],
        tid=item["tid"],
        name=item["name"],
        total_ns=item["total_ns"],
        time=_time(item["time"]),
        blocked_on=dict(item["blocked_on"]),
        cpu_utilization=item["cpu_utilization"],
        verdict=_verdict(item),
    )


def _region(item: Item) -> RegionReport:
    return RegionReport(
        path=tuple(item["path"]),
        domain=item["domain"],
        instances=item["instances"],
        host=_distribution(item["host"]),
        projected=_distribution(item["projected"]) if item["projected"] is not None else None,
        time=_time(item["time"]),
        time_exclusive=_time(item["time_exclusive"]),
        verdict=_verdict(item),
        gpu_utilization=item["gpu_utilization"],
        gpu_utilization_host=item["gpu_utilization_host"],
        cpu_utilization=item["cpu_utilization"],
        gaps=_gaps(item["gaps"]),
        api=_api(item["api"]),
        sync=_syncs(item["sync"]),
        memcpy=_memcpy(item),
        kernels=_kernels(item["kernels"]),
        launch_latency=_latency(item["launch_latency_ns"]),
        queue_depth_median=item["queue_depth_median"],
        blocked_on=dict(item["blocked_on"]),
        share=item["share"],
        threads=item["threads"],
        open_instances=item["open_instances"],
        found=bool(item.get("found", False)),
        instance_ns=_instances(item.get("instance_ns", {})),
    )


def _instances(item: Item) -> Instances:
    host, projected = (tuple(int(ns) for ns in item.get(kind, ())) for kind in ("host", "projected"))
    return Instances(host, projected)


def _finding(item: Item) -> Finding:
    saving = item["saving_ns"]
    return Finding(
        rule=item["rule"],
        severity=item["severity"],
        title=item["title"],
        region=tuple(item["region"]) if item["region"] is not None else None,
        evidence=dict(item["evidence"]),
        saving_ns=(saving[0], saving[1]) if saving else None,
        advice=tuple(item["advice"]),
        docs=item["docs"],
        examples=_each(item.get("examples", ()), lambda one: Example(one["start_ns"], one["duration_ns"], one["what"])),
        instances=int(item.get("instances", 1)),
        disproof=item.get("disproof", ""),
    )


def _not_checked(item: Item) -> NotChecked:
    return NotChecked(item["rule"], item["reason"], bool(item.get("could_matter", True)))


def _what_if(item: Item) -> WhatIf:
    return WhatIf(item["scenario"], item["predicted_ns"], item["baseline_ns"], item.get("device", 0))
