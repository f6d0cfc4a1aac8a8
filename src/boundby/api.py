"""The whole analysis on one screen: read, work out the timeline, judge it, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

from boundby.attribution.timeline import Timeline
from boundby.attribution.windows import matching_ranges, regions_matching
from boundby.evidence.context import RuleContext
from boundby.model.errors import SelectionError
from boundby.opening import Progress, describe, open_timeline
from boundby.plot_data import build_plot_data
from boundby.replay import SCENARIOS, Answer, Predictor, answer, removals, unreliable_timeline
from boundby.replay.savings import Savings
from boundby.results.plot_data import PlotData
from boundby.results.report import NotChecked, Report, WhatIf
from boundby.rules import builtin as rules
from boundby.rules.findings import find
from boundby.rules.settings import make_settings
from boundby.stats.figures import Figures, measure
from boundby.verdict import summary

# Replays that one analysis makes, about: many are worth compiling the loop for.
REPLAYS = 150
# Operations times devices up to which pages also ask what would bound next (some 20 replays a device and prediction:
# 1 s at this size).
MOST_ASKED_NEXT = 50_000


def analyze(
    path: str | PathLike[str],
    *,
    window: str = "gpu",
    skip_first: int = 0,
    region: str | None = None,
    devices: Sequence[int] = (),
    processes: Sequence[int] = (),
    min_share: float = 0.0,
    fold: bool = True,
    nsys: str | PathLike[str] | None = None,
    keep_export: bool = False,
    disable: Sequence[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    show_all: bool = False,
    find_regions: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Analyse one report: ``.sqlite`` (an nsys export), ``.nsys-rep`` or ``.qdrep`` (exported first), or the folder of
    a run that ``boundby profile`` made.

    ``window``: ``gpu``, ``all``, ``START:END`` or ``nvtx:NAME``. ``skip_first``: leave out that many instances of
    the steps as warm-up. ``region``: a glob; only matching regions are reported. ``min_share``: leave out regions
    below this fraction of the window. ``fold``: let numbered names share a region. ``keep_export``: leave the
    export beside the report. ``disable``: rules to leave out. ``thresholds``: by rule, then name, in place of the
    rule's own. ``show_all``: findings below 1 % of the window too. ``find_regions``: where a process has no NVTX
    ranges of its own, find its iterations and phases in its launches. ``progress`` is called with a stage and a
    fraction (None: unknown).

    Raises boundby.model.errors.UserError with one clear sentence and a next step for anything a user can mend.
    """
    return examine(
        path,
        window=window,
        skip_first=skip_first,
        region=region,
        devices=devices,
        processes=processes,
        min_share=min_share,
        fold=fold,
        nsys=nsys,
        keep_export=keep_export,
        disable=disable,
        thresholds=thresholds,
        show_all=show_all,
        find_regions=find_regions,
        progress=progress,
    ).report


@dataclass(frozen=True)
class Examination:
    """A report, and what pages and figures draw beside it: worked out when first asked for."""

    report: Report
    timeline: Timeline

    @cached_property
    def plot_data(self) -> PlotData:
        return build_plot_data(self.timeline)

    @cached_property
    def next_bounds(self) -> Mapping[tuple[int, str], str | None]:
        """What would bound each device next under the Report's notable predictions, by (device id, scenario); None:
        nothing worth 1 %. Empty for traces so large that these replays would take longer than the analysis."""
        if len(self.timeline.trace.operations) * len(self.timeline.devices) > MOST_ASKED_NEXT:
            return {}
        names = {item.scenario for item in self.report.what_if if item.predicted_ns < 0.99 * item.baseline_ns}
        answers = [found for name in sorted(names) for found in answer(self.timeline, name)]
        return {(found.device, found.scenario): found.then_bound for found in answers}


def examine(
    path: str | PathLike[str],
    *,
    window: str = "gpu",
    skip_first: int = 0,
    region: str | None = None,
    devices: Sequence[int] = (),
    processes: Sequence[int] = (),
    min_share: float = 0.0,
    fold: bool = True,
    nsys: str | PathLike[str] | None = None,
    keep_export: bool = False,
    disable: Sequence[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    show_all: bool = False,
    find_regions: bool = True,
    progress: Progress | None = None,
) -> Examination:
    """``analyze`` in one pass with the plot data of the timeline. Arguments and errors are the same."""
    step = progress or _silent
    installed, broken = rules.third_party()
    every = (*rules.builtin(), *installed)
    settings = make_settings(every, disable=disable, thresholds=thresholds, show_all=show_all)
    selection = (window, skip_first, tuple(devices), tuple(processes), fold)
    trace, timeline = open_timeline(Path(path), selection, nsys, keep_export, step, find=find_regions)
    if region is not None:
        matching_ranges(timeline.trace, timeline.ownership.regions, region)
    step("judging", None)
    figures = measure(timeline)
    replayed, what_if, savings = _replay(timeline, figures, step)
    report = Report(
        trace=describe(trace, timeline, skip_first),
        devices=summary.devices(timeline, figures, replayed),
        threads=summary.threads(timeline),
        regions=summary.regions(timeline, figures, replayed, glob=region, min_share=min_share),
        what_if=what_if,
        window=window,
        region_glob=region,
        min_share=min_share,
        skip_first=skip_first,
        device_ids=tuple(devices),
        process_ids=tuple(processes),
        fold=fold,
        rules_disabled=tuple(sorted(settings.disabled)),
        thresholds={f"{rule}.{name}": value for (rule, name), value in sorted(settings.thresholds.items())},
        show_all=show_all,
    )
    step("looking for what to change", None)
    # Rules see every region, whatever the report shows.
    regions = summary.regions(timeline, figures, replayed) if region or min_share else report.regions
    context = RuleContext(timeline, figures, report.devices, regions, what_if, savings, settings.thresholds, show_all)
    looked = find(context, every, settings)
    shown = {item.path for item in report.regions if item.path}
    found = tuple(item for item in looked.found if region is None or item.region is None or item.region in shown)
    failed = tuple(NotChecked(item.name, item.reason) for item in broken if item.name not in settings.disabled)
    not_checked = (*looked.not_checked, *failed)
    report = replace(report, findings=found, not_checked=not_checked, rules_checked=looked.checked)
    return Examination(report, timeline)


def what_if(
    path: str | PathLike[str],
    scenarios: Sequence[str] = tuple(SCENARIOS),
    *,
    window: str = "gpu",
    skip_first: int = 0,
    region: str | None = None,
    devices: Sequence[int] = (),
    processes: Sequence[int] = (),
    nsys: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> tuple[list[Answer], str | None]:
    """What each scenario would leave of each device's window, and why that is not to be trusted (None: it is).

    ``scenarios`` are names of `SCENARIOS`, ``kernels=2`` (twice as fast), ``kernel:GLOB=3``, ``copies=K``,
    ``comm=K``, ``cpu=K``, ``copies_overlapped``, ``comm_overlapped``, or several joined by ``+``. ``region`` limits
    the change to regions that match the glob, with all that lies in them. Raises UserError like ``analyze``.
    """
    step = progress or _silent
    selection = (window, skip_first, tuple(devices), tuple(processes), True)
    _, timeline = open_timeline(Path(path), selection, nsys, False, step)
    if not timeline.devices:
        raise SelectionError(f"{path} holds no GPU work to replay.", "Capture with --trace=cuda.")
    inside = None
    if region is not None:
        regions = timeline.ownership.regions
        matching_ranges(timeline.trace, regions, region)
        inside = regions_matching(regions, region)
    step("replaying", None)
    answers = [found for scenario in scenarios for found in answer(timeline, scenario, inside, region)]
    return answers, unreliable_timeline(timeline)


def _replay(
    timeline: Timeline, figures: Figures, step: Progress
) -> tuple[summary.Replayed, tuple[WhatIf, ...], Savings | None]:
    """Savings and predictions by replay; nothing where the trace holds no GPU work or no calls."""
    if not timeline.devices or not len(timeline.calls):
        return summary.Replayed(), (), None
    step("replaying without each cause", None)
    predictor = Predictor(timeline, runs=REPLAYS)
    found = removals(timeline, figures.inclusive, predictor)
    alone = {
        index: {SCENARIOS[name][0]: ns for name, ns in windows.items() if len(SCENARIOS[name]) == 1}
        for index, windows in found.predicted_ns.items()
    }
    replayed = summary.Replayed(found.device, found.following, found.region, alone, found.unreliable)
    what_if = [
        WhatIf(scenario, predicted_ns, device.high_ns - device.low_ns, timeline.trace.gpus[device.index].id)
        for device in timeline.devices
        for scenario, predicted_ns in found.predicted_ns[device.index].items()
    ]
    return replayed, () if found.unreliable else tuple(what_if), Savings(predictor, found.unreliable)


def _silent(stage: str, fraction: float | None) -> None:
    """No progress is shown."""


__all__ = ["Examination", "analyze", "examine", "what_if"]
