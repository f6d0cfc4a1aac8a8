"""The account as bars: what every nanosecond of each device's window (or thread's time) went into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from boundby.model import units
from boundby.model.causes import CAUSE_KEYS, OTHER, info
from boundby.render import sentences
from boundby.render.bars import FOLD_BELOW, Segment, segments
from boundby.render.figures.style import (
    FAINT,
    TICK,
    Examined,
    Look,
    cause_label,
    drawn,
    duration,
    fill,
    legend,
    legend_lines,
    letter_color,
    name,
    names_of_rows,
    new_figure,
    nothing,
    report_of,
)
from boundby.results.report import Report, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 40  # more devices or threads than this are told by number


class _Row(NamedTuple):
    label: str
    time: Mapping[str, int]
    whole_ns: int
    verdict: Verdict


@drawn
def account(found: Report | Examined, look: Look) -> Figure:
    """One bar for each device, or for each thread where there is no GPU work.

    Raises UserError where the report holds neither.
    """
    report = report_of(found)
    every = _rows(report)
    rows = every[:MOST_ROWS]
    if not rows:
        raise nothing("the report holds no GPU work and no thread with time", "Try: boundby analyze REPORT")
    parts = [segments(row.time, fold_below=FOLD_BELOW) for row in rows]
    shown = {part.cause for row in parts for part in row}
    causes = [cause for cause in (*CAUSE_KEYS, OTHER.key) if cause in shown]
    labels = [_told(part) for part in parts[0]] if len(rows) == 1 else [cause_label(cause) for cause in causes]
    bar = look.line_in * (2.0 if len(rows) == 1 else 1.7 if len(rows) <= 12 else 1.25)
    below = look.line_in * (2.6 + legend_lines(causes, look, labels))
    figure = new_figure(look, bar * len(rows) + below + 0.12, *_title(report, rows, len(every) - len(rows)))
    axes = figure.subplots()
    width_in = look.width_in * 0.78
    for place, (row, pieces) in enumerate(zip(rows, parts, strict=True)):
        _bar(axes, place, pieces, look, width_in)
        told = f"{sentences.bound_word(row.verdict)}, {duration(row.whole_ns)}"
        axes.text(101, place, told, va="center", color=FAINT, size=TICK * look.font_pt)
    names_of_rows(axes, [name(row.label, look, look.width_in / 4) for row in rows], range(len(rows)))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the window, %" if report.devices else "share of the thread's time, %")
    legend(figure, causes, look, labels)
    return figure


def _rows(report: Report) -> list[_Row]:
    rows = [_Row(sentences.gpu(item), item.time, item.window_ns, item.verdict) for item in report.devices]
    rows += [_Row(sentences.thread(item), item.time, item.total_ns, item.verdict) for item in report.threads]
    return [row for row in rows if row.whole_ns > 0]


def _title(report: Report, rows: list[_Row], more: int) -> tuple[str, str]:
    if len(rows) == 1:
        title = str(sentences.headline(rows[0].verdict, rows[0].label))
    else:
        title = f"What {len(rows)} {'GPUs' if report.devices else 'threads'} spend their time on"
    if more:
        title += f" (and {more} more)"
    return title, " · ".join((sentences.what_ran(report), *sentences.circumstances(report)))


def _told(part: Segment) -> str:
    return f"{part.letter}  {part.label}  {units.percent(part.fraction)}, {duration(part.ns)}"


def _bar(axes: Axes, place: int, parts: tuple[Segment, ...], look: Look, width_in: float) -> None:
    left = 0.0
    for part in parts:
        width = 100 * part.fraction
        axes.barh(place, width, 0.72, left, **fill(part.cause))
        room = look.characters(part.fraction * width_in)
        letter = info(part.cause).letter
        text = f"{letter} {units.percent(part.fraction)}" if room >= 8 else letter if room >= 2 else ""
        if text:
            write_upon(axes, left + width / 2, place, text, part.cause)
        left += width


def write_upon(axes: Axes, x: float, y: float, text: str, cause: str) -> None:
    """Text upon a cause's colour, set off from its hatch."""
    box = {"facecolor": fill(cause)["facecolor"], "edgecolor": "none", "pad": 1.2}
    axes.text(x, y, text, ha="center", va="center", color=letter_color(cause), bbox=box)
