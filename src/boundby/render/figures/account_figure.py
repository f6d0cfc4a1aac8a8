"""The account as bars: what every nanosecond of each device's window (or thread's time) went into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boundby.document import view
from boundby.model import units
from boundby.model.causes import CAUSE_KEYS, OTHER, info
from boundby.model.scale import TABLE
from boundby.render.figures import style
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = TABLE  # more devices or threads than this are told by number


@style.of_report
def account(report: Report, look: style.Look) -> Figure:
    """One bar for each device, or for each thread where there is no GPU work.

    Raises UserError where the report holds neither.
    """
    every = [row for row in view.accounts(report) if row.whole_ns > 0]
    rows = every[:MOST_ROWS]
    if not rows:
        raise style.nothing("the report holds no GPU work and no thread with time", "Try: boundby analyze REPORT")
    shown = {part.cause for row in rows for part in row.parts}
    causes = [cause for cause in (*CAUSE_KEYS, OTHER.key) if cause in shown]
    labels = []
    title = f"What {len(rows)} {'GPUs' if report.devices else 'threads'} spend their time on"
    if len(rows) == 1:
        title = str(rows[0].headline)
        labels = [
            f"{part.letter}  {part.label}  {units.percent(part.fraction)}, {style.duration(part.ns)}"
            for part in rows[0].parts
        ]
    if len(every) > len(rows):
        title += f" (and {len(every) - len(rows)} more)"
    height = look.line_in * (2.0 if len(rows) == 1 else 1.7 if len(rows) <= 12 else 1.25) * len(rows)
    height += look.line_in * (2.6 + style.legend_lines(causes, look, labels)) + 0.12
    figure = style.new_figure(report, look, height, title)
    axes = figure.subplots()

    def label(cause: str, width: float) -> str:
        room = look.characters(width / 100 * look.width_in * 0.78)
        letter = info(cause).letter
        return f"{letter} {units.percent(width / 100)}" if room >= 8 else letter if room >= 2 else ""

    for place, row in enumerate(rows):
        style.cause_bar(axes, place, [(part.cause, 100 * part.fraction) for part in row.parts], label)
        beside = f"{row.bound}, {style.duration(row.whole_ns)}"
        axes.text(101, place, beside, va="center", color=style.FAINT, size=style.TICK * look.font_pt)
    style.name_rows(axes, [style.name(row.name, look, look.width_in / 4) for row in rows])
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the window, %" if report.devices else "share of the thread's time, %")
    style.legend(figure, causes, look, labels)
    return figure
