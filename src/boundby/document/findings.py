"""What is said about findings, in every format: where the worst instances are, what could not be checked, and that
nothing was found. Plain text, no markup."""

from __future__ import annotations

from collections.abc import Sequence

from boundby.document.text import clean
from boundby.model import units
from boundby.model.scale import NEGLIGIBLE
from boundby.results.report import Example, Finding, NotChecked, Report

#: More would hide the best ones; the rest is counted, and shown where all were asked for.
MOST_FINDINGS = 10
NOTE = "note"


def shown(report: Report) -> tuple[Finding, ...]:
    """The findings that people see at once: the best ones, and every note."""
    if report.analysis.show_all:
        return report.findings
    saving = [item for item in report.findings if item.severity != NOTE][:MOST_FINDINGS]
    return (*saving, *(item for item in report.findings if item.severity == NOTE))


def saves(finding: Finding) -> str:
    """``1.10-1.30 s``; ``up to 1.30 s`` where the low end is nothing; empty where nothing is told."""
    return "" if finding.saving_ns is None else saves_range(finding.saving_ns)


def saves_range(saving_ns: tuple[int, int]) -> str:
    """A saving (low, high), as ``saves`` tells it."""
    low, high = saving_ns
    is_most = high > 0 and units.is_nothing_beside(low, high)
    return f"up to {units.duration(high)}" if is_most else units.duration_range(low, high)


def worst(examples: Sequence[Example]) -> str:
    """``worst 3.62 ms at 3.668803 s, 3.60 ms at 9.537906 s: cudaMemcpyAsync in aten::nonzero``; empty without any."""
    parts: list[str] = []
    for number, example in enumerate(examples):
        instant = f"{units.duration(example.duration_ns)} at {example.start_ns / 1e9:.6f} s"
        is_last_alike = number + 1 == len(examples) or examples[number + 1].what != example.what
        parts.append(f"{instant}: {clean(example.what)}" if is_last_alike else instant)
    return f"worst {', '.join(parts)}" if parts else ""


#: Of the window: a rule tells of what saves so much, and so the sentence about none speaks of it.
WORTH_TELLING = NEGLIGIBLE


def nothing_found(report: Report) -> str:
    """``No finding: 40 rules looked; no change they know would save 1 % of the time.``; empty where something
    was found, or nobody looked."""
    if not report.analysis.rules_checked or any(item.severity != NOTE for item in report.findings):
        return ""
    glob = report.analysis.region_glob
    where = f" in regions {clean(glob)}" if glob is not None else ""  # others may have some
    least = "0.1 %" if report.analysis.show_all else "1 %"
    rules, notes = units.plural(report.analysis.rules_checked, "rule"), len(report.findings)
    if _is_promised(report):  # First knows a change, which no rule has found
        also = f"; {units.plural(notes, 'note')}" if notes else ""
        return f"No further finding{where}: {rules} looked{also}."
    if notes:
        return f"No finding{where} worth {least} of the time ({rules} looked); {units.plural(notes, 'note')}."
    if not report.devices:
        return f"No finding{where}: {rules} looked at the host's threads; most look for what keeps a GPU waiting."
    if where:
        return f"No finding{where}; {rules} looked at the whole program."
    return f"No finding: {rules} looked; no change they know would save {least} of the time."


def _is_promised(report: Report) -> bool:
    """Whether the first response of a device is worth a word."""
    firsts = ((device.first_responses[:1], device.window_ns) for device in report.devices)
    return any(
        one.saving_ns is not None and one.saving_ns[1] >= WORTH_TELLING * ns for some, ns in firsts for one in some
    )


def count(report: Report, *, notes: bool) -> int:
    """How many notes there are, or findings that are none; shown or not."""
    return sum((item.severity == NOTE) == notes for item in report.findings)


def heading(report: Report) -> str:
    """``Findings (7), notes (2)``: of all, shown or not."""
    counts = (("findings", count(report, notes=False)), ("notes", count(report, notes=True)))
    return ", ".join(f"{word} ({number})" for word, number in counts if number).capitalize()


def left_out(report: Report) -> str:
    """How many findings are not shown, and how to see them."""
    more = len(report.findings) - len(shown(report))
    return f"{units.plural(more, 'smaller finding')} not shown; --all shows every one." if more else ""


def could_not_check(items: Sequence[NotChecked], *, every: bool = False) -> list[tuple[str, str]]:
    """(reason, rules) of what could matter (or of everything), rules of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for item in items:
        if every or item.could_matter:
            by_reason.setdefault(clean(item.reason).rstrip("."), []).append(clean(item.rule))
    return [(reason, ", ".join(sorted(rules))) for reason, rules in by_reason.items()]
