"""Findings at lines of code: GitHub's annotations and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from boundby.cli.main import main
from boundby.render import ci_files
from boundby.render.ci_files import CodePlace
from boundby.results.report import Finding, Report
from tests.support import reports


def report() -> Report:
    """Waits at a line, host work in functions, and one that names no line."""
    waits = Finding(
        "sync-readback", "high", "a value, read: 100 % of it", evidence={"lines": {"loss (train.py:42)": 3}}
    )
    work = {"hottest_functions": ["decode (/build/data/load.py:7) 61 %", "torch.ones() (nobody.py:3) 9 %"]}
    found = (
        replace(waits, id="sync-readback@step", saving_ns=(1_000_000, 2_000_000), advice=("Do not\nread it",)),
        Finding("host-work", "low", "the host computes", evidence=work),
        Finding("hot-kernel", "medium", "one kernel"),
        Finding("sync-item", "high", "ambiguous", evidence={"lines": {"step (twice.py:1)": 1}}),
    )
    return replace(reports.sample(), findings=found)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    for name in ("train.py", "data/load.py", "a/twice.py", "b/twice.py", ".venv/lib/train.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("pass\n")
    return tmp_path


def test_only_files_that_are_there_once_are_places(code: Path) -> None:
    told = {finding.rule: places for finding, places in ci_files.placed(report(), code)}
    assert told == {"sync-readback": (CodePlace("train.py", 42),), "host-work": (CodePlace("data/load.py", 7),)}


def test_annotations_are_commands_that_no_text_breaks_out_of(code: Path) -> None:
    first, second = ci_files.workflow_commands(report(), code).splitlines()
    assert first.startswith("::warning file=train.py,line=42,title=boundby sync-readback::a value, read: 100 %25 of it")
    assert "saves 1.00-2.00 ms" in first
    assert second.startswith("::notice file=data/load.py,line=7,")


def test_sarif_is_what_its_standard_says(code: Path) -> None:
    log = json.loads(ci_files.sarif(report(), code))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["sync-readback", "host-work"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]
        assert not place["artifactLocation"]["uri"].startswith("/")
        assert place["region"]["startLine"] >= 1
    model = pytest.importorskip("sarif_pydantic", reason="the model of the standard: pip install sarif-pydantic")
    model.Sarif.model_validate(log)


def test_a_report_without_lines_is_a_log_without_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = Path("sample_reports/simulated_sync.sqlite").resolve()
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", str(sample), "-o", "found.sarif"]) == 0
    assert json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"] == []
