"""Device figures of the report against plain SQL on the trace: also where NVIDIA's scripts refuse to read it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from boundby.model.causes import BUSY_CAUSES
from boundby.results.report import DeviceReport
from tests.oracle.ours import analysis, query
from tests.support.traces import programs, tables_of, trace_path

TRACES = programs()

KERNEL, GRAPH, MEMCPY, MEMSET = (
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET")
)
# CUPTI's copy kinds by direction; the second are page migrations of managed memory.
_KINDS = {"HtoD": (1, 3, 11), "DtoH": (2, 4, 12), "DtoD": (5, 6, 7, 8, 13), "HtoH": (9,), "PtoP": (10,)}
_MIGRATIONS = "(11, 12, 13)"


def _devices(path: Path) -> dict[int, DeviceReport]:
    """The report's devices by CUDA ordinal, where each ordinal belongs to one process; else the test is skipped."""
    tables = [table for table in (KERNEL, GRAPH, MEMCPY, MEMSET) if table in tables_of(path)]
    users = defaultdict(set)
    for table in tables:
        for device, process in query(path, f"SELECT DISTINCT deviceId, globalPid FROM {table}"):
            users[device].add(process)
    if any(len(processes) > 1 for processes in users.values()):
        pytest.skip("several processes use one CUDA ordinal, which need not be one GPU")
    devices = {device.id: device for device in analysis(path).report.devices}
    assert set(devices) == set(users)
    return devices


@pytest.mark.parametrize("name", TRACES)
def test_kernels_and_graphs_by_device(name: str) -> None:
    path = trace_path(name)
    devices = _devices(path)
    for table, figure in ((KERNEL, "kernels"), (GRAPH, "graphs")):
        sql = f"SELECT deviceId, count(*), sum(end - start) FROM {table} GROUP BY 1"
        expected = {row[0]: row[1:] for row in query(path, sql)} if table in tables_of(path) else {}
        for number, device in devices.items():
            found = getattr(device, figure)
            assert ((found.count, found.total_ns) if found else (0, 0)) == expected.get(number, (0, 0))


@pytest.mark.parametrize("name", TRACES)
def test_copies_by_device_and_direction(name: str) -> None:
    path = trace_path(name)
    has_copies = MEMCPY in tables_of(path)
    for number, device in _devices(path).items():
        for direction, kinds in _KINDS.items():
            sql = (
                "SELECT count(*), ifnull(sum(bytes), 0), ifnull(sum(end - start), 0),"
                f" ifnull(sum((srcKind = 0 OR dstKind = 0) AND copyKind NOT IN {_MIGRATIONS}), 0) FROM {MEMCPY}"
                f" WHERE deviceId = {number} AND copyKind IN ({', '.join(map(str, kinds))})"
            )
            expected = query(path, sql)[0] if has_copies else (0, 0, 0, 0)
            found = device.memcpy.get(direction)
            ours = (found.count, found.bytes, found.total_ns, found.pageable_count) if found else (0, 0, 0, 0)
            assert ours == expected, direction


@pytest.mark.parametrize("name", TRACES)
def test_utilization_is_a_union(name: str) -> None:
    """Named difference: NVIDIA's sums count operations that overlap twice; the report counts an instant once."""
    path = trace_path(name)
    for number, device in _devices(path).items():
        tables = [table for table in (KERNEL, GRAPH, MEMCPY, MEMSET) if table in tables_of(path)]
        sql = " UNION ALL ".join(f"SELECT start, end FROM {table} WHERE deviceId = {number}" for table in tables)
        busy, total, reach = 0, 0, -(1 << 63)
        rows = query(path, f"{sql} ORDER BY 1")
        for start, end in rows:
            total += end - start
            busy += max(0, end - max(start, reach))
            reach = max(reach, end)
        assert device.busy_ns == busy <= total
        assert device.busy_ns == sum(device.time[cause.key] for cause in BUSY_CAUSES)
        assert device.window.start_ns == rows[0][0]
        if "rows_lost" in name:  # the last launches lost their work: the window ends where that has ended
            assert device.window.end_ns > reach
        else:
            assert device.window.end_ns == reach
        assert device.idle_ns == device.gaps.total_ns == device.window_ns - busy
