"""Calls of MPI by name, as NVIDIA's ``mpi_event_sum`` sums them up."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from boundby.capture.nsys import Nsys, Unusable, probe
from boundby.readers import read_trace
from tests.oracle.ours import Sum, sum_of, summarize
from tests.support.nsys import GET_NSYS
from tests.support.traces import tables_of, trace_names, trace_path

pytestmark = pytest.mark.nsys
#: The first whose scripts have the report, and the one that can be fetched.
LEAST_NSYS, FETCHED = (2024, 1), "2024.2.3"
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def summing_nsys(nsys: Nsys) -> Nsys:
    """An nsys that has the report: the one that is used, else another that was fetched before."""
    if nsys.version_tuple >= LEAST_NSYS:
        return nsys
    command = [sys.executable, str(GET_NSYS), "--quiet", "--where", "--version", FETCHED]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    other = probe(Path(found.stdout.strip()), "cache") if found.returncode == 0 else None
    if other is None or isinstance(other, Unusable):
        pytest.skip(f"nsys {nsys.release} has no mpi_event_sum: scripts/get-nsys --version {FETCHED} fetches one")
    return other


@pytest.mark.parametrize("name", [name for name in trace_names() if "mpi" in name] or trace_names()[:1])
def test_calls_of_mpi_by_name(summing_nsys: Nsys, name: str, tmp_path: Path) -> None:
    path = trace_path(name)
    if not any(table.startswith("MPI_") for table in tables_of(path)):
        pytest.skip(f"{name} has no tables of MPI")
    copy = tmp_path / "trace.sqlite"
    shutil.copyfile(path, copy)  # without the mode: nsys wants to write to what it reads
    output = ["--report", "mpi_event_sum", "--format", "csv", "--output", str(tmp_path / "sums")]
    subprocess.run([str(summing_nsys.path), "stats", *output, str(copy)], check=True, timeout=TIMEOUT_S)
    (written,) = tmp_path.glob("sums*.csv")
    with written.open(newline="") as file:
        theirs: dict[str, Sum] = {row["Name"]: sum_of(row, "Instances") for row in csv.DictReader(file)}

    trace = read_trace(path)
    calls = trace.messages
    assert theirs == summarize(
        (trace.names[int(calls.name[row])], int(calls.end_ns[row] - calls.start_ns[row])) for row in range(len(calls))
    )
