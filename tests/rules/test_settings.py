"""``[tool.boundby]`` in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundby.model.errors import InputError
from boundby.rules.settings import read_config


def write(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def test_the_nearest_file_above_counts(tmp_path: Path) -> None:
    write(tmp_path, "[tool.boundby]\ndisable = ['a']\nthresholds.some-rule.size = 3\nthresholds.b.c = 0.5")
    below = tmp_path / "x" / "y"
    below.mkdir(parents=True)
    assert read_config(below) == {"disable": ["a"], "thresholds": {"some-rule": {"size": 3}, "b": {"c": 0.5}}}
    write(below, "[tool.other]\nx = 1")
    assert read_config(below) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.boundby]\ndisabled = []", "has no key 'disabled'"),
        ("[tool.boundby]\ndisable = 'a'", "is not a list of rules"),
        ("[tool.boundby]\ndisable = [1]", "is not a list of rules"),
        ("[tool.boundby]\nthresholds = 3", "is not a table"),
        ("[tool.boundby]\nthresholds.a = 3", "is not a table"),
        ("[tool]\nboundby = 3", "is not a table"),
        ("[tool.boundby", "cannot be read"),
    ],
)
def test_what_is_none_of_ours_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_config(write(tmp_path, text))
