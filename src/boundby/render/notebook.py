"""How results look in a notebook: as HTML. Results know no renderer, so the view is registered with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from boundby.results.report import Report, Viewed

if TYPE_CHECKING:
    from boundby.results.comparison import Comparison


def register() -> None:
    """Give reports and comparisons their view; what draws it is imported when it is first asked for."""
    Viewed.view = staticmethod(_view)
    Viewed.face = staticmethod(_face)


def _face(result: Viewed) -> str:
    if not isinstance(result, Report):
        return repr(result)
    from boundby.render import screen

    return screen.render(result).rstrip("\n")


def _view(result: Viewed) -> str:
    if isinstance(result, Report):
        from boundby.render import html

        return html.fragment(result)
    from boundby.render.comparison import html as comparison_html

    return comparison_html.fragment(cast("Comparison", result))
