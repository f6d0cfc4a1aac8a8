"""The tutorial and the README show what their commands print."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import tutorial

from tests.support.traces import trace_path


def test_the_tutorial_shows_real_output(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = tutorial.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- output: ") == 10
    assert text.count("<!-- table: ") == 3
    assert tutorial.made(text, tmp_path) == text, "python -m benchmarks.tutorial --write"


def test_the_readme_shows_real_output(tmp_path: Path) -> None:
    text, trace = tutorial.README.read_text(encoding="utf-8"), trace_path(tutorial.README_TRACE)
    assert tutorial.screen(text, trace, tmp_path) == text, "python -m benchmarks.tutorial --write"


def test_output_stands_in_fences_of_its_own() -> None:
    inside = False
    for line in tutorial.PAGE.read_text(encoding="utf-8").splitlines():
        assert not (inside and line.startswith(("<!--", "```bash"))), line
        inside = inside != line.startswith("```")
    assert not inside
