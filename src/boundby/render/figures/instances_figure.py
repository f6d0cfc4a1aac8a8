"""How long each instance of a region took: over the run, and how they spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from boundby.document.blocks import region_name
from boundby.model import units
from boundby.model.arrays import Int64Array
from boundby.model.causes import info
from boundby.model.scale import A_FEW_LINES, HABIT, HANDFUL, MOST, NEARLY_ALL, SEVERAL, TENFOLD
from boundby.render.figures import style
from boundby.results.plot_data import Float64Array, InstanceSeries, PlotData, Spread
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        axes.set_title(_title(series, plot_data, look), loc="left", color=style.INK)
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
    _dots(axes, series.index, series.host_ns / scale, ceiling / scale, size, "o", marks)
    if launched.any():
        marks = {"color": PROJECTED, "linewidths": 0, "label": "its GPU work"}
        _dots(axes, series.index[launched], series.projected_ns[launched] / scale, ceiling / scale, size, "D", marks)
    for row in np.flatnonzero(series.host_ns > ceiling)[:MOST_TOLD].tolist():
        time = f" {style.duration(int(series.host_ns[row]))}"
        place = (series.index[row], NEARLY_ALL * ceiling / scale)
        axes.text(*place, time, va="center", color=style.FAINT, size=0.85 * look.font_pt)
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


def _dots(
    axes: Axes, index: Int64Array, value: Float64Array, ceiling: float, size: float, marker: str, marks: dict[str, Any]
) -> None:
    """Durations; what lies beyond the axis stands at its end as an arrow."""
    inside = value <= ceiling
    axes.scatter(index[inside], value[inside], size, marker=marker, **marks)
    if not inside.all():
        marks = {**marks, "label": None}
        axes.scatter(index[~inside], np.full((~inside).sum(), NEARLY_ALL * ceiling), 1.5 * size, marker="^", **marks)


def _title(series: InstanceSeries, plot_data: PlotData, look: style.Look) -> str:
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
