"""Time in parts, as NVIDIA's recipes have it: the GPU's counters (``gpu_metric_util_map``), messages beside kernels
(``mpi_gpu_time_util_map``)."""

from __future__ import annotations

import ctypes.util
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boundby.model.intervals import CoveredTime, intersect, union
from boundby.readers import read_trace
from boundby.trace.tables import OpKind
from tests.support.nsys import GET_NSYS
from tests.support.traces import tables_of, trace_path

pytestmark = pytest.mark.nsys
#: The first whose recipes have the map, and the one that can be fetched.
FETCHED = "2024.2.3"
BINS = 40
TIMEOUT_S = 120
#: What the recipe reads, as an export in columns beside the report holds it.
TABLES = ("ANALYSIS_DETAILS", "GENERIC_EVENTS", "TARGET_INFO_SESSION_START_TIME")
MPI_TABLES = (
    *("ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME", "CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"),
    *(f"MPI_{kind}_EVENTS" for kind in ("P2P", "START_WAIT", "OTHER", "COLLECTIVES")),
)
NO_MPI = "0 AS globalTid, 0 AS start, 0 AS end, 0 AS textId WHERE 0"
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


def run_recipe(recipes: Path, folder: Path, recipe: str, path: Path, tables: tuple[str, ...]) -> tuple[Any, int]:
    """What the recipe makes of these tables of an export, and how long the recording is. A table that the export lacks
    has no rows."""
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    report, columns = folder / "run.nsys-rep", folder / "run_pqtdir"
    report.touch()
    os.utime(report, (0, 0))
    columns.mkdir()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        present = tables_of(path)
        for table in tables:
            empty = f"SELECT {NO_MPI}" if table not in present else f"SELECT * FROM {table}"
            pandas.read_sql(empty, database).to_parquet(columns / f"{table}.parquet")
        ((length_ns,),) = database.execute("SELECT duration FROM ANALYSIS_DETAILS")
    made = folder / "map"
    subprocess.run(
        [
            *(sys.executable, "-m", "nsys_recipe", recipe, "--mode", "none"),
            *("--input", str(report), "--bins", str(BINS), "--output", str(made)),
        ],
        env={**os.environ, "NSYS_DIR": str(recipes), "PYTHONPATH": str(recipes / "python/packages")},
        check=True,
        timeout=TIMEOUT_S,
    )
    return pandas.read_parquet(made / "analysis.parquet"), int(length_ns)


def test_the_counters_are_those_of_the_map(recipes: Path, tmp_path: Path) -> None:
    path = trace_path("gpu_metrics_2022_4.sqlite")
    theirs, length_ns = run_recipe(recipes, tmp_path, "gpu_metric_util_map", path, TABLES)
    assert len(theirs) > BINS / 2

    samples, size = read_trace(path).metric_samples, length_ns / BINS
    # A bin begins behind its first edge, as pandas cuts; samples after the length that nsys states are left out.
    inside = (samples.start_ns > 0) & (samples.start_ns <= length_ns)
    place = np.ceil(samples.start_ns / size).astype(int) - 1
    for begin, *told in theirs[["Duration", *COLUMNS]].itertuples(index=False):
        mine = inside & (place == round(float(begin) / size))
        ours = [float(np.mean(getattr(samples, column)[mine])) for column in COLUMNS.values()]
        assert ours == pytest.approx(told, abs=0.051)  # theirs are rounded to a tenth


def test_messages_and_kernels_are_those_of_the_map(recipes: Path, tmp_path: Path) -> None:
    """How much of each part of the time a process is in MPI, its kernels run, and both."""
    path = trace_path("mpi_4_gpus_no_os_calls.sqlite")
    theirs, length_ns = run_recipe(recipes, tmp_path, "mpi_gpu_time_util_map", path, MPI_TABLES)
    trace, size = read_trace(path), length_ns / BINS
    calls, kernels = trace.messages, trace.operations.take(np.flatnonzero(trace.operations.kind == OpKind.KERNEL))
    edges = np.round(np.arange(BINS + 1) * size).astype(np.int64)
    edges[-1] = length_ns
    for pid, rows in theirs.groupby("PID"):
        [number] = [place for place, process in enumerate(trace.processes) if process.pid == pid]
        mine = trace.process_of(calls.thread) == number
        of_mpi = union(calls.start_ns[mine], calls.end_ns[mine])
        mine = kernels.process == number
        of_kernels = union(kernels.start_ns[mine], kernels.end_ns[mine])
        for column, busy in (("MPI", of_mpi), ("Kernel", of_kernels), ("Overlap", intersect(of_mpi, of_kernels))):
            ours = CoveredTime(busy).within(edges[:-1], edges[1:]) / np.diff(edges) * 100
            assert ours == pytest.approx(rows[column].to_numpy(), abs=0.06), column
