"""Migrations and page faults of managed memory, as NVIDIA's ``um_total_sum`` sums them up: real migrations, to which
the tables of faults are added that no real trace here has."""

from __future__ import annotations

import csv
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from boundby.capture.nsys import Nsys
from boundby.readers import read_trace
from boundby.trace.tables import Direction, OpKind
from tests.support.traces import trace_path

pytestmark = pytest.mark.nsys
TIMEOUT_S = 120
#: The first whose scripts have the report.
LEAST_NSYS = (2023, 1)
WAYS = {"HtoD": Direction.HTOD, "DtoH": Direction.DTOH}
CPU_FAULTS, GPU_FAULTS = 7, (3, 40, 5)


@pytest.mark.parametrize("name", ["managed_read_back_by_faults.sqlite", "host_prints_between_kernels.sqlite"])
def test_migrations_and_faults(nsys: Nsys, name: str, tmp_path: Path) -> None:
    if nsys.version_tuple < LEAST_NSYS:
        pytest.skip(f"nsys {nsys.release} has no um_total_sum")
    copy = tmp_path / "trace.sqlite"
    shutil.copyfile(trace_path(name), copy)  # without the mode
    with closing(sqlite3.connect(copy)) as connection:
        process, start = connection.execute("SELECT globalPid, start FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        connection.execute(
            "CREATE TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS (start, globalPid, address, originalFaultPc, CpuInstruction, "
            "module, unresolvedFaultPc, sourceFile, sourceLine)"
        )
        connection.executemany(
            "INSERT INTO CUDA_UM_CPU_PAGE_FAULT_EVENTS (start, globalPid, address) VALUES (?, ?, 4096)",
            [(start + number, process) for number in range(CPU_FAULTS)],
        )
        connection.execute(
            "CREATE TABLE CUDA_UM_GPU_PAGE_FAULT_EVENTS (start INTEGER, end INTEGER, globalPid INTEGER, "
            "deviceId INTEGER, address INTEGER, numberOfPageFaults INTEGER, faultAccessType INTEGER)"
        )
        connection.executemany(
            "INSERT INTO CUDA_UM_GPU_PAGE_FAULT_EVENTS VALUES (?, ?, ?, 0, 4096, ?, 1)",
            [(start + number, start + number + 10, process, faults) for number, faults in enumerate(GPU_FAULTS)],
        )
        connection.commit()
    output = ["--report", "um_total_sum", "--format", "csv", "--output", str(tmp_path / "sums")]
    subprocess.run([str(nsys.path), "stats", *output, str(copy)], check=True, timeout=TIMEOUT_S)
    (written,) = tmp_path.glob("sums*.csv")
    with written.open(newline="") as file:
        (theirs,) = csv.DictReader(file)
    size = {way: next(value for key, value in theirs.items() if key.startswith(f"Total {way} Mig")) for way in WAYS}

    trace = read_trace(copy)
    table = trace.operations
    for way_name, way in WAYS.items():
        moved = table.bytes[(table.kind == OpKind.MIGRATION) & (table.direction == way)].sum()
        assert moved / 1e6 == pytest.approx(float(size[way_name]), abs=0.001)  # told in megabytes
    assert trace.page_faults == {
        "cpu": int(theirs["Total CPU Page Faults"]),
        "gpu": int(theirs["Total GPU PageFaults"]),
    }
