"""The table of docs/patterns.md: programs made to have each pattern, and verdict, card, signs and first response."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import patterns as benchmark

from boundby.claims import patterns

MADE = [*benchmark.made()]
PAGE = benchmark.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", benchmark.KINDS)
@pytest.mark.parametrize("one", MADE, ids=lambda one: one.program.name + one.key)
def test_a_program_made_to_have_a_pattern_has_it(one: benchmark.Made, kind: str, tmp_path: Path) -> None:
    told = benchmark.recorded(one, kind, tmp_path)
    assert told.agrees(one.key, one.response) == ""
    assert benchmark.row(one, kind, told) in PAGE  # else: python -m benchmarks.patterns --write
    assert told.first.id.partition(".")[2] in {row.id for row in patterns.pattern(one.key).remedies}


def test_the_table_has_every_pattern() -> None:
    assert {one.key for one in MADE} == {*patterns.KEYS}
    assert all(f"patterns/{key}.md" in PAGE for key in patterns.PAGES)


@pytest.mark.parametrize("key", benchmark.ON_CPU)
def test_a_program_of_pytorch_on_the_cpu_has_it_too(key: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    told = benchmark.on_cpu(key, tmp_path)
    assert told is not None
    assert told.agrees(key) == ""
    assert benchmark.row_on_cpu(key) in PAGE
