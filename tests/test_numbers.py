"""The register of numbers: none is forgotten, and those by which boundby decides say why they are what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundby.cli.main import main
from boundby.model.numbers import register
from boundby.rules.builtin import builtin

#: Rooms whose numbers decide what is said of a trace.
DECIDING = ("correlation", "structure", "attribution", "stats", "replay", "evidence", "rules", "claims")


def test_every_number_that_decides_has_a_reason() -> None:
    silent = [f"{one.module}.{one.name}" for one in register() if one.module.split(".")[0] in DECIDING and not one.why]
    assert silent == []


def test_every_threshold_is_registered() -> None:
    names = {one.name for one in register() if one.is_threshold}
    assert {f"{rule.id}.{threshold.name}" for rule in builtin() for threshold in rule.thresholds} == names


def test_units_and_shared_reasons_are_read_off_the_source(tmp_path: Path) -> None:
    source = (
        "# How long both last.\nLEAST_NS = 1_000\nMOST_NS = 10 * 1_000\n\n"
        "CALLS_PER_MS = 0.5  # a few\nNAME = 'text'\n(_A, _B_SHARE) = (3, 0.25)\n"
    )
    (tmp_path / "room.py").write_text(source)
    found = [(one.name, one.value, one.unit, one.why) for one in register(tmp_path)]
    assert found == [
        ("LEAST_NS", "1000", "ns", "How long both last."),
        ("MOST_NS", "10 * 1000", "ns", "How long both last."),
        ("CALLS_PER_MS", "0.5", "per ms", "a few"),
        ("_A", "3", "count", "a few"),
        ("_B_SHARE", "0.25", "fraction", "a few"),
    ]


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--numbers", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["numbers"]
    assert {"module", "name", "value", "unit", "why", "line"} == set(told[0])
    assert main(["doctor", "--numbers"]) == 0
    assert f"{len(told)} numbers" in capsys.readouterr().out
