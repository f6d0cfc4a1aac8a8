"""What the page says besides the region table and the drawings: accounts, findings, what-if, tables, capture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from boundby import __about__
from boundby.claims import patterns
from boundby.document import measurements, sentences, view
from boundby.document.blocks import clean, region_name
from boundby.document.sentences import captured_by, not_captured
from boundby.model import units
from boundby.model.causes import CAUSE_INFO, HOST_MEANING, CauseInfo, info
from boundby.model.expressions import expression
from boundby.model.scale import A_FEW_LINES
from boundby.model.scenarios import scenario_label
from boundby.results.plot_data import Gap, PlotData
from boundby.results.report import Finding, Report, WhatIf
from boundby.rules.builtin import builtin
from boundby.structure.steps import SLOWER

BEST_FINDINGS = A_FEW_LINES
MOST_GAPS_LISTED = 25
LONG_PATH = 48

#: (device id, scenario) -> the cause that would bound next, None: nothing worth 1 % of what is left.
NextBounds = Mapping[tuple[int, str], str | None]


def context(report: Report, plot_data: PlotData | None, next_bounds: NextBounds) -> dict[str, object]:
    """Everything the template names, but the regions and the drawings' data."""
    accounts = view.accounts(report)
    whole_ns = view.longest_window(report)
    told = [RankedFinding(rank, finding, whole_ns) for rank, finding in enumerate(report.findings, 1)]
    saving = [item for item in told if item.finding.severity != sentences.NOTE]
    unchecked = sentences.could_not_check(report.not_checked, every=report.analysis.show_all)
    return {
        "title": sentences.what_ran(report),
        "facts": sentences.circumstances(report),
        "version": __about__.__version__,
        "report": report,
        "accounts": accounts,
        "ended": sentences.end_above(report),
        "in_full": len(accounts) <= view.IN_FULL,
        "summaries": view.summaries(accounts),
        "found": saving[: sentences.MOST_FINDINGS],
        "smaller": saving[sentences.MOST_FINDINGS :],
        "notes": [item for item in told if item.finding.severity == sentences.NOTE],
        "best": saving[:BEST_FINDINGS],
        "saving_count": len(saving),
        "nothing_found": sentences.nothing_found(report),
        "unchecked": unchecked,
        "unchecked_count": sum(len(rules.split(", ")) for _, rules in unchecked),
        "scenarios": _scenarios(report, next_bounds),
        "no_predictions": sentences.no_predictions(report),
        "captured": [label for key, label in _CAPTURED.items() if getattr(report.trace.captured, key, False)],
        "missing": not_captured(report),
        "captured_by": captured_by(report),
        "work_title": measurements.work_title(report),
        "work_rows": measurements.work_rows(report),
        "counted": [
            (
                title,
                measurements.drawn_counters(device),
                measurements.counters_by_kernel(device) + [row for _, row in measurements.counters_by_region(report)],
            )
            for device in report.devices
            if (title := measurements.counters_title(device))
        ],
        "counter_columns": measurements.COUNTER_COLUMNS,
        "memories": [
            (title, measurements.memory_held(device), measurements.memory_lines(device.memory.points))
            for device in report.devices
            for title in measurements.memory_titles(device)
            if device.memory
        ],
        "passes": measurements.backward_passes(report),
        "causes": list(CAUSE_INFO.values()),
        "info": info,
        "meanings": meanings(report),
        "terms": sentences.TERMS,
        "slower": SLOWER,
        "bound_phrase": sentences.bound_phrase,
        "numbered": sentences.numbered,
        "place": sentences.place,
        "usual": sentences.usual,
        "saves_of": sentences.saves_of,
        "pictures": {
            card.pattern: _lines(patterns.pattern(card.pattern).picture) for one in accounts for card in one.cards
        },
        "top_kernels": view.tops(report)[0],
        "top_calls": view.tops(report)[1],
        "region_sums": view.region_sums(report),
        "rule_texts": _rule_texts(report),
        "legend": [row for row in CAUSE_INFO.values() if any(account.time.get(row.key) for account in accounts)],
        "plot_data": plot_data,
        **(_drawn(plot_data) if plot_data is not None else {}),
    }


def _rule_texts(report: Report) -> dict[str, object]:
    """The pages of the rules that found something: the page of a report explains itself."""
    found = {item.rule for item in report.findings}
    return {rule.id: _lines(rule.text) for rule in builtin() if rule.id in found}


def _lines(text: str) -> object:
    """Our own text, escaped, with its line breaks."""
    from markupsafe import escape

    return escape(text)


def meanings(report: Report) -> list[tuple[CauseInfo, str]]:
    """What each cause says of a device's time; of a thread's where there is no GPU work, empty for some there."""
    on_host = bool(report.threads) and not report.devices
    told = HOST_MEANING if on_host else sentences.meanings(report.devices)
    return [(row, told.get(row.key, "")) for row in CAUSE_INFO.values()]


def _drawn(plot_data: PlotData) -> dict[str, object]:
    """What stands around the drawings."""
    longest: list[tuple[int, Gap]] = sorted(enumerate(plot_data.gaps), key=lambda item: (-item[1].length_ns, item[0]))
    return {
        "longest_gaps": longest[:MOST_GAPS_LISTED],
        "region_names": [region_name(region.path) for region in plot_data.regions],
        "region_ends": [_path_end(region.path) for region in plot_data.regions],
        "cpu_sources": sorted({lane.cpu_source for lane in plot_data.lanes if lane.cpu_source}),
        "binned": [lane for lane in plot_data.lanes if lane.fine is not None],
        "merged": any(
            (count > 1).any() for count in [*(x.count for x in plot_data.ranges), *(x.count for x in plot_data.work)]
        ),
    }


def _path_end(path: tuple[str, ...]) -> str:
    """The last parts of a long path: they tell regions apart."""
    name = region_name(path)
    return name if len(name) <= LONG_PATH or len(path) <= 2 else f"…/{region_name(path[-2:])}"


class RankedFinding(Struct, frozen=True):
    """A finding in its place."""

    rank: int
    finding: Finding
    whole_ns: int  # what its saving is set against

    @property
    def where(self) -> str:
        return region_name(self.finding.region) if self.finding.region is not None else ""

    @property
    def saves(self) -> str:
        return sentences.saves(self.finding)

    @property
    def saves_fraction(self) -> str:
        """``2-4 %`` of the window; ``up to 4 %`` where the low end is next to nothing; empty where nothing is told."""
        if not self.finding.saving_ns or not self.whole_ns:
            return ""
        low, high = self.finding.saving_ns
        first, last = units.percent(low / self.whole_ns), units.percent(high / self.whole_ns)
        if first == last or low == 0:
            return last
        return f"up to {last}" if first == units.percent(1e-9) else f"{first.removesuffix(' %')}-{last}"

    @property
    def evidence(self) -> list[tuple[str, str]]:
        return [(evidence_label(key), evidence(key, value)) for key, value in self.finding.evidence.items()]


_UNIT = expression(r"_(?:ns|bytes_per_s|bytes|fraction)$")


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


class ScenarioRow(NamedTuple):
    """One prediction: ``fraction`` of the window is left, ``then`` bounds it ("" for nothing; None: not worked out)."""

    label: str
    prediction: WhatIf
    fraction: float
    length: str
    change: str
    then: str | None


def _scenarios(report: Report, next_bounds: NextBounds) -> list[tuple[view.Account, list[ScenarioRow]]]:
    """For each device whose window any scenario changes: its account, and the predictions, shortest first."""
    notable, groups = sentences.notable_scenarios(report), []
    for device, account in zip(report.devices, view.accounts(report), strict=False):
        rows = [
            ScenarioRow(
                scenario_label(item.scenario),
                item,
                min(item.predicted_ns / item.baseline_ns, 1.0) if item.baseline_ns else 0.0,
                sentences.predicted_length(item),
                sentences.predicted_change(item),
                (next_bounds[key] or "") if (key := (device.id, item.scenario)) in next_bounds else None,
            )
            for _, item in sorted(notable, key=lambda pair: (pair[1].predicted_ns, pair[1].scenario))
            if item.device == device.id
        ]
        if rows:
            groups.append((account, rows))
    return groups


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
    "shapes": "sizes of inputs",
    "memory": "allocations",
}
