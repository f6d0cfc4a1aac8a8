"""Paths, modules and names that the documents speak of exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/boundby/rules/builtin/*.md")))
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?<![\w./<-])(?:[\w.-]+/)+(?:[\w.-]+\.(?:py|c|toml|yml|md))?(?![\w/*])")
_ROOM_FILE = re.compile(r"^[a-z_]+\.(?:py|c)$")
_NAME = re.compile(r"\bboundby(?:\.[A-Za-z_]\w*)+")
_COMMAND = re.compile(r"python -m ((?:boundby|benchmarks|tests)(?:\.\w+)+)")
# What a reader is to put a name into, and what a run leaves.
_PLACEHOLDERS = ("RULE_ID", "RULE-ID", "boundby-out/")
# What the changes say is gone.
_GONE = {"boundby.diagnose"}


def _is_there(path: str, document: Path) -> bool:
    """From the root, in the package or somewhere in it, or beside the document."""
    package = ROOT / "src/boundby"
    return any((place / path).exists() for place in (ROOT, package, document.parent)) or any(package.rglob(path))


def _is_name(dotted: str) -> bool:
    """Whether this is a module, or an attribute of one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name is not None and not error.name.startswith("boundby"):  # a host that is not installed
                return True
            continue
        for name in parts[length:]:
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_is_named_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    paths = {path for code in _CODE.findall(text) for path in _PATH.findall(code)}
    missing = {path for path in paths if not _is_there(path, document)}
    assert {path for path in missing if not any(mark in path for mark in _PLACEHOLDERS)} == set()
    assert {name for name in {*_NAME.findall(text)} - _GONE if not _is_name(name)} == set()
    # Found, not imported: some need what is not installed.
    assert {name for name in _COMMAND.findall(text) if importlib.util.find_spec(name) is None} == set()


def test_files_that_architecture_names_without_their_room_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    files = {path.name for folder in ("src/boundby", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.*")}
    assert {code for code in _CODE.findall(text) if _ROOM_FILE.match(code)} <= files
