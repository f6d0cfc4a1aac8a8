"""Report -> an HTML fragment for notebooks. Everything that a trace supplies is escaped by the template engine."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from boundby.model import units
from boundby.model.causes import info
from boundby.render import findings, sentences, view
from boundby.render.bars import segments
from boundby.render.text import clean
from boundby.results.report import Report

MOST_FINDINGS = 5

if TYPE_CHECKING:
    from jinja2 import Environment


def fragment(report: Report) -> str:
    """One ``<div>``: what ran, a sentence and a bar per device (or thread), the regions."""
    return (
        environment()
        .get_template("fragment.html.j2")
        .render(
            title=sentences.what_ran(report),
            facts=sentences.circumstances(report),
            accounts=view.accounts(report),
            nothing=sentences.NOTHING,
            selection=view.select(report),
            found=[item for item in findings.shown(report) if item.severity != findings.NOTE][:MOST_FINDINGS],
            first=sentences.first,
            saves=findings.saves,
            warnings=report.trace.warnings,
        )
    )


@functools.cache
def environment() -> Environment:
    """Of the fragments and of the comparison's page: text of a trace is cleaned, then escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    result = Environment(
        loader=PackageLoader("boundby.render", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    result.filters.update(duration=units.duration, percent=units.percent, info=info, segments=segments)
    return result
