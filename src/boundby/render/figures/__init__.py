"""Figures for papers and slides, as matplotlib ``Figure`` objects: nothing global is touched, nothing is shown.

>>> import boundby
>>> found = boundby.examine("report.sqlite")                  # doctest: +SKIP
>>> boundby.figures.timeline(found).savefig("timeline.pdf")   # doctest: +SKIP

``account``, ``regions``, ``what_if`` and ``roofline`` draw a Report (``boundby.analyze``) or an Analysis
(``boundby.examine``); ``timeline``, ``gaps`` and ``instances`` need the latter. matplotlib is imported when a figure is
drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from boundby.render.figures.bars import account, regions, what_if
from boundby.render.figures.over_time import gaps, instances, timeline
from boundby.render.figures.roofline import roofline
from boundby.render.figures.style import COLUMN, LOOKS, PAPER, SLIDE, Look, save_context

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: kind, as the command line names it -> what draws it
KINDS: dict[str, Callable[..., Figure]] = {
    "account": account,
    "timeline": timeline,
    "regions": regions,
    "gaps": gaps,
    "what-if": what_if,
    "instances": instances,
    "roofline": roofline,
}
FORMATS = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
DPI = 200


def save(figure: Figure, file: IO[bytes], format_name: str, *, dpi: int = DPI) -> None:
    """Write a figure to a binary file as ``png``, ``svg`` or ``pdf``. The same figure gives the same bytes."""
    metadata: dict[str, dict[str, str | None]] = {
        "png": {"Software": "boundby"},
        "svg": {"Date": None, "Creator": "boundby"},
        "pdf": {"CreationDate": None, "Creator": "boundby"},
    }
    with save_context():
        figure.savefig(file, format=format_name, dpi=dpi, metadata=metadata[format_name])


__all__ = [
    "COLUMN",
    "FORMATS",
    "KINDS",
    "LOOKS",
    "PAPER",
    "SLIDE",
    "Look",
    "account",
    "gaps",
    "instances",
    "regions",
    "roofline",
    "save",
    "timeline",
    "what_if",
]
