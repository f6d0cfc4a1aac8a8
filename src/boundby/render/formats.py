"""The formats of a report and the kinds of figures, one row each: what people call them, and what makes them.

Each is one module; the command line knows it by its row, and imports it only when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from msgspec import Struct

from boundby.model.errors import OutputError

if TYPE_CHECKING:
    from boundby.attribution.timeline import Timeline
    from boundby.document.blocks import Document
    from boundby.render.face import ColorSystem
    from boundby.results.plot_data import PlotData
    from boundby.results.report import Report


class Examined(Protocol):
    """What ``boundby.examine`` gives, as far as formats ask. All but the report is worked out when it is asked for."""

    @property
    def report(self) -> Report: ...

    @property
    def timeline(self) -> Timeline: ...

    @property
    def plot_data(self) -> PlotData: ...

    @property
    def next_bounds(self) -> Mapping[tuple[int, str], str | None]: ...


class Surface(Struct, frozen=True):
    """Width in cells, colours (None: none) and whether non-ASCII glyphs come through."""

    width: int
    color_system: ColorSystem | None
    unicode: bool
    full: bool = False  # everything, else one screen
    top: int | None = None  # rows of each table on the screen; None: what fits
    sort: str = "time"  # what regions go by there


class Format(Struct, frozen=True):
    """One format. It has ``render`` if it is text, ``write`` if it is binary, which only files can hold."""

    name: str  # for --format
    suffixes: tuple[str, ...]  # of files; the first for those that boundby names
    render: Callable[[Examined, Surface, float | None], str] | None = None  # min_share: None: the format's own choice
    write: Callable[[IO[bytes], Examined], None] | None = None
    render_many: Callable[[Sequence[Report]], str] | None = None  # where several are more than one after the other
    between: str | None = "\n\n"  # stands between several on standard output; None: it holds one
    after_profile: bool = True  # a look at a run that was just recorded; else it is for files
    check: Callable[[], object] | None = None  # raises UserError where a package is missing, before the hard work
    hint: str = ""  # what to do with the file


def drawn(document: Document, kind: str, surface: Surface) -> str:
    """A document as ``terminal``, ``markdown`` or ``html``."""
    if kind == "html":
        from boundby.render import to_html

        return to_html.page(document)
    if kind == "markdown":
        from boundby.render import to_markdown

        return to_markdown.render(document)
    from boundby.render import to_terminal

    return to_terminal.render(document, width=surface.width, color_system=surface.color_system, unicode=surface.unicode)


def _terminal(examined: Examined, surface: Surface, min_share: float | None) -> str:
    from boundby.render import screen, terminal

    look = {"width": surface.width, "color_system": surface.color_system, "unicode": surface.unicode}
    if surface.full:
        return terminal.render(examined.report, **look, min_share=min_share)  # type: ignore[arg-type]
    return screen.render(examined.report, **look, options=screen.ScreenOptions(min_share, surface.top, surface.sort))  # type: ignore[arg-type]


def _html(examined: Examined, _: Surface, min_share: float | None) -> str:
    from boundby.render import page

    return page.of(examined, min_share)


def _markdown(examined: Examined, _: Surface, min_share: float | None) -> str:
    from boundby.render import markdown

    return markdown.render(examined.report, min_share=min_share)


def _json(examined: Examined, _: Surface, __: float | None) -> str:
    from boundby.results import saved

    return saved.render(examined.report)


def _json_array(reports: Sequence[Report]) -> str:
    from boundby.results import saved

    return saved.render_many(reports)


def _brief(examined: Examined, _: Surface, __: float | None) -> str:
    from boundby.render import brief

    return brief.render(examined.report)


def _items(examined: Examined, _: Surface, __: float | None) -> str:
    from boundby.render import brief

    return brief.items(examined.report)


def _sarif(examined: Examined, _: Surface, __: float | None) -> str:
    from boundby.render import ci_files

    return ci_files.sarif(examined.report)


def _annotations(examined: Examined, _: Surface, __: float | None) -> str:
    from boundby.render import ci_files

    return ci_files.workflow_commands(examined.report)


def _csv(examined: Examined, _: Surface, __: float | None, table: str = "regions") -> str:
    from boundby.render import store

    return store.csv_of(examined.report, table)


def _perfetto(file: IO[bytes], examined: Examined) -> None:
    from boundby.render import perfetto

    perfetto.write(file, examined.report, examined.timeline, examined.plot_data)


def _perfetto_package() -> object:
    from boundby.render.perfetto import protos

    return protos()


_ROWS = (
    Format("terminal", (".txt",), _terminal),
    Format("html", (".html", ".htm"), _html, between=None, after_profile=False),
    Format("markdown", (".md", ".markdown"), _markdown, between="\n---\n\n"),
    Format("json", (".json",), _json, render_many=_json_array),
    Format("brief", (".brief.json",), _brief, between="\n"),
    Format("items", (".items.json",), _items, between=None, after_profile=False),
    Format("sarif", (".sarif", ".sarif.json"), _sarif, between=None, after_profile=False),
    Format("github", (".github.txt",), _annotations, between="", after_profile=False),
    Format("csv", (".csv",), _csv, between=None),
    Format("kernels-csv", (".kernels.csv",), partial(_csv, table="kernels"), between=None),
    Format("operators-csv", (".operators.csv",), partial(_csv, table="operators"), between=None),
    Format("collectives-csv", (".collectives.csv",), partial(_csv, table="collectives"), between=None),
    Format("steps-csv", (".steps.csv",), partial(_csv, table="steps"), between=None),
    Format("counters-csv", (".counters.csv",), partial(_csv, table="counters"), between=None),
    Format("calls-csv", (".calls.csv",), partial(_csv, table="calls"), between=None),
    Format(
        "perfetto",
        (".pftrace", ".perfetto-trace"),
        write=_perfetto,
        after_profile=False,
        check=_perfetto_package,
        hint="open it at https://ui.perfetto.dev",
    ),
)
FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}
#: suffix -> the format's name
BY_SUFFIX: dict[str, str] = {suffix: row.name for row in _ROWS for suffix in row.suffixes}


class FigureKind(Struct, frozen=True):
    """One kind of figure. `boundby.render.figures.KINDS` has what draws it."""

    name: str  # for --kind
    shows: str
    of_a_report: bool = False  # the Report alone is enough, a saved one too


FIGURES: tuple[FigureKind, ...] = (
    FigureKind("account", "what each device's time went into", of_a_report=True),
    FigureKind("timeline", "utilization, causes and NVTX ranges over time"),
    FigureKind("regions", "the tree of NVTX regions, with the causes of each", of_a_report=True),
    FigureKind("gaps", "when the GPU idled longest, and why"),
    FigureKind("what-if", "how long the window is, and how long without each cost", of_a_report=True),
    FigureKind("instances", "how long each instance of a region took"),
    FigureKind("roofline", "work of each region against the device's peaks", of_a_report=True),
)
FIGURES_OF_A_REPORT: tuple[str, ...] = tuple(kind.name for kind in FIGURES if kind.of_a_report)


def format_of(path: Path) -> str:
    """The format that a file's suffix asks for. Raises OutputError where it asks for none."""
    try:
        return BY_SUFFIX.get("".join(path.suffixes[-2:]).lower()) or BY_SUFFIX[path.suffix.lower()]
    except KeyError:
        raise OutputError(
            f"The format of {path} cannot be told from its name.",
            f"Name it with one of {' '.join(sorted(BY_SUFFIX))}, or give --format.",
        ) from None
