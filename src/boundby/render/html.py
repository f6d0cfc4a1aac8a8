"""Results -> HTML by templates: what notebooks show, and the page of a comparison. What a trace supplies is cleaned,
then escaped. Results know no renderer, so what notebooks show is registered with them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, cast

from boundby.model.late import expression
from boundby.model.scale import HANDFUL
from boundby.results.report import Report, Viewed

if TYPE_CHECKING:
    from jinja2 import Environment

    from boundby.document.blocks import Document
    from boundby.results.job_report import JobReport

FOLDER = Path(__file__).parent
_FIGURE = expression(r"(\d) (%|/ms|[numkMGT]?[sB]\b|min\b|h\b)")  # its unit stays beside a number


def register() -> None:
    """Give reports and comparisons their view; what draws it is imported when it is first asked for."""
    Viewed.view = staticmethod(_view)
    Viewed.face = staticmethod(_face)


def _face(result: Viewed) -> str:
    from boundby.render import screen, to_terminal

    text = screen.render(result) if isinstance(result, Report) else to_terminal.render(_document(result))
    return text.rstrip("\n")


def _view(result: Viewed) -> str:
    from boundby.render import to_html

    return fragment(result) if isinstance(result, Report) else to_html.fragment(_document(result))


def _document(result: Viewed) -> Document:
    from boundby.document import comparison_document, job_document
    from boundby.results.comparison import Comparison

    if isinstance(result, Comparison):
        return comparison_document.document(result)
    return job_document.document(cast("JobReport", result))


def fragment(report: Report) -> str:
    """One ``<div>``: what ran, a sentence and a bar per device (or thread), the regions."""
    from boundby.document import sentences, view

    return (
        environment()
        .get_template("fragment.html.j2")
        .render(
            title=sentences.what_ran(report),
            facts=sentences.circumstances(report),
            ended=sentences.end_above(report),
            accounts=view.accounts(report),
            nothing=sentences.NOTHING,
            selection=view.select(report),
            found=[item for item in sentences.shown_findings(report) if item.severity != sentences.NOTE][:HANDFUL],
            worth=sentences.worth,
            warnings=report.trace.warnings,
        )
    )


@functools.cache
def environment() -> Environment:
    """Of all pages and fragments."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    from boundby.document.blocks import clean, segments
    from boundby.model import units
    from boundby.model.causes import info
    from boundby.render.compiled import CompiledTemplates

    def tight(text: str) -> Markup:
        """The text, escaped, with every number kept beside its unit."""
        return Markup(_FIGURE.sub(r"\1&nbsp;\2", str(escape(clean(text)))))

    def lined(text: str) -> Markup:
        """The text, escaped, with its lines kept: code, or what a program wrote."""
        return Markup("\n").join(clean(line) for line in text.splitlines())

    result = Environment(
        loader=FileSystemLoader((FOLDER, FOLDER / "templates", FOLDER / "page/templates")),
        autoescape=True,
        undefined=StrictUndefined,
        bytecode_cache=CompiledTemplates(),
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    result.filters.update(
        {name: getattr(units, name) for name in ("duration", "percent", "size", "count", "bandwidth")},
        tight=tight,
        lined=lined,
        capital=lambda text: text[:1].upper() + text[1:],
        flow=lambda text: " ".join(text.split()),
        info=info,
        segments=segments,
    )
    return result
