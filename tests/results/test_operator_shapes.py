"""Operators by the shapes of their inputs, against a plain reading of a real trace."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import defaultdict

import pytest
from msgspec.structs import replace

import boundby
from boundby.cli.main import main
from boundby.document.measurements import operator_rows
from tests.support.traces import trace_path

TRACE = "kineto/h100_qwen_chat.json.gz"


@pytest.fixture(scope="module")
def report() -> boundby.Report:
    return boundby.analyze(trace_path(TRACE))


def test_calls_and_kernel_time_by_hand(report: boundby.Report) -> None:
    """Kernels joined with the operators that launched them by the profiler's own numbers."""
    with gzip.open(trace_path(TRACE)) as file:
        events = json.load(file)["traceEvents"]
    kernel_us: dict[int, float] = defaultdict(float)
    for event in events:
        if event.get("cat") == "kernel" and "External id" in event["args"]:
            kernel_us[event["args"]["External id"]] += event["dur"]
    expected: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        number = event.get("args", {}).get("External id")
        if event.get("cat") == "cpu_op" and number in kernel_us:
            sizes = json.dumps(event["args"].get("Input Dims", ""), separators=(",", ":"))
            expected[event["name"], sizes].append(kernel_us[number])
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for one in report.operators:
        found[one.name, one.sizes][0] += one.calls
        found[one.name, one.sizes][1] += one.total_ns
    checked = [key for key in found if key in expected and not key[0].startswith("aten::scaled_dot")]
    assert len(checked) > 15
    for key in checked:
        assert found[key][0] == len(expected[key])
        assert found[key][1] == pytest.approx(sum(expected[key]) * 1e3, rel=1e-6)


def test_a_product_against_the_devices_peak(report: boundby.Report) -> None:
    one = next(one for one in report.operators if one.sizes == "[[8944,1024],[1024,2816]]")
    assert one.work is not None
    assert one.work.flops == 48 * 2 * 8944 * 1024 * 2816
    assert one.work.bytes == 48 * 2 * (8944 * 1024 + 1024 * 2816 + 8944 * 2816)
    assert one.work.roofline_fraction == pytest.approx(one.work.flops / 989.5e12 / (one.total_ns / 1e9), rel=0.01)


def test_the_table_stands_in_text_and_csv(report: boundby.Report, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(trace_path(TRACE)), "--full", "--width", "120", "-q"]) == 0
    shown = capsys.readouterr().out
    assert "OPERATORS BY SHAPE" in shown
    assert "8944x1024, 1024x2816" in shown
    assert main(["analyze", str(trace_path(TRACE)), "--format", "operators-csv", "-q"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["name"] for row in rows] == [one.name for one in report.operators]
    assert int(rows[0]["total_ns"]) == report.operators[0].total_ns


@pytest.mark.parametrize(
    ("told", "shown"),
    [("[[8,4],[4,2]]", "8x4, 4x2"), ("[[[8],[4]]]", "2 tensors"), ("[7,[2]]", "2"), ("7", ""), ("{", "{"), ("", "")],
)
def test_sizes_as_people_read_them(report: boundby.Report, told: str, shown: str) -> None:
    """What a damaged trace holds there is no reason to fall."""
    [row] = operator_rows(replace(report, operators=(replace(report.operators[0], sizes=told),)))
    assert row[1] == shown


def test_a_program_without_operators_has_none() -> None:
    assert boundby.analyze(trace_path("cpp_vector_add.sqlite")).operators == ()
