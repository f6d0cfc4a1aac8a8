"""The fixtures, in a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from boundby.capture.nsys import Nsys
from tests.compare import pairs

TESTS = """
def test_kept(boundby_check):
    result = boundby_check({report!r}, "step.time < 12 ms", "sync.per_step <= 3")
    assert result.passed

def test_broken(boundby_check):
    boundby_check({report!r}, "step.time < 1 us")

def test_wrong(boundby_check):
    boundby_check({report!r}, "step.tme < 1 us")
"""
PROFILE = """
def test_profile(boundby_profile):
    run = boundby_profile("work.py", "3")
    run.check("work.host.max < 100 s", "work.instances == 3")

def test_fails(boundby_profile):
    boundby_profile("fail.py")
"""
PROGRAM = """
import sys, time, nvtx
for _ in range(int(sys.argv[1])):
    with nvtx.annotate("work"):
        time.sleep(0.01)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    installed = any(point.value == "boundby.pytest_plugin" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "boundby.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_limits_in_somebodys_tests(tmp_path: Path) -> None:
    report = pairs.write(pairs.training(), tmp_path / "run.sqlite")
    (tmp_path / "test_it.py").write_text(TESTS.format(report=str(report)), encoding="utf-8")
    done = run(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "1 passed" in done.stdout
    assert "2 failed" in done.stdout
    assert "BROKEN  step.time < 1 us: time of step * is 1.6" in done.stdout
    assert "there is no quantity 'step.tme'" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_program_is_profiled(nsys: Nsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUNDBY_NSYS", str(nsys.path))
    (tmp_path / "work.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "fail.py").write_text("raise SystemExit(3)", encoding="utf-8")
    (tmp_path / "test_it.py").write_text(PROFILE, encoding="utf-8")
    done = run(tmp_path)
    assert "1 passed" in done.stdout, done.stdout
    assert "failed with exit code 3" in done.stdout


def test_unused_it_loads_nothing() -> None:
    code = "import sys, boundby.pytest_plugin; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "rich", "click", "numba", "jinja2"}
    assert {name for name in loaded if name.startswith("boundby")} == {
        "boundby",
        "boundby.__about__",
        "boundby.model",
        "boundby.model.errors",
        "boundby.pytest_plugin",
    }
