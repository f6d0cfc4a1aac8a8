"""How results look in a notebook: as HTML. Results know no renderer, so the view is registered with them."""

from __future__ import annotations

from boundby.results.comparison import Comparison
from boundby.results.report import Report


def register() -> None:
    """Give reports and comparisons their view; what draws it is imported when it is first asked for."""
    Report.view = staticmethod(_report)
    Comparison.view = staticmethod(_comparison)


def _report(report: Report) -> str:
    from boundby.render.html import fragment

    return fragment(report)


def _comparison(comparison: Comparison) -> str:
    from boundby.render.comparison.html import fragment

    return fragment(comparison)
