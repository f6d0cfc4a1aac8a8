"""API calls and OS calls agree with NVIDIA's reports; what boundby drops, it drops by a rule."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.oracle.nsys_reports import CUDA_BACKTRACE, NsysReports
from tests.oracle.ours import analysis, call_name, query, sum_of, summarize
from tests.support.traces import programs, tables_of, trace_path

TRACES = programs()
_OS_CALL = 27
_STARTED = ("OS runtime libraries profiling started", "OS runtime libraries profiling finished")


@pytest.mark.nsys
@pytest.mark.parametrize("name", TRACES)
def test_api_calls_by_name(nvidia: NsysReports, name: str) -> None:
    path = trace_path(name)
    table = analysis(path).trace.api
    if not nvidia.has(path, "cuda_api_sum"):
        assert len(table) == 0
        return
    names = analysis(path).trace.names
    found = summarize(
        (names[table.name[row]], int(table.end_ns[row] - table.start_ns[row])) for row in range(len(table))
    )
    theirs = Counter((row["Name"], sum_of(row, "Num Calls")) for row in nvidia.rows(path, "cuda_api_sum"))
    assert Counter((call_name(name), entry) for name, entry in found.items()) == theirs


@pytest.mark.parametrize("name", TRACES)
def test_calls_inside_others_count_once(name: str) -> None:
    """Named difference: the report counts a driver call inside a runtime call once, with the outer one's time."""
    path = trace_path(name)
    has_calls = "CUPTI_ACTIVITY_KIND_RUNTIME" in tables_of(path)
    rows = has_calls and query(
        path,
        "SELECT globalTid, start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        f" WHERE eventClass != {CUDA_BACKTRACE} ORDER BY globalTid, start, -end",
    )
    reach: dict[int, int] = defaultdict(lambda: -(1 << 63))
    count = total = 0
    for thread, start, end in rows or ():
        if end > reach[thread] or start >= reach[thread]:  # not inside an earlier call
            count += 1
            total += end - max(start, reach[thread])
            reach[thread] = end
    root = analysis(path).report.regions[0]
    assert (root.api.calls, root.api.total_ns) == (count, total)


@pytest.mark.nsys
@pytest.mark.parametrize("name", TRACES)
def test_os_calls_by_name(nvidia: NsysReports, name: str) -> None:
    check_os_calls(nvidia, trace_path(name))


def check_os_calls(nvidia: NsysReports, path: Path) -> None:
    """OS calls of one trace against ``osrt_sum``."""
    trace = analysis(path).trace
    table = trace.os_calls
    if not nvidia.has(path, "osrt_sum"):
        assert len(table) == 0
        return
    found = summarize(
        (trace.names[table.name[row]], int(table.end_ns[row] - table.start_ns[row])) for row in range(len(table))
    )
    # Named difference: two marks of the profiler's stand in the same table. They take no time.
    marks = {name: found.pop(name) for name in _STARTED if name in found}
    assert all(mark.longest_ns == 0 for mark in marks.values())
    assert found == {row["Name"]: sum_of(row, "Num Calls") for row in nvidia.rows(path, "osrt_sum")}
