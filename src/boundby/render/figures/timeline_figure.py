"""The timeline: utilization, causes and NVTX ranges over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from boundby.document import view
from boundby.document.blocks import clean, part_name, shorten
from boundby.model.arrays import Int64Array
from boundby.model.causes import CAUSES, info
from boundby.model.scale import GLANCE, HANDFUL, ONE_BY_ONE, PAGE_ROWS
from boundby.render.figures import style
from boundby.results.plot_data import AccountLane, CauseBins, Float64Array, PlotData, RangeLane
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
        place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 0.98), "ncols": 2, "borderpad": 0.1}
        axes.legend(**place, handlelength=1.2, columnspacing=1.0)


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
    for place, lane in enumerate(lanes):
        _stack(axes, lane.bins, time, place - 0.4, 0.8)
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
    for place, lane in enumerate(lanes):
        is_first = place == 0 or (lanes[place - 1].pid, lanes[place - 1].tid) != (lane.pid, lane.tid)
        names.append(style.name(_thread(lane), look, 0.16 * look.width_in) if is_first else "")
        low = np.clip(lane.start_ns, time.start_ns, time.end_ns)
        high = np.clip(lane.end_ns, time.start_ns, time.end_ns)
        spans = np.column_stack((time.at(low), (high - low) / time.scale))
        for turn, tint in enumerate(TINTS):
            axes.broken_barh(spans[turn :: len(TINTS)].tolist(), (place - 0.44, 0.88), facecolor=tint, edgecolor="none")
        for row in np.flatnonzero((high - low) * inches_per_ns > 0.25).tolist():
            room = look.characters(0.95 * float(high[row] - low[row]) * inches_per_ns)
            text = _name_of(lane, row, plot_data) if room >= 3 else ""
            if text:
                middle = spans[row, 0] + spans[row, 1] / 2
                size = 0.85 * look.font_pt
                axes.text(middle, place, shorten(text, room, "…"), ha="center", va="center", size=size)
        if is_first and place:
            axes.axhline(place - 0.5, color=style.RULE, linewidth=0.5)
    style.name_rows(axes, names, color=style.FAINT)


def _name_of(lane: RangeLane, row: int, plot_data: PlotData) -> str:
    """Of the one range that a piece of a lane stands for; empty where it stands for several."""
    region = int(lane.region[row])
    return part_name(plot_data.regions[region].path[-1]) if region > 0 and lane.count[row] == 1 else ""


def _thread(lane: RangeLane) -> str:
    if lane.tid is None:
        return f"process {lane.pid}"
    return clean(lane.thread) or f"thread {lane.tid}"
