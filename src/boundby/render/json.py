"""Report <-> JSON, as ``schema.json`` beside this file describes it. Keys are stable; more may be added.

``to_dict`` and ``from_dict`` are inverse to each other, so that a saved result can be rendered again. The text is
byte-stable: the order is the report's own, no float is NaN or infinite, no string holds a lone surrogate.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any

from boundby.__about__ import __version__
from boundby.model.causes import CAUSE_KEYS
from boundby.render.text import valid
from boundby.results.report import (
    FORMAT_VERSION,
    Copies,
    DeviceReport,
    Distribution,
    Finding,
    RegionReport,
    Report,
    ThreadReport,
    TraceSummary,
    Verdict,
)

Json = dict[str, Any]
#: An array of integers over several lines. No string looks like it: line breaks in strings are escaped.
_NUMBERS = re.compile(r"\[\n\s+-?\d+(?:,\n\s+-?\d+)*\n\s+\]")


def render(report: Report) -> str:
    """The JSON text of one report, ended by a line break."""
    return dumps(to_dict(report))


def render_many(reports: Sequence[Report]) -> str:
    """An array of reports."""
    return dumps([to_dict(report) for report in reports])


def dumps(data: object) -> str:
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return _NUMBERS.sub(lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text)


def schema() -> Json:
    """The JSON Schema (2020-12) of ``to_dict``'s result."""
    text = resources.files("boundby.render").joinpath("schema.json").read_text(encoding="utf-8")
    loaded: Json = json.loads(text)
    return loaded


def to_dict(report: Report) -> Json:
    """The result as plain dicts, lists, strings, numbers, booleans and None."""
    data: Json = {
        "format_version": FORMAT_VERSION,
        "tool": {"name": "boundby", "version": __version__},
        "analysis": {
            "window": report.window,
            "skip_first": report.skip_first,
            "region_glob": report.region_glob,
            "device_ids": list(report.device_ids),
            "process_ids": list(report.process_ids),
            "min_share": report.min_share,
            "fold": report.fold,
            "rules_checked": report.rules_checked,
            "rules_disabled": list(report.rules_disabled),
            "thresholds": dict(sorted(report.thresholds.items())),
            "show_all": report.show_all,
        },
        "trace": _trace(report.trace),
        "devices": [_device(device) for device in report.devices],
        "threads": [_thread(thread) for thread in report.threads],
        "regions": [_region(region) for region in report.regions],
        "findings": [_finding(finding) for finding in report.findings],
        "not_checked": [asdict(item) for item in report.not_checked],
        "what_if": [{**asdict(item), "speedup": item.speedup} for item in report.what_if],
    }
    found: Json = plain(data)
    return found


def from_dict(data: Mapping[str, object]) -> Report:
    """The report that ``to_dict`` wrote. Raises ``InputError`` for anything else."""
    from boundby.render.json_reader import report_from

    return report_from(data)


def plain(value: object) -> Any:
    """Only what JSON has: evidence can hold anything a rule found handy, and text anything a trace holds."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return valid(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {valid(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=repr)
    item = getattr(value, "item", None)  # a NumPy scalar
    return plain(item()) if callable(item) else valid(str(value))


def _trace(trace: TraceSummary) -> Json:
    return {
        "path": trace.path,
        "source": trace.source,
        "nsys_version": trace.nsys_version,
        "schema_version": trace.schema_version,
        "command": trace.command,
        "duration_ns": trace.duration_ns,
        "gpus": [asdict(gpu) for gpu in trace.gpus],
        "captured": asdict(trace.captured),
        "warnings": [asdict(warning) for warning in trace.warnings],
    }


def _verdict(verdict: Verdict) -> Json:
    other = verdict.runner_up
    return {
        "bound": verdict.bound,
        "confidence": verdict.confidence,
        "reasons": list(verdict.reasons),
        "because": verdict.because,
        "saving_ns": verdict.saving_ns,
        "runner_up": other.cause if other else None,
        "runner_up_saving_ns": other.saving_ns if other else None,
        "bound_next": verdict.bound_next,
        "without_ns": verdict.without_ns,
        "decided_by": verdict.decided_by,
        "mixed_of": list(verdict.mixed_of) if verdict.mixed_of else None,
        "savings": [asdict(saving) for saving in verdict.savings],
    }


def _time(time: Mapping[str, int]) -> Json:
    return {key: time.get(key, 0) for key in CAUSE_KEYS}


def _by_size(times: Mapping[str, int]) -> Json:
    return {key: times[key] for key in sorted(times)}


def _copies(copies: Copies) -> Json:
    return {**asdict(copies), "by_memory": _by_size(copies.by_memory)}


def _distribution(found: Distribution | None) -> Json | None:
    return asdict(found) if found else None


def _activity(of: DeviceReport | RegionReport) -> Json:
    latency = of.launch_latency
    return {
        "gaps": asdict(of.gaps),
        "kernels": asdict(of.kernels),
        "api": asdict(of.api),
        "sync": asdict(of.sync),
        "memcpy": {key: _copies(of.memcpy[key]) for key in sorted(of.memcpy)},
        "launch_latency_ns": {"median": latency.median_ns, "p95": latency.p95_ns} if latency else None,
        "queue_depth_median": of.queue_depth_median,
    }


def _device(device: DeviceReport) -> Json:
    return {
        "id": device.id,
        "name": device.name,
        "window": {"start_ns": device.window_start_ns, "end_ns": device.window_end_ns},
        "busy_ns": device.busy_ns,
        "idle_ns": device.idle_ns,
        "startup_ns": device.startup_ns,
        "shutdown_ns": device.shutdown_ns,
        "gpu_utilization": device.gpu_utilization,
        "cpu_utilization": device.cpu_utilization,
        "host_active_ns": device.host_active_ns,
        **_verdict(device.verdict),
        "time": _time(device.time),
        **_activity(device),
        "queue_depth_max": device.queue_depth_max,
        "clock_shift_ns": device.clock_shift_ns,
        "processes": list(device.processes),
        "checklist": [asdict(check) for check in device.checklist],
    }


def _thread(thread: ThreadReport) -> Json:
    return {
        "pid": thread.pid,
        "tid": thread.tid,
        "name": thread.name,
        "total_ns": thread.total_ns,
        "cpu_utilization": thread.cpu_utilization,
        **_verdict(thread.verdict),
        "time": _time(thread.time),
        "blocked_on": _by_size(thread.blocked_on),
    }


def _region(region: RegionReport) -> Json:
    return {
        "path": list(region.path),
        "domain": region.domain,
        "instances": region.instances,
        "share": region.share,
        **_verdict(region.verdict),
        "time": _time(region.time),
        "time_exclusive": _time(region.time_exclusive),
        "host_ns": region.host.total_ns,
        "projected_ns": region.projected.total_ns if region.projected else None,
        "host": _distribution(region.host),
        "projected": _distribution(region.projected),
        "gpu_utilization": region.gpu_utilization,
        "gpu_utilization_host": region.gpu_utilization_host,
        "cpu_utilization": region.cpu_utilization,
        **_activity(region),
        "blocked_on": _by_size(region.blocked_on),
        "threads": region.threads,
        "open_instances": region.open_instances,
        "found": region.found,
        "instance_ns": {"host": region.instance_ns.host_ns, "projected": region.instance_ns.projected_ns},
    }


def _finding(finding: Finding) -> Json:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "title": finding.title,
        "region": list(finding.region) if finding.region is not None else None,
        "evidence": dict(finding.evidence),
        "saving_ns": list(finding.saving_ns) if finding.saving_ns else None,
        "advice": list(finding.advice),
        "docs": finding.docs,
        "examples": [asdict(example) for example in finding.examples],
        "instances": finding.instances,
        "disproof": finding.disproof,
    }
