"""Comparison -> JSON, as ``schema.json`` beside this file describes it. Keys are stable; more may be added."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import resources
from typing import Any

from boundby.__about__ import __version__
from boundby.model.causes import CAUSE_KEYS
from boundby.render.json import dumps, plain
from boundby.results.comparison import (
    COMPARISON_VERSION,
    Account,
    Comparison,
    DeviceChange,
    FindingChange,
    Prediction,
    RegionChange,
)

Json = dict[str, Any]


def render(comparison: Comparison) -> str:
    """The JSON text, ended by a line break."""
    return dumps(to_dict(comparison))


def schema() -> Json:
    """The JSON Schema (2020-12) of ``to_dict``'s result."""
    text = resources.files("boundby.render.comparison").joinpath("schema.json").read_text(encoding="utf-8")
    loaded: Json = json.loads(text)
    return loaded


def to_dict(comparison: Comparison) -> Json:
    """Plain dicts, lists, strings, numbers, booleans and None."""
    data: Json = {
        "format_version": COMPARISON_VERSION,
        "kind": "comparison",
        "tool": {"name": "boundby", "version": __version__},
        "before": asdict(comparison.before),
        "after": asdict(comparison.after),
        "doubts": [asdict(doubt) for doubt in comparison.doubts],
        "steps": list(comparison.steps) if comparison.steps is not None else None,
        "devices": [_device(device) for device in comparison.devices],
        "regions": [_region(region) for region in comparison.regions],
        "findings": [_finding(finding) for finding in comparison.findings],
        "predictions": [_prediction(item) for item in comparison.predictions],
    }
    found: Json = plain(data)
    return found


def _account(account: Account | None) -> Json | None:
    if account is None:
        return None
    return {
        "name": account.name,
        "path": list(account.path),
        "instances": account.instances,
        "total_ns": account.total_ns,
        "each_ns": account.each_ns,
        "time": {cause: account.time.get(cause, 0) for cause in CAUSE_KEYS},
        "host_ns": account.host_ns,
        "sync_count": account.syncs,
        "bound": account.verdict.bound,
        "mixed_of": list(account.verdict.mixed_of) if account.verdict.mixed_of else None,
        "confidence": account.verdict.confidence,
        "saving_ns": account.verdict.saving_ns,
    }


def _device(device: DeviceChange) -> Json:
    return {
        "before": _account(device.before),
        "after": _account(device.after),
        "is_per_step": device.is_per_step,
        "change": device.change,
        "gpu_utilization_before": device.utilization_before,
        "gpu_utilization_after": device.utilization_after,
    }


def _region(region: RegionChange) -> Json:
    return {
        "before": _account(region.before),
        "after": _account(region.after),
        "domain": region.domain,
        "matched_by": region.how or None,
        "similarity": region.similarity,
        "change": region.change,
        "significance": asdict(region.significance),
    }


def _finding(item: FindingChange) -> Json:
    return {
        "status": item.status,
        "rule": item.finding.rule,
        "severity": item.finding.severity,
        "title": item.finding.title,
        "region": list(item.finding.region) if item.finding.region is not None else None,
        "saving_before_ns": list(item.before_saving_ns) if item.before_saving_ns else None,
        "saving_after_ns": list(item.after_saving_ns) if item.after_saving_ns else None,
        "measured_ns": item.measured_ns,
        "is_region_gone": item.is_region_gone,
        "title_before": item.was.title if item.was else None,
        "region_before": list(item.was.region) if item.was and item.was.region is not None else None,
        "trend": item.trend or None,
        "cause": item.cause or None,
        "cause_ns": item.cause_ns,
        "together": item.together,
    }


def _prediction(item: Prediction) -> Json:
    return {**asdict(item), "causes": list(item.causes), "error": item.error}
