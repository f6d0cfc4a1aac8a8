"""``boundby rules``, ``boundby explain``, and what analyze takes about rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundby.cli.main import main
from boundby.rules.builtin import builtin
from boundby.rules.rule import page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "sync.sqlite"
    assert main(["simulate", "--pattern", "segmentation_before", "--steps", "5", "-o", str(path)]) == 0
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_rules_are_listed_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "rules")
    assert code == 0
    for rule in builtin():
        assert rule.id in out
    assert out.index("SYNC\n") < out.index("sync-operator") < out.index("QUALITY OF THE TRACE")


def test_one_group_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "rules", "--group", "cuda_api", "--json")
    listed = json.loads(out)
    assert code == 0
    assert {item["group"] for item in listed} == {"cuda_api"}
    (graphs,) = [item for item in listed if item["id"] == "cuda-graphs"]
    assert {one["name"] for one in graphs["thresholds"]} == {"sooner_ns"}


def test_there_is_no_such_group(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "rules", "--group", "coffee")
    assert code == 2
    assert "There is no group 'coffee'" in err


@pytest.mark.parametrize("rule", builtin(), ids=[rule.id for rule in builtin()])
def test_every_rule_is_explained(capsys: pytest.CaptureFixture[str], rule: object) -> None:
    name = rule.id  # type: ignore[attr-defined]
    code, out, _ = run(capsys, "explain", name, "--width", "80")
    assert code == 0
    assert name in out
    assert "What to do" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "\x1b" not in out


def test_the_page_as_it_stands_in_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    (rule,) = [rule for rule in builtin() if rule.id == "sync-call"]
    assert run(capsys, "explain", "sync-call", "--markdown")[1] == page(rule)


def test_an_unknown_rule_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "explain", "sync-operatr")
    assert code == 2
    assert "There is no pattern or rule 'sync-operatr'" in err
    assert "Did you mean sync-operator" in err


@pytest.mark.parametrize(
    "words",
    [
        *(
            "mixed",
            "no dominant cause",
            "cannot tell",
            "not recorded",
            "launched but not started",
            "kernel time",
            "profiler",
            "overlapped",
        ),
        *("launch overhead", "host code", "waiting for input", "waiting for a blocked host", "compute bound", "Sync?"),
        *("C", "s", "b", "w", "?"),
    ],
)
def test_whatever_a_screen_says_is_explained(capsys: pytest.CaptureFixture[str], words: str) -> None:
    code, out, _ = run(capsys, "explain", *words.split(), "--markdown")
    assert code == 0
    assert out.startswith("# ")
    assert "## " in out


def test_a_rule_can_be_left_out(capsys: pytest.CaptureFixture[str], report: Path) -> None:
    out = json.loads(run(capsys, "analyze", str(report), "--format", "json", "--disable", "sync-operator")[1])
    assert "sync-operator" not in {finding["rule"] for finding in out["findings"]}
    assert out["analysis"]["rules_disabled"] == ["sync-operator"]
    assert out["analysis"]["rules_checked"] > 5


def test_the_project_says_what_it_wants(
    capsys: pytest.CaptureFixture[str], report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "[tool.boundby]\ndisable = ['sync-operator']\nthresholds.cuda-graphs.sooner_ns = 600\n"
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    out = json.loads(run(capsys, "analyze", str(report), "--format", "json")[1])
    assert out["analysis"]["rules_disabled"] == ["sync-operator"]
    assert out["analysis"]["thresholds"] == {"cuda-graphs.sooner_ns": 600.0}
    (tmp_path / "pyproject.toml").write_text(text.replace("cuda-graphs", "cuda-graph"), encoding="utf-8")
    code, _, err = run(capsys, "analyze", str(report))
    assert code == 2
    assert "There is no rule 'cuda-graph'" in err
    assert "Traceback" not in err


def test_small_findings_are_shown_when_asked_for(capsys: pytest.CaptureFixture[str], report: Path) -> None:
    some = json.loads(run(capsys, "analyze", str(report), "--format", "json")[1])
    every = json.loads(run(capsys, "analyze", str(report), "--format", "json", "--all")[1])
    assert every["analysis"]["show_all"]
    assert len(every["findings"]) >= len(some["findings"])
