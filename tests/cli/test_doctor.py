"""``boundby doctor``: what it finds, what it advises, and how it ends."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from boundby.capture import checkup
from boundby.capture.checkup import Checkup, Examination, Status, examine
from boundby.capture.flags import InstalledGpu, look_at_machine
from boundby.capture.nsys import Nsys, version_numbers
from boundby.capture.run_facts import NSYS_TAKES_IT, NVTX_TOO_NEW
from tests.cli.conftest import Ran
from tests.support.nsys import fake_nsys

Boundby = Callable[..., Ran]
NAMES = [
    *("native core", "nsys", "importer", "round trip", "nvtx package"),
    *("CPU sampling", "ptrace", "container", "GPU", "GPU counters"),
    *("torch", "disk, this folder", "disk, temporary folder"),
]
TOO_NEW = "0.2.17"


def checks(ran: Ran) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(ran.out)["checks"]}


@pytest.fixture(autouse=True)
def _torch_is_asked_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import of torch takes seconds: one test sees what a real one says."""
    if request.function is not test_a_machine_that_works_is_green:
        monkeypatch.setattr(checkup, "_ASK_TORCH", "print('[\"2.13.0\", null, false]')")


@pytest.mark.nsys
def test_a_machine_that_works_is_green(boundby: Boundby, nsys: Nsys) -> None:
    if version_numbers(importlib.metadata.version("nvtx")) >= NVTX_TOO_NEW and nsys.version_tuple < NSYS_TAKES_IT:
        pytest.skip("this environment is trapped itself")
    ran = boundby("doctor", "--nsys", nsys.path, "--format", "json")
    assert ran.code == 0, ran.out
    assert (ran.err, list(checks(ran))) == ("", NAMES)
    assert checks(ran)["nvtx package"]["status"] == "ok"
    assert checks(ran)["round trip"]["status"] == "ok"
    assert "all 20 NVTX ranges came back" in checks(ran)["round trip"]["found"]


@pytest.fixture
def python_with_new_nvtx(tmp_path: Path) -> Path:
    """An interpreter that has a new nvtx package, fetched from the package index."""
    packages = tmp_path / "packages"
    fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
    answer = subprocess.run([*fetch, f"nvtx=={TOO_NEW}"], capture_output=True, text=True, timeout=120, check=False)
    if answer.returncode != 0:
        pytest.skip(f"nvtx {TOO_NEW} cannot be fetched: {answer.stderr.strip()[-200:]}")
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    site = packages / "sitecustomize.py"  # what asks for sys.executable gets this script again
    site.write_text(f"import sys; sys.executable = {str(script)!r}\n")
    return script


@pytest.mark.nsys
def test_the_silent_trap_of_the_nvtx_package_is_named_with_its_fix(
    boundby: Boundby, nsys: Nsys, python_with_new_nvtx: Path
) -> None:
    if nsys.version_tuple >= NSYS_TAKES_IT:
        pytest.skip(f"nsys {nsys.release} has no such trap")
    ran = boundby("doctor", "--nsys", nsys.path, "--python", python_with_new_nvtx, "--format", "json")
    assert ran.code == 1
    found = checks(ran)
    assert "0 of 20 NVTX ranges came back" in found["round trip"]["found"]
    assert found["nvtx package"]["status"] == "failed"
    assert f"nvtx package {TOO_NEW} records no range under nsys {nsys.release}" in found["nvtx package"]["found"]
    assert "pip install nvtx==0.2.11" in found["nvtx package"]["advice"]


def test_no_nsys_is_a_failure_with_a_next_step(boundby: Boundby, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOUNDBY_NSYS", raising=False)
    monkeypatch.setattr("boundby.capture.nsys._places", lambda *_: iter(()))
    ran = boundby("doctor", "--width", "100")
    assert ran.code == 1
    assert "\nfailed   nsys " in ran.out
    assert "-> Install Nsight Systems" in ran.out or "→ Install Nsight Systems" in ran.out
    assert ran.out.endswith("Recording does not work as it should: nsys.\n")
    assert max(map(len, ran.out.splitlines())) <= 100
    assert "\x1b" not in ran.out


def test_an_nsys_that_records_nothing(boundby: Boundby, tmp_path: Path) -> None:
    nsys = fake_nsys(tmp_path / "bin", "echo something is wrong; exit 1")
    ran = boundby("doctor", "--nsys", nsys.path, "--format", "json")
    assert ran.code == 1
    found = checks(ran)["round trip"]
    assert found["status"] == "failed"
    assert "It said: something is wrong" in found["found"]


def test_quick_leaves_out_the_recording(boundby: Boundby, tmp_path: Path) -> None:
    nsys = fake_nsys(tmp_path / "bin", "exit 1", "2024.5.1.1-x")
    ran = boundby("doctor", "--quick", "--nsys", nsys.path, "--format", "json")
    assert checks(ran)["round trip"]["status"] == "skipped"
    assert ran.code == 0


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (["ok", "note", "skipped"], "ok"),
        (["ok", "warning"], "warning"),
        (["warning", "failed", "ok"], "failed"),
    ],
)
def test_the_worst_counts(found: list[Status], status: str) -> None:
    assert Checkup(tuple(Examination("x", each, "") for each in found)).status == status


def test_what_is_not_permitted_comes_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = replace(
        look_at_machine(),
        gpus=(InstalledGpu("NVIDIA L4"),),
        driver="550.54",
        no_sampling="kernel.perf_event_paranoid is 4, above 2",
        no_counters="the NVIDIA driver keeps GPU counters to administrators",
        root=tmp_path,
    )
    (tmp_path / ".dockerenv").touch()
    monkeypatch.setattr(checkup, "look_at_machine", lambda: here)
    nsys = fake_nsys(tmp_path / "bin", "exit 1", "2024.5.1.1-x")
    found = {check.name: check for check in examine(nsys.path, quick=True)}
    assert found["CPU sampling"].status == found["container"].status == found["GPU counters"].status == "warning"
    assert "perf_event_paranoid=2" in found["CPU sampling"].advice
    assert "--cap-add" in found["container"].advice
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found["GPU counters"].advice
    assert found["GPU"].found == "NVIDIA L4; driver 550.54"


def test_little_room_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Usage:
        def __init__(self, free: int) -> None:
            self.free = free

    nsys = fake_nsys(tmp_path / "bin", "exit 1", "2024.5.1.1-x")
    for free, status in ((1 << 40, "ok"), (1 << 30, "warning"), (1 << 20, "failed")):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: Usage(free))
        found = {check.name: check for check in examine(nsys.path, quick=True)}
        assert found["disk, this folder"].status == status


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from boundby.cli.main import main; main(sys.argv[1:]); print(*sorted(sys.modules))"
    for command in ("profile", "doctor"):
        done = subprocess.run(
            [sys.executable, "-c", code, command, "--help"], capture_output=True, text=True, check=True
        )
        assert not set(done.stdout.splitlines()[-1].split()) & {"numpy", "rich", "sqlite3", "torch", "subprocess"}
