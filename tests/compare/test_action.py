"""The GitHub Action: its script, run as the runner runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from boundby.compare import gate
from boundby.compare.quantities import QUANTITIES
from tests.compare import pairs

yaml = pytest.importorskip("yaml", reason="the action is YAML")
ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / ".github" / "actions" / "check" / "action.yml"


def action() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    pairs.write(pairs.training(), folder / "base run.sqlite", seed=1)
    pairs.write(pairs.training(gemm_ns=330_000), folder / "slow.sqlite", seed=3)
    return folder


def run(folder: Path, tmp_path: Path, **inputs: str) -> tuple[int, str, str]:
    """Exit code, outputs and step summary of the action's last step."""
    made = action()
    step = made["runs"]["steps"][-1]
    values = {name: item.get("default", "") for name, item in made["inputs"].items()}
    values |= {"junit": str(tmp_path / "junit.xml"), "page": str(tmp_path / "page.html")}
    values |= {name.replace("_", "-"): value for name, value in inputs.items()}
    env = {
        key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], text) for key, text in step["env"].items()
    }
    output, summary = tmp_path / "output", tmp_path / "summary.md"
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    program = tools / "boundby"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m boundby.cli.main "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    env = {
        **os.environ,
        **env,
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
    }
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]], cwd=folder, env=env, check=False
    )
    told = [path.read_text(encoding="utf-8") if path.exists() else "" for path in (output, summary)]
    return done.returncode, told[0], told[1]


def test_limits_on_one_report(runs: Path, tmp_path: Path) -> None:
    code, output, summary = run(runs, tmp_path, report="base run.sqlite", limits="step.time < 12 ms\n\ntime < 1 s\n")
    assert (code, output) == (0, "passed=true\n")
    assert "Both limits are kept." in summary
    assert (tmp_path / "junit.xml").exists()


def test_a_broken_limit(runs: Path, tmp_path: Path) -> None:
    code, output, summary = run(runs, tmp_path, report="base run.sqlite", limits="step.time < 1 ms")
    assert (code, output) == (1, "passed=false\n")
    assert "BROKEN" in summary


@pytest.mark.parametrize(("report", "code"), [("base run.sqlite", 0), ("slow.sqlite", 1)])
def test_with_a_baseline(runs: Path, tmp_path: Path, report: str, code: int) -> None:
    found = run(runs, tmp_path, report=report, baseline="base run.sqlite", fail_on="regression > 5 %\nnew-findings")
    assert found[0] == code
    assert "#### Regions" in found[2]
    assert (tmp_path / "page.html").exists()


def test_bad_input_is_neither_passed_nor_broken(runs: Path, tmp_path: Path) -> None:
    assert run(runs, tmp_path, report="none.sqlite", limits="time < 1 s")[:2] == (2, "")


def test_nothing_in_an_input_can_run(runs: Path, tmp_path: Path) -> None:
    bait = tmp_path / "bait"
    nasty = f"$(touch {bait}); `touch {bait}` \"'; touch {bait}"
    for name in ("report", "limits", "budget", "steps", "options"):
        run(runs, tmp_path, **{"report": "base run.sqlite", "limits": "time < 1 s", name: nasty})
    assert not bait.exists()


def test_the_script_names_no_input_itself() -> None:
    for step in action()["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_the_documentation_is_true() -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    budgets = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert budgets
    for found in budgets:
        assert gate.loads(found).limits
    for name in action()["inputs"]:
        assert f"`{name}`" in text, f"docs/ci.md does not name the input {name}"
    for limit in re.findall(r"(?:-l|--limit|--fail-on) '([^']+)'", text):
        gate.parse(limit)
    for name in QUANTITIES:
        stem = re.sub(r"^(share|time)\.(?!total|change).*", r"\1.CAUSE", name)
        stem = re.sub(r"^(findings(?:\.new)?)\..*", r"\1.SEVERITY", stem) if name != "findings.new" else stem
        assert f"`{stem}`" in text, f"docs/ci.md does not name {stem}"


def test_findings_stand_at_lines_of_the_checkout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Annotations on the log, SARIF as a file; neither changes what the limits say."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "program.py").write_text("pass\n")
    shutil.copy(ROOT / "sample_reports" / "simulated_sync.pt.trace.json.gz", checkout / "trace.json.gz")
    sarif = tmp_path / "boundby.sarif"
    code, output, _ = run(checkout, tmp_path, report="trace.json.gz", limits="time < 10 s", sarif=str(sarif))
    assert (code, output) == (0, "passed=true\n")
    log = json.loads(sarif.read_text(encoding="utf-8"))
    assert log["version"] == "2.1.0"
    uris = {
        place["physicalLocation"]["artifactLocation"]["uri"]
        for result in log["runs"][0]["results"]
        for place in result["locations"]
    }
    assert uris == {"program.py"}
    assert re.search(r"^::(warning|notice) file=program\.py,line=\d+", capfd.readouterr().out, re.MULTILINE)
