"""The result of a gate -> JUnit XML as CI systems read it: one test case a limit."""

from __future__ import annotations

from xml.etree import ElementTree

from boundby.document.blocks import clean, file_name
from boundby.results.comparison import GateResult


def render(result: GateResult) -> str:
    """The whole file."""
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
