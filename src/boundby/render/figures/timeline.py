"""The timeline: utilization, causes and NVTX ranges over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from boundby.model.causes import CAUSE_KEYS, CAUSES, info
from boundby.render import sentences
from boundby.render.figures.style import (
    FAINT,
    RULE,
    Examined,
    Look,
    drawn,
    fill,
    legend,
    legend_lines,
    name,
    names_of_rows,
    new_figure,
    nothing,
    plot_data_of,
    report_of,
    time_unit,
)
from boundby.render.text import clean, part_name, shorten
from boundby.results.plot_data import AccountLane, CauseBins, PlotData, RangeLane
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LANES = 4  # devices (or threads) with utilization of their own; more get a strip of causes each
MOST_STRIPS = 16
MOST_RANGE_ROWS = 12
MOST_EXACT = 400  # segments drawn one by one; of more, each bin shows its mixture
TINTS = ("#d7e0ea", "#e9eef3")  # NVTX ranges, by turns: no cause has these colours


@drawn
def timeline(found: Report | Examined, look: Look) -> Figure:
    """For each device GPU and CPU utilization and the causes over the window, and the NVTX ranges below.

    Raises UserError where the trace holds neither GPU work nor threads with ranges.
    """
    plot_data, report = plot_data_of(found, "the timeline"), report_of(found)
    lanes = [lane for lane in plot_data.lanes if lane.bins.total_ns.any()]
    if not lanes:
        raise nothing("the report holds no GPU work and no thread with time", "Try: boundby analyze REPORT")
    scale, unit = time_unit(plot_data.end_ns - plot_data.start_ns)
    full, strips = (lanes, []) if len(lanes) <= MOST_LANES else ([], lanes[:MOST_STRIPS])
    ranges = _ranges(plot_data)
    causes = [key for key, cause in zip(CAUSE_KEYS, CAUSES, strict=True) if any(_has(lane, cause) for lane in lanes)]
    heights = [look.line_in * lines for _ in full for lines in (2.6, 2.0)]
    heights += [look.line_in * 1.3 * len(strips)] if strips else []
    heights += [look.line_in * 1.15 * len(ranges)] if ranges else []
    below = look.line_in * (2.8 + legend_lines(causes, look)) + 0.1 * len(heights)
    more = f"{len(lanes) - MOST_STRIPS} more are left out" if len(lanes) > MOST_STRIPS else ""
    under = " · ".join(filter(None, (sentences.what_ran(report), *sentences.circumstances(report), more)))
    figure = new_figure(look, sum(heights) + below, _title(report), under)
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    rest = list(panels)
    for lane in full:
        _utilization(rest.pop(0), lane, plot_data.start_ns, scale, look, explained=lane is full[0])
        _causes(rest.pop(0), lane, plot_data.start_ns, scale)
    if strips:
        _strips(rest.pop(0), strips, plot_data.start_ns, scale)
    if ranges:
        _draw_ranges(rest.pop(0), ranges, plot_data, scale, look)
    for axes in panels:
        axes.tick_params(axis="x", length=0 if axes is not panels[-1] else 3)
    panels[-1].set_xlim(0, (plot_data.end_ns - plot_data.start_ns) / scale)
    panels[-1].set_xlabel(f"time since the window began, {unit}")
    legend(figure, causes, look)
    return figure


def _title(report: Report) -> str:
    accounts = [(sentences.gpu(item), item.verdict) for item in report.devices]
    accounts += [(sentences.thread(item), item.verdict) for item in report.threads]
    return str(sentences.headline(accounts[0][1], accounts[0][0])) if len(accounts) == 1 else "Timeline"


def _label(lane: AccountLane) -> str:
    return f"GPU {lane.id}" if lane.kind == "device" else f"{clean(lane.name) or 'thread'} ({lane.id})"


def _has(lane: AccountLane, cause: int) -> bool:
    return bool(lane.bins.cause_ns[:, cause].any())


def _utilization(axes: Axes, lane: AccountLane, start_ns: int, scale: float, look: Look, *, explained: bool) -> None:
    time = (lane.bins.edges_ns - start_ns) / scale
    label = name(_label(lane), look, 0.16 * look.width_in)
    if lane.kind == "device":
        color = info("gpu_compute").color
        busy = 100 * np.nan_to_num(lane.gpu_utilization)
        axes.fill_between(
            time, np.append(busy, busy[-1]), step="post", color=color, alpha=0.8, linewidth=0, zorder=3, label="GPU"
        )
    cpu = lane.cpu_utilization
    if cpu is not None:
        shown = 100 * np.append(cpu, cpu[-1])
        label_of_cpu = "CPU (launching threads)" if lane.kind == "device" else "CPU"
        axes.step(time, shown, where="post", color=FAINT, linewidth=0.07 * look.font_pt, label=label_of_cpu)
    axes.set_ylim(0, 105)
    axes.set_yticks([0, 50, 100])
    axes.set_ylabel(f"{label}\nbusy, %", rotation=0, ha="right", va="center")
    axes.grid(axis="y")
    if explained and axes.get_legend_handles_labels()[1]:
        place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 0.98), "ncols": 2, "borderpad": 0.1}
        axes.legend(**place, handlelength=1.2, columnspacing=1.0)


def _causes(axes: Axes, lane: AccountLane, start_ns: int, scale: float) -> None:
    """Exact where few stretches make up the account; else the mixture in each bin."""
    if lane.segments is not None and len(lane.segments) <= MOST_EXACT:
        parts = lane.segments
        for cause in CAUSES:
            rows = np.flatnonzero(parts.cause == cause)
            starts = (parts.start_ns[rows] - start_ns) / scale
            spans = (parts.end_ns[rows] - parts.start_ns[rows]) / scale
            axes.broken_barh(list(zip(starts, spans, strict=True)), (0, 100), **fill(cause.key))
    else:
        _stack(axes, lane.bins, start_ns, scale, 0, 100)
    axes.set_ylim(0, 100)
    axes.set_yticks([])
    axes.set_ylabel("causes", rotation=0, ha="right", va="center")


def _stack(axes: Axes, bins: CauseBins, start_ns: int, scale: float, low: float, height: float) -> None:
    """Each bin's causes stacked in proportion, over ``height`` from ``low``."""
    time = (bins.edges_ns - start_ns) / scale
    total = np.maximum(bins.total_ns, 1)
    base = np.full(len(time), low, float)
    for cause in CAUSES:
        part = height * bins.cause_ns[:, cause] / total
        if part.any():
            top = base + np.append(part, part[-1])
            there = np.append(part > 0, False)
            there[1:] |= part > 0  # a bin is drawn from its edge to the next
            axes.fill_between(time, base, top, where=there, step="post", **fill(cause.key))
            base = top


def _strips(axes: Axes, lanes: Sequence[AccountLane], start_ns: int, scale: float) -> None:
    for place, lane in enumerate(lanes):
        _stack(axes, lane.bins, start_ns, scale, place + 0.1, 0.8)
    names_of_rows(axes, [_label(lane) for lane in lanes], [place + 0.5 for place in range(len(lanes))])
    axes.set_ylim(len(lanes), 0)


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


def _draw_ranges(axes: Axes, lanes: Sequence[RangeLane], plot_data: PlotData, scale: float, look: Look) -> None:
    width_in = 0.82 * look.width_in
    whole = plot_data.end_ns - plot_data.start_ns
    labels = []
    for place, lane in enumerate(lanes):
        first = place == 0 or (lanes[place - 1].pid, lanes[place - 1].tid) != (lane.pid, lane.tid)
        labels.append(name(_thread(lane), look, 0.16 * look.width_in) if first else "")
        low = np.clip(lane.start_ns, plot_data.start_ns, plot_data.end_ns)
        high = np.clip(lane.end_ns, plot_data.start_ns, plot_data.end_ns)
        spans = np.column_stack(((low - plot_data.start_ns) / scale, (high - low) / scale))
        for turn in (0, 1):
            axes.broken_barh(spans[turn::2].tolist(), (place + 0.06, 0.88), facecolor=TINTS[turn], edgecolor="none")
        for row in np.flatnonzero((high - low) / whole * width_in > 0.25).tolist():
            region = int(lane.region[row])
            room = look.characters(0.95 * float(high[row] - low[row]) / whole * width_in)
            text = part_name(plot_data.regions[region].path[-1]) if region > 0 and lane.count[row] == 1 else ""
            if text and room >= 3:
                middle = (low[row] + high[row]) / 2 - plot_data.start_ns
                size = 0.85 * look.font_pt
                axes.text(middle / scale, place + 0.5, shorten(text, room, "…"), ha="center", va="center", size=size)
        if first and place:
            axes.axhline(place, color=RULE, linewidth=0.5)
    names_of_rows(axes, labels, [place + 0.5 for place in range(len(lanes))], color=FAINT)
    axes.set_ylim(len(lanes), 0)


def _thread(lane: RangeLane) -> str:
    if lane.tid is None:
        return f"process {lane.pid}"
    return clean(lane.thread) or f"thread {lane.tid}"
