"""Report and plot data -> one self-contained HTML page that people send to each other.

Nothing is fetched: style and script are in the page, and its Content-Security-Policy admits only these two, by their
hashes. Names out of a trace are anybody's text: they are cleaned, escaped by the template, set as text by the script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from boundby.model.errors import OutOfBoundsError
from boundby.render.html import environment
from boundby.results.plot_data import PlotData
from boundby.results.report import Report
from boundby.trace.facts import TraceWarning

if TYPE_CHECKING:
    from boundby.render.formats import Examined

FOLDER = Path(__file__).parent
STYLES = ("assets/vendor/uPlot.min.css", "assets/page.css")
SCRIPTS = (
    "assets/vendor/uPlot.iife.min.js",
    "assets/base.js",
    "assets/regions.js",
    "assets/tables.js",
    "assets/lanes.js",
    "assets/timeline.js",
    "assets/instances.js",
)


def of(examined: Examined, min_share: float | None = None) -> str:
    """The page of an analysis; without timeline, instances and tables, and a warning that says so, where these take too
    long."""
    report, plot_data, bounds = examined.report, None, None
    try:
        plot_data, bounds = examined.plot_data, examined.next_bounds
    except OutOfBoundsError as error:
        text = f"This page has no timeline, no instances and no tables of GPU work: {error.because}."
        warnings = (TraceWarning("out-of-time", text), *report.trace.warnings)
        report = replace(report, trace=replace(report.trace, warnings=warnings))
    return render(report, plot_data, min_share=min_share, next_bounds=bounds)


def render(
    report: Report,
    plot_data: PlotData | None = None,
    *,
    min_share: float | None = None,
    next_bounds: Mapping[tuple[int, str], str | None] | None = None,
) -> str:
    """The page. without plot data (a saved result) it has no timeline, instances or tables of GPU work.

    ``min_share``: regions below this fraction of the window are left out; None: all, up to what a page can hold.
    """
    from boundby.document import view
    from boundby.render.page import content, drawings

    style, script = assets(STYLES, "\n"), assets(SCRIPTS, "\n")
    shown = content.select_rows(report, min_share)
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            **content.context(report, plot_data, next_bounds or {}),
            rows=shown.rows,
            rows_left_out=shown.left_out,
            outside=shown.outside,
            uncertain=view.uncertain([item.row for item in shown.rows]),
            report_json=drawings.report_json(report),
            data=drawings.embed(content.meanings(report), plot_data, shown),
            has_plot_data=plot_data is not None,
            style=raw(style),
            script=raw(script),
            policy=policy(style, script),
        )
    )


def policy(style: str, script: str) -> str:
    """Nothing but these two texts: no request, no other script, no form, no base address."""
    parts = (f"script-src {_hash(script)}", f"style-src {_hash(style)}", "base-uri 'none'", "form-action 'none'")
    return "; ".join(("default-src 'none'", *parts))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def assets(names: tuple[str, ...], between: str) -> str:
    """The files one after another, as they stand in the page: the hash is of exactly this text."""
    parts = [(FOLDER / name).read_text(encoding="utf-8").replace("\r\n", "\n").strip() for name in names]
    if any(name.endswith(".css") for name in names):
        parts.append(_color_rules())
    return f"\n{between.join(parts)}\n"


def _color_rules() -> str:
    """One class a cause: ``.c-sync`` fills and backs, and colours what is written on it."""
    from boundby.model.causes import COLORS

    return "\n".join(
        f".c-{key}{{--fill:{background};--ink:{letter};fill:{background};background-color:{background};color:{letter}}}"
        f"text.c-{key}{{fill:{letter}}}"
        for key, (background, letter) in COLORS.items()
    )


def raw(text: str) -> object:
    """Our own style, script and escaped data: the only texts that are not escaped again."""
    from markupsafe import Markup

    return Markup(text)  # never of a trace's text


__all__ = ["assets", "of", "policy", "raw", "render"]
