"""Comparison -> one self-contained HTML page. Everything that a trace supplies is escaped by the template engine."""

from __future__ import annotations

from boundby.render import gate
from boundby.render.comparison import sentences
from boundby.render.html import environment
from boundby.results.comparison import Comparison
from boundby.results.gate import GateResult


def render(comparison: Comparison, result: GateResult | None = None) -> str:
    """A whole page, with a gate's result where there is one."""
    return _render(comparison, result, is_page=True)


def fragment(comparison: Comparison) -> str:
    """The same for notebooks, without the page around it."""
    return _render(comparison, None, is_page=False)


def _render(comparison: Comparison, result: GateResult | None, *, is_page: bool) -> str:
    rows, left_out = sentences.regions(comparison)
    return (
        environment()
        .get_template("comparison/page.html.j2")
        .render(
            comparison=comparison,
            tell=sentences,
            regions=rows,
            left_out=left_out,
            gate=gate,
            result=result,
            page=is_page,
        )
    )
