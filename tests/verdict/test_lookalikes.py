"""What looks like a pattern and is something else: each entry of a page, held against what is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulated.counterfactual import Case

from boundby import api
from boundby.claims import patterns
from boundby.render import markdown
from boundby.results.report import Report
from boundby.simulate.instructions import MS, US, Copy, Instruction, Launch, Loop, Range, Sync, Work, program
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export


def _report(folder: Path, *step: Instruction) -> Report:
    made = program(Loop(30, [Range("step {i}", list(step))]), Sync(), name="lookalikes")
    write_export(Case("lookalikes", made, Machine(), 1).run(), folder / "run.sqlite", "2023")
    return api.analyze(folder / "run.sqlite")


@pytest.mark.parametrize("key", patterns.KEYS)
def test_every_entry_of_a_page_has_a_row(key: str) -> None:
    assert len(patterns.LOOKALIKES[key]) == len(patterns.entries(key, patterns.NOT_PART))
    assert any(patterns.LOOKALIKES[key])


def test_a_compute_bound_program_that_copies_much_may_be_bound_by_the_link(tmp_path: Path) -> None:
    report = _report(tmp_path, Copy(6_000_000, "HtoD", "pinned"), Launch("gemm", 2 * MS), Work(20 * US))
    (card,) = report.devices[0].cards
    assert card.pattern == "gpu_compute"
    maybe = [one for one in card.lookalikes if one.here.is_met is False]
    assert [one.here.name for one in maybe] == ["copies alone"]
    assert "the link is the limit" in maybe[0].text
    text = markdown.render(report).replace("\\", "")
    assert f"It may be so here (copies alone: {maybe[0].here.value}; a false alarm has over 10 %)." in text
    assert "Not so here (communication alone: 0 %; a false alarm has over 10 %)." in text
    assert "The trace does not say (SMs active while busy: not captured)." in text


def test_the_next_card_of_a_pattern_tells_only_what_it_may_be(tmp_path: Path) -> None:
    loaded = Range("load", [Copy(6_000_000, "HtoD", "pinned"), Launch("gemm", 2 * MS), Work(20 * US)])
    report = _report(tmp_path, loaded, Range("model", [Launch("gemm", 3 * MS)]))
    text = markdown.render(report).replace("\\", "")
    assert text.count("another program uses the same GPU") == 1
    assert text.count("the link is the limit") == 2
