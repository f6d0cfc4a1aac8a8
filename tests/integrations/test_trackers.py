"""``report.metrics()``, and the example that gives it to the real trackers, offline."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import boundby
from boundby.model.causes import CAUSE_KEYS
from tests.support import reports

REPOSITORY = Path(__file__).parents[2]
REPORT = REPOSITORY / "sample_reports" / "simulated_sync.sqlite"
EXAMPLE = REPOSITORY / "examples" / "trackers.py"


@pytest.mark.parametrize("name", sorted(reports.ALL))
def test_names_are_stable_and_values_are_floats(name: str) -> None:
    told = reports.ALL[name]().metrics("")
    assert all(type(value) is float for value in told.values())
    assert {"findings", "findings_high"} <= told.keys()
    shares = {key: value for key, value in told.items() if key.startswith("time/")}
    assert set(shares) in ({f"time/{cause}" for cause in CAUSE_KEYS}, set())
    assert not shares or sum(shares.values()) == pytest.approx(1)


def test_figures_are_those_of_the_report() -> None:
    report = boundby.analyze(REPORT)
    told, (gpu,) = report.metrics(), report.devices
    assert told["boundby/gpu_utilization"] == gpu.gpu_utilization
    assert told["boundby/window_ms"] == gpu.window_ns / 1e6
    assert told["boundby/time/sync"] == gpu.time["sync"] / gpu.window_ns
    assert told["boundby/findings"] == len(report.findings)
    assert told["boundby/step_ms"] == pytest.approx(1.974, abs=0.001)


def send(tracker: str, folder: Path) -> None:
    """Run one function of the example in a process of its own."""
    code = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[1]); import boundby, trackers; "
        "getattr(trackers, f'to_{sys.argv[2]}')(boundby.analyze(sys.argv[3]), pathlib.Path(sys.argv[4]))"
    )
    arguments = [sys.executable, "-c", code, str(EXAMPLE.parent), tracker, str(REPORT), str(folder)]
    answer = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=folder)
    assert answer.returncode == 0, answer.stderr


def need(*modules: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: pip install {' '.join(missing)}")


def test_wandb_takes_them_offline(tmp_path: Path) -> None:
    need("wandb")
    send("wandb", tmp_path)
    (run,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"boundby/time/sync" in run.read_bytes()


def test_mlflow_takes_them(tmp_path: Path) -> None:
    need("mlflow", "sqlalchemy")
    send("mlflow", tmp_path)
    import sqlite3

    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        found = dict(database.execute("SELECT key, value FROM metrics").fetchall())
    assert found == boundby.analyze(REPORT).metrics()


def test_tensorboard_takes_them(tmp_path: Path) -> None:
    need("torch", "tensorboard")
    send("tensorboard", tmp_path)
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"boundby/time/sync" in events.read_bytes()
