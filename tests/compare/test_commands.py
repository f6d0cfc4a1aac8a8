"""``boundby compare`` and ``boundby check`` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from boundby.cli.compare import SUMMARY_VARIABLE
from boundby.cli.main import main
from boundby.results import saved
from tests.compare import pairs
from tests.support import reports


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = {
        "base": pairs.write(pairs.training(), folder / "base.sqlite", seed=1),
        "again": pairs.write(pairs.training(), folder / "again.sqlite", seed=2),
        "slow": pairs.write(pairs.training(gemm_ns=330_000), folder / "slow.sqlite", seed=3),
    }
    made["saved"] = folder / "base.json"
    made["saved"].write_text(saved.render(pairs.run(pairs.training(), 1)), encoding="utf-8")
    run = folder / "run"
    run.mkdir()
    (run / "report.sqlite").write_bytes(made["base"].read_bytes())
    made["folder"] = run
    return made


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", SUMMARY_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def call(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.parametrize("before", ["base", "saved", "folder"])
def test_compare_takes_reports_saved_results_and_folders(
    runs: dict[str, Path], before: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("compare", runs[before], runs["slow"], "-q") == 0
    out = capfd.readouterr().out
    assert "The program is slower" in out
    assert "3 slower, 2 without a significant change" in out


@pytest.mark.parametrize(
    ("after", "options", "code"),
    [
        ("again", ["--fail-on", "regression"], 0),
        ("slow", ["--fail-on", "regression"], 1),
        ("slow", ["--fail-on", "regression > 20 %"], 0),
        ("slow", ["--fail-on", "new-findings"], 0),
        ("slow", ["--fail-on", "step.time > 1.7 ms"], 1),
        ("again", ["--fail-on", "step.time > 1.7 ms"], 0),
        ("again", ["--fail-on", "step.tme > 1.7 ms"], 2),
        ("again", ["--budget", "no-such-file.toml"], 2),
        ("again", ["--format", "csv"], 2),
        ("again", ["-o", "x.odt"], 2),
    ],
)
def test_the_exit_codes_of_compare(runs: dict[str, Path], after: str, options: list[str], code: int) -> None:
    assert call("compare", runs["base"], runs[after], "-q", *options) == code


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["-l", "step.time < 12 ms"], 0),
        (["-l", "step.time < 1 ms"], 1),
        (["-l", "step.time < 12 ms", "-l", "gpu_utilization > 99 %"], 1),
        (["-l", "nosuch.time < 1 ms"], 1),
        (["-l", "step.time < 12"], 2),
        (["-l", "regression < 5 %"], 2),
        ([], 2),
        (["-l", "step.time < 12 ms", "--steps", "nosuch"], 2),
        (["-l", "time < 12 s", "--window", "nonsense"], 2),
        (["--quantities"], 0),
    ],
)
def test_the_exit_codes_of_check(runs: dict[str, Path], options: list[str], code: int) -> None:
    assert call("check", runs["base"], "-q", *options) == code


def test_a_missing_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call("check", tmp_path / "none.sqlite", "-l", "time < 1 s") == 2
    assert call("check", "-l", "time < 1 s") == 2
    assert "Missing argument 'REPORT'" in capfd.readouterr().err


def test_bad_saved_results(runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for text, words in (
        ("{", "not JSON"),
        ("{}", "not a result of boundby analyze"),
        ("[]", "holds 0 results"),
        ("7", "not a result"),
    ):
        path = tmp_path / "saved.json"
        path.write_text(text, encoding="utf-8")
        assert call("compare", path, runs["base"]) == 2
        assert words in capfd.readouterr().err
    assert call("compare", runs["base"], runs["again"], "--format", "json", "-o", tmp_path / "c.json", "-q") == 0
    assert call("compare", tmp_path / "c.json", runs["base"]) == 2
    assert "is a comparison" in capfd.readouterr().err
    assert call("compare", runs["saved"], runs["base"], "--window", "all") == 2
    assert "saved result: window cannot be changed" in capfd.readouterr().err


def test_a_bad_budget_names_the_line(runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "budget.toml"
    path.write_text('limits = [\n  "step.time < 12 ms",\n  "step.tiem < 12 ms",\n]\n', encoding="utf-8")
    assert call("check", runs["base"], "--budget", path) == 2
    first, second = capfd.readouterr().err.splitlines()
    assert first == f"boundby: {path}, line 3: 'step.tiem < 12 ms': there is no quantity 'step.tiem'."
    assert second == "  Did you mean time? See them all: boundby check --quantities"


def test_what_a_gate_leaves_behind(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "step.md"
    told.write_text("# before\n", encoding="utf-8")
    monkeypatch.setenv(SUMMARY_VARIABLE, str(told))
    junit, page = tmp_path / "junit.xml", tmp_path / "page.html"
    options = ["--fail-on", "regression", "--junit", junit, "-o", page, "--summary", tmp_path / "own.md"]
    assert call("compare", runs["base"], runs["slow"], *options) == 1
    assert "BROKEN  fail on regression > 5 %" in capfd.readouterr().out
    assert ElementTree.parse(junit).getroot()[0].get("failures") == "1"
    assert told.read_text(encoding="utf-8").startswith("# before\n### 🔴 **The limit is broken.**")
    assert "#### Regions" in told.read_text(encoding="utf-8")
    assert (tmp_path / "own.md").read_text(encoding="utf-8").startswith("### 🔴")
    assert "BROKEN" in page.read_text(encoding="utf-8")


def test_json(runs: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert call("check", runs["base"], "-l", "step.time < 12 ms", "--json") == 0
    data = json.loads(capfd.readouterr().out)
    assert data["passed"] is True
    assert data["limits"][0]["measured"][0]["subject"] == "step *"
    assert call("compare", runs["base"], runs["again"], "--format", "json", "--fail-on", "regression") == 0
    data = json.loads(capfd.readouterr().out)
    assert data["gate"]["passed"] is True


def test_quiet_says_nothing_of_what_is_well(runs: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert call("check", runs["base"], "-q", "-l", "step.time < 12 ms") == 0
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_reports_are_never_written_over(runs: dict[str, Path]) -> None:
    content = runs["base"].read_bytes()
    for option in ("--junit", "--summary"):
        assert call("check", runs["base"], "-l", "time < 1 s", option, runs["base"]) == 2
    assert call("compare", runs["base"], runs["again"], "--format", "json", "-o", runs["base"]) == 2
    assert runs["base"].read_bytes() == content


def test_any_hostile_name_can_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "hostile.json"
    path.write_text(saved.render(reports.hostile()), encoding="utf-8")
    for name in ("terminal", "markdown", "html", "json"):
        assert call("compare", path, path, "--format", name) == 0
