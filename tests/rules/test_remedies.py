"""The table of remedies: a title and its code are about the same action."""

from __future__ import annotations

import re

import pytest

from boundby.rules.remedies import TABLE, Remedy
from tests.rules.builtin.harness import is_of_one_action

CODES = [(row, kind) for row in TABLE for kind in row.do]


@pytest.mark.parametrize(("row", "kind"), CODES, ids=[f"{row.key}-{kind}" for row, kind in CODES])
def test_code_does_what_the_title_says(row: Remedy, kind: str) -> None:
    code = re.sub(r"\$(?:sample|job)\b", "boundby profile -- PROGRAM", row.do[kind])
    assert is_of_one_action(row.words({}), code), f"{row.title!r} stands over {code!r}"


@pytest.mark.parametrize(
    ("title", "code"),
    [
        ("Serve several jobs from one process", "boundby analyze run.sqlite --window 3s:"),
        ("Find out which program shares this GPU", "cudaMemcpyAsync(device, host, bytes, kind, stream);"),
    ],
)
def test_other_actions_are_told_apart(title: str, code: str) -> None:
    assert not is_of_one_action(title, code)
