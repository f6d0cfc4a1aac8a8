"""Words that nobody should meet again on a screen, a page or in a document: the plain ones are in docs and DESIGN.

What a person sees is every text of the package that is no docstring, and every page and template beside it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "boundby"
DOCS = Path(__file__).parents[1] / "docs"
#: Documents that quote screens: an older one read aloud, and the tutorial's own output.
QUOTING = ("findings-read.md", "tutorial.md")
#: What was said, and cannot be understood at once.
RETIRED = (
    r"\bNot when: ",
    r"time not on record included",
    r"launched work had not started",
    r"If all of it matters, begin with",
    r"\bOS waits?\b",
    r"host waits in the OS",
    r"\buntold\b(?!_)",
    r"weighs? the same",
    r"\bwhat is told\b",
    r"\bwaits what\b",
    r"(?:the device|the GPU) idles for the host's",
    r"costs? the host its lead",
    r"\bslept on\b",
    r"none knows a change",
    r"takes? turns with kernels",
    r"exposed by waits",
    r"unless the waits",
    r"what the trace leaves open",
    r"what it would save lies elsewhere",
    r"no more of the host's own work can hide",
    r"take the interpreter out",
    r"fewer and larger operators? \(torch",
    r"off the path to the next launch",
    r"too few to tell a habit",
    r"that they found nothing means nothing",
    r"attention is written out",
    r"costs about what it did",
    r"next to nothing",
    r"odds and ends",
    r"no recorded dependency explains",
    r"all of it is in \w+: open",
    r"what they wait included",
    r"all 2 (?:GPUs|threads|ranks)",
    r"in between \(",
    r"Loading and first allocations in between",
    r"Too few or too different instances",
    r"Take out the waits",
    r"Use more threads, or fewer",
    r"Have the next batch ready",
    r"\bby what is not on record\b",
    r"set-up and warm-up by name",
    r"what removing it would save cannot",
    r"the time would be left",
    r"that of one name are the same",
    r"those of one name are the same",
    r"do not tell their ranks",
    r"is in such that",
    r"what goes to and fro each time",
    r"for the part that was done",
    r"off the path to the GPU",
    r"before what counts",
    r"out of the picture",
    r"nothing on record names",
    r"of another kind than the verdict",
    r"lies before most of the kernels",
    r"holds nothing up",
    r"beside what has a finding",
    r"who needs what when",
    r"at work (?:for as long|\d+ %[\w ]*) beside it",
    r"less than 1 % of the window is left of it",
    r"from the launch before",
    r"the number is for a",
    r"did not come to its end",
    r"\bthe run is no shorter",
    r"\bspares each",
    r"leaves out (?:\$|up to)",
)


def texts_of(module: Path) -> Iterator[str]:
    """The texts of a module that are no docstrings; of an f-string its constant parts."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))


def every_text() -> Iterator[tuple[str, str]]:
    for module in sorted(SOURCE.rglob("*.py")):
        for text in texts_of(module):
            yield module.relative_to(SOURCE).as_posix(), text
    docs = [page for page in DOCS.glob("*.md") if page.name not in QUOTING]
    for page in sorted([*SOURCE.rglob("*.md"), *SOURCE.rglob("*.j2"), *docs]):
        yield page.name, " ".join(page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("word", RETIRED)
def test_no_text_says_what_nobody_understands(word: str) -> None:
    retired = re.compile(word, re.IGNORECASE)
    said = [f"{where}: {match[0]}" for where, text in _EVERY if (match := retired.search(text))]
    assert not said


_EVERY = tuple(every_text())
