"""A report as a flat dict of floats, for trackers: ``wandb.log(report.metrics())``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from boundby.model.causes import CAUSE_KEYS
from boundby.model.scale import HALF

if TYPE_CHECKING:
    from boundby.results.report import RegionReport, Report

_NS_PER_MS = 1e6
#: A region that fills so much of the time is the program's step, if it repeats.
_STEP_SHARE = HALF


def flat(report: Report, prefix: str) -> dict[str, float]:
    """Names that stay the same from run to run. What was not recorded is left out, since zero would be a figure."""
    gpus, found = report.devices, report.findings
    told = {f"time/{cause}": fraction for cause, fraction in _shares([one.time for one in gpus or report.threads])}
    if gpus:
        window_ns = sum(gpu.window_ns for gpu in gpus)
        told["window_ms"] = window_ns / len(gpus) / _NS_PER_MS
        told["gpu_utilization"] = sum(gpu.busy_ns for gpu in gpus) / window_ns if window_ns else 0.0
        savings = [(gpu.verdict.saving_ns, gpu.window_ns) for gpu in gpus]
        known = [(saving, ns) for saving, ns in savings if saving is not None]
        if known:
            told["bound_saving"] = sum(saving for saving, _ in known) / (sum(ns for _, ns in known) or 1)
    if (step_ns := _step_ns(report)) is not None:
        told["step_ms"] = step_ns / _NS_PER_MS
    told["findings"] = float(len(found))
    told["findings_high"] = float(sum(item.severity == "high" for item in found))
    if len(gpus) > 1:
        told |= {f"gpu{gpu.id}/utilization": gpu.gpu_utilization for gpu in gpus}
    return {f"{prefix}{name}": float(value) for name, value in told.items()}


def _shares(times: Sequence[Mapping[str, int]]) -> list[tuple[str, float]]:
    """Every cause's fraction of all time."""
    total = sum(sum(time.values()) for time in times)
    return [(cause, sum(time[cause] for time in times) / total) for cause in CAUSE_KEYS] if total else []


def _step_ns(report: Report) -> float | None:
    """The median step: of the steady ones, else of the outermost region that repeats and fills the time."""
    steady = [gpu.steady.step_ns for gpu in report.devices if gpu.steady is not None]
    if steady:
        return max(steady)

    def is_step(region: RegionReport) -> bool:
        return len(region.path) == 1 and region.instances > 1 and region.share >= _STEP_SHARE

    step = next((region for region in report.regions if is_step(region)), None)
    return None if step is None else (step.projected or step.host).median_ns
