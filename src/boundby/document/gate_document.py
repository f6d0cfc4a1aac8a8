"""The result of a gate as a document: one line a limit, those that are broken first."""

from __future__ import annotations

from boundby.document.blocks import Document, Entries, Entry, Heading, Section, Span, section
from boundby.results.gate import GateResult, LimitResult

UNTOLD = "cannot be told"


def headline(result: GateResult) -> str:
    """``1 of 3 limits broken.``"""
    total = len(result.limits)
    noun = "limit" if total == 1 else "limits"
    if result.passed:
        return f"All {total} {noun} kept." if total > 1 else "The limit is kept."
    told = [f"{len(found)} {word}" for found, word in ((result.broken, "broken"), (result.untold, UNTOLD)) if found]
    return f"{told[0].replace(' ', f' of {total} {noun} ', 1)}{', ' if told[1:] else ''}{', '.join(told[1:])}."


def limits(result: GateResult | None) -> tuple[Section, ...]:
    """The section of a gate; none where there was no gate."""
    if result is None:
        return ()
    ordered = sorted(result.limits, key=lambda item: item.kept)
    title = f"Limits: {headline(result)}"
    return section(title, Entries(tuple(map(_entry, ordered))), id="limits", short="Limits")


def told_first(result: GateResult | None) -> tuple[Heading, ...]:
    """Above all else of a document that has a gate: whether its limits are kept."""
    return () if result is None else (Heading(Span(headline(result), "good" if result.passed else "bad")),)


def document(result: GateResult) -> Document:
    """The gate alone."""
    return Document("boundby: limits", (), limits(result))


def _entry(item: LimitResult) -> Entry:
    state = "skipped" if item.skipped else "UNKNOWN" if item.untold else "kept" if item.kept else "BROKEN"
    mark = Span(state, "good" if item.kept else "bad")
    return Entry((Span(item.limit, "code"), f": {item.message}"), (mark,), (item.reason,) if item.reason else ())
