"""NVIDIA's own reports on a trace: ``nsys stats`` and ``nsys analyze``, run on a copy and read back from CSV."""

from __future__ import annotations

import contextlib
import csv
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from boundby.capture.nsys import Nsys
from tests.support.traces import tables_of, traces

Row = Mapping[str, str]

#: Reports had other names before.
LEAST_NSYS = (2023, 1)
TIMEOUT_S = 120
CUDA_BACKTRACE = 67  # eventClass
STATS = (
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_kern_exec_trace",
    "cuda_api_sum",
    "osrt_sum",
    "nvtx_sum",
    "nvtx_kern_sum",
    "nvtx_gpu_proj_trace",
)
#: Rules of ``nsys analyze`` with the options that make them list everything.
RULES = ("gpu_gaps:rows=-1:gap=0", "cuda_memcpy_async:rows=-1")

# A report without rows says nothing after the dots, not even an end of line.
_OUTCOME = re.compile(
    r"Processing \[.*?\] with \[.*?(\w+)\.py\].*? to \[(.*?)\]\.\.\. *(.*?)(?=Processing \[|\Z)", re.DOTALL
)
_NO_DATA = "SKIPPED"
_OTHER_SCHEMA = re.compile(r"ENUM_|re-export")


def _call_once(copy: Path) -> None:
    """Take out what repeats a call to carry its backtrace: NVIDIA counts that, and its kernels, twice."""
    if "CUPTI_ACTIVITY_KIND_RUNTIME" not in tables_of(copy):
        return
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute(f"DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass = {CUDA_BACKTRACE}")


class NsysReports:
    """Every report of a trace, run once for the tests of this trace, which follow one another."""

    def __init__(self, nsys: Nsys, folder: Path) -> None:
        if nsys.version_tuple < LEAST_NSYS:
            pytest.skip(f"nsys {nsys.release} has other report names: 2023.1 or later is needed")
        self._nsys = nsys
        self._folder = folder
        self._known: dict[Path, dict[str, tuple[Row, ...] | str]] = {}

    def rows(self, trace: Path, report: str) -> tuple[Row, ...]:
        """The rows of one report (none, where NVIDIA finds nothing to report)."""
        found = self._all(trace)[report]
        if isinstance(found, str):
            pytest.fail(f"nsys gives no {report} for {trace.name}: {found}")
        return found

    def has(self, trace: Path, report: str) -> bool:
        """Whether the trace holds what the report is about; skips the test where its script refuses the schema."""
        found = self._all(trace)[report]
        if isinstance(found, str) and _OTHER_SCHEMA.search(found):
            pytest.skip(f"{report} does not read this schema (test_plain_sql.py does): {found.partition(' ')[2]}")
        return not isinstance(found, str)

    def _all(self, trace: Path) -> dict[str, tuple[Row, ...] | str]:
        if trace not in self._known:
            place = self._folder / "reports"
            place.mkdir()
            copy = place / "trace.sqlite"
            shutil.copyfile(trace, copy)  # without the mode: nsys wants to write to what it reads
            if trace in traces():
                _call_once(copy)
            found = self._run(copy, "stats", "--report", STATS) | self._run(copy, "analyze", "--rule", RULES)
            self._known = {trace: found}
            shutil.rmtree(place)
        return self._known[trace]

    def _run(
        self, database: Path, command: str, option: str, names: tuple[str, ...]
    ) -> dict[str, tuple[Row, ...] | str]:
        chosen = [word for name in names for word in (option, name)]
        to = ["--format=csv", f"--output={database.with_name('out')}", "--force-export=false"]
        answer = subprocess.run(
            [str(self._nsys.path), command, *chosen, *to, str(database)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        outcomes = {name: (file, outcome) for name, file, outcome in _OUTCOME.findall(answer.stdout)}
        found: dict[str, tuple[Row, ...] | str] = {}
        for name in (name.split(":")[0] for name in names):
            if name not in outcomes:
                pytest.fail(f"nsys {command} says nothing about {name}:\n{answer.stdout}\n{answer.stderr}")
            file, outcome = outcomes[name]
            if outcome.startswith(_NO_DATA):
                found[name] = outcome.partition(": ")[2].strip()
            else:
                with Path(file).open(newline="", encoding="utf-8", errors="replace") as text:
                    found[name] = tuple(csv.DictReader(text))
        return found
