"""Collectives by the size of their messages, against a plain reading of a real trace."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict

import pytest

import boundby
from boundby.cli.main import main
from tests.support.traces import trace_path

TRACE = "kineto/a100_two_ranks_nccl_rank0.json.gz"
WIDTH = {"Float": 4, "Long": 8}


@pytest.fixture(scope="module")
def report() -> boundby.Report:
    return boundby.analyze(trace_path(TRACE))


def test_sizes_speed_and_waiting_by_hand(report: boundby.Report) -> None:
    lengths: dict[tuple[str, int], list[float]] = defaultdict(list)
    with gzip.open(trace_path(TRACE)) as file:
        for event in json.load(file)["traceEvents"]:
            told = event.get("args", {})
            if event.get("cat") == "kernel" and "Collective name" in told:
                elements = max(told["In msg nelems"], told["Out msg nelems"])
                lengths[told["Collective name"], elements * WIDTH[told["dtype"]]].append(event["dur"])
    assert {(one.name, one.bytes): one.count for one in report.collectives} == {
        key: len(durations) for key, durations in lengths.items()
    }
    for one in report.collectives:
        mine = lengths[one.name, one.bytes]
        assert one.ranks == 2
        assert one.total_ns == pytest.approx(1e3 * sum(mine), rel=1e-5)
        assert one.fastest_ns == pytest.approx(1e3 * min(mine), rel=1e-3)
        assert one.gb_per_s == pytest.approx(one.bytes / one.median_ns, rel=1e-3)
        needed = min(min(every) for (name, size), every in lengths.items() if name == one.name and size >= one.bytes)
        assert one.waiting_ns == pytest.approx(1e3 * sum(max(us - needed, 0) for us in mine), rel=1e-3, abs=20)


def test_the_table_stands_in_text_and_csv(report: boundby.Report, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(trace_path(TRACE)), "--full", "--width", "120", "-q"]) == 0
    assert "COLLECTIVES BY SIZE" in capsys.readouterr().out
    assert main(["analyze", str(trace_path(TRACE)), "--format", "collectives-csv", "-q"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(report.collectives)
