"""How long each instance of a region took: over the run, and how they spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from boundby.model import units
from boundby.model.arrays import Int64Array
from boundby.model.causes import info
from boundby.render import sentences
from boundby.render.figures.style import (
    FAINT,
    INK,
    RULE,
    Examined,
    Look,
    drawn,
    duration,
    name,
    new_figure,
    nothing,
    plot_data_of,
    report_of,
    time_unit,
)
from boundby.render.text import region_name
from boundby.results.plot_data import Float64Array, InstanceSeries, PlotData, Spread
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_REGIONS = 4
USUAL, FAR = 0.9, 4.0  # an axis ends where nine of ten instances do, if the longest takes four times that
ALIKE = 0.7  # of the longest: where all take more, the axis need not begin at nought
ARROW = 0.94  # of the axis: where arrows to what lies beyond it stand
MOST_TOLD = 3  # instances beyond the axis that are given with their duration
FEWEST_BARS = 6
FEWEST = 3  # instances that make a distribution worth a look
HOST, PROJECTED = FAINT, info("gpu_compute").color


@drawn
def instances(found: Report | Examined, look: Look) -> Figure:
    """For the regions that take most time: each instance's duration, warm-up shaded, and a histogram.

    Grey is the host's interval, green from the first to the last GPU work launched in it. Raises UserError where no
    region has several instances.
    """
    plot_data, report = plot_data_of(found, "instances"), report_of(found)
    shown = [series for series in plot_data.instances if series.count >= FEWEST][:MOST_REGIONS]
    if not shown:
        raise nothing(f"no NVTX region has {FEWEST} instances", "Annotate the steps of the program with NVTX ranges.")
    under = " · ".join((sentences.what_ran(report), *sentences.circumstances(report)))
    figure = new_figure(look, look.line_in * (10.5 * len(shown) + 2.2), "How long each instance takes", under)
    grid = figure.subplots(len(shown), 2, sharey="row", squeeze=False, gridspec_kw={"width_ratios": (4, 1)})
    for (axes, beside), series in zip(grid, shown, strict=True):
        _over_run(axes, series, plot_data, look)
        _spread(beside, series)
    grid[-1][0].set_xlabel("instance")
    grid[-1][1].set_xlabel("instances")
    explained: dict[str, Any] = {}
    for axes, _ in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            explained.setdefault(label, handle)
    style: dict[str, Any] = {"ncols": len(explained), "columnspacing": 1.2, "handlelength": 1.4}
    figure.legend(list(explained.values()), list(explained), loc="outside lower left", **style)
    return figure


def _over_run(axes: Axes, series: InstanceSeries, plot_data: PlotData, look: Look) -> None:
    launched = series.projected_ns >= 0
    scale, unit, (floor, ceiling) = _scale(series)
    size = (0.4 * look.font_pt) ** 2
    style: dict[str, Any] = {"facecolors": "none", "edgecolors": HOST, "linewidths": 0.6, "label": "host range"}
    _dots(axes, series.index, series.host_ns / scale, ceiling / scale, size, "o", style)
    if launched.any():
        style = {"color": PROJECTED, "linewidths": 0, "label": "its GPU work"}
        _dots(axes, series.index[launched], series.projected_ns[launched] / scale, ceiling / scale, size, "D", style)
    for row in np.flatnonzero(series.host_ns > ceiling)[:MOST_TOLD].tolist():
        told = f" {duration(int(series.host_ns[row]))}"
        axes.text(series.index[row], ARROW * ceiling / scale, told, va="center", color=FAINT, size=0.85 * look.font_pt)
    for median, color in ((series.host_median_ns, HOST), (series.projected_median_ns, PROJECTED)):
        if median is not None:
            axes.axhline(median / scale, color=color, linewidth=0.7, linestyle=(0, (4, 2)), zorder=1)
    if series.warm_up:
        axes.axvspan(-0.5, series.warm_up - 0.5, color=RULE, alpha=0.45, linewidth=0, label="warm-up")
    axes.set_xlim(-0.5, max(int(series.index.max()), 1) + 0.5)
    axes.set_ylim(floor / scale, ceiling / scale)
    axes.set_ylabel(unit, rotation=0, ha="right")
    axes.grid(axis="y")
    axes.locator_params(axis="x", integer=True)
    axes.set_title(_title(series, plot_data, look), loc="left", color=INK)


def _scale(series: InstanceSeries) -> tuple[float, str, tuple[float, float]]:
    """The axis's unit and its ends. Far outliers (warm-up, most often) must not flatten all others; and where
    instances hardly differ the axis begins near the shortest, so that what difference there is can be seen."""
    every = np.concatenate((series.host_ns, series.projected_ns[series.projected_ns >= 0])).astype(float)
    usual, shortest, longest = float(np.quantile(every, USUAL)), float(every.min()), float(every.max())
    ceiling = max(1.08 * longest if longest <= FAR * usual else 1.5 * usual, 1.0)
    floor = 0.0
    if shortest > ALIKE * longest:
        margin = max(0.6 * (longest - shortest), 0.01 * longest)
        floor, ceiling = shortest - margin, longest + margin
    return (*time_unit(ceiling), (floor, ceiling))


def _dots(
    axes: Axes, index: Int64Array, value: Float64Array, ceiling: float, size: float, marker: str, style: dict[str, Any]
) -> None:
    """Durations; what lies beyond the axis stands at its end as an arrow."""
    inside = value <= ceiling
    axes.scatter(index[inside], value[inside], size, marker=marker, **style)
    if not inside.all():
        style = {**style, "label": None}
        axes.scatter(index[~inside], np.full((~inside).sum(), ARROW * ceiling), 1.5 * size, marker="^", **style)


def _title(series: InstanceSeries, plot_data: PlotData, look: Look) -> str:
    path = name(region_name(plot_data.regions[series.region].path), look, 0.45 * look.width_in)
    median = series.projected_median_ns
    told = f"median {duration(series.host_median_ns)}"
    if median is not None:
        told += f", GPU work {duration(median)}"
    thinned = f", {len(series.index)} shown" if series.thinned else ""
    return f"{path}: {units.count(series.count)} instances{thinned}, {told}"


def _spread(axes: Axes, series: InstanceSeries) -> None:
    scale, _, _ = _scale(series)
    for spread, color, filled in ((series.host, HOST, False), (series.projected, PROJECTED, True)):
        if spread is not None and spread.counts.sum():
            _histogram(axes, spread, scale, color, filled=filled)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_color(RULE)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", integer=True, nbins=2)


def _histogram(axes: Axes, spread: Spread, scale: float, color: str, *, filled: bool) -> None:
    """The histogram, in no more bars than its number of instances can fill."""
    bars = len(spread.counts)
    together = max(bars // max(int(2 * math.sqrt(spread.counts.sum())), FEWEST_BARS), 1)
    starts = np.arange(0, bars, together)
    counts = np.add.reduceat(spread.counts, starts)
    edges = np.append(spread.edges_ns[starts], spread.edges_ns[-1]) / scale
    style: dict[str, Any] = {"fill": True, "alpha": 0.75} if filled else {"linewidth": 0.9}
    axes.stairs(counts, edges, orientation="horizontal", color=color, **style)
