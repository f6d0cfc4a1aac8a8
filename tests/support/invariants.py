"""What holds for every report (docs/account.md), whatever was in the trace."""

from __future__ import annotations

from collections.abc import Mapping

from boundby.model.causes import BUSY_CAUSES, CAUSE_KEYS
from boundby.results.report import Report

_BUSY = tuple(cause.key for cause in BUSY_CAUSES)


def check_invariants(report: Report) -> None:
    """Causes sum to the window, regions sum to the window, busy + idle = window, and nothing is negative."""
    whole = 0
    for device in report.devices:
        assert device.window_ns > 0
        assert set(device.time) == set(CAUSE_KEYS)
        assert sum(device.time.values()) == device.window_ns
        assert sum(device.time[cause] for cause in _BUSY) == device.busy_ns
        assert device.busy_ns + device.idle_ns == device.window_ns
        assert device.gaps.total_ns == device.idle_ns
        assert device.gaps.longest_ns <= device.gaps.total_ns
        _none_negative(device.time)
        assert min(device.startup_ns, device.shutdown_ns, device.idle_ns, device.busy_ns) >= 0
        assert min(device.kernels.total_ns, device.api.total_ns, device.sync.blocked_ns) >= 0
        for copies in device.memcpy.values():
            assert min(copies.count, copies.total_ns, copies.bytes) >= 0
        whole += device.window_ns
    for thread in report.threads:
        assert sum(thread.time.values()) == thread.total_ns
        _none_negative(thread.time)
        whole += thread.total_ns
    for region in report.regions:
        _none_negative(region.time)
        _none_negative(region.time_exclusive)
        assert all(region.time[cause] >= region.time_exclusive[cause] for cause in CAUSE_KEYS)
        assert min(region.instances, region.host.total_ns, region.host.max_ns) >= 0
        assert region.gpu_utilization is None or 0 <= region.gpu_utilization <= 1
    places = [(region.domain, region.path) for region in report.regions]
    assert len(set(places)) == len(places), "a path twice"
    longest = max((device.window_ns for device in report.devices), default=0)
    for device in report.devices:
        _saves(device.verdict.saving_ns, device.window_ns)
    for finding in report.findings:
        if finding.saving_ns is not None and longest:
            assert 0 <= finding.saving_ns[0] <= finding.saving_ns[1] <= longest, finding
    for answer in report.what_if:
        assert 0 <= answer.predicted_ns <= answer.baseline_ns, answer
    if report.analysis.region_glob is None and report.analysis.min_share == 0 and report.regions:
        assert sum(sum(region.time_exclusive.values()) for region in report.regions) == whole
        assert sum(next(region for region in report.regions if not region.path).time.values()) == whole


def _saves(saving_ns: int | None, window_ns: int) -> None:
    assert saving_ns is None or 0 <= saving_ns <= window_ns, (saving_ns, window_ns)


def _none_negative(time: Mapping[str, int]) -> None:
    assert min(time.values()) >= 0, time
