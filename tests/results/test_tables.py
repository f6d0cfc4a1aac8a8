from __future__ import annotations

import sys
from typing import Annotated

import pandas as pd
import pytest
from msgspec.structs import fields, replace

from boundby.model.causes import CAUSE_KEYS
from boundby.model.errors import UserError
from boundby.results import flat_tables
from boundby.results.flat_tables import columns
from boundby.results.report import Gaps, RegionReport
from boundby.results.saved import Least, from_plain, to_plain
from tests.support import reports


def test_regions() -> None:
    report = reports.sample()
    frame = report.regions_frame()
    assert len(frame) == len(report.regions)
    assert frame["exclusive_ns"].sum() == report.devices[0].window_ns
    assert list(frame.loc[frame["bound"] == "sync", "path"]) == ["", "step", "step/loss"]
    assert frame["gpu_compute_ns"].dtype == "int64"
    assert frame["gpu_utilization"].dtype == "float64"
    assert pd.isna(frame["saving_ns"].iloc[-1])


def test_devices() -> None:
    frame = reports.two_devices().devices_frame()
    assert list(frame["bound"]) == ["sync", "gpu_comm"]
    causes = frame[[f"{key}_ns" for key in CAUSE_KEYS]].sum(axis=1)
    assert (causes == frame["window_ns"]).all()


def test_kernels_and_calls_of_each_region_are_rows() -> None:
    report = reports.with_tops()
    for frame, tops in (
        (report.kernels_frame(), [(region, region.kernels.top) for region in report.regions]),
        (report.calls_frame(), [(region, region.api.top) for region in report.regions]),
    ):
        assert list(frame.columns) == ["path", "domain", "name", "count", "total_ns"]
        expected = [("/".join(region.path), one.name, one.total_ns) for region, top in tops for one in top]
        assert list(frame[["path", "name", "total_ns"]].itertuples(index=False, name=None)) == expected
        assert expected


def test_findings_are_rows() -> None:
    frame = reports.sample().findings_frame()
    assert list(frame["rule"]) == ["sync-operator", "trace-graph-level"]
    assert frame["saving_high_ns"][0] == 1_300_000_000
    assert pd.isna(frame["saving_high_ns"][1])


def test_empty_frames_have_their_columns() -> None:
    assert list(reports.empty().regions_frame().columns) == list(columns("regions"))
    frame = reports.empty().devices_frame()
    assert list(frame.columns) == list(columns("devices"))
    assert frame["busy_ns"].sum() == 0


def test_without_pandas_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        reports.sample().regions_frame()


class Grown(RegionReport, frozen=True, kw_only=True):
    """A region with one more field and one more part."""

    stalls: Annotated[int, Least(0), "Times it stalled."] = 3
    stall: Annotated[Gaps | None, "How long."] = None


def test_a_new_field_is_in_every_format() -> None:
    base = reports.sample().regions[1]
    grown = Grown(**{field.name: getattr(base, field.name) for field in fields(base)}, stall=Gaps(1, 2, 2))
    added = list(flat_tables.columns_of(Grown))[len(columns("regions")) :]
    assert [column.name for column in added] == ["stalls", "stall_count", "stall_total_ns", "stall_longest_ns"]
    assert [column.get(grown) for column in added] == [3, 1, 2, 2]
    assert [column.get(replace(grown, stall=None)) for column in added] == [3, None, None, None]
    data = to_plain(grown)
    assert (data["stalls"], data["stall"]) == (3, {"count": 1, "total_ns": 2, "longest_ns": 2, "short_ns": 0})
    assert from_plain(Grown, data) == replace(grown, graphs=None)


def test_columns_of_a_report_are_what_they_were() -> None:
    """Readers of spreadsheets and databases go by them."""
    verdict = "bound confidence saving_ns runner_up runner_up_saving_ns bound_next because"
    assert " ".join(columns("findings")) == (
        "rank rule severity title region saving_low_ns saving_high_ns advice docs instances disproof finding"
        " remedy change code"
    )
    assert " ".join(columns("devices")).startswith(
        f"device name {verdict} window_start_ns window_end_ns window_ns busy_ns idle_ns startup_ns shutdown_ns"
        " gpu_utilization cpu_utilization host_active_ns gpu_compute_ns"
    )
    assert " ".join(columns("threads")).startswith(f"pid tid name {verdict} total_ns cpu_utilization gpu_compute_ns")
    regions = " ".join(columns("regions"))
    assert regions.startswith(f"path name depth domain instances share {verdict} total_ns gpu_compute_ns")
    assert " unattributed_ns exclusive_ns exclusive_gpu_compute_ns " in regions
    assert " host_total_ns host_mean_ns host_median_ns host_p95_ns host_max_ns projected_total_ns " in regions
    assert regions.endswith(
        "gpu_utilization gpu_utilization_host cpu_utilization gap_count gap_total_ns gap_longest_ns kernel_count"
        " kernel_total_ns kernel_median_ns kernel_top_name api_calls api_total_ns api_per_ms api_top_name sync_count"
        " sync_blocked_ns sync_per_ms"
        " copy_count copy_bytes copy_total_ns launch_latency_median_ns launch_latency_p95_ns queue_depth_median threads"
        " open_instances found exposed_by_waits_ns"
        " coverage_launches_recorded_fraction coverage_host_state_fraction coverage_launches"
        " coverage_launches_lost coverage_unrecorded_ns coverage_calls_lost_fraction coverage_uncalled"
        " coverage_before_ns coverage_is_cpu_thinned coverage_unseen_ns"
        " payload_count payload_total payload_least payload_most payload_ns_per_unit payload_name"
        " communication_total_ns communication_exposed_ns communication_hidden_fraction"
    )
