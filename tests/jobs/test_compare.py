"""Two jobs compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.simulated.jobs import Job

from boundby.cli.main import main
from boundby.compare.between import compare_jobs
from boundby.document.job_document import job_comparison_document
from boundby.render import to_markdown, to_terminal
from boundby.results import saved
from boundby.results.job_report import JobComparison, JobReport
from tests.jobs.made import Plant, report

SLOW = Plant("slow_device", 2, 0.3)


@pytest.fixture(scope="module")
def pair() -> tuple[JobReport, JobReport]:
    return report(Job(data=4, steps=10, plants=(SLOW,))), report(Job(data=4, steps=10, seed=3))


def test_what_is_gone_is_told_and_the_gain_is_sure(pair: tuple[JobReport, JobReport]) -> None:
    found = compare_jobs(*pair)
    assert found.significance.status == "faster"
    assert found.change == pytest.approx(1 / 1.26 - 1, abs=0.02)
    assert [(one.status, one.before and one.before.ranks) for one in found.stragglers] == [("resolved", (2,))]
    slow = found.ranks[2]
    assert slow.own_after_ns < 0.85 * slow.own_before_ns
    assert all(one.wait_after_ns < one.wait_before_ns / 5 for one in found.ranks if one.rank != 2)
    for text in (
        to_terminal.render(job_comparison_document(found)),
        to_markdown.render(job_comparison_document(found)),
    ):
        assert "faster, significantly" in text
        assert 'rank 2, compute in "step */backward"' in text.replace("\\*", "*")
    assert saved.render(saved.loads(saved.render(found), JobComparison)) == saved.render(found)


def test_the_same_program_twice_has_not_changed() -> None:
    found = compare_jobs(*(report(Job(data=4, steps=10, seed=seed)) for seed in (3, 4)))
    assert not found.significance.is_change
    assert found.stragglers == ()


def test_the_command_compares_jobs_and_holds_limits(
    pair: tuple[JobReport, JobReport], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, job in zip(files, pair, strict=True):
        file.write_text(saved.render(job), encoding="utf-8")
    before, after = map(str, files)
    limits = ["--fail-on", "regression > 5 %", "--fail-on", "imbalance > 5 %"]
    assert main(["compare", before, after, *limits]) == 0
    assert main(["compare", after, before, *limits]) == 1
    capfd.readouterr()
    assert main(["compare", before, after, "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["kind"] == "job-comparison"
    page = tmp_path / "comparison.html"
    assert main(["compare", before, after, *limits, "-o", str(page), "-q"]) == 0
    text = page.read_text(encoding="utf-8")
    assert "faster, significantly" in text
    assert "rank 2, compute in" in text
    assert "regression" in text  # the gate
    assert "://" not in text
