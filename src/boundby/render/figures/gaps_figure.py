"""The gaps: when the device idled longest, for how long, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from boundby.document.blocks import clean, region_name
from boundby.model import units
from boundby.model.causes import CAUSES, info
from boundby.model.scale import GLANCE, LABEL, NEARLY_ALL
from boundby.render.figures import style
from boundby.results.plot_data import Gap, PlotData
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = GLANCE


@style.of_plot_data
def gaps(report: Report, plot_data: PlotData, look: style.Look) -> Figure:
    """Above, the longest gaps over time by length and dominant cause; below, the very longest, each by its causes.

    Raises UserError where no device idled (or there is no GPU work).
    """
    if not plot_data.gaps:
        what = "no device idled in the window" if report.devices else "the report holds no GPU work, so no gaps"
        raise style.nothing(what, "Try: boundby plot REPORT --kind timeline")
    longest = sorted(plot_data.gaps, key=lambda gap: (-gap.length_ns, gap.start_ns, gap.device))[:MOST_BARS]
    causes = [cause.key for cause in CAUSES if any(gap.cause_ns[cause] for gap in plot_data.gaps)]
    heights = [look.line_in * 9, look.line_in * 1.35 * len(longest)]
    height = sum(heights) + look.line_in * (5.6 + style.legend_lines(causes, look))
    part = len(plot_data.gaps) < plot_data.gap_count
    note = f"the longest {len(plot_data.gaps)} are drawn" if part else ""
    figure = style.new_figure(report, look, height, _title(report, plot_data), note)
    above, bars = figure.subplots(2, 1, gridspec_kw={"height_ratios": heights})
    _over_time(above, plot_data, look)
    _bars(bars, longest, plot_data, look)
    style.legend(figure, causes, look)
    return figure


def _title(report: Report, plot_data: PlotData) -> str:
    idle = sum(device.gaps.total_ns for device in report.devices)
    share = idle / max(sum(device.window_ns for device in report.devices), 1)
    number = f"{units.count(plot_data.gap_count)} {'gap' if plot_data.gap_count == 1 else 'gaps'}"
    return f"{number} take {units.percent(share)} of the window: {style.duration(idle)}"


def _over_time(axes: Axes, plot_data: PlotData, look: style.Look) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    span = plot_data.end_ns - plot_data.start_ns
    scale, unit = style.time_unit(span)
    lengths = [gap.length_ns for gap in plot_data.gaps]
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(lengths) < 100 * min(lengths) else (1,), numticks=9))
    axes.yaxis.set_major_formatter(lambda value, _: style.duration(value))
    axes.yaxis.set_minor_formatter(NullFormatter())
    for cause in CAUSES:
        x = [(gap.start_ns - plot_data.start_ns) / scale for gap in plot_data.gaps if gap.cause == cause]
        y = [gap.length_ns for gap in plot_data.gaps if gap.cause == cause]
        if len(plot_data.gaps) <= LABEL:
            axes.scatter(x, y, s=0)
            for place, height in zip(x, y, strict=True):
                style.write_upon(axes, place, height, info(cause.key).letter, cause.key)
        elif x:
            size, color = (0.42 * look.font_pt) ** 2, info(cause.key).color
            axes.scatter(x, y, size, color, marker=info(cause.key).marker, edgecolors=style.INK, linewidths=0.2)
    axes.margins(x=0.03, y=0.15)
    axes.set_xlim(0, span / scale)
    axes.set_xlabel(f"time since the window began, {unit}")
    axes.set_ylabel("length")
    axes.grid(axis="y")


def _bars(axes: Axes, longest: Sequence[Gap], plot_data: PlotData, look: style.Look) -> None:
    whole = longest[0].length_ns
    scale, unit = style.time_unit(whole)
    several = len({gap.device for gap in plot_data.gaps}) > 1
    labels = [
        f"{f'GPU {gap.device}, ' if several else ''}at {style.duration(gap.start_ns - plot_data.start_ns)}"
        for gap in longest
    ]
    room_in = look.width_in - max(style.width_in(label, look) for label in labels) - 0.3

    def letter(cause: str, width: float) -> str:
        return info(cause).letter if look.characters(width * scale / whole * 0.45 * room_in) >= 2 else ""

    for place, gap in enumerate(longest):
        parts = [(cause.key, gap.cause_ns[cause] / scale) for cause in CAUSES if gap.cause_ns[cause]]
        end = style.cause_bar(axes, place, parts, letter)
        text = _beside(gap, plot_data, look, room_in * (1 - gap.length_ns / whole / 2))
        style.write_beside(axes, end + 0.01 * whole / scale, place, text, look)
    style.name_rows(axes, labels)
    axes.set_xlim(0, 2 * whole / scale)  # room for what stands beside the bars
    axes.set_xlabel(f"length of the {len(longest)} longest, {unit}" if len(longest) > 1 else f"length, {unit}")


def _beside(gap: Gap, plot_data: PlotData, look: style.Look, inches: float) -> str:
    """``1.20 ms  step/loss  cudaStreamSynchronize, before gemm``, as much of it as fits."""
    text = style.duration(gap.length_ns)
    call = clean(gap.call)
    if gap.region > 0:
        left_in = inches - style.width_in(f"{text}    {call}", look)
        path = region_name(plot_data.regions[gap.region].path)
        text += f"  {style.fitting(path, look, max(left_in, inches / 3))}"
    if call:
        left_in = inches - style.width_in(f"{text}  ", look)
        text += f"  {style.fitting(call, look, max(left_in, inches / 4))}"
    left_in = inches - style.width_in(f"{text}, before ", look)
    if gap.after and left_in > 6 * NEARLY_ALL * look.font_pt / 72:
        text += f", before {style.fitting(clean(gap.after), look, left_in)}"
    return text
