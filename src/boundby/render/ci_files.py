"""What CI systems read: findings at lines of code (SARIF 2.1.0, annotations of GitHub Actions), and the result of a
gate as JUnit XML.

A trace names files as the program saw them. They are looked for below the current folder; a finding whose file is not
there, or is there twice, has no place and is left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from msgspec import Struct

from boundby.__about__ import __version__
from boundby.document import sentences
from boundby.document.blocks import clean, file_name, in_region
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, CROWD
from boundby.results.comparison import GateResult
from boundby.results.report import Finding, Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"high": "warning", "medium": "warning", "low": "note", "note": "note"}
#: Folders that hold no code of the program.
SKIPPED = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages", "boundby-out"})
MOST_PLACES = A_FEW_LINES
_PLACE = expression(r"^(?:.*[( ])?([^ ()]+\.py):([0-9]+)\)?(?: .*)?$")


class CodePlace(Struct, frozen=True):
    """A line below the current folder."""

    file: str
    line: int


def placed(report: Report, root: Path) -> Iterator[tuple[Finding, tuple[CodePlace, ...]]]:
    """Findings that have lines of files below ``root``."""
    for finding in sentences.shown_findings(report):
        locations = tuple(dict.fromkeys(filter(None, (_found(*line, root) for line in lines_of(finding)))))
        if locations:
            yield finding, locations[:MOST_PLACES]


def lines_of(finding: Finding) -> list[tuple[str, int]]:
    """Files and lines that a finding's evidence names, those with most of it first."""
    evidence = finding.evidence
    lines, hottest = evidence.get("lines"), evidence.get("hottest_functions")
    named = [*(lines if isinstance(lines, Mapping) else ()), *(hottest if isinstance(hottest, list | tuple) else ())]
    return [(match[1], int(match[2])) for name in named if (match := _PLACE.match(str(name)))]


def message(finding: Finding) -> str:
    """What it is, what it saves, and the first thing to do."""
    inside = f" ({region.strip()})" if (region := in_region(finding.region or ())) else ""
    saves = f"; {worth}" if (worth := sentences.worth(finding)) else ""
    advice = f". {finding.advice[0]}" if finding.advice else ""
    return clean(f"{finding.title}{inside}{saves}{advice}")


def workflow_commands(report: Report, root: Path | None = None) -> str:
    """Workflow commands: GitHub shows them at the lines of a pull request."""
    rows = []
    for finding, locations in placed(report, root or Path.cwd()):
        kind = "warning" if LEVELS[finding.severity] == "warning" else "notice"
        for location in locations[:1]:
            where = f"file={_property(location.file)},line={location.line},title={_property(f'boundby {finding.rule}')}"
            rows.append(f"::{kind} {where}::{_data(message(finding))}\n")
    return "".join(rows)


def sarif(report: Report, root: Path | None = None) -> str:
    """One run of SARIF 2.1.0 with the findings that have lines."""
    located = list(placed(report, root or Path.cwd()))
    rules = sorted({finding.rule for finding, _ in located})
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "boundby",
                "version": __version__,
                "rules": [{"id": rule, "help": {"text": f"boundby explain {rule}"}} for rule in rules],
            }
        },
        "results": [
            {
                "ruleId": finding.rule,
                "ruleIndex": rules.index(finding.rule),
                "level": LEVELS[finding.severity],
                "message": {"text": message(finding)},
                "locations": [
                    {
                        "physicalLocation": {
                            "artifactLocation": {"uri": PurePosixPath(location.file).as_posix()},
                            "region": {"startLine": location.line},
                        }
                    }
                    for location in locations
                ],
                "partialFingerprints": {"boundby/v1": finding.id or finding.rule},
            }
            for finding, locations in located
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _found(file: str, line: int, root: Path) -> CodePlace | None:
    if line < 1:
        return None
    path = Path(os.path.relpath(file, root)) if Path(file).is_absolute() else Path(file)
    if ".." not in path.parts and (root / path).is_file():
        return CodePlace(path.as_posix(), line)
    alike = [name for name in _files(root).get(path.name, ()) if name.endswith(path.as_posix())]
    alike = alike or list(_files(root).get(path.name, ()))
    return CodePlace(alike[0], line) if len(alike) == 1 else None


@cache
def _files(root: Path) -> dict[str, tuple[str, ...]]:
    """Python files below a folder, by name."""
    by_name: dict[str, tuple[str, ...]] = {}
    left = CROWD
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        for name in names:
            if name.endswith(".py"):
                by_name[name] = (*by_name.get(name, ()), Path(os.path.relpath(Path(folder) / name, root)).as_posix())
        left -= len(names)
        if left < 0:
            break
    return by_name


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# The result of a gate as JUnit XML, as CI systems read it: one test case a limit.


def junit(result: GateResult) -> str:
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
