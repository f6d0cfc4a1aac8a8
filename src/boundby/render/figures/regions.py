"""The regions as a tree of bars: how much of the time is each one's, and on what it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boundby.model import units
from boundby.model.causes import CAUSE_KEYS, LETTER
from boundby.render import sentences
from boundby.render.bars import FOLD_BELOW, segments
from boundby.render.figures.account import write_upon
from boundby.render.figures.style import (
    FAINT,
    TICK,
    Examined,
    Look,
    drawn,
    duration,
    fill,
    legend,
    legend_lines,
    name,
    names_of_rows,
    new_figure,
    nothing,
    report_of,
    time_unit,
    width_in,
)
from boundby.render.selection import Row, Selection, select
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 24  # a figure is read at a glance
INDENT = "\N{NO-BREAK SPACE}" * 3


@drawn
def regions(found: Report | Examined, look: Look) -> Figure:
    """A bar for each region of the tree, long as its time in the account; the smallest are left out.

    Raises UserError where the report holds no NVTX ranges.
    """
    report = report_of(found)
    selection = _selection(report)
    rows = selection.rows
    if not rows:
        raise nothing("the report holds no NVTX ranges", "Annotate the program, or capture with --trace=cuda,nvtx.")
    longest = max(row.region.total_ns for row in rows)
    scale, unit = time_unit(longest or max(row.region.host.total_ns for row in rows))
    causes = [
        cause for cause in CAUSE_KEYS if any(row.region.time.get(cause, 0) > FOLD_BELOW * longest for row in rows)
    ]
    height = look.line_in * (1.35 * len(rows) + 2.8 + legend_lines(causes, look))
    left_out = f"{selection.left_out} smaller regions are left out" if selection.left_out else ""
    under = " · ".join(filter(None, (sentences.what_ran(report), *sentences.circumstances(report), left_out)))
    figure = new_figure(look, height, "Where the time goes, by NVTX region", under)
    axes = figure.subplots()
    indent_in = width_in(INDENT, look)
    labels = [
        INDENT * row.depth + name(row.label, look, max(look.width_in / 3 - indent_in * row.depth, look.width_in / 6))
        for row in rows
    ]
    names_in = max(width_in(label, look) for label in labels)
    room_in = look.width_in - names_in - 0.25
    told = [_told(row) for row in rows]
    for place, row in enumerate(rows):
        _bar(axes, place, row, told[place], scale, longest, look, 0.7 * room_in)
    names_of_rows(axes, labels, range(len(rows)), ha="left")
    axes.tick_params(axis="y", pad=72 * names_in + 4)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    beside = [max(1 - (width_in(text, look) + 0.12) / room_in, 0.2) for text in told]
    ends = [row.region.total_ns / room for row, room in zip(rows, beside, strict=True)]
    axes.set_xlim(0, max(*ends, 0.1 * scale, longest) / scale)
    whole = "all devices' windows" if len(report.devices) > 1 else "the window"
    axes.set_xlabel(f"time in {whole if report.devices else 'the threads'}, {unit}")
    axes.grid(axis="x")
    legend(figure, causes, look)
    return figure


def _selection(report: Report) -> Selection:
    """What tables show, cut to what a figure holds: the threshold rises until it fits."""
    selection = select(report)
    threshold = selection.min_share
    while len(selection.rows) > MOST_ROWS:
        threshold = max(threshold * 1.15, 0.001)
        selection = select(report, threshold)
        if threshold > 1:
            break
    return selection


def _told(row: Row) -> str:
    """``sync, 24 %``; the host's time of a region of which the account holds none."""
    region = row.region
    told = units.percent(region.share) if region.total_ns else f"{duration(region.host.total_ns)} on the host"
    if region.verdict.bound == "unknown":
        return told
    return f"{sentences.bound_word(region.verdict)}{'?' if region.verdict.confidence == 'low' else ''}, {told}"


def _bar(axes: Axes, place: int, row: Row, told: str, scale: float, longest: int, look: Look, room_in: float) -> None:
    left = 0.0
    for part in segments(row.region.time):
        width = part.ns / scale
        axes.barh(place, width, 0.76, left, **fill(part.cause))
        if look.characters(part.ns / longest * room_in) >= 3:
            write_upon(axes, left + width / 2, place, LETTER[part.cause], part.cause)
        left += width
    offset = 0.04 / room_in * (longest or scale) / scale
    axes.text(left + offset, place, told, va="center", color=FAINT, size=TICK * look.font_pt)
