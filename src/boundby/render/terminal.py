"""Report -> what a terminal shows: the sentence first, then the account, the regions and the evidence."""

from __future__ import annotations

import io
from typing import Literal

from rich.console import Console
from rich.text import Text

from boundby.model import units
from boundby.model.causes import LETTER, SHORT_LABEL
from boundby.render import findings, glossary, sentences, tree
from boundby.render.accounts import device_lines, thread_lines
from boundby.render.face import DIM, STRONG, Face, pad
from boundby.render.missing import not_captured
from boundby.render.text import clean, region_name
from boundby.results.report import Check, Finding, Report

DEFAULT_WIDTH = 100
MIN_WIDTH = 40
MAX_WARNINGS = 6
FINDING_INDENT = 3
SEVERITY_STYLE = {"high": "bold red", "medium": "bold yellow", "note": "dim"}

NOT_CAPTURED = "NOT CAPTURED: what cannot be told, and what nsys profile captures it with"

ColorSystem = Literal["standard", "256", "truecolor"]


def render(
    report: Report,
    *,
    width: int = DEFAULT_WIDTH,
    color_system: ColorSystem | None = None,
    unicode: bool = True,
    min_share: float | None = None,
) -> str:
    """The whole view as text, no line wider than ``width``; ``color_system=None`` means no colour."""
    face = Face(max(width, MIN_WIDTH), color_system is not None, unicode)
    sections = [
        _head(report, face),
        *device_lines(report, face),
        *thread_lines(report, face),
        tree.lines(report, face, min_share) or _no_regions(report, face),
        _findings(report, face),
        _what_if(report, face),
        _checklist(report, face),
        _not_captured(report, face),
        _warnings(report, face),
    ]
    sections.insert(-1, _words(report, [line.plain for section in sections for line in section], face))
    lines = [line for section in sections if section for line in (*section, Text())]
    return printed(lines[:-1], face, color_system)


def printed(lines: list[Text], face: Face, color_system: ColorSystem | None) -> str:
    """Lines as the stream gets them, cut at the face's width."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=face.width,
        height=100,
        force_terminal=face.color,
        color_system=color_system,
        no_color=not face.color,
        legacy_windows=False,
        force_jupyter=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    for line in lines:
        if not face.color:  # colour may end in a painted space
            line.rstrip()
        line.truncate(face.width, overflow="crop")
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    return stream.getvalue()


def _head(report: Report, face: Face) -> list[Text]:
    title = face.line((face.fit(sentences.what_ran(report), face.width), STRONG))
    facts = [face.fit(fact, face.width - 2) for fact in sentences.circumstances(report)]
    lines, current = [title], ""
    for fact in facts:
        joined = f"{current}   {fact}" if current else fact
        if current and Text(joined).cell_len > face.width:
            lines.append(face.line((current, DIM)))
            joined = fact
        current = joined
    return [*lines, face.line((current, DIM))] if current else lines


def _no_regions(report: Report, face: Face) -> list[Text]:
    if any(region.path for region in report.regions) or not (report.devices or report.threads):
        return []
    if report.trace.captured.nvtx:
        return face.wrapped("No region is left after the selection; --min-share 0 shows all.", style=DIM)
    text = "No NVTX ranges: the verdict covers the whole window. Annotate the program to see where its time goes."
    return face.wrapped(text, style=DIM)


def _findings(report: Report, face: Face) -> list[Text]:
    shown = findings.shown(report)
    savings = [findings.saves(item) for item in shown]
    width = max(len("SAVES"), *(len(saving) for saving in savings)) if shown else 0
    titles = {kind: f"{kind} ({findings.count(report, notes=kind == 'NOTES')})" for kind in ("FINDINGS", "NOTES")}
    lines: list[Text] = []
    for rank, (finding, saving) in enumerate(zip(shown, savings, strict=True), 1):
        if kind := titles.pop("NOTES" if finding.severity == findings.NOTE else "FINDINGS", ""):
            is_note = finding.severity == findings.NOTE
            head = f"{kind:<14}{'' if is_note else 'SAVES':>{width}}  EXPLAINED BY"
            lines += [*([Text()] if lines else []), face.heading(face.fit(head, face.width))]
        severity = face.fit(clean(finding.severity), 8)
        style = SEVERITY_STYLE.get(severity, STRONG) if face.color else STRONG
        line = face.line(f"{rank:>2} ", pad(Text(severity, style=style), 11), f"{saving:>{width}}  ")
        line.append_text(face.line((f"boundby explain {clean(finding.rule)}", DIM)))
        lines += [line, *_finding(finding, face, in_full=report.analysis.show_all)]
    more, healthy = findings.left_out(report), findings.nothing_found(report)
    lines += face.wrapped(more, style=DIM) if more else []
    if healthy:
        lines = [*face.wrapped(healthy), *([Text()] if lines else []), *lines]
    return lines


def _finding(finding: Finding, face: Face, *, in_full: bool) -> list[Text]:
    """Where and what; what to do; the worst of it."""
    where = f"{region_name(finding.region)}: " if finding.region else ""
    lines = face.wrapped(f"{where}{clean(finding.title)}", indent=FINDING_INDENT)
    for advice in finding.advice if in_full else finding.advice[:1]:
        lines += face.wrapped(clean(advice), indent=FINDING_INDENT, first=face.line((f"{face.arrow} ", DIM)))
    worst = findings.worst(finding.examples if in_full else finding.examples[:1])
    return lines + (face.wrapped(worst, indent=FINDING_INDENT, style=DIM) if worst else [])


def _what_if(report: Report, face: Face) -> list[Text]:
    rows = sentences.notable_scenarios(report)
    if not rows:
        return []
    labels = [face.fit(clean(label), face.width - 24) for label, _ in rows]
    width = max(len(label) for label in labels)
    lines = [face.heading("WHAT IF (replayed; estimates)")]
    for label, (_, item) in zip(labels, rows, strict=True):
        predicted = units.duration(item.predicted_ns)
        change = sentences.change(item.baseline_ns - item.predicted_ns, item.baseline_ns)
        lines.append(face.line(pad(label, width), pad(predicted, 10, "right"), pad(change, 8, "right")))
    return lines


def _words(report: Report, screen: list[str], face: Face) -> list[Text]:
    """What the causes in the bars mean, for those that are in them, and the other words that are on the screen."""
    meanings = sentences.meanings(report)
    terms = glossary.used(" ".join(" ".join(screen).split()))
    width = max(
        (len(word) for word in (*(SHORT_LABEL[cause] for cause in meanings), *(t.word for t in terms))), default=0
    )
    lines = [face.heading("WORDS")] if meanings or terms else []
    for letter, word, meaning in (
        *((LETTER[cause], SHORT_LABEL[cause], meaning) for cause, meaning in meanings.items()),
        *((" ", term.word, term.meaning) for term in terms),
    ):
        first = face.line((letter, STRONG), f" {word}".ljust(width + 3))
        lines += face.wrapped(meaning, first=first, style=DIM)
    return lines


def _checklist(report: Report, face: Face) -> list[Text]:
    subjects = [(sentences.gpu(device), device.checklist) for device in report.devices if device.checklist]
    if not subjects:
        return []
    if len(subjects) == 1:
        return [face.heading("MEASURED"), *_checks(subjects[0][1], face)]
    return _checks_by_device(subjects, face)


def _checks(checks: tuple[Check, ...], face: Face) -> list[Text]:
    name = max(len(face.safe(clean(check.name))) for check in checks)
    value = max(len(face.safe(clean(check.value))) for check in checks)
    name, value = min(name, face.width // 3), min(value, face.width // 3)
    lines: list[Text] = []
    for check in checks:
        first = face.line(
            pad(face.fit(clean(check.name), name), name + 2),
            pad(Text(face.fit(clean(check.value), value), style=STRONG), value + 2),
        )
        points_to = f"  {face.arrow} {sentences.bound_phrase(check.points_to)}" if check.points_to else ""
        lines += face.wrapped(f"{clean(check.reading)}{points_to}", first=first, style=DIM)
    return lines


def _checks_by_device(subjects: list[tuple[str, tuple[Check, ...]]], face: Face) -> list[Text]:
    """One column a device, so that they compare; as many as fit."""
    names = list(dict.fromkeys(check.name for _, checks in subjects for check in checks))
    values = {(subject, check.name): face.safe(clean(check.value)) for subject, checks in subjects for check in checks}
    label = min(max(len(face.safe(clean(name))) for name in names), face.width // 3)
    longest = max(6, *(Text(value).cell_len for value in values.values()))
    shown = subjects[: max((face.width - label) // (min(longest, 16) + 2), 1)]
    column = min(longest, (face.width - label) // len(shown) - 2)
    heads = [pad(face.fit(subject, column), column + 2, "right") for subject, _ in shown]
    lines = [face.heading(face.line(pad("MEASURED", label), *heads))]
    for name in names:
        row = [pad(face.fit(values.get((subject, name), ""), column), column + 2, "right") for subject, _ in shown]
        lines.append(face.line(pad(face.fit(clean(name), label), label), *row))
    if len(shown) < len(subjects):
        lines += face.wrapped("Other GPUs do not fit here; --device ID shows one.", style=DIM)
    return lines


def _not_captured(report: Report, face: Face) -> list[Text]:
    gaps = not_captured(report)
    lines: list[Text] = []
    if gaps:
        kind = max(len(gap.kind) for gap in gaps)
        lines += [face.heading(text) for text in face.wrapped(NOT_CAPTURED)]
        for gap in gaps:
            lines += face.wrapped(f"{gap.cost}  {face.arrow} {gap.flag}", first=pad(gap.kind, kind + 2))
    for reason, rules in findings.could_not_check(report.not_checked, every=report.analysis.show_all):
        lines += face.wrapped(f"Could not check {rules}, because {reason}.", style=DIM)
    return lines


def _warnings(report: Report, face: Face) -> list[Text]:
    lines: list[Text] = []
    for warning in report.trace.warnings[:MAX_WARNINGS]:
        mark = face.line(("! ", "bold yellow" if face.color else STRONG))
        lines += face.wrapped(f"{clean(warning.message).rstrip('.')}. [{clean(warning.code)}]", first=mark)
    more = len(report.trace.warnings) - MAX_WARNINGS
    return lines + (face.wrapped(f"{more} more warnings are in --format json.", style=DIM) if more > 0 else [])
