"""Over time: utilization, causes and NVTX ranges; the gaps; how long each instance of a region took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from boundby.document import view
from boundby.document.blocks import clean, part_name, region_name, shorten
from boundby.model import units
from boundby.model.arrays import Int64Array
from boundby.model.causes import CAUSES, info
from boundby.model.scale import (
    A_FEW_LINES,
    GLANCE,
    HABIT,
    HANDFUL,
    LABEL,
    MOST,
    NEARLY_ALL,
    ONE_BY_ONE,
    PAGE_ROWS,
    SEVERAL,
    TENFOLD,
)
from boundby.render.figures import style
from boundby.results.plot_data import (
    AccountLane,
    CauseBins,
    Float64Array,
    Gap,
    InstanceSeries,
    PlotData,
    RangeLane,
    Spread,
)
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_LANES = HANDFUL  # devices (or threads) with utilization of their own; more get a strip of causes each
MOST_STRIPS = ONE_BY_ONE
MOST_RANGE_ROWS = GLANCE
TINTS = ("#d7e0ea", "#e9eef3")  # NVTX ranges, by turns: no cause has these colours


class _Time(Struct, frozen=True):
    """The axis that all panels share: instants in ``unit`` since the window began."""

    start_ns: int
    end_ns: int
    scale: float
    unit: str

    def at(self, ns: Int64Array) -> Float64Array:
        return (ns - self.start_ns) / self.scale


@style.of_plot_data
def timeline(report: Report, plot_data: PlotData, look: style.Look) -> Figure:
    """For each device GPU and CPU utilization and the causes over the window, and the NVTX ranges below.

    Raises UserError where the trace holds neither GPU work nor threads with ranges.
    """
    lanes = [lane for lane in plot_data.lanes if lane.bins.total_ns.any()]
    if not lanes:
        raise style.nothing("the report holds no GPU work and no thread with time", "Try: boundby analyze REPORT")
    time = _Time(plot_data.start_ns, plot_data.end_ns, *style.time_unit(plot_data.end_ns - plot_data.start_ns))
    full, strips = (lanes, []) if len(lanes) <= MOST_LANES else ([], lanes[:MOST_STRIPS])
    ranges = _ranges(plot_data)
    causes = [cause.key for cause in CAUSES if any(lane.bins.cause_ns[:, cause].any() for lane in lanes)]
    lines = [*(2.6, 2.0) * len(full), 1.3 * len(strips), 1.15 * len(ranges)]
    heights = [look.line_in * count for count in lines if count]
    height = sum(heights) + look.line_in * (2.8 + style.legend_lines(causes, look)) + 0.1 * len(heights)
    accounts = view.accounts(report)
    title = str(accounts[0].headline) if len(accounts) == 1 else "Timeline"
    more = f"{len(lanes) - MOST_STRIPS} more are left out" if len(lanes) > MOST_STRIPS else ""
    figure = style.new_figure(report, look, height, title, more)
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    rest = iter(panels)
    for lane in full:
        _utilization(next(rest), lane, time, look, explained=lane is full[0])
        _causes(next(rest), lane, time)
    if strips:
        _strips(next(rest), strips, time)
    if ranges:
        _draw_ranges(next(rest), ranges, plot_data, time, look)
    for axes in panels:
        axes.tick_params(axis="x", length=0 if axes is not panels[-1] else 3)
    panels[-1].set_xlim(0, (time.end_ns - time.start_ns) / time.scale)
    panels[-1].set_xlabel(f"time since the window began, {time.unit}")
    style.legend(figure, causes, look)
    return figure


def _label(lane: AccountLane) -> str:
    return f"GPU {lane.id}" if lane.kind == "device" else f"{clean(lane.name) or 'thread'} ({lane.id})"


def _utilization(axes: Axes, lane: AccountLane, time: _Time, look: style.Look, *, explained: bool) -> None:
    edges = time.at(lane.bins.edges_ns)
    if lane.kind == "device":
        busy = 100 * np.nan_to_num(np.append(lane.gpu_utilization, lane.gpu_utilization[-1]))
        color = info("gpu_compute").color
        axes.fill_between(edges, busy, step="post", color=color, alpha=0.8, linewidth=0, zorder=3, label="GPU")
    if lane.cpu_utilization is not None:
        cpu = 100 * np.append(lane.cpu_utilization, lane.cpu_utilization[-1])
        label = "CPU (launching threads)" if lane.kind == "device" else "CPU"
        axes.step(edges, cpu, where="post", color=style.FAINT, linewidth=0.07 * look.font_pt, label=label)
    axes.set_ylim(0, 105)
    axes.set_yticks([0, 50, 100])
    name = style.name(_label(lane), look, 0.16 * look.width_in)
    axes.set_ylabel(f"{name}\nbusy, %", rotation=0, ha="right", va="center")
    axes.grid(axis="y")
    if explained and axes.get_legend_handles_labels()[1]:
        legend: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 0.98), "ncols": 2, "borderpad": 0.1}
        axes.legend(**legend, handlelength=1.2, columnspacing=1.0)


def _causes(axes: Axes, lane: AccountLane, time: _Time) -> None:
    """Exact where few stretches make up the account; else the mixture in each bin."""
    if lane.segments is not None and len(lane.segments) <= PAGE_ROWS:
        parts = lane.segments
        for cause in CAUSES:
            rows = parts.cause == cause
            spans = np.column_stack((time.at(parts.start_ns), (parts.end_ns - parts.start_ns) / time.scale))[rows]
            axes.broken_barh(spans.tolist(), (0, 100), **style.fill(cause.key))
    else:
        _stack(axes, lane.bins, time, 0, 100)
    axes.set_ylim(0, 100)
    axes.set_yticks([])
    axes.set_ylabel("causes", rotation=0, ha="right", va="center")


def _stack(axes: Axes, bins: CauseBins, time: _Time, low: float, height: float) -> None:
    """Each bin's causes stacked in proportion, over ``height`` from ``low``."""
    edges = time.at(bins.edges_ns)
    total = np.maximum(bins.total_ns, 1)
    base = np.full(len(edges), low, float)
    for cause in CAUSES:
        part = height * bins.cause_ns[:, cause] / total
        if part.any():
            top = base + np.append(part, part[-1])
            there = np.append(part > 0, False)
            there[1:] |= part > 0  # a bin is drawn from its edge to the next
            axes.fill_between(edges, base, top, where=there, step="post", **style.fill(cause.key))
            base = top


def _strips(axes: Axes, lanes: Sequence[AccountLane], time: _Time) -> None:
    for y, lane in enumerate(lanes):
        _stack(axes, lane.bins, time, y - 0.4, 0.8)
    style.name_rows(axes, [_label(lane) for lane in lanes])


def _ranges(plot_data: PlotData) -> list[RangeLane]:
    """The outermost range lanes of the threads that ranges cover most, thread by thread."""
    lanes = [lane for lane in plot_data.ranges if len(lane)]
    covered: dict[tuple[int, int | None], int] = {}
    for lane in lanes:
        key = (lane.pid, lane.tid)
        covered[key] = max(covered.get(key, 0), int(lane.covered_ns.sum()))
    threads = sorted(covered, key=lambda key: (-covered[key], key[0], -1 if key[1] is None else key[1]))
    shown: list[RangeLane] = []
    for key in threads:
        room = MOST_RANGE_ROWS - len(shown)
        own = sorted((lane for lane in lanes if (lane.pid, lane.tid) == key), key=lambda lane: lane.depth)
        shown += own[: min(room, 6)]
    return shown


def _draw_ranges(axes: Axes, lanes: Sequence[RangeLane], plot_data: PlotData, time: _Time, look: style.Look) -> None:
    inches_per_ns = 0.82 * look.width_in / (time.end_ns - time.start_ns)
    names = []
    for y, lane in enumerate(lanes):
        is_first = y == 0 or (lanes[y - 1].pid, lanes[y - 1].tid) != (lane.pid, lane.tid)
        names.append(style.name(_thread(lane), look, 0.16 * look.width_in) if is_first else "")
        low = np.clip(lane.start_ns, time.start_ns, time.end_ns)
        high = np.clip(lane.end_ns, time.start_ns, time.end_ns)
        spans = np.column_stack((time.at(low), (high - low) / time.scale))
        for turn, tint in enumerate(TINTS):
            axes.broken_barh(spans[turn :: len(TINTS)].tolist(), (y - 0.44, 0.88), facecolor=tint, edgecolor="none")
        for row in np.flatnonzero((high - low) * inches_per_ns > 0.25).tolist():
            room = look.characters(0.95 * float(high[row] - low[row]) * inches_per_ns)
            text = _name_of(lane, row, plot_data) if room >= 3 else ""
            if text:
                middle = spans[row, 0] + spans[row, 1] / 2
                size = 0.85 * look.font_pt
                axes.text(middle, y, shorten(text, room, "…"), ha="center", va="center", size=size)
        if is_first and y:
            axes.axhline(y - 0.5, color=style.RULE, linewidth=0.5)
    style.name_rows(axes, names, color=style.FAINT)


def _name_of(lane: RangeLane, row: int, plot_data: PlotData) -> str:
    """Of the one range that a piece of a lane stands for; empty where it stands for several."""
    region = int(lane.region[row])
    return part_name(plot_data.regions[region].path[-1]) if region > 0 and lane.count[row] == 1 else ""


def _thread(lane: RangeLane) -> str:
    if lane.tid is None:
        return f"process {lane.pid}"
    return clean(lane.thread) or f"thread {lane.tid}"


# The gaps: when the device idled longest, for how long, and why.

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
    figure = style.new_figure(report, look, height, _gaps_title(report, plot_data), note)
    above, bars = figure.subplots(2, 1, gridspec_kw={"height_ratios": heights})
    _over_time(above, plot_data, look)
    _gap_bars(bars, longest, plot_data, look)
    style.legend(figure, causes, look)
    return figure


def _gaps_title(report: Report, plot_data: PlotData) -> str:
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
            for x_of_bin, height in zip(x, y, strict=True):
                style.write_upon(axes, x_of_bin, height, info(cause.key).letter, cause.key)
        elif x:
            size, color = (0.42 * look.font_pt) ** 2, info(cause.key).color
            axes.scatter(x, y, size, color, marker=info(cause.key).marker, edgecolors=style.INK, linewidths=0.2)
    axes.margins(x=0.03, y=0.15)
    axes.set_xlim(0, span / scale)
    axes.set_xlabel(f"time since the window began, {unit}")
    axes.set_ylabel("length")
    axes.grid(axis="y")


def _gap_bars(axes: Axes, longest: Sequence[Gap], plot_data: PlotData, look: style.Look) -> None:
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

    for y, gap in enumerate(longest):
        parts = [(cause.key, gap.cause_ns[cause] / scale) for cause in CAUSES if gap.cause_ns[cause]]
        end = style.cause_bar(axes, y, parts, letter)
        text = _beside_gap(gap, plot_data, look, room_in * (1 - gap.length_ns / whole / 2))
        style.write_beside(axes, end + 0.01 * whole / scale, y, text, look)
    style.name_rows(axes, labels)
    axes.set_xlim(0, 2 * whole / scale)  # room for what stands beside the bars
    axes.set_xlabel(f"length of the {len(longest)} longest, {unit}" if len(longest) > 1 else f"length, {unit}")


def _beside_gap(gap: Gap, plot_data: PlotData, look: style.Look, inches: float) -> str:
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


# How long each instance of a region took: over the run, and how they spread.

USUAL, FAR = NEARLY_ALL, TENFOLD  # an axis ends where nine of ten instances do, if the longest takes ten times that
MOST_TOLD = A_FEW_LINES  # instances beyond the axis that are given with their duration
HOST, PROJECTED = style.FAINT, info("gpu_compute").color


@style.of_plot_data
def instances(report: Report, plot_data: PlotData, look: style.Look) -> Figure:
    """For the regions that take most time: each instance's duration, warm-up shaded, and a histogram.

    Grey is the host's interval, green from the first to the last GPU work launched in it. Raises UserError where no
    region has several instances.
    """
    shown = [series for series in plot_data.instances if series.count >= HABIT][:HANDFUL]
    if not shown:
        advice = "Annotate the steps of the program with NVTX ranges."
        raise style.nothing(f"no NVTX region has {HABIT} instances", advice)
    height = look.line_in * (10.5 * len(shown) + 2.2)
    figure = style.new_figure(report, look, height, "How long each instance takes")
    grid = figure.subplots(len(shown), 2, sharey="row", squeeze=False, gridspec_kw={"width_ratios": (4, 1)})
    explained: dict[str, Any] = {}
    for (axes, beside), series in zip(grid, shown, strict=True):
        scale, unit, ends = _scale(series)
        _over_run(axes, series, scale, ends[1], look)
        _spread(beside, series, scale)
        axes.set_ylim(ends[0] / scale, ends[1] / scale)
        axes.set_ylabel(unit, rotation=0, ha="right")
        axes.set_title(_instances_title(series, plot_data, look), loc="left", color=style.INK)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            explained.setdefault(label, handle)
    grid[-1][0].set_xlabel("instance")
    grid[-1][1].set_xlabel("instances")
    spacing: dict[str, Any] = {"ncols": len(explained), "columnspacing": 1.2, "handlelength": 1.4}
    figure.legend(list(explained.values()), list(explained), loc="outside lower left", **spacing)
    return figure


def _over_run(axes: Axes, series: InstanceSeries, scale: float, ceiling: float, look: style.Look) -> None:
    launched = series.projected_ns >= 0
    size = (0.4 * look.font_pt) ** 2
    marks: dict[str, Any] = {"facecolors": "none", "edgecolors": HOST, "linewidths": 0.6, "label": "host range"}
    _instance_dots(axes, series.index, series.host_ns / scale, ceiling / scale, size, "o", marks)
    if launched.any():
        marks = {"color": PROJECTED, "linewidths": 0, "label": "its GPU work"}
        _instance_dots(
            axes, series.index[launched], series.projected_ns[launched] / scale, ceiling / scale, size, "D", marks
        )
    for row in np.flatnonzero(series.host_ns > ceiling)[:MOST_TOLD].tolist():
        time = f" {style.duration(int(series.host_ns[row]))}"
        position = (series.index[row], NEARLY_ALL * ceiling / scale)
        axes.text(*position, time, va="center", color=style.FAINT, size=0.85 * look.font_pt)
    for median, color in ((series.host_median_ns, HOST), (series.projected_median_ns, PROJECTED)):
        if median is not None:
            axes.axhline(median / scale, color=color, linewidth=0.7, linestyle=(0, (4, 2)), zorder=1)
    if series.warm_up:
        axes.axvspan(-0.5, series.warm_up - 0.5, color=style.RULE, alpha=0.45, linewidth=0, label="warm-up")
    axes.set_xlim(-0.5, max(int(series.index.max()), 1) + 0.5)
    axes.grid(axis="y")
    axes.locator_params(axis="x", integer=True)


def _scale(series: InstanceSeries) -> tuple[float, str, tuple[float, float]]:
    """The axis's unit and its ends. Far outliers (warm-up, most often) must not flatten all others; and where
    instances hardly differ the axis begins near the shortest, so that what difference there is can be seen."""
    every = np.concatenate((series.host_ns, series.projected_ns[series.projected_ns >= 0])).astype(float)
    usual, shortest, longest = float(np.quantile(every, USUAL)), float(every.min()), float(every.max())
    ceiling = max(1.08 * longest if longest <= FAR * usual else 1.5 * usual, 1.0)
    floor = 0.0
    if shortest > MOST * longest:
        margin = max(0.6 * (longest - shortest), 0.01 * longest)
        floor, ceiling = shortest - margin, longest + margin
    return (*style.time_unit(ceiling), (floor, ceiling))


def _instance_dots(
    axes: Axes, index: Int64Array, value: Float64Array, ceiling: float, size: float, marker: str, marks: dict[str, Any]
) -> None:
    """Durations; what lies beyond the axis stands at its end as an arrow."""
    inside = value <= ceiling
    axes.scatter(index[inside], value[inside], size, marker=marker, **marks)
    if not inside.all():
        marks = {**marks, "label": None}
        axes.scatter(index[~inside], np.full((~inside).sum(), NEARLY_ALL * ceiling), 1.5 * size, marker="^", **marks)


def _instances_title(series: InstanceSeries, plot_data: PlotData, look: style.Look) -> str:
    path = style.name(region_name(plot_data.regions[series.region].path), look, 0.45 * look.width_in)
    thinned = f", {len(series.index)} shown" if series.thinned else ""
    title = f"{path}: {units.count(series.count)} instances{thinned}, median {style.duration(series.host_median_ns)}"
    if series.projected_median_ns is None:
        return title
    return f"{title}, GPU work {style.duration(series.projected_median_ns)}"


def _spread(axes: Axes, series: InstanceSeries, scale: float) -> None:
    outline: dict[str, Any] = {"linewidth": 0.9}
    filled: dict[str, Any] = {"fill": True, "alpha": 0.75}
    for spread, color, marks in ((series.host, HOST, outline), (series.projected, PROJECTED, filled)):
        if spread is not None and spread.counts.sum():
            counts, edges_ns = _fewer_bars(spread)
            axes.stairs(counts, edges_ns / scale, orientation="horizontal", color=color, **marks)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_color(style.RULE)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", integer=True, nbins=2)


def _fewer_bars(spread: Spread) -> tuple[Int64Array, Float64Array]:
    """The histogram's counts and edges, in no more bars than its number of instances can fill."""
    bars = len(spread.counts)
    together = max(bars // max(int(2 * math.sqrt(spread.counts.sum())), SEVERAL), 1)
    starts = np.arange(0, bars, together)
    return np.add.reduceat(spread.counts, starts), np.append(spread.edges_ns[starts], spread.edges_ns[-1])
