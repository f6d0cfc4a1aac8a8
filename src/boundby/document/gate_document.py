"""The result of a gate as a document: one line a limit, those that are broken first."""

from __future__ import annotations

from boundby.document.blocks import Document, Entries, Entry, Heading, Section, Span, section
from boundby.results.gate import GateResult, LimitResult

UNTOLD = "cannot be told"


def headline(result: GateResult) -> str:
    """``1 of 3 limits is broken.``"""
    total, broken, untold = len(result.limits), len(result.broken), len(result.untold)
    whole = {1: "The limit", 2: "Both limits"}.get(total, f"All {total} limits")
    if result.passed:
        return f"{whole} {'is' if total == 1 else 'are'} kept."
    parts = [f"{broken} of {total} limits {'is' if broken == 1 else 'are'} broken"] if broken else []
    parts += [f"{untold} {UNTOLD}" if broken else f"{untold} of {total} limits {UNTOLD}"] if untold else []
    return f"{', '.join(parts)}." if total > 1 else f"The limit {'is broken' if broken else UNTOLD}."


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
