"""Constructs of OpenACC by place, as NVIDIA's ``openacc_sum`` sums them up."""

from __future__ import annotations

import csv
import shutil
import subprocess
from pathlib import Path

import pytest

from boundby.capture.locate import Nsys
from boundby.readers import read_trace
from tests.oracle.ours import Sum, sum_of, summarize
from tests.support.traces import tables_of, trace_names, trace_path

pytestmark = pytest.mark.nsys
TIMEOUT_S = 120
#: The first whose scripts have the report.
LEAST_NSYS = (2023, 1)


def as_ours(name: str) -> str:
    """``Enqueue Launch@test.f90:51`` -> ``test.f90:51 launch``."""
    what, _, place = name.partition("@")
    return f"{place} {what.lower().removeprefix('enqueue ')}".strip()


@pytest.mark.parametrize("name", [name for name in trace_names() if "openacc" in name] or trace_names()[:1])
def test_constructs_by_place(nsys: Nsys, name: str, tmp_path: Path) -> None:
    path = trace_path(name)
    if nsys.version_tuple < LEAST_NSYS:
        pytest.skip(f"nsys {nsys.release} has no openacc_sum")
    if not any("OPENACC" in table for table in tables_of(path)):
        pytest.skip(f"{name} has no tables of OpenACC")
    copy = tmp_path / "trace.sqlite"
    shutil.copyfile(path, copy)  # without the mode: nsys wants to write to what it reads
    output = ["--report", "openacc_sum", "--format", "csv", "--output", str(tmp_path / "sums")]
    subprocess.run([str(nsys.path), "stats", *output, str(copy)], check=True, timeout=TIMEOUT_S)
    (written,) = tmp_path.glob("sums*.csv")
    with written.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["Total Time (ns)"])]  # what takes no time is no range
    theirs: dict[str, Sum] = {as_ours(row["Name"]): sum_of(row, "Num Calls") for row in rows}

    trace = read_trace(path)
    ranges = trace.ranges
    constructs = [row for row in range(len(ranges)) if int(ranges.name[row]) in trace.constructs]
    assert theirs == summarize(
        (trace.names[int(ranges.name[row])], int(ranges.end_ns[row] - ranges.start_ns[row])) for row in constructs
    )
