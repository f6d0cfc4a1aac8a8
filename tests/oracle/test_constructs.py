"""Constructs of OpenACC by place, and those of OpenMP by name, as NVIDIA's ``openacc_sum`` and ``openmp_sum`` sum them
up."""

from __future__ import annotations

import csv
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

from boundby.capture.nsys import Nsys
from boundby.readers import read_trace
from boundby.readers.nsys.host_tables import OPENMP
from boundby.simulate.nsys_export import Name, Row
from tests.oracle.ours import Sum, sum_of, summarize
from tests.support.traces import tables_of, trace_names, trace_path

pytestmark = pytest.mark.nsys
TIMEOUT_S = 120
US = 1_000
CONSTRUCTS = {
    "OPENMP_EVENT_KIND_PARALLEL": "Parallel",
    "OPENMP_EVENT_KIND_TASK": "Task",
    "OPENMP_EVENT_KIND_SYNC_REGION_WAIT": "Barrier",
}
#: The first whose scripts have the reports.
LEAST_NSYS = (2023, 1)


def as_ours(name: str) -> str:
    """``Enqueue Launch@test.f90:51`` -> ``test.f90:51 launch``."""
    what, _, place = name.partition("@")
    return f"{place} {what.lower().removeprefix('enqueue ')}".strip()


def sums(nsys: Nsys, report: str, path: Path, folder: Path) -> list[dict[str, str]]:
    """The rows of one of NVIDIA's reports on an export; what takes no time is no range."""
    copy = folder / "trace.sqlite"
    shutil.copyfile(path, copy)  # without the mode: nsys wants to write to what it reads
    output = ["--report", report, "--format", "csv", "--output", str(folder / "sums")]
    subprocess.run([str(nsys.path), "stats", *output, str(copy)], check=True, timeout=TIMEOUT_S)
    (written,) = folder.glob("sums*.csv")
    with written.open(newline="") as file:
        return [row for row in csv.DictReader(file) if int(row["Total Time (ns)"])]


@pytest.mark.parametrize("name", [name for name in trace_names() if "openacc" in name] or trace_names()[:1])
def test_constructs_by_place(nsys: Nsys, name: str, tmp_path: Path) -> None:
    path = trace_path(name)
    if nsys.version_tuple < LEAST_NSYS:
        pytest.skip(f"nsys {nsys.release} has no openacc_sum")
    if not any("OPENACC" in table for table in tables_of(path)):
        pytest.skip(f"{name} has no tables of OpenACC")
    rows = sums(nsys, "openacc_sum", path, tmp_path)
    theirs: dict[str, Sum] = {as_ours(row["Name"]): sum_of(row, "Num Calls") for row in rows}

    trace = read_trace(path)
    ranges = trace.ranges
    constructs = [row for row in range(len(ranges)) if int(ranges.name[row]) in trace.constructs]
    assert theirs == summarize(
        (trace.names[int(ranges.name[row])], int(ranges.end_ns[row] - ranges.start_ns[row])) for row in constructs
    )


def test_constructs_of_openmp(nsys: Nsys, tmp_path: Path) -> None:
    """On an export that the simulator writes: no trace here holds one, and clang's runtime tells nsys nothing."""
    if nsys.version_tuple < LEAST_NSYS:
        pytest.skip(f"nsys {nsys.release} has no openmp_sum")
    export, chance = Export(), random.Random(41)
    for thread in (export.thread(), export.thread(1_001)):
        export.osrt(thread, 0, US, "read")
        common: Row = {"globalTid": thread.global_tid, "eventClass": 0}
        for step in range(20):
            begin = step * 100 * US
            for number, (table, name) in enumerate(CONSTRUCTS.items()):
                start, length = begin + 10 * number * US, chance.randrange(1, 10) * US
                export.row(table, start=start, end=start + length, nameId=Name(name), **common)
    path = export.write(tmp_path / "openmp.sqlite", "2023")
    theirs: dict[str, Sum] = {row["Name"]: sum_of(row, "Count") for row in sums(nsys, "openmp_sum", path, tmp_path)}

    trace = read_trace(path)
    ranges = trace.ranges
    rows = [row for row in range(len(ranges)) if trace.domains[int(ranges.domain[row])] == OPENMP]
    assert len(theirs) == len(CONSTRUCTS)
    assert theirs == summarize(
        (trace.names[int(ranges.name[row])], int(ranges.end_ns[row] - ranges.start_ns[row])) for row in rows
    )
