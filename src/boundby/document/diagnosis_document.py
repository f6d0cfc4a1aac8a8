"""The diagnosis of a report, told as the pattern language does: which pattern, in which context, by which signs, which
responses, and what then; for its devices, and for the regions that matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boundby.document import pattern_cards, report_document, sentences, view
from boundby.document.blocks import (
    Bar,
    Bars,
    Column,
    Document,
    Facts,
    Heading,
    Legend,
    Paragraph,
    Section,
    Span,
    Table,
    Verbatim,
    region_name,
    section,
)
from boundby.document.pattern_cards import MOST_DEVICES
from boundby.document.view import ShownAccount
from boundby.model import units
from boundby.results.report import Report

_REGIONS = (
    Column("region", lambda row: Span(region_name(row.region.path), "code")),
    Column("share", lambda row: units.percent(row.share), right=True),
    Column("pattern", lambda row: row.bound),
    Column("up to", lambda row: row.saves, right=True),
    Column("because", lambda row: row.because, prose=True),
)


def document(report: Report) -> Document:
    """All of it: the verdict, each pattern with its parts, where it is, what each cost is worth, what is missing."""
    accounts = view.accounts(report)
    named = {region.path for region in pattern_cards.regions(report)}
    rows = tuple(row for row in view.select(report, 0.0).rows if row.region.path in named)
    every = report_document.sections(report)
    return Document(
        " ".join(str(headline) for headline, _ in view.summaries(accounts)) or sentences.NOTHING,
        tuple(_opening(report, accounts)),
        (
            *(Section(part.title, part.blocks, part.id, part.short) for part in pattern_cards.sections(report)),
            *section("Where", Table(_REGIONS, rows), id="where"),
            *(part for part in every if part.id in ("what-if", "not-captured")),
        ),
    )


def _opening(report: Report, accounts: Sequence[ShownAccount]) -> Iterator[object]:
    """The verdict, why, what was analysed, and the account."""
    ended = sentences.end_above(report)
    if ended is not None:
        yield Heading(str(ended.headline))
        yield Verbatim("\n".join(ended.lines), "The program's own words")
        yield from map(Paragraph, ended.told)
    if not accounts:
        yield Heading(sentences.NOTHING)
    for headline, sure in view.summaries(accounts):
        yield Heading(str(headline))
        yield Paragraph(f"{sure.capitalize()}." if sure and len(accounts) > 1 else "", "faint")
    yield Facts((Span(sentences.what_ran(report), "code"), *sentences.circumstances(report)))
    for account in accounts[:MOST_DEVICES]:
        name = f"{account.name}: " if len(accounts) > 1 else ""
        for text in (*account.told, *account.doubts):
            yield Paragraph(f"{name}{text}")
    yield Bars(tuple(Bar(account.parts, word=account.name) for account in accounts[:MOST_DEVICES] if account.parts))
    yield Legend(tuple(dict.fromkeys(part.cause for account in accounts for part in account.parts)))
    yield from report_document.warnings(report)
