"""What all figures share: their look, title and legend, bars of causes, units of axes, text that is only text."""

from __future__ import annotations

import functools
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from boundby.document import sentences
from boundby.document.blocks import clean, shorten
from boundby.model import units
from boundby.model.causes import info
from boundby.model.errors import UserError
from boundby.model.scale import MOST, NEARLY_ALL
from boundby.results.plot_data import PlotData
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from boundby.render.formats import Examined


class Look(Struct, frozen=True):
    """How large a figure is, in inches, and its text, in points. ``height_in`` None: what the content needs."""

    width_in: float = 7.0
    font_pt: float = 8.0
    height_in: float | None = None
    title: bool = True

    @property
    def line_in(self) -> float:
        """The height of a line of text."""
        return 1.45 * self.font_pt / 72

    def characters(self, inches: float) -> int:
        """How many characters of the usual text fit into a width."""
        return max(int(inches * 72 / (0.56 * self.font_pt)), 1)


PAPER = Look()
COLUMN = Look(width_in=3.4, font_pt=6.5)  # one column of a two-column paper
SLIDE = Look(width_in=12.5, font_pt=15.0)
LOOKS = {"paper": PAPER, "column": COLUMN, "slide": SLIDE}

LARGE_PT = 12.0
INK, FAINT, RULE = "#1d2226", "#5d666e", "#c9ced2"
HATCH_COLOR = "#ffffff80"
# Scripts that the usual font lacks, in the order they are looked for; only those that are installed are used.
FALLBACK_FONTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Zen Hei", "IPAGothic", "Noto Sans", "Unifont")
_TIME = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def matplotlib() -> Any:
    """The package. Raises UserError where it is not installed."""
    try:
        import matplotlib as package
    except ImportError as error:
        raise UserError("Figures need matplotlib, which is not installed.", "Run: pip install matplotlib") from error
    return package


@functools.cache
def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return ["DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed)]


def _settings(look: Look) -> dict[str, object]:
    return {
        "font.family": _fonts(),
        "font.size": look.font_pt,
        "text.color": INK,
        "text.parse_math": False,  # names hold dollar signs
        "axes.titlesize": look.font_pt,
        "axes.labelsize": look.font_pt,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "axes.linewidth": 0.6 * look.font_pt / 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.unicode_minus": False,
        "grid.color": RULE,
        "grid.linewidth": 0.4 * look.font_pt / 8,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": NEARLY_ALL * look.font_pt,
        "ytick.labelsize": NEARLY_ALL * look.font_pt,
        "legend.fontsize": NEARLY_ALL * look.font_pt,
        "legend.frameon": False,
        "legend.borderaxespad": 0.2,
        "hatch.linewidth": 0.5 * look.font_pt / 8,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "figure.constrained_layout.h_pad": 0.03,
        "figure.constrained_layout.w_pad": 0.03,
    }


def of_report(draw: Callable[[Report, Look], Figure]) -> Callable[..., Figure]:
    """A figure for which the report is enough; of an analysis its report is drawn."""

    @functools.wraps(draw)
    def within(found: Report | Examined, look: Look = PAPER) -> Figure:
        report = found if isinstance(found, Report) else found.report
        return _styled(look, lambda: draw(report, look))

    return within


def of_plot_data(draw: Callable[[Report, PlotData, Look], Figure]) -> Callable[..., Figure]:
    """A figure that needs the plot data too. Raises UserError where only a Report is given."""

    @functools.wraps(draw)
    def within(found: Report | Examined, look: Look = PAPER) -> Figure:
        if isinstance(found, Report):
            problem = f"A figure of {draw.__name__} needs more than a Report."
            raise UserError(problem, "Give it what boundby.examine(path) returns.")
        return _styled(look, lambda: draw(found.report, found.plot_data, look))

    return within


def _styled(look: Look, draw: Callable[[], Figure]) -> Figure:
    """What is drawn in the look's settings, which hold for it alone."""
    with matplotlib().rc_context(_settings(look)):
        figure = draw()
    if look.font_pt >= LARGE_PT:  # hatches are per inch: on a slide they would be grey
        for patch in figure.findobj(lambda artist: bool(getattr(artist, "get_hatch", str)())):
            patch.set_hatch(patch.get_hatch()[:2])  # type: ignore[attr-defined]
    return figure


@contextmanager
def save_context() -> Iterator[None]:
    """Settings that count when a figure is written: text that can be searched in a PDF, the same ids in every SVG."""
    settings = {"pdf.fonttype": 42, "svg.hashsalt": "boundby", "text.parse_math": False}
    with matplotlib().rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # shown as a box
        yield


def new_figure(report: Report, look: Look, content_in: float, title: str, *notes: str) -> Figure:
    """An empty figure of that height of content; above it a title and, fainter, what ran and notes."""
    from matplotlib.figure import Figure

    under = " · ".join(filter(None, (sentences.what_ran(report), *sentences.circumstances(report), *notes)))
    lines = _wrapped(title, look, 1.4) if look.title else []
    small = _wrapped(under, look, 0.96) if look.title else []
    head = 1.3 * look.line_in * len(lines) + look.line_in * len(small) + (0.6 * look.line_in if lines else 0.0)
    height = look.height_in or content_in + head
    figure = Figure(figsize=(look.width_in, height), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, 0, 1, max(1 - head / height, 0.1)))
    left, top = 0.06 / look.width_in, 1 - 0.3 * look.line_in / height
    for line in lines:
        figure.text(left, top, line, size=1.15 * look.font_pt, weight="bold", va="top")
        top -= 1.3 * look.line_in / height
    for line in small:
        figure.text(left, top, line, size=0.88 * look.font_pt, color=FAINT, va="top")
        top -= look.line_in / height
    return figure


def _wrapped(text: str, look: Look, scale: float) -> list[str]:
    """At most three lines that fit the figure's width."""
    lines = [""]
    for word in clean(text).split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if width_in(longer, look) * scale > look.width_in - 0.15 and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return [fitting(line.strip("· "), look, (look.width_in - 0.15) / scale) for line in lines[:3]]


def fill(cause: str) -> dict[str, Any]:
    """Colour and hatch of a cause, as arguments of matplotlib's patches."""
    color = info(cause).color
    return {"facecolor": color, "hatch": info(cause).hatch, "edgecolor": HATCH_COLOR, "linewidth": 0}


def cause_bar(
    axes: Axes, place: float, parts: Iterable[tuple[str, float]], label: Callable[[str, float], str]
) -> float:
    """Causes end to end in the row ``place``, each of its width and with its label upon it; where the bar ends."""
    left = 0.0
    for cause, width in parts:
        axes.barh(place, width, MOST, left, **fill(cause))
        if text := label(cause, width):
            write_upon(axes, left + width / 2, place, text, cause)
        left += width
    return left


def write_upon(axes: Axes, x: float, y: float, text: str, cause: str) -> None:
    """Text upon a cause's colour, set off from its hatch."""
    box = {"facecolor": info(cause).color, "edgecolor": "none", "pad": 1.2}
    axes.text(x, y, text, ha="center", va="center", color=info(cause).ink, bbox=box)


def write_beside(axes: Axes, x: float, place: float, text: str, look: Look) -> None:
    """What stands beside a bar: it was made to fit, so that the layout need not make room."""
    written = axes.text(x, place, text, va="center", color=FAINT, size=NEARLY_ALL * look.font_pt)
    written.set_in_layout(False)


def legend(figure: Figure, causes: Sequence[str], look: Look, labels: Sequence[str] = ()) -> None:
    """The causes shown, below everything, in as many columns as fit."""
    from matplotlib.patches import Patch

    texts = _legend_texts(causes, labels)
    handles = [Patch(**fill(cause)) for cause in causes]
    spacing = {"handlelength": 1.4, "handleheight": 1.0, "columnspacing": 1.2, "labelspacing": 0.35}
    figure.legend(handles, texts, loc="outside lower left", ncols=_legend_columns(texts, look), **spacing)


def legend_lines(causes: Sequence[str], look: Look, labels: Sequence[str] = ()) -> int:
    """How many lines ``legend`` takes."""
    texts = _legend_texts(causes, labels)
    return -(-len(texts) // _legend_columns(texts, look))


def _legend_texts(causes: Sequence[str], labels: Sequence[str]) -> list[str]:
    """``s  sync``: the letter and the word, where nothing else is said."""
    return [shorten(text, 60) for text in labels] or [f"{info(key).letter}  {info(key).label}" for key in causes]


def _legend_columns(texts: Sequence[str], look: Look) -> int:
    widest = max((len(text) for text in texts), default=1) + 5
    return max(min(len(texts), look.characters(look.width_in) // widest), 1)


def duration(ns: float) -> str:
    """``53.2 ms``, ``812 µs``."""
    return units.duration(ns).replace(" us", " µs")


def time_unit(longest_ns: float) -> tuple[float, str]:
    """Nanoseconds in the unit that suits an axis up to that time, and its name."""
    return next(((scale, name) for scale, name in _TIME if longest_ns >= 2 * scale), _TIME[-1])


def width_in(text: str, look: Look) -> float:
    """How wide a text of the tick labels' size is drawn, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=NEARLY_ALL * look.font_pt)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def fitting(text: str, look: Look, inches: float) -> str:
    """The text, its middle left out as far as it does not fit into that width."""
    if width_in(text, look) <= inches:
        return text
    lengths = range(1, len(text))
    fit = bisect_right(lengths, inches, key=lambda length: width_in(shorten(text, length, "…"), look))
    return shorten(text, max(fit, 1), "…")


def name(text: str, look: Look, inches: float) -> str:
    """A name made harmless and short enough for that width."""
    return fitting(clean(text), look, inches)


def name_rows(axes: Axes, labels: Sequence[str], **style: Any) -> None:
    """Rows from the top, named by tick labels, which never are formulas."""
    axes.set_yticks(range(len(labels)), list(labels), **style)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def nothing(what: str, why: str) -> UserError:
    """The error of a figure that would be empty."""
    return UserError(f"There is nothing to draw: {what}.", why)
