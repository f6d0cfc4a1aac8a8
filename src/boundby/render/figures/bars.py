"""Bars: the account of each device, the regions as a tree, and the window as each change alone would leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from boundby.document import sentences, view
from boundby.document.blocks import FOLD_BELOW, clean, segments
from boundby.document.view import Row, Selection, select
from boundby.model import units
from boundby.model.causes import BOUND_LABEL, CAUSE_KEYS, OTHER, SCENARIO_OF_CAUSE, info, scenario_label
from boundby.model.scale import A_FEW_LINES, MOST, NEARLY_ALL, TABLE
from boundby.render.figures import style
from boundby.results.report import DeviceReport, Report, WhatIf

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@style.of_report
def account(report: Report, look: style.Look) -> Figure:
    """One bar for each device, or for each thread where there is no GPU work.

    Raises UserError where the report holds neither.
    """
    every = [row for row in view.accounts(report) if row.whole_ns > 0]
    rows = every[:TABLE]
    if not rows:
        raise style.nothing("the report holds no GPU work and no thread with time", "Try: boundby analyze REPORT")
    shown = {part.cause for row in rows for part in row.parts}
    causes = [cause for cause in (*CAUSE_KEYS, OTHER.key) if cause in shown]
    labels = []
    title = f"What {len(rows)} {'GPUs' if report.devices else 'threads'} spend their time on"
    if len(rows) == 1:
        title = str(rows[0].headline)
        labels = [
            f"{part.letter}  {part.label}  {units.percent(part.fraction)}, {style.duration(part.ns)}"
            for part in rows[0].parts
        ]
    if len(every) > len(rows):
        title += f" (and {len(every) - len(rows)} more)"
    height = look.line_in * (2.0 if len(rows) == 1 else 1.7 if len(rows) <= 12 else 1.25) * len(rows)
    height += look.line_in * (2.6 + style.legend_lines(causes, look, labels)) + 0.12
    figure = style.new_figure(report, look, height, title)
    axes = figure.subplots()

    def label(cause: str, width: float) -> str:
        room = look.characters(width / 100 * look.width_in * 0.78)
        letter = info(cause).letter
        return f"{letter} {units.percent(width / 100)}" if room >= 8 else letter if room >= 2 else ""

    for y, row in enumerate(rows):
        style.cause_bar(axes, y, [(part.cause, 100 * part.fraction) for part in row.parts], label)
        beside = f"{row.bound}, {style.duration(row.whole_ns)}"
        axes.text(101, y, beside, va="center", color=style.FAINT, size=NEARLY_ALL * look.font_pt)
    style.name_rows(axes, [style.name(row.name, look, look.width_in / 4) for row in rows])
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the window, %" if report.devices else "share of the thread's time, %")
    style.legend(figure, causes, look, labels)
    return figure


# The regions as a tree of bars: how much of the time is each one's, and on what it went.

MOST_ROWS = TABLE  # a figure is read at a glance
INDENT = "\N{NO-BREAK SPACE}" * 3


@style.of_report
def regions(report: Report, look: style.Look) -> Figure:
    """A bar for each region of the tree, long as its time in the account; the smallest are left out.

    Raises UserError where the report holds no NVTX ranges.
    """
    selection = _selection(report)
    rows = selection.rows
    if not rows:
        advice = "Annotate the program, or capture with --trace=cuda,nvtx."
        raise style.nothing("the report holds no NVTX ranges", advice)
    longest = max(row.region.total_ns for row in rows)
    scale, unit = style.time_unit(longest or max(row.region.host.total_ns for row in rows))
    causes = [key for key in CAUSE_KEYS if any(row.region.time.get(key, 0) > FOLD_BELOW * longest for row in rows)]
    height = look.line_in * (1.35 * len(rows) + 2.8 + style.legend_lines(causes, look))
    left_out = f"{selection.left_out} smaller regions are left out" if selection.left_out else ""
    figure = style.new_figure(report, look, height, "Where the time goes, by NVTX region", left_out)
    axes = figure.subplots()
    names, names_in = _names(rows, look)
    room_in = look.width_in - names_in - 0.25

    def letter(cause: str, width: float) -> str:
        return info(cause).letter if look.characters(width * scale / longest * 0.7 * room_in) >= 3 else ""

    ends = []  # of the axis, so that what stands beside each bar has room
    for y, row in enumerate(rows):
        parts = [(part.cause, part.ns / scale) for part in segments(row.region.time)]
        end = style.cause_bar(axes, y, parts, letter)
        text = _beside(row)
        style.write_beside(axes, end + 0.057 / room_in * (longest or scale) / scale, y, text, look)
        ends.append(end / max(1 - (style.width_in(text, look) + 0.12) / room_in, 0.2))
    style.name_rows(axes, names, ha="left")
    axes.tick_params(axis="y", pad=72 * names_in + 4)
    axes.set_xlim(0, max(*ends, 0.1, longest / scale))
    whole = "all devices' windows" if len(report.devices) > 1 else "the window"
    axes.set_xlabel(f"time in {whole if report.devices else 'the threads'}, {unit}")
    axes.grid(axis="x")
    style.legend(figure, causes, look)
    return figure


def _selection(report: Report) -> Selection:
    """What tables show, cut to what a figure holds: the threshold rises until it fits."""
    selection = select(report)
    threshold = selection.min_share
    while len(selection.rows) > MOST_ROWS and threshold <= 1:
        threshold = max(threshold * 1.15, 0.001)
        selection = select(report, threshold)
    return selection


def _names(rows: tuple[Row, ...], look: style.Look) -> tuple[list[str], float]:
    """The regions' names, indented as the tree, and how wide the widest is, in inches."""
    indent_in = style.width_in(INDENT, look)
    names = []
    for row in rows:
        room_in = max(look.width_in / 3 - indent_in * row.depth, look.width_in / 6)
        names.append(INDENT * row.depth + style.name(row.label, look, room_in))
    return names, max(style.width_in(name, look) for name in names)


def _beside(row: Row) -> str:
    """``sync, 24 %``; the host's time of a region of which the account holds none."""
    region = row.region
    time = units.percent(region.share) if region.total_ns else f"{style.duration(region.host.total_ns)} on the host"
    return time if region.verdict.bound == "unknown" else f"{row.bound}, {time}"


# What-if as bars: the window now, and as each change alone would leave it.

MOST_PANELS = A_FEW_LINES  # devices with bars of their own; of more, each is a dot
TITLE = "What the window would take without each cost, predicted by replay"
#: scenario -> the cause it removes, for its colour
CAUSE_OF = {scenario: cause for cause, scenario in SCENARIO_OF_CAUSE.items()}
NOW = "dashed"  # the dashes of the line at today's window


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
    axes.barh(0, now / scale, MOST, color=style.RULE)
    bound = BOUND_LABEL.get(verdict.bound, verdict.bound)
    _write(axes, 0, now / scale, f"{style.duration(now)}, {bound}", look, longest / scale)
    for y, item in enumerate(items, 1):
        cause = CAUSE_OF.get(item.scenario, OTHER.key)
        end = style.cause_bar(axes, y, [(cause, item.predicted_ns / scale)], lambda _, __: "")
        saved = item.saved_ns
        axes.barh(y, max(saved, 0) / scale, MOST, end, facecolor="none", edgecolor=style.RULE)
        text = f"{style.duration(item.predicted_ns)} ({sentences.change(saved, item.baseline_ns)})"
        then = verdict.bound_next or "unknown"
        if cause == verdict.bound and then not in ("unknown", "hidden"):
            text += f", then {BOUND_LABEL.get(then, then)}"
        _write(axes, y, end, text, look, longest / scale)
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
    for y, (scenario, values) in enumerate(rows):
        ends = [values[0], values[-1]]
        axes.plot(ends, [y, y], color=style.RULE, linewidth=3, zorder=1, solid_capstyle="round")
        color = style.fill(CAUSE_OF.get(scenario, OTHER.key))["facecolor"]
        axes.scatter(values, [y] * len(values), 14, color=color, edgecolors="white", linewidths=0.4, zorder=2)
    style.name_rows(axes, [_label(scenario) for scenario, _ in rows])
    axes.set_xlim(0, max(103.0, *(1.02 * values[-1] for _, values in rows)))
    axes.axvline(100, color=style.FAINT, linewidth=0.6, linestyle=NOW)
    axes.grid(axis="x")
    axes.set_xlabel(f"predicted window, % of now; a dot for each of {len(report.devices)} GPUs")
    return figure
