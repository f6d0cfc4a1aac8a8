"""docs/rules is written from the rules' own texts: ``BOUNDBY_UPDATE_GOLDEN=1`` rewrites it."""

from __future__ import annotations

import os
from pathlib import Path

from boundby.rules.builtin import builtin
from boundby.rules.pages import index, page

FOLDER = Path(__file__).parents[3] / "docs" / "rules"


def test_the_pages_are_up_to_date() -> None:
    wanted = {f"{rule.id}.md": page(rule) for rule in builtin()} | {"index.md": index(builtin())}
    if os.environ.get("BOUNDBY_UPDATE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        for file in FOLDER.glob("*.md"):
            if file.name not in wanted:
                file.unlink()
        for name, text in wanted.items():
            (FOLDER / name).write_text(text, encoding="utf-8")
    found = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.md")}
    assert set(found) == set(wanted), "BOUNDBY_UPDATE_GOLDEN=1 rewrites the pages"
    stale = sorted(name for name in wanted if found[name] != wanted[name])
    assert not stale, "BOUNDBY_UPDATE_GOLDEN=1 rewrites the pages"
