"""Nodes that are missing inside one launch of a CUDA graph are lost records, not idle time."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

import boundby
from boundby.results.report import Report

US, MS = 1_000, 1_000_000
#: Nodes of the graph: number and duration; one follows the other by a microsecond.
NODES = {10: 200 * US, 11: 2 * MS, 12: 300 * US, 13: 1 * MS}
LAUNCHES = 12


def _trace(
    path: Path, *, lost: dict[int, set[int]], pause_ns: int = 0, skipped: frozenset[int] = frozenset()
) -> Report:
    """Launches of one graph. ``lost``: nodes without a record, by launch. ``pause_ns``: idle time after the first node
    of each. ``skipped``: launches in which node 12 does not run, and the next one follows at once."""
    export = Export()
    thread = export.thread(100, 100)
    at = 1 * MS
    for number in range(LAUNCHES):
        export.nvtx(thread, at, at + 5 * MS, f"step {number}")
        call = export.api(thread, at + 10 * US, at + 30 * US, "cudaGraphLaunch_v10000")
        begin = at + 40 * US
        for node, length in NODES.items():
            if node == 12 and number in skipped:
                continue
            if node not in lost.get(number, set()):
                export.kernel(call, begin, begin + length, graph_node=node, name=f"kernel_{node}")
            begin += length + 1 * US + (pause_ns if node == 10 else 0)
        export.api(thread, at + 50 * US, begin + 5 * US, "cudaStreamSynchronize_v3020")
        at = begin + 20 * US
    return boundby.analyze(export.write(path))


def test_nodes_that_other_launches_run_are_lost(tmp_path: Path) -> None:
    report = _trace(tmp_path / "lost.sqlite", lost={3: {11}, 5: {11, 12}, 8: {12}})
    (device,) = report.devices
    assert device.coverage.launches_lost == 3
    assert device.time["unattributed"] == pytest.approx(2 * MS + 2.3 * MS + 0.3 * MS, rel=0.01)
    (told,) = [one for one in report.findings if one.rule == "trace-events-lost"]
    assert "4 nodes of CUDA graphs are not on record" in told.title


def test_a_whole_trace_has_none(tmp_path: Path) -> None:
    report = _trace(tmp_path / "whole.sqlite", lost={})
    assert report.devices[0].coverage.launches_lost == 0
    assert not [one for one in report.findings if one.rule == "trace-events-lost"]


def test_a_branch_that_does_not_run_is_not_lost(tmp_path: Path) -> None:
    """Of a conditional node nothing runs, and what comes after follows at once."""
    report = _trace(tmp_path / "branch.sqlite", lost={}, skipped=frozenset({1, 4, 7}))
    assert report.devices[0].coverage.launches_lost == 0


def test_the_device_idles_for_long_between_nodes_of_every_launch(tmp_path: Path) -> None:
    """Nobody launches between the nodes of one launch: what runs there was never recorded, or is a host function."""
    report = _trace(tmp_path / "pause.sqlite", lost={}, pause_ns=64 * MS)
    (device,) = report.devices
    assert device.time["unattributed"] == pytest.approx(LAUNCHES * 64 * MS, rel=0.01)
    assert device.verdict.confidence == "low"
    (told,) = [one for one in report.findings if one.rule == "trace-events-lost"]
    assert "the GPU seems idle between nodes of CUDA graphs for 768 ms in 12 launches" in told.title


def test_where_a_graph_that_is_traced_as_a_whole_was_captured(tmp_path: Path) -> None:
    """CUDA_GRAPH_EVENTS: what is launched was made from a graph, which was captured in a range."""
    export = Export()
    thread = export.thread(100, 100)
    export.nvtx(thread, 0, 9 * MS, "capture decode")
    export.graph_made(thread, 2 * MS, 1)
    export.graph_made(thread, 12 * MS, 1, launched=2)
    for step in range(10):
        at = (20 + 5 * step) * MS
        export.nvtx(thread, at, at + 4 * MS, f"step {step}")
        call = export.api(thread, at + 10 * US, at + 30 * US, "cudaGraphLaunch_v10000")
        export.graph(call, at + 40 * US, at + 3 * MS)
        export.api(thread, at + 50 * US, at + 3 * MS + 5 * US, "cudaStreamSynchronize_v3020")
    report = boundby.analyze(export.write(tmp_path / "whole.sqlite"))
    (told_of,) = [one for one in report.findings if one.rule == "trace-graph-level"]
    assert told_of.title.endswith("captured in capture decode")
    assert told_of.evidence["graphs"] == 1
    assert "--cuda-graph-trace=node" in told_of.advice[0]
