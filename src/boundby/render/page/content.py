"""What the page says besides the region table and the drawings: accounts, findings, what-if, tables, capture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from boundby import __about__
from boundby.model import units
from boundby.model.causes import (
    BOUND_LABEL,
    BUSY_CAUSES,
    CAUSES,
    HOST_MEANING,
    LETTER,
    MEANING,
    SHORT_LABEL,
)
from boundby.model.scenarios import scenario_label
from boundby.render import findings, glossary, sentences, view
from boundby.render.bars import FOLD_BELOW, Segment, segments
from boundby.render.missing import not_captured
from boundby.render.text import clean, region_name
from boundby.render.view import longest_window, window_total
from boundby.results.plot_data import PlotData
from boundby.results.report import Check, Finding, Report, Verdict
from boundby.structure.steps import SLOWER

BEST_FINDINGS = 3
MOST_GAPS_LISTED = 25
LONG_PATH = 48
_BUSY = {cause.key for cause in BUSY_CAUSES}


@dataclass(frozen=True)
class Account:
    """One device (or host thread): its sentence, its bar and what they rest on."""

    name: str
    gpu_name: str
    headline: sentences.Headline
    told: tuple[str, ...]
    doubts: tuple[str, ...]
    bar: tuple[Segment, ...]
    busy: float | None  # of a device
    whole_ns: int
    meanings: Mapping[str, str]
    checklist: tuple[Check, ...]
    bound: str
    saving: str


@dataclass(frozen=True)
class FindingView:
    rank: int
    finding: Finding
    where: str
    saves: str
    saves_fraction: str
    evidence: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ScenarioRow:
    label: str
    fraction: float  # predicted of the baseline
    predicted_ns: int
    change: str
    speedup: str
    then: str | None  # a cause key, "" for nothing, None: not worked out


@dataclass(frozen=True)
class ScenarioGroup:
    device: str
    baseline_ns: int
    now: str  # the bound now
    rows: tuple[ScenarioRow, ...]


def context(
    report: Report, plot_data: PlotData | None, next_bounds: Mapping[tuple[int, str], str | None]
) -> dict[str, object]:
    """Everything the template names, but the regions and the drawings' data."""
    accounts = _accounts(report)
    views = [_finding(number + 1, finding, report) for number, finding in enumerate(report.findings)]
    saving = [view for view in views if view.finding.severity != findings.NOTE]
    unchecked = findings.could_not_check(report.not_checked, every=report.analysis.show_all)
    return {
        "title": sentences.what_ran(report),
        "facts": sentences.circumstances(report),
        "version": __about__.__version__,
        "report": report,
        "accounts": accounts,
        "in_full": len(accounts) <= view.IN_FULL,
        "summaries": view.summaries(view.accounts(report)) if len(accounts) > view.IN_FULL else (),
        "found": saving[: findings.MOST_FINDINGS],
        "smaller": saving[findings.MOST_FINDINGS :],
        "notes": [view for view in views if view.finding.severity == findings.NOTE],
        "best": saving[:BEST_FINDINGS],
        "saving_count": len(saving),
        "nothing_found": findings.nothing_found(report),
        "unchecked": unchecked,
        "unchecked_count": sum(len(rules.split(", ")) for _, rules in unchecked),
        "total": window_total(report),
        "scenarios": _scenarios(report, next_bounds),
        "longest_gaps": _longest_gaps(plot_data),
        "plot_data": plot_data,
        "region_names": [region_name(region.path) for region in plot_data.regions] if plot_data else [],
        "region_ends": [_path_end(region.path) for region in plot_data.regions] if plot_data else [],
        "captured": _captured(report),
        "missing": not_captured(report),
        "glossary": [
            (cause.key, LETTER[cause.key], SHORT_LABEL[cause.key], _meaning(report)[cause.key])
            for cause in CAUSES
            if cause.key in _meaning(report)
        ],
        "terms": glossary.TERMS,
        "causes": CAUSES,
        "short": SHORT_LABEL,
        "letter": LETTER,
        "bound_label": BOUND_LABEL,
        "slower": SLOWER,
        "bound_phrase": sentences.bound_phrase,
        "legend": _legend(report),
        "cpu_sources": sorted({lane.cpu_source for lane in plot_data.lanes if lane.cpu_source}) if plot_data else [],
        "binned": [lane for lane in plot_data.lanes if lane.segments is None] if plot_data else [],
        "merged": any((lane.count > 1).any() for lane in plot_data.ranges) if plot_data else False,
    }


def _path_end(path: tuple[str, ...]) -> str:
    """The last parts of a long path: they tell regions apart."""
    name = region_name(path)
    return name if len(name) <= LONG_PATH or len(path) <= 2 else f"…/{region_name(path[-2:])}"


def _meaning(report: Report) -> Mapping[str, str]:
    return MEANING if report.devices or not report.threads else HOST_MEANING


def _legend(report: Report) -> list[str]:
    """Causes that take any time at all, in their order."""
    accounts = [*(device.time for device in report.devices), *(thread.time for thread in report.threads)]
    return [cause.key for cause in CAUSES if any(time.get(cause.key, 0) for time in accounts)]


def _accounts(report: Report) -> list[Account]:
    found = [
        _account(sentences.gpu(device), device.name, device.verdict, device.time, device.window_ns, device.checklist)
        for device in report.devices
    ]
    busiest = sorted(report.threads, key=lambda thread: (-thread.total_ns, thread.pid, thread.tid))
    found += [
        _account(sentences.thread(t), "", t.verdict, t.time, t.total_ns, (), sentences.blocked_on(t.blocked_on))
        for t in busiest
    ]
    return found


def _account(
    name: str,
    gpu_name: str,
    verdict: Verdict,
    time: Mapping[str, int],
    whole_ns: int,
    checklist: tuple[Check, ...],
    note: str = "",
) -> Account:
    is_device = bool(gpu_name) or name.startswith("GPU ")
    parts = segments(time, fold_below=FOLD_BELOW)
    told = (sentences.because(verdict), sentences.outlook(verdict, whole_ns))
    doubts = (sentences.confidence(verdict), sentences.next_best(verdict, whole_ns), note)
    saving = sentences.change(verdict.saving_ns, whole_ns) if verdict.saving_ns is not None else ""
    return Account(
        name=name,
        gpu_name=gpu_name,
        headline=sentences.headline(verdict, name),
        told=tuple(filter(None, told)),
        doubts=tuple(filter(None, doubts)),
        bar=parts,
        busy=sum(ns for cause, ns in time.items() if cause in _BUSY) / whole_ns if is_device and whole_ns else None,
        whole_ns=whole_ns,
        meanings=MEANING if is_device else HOST_MEANING,
        checklist=checklist,
        bound=sentences.bound_word(verdict),
        saving=saving,
    )


def _finding(rank: int, finding: Finding, report: Report) -> FindingView:
    whole = longest_window(report)
    fraction = ""
    if finding.saving_ns and whole:
        low, high = finding.saving_ns
        first, last = units.percent(low / whole), units.percent(high / whole)
        fraction = last if first == last or low == 0 else f"{first.removesuffix(' %')}-{last}"
        if first == units.percent(1e-9) != last and low:
            fraction = f"up to {last}"
    return FindingView(
        rank=rank,
        finding=finding,
        where=region_name(finding.region) if finding.region is not None else "",
        saves=findings.saves(finding),
        saves_fraction=fraction,
        evidence=tuple((evidence_label(key), evidence(key, value)) for key, value in finding.evidence.items()),
    )


_UNIT = re.compile(r"_(?:ns|bytes_per_s|bytes|fraction)$")


def evidence_label(key: str) -> str:
    """``share of kernel time``: the value carries the unit."""
    return clean(_UNIT.sub("", key).replace("_", " "))


def evidence(key: str, value: object) -> str:
    """A figure of a finding as people read it; its unit is the end of its name."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: units.NOT_CAPTURED}[value]
    if isinstance(value, int | float):
        if key.endswith("_ns") or key == "ns":
            return units.duration(value)
        if key.endswith("bytes_per_s"):
            return units.bandwidth(value)
        if key.endswith("_bytes") or key == "bytes":
            return units.size(value)
        if key.endswith(("fraction", "share")):
            return units.percent(value)
        return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
    if isinstance(value, Mapping):
        parts = (f"{evidence_label(str(name))}: {evidence(str(name), item)}" for name, item in value.items())
        return ", ".join(parts) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(evidence("", item) for item in value) or "none"
    return clean(str(value))


def _scenarios(report: Report, next_bounds: Mapping[tuple[int, str], str | None]) -> list[ScenarioGroup]:
    groups = []
    for device in report.devices:
        items = [
            item
            for item in report.what_if
            if item.device == device.id
            and abs(item.baseline_ns - item.predicted_ns) >= sentences.NOTABLE_CHANGE * item.baseline_ns
        ]
        rows = tuple(
            ScenarioRow(
                label=scenario_label(item.scenario),
                fraction=min(item.predicted_ns / item.baseline_ns, 1.0) if item.baseline_ns else 0.0,
                predicted_ns=item.predicted_ns,
                change=sentences.change(item.baseline_ns - item.predicted_ns, item.baseline_ns),
                speedup=f"{item.speedup:.3g} x as fast" if item.predicted_ns else "",
                then=_then(device.id, item.scenario, next_bounds),
            )
            for item in sorted(items, key=lambda item: (item.predicted_ns, item.scenario))
        )
        if rows:
            groups.append(
                ScenarioGroup(sentences.gpu(device), device.window_ns, sentences.bound_word(device.verdict), rows)
            )
    return groups


def _then(device: int, scenario: str, next_bounds: Mapping[tuple[int, str], str | None]) -> str | None:
    return (next_bounds[device, scenario] or "") if (device, scenario) in next_bounds else None


def _longest_gaps(plot_data: PlotData | None) -> list[tuple[int, object]]:
    """The longest gaps of those the plot data tells, with their number there."""
    if plot_data is None:
        return []
    numbered = sorted(enumerate(plot_data.gaps), key=lambda item: (item[1].start_ns - item[1].end_ns, item[0]))
    return list(numbered[:MOST_GAPS_LISTED])


_CAPTURED = {
    "kernels": "GPU kernels",
    "cuda_api": "CUDA API calls",
    "memcpy": "memory copies",
    "sync": "CUDA synchronizations",
    "cuda_graphs": "CUDA graphs",
    "nvtx": "NVTX ranges",
    "osrt": "OS runtime calls",
    "cpu_scheduling": "CPU scheduling",
    "cpu_samples": "CPU samples",
    "gpu_metrics": "GPU metrics",
    "backtraces": "backtraces",
    "python_stacks": "Python stacks",
}


def _captured(report: Report) -> list[tuple[str, bool]]:
    held = report.trace.captured
    return [(label, bool(getattr(held, key))) for key, label in _CAPTURED.items() if hasattr(held, key)]
