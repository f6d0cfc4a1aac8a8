"""On every real trace the plot data says what the Report says: two ways to the same figures."""

from __future__ import annotations

from collections import Counter

import pytest

from boundby.model.causes import CAUSE_KEYS
from tests.support.traces import ABSENT, analysis_of, trace_names

UNREADABLE = "oddities/partial_export.sqlite"
READABLE = [name for name in trace_names() if name != UNREADABLE] or [ABSENT]


@pytest.mark.parametrize("name", READABLE)
def test_plot_data_and_report_agree(name: str) -> None:
    found = analysis_of(name)
    report, plot_data = found.report, found.plot_data
    accounts = [device.time for device in report.devices] or [thread.time for thread in report.threads]
    for lane, account in zip(plot_data.lanes, accounts, strict=True):
        assert dict(zip(CAUSE_KEYS, lane.bins.cause_ns.sum(axis=0).tolist(), strict=True)) == dict(account)
        if lane.fine is not None:
            assert lane.fine.cause_ns.sum(axis=0).tolist() == lane.bins.cause_ns.sum(axis=0).tolist()
    for lane, device in zip(plot_data.lanes, report.devices, strict=False):
        assert (lane.cpu_ns is None) == (device.cpu_utilization is None)
        if lane.cpu_ns is not None and lane.cpu_known_ns is not None:
            share = lane.cpu_ns.sum() / max(lane.cpu_known_ns.sum(), 1)
            assert share == pytest.approx(device.cpu_utilization, abs=0.02)
    kernels = [row for row in plot_data.kernels if not row.is_graph]
    _, more, more_ns = plot_data.kernels_left_out
    assert sum(row.count for row in kernels) + more == sum(device.kernels.count for device in report.devices)
    assert sum(row.total_ns for row in kernels) + more_ns == sum(device.kernels.total_ns for device in report.devices)
    copied, expected = Counter[str](), Counter[str]()
    for row in plot_data.copies:
        if row.kind != "set":
            copied[row.direction] += row.bytes
    for device in report.devices:
        for direction, copies in device.memcpy.items():
            expected[direction] += copies.bytes
    assert +copied == +expected
    # A wait of a thread that serves several devices counts for each of them, and once in the page's list.
    of_devices = [device.sync.blocked_ns for device in report.devices]
    assert max(of_devices, default=0) <= sum(row.blocked_ns for row in plot_data.syncs) <= sum(of_devices)
    assert sum(row.count for row in plot_data.syncs) == sum(device.sync.count for device in report.devices)
    assert plot_data.gap_count == sum(device.gaps.count for device in report.devices)
    regions = {(region.path, region.domain): region for region in report.regions}
    for series in plot_data.instances:
        named = plot_data.regions[series.region]
        region = regions[named.path, named.domain]
        assert region.instances == series.count
        if not series.warm_up:
            assert series.host_median_ns == pytest.approx(region.host.median_ns, abs=1)
