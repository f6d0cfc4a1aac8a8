"""The GPU's counters over time, as NVIDIA's recipe ``gpu_metric_util_map`` has them."""

from __future__ import annotations

import ctypes.util
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from boundby.readers import read_trace
from tests.support.nsys import GET_NSYS
from tests.support.traces import trace_path

pytestmark = pytest.mark.nsys
#: The first whose recipes have the map, and the one that can be fetched.
FETCHED = "2024.2.3"
BINS = 40
TIMEOUT_S = 120
#: What the recipe reads, as an export in columns beside the report holds it.
TABLES = ("ANALYSIS_DETAILS", "GENERIC_EVENTS", "TARGET_INFO_SESSION_START_TIME")
COLUMNS = {"SM Active": "sm_active", "SM Issue": "sm_issue", "Tensor Active": "tensor_active"}


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """An nsys with its recipes, as links: Debian leaves out an empty folder and a library that they look for."""
    command = [sys.executable, str(GET_NSYS), "--quiet", "--where", "--version", FETCHED]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip(f"no recipes: scripts/get-nsys --version {FETCHED} fetches an nsys that has them")
    library = next(Path("/usr/lib").glob("*/libsqlite3.so.0"), None) or ctypes.util.find_library("sqlite3")
    if library is None:
        pytest.skip("no libsqlite3, which recipes load")
    host = Path(found.stdout.strip()).parents[1] / "host-linux-x64"
    folder = tmp_path / "nsys"
    subprocess.run(["cp", "-rs", str(host), str(folder)], check=True)
    (folder / "python/packages/nsys_recipe/third_party").mkdir(exist_ok=True)
    (folder / "libsqlite3.so.0").symlink_to(library)
    return folder


def test_the_counters_are_those_of_the_map(recipes: Path, tmp_path: Path) -> None:
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    path = trace_path("gpu_metrics_2022_4.sqlite")
    report, columns = tmp_path / "run.nsys-rep", tmp_path / "run_pqtdir"
    report.touch()
    os.utime(report, (0, 0))
    columns.mkdir()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        for table in TABLES:
            pandas.read_sql(f"SELECT * FROM {table}", database).to_parquet(columns / f"{table}.parquet")
        ((length_ns,),) = database.execute("SELECT duration FROM ANALYSIS_DETAILS")
    made = tmp_path / "map"
    subprocess.run(
        [
            *(sys.executable, "-m", "nsys_recipe", "gpu_metric_util_map", "--mode", "none"),
            *("--input", str(report), "--bins", str(BINS), "--output", str(made)),
        ],
        env={**os.environ, "NSYS_DIR": str(recipes), "PYTHONPATH": str(recipes / "python/packages")},
        check=True,
        timeout=TIMEOUT_S,
    )
    theirs = pandas.read_parquet(made / "analysis.parquet")
    assert len(theirs) > BINS / 2

    samples, size = read_trace(path).metric_samples, length_ns / BINS
    # A bin begins behind its first edge, as pandas cuts; samples after the length that nsys states are left out.
    inside = (samples.start_ns > 0) & (samples.start_ns <= length_ns)
    place = np.ceil(samples.start_ns / size).astype(int) - 1
    for begin, *told in theirs[["Duration", *COLUMNS]].itertuples(index=False):
        mine = inside & (place == round(float(begin) / size))
        ours = [float(np.mean(getattr(samples, column)[mine])) for column in COLUMNS.values()]
        assert ours == pytest.approx(told, abs=0.051)  # theirs are rounded to a tenth
