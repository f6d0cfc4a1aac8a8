"""Backtraces of samples, CUDA and OS calls, and Python stacks, from exports made here and real ones."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from boundby.api import Analysis
from boundby.readers import read_trace
from boundby.readers.nsys.callchains import python_frames
from boundby.trace.stacks import StackSource
from tests.support.alter import alter
from tests.support.traces import trace_path

TID = (7 << 24) | 7


def export(path: Path, *, python: str | None = None, tables: bool = True) -> Path:
    """One thread: two samples with the same stack, one CUDA call and two OS calls, one of them without a stack."""
    connection = sqlite3.connect(path)
    run = connection.execute
    run("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    texts = ["leaf", "main", "prog", "libx.so", "cudaLaunchKernel", "poll", "0x7f"]
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(texts))
    columns = "start, end, eventClass, globalTid, correlationId, nameId, callchainId"
    run(f"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME ({columns})")
    connection.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, 4, ?)",
        [(100, 110, 0, TID, 1, 0), (200, 210, 0, TID, 2, 9), (200, 210, 67, TID, 2, 9)],
    )
    run("CREATE TABLE OSRT_API (start, end, globalTid, nameId, callchainId)")
    connection.executemany("INSERT INTO OSRT_API VALUES (?, ?, ?, 5, ?)", [(300, 310, TID, 1), (320, 330, TID, 0)])
    run("CREATE TABLE COMPOSITE_EVENTS (id, start, globalTid)")
    connection.executemany("INSERT INTO COMPOSITE_EVENTS VALUES (?, ?, ?)", [(1, 50, TID), (2, 60, TID), (3, 70, TID)])
    if tables:
        chains: dict[str, list[tuple[int | None, ...]]] = {
            "SAMPLING_CALLCHAINS": [(1, 0, 3, None, 0), (1, 1, 2, None, 1), (2, 1, 2, None, 1), (2, 0, 3, None, 0)],
            "CUDA_CALLCHAINS": [(9, 6, 3, 1, 0), (9, 1, 2, None, 1)],
            "OSRT_CALLCHAINS": [(1, 0, 3, None, 0)],
        }
        for table, rows in chains.items():
            run(f"CREATE TABLE {table} (id, symbol, module, unresolved, stackDepth)")
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", rows)
    run("CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid, domainId, jsonText)")
    if python is not None:
        marks: list[tuple[int | str | None, ...]] = [
            (0, None, 75, "Python Backtrace", TID, 3, None),
            (205, None, 34, None, TID, 3, python or None),
        ]
        marks.append((206, None, 34, "a mark of the program's", TID, 0, "{}"))
        connection.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?)", marks)
    connection.commit()
    connection.close()
    return path


def test_stacks_are_kept_once_nearest_frame_first(tmp_path: Path) -> None:
    trace = read_trace(export(tmp_path / "a.sqlite"))
    assert trace.captured.backtraces
    assert not trace.captured.python_stacks
    found = trace.backtraces.load()
    assert found is trace.backtraces.load()
    samples = found.rows(StackSource.SAMPLE, 0)
    assert found.events.start_ns[samples].tolist() == [50, 60]  # the third has no frames
    first, second = found.events.stack[samples].tolist()
    assert first == second
    assert [found.symbol(frame) for frame in found.frames_of(first)] == ["leaf", "main"]
    assert [found.module(frame) for frame in found.frames_of(first)] == ["libx.so", "prog"]
    calls = found.rows(StackSource.CUDA, 0)
    assert found.events.start_ns[calls].tolist() == [200, 200]  # the call, and the row that repeats it
    frames = found.frames_of(int(found.events.stack[calls][0]))
    assert found.frames.is_resolved[frames].tolist() == [False, True]
    assert found.events.start_ns[found.rows(StackSource.OS)].tolist() == [300]
    assert len(found) == 3


def test_an_export_without_chains(tmp_path: Path) -> None:
    trace = read_trace(export(tmp_path / "a.sqlite", tables=False))
    assert not trace.captured.backtraces
    assert len(trace.backtraces.load().events) == 0


def test_python_stacks(tmp_path: Path) -> None:
    frames = [
        {"Function": "loss", "File": "/me/train.py", "Line": 42},
        {"Function": "<module>", "File": "", "Line": "7"},
    ]
    payload = json.dumps({"Thread state": "Running", "Frames count": 2, "Frames": frames})
    trace = read_trace(export(tmp_path / "a.sqlite", python=payload))
    assert trace.captured.python_stacks
    found = trace.backtraces.load()
    rows = found.rows(StackSource.PYTHON, 0)
    assert found.events.start_ns[rows].tolist() == [205]
    stack = found.frames_of(int(found.events.stack[rows][0]))
    assert [(found.symbol(f), found.module(f), int(found.frames.line[f])) for f in stack] == [
        ("loss", "/me/train.py", 42),
        ("<module>", "", 7),
    ]


def test_python_stacks_that_the_export_left_out(tmp_path: Path) -> None:
    trace = read_trace(export(tmp_path / "a.sqlite", python=""))
    assert not trace.captured.python_stacks
    assert "python-stacks-not-exported" in [warning.code for warning in trace.warnings]


@pytest.mark.parametrize("payload", ["", "{", "[]", "3", '{"Frames": [1]}', '{"Frames": [{"File": "a"}]}'])
def test_payloads_of_another_kind(payload: str) -> None:
    assert python_frames(payload) == []


def test_a_report_that_has_gone(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite")
    trace = read_trace(path)
    path.unlink()
    assert len(trace.backtraces.load()) == 0
    assert str(trace.backtraces.problem).endswith("does not exist.")


def test_stacks_that_are_damaged_are_one_warning(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite")
    alter(path, "UPDATE SAMPLING_CALLCHAINS SET symbol = 'text', id = x'00'", loose="SAMPLING_CALLCHAINS")
    analysis = Analysis(path)
    analysis.trace.backtraces.load()
    (warning,) = [item for item in analysis.report.trace.warnings if item.code == "backtraces-damaged"]
    assert "SAMPLING_CALLCHAINS holds something that is not a number" in warning.message
    assert not analysis.report.trace.captured.backtraces


@pytest.mark.parametrize(
    ("name", "samples", "os_calls"),
    [
        ("pytorch_a100_all_cpu_tables.sqlite", 16150, 841),
        ("transformer_mixed_sync_codes.sqlite", 5895, 0),
        ("rapids_cudf_old_schema.sqlite", 0, 530),
    ],
)
def test_real_traces(name: str, samples: int, os_calls: int) -> None:
    found = read_trace(trace_path(name)).backtraces.load()
    counts = [len(found.events.start_ns[found.rows(source)]) for source in (StackSource.SAMPLE, StackSource.OS)]
    assert counts == [samples, os_calls]
    assert len(found) < samples + os_calls
