"""The gaps: when the device idled longest, for how long, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from boundby.model import units
from boundby.model.causes import CAUSE_KEYS, CAUSES, HATCH, LETTER, info
from boundby.render import sentences
from boundby.render.figures.account import write_upon
from boundby.render.figures.style import (
    FAINT,
    INK,
    TICK,
    Examined,
    Look,
    drawn,
    duration,
    fill,
    fitting,
    legend,
    legend_lines,
    names_of_rows,
    new_figure,
    nothing,
    plot_data_of,
    report_of,
    time_unit,
    width_in,
)
from boundby.render.text import clean, region_name
from boundby.results.plot_data import Gap, PlotData
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 12
WIDER = 2.0  # than the longest bar is the axis: room for what stands beside it


@drawn
def gaps(found: Report | Examined, look: Look) -> Figure:
    """Above, the longest gaps over time by length and dominant cause; below, the very longest, each by its causes.

    Raises UserError where no device idled (or there is no GPU work).
    """
    plot_data, report = plot_data_of(found, "gaps"), report_of(found)
    if not plot_data.gaps:
        what = "no device idled in the window" if report.devices else "the report holds no GPU work, so no gaps"
        raise nothing(what, "Try: boundby plot REPORT --kind timeline")
    longest = sorted(plot_data.gaps, key=lambda gap: (gap.start_ns - gap.end_ns, gap.start_ns, gap.device))[:MOST_BARS]
    causes = [
        key for key, cause in zip(CAUSE_KEYS, CAUSES, strict=True) if any(g.cause_ns[cause] for g in plot_data.gaps)
    ]
    tall = look.line_in * 9
    heights = [tall, look.line_in * 1.35 * len(longest)]
    below = look.line_in * (5.6 + legend_lines(causes, look))
    figure = new_figure(look, sum(heights) + below, _title(report, plot_data), _under(report, plot_data))
    above, bars = figure.subplots(2, 1, gridspec_kw={"height_ratios": heights})
    _over_time(above, plot_data, look)
    _bars(bars, longest, plot_data, look)
    legend(figure, causes, look)
    return figure


def _title(report: Report, plot_data: PlotData) -> str:
    idle = sum(device.gaps.total_ns for device in report.devices)
    share = idle / max(sum(device.window_ns for device in report.devices), 1)
    word = "gap" if plot_data.gap_count == 1 else "gaps"
    return f"{units.count(plot_data.gap_count)} {word} take {units.percent(share)} of the window: {duration(idle)}"


def _under(report: Report, plot_data: PlotData) -> str:
    shown = ""
    if len(plot_data.gaps) < plot_data.gap_count:
        shown = f"the longest {len(plot_data.gaps)} are drawn"
    return " · ".join(filter(None, (sentences.what_ran(report), *sentences.circumstances(report), shown)))


def _over_time(axes: Axes, plot_data: PlotData, look: Look) -> None:
    scale, unit = time_unit(plot_data.end_ns - plot_data.start_ns)
    from matplotlib.ticker import LogLocator, NullFormatter

    lengths = [gap.end_ns - gap.start_ns for gap in plot_data.gaps]
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(lengths) < 100 * min(lengths) else (1,), numticks=9))
    axes.yaxis.set_major_formatter(lambda value, _: duration(value))
    axes.yaxis.set_minor_formatter(NullFormatter())
    for cause in CAUSES:
        mine = [gap for gap in plot_data.gaps if gap.cause == cause]
        if not mine:
            continue
        x = [(gap.start_ns - plot_data.start_ns) / scale for gap in mine]
        y = [gap.end_ns - gap.start_ns for gap in mine]
        if len(plot_data.gaps) <= 60:  # letters, while they do not hide each other
            for place, height in zip(x, y, strict=True):
                write_upon(axes, place, height, LETTER[cause.key], cause.key)
            axes.scatter(x, y, s=0)
        else:
            marker = _MARKERS[list(HATCH).index(cause.key) if cause.key in HATCH else -1]
            color = info(cause.key).color
            axes.scatter(x, y, (0.42 * look.font_pt) ** 2, color=color, marker=marker, edgecolors=INK, linewidths=0.2)
    axes.margins(x=0.03, y=0.15)
    axes.set_xlim(0, (plot_data.end_ns - plot_data.start_ns) / scale)
    axes.set_xlabel(f"time since the window began, {unit}")
    axes.set_ylabel("length")
    axes.grid(axis="y")


_MARKERS = ("^", "v", "D", "s", "P", "X", "<", ">", "o")


def _bars(axes: Axes, longest: Sequence[Gap], plot_data: PlotData, look: Look) -> None:
    whole = longest[0].end_ns - longest[0].start_ns
    scale, unit = time_unit(whole)
    several = len({gap.device for gap in plot_data.gaps}) > 1
    labels = [
        f"{f'GPU {gap.device}, ' if several else ''}at {duration(gap.start_ns - plot_data.start_ns)}" for gap in longest
    ]
    room_in = look.width_in - max(width_in(label, look) for label in labels) - 0.3
    for place, gap in enumerate(longest):
        left = 0.0
        for cause in CAUSES:
            width = gap.cause_ns[cause] / scale
            if width > 0:
                axes.barh(place, width, 0.74, left, **fill(cause.key))
                if look.characters(gap.cause_ns[cause] / whole * 0.45 * room_in) >= 2:
                    write_upon(axes, left + width / 2, place, LETTER[cause.key], cause.key)
                left += width
        free_in = room_in * (1 - (gap.end_ns - gap.start_ns) / whole / WIDER)
        told = _told(gap, plot_data, look, free_in)
        beside = axes.text(left + 0.01 * whole / scale, place, told, va="center", color=FAINT, size=TICK * look.font_pt)
        beside.set_in_layout(False)  # it was made to fit
    names_of_rows(axes, labels, range(len(longest)))
    axes.set_ylim(len(longest) - 0.5, -0.5)
    axes.set_xlim(0, WIDER * whole / scale)
    axes.set_xlabel(f"length of the {len(longest)} longest, {unit}" if len(longest) > 1 else f"length, {unit}")


def _told(gap: Gap, plot_data: PlotData, look: Look, inches: float) -> str:
    """``1.20 ms  step/loss  cudaStreamSynchronize, before gemm``, as much of it as fits."""
    text = duration(gap.end_ns - gap.start_ns)
    call = clean(gap.call)
    if gap.region > 0:
        left_in = inches - width_in(f"{text}    {call}", look)
        text += f"  {fitting(region_name(plot_data.regions[gap.region].path), look, max(left_in, inches / 3))}"
    if call:
        text += f"  {fitting(call, look, max(inches - width_in(text + '  ', look), inches / 4))}"
    left_in = inches - width_in(f"{text}, before ", look)
    if gap.after and left_in > 6 * TICK * look.font_pt / 72:
        text += f", before {fitting(clean(gap.after), look, left_in)}"
    return text
