"""Callbacks in ``transformers.Trainer`` and Lightning, the handler in accelerate: the real libraries, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import boundby

PROGRAM = Path(__file__).parent / "programs" / "trainers.py"


@pytest.mark.parametrize("host", ["transformers", "lightning", "accelerate"])
def test_a_training_ends_with_the_screen_and_its_metrics(host: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if subprocess.run([sys.executable, "-c", f"import {host}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{host} is not installed: pip install {host}")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, str(PROGRAM), host, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert answer.returncode == 0, answer.stderr
    assert "boundby: boundby" not in answer.stderr
    told = json.loads(answer.stdout.splitlines()[-1])
    report = boundby.analyze(told["path"])
    assert str(report) in answer.stdout
    assert told["metrics"] == pytest.approx(report.metrics())
    regions = {region.path: region.instances for region in report.regions}
    assert regions["ProfilerStep#*",] == 2
