"""Samples of the GPU's counters: as SQL has them, out of every form in which exports hold them."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

import boundby
from boundby.claims.limits import limit
from boundby.readers import read_trace
from boundby.results.report import Counters, DeviceReport
from boundby.trace.vocabulary.profiler import METRIC_COLUMNS, WORDS, column_of
from tests.support.alter import alter
from tests.support.counted import SAMPLE_NS, STEPS, TYPE, counted_program, damage_counted, sampled
from tests.support.invariants import check_invariants
from tests.support.traces import trace_path

MS = 1_000_000
REAL = "gpu_metrics_2022_4.sqlite"


def query(path: Path, statement: str) -> list[tuple[float, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(statement).fetchall()


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("SM Active", "sm_active"),
        ("SMs Active [Throughput %]", "sm_active"),
        ("SM Instructions/SM Issue [Throughput %]", "sm_issue"),
        ("Tensor Active / FP16 Active [Throughput %]", "tensor_active"),
        ("DRAM Bandwidth/DRAM Read Bandwidth [Throughput %]", "dram_read"),
        ("PCIe RX Throughput", "pcie_receive"),
        ("NVLink RX Responses User Data [Throughput %]", "nvlink_receive"),
        ("Compute Warps in Flight [Throughput %]", "warps"),
        ("Compute Warps in Flight [Avg Warps per Cycle]", None),
        ("GPC Clock Frequency [MHz]", None),
        ("PCIe Read Requests to BAR1", None),
        ("Unallocated Warps in Active SMs [Throughput %]", None),
        ("", None),
    ],
)
def test_names_of_counters(name: str, column: str | None) -> None:
    assert column_of(name) == column


def test_each_counter_has_words() -> None:
    assert tuple(WORDS) == METRIC_COLUMNS


def test_means_are_those_of_sql() -> None:
    """Of whole samples, by a query; and of the window, in which the samples at its edges count in part."""
    path = trace_path(REAL)
    samples = read_trace(path).metric_samples
    for column, name in (("sm_active", "SM Active"), ("dram_read", "DRAM Read Throughput"), ("gr_active", "GR Active")):
        ((mean, count),) = query(
            path,
            "SELECT avg(value), count(*) FROM GPU_METRICS JOIN TARGET_INFO_GPU_METRICS USING (typeId, metricId) "
            f"WHERE metricName = '{name}'",
        )
        assert len(samples) == count
        assert getattr(samples, column).mean() == pytest.approx(mean)
    (device,) = boundby.analyze(path).devices
    assert device.counters is not None
    assert device.counters.window is not None
    low, high = device.window.start_ns, device.window.end_ns
    overlap = f"(min(timestamp + 100000, {high}) - max(timestamp, {low}))"
    ((mean,),) = query(
        path,
        f"SELECT sum(value * {overlap}) * 1.0 / sum({overlap}) FROM GPU_METRICS JOIN TARGET_INFO_GPU_METRICS "
        f"USING (typeId, metricId) WHERE metricName = 'SM Active' AND timestamp > {low} - 100000 "
        f"AND timestamp < {high}",
    )
    assert device.counters.window.sm_active == pytest.approx(mean / 100, rel=1e-4)


def test_work_that_the_counters_show_without_a_record_is_told() -> None:
    """96 % of the SMs work in the time that the operations on record leave idle."""
    report = boundby.analyze(trace_path(REAL))
    assert "lost-beside-counters" in {warning.code for warning in report.trace.warnings}
    (device,) = report.devices
    assert device.verdict.bound == "unknown"
    assert "counters show work" in (device.verdict.why_not or "")
    assert device.time["unattributed"] > 0.9 * device.window_ns
    assert device.first_responses[0].id == "stop-sharing"
    assert all(item.high_ns == item.baseline_ns for item in report.what_if)  # whose work it is decides


def test_the_same_as_json(tmp_path: Path) -> None:
    path = tmp_path / "json.sqlite"
    shutil.copyfile(trace_path(REAL), path)
    plain = read_trace(path).metric_samples
    alter(path, "DROP TABLE GPU_METRICS")
    as_json = read_trace(path).metric_samples
    for column in ("start_ns", "end_ns", *METRIC_COLUMNS):
        assert (getattr(as_json, column) == getattr(plain, column)).all(), column


def analyzed(export: Export, path: Path, schema: str = "2023") -> DeviceReport:
    report = boundby.analyze(export.write(path, schema=schema))
    check_invariants(report)
    assert not any(table.name.startswith("GPU_METRICS") for table in report.trace.not_read)
    return report.devices[0]


@pytest.mark.parametrize("schema", ["2022", "2023", "2026"])
def test_busy_and_idle_time_are_told_apart(tmp_path: Path, schema: str) -> None:
    busy = {"SM Active": 90, "SM Issue": 30, "DRAM Read Throughput": 50, "DRAM Write Throughput": 25}
    device = analyzed(sampled(busy), tmp_path / "a.sqlite", schema)
    found = device.counters
    assert found is not None
    assert found.busy is not None
    assert found.idle is not None
    assert found.window is not None
    assert (found.busy.sm_active, found.busy.sm_issue, found.busy.dram) == pytest.approx((0.9, 0.3, 0.75))
    assert found.idle.sm_active == 0
    assert found.window.sm_active == pytest.approx(0.9 * 90 / 99)
    (kernel,) = found.kernels
    assert kernel.counters.sm_active == pytest.approx(0.9)
    assert kernel.counters.alone_fraction == pytest.approx(1)
    assert limit(found.busy).startswith("Memory bandwidth is the limit of the kernels (memory 75 %")
    assert found.busy.nvlink_send is None  # not sampled


@pytest.mark.parametrize(
    ("busy", "told"),
    [
        ({"SM Active": 95, "Tensor Active": 81}, "The tensor cores are the limit"),
        ({"SM Active": 95, "SM Issue": 75}, "Instruction issue is the limit"),
        ({"SM Active": 12, "SM Issue": 5}, "Only 12 % of the multiprocessors (SMs) are active while the GPU is busy"),
        ({"SM Active": 95, "SM Issue": 20}, "No unit is used beyond 50 % of its peak"),
    ],
)
def test_the_limit_is_named(tmp_path: Path, busy: dict[str, int], told: str) -> None:
    device = analyzed(sampled(busy), tmp_path / "a.sqlite")
    assert device.counters is not None
    assert limit(device.counters.busy).startswith(told)


def test_mixed_samples_name_no_limit() -> None:
    assert limit(Counters(sampled_ns=1, alone_fraction=0.5, sm_active=0.1, dram_read=0.9, dram_write=0.0)) == ""
    assert limit(None) == ""


def test_work_of_others_is_seen(tmp_path: Path) -> None:
    """In each of nine gaps of 1 ms, but for the samples of 100 us beside operations: those may hold some of them."""
    report = boundby.analyze(sampled({"SM Active": 90}, idle={"SM Active": 80}).write(tmp_path / "a.sqlite"))
    assert "lost-beside-counters" in {warning.code for warning in report.trace.warnings}
    (device,) = report.devices
    assert device.time["unattributed"] == device.coverage.unseen_ns == 9 * 8 * SAMPLE_NS
    assert device.verdict.bound == "gpu_compute"  # whatever ran in the gaps
    report = boundby.analyze(sampled({"SM Active": 90}, idle={"SM Active": 40}).write(tmp_path / "c.sqlite"))
    assert report.devices[0].coverage.unseen_ns == 0  # of a display, it may be
    report = boundby.analyze(sampled({"SM Active": 90}).write(tmp_path / "b.sqlite"))
    assert "lost-beside-counters" not in {warning.code for warning in report.trace.warnings}


def test_values_that_cannot_be_are_not_told(tmp_path: Path) -> None:
    """A first sample of nonsense is common: clocks of -1,964,454,041 Hz."""
    export = sampled({"SM Active": 90})
    for number, value in enumerate((-1964454041, 101, 1 << 62)):
        export.row("GPU_METRICS", timestamp=-MS, rawTimestamp=0, typeId=TYPE, metricId=number, value=value)
    export.row("GPU_METRICS", timestamp=5 * MS, rawTimestamp=0, typeId=TYPE + 7, metricId=0, value=1)  # another GPU
    export.row("GPU_METRICS", timestamp=5 * MS, rawTimestamp=0, typeId=TYPE, metricId=99, value=1)  # without a name
    device = analyzed(export, tmp_path / "a.sqlite")
    assert device.counters is not None
    assert device.counters.busy is not None
    assert device.counters.busy.sm_active == pytest.approx(0.9)


@pytest.mark.parametrize("seed", range(40))
def test_damage_to_these_tables_gives_no_confident_error(tmp_path: Path, seed: int) -> None:
    """What else the export holds decides the verdict: as sure as without these tables, or less. More of it:
    ``python -m benchmarks.fuzz --kind counters``."""
    path = counted_program().write(tmp_path / "a.sqlite", schema=("2022", "2023", "2026")[seed % 3])
    sound = boundby.analyze(path).devices[0].verdict
    damage_counted(path, random.Random(seed))
    report = boundby.analyze(path)
    check_invariants(report)
    assert report.devices[0].verdict.bound == sound.bound


def test_the_roofline_uses_measured_traffic(tmp_path: Path) -> None:
    """A product that needs 67 MB at least, in 9 ms: the counters saw 75 % of 1,555 GB/s all the while."""
    busy = {"SM Active": 90, "DRAM Read Throughput": 50, "DRAM Write Throughput": 25}
    export, plain = sampled(busy), sampled({})
    for each in (export, plain):
        each.gpu(0, "NVIDIA A100-SXM4-40GB")
        sizes = "aten::mm, seq = 1, sizes = [[4096, 4096], [4096, 4096]]"
        for step in range(STEPS):
            each.nvtx(each.thread(), step * 10 * MS - 60_000, step * 10 * MS - 30_000, sizes)
    plain.rows = {table: rows for table, rows in plain.rows.items() if table != "GPU_METRICS"}
    works = []
    for name, each in (("a", export), ("b", plain)):
        report = boundby.analyze(each.write(tmp_path / f"{name}.sqlite", schema="2023"))
        check_invariants(report)
        works.append(report.regions[0].work)
    measured, least = works
    assert measured is not None
    assert least is not None
    assert least.measured_bytes is None
    assert measured.gb_per_s == pytest.approx(0.75 * 1555, rel=0.01)
    assert measured.roofline_fraction == pytest.approx(0.75, abs=0.01)
    assert (least.gb_per_s or 0) < 50
    assert measured.flops == least.flops


def test_damaged_counters_are_left_out_and_told(tmp_path: Path) -> None:
    path = counted_program().write(tmp_path / "a.sqlite", schema="2023")
    alter(path, "UPDATE GPU_METRICS SET value = 'soon' WHERE rowid % 7 = 0")
    report = boundby.analyze(path)
    assert report.devices[0].counters is None
    assert not report.trace.captured.gpu_metrics
    assert "broken-rows" in {warning.code for warning in report.trace.warnings}
    assert report.devices[0].memory is not None
