"""The verdict by the account rule, its confidence, and the checklist."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundby.model.causes import BUSY_CAUSES, CAUSES, REMOVABLE, Cause
from boundby.results.report import ApiCalls, Copies, Gaps, Syncs
from boundby.trace.facts import Captured
from boundby.verdict.checklist import because, checklist
from boundby.verdict.confidence import host_confidence, judge
from boundby.verdict.verdict import decide, decide_host

ALL = Captured(
    kernels=True, cuda_api=True, memcpy=True, sync=True, nvtx=True, osrt=True, cpu_scheduling=True, cpu_samples=True
)
Shares = dict[str, int]


def account(**shares: int) -> dict[Cause, int]:
    """An account in per mille of a second."""
    return {cause: shares.get(cause.key, 0) * 1_000_000 for cause in CAUSES}


@pytest.mark.parametrize(
    ("shares", "active", "bound", "following"),
    [
        ({"gpu_compute": 970, "device_wait": 30}, 300, "gpu_compute", None),
        ({"gpu_compute": 300, "gpu_copy": 660, "device_wait": 40}, 100, "gpu_copy", "gpu_compute"),
        ({"gpu_compute": 600, "cuda_api": 400}, 990, "cuda_api", "gpu_compute"),
        ({"gpu_compute": 580, "sync": 240, "cuda_api": 110, "cpu": 70}, 600, "sync", "gpu_compute"),
        ({"gpu_compute": 100, "cpu": 880, "cuda_api": 20}, 980, "cpu", "cuda_api"),
        ({"gpu_compute": 30, "host_blocked": 940, "cpu": 30}, 50, "host_blocked", "cpu"),
        ({"gpu_compute": 20, "init": 900, "cuda_api": 80}, 950, "init", "cuda_api"),
        ({"gpu_comm": 920, "gpu_compute": 60, "cuda_api": 20}, 100, "gpu_comm", "gpu_compute"),
        ({"gpu_compute": 700, "cpu": 300}, 350, "gpu_compute", "cpu"),
        ({"device_wait": 600, "unattributed": 395, "cpu": 5}, 990, "unknown", None),
    ],
)
def test_bounds(shares: Shares, active: int, bound: str, following: str | None) -> None:
    decision = decide(account(**shares), active * 1_000_000)
    assert decision.bound == bound
    assert decision.bound_next == following


def test_two_causes_alike_are_mixed() -> None:
    decision = decide(account(gpu_compute=200, cpu=410, cuda_api=390), 990_000_000)
    assert (decision.bound, decision.mixed_of) == ("mixed", ("cpu", "cuda_api"))


def test_a_saturated_device_says_how_close_the_host_is() -> None:
    decision = decide(account(gpu_compute=970, device_wait=30), 930_000_000)
    assert decision.host_limit_fraction == pytest.approx(0.07)
    clause = because(
        decision,
        account(gpu_compute=970, device_wait=30),
        instances=1,
        sync=Syncs(0, 0, 0.0),
        api=ApiCalls(0, 0, 0.0),
        memcpy={},
        blocked_on={},
    )
    assert "the host would limit 7 % below" in clause


def test_nothing_of_its_own_is_hidden() -> None:
    assert decide(account(), 0).bound == "hidden"


def test_a_region_saves_no_more_than_the_one_around_it() -> None:
    most = {"gpu_compute": 100_000_000}
    decision = decide(account(gpu_compute=800, cpu=200), 210_000_000, most)
    assert decision.bound == "gpu_compute"
    assert decision.savings[0].saving_ns == 100_000_000


def test_host_regions_are_judged_on_host_time() -> None:
    calls, waits = ApiCalls(3, 500, None), Syncs(1, 400, None)
    assert decide_host(1000, 600, calls, waits, 0).bound == "cpu"
    assert decide_host(1000, 100, calls, waits, 0).bound == "sync"
    assert decide_host(1000, 100, calls, waits, 700).bound == "host_blocked"
    assert decide_host(0, 0, ApiCalls(0, 0, None), Syncs(0, 0, None), 0).bound == "hidden"


@given(st.lists(st.integers(0, 10**9), min_size=len(CAUSES), max_size=len(CAUSES)), st.integers(0, 10**10))
def test_savings_are_possible(values: list[int], active: int) -> None:
    time = dict(zip(CAUSES, values, strict=True))
    decision = decide(time, active)
    for saving in decision.savings:
        assert 0 <= saving.saving_ns <= time[Cause[saving.cause.upper()]]
    assert {saving.cause for saving in decision.savings} <= {cause.key for cause in REMOVABLE}
    saved = [saving.saving_ns for saving in decision.savings]
    assert saved == sorted(saved, reverse=True)
    gpu = sum(s.saving_ns for s in decision.savings if s.cause in {cause.key for cause in BUSY_CAUSES})
    assert gpu <= sum(values) + 3


def test_missing_data_lowers_the_confidence_and_is_named() -> None:
    time = account(gpu_compute=300, cpu=700)
    decision = decide(time, 900_000_000)

    def level(captured: Captured = ALL, *, operations: int = 1000, shifted: bool = False, known: bool = True) -> str:
        found = judge(decision, time, captured, operations=operations, clock_shifted=shifted, has_cpu_evidence=known)
        assert bool(found.reasons) == (found.level != "high")
        return found.level

    assert level() == "high"
    assert level(known=False) == "medium"
    assert level(shifted=True) == "medium"
    assert level(operations=3, known=False) == "medium"  # few operations say little of a device, not of a host
    assert level(replace(ALL, cuda_api=False)) == "low"


def test_unattributed_time_lowers_the_confidence() -> None:
    for unattributed, level in ((40, "high"), (100, "medium"), (300, "low")):
        time = account(cpu=1000 - unattributed, unattributed=unattributed)
        found = judge(decide(time, 10**9), time, ALL, operations=99, clock_shifted=False, has_cpu_evidence=True)
        assert found.level == level
        assert host_confidence(time, has_cpu_evidence=True).level == level
    assert host_confidence(account(cpu=1), has_cpu_evidence=False).level == "low"


def test_the_checklist_reads_its_numbers() -> None:
    copies = {"DtoH": Copies(10, 80, 100, 10, 10, 1.0)}
    gaps, api, sync = Gaps(5, 900, 500), ApiCalls(10, 4 * 10**8, 40.0), Syncs(7, 300, 2.0)
    checks = {
        check.name: check
        for check in checklist(account(gpu_compute=50, host_blocked=950), gaps, api, sync, copies, 0.1, 0, 10**9)
    }
    assert checks["GPU utilization"].points_to == "host_blocked"
    assert checks["CUDA API calls"].points_to == "cuda_api"
    assert checks["Blocking syncs"].points_to == "sync"
    assert "10 small DtoH copies" in checks["Blocking syncs"].reading
    assert checks["Copies"].points_to is None
    none = checklist(account(gpu_compute=950), gaps, ApiCalls(0, 0, None), sync, {}, None, 0, 10**9)
    assert {check.value for check in none} >= {"not captured", "95 %"}


def test_a_spinning_thread_is_not_a_working_one() -> None:
    gaps, api, sync = Gaps(0, 0, 0), ApiCalls(1, 1, 0.1), Syncs(1, 900, 0.1)
    for active, points_to in ((10**7, None), (95 * 10**7, "cpu")):
        checks = checklist(account(gpu_compute=1000), gaps, api, sync, {}, 0.99, active, 10**9)
        assert next(check for check in checks if check.name == "CPU utilization").points_to == points_to


def test_a_host_that_stages_pageable_copies_does_not_spin() -> None:
    gaps, sync = Gaps(0, 0, 0), Syncs(1, 10**7, 0.1)
    api = ApiCalls(10, 97 * 10**7, 0.1)
    found = checklist(account(gpu_copy=1000), gaps, api, sync, {}, 0.99, 10**6, 10**9, staging_ns=96 * 10**7)
    checks = {check.name: check.reading for check in found}
    assert checks["CPU utilization"] == (
        "over 90 %, but its own work takes under 1 % of the time: otherwise it copies pageable memory"
    )
    assert checks["CUDA API calls"] == (
        "0 % of the time is spent in calls that do not wait, 96 % in copies of pageable memory"
    )


def test_a_sign_that_speaks_for_another_bound_says_what_that_costs() -> None:
    gaps, api, sync = Gaps(5, 900, 500), ApiCalls(10, 4 * 10**8, 40.0), Syncs(7, 300, 2.0)
    time = {**account(gpu_compute=0), **account(cpu=980, sync=10, cuda_api=10)}
    found = checklist(time, gaps, api, sync, {}, 0.95, 95 * 10**7, 10**9, bounds=("cpu",))
    checks = {check.name: check for check in found}
    assert {check.points_to for check in found} == {None, "cpu"}
    assert checks["Blocking syncs"].reading.endswith("; many, but the GPU idles for them 1 % of the time")
    assert checks["CUDA API calls"].reading.endswith(", but the GPU idles for it 1 % of the time")
    agreeing = checklist(time, gaps, api, sync, {}, 0.95, 95 * 10**7, 10**9, bounds=("cuda_api", "sync"))
    assert {check.points_to for check in agreeing} == {None, "cuda_api", "sync"}
