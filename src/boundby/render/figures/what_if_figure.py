"""What-if as bars: the window now, and as each change alone would leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from boundby.document import sentences
from boundby.document.blocks import clean
from boundby.model.causes import BOUND_LABEL, OTHER
from boundby.model.scale import A_FEW_LINES
from boundby.model.scenarios import SCENARIO_OF_CAUSE, scenario_label
from boundby.render.figures import style
from boundby.results.report import DeviceReport, Report, WhatIf

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = A_FEW_LINES  # devices with bars of their own; of more, each is a dot
TITLE = "What the window would take without each cost, predicted by replay"
#: scenario -> the cause it removes, for its colour
CAUSE_OF = {scenario: cause for cause, scenario in SCENARIO_OF_CAUSE.items()}
NOW = (0, (3, 3))  # the dashes of the line at today's window


@style.of_report
def what_if(report: Report, look: style.Look) -> Figure:
    """For each device the window now and without each cost, shortest first; scenarios that change nothing are left out.

    Raises UserError where the trace could not be replayed or no scenario changes the window.
    """
    notable = [item for _, item in sentences.notable_scenarios(report)]
    devices = [device for device in report.devices if any(item.device == device.id for item in notable)]
    if not devices:
        why = "no change of one cost alone would shorten it" if report.what_if else "the trace could not be replayed"
        why = f"{why} to be trusted: {clean(report.unreliable)}" if report.unreliable else why
        raise style.nothing(why, "Try: boundby analyze REPORT")
    if len(devices) > MOST_PANELS:
        return _dots(report, sorted({item.scenario for item in notable}), look)
    scenarios = [
        sorted((item for item in notable if item.device == device.id), key=lambda it: (it.predicted_ns, it.scenario))
        for device in devices
    ]
    rows = [len(items) + 1 for items in scenarios]
    figure = style.new_figure(report, look, look.line_in * (1.6 * sum(rows) + 3.4 * len(rows)), TITLE)
    panels = figure.subplots(len(devices), squeeze=False, gridspec_kw={"height_ratios": rows})[:, 0]
    for axes, device, items in zip(panels, devices, scenarios, strict=True):
        _bars(axes, device, items, look)
        if len(devices) > 1:
            axes.set_title(f"GPU {device.id}", loc="left", weight="bold")
    return figure


def _label(scenario: str) -> str:
    text = scenario_label(scenario)
    return text[:1].upper() + text[1:]


def _bars(axes: Axes, device: DeviceReport, items: Sequence[WhatIf], look: style.Look) -> None:
    verdict, now = device.verdict, device.window_ns
    longest = max(now, *(item.predicted_ns for item in items))
    scale, unit = style.time_unit(longest)
    axes.barh(0, now / scale, style.BAR, color=style.RULE)
    bound = BOUND_LABEL.get(verdict.bound, verdict.bound)
    _write(axes, 0, now / scale, f"{style.duration(now)}, {bound}", look, longest / scale)
    for place, item in enumerate(items, 1):
        cause = CAUSE_OF.get(item.scenario, OTHER.key)
        end = style.cause_bar(axes, place, [(cause, item.predicted_ns / scale)], lambda _, __: "")
        saved = item.baseline_ns - item.predicted_ns
        axes.barh(place, max(saved, 0) / scale, style.BAR, end, facecolor="none", edgecolor=style.RULE)
        text = f"{style.duration(item.predicted_ns)} ({sentences.change(saved, item.baseline_ns)})"
        then = verdict.bound_next or "unknown"
        if cause == verdict.bound and then not in ("unknown", "hidden"):
            text += f", then {BOUND_LABEL.get(then, then)}"
        _write(axes, place, end, text, look, longest / scale)
    axes.axvline(now / scale, color=style.FAINT, linewidth=0.6, linestyle=NOW)
    labels = ("Now", *(_label(item.scenario) for item in items))
    style.name_rows(axes, [style.name(label, look, look.width_in / 3) for label in labels])
    axes.set_xlim(0, longest / scale * 1.02)
    axes.set_xlabel(f"window, {unit}")


def _write(axes: Axes, place: int, end: float, text: str, look: style.Look, longest: float) -> None:
    """The figures beside a bar's end, or at its start on white where they would not fit."""
    if look.characters((longest - end) / longest * 0.6 * look.width_in) >= len(text):
        axes.text(end + 0.01 * longest, place, text, va="center", color=style.INK)
        return
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
    axes.text(0.012 * longest, place, text, va="center", color=style.INK, bbox=box)


def _dots(report: Report, scenarios: Sequence[str], look: style.Look) -> Figure:
    """A row for each scenario, a dot for each device: the share of its window that would remain."""
    remaining = {
        scenario: sorted(
            100 * item.predicted_ns / item.baseline_ns for item in report.what_if if item.scenario == scenario
        )
        for scenario in scenarios
    }
    rows = sorted(remaining.items(), key=lambda row: (sum(row[1]) / len(row[1]), row[0]))
    figure = style.new_figure(report, look, look.line_in * (1.5 * len(rows) + 3.4), TITLE)
    axes = figure.subplots()
    for place, (scenario, values) in enumerate(rows):
        ends = [values[0], values[-1]]
        axes.plot(ends, [place, place], color=style.RULE, linewidth=3, zorder=1, solid_capstyle="round")
        color = style.fill(CAUSE_OF.get(scenario, OTHER.key))["facecolor"]
        axes.scatter(values, [place] * len(values), 14, color=color, edgecolors="white", linewidths=0.4, zorder=2)
    style.name_rows(axes, [_label(scenario) for scenario, _ in rows])
    axes.set_xlim(0, max(103.0, *(1.02 * values[-1] for _, values in rows)))
    axes.axvline(100, color=style.FAINT, linewidth=0.6, linestyle=NOW)
    axes.grid(axis="x")
    axes.set_xlabel(f"predicted window, % of now; a dot for each of {len(report.devices)} GPUs")
    return figure
