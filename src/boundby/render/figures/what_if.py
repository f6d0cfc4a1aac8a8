"""What-if as bars: the window now, and as each change alone would leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from boundby.model.causes import BOUND_LABEL
from boundby.model.scenarios import scenario_label
from boundby.render import sentences
from boundby.render.figures.style import (
    FAINT,
    INK,
    RULE,
    Examined,
    Look,
    drawn,
    duration,
    fill,
    name,
    names_of_rows,
    new_figure,
    nothing,
    report_of,
    time_unit,
)
from boundby.results.report import DeviceReport, Report, WhatIf

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 3  # devices with bars of their own; of more, each is a dot
#: scenario -> the cause it removes, for its colour
CAUSE = {
    "no_sync": "sync",
    "no_launch_overhead": "cuda_api",
    "infinite_gpu": "gpu_compute",
    "copies_free": "gpu_copy",
    "cpu_free": "cpu",
    "input_free": "host_blocked",
    "comm_free": "gpu_comm",
    "init_free": "init",
}


@drawn
def what_if(found: Report | Examined, look: Look) -> Figure:
    """For each device the window now and without each cost, shortest first; scenarios that change nothing are left out.

    Raises UserError where the trace could not be replayed or no scenario changes the window.
    """
    report = report_of(found)
    notable = [item for _, item in sentences.notable_scenarios(report)]
    devices = [device for device in report.devices if any(item.device == device.id for item in notable)]
    if not devices:
        why = "no change of one cost alone would shorten it" if report.what_if else "the trace could not be replayed"
        raise nothing(why, "Try: boundby analyze REPORT")
    under = " · ".join((sentences.what_ran(report), *sentences.circumstances(report)))
    title = "What the window would take without each cost, predicted by replay"
    if len(devices) > MOST_PANELS:
        return _dots(report, notable, look, (title, under))
    scenarios = [_ordered(notable, device) for device in devices]
    rows = [len(items) + 1 for items in scenarios]
    figure = new_figure(look, look.line_in * (1.6 * sum(rows) + 3.4 * len(rows)), title, under)
    panels = figure.subplots(len(devices), squeeze=False, gridspec_kw={"height_ratios": rows})[:, 0]
    for axes, device, items in zip(panels, devices, scenarios, strict=True):
        _bars(axes, device, items, look)
        if len(devices) > 1:
            axes.set_title(f"GPU {device.id}", loc="left", weight="bold")
    return figure


def _ordered(items: Sequence[WhatIf], device: DeviceReport) -> list[WhatIf]:
    mine = [item for item in items if item.device == device.id]
    return sorted(mine, key=lambda item: (item.predicted_ns, item.scenario))


def _label(scenario: str) -> str:
    text = scenario_label(scenario)
    return text[:1].upper() + text[1:]


def _bars(axes: Axes, device: DeviceReport, items: Sequence[WhatIf], look: Look) -> None:
    now = device.window_ns
    longest = max(now, *(item.predicted_ns for item in items))
    scale, unit = time_unit(longest)
    axes.barh(0, now / scale, 0.7, color=RULE)
    bound = BOUND_LABEL.get(device.verdict.bound, device.verdict.bound)
    _told(axes, 0, now / scale, f"{duration(now)}, {bound}", look, longest / scale)
    for place, item in enumerate(items, 1):
        style = fill(CAUSE.get(item.scenario, "other"))
        saved = item.baseline_ns - item.predicted_ns
        axes.barh(place, item.predicted_ns / scale, 0.7, **style)
        axes.barh(place, max(saved, 0) / scale, 0.7, item.predicted_ns / scale, facecolor="none", edgecolor=RULE)
        text = f"{duration(item.predicted_ns)} ({_change(saved, item.baseline_ns)})"
        then = device.verdict.bound_next or "unknown"
        if CAUSE.get(item.scenario) == device.verdict.bound and then not in ("unknown", "hidden"):
            text += f", then {BOUND_LABEL.get(then, then)}"
        _told(axes, place, item.predicted_ns / scale, text, look, longest / scale)
    axes.axvline(now / scale, color=FAINT, linewidth=0.6, linestyle=(0, (3, 3)))
    labels = [name(label, look, look.width_in / 3) for label in ("Now", *(_label(item.scenario) for item in items))]
    names_of_rows(axes, labels, range(len(labels)))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(0, longest / scale * 1.02)
    axes.set_xlabel(f"window, {unit}")


def _change(saved_ns: int, baseline_ns: int) -> str:
    return sentences.change(saved_ns, baseline_ns)


def _told(axes: Axes, place: int, end: float, text: str, look: Look, longest: float) -> None:
    """The figures beside a bar's end, or at its start on white where they would not fit."""
    room = look.characters((longest - end) / longest * 0.6 * look.width_in)
    if room >= len(text):
        axes.text(end + 0.01 * longest, place, text, va="center", color=INK)
        return
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
    axes.text(0.012 * longest, place, text, va="center", color=INK, bbox=box)


def _dots(report: Report, notable: Sequence[WhatIf], look: Look, head: tuple[str, str]) -> Figure:
    """A row for each scenario, a dot for each device: the share of its window that would remain."""
    scenarios = sorted({item.scenario for item in notable})
    remaining = {
        scenario: [100 * item.predicted_ns / item.baseline_ns for item in report.what_if if item.scenario == scenario]
        for scenario in scenarios
    }
    scenarios.sort(key=lambda scenario: (sum(remaining[scenario]) / len(remaining[scenario]), scenario))
    figure = new_figure(look, look.line_in * (1.5 * len(scenarios) + 3.4), *head)
    axes = figure.subplots()
    for place, scenario in enumerate(scenarios):
        values = sorted(remaining[scenario])
        axes.plot([values[0], values[-1]], [place, place], color=RULE, linewidth=3, zorder=1, solid_capstyle="round")
        color = fill(CAUSE.get(scenario, "other"))["facecolor"]
        axes.scatter(values, [place] * len(values), 14, color=color, edgecolors="white", linewidths=0.4, zorder=2)
    names_of_rows(axes, [_label(scenario) for scenario in scenarios], range(len(scenarios)))
    axes.set_ylim(len(scenarios) - 0.5, -0.5)
    axes.set_xlim(0, max(103.0, *(1.02 * max(values) for values in remaining.values())))
    axes.axvline(100, color=FAINT, linewidth=0.6, linestyle=(0, (3, 3)))
    axes.grid(axis="x")
    axes.set_xlabel(f"predicted window, % of now; a dot for each of {len(report.devices)} GPUs")
    return figure
