"""The result of a check -> terminal, GitHub step summary, JUnit XML."""

from __future__ import annotations

from xml.etree import ElementTree

from boundby.document.text import clean, file_name
from boundby.render.face import DEFAULT_WIDTH, DIM, MIN_WIDTH, ColorSystem, Face, pad
from boundby.render.markdown import code, escape, table
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


def ordered(result: GateResult) -> list[LimitResult]:
    """Those that are broken first."""
    return sorted(result.limits, key=lambda item: item.kept)


def state(result: LimitResult) -> str:
    if result.skipped:
        return "skipped"
    return "UNKNOWN" if result.untold else "kept" if result.kept else "BROKEN"


def render(
    result: GateResult,
    *,
    width: int = DEFAULT_WIDTH,
    color_system: ColorSystem | None = None,
    unicode: bool = True,
) -> str:
    """One line a limit, those that are broken first."""
    face = Face(max(width, MIN_WIDTH), color_system, unicode)
    lines = [face.heading(f"LIMITS  {headline(result)}")]
    for item in ordered(result):
        mark = pad(face.painted(state(item), "bold green" if item.kept else "bold red"), 8)
        lines += face.wrapped(f"{clean(item.limit)}: {clean(item.message)}", first=mark)
        lines += face.wrapped(clean(item.reason), indent=8, style=DIM)
    return face.text([lines])


def markdown(result: GateResult) -> str:
    """A section for a GitHub step summary or a comment."""
    mark = "✅" if result.passed else "❌"
    rows = [
        (
            f"{'✅' if item.kept else '❔' if item.untold else '❌'} {state(item)}",
            code(item.limit),
            escape(item.message) + (f"<br><sub>{escape(item.reason)}</sub>" if item.reason else ""),
        )
        for item in ordered(result)
    ]
    return f"### {mark} boundby: {headline(result)}\n\n{table(('', 'limit', 'measured'), 'lll', rows)}\n"


def junit(result: GateResult) -> str:
    """JUnit XML as CI systems read it: one test case a limit."""
    suite = ElementTree.Element(
        "testsuite",
        name="boundby",
        tests=str(len(result.limits)),
        failures=str(len(result.broken)),
        errors="0",
        skipped=str(sum(item.skipped or item.untold for item in result.limits)),
    )
    for item in result.limits:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"boundby.{file_name(result.subject)}", name=_xml(item.limit)
        )
        if item.skipped or item.untold:
            ElementTree.SubElement(case, "skipped", message=_xml(item.message))
        elif not item.kept:
            failure = ElementTree.SubElement(case, "failure", message=_xml(item.message), type="limit")
            failure.text = _xml("\n".join(filter(None, (f"{item.limit}: {item.message}", item.reason))))
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(item.message)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    text: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _xml(text: str) -> str:
    """What XML can hold: ``clean`` makes control characters and surrogates visible."""
    return "\n".join(clean(line) for line in text.split("\n"))
