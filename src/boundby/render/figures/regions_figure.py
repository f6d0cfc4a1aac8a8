"""The regions as a tree of bars: how much of the time is each one's, and on what it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boundby.document.blocks import FOLD_BELOW, segments
from boundby.document.view import Row, Selection, select
from boundby.model import units
from boundby.model.causes import CAUSE_KEYS, info
from boundby.render.figures import style
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 24  # a figure is read at a glance
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
    for place, row in enumerate(rows):
        parts = [(part.cause, part.ns / scale) for part in segments(row.region.time)]
        end = style.cause_bar(axes, place, parts, letter)
        text = _beside(row)
        style.write_beside(axes, end + 0.057 / room_in * (longest or scale) / scale, place, text, look)
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
