"""The verdict by the account rule, its confidence, and the checklist."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from boundby.claims.because import because, little_alone
from boundby.claims.bound import BoundCase, Decision, Replay, decide
from boundby.claims.signs import Signs, checklist
from boundby.claims.summary import _of_whole
from boundby.claims.verdict import judge
from boundby.model.causes import BOUNDS, BUSY_CAUSES, CAUSES, REMOVABLE, Cause
from boundby.results.report import ApiCalls, Check, Copies, Gaps, Syncs, Verdict, WhatIf
from boundby.trace.facts import Captured
from tests.support.cases import case as case_of
from tests.support.cases import changed, predicted

ALL = Captured(
    kernels=True, cuda_api=True, memcpy=True, sync=True, nvtx=True, osrt=True, cpu_scheduling=True, cpu_samples=True
)
Shares = dict[str, int]
MS = 1_000_000


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
    decision = decide(case_of(time=account(**shares), active_ns=active * 1_000_000))
    assert decision.bound == bound
    assert decision.bound_next == following


def test_two_causes_alike_are_mixed() -> None:
    verdict = judge(case_of(time=account(gpu_compute=200, cpu=410, cuda_api=390), active_ns=990_000_000))
    assert (verdict.bound, verdict.mixed_of) == ("mixed", ("cpu", "cuda_api"))
    assert (verdict.saving_ns, verdict.runner_up, verdict.runner_up_saving_ns) == (410 * MS, "cuda_api", 390 * MS)


@pytest.mark.parametrize(("without_delays", "bound"), [({"sync": 90}, "sync"), ({"cuda_api": 90}, "gpu_compute")])
def test_delays_leave_the_verdict_to_the_replay_if_they_do_not_change_it(
    without_delays: dict[str, int], bound: str
) -> None:
    with_delays, none = {"sync": 300 * MS, "cuda_api": 20 * MS}, dict.fromkeys(("sync", "cuda_api"), 0)
    delayed = with_delays, none | {cause: saved * MS for cause, saved in without_delays.items()}
    time = account(gpu_compute=500, sync=50, cuda_api=150, device_wait=300)
    verdict = judge(case_of(time=time, captured=ALL, operations=100, unreliable="delays", delayed=delayed))
    if bound == "sync":
        assert (verdict.bound, verdict.decided_by, verdict.confidence) == ("sync", "replay", "low")
        assert verdict.saving_range_ns == (90 * MS, 300 * MS)
    else:
        assert verdict.decided_by == "account"


def test_delays_beyond_all_that_could_be_saved_leave_no_verdict() -> None:
    saved = {"cpu": 250 * MS, "cuda_api": 20 * MS}
    time = account(gpu_compute=450, cpu=60, cuda_api=20, device_wait=300, unattributed=170)
    case = case_of(time=time, active_ns=800 * MS, captured=ALL, operations=100, unreliable="delays")
    verdict = judge(changed(case, delayed=(saved, saved)))
    assert (verdict.bound, verdict.confidence) == ("unknown", "low")
    assert "30 % of the time the device waits for what the trace does not show" in (verdict.why_not or "")


def test_graphs_that_were_not_looked_into_leave_the_verdict_less_sure() -> None:
    case = case_of(time=account(gpu_compute=990, cuda_api=10), captured=ALL, operations=100)
    assert [judge(changed(case, opaque_ns=ns)).confidence for ns in (0, 100 * MS, 900 * MS)] == [
        "high",
        "high",
        "medium",
    ]


def test_a_gpu_that_is_busy_with_graphs_of_one_piece_is_not_said_to_run_kernels() -> None:
    case = case_of(time=account(gpu_compute=990, cuda_api=10), captured=ALL, operations=100)
    assert "busy 99 % of the time with kernels" in judge(case).because
    assert "busy 99 % of the time with CUDA graphs" in judge(changed(case, opaque_ns=900 * MS)).because


def test_where_two_rankings_name_two_causes_both_are_named() -> None:
    """What saves most once nothing waits, and what does while the waits stay."""
    replayed = {"gpu_compute": 400 * MS, "gpu_copy": 250 * MS, "sync": 140 * MS}
    alone = {"gpu_compute": 620 * MS, "gpu_copy": 590 * MS, "sync": 860 * MS}
    case = case_of(
        time=account(gpu_compute=430, gpu_copy=400, cpu=170), replayed=replayed, captured=ALL, operations=100
    )
    assert judge(case).confidence == "high"
    verdict = judge(changed(case, predicted=predicted(1000 * MS, alone)))
    assert (verdict.bound, verdict.mixed_of) == ("mixed", ("gpu_compute", "gpu_copy"))
    assert verdict.because.startswith("compute takes 43 % and copy takes 40 %")
    assert verdict.runner_up == "gpu_copy"
    between = {**replayed, "cpu": 300 * MS}  # saves more than the other cause that the verdict names
    other = judge(changed(case, replayed=between, predicted=predicted(1000 * MS, alone)))
    assert (other.mixed_of, other.runner_up) == (("gpu_compute", "gpu_copy"), "gpu_copy")


def test_of_two_alike_what_is_left_open_lowers_the_confidence() -> None:
    time, replayed = account(gpu_compute=500, cpu=400, sync=100), {"cpu": 300 * MS, "gpu_compute": 290 * MS, "sync": 0}
    case = case_of(time=time, replayed=replayed, captured=ALL, operations=100)
    open_ns = {"cpu": (200 * MS, 0), "gpu_compute": (200 * MS, 0), "sync": (0, 400 * MS)}
    levels = [
        judge(changed(case, predicted=predicted(1000 * MS, open_ns=one, saved_ns=replayed)))
        for one in ({}, {"cpu": (200 * MS, 0)}, open_ns)
    ]
    assert [(one.bound, one.confidence) for one in levels] == [("mixed", level) for level in ("high", "medium", "low")]
    assert levels[1].reasons == ("the trace does not show exactly how much removing either of the two saves",)
    assert any("removing syncs may save more" in reason for reason in levels[2].reasons)


def test_a_saturated_device_says_how_close_the_host_is() -> None:
    case = case_of(time=account(gpu_compute=970, device_wait=30), active_ns=930_000_000)
    assert decide(case).host_limit_fraction == pytest.approx(0.07)
    replayed = changed(case, replayed={"gpu_compute": 70 * MS, "sync": 0})
    assert "the host itself needs 93 % of the time" in judge(replayed).because
    limit = "the host works 93 % of the time as well, so faster kernels alone can save at most 7 %"
    assert limit in judge(case).because


def test_other_work_covers_only_where_other_work_runs() -> None:
    time, nothing = account(gpu_compute=960, cuda_api=30, sync=10), {"gpu_compute": 0, "sync": 0}
    case = case_of(time=time, active_ns=980 * MS, captured=ALL, operations=100, replayed=nothing)
    assert "what is left takes as long" in judge(case).because
    assert "other work hides it" in judge(changed(case, beside_ns=960 * MS)).because
    alone = judge(changed(case, replayed=None, unreliable="it is cut", beside_ns=960 * MS))
    assert "the trace cannot tell which of the two sets the pace" in alone.because
    assert (alone.bound, alone.confidence, alone.saving_ns) == ("gpu_compute", "low", None)
    assert alone.saving_range_ns == (0, 960 * MS)


def test_of_work_that_saves_alike_a_saturated_device_is_bound_by_what_takes_most() -> None:
    replayed = {"gpu_comm": 150 * MS, "gpu_compute": 140 * MS, "sync": 0}
    case = case_of(time=account(gpu_compute=720, gpu_comm=260, sync=20), captured=ALL, operations=100)
    assert judge(changed(case, replayed=replayed)).bound == "gpu_compute"
    assert judge(changed(case, replayed={**replayed, "gpu_comm": 200 * MS})).bound == "gpu_comm"


def test_by_the_account_alone_work_that_other_work_covers_is_not_sure() -> None:
    case = case_of(time=account(gpu_compute=820, gpu_copy=140, sync=40), captured=ALL, operations=100)
    case = changed(case, unreliable="calls are lost")
    assert judge(case).confidence == "medium"
    assert judge(changed(case, beside_ns=800 * MS)).confidence == "low"


def test_a_replay_in_which_nothing_saves_anything_does_not_decide_unless_it_is_trusted() -> None:
    """A removal that came out longer than measured is put right: what it says is nothing."""
    time, nothing = account(gpu_compute=960, cuda_api=30, sync=10), {"gpu_compute": 0, "sync": 0}
    case = case_of(time=time, active_ns=200 * MS, captured=ALL, operations=100, unreliable="it comes out longer")
    verdict = judge(changed(case, delayed=(nothing, nothing)))
    assert (verdict.bound, verdict.decided_by, verdict.confidence) == ("gpu_compute", "account", "medium")


def test_work_saves_no_more_than_its_own_time_where_delays_go_with_it() -> None:
    """98 % of the window is one delay that nothing explains: it may be anybody's."""
    time, saved = account(gpu_compute=20, device_wait=980), {"gpu_compute": 990 * MS, "sync": 0}
    case = case_of(time=time, captured=ALL, operations=100, unreliable="delays", delayed=(saved, saved))
    for verdict in (judge(case), judge(changed(case, is_part=True))):
        assert (verdict.bound, verdict.confidence) == ("unknown", "low")
        assert "98 % of the time the device waits for what the trace does not show" in (verdict.why_not or "")


def test_nothing_of_its_own_is_hidden() -> None:
    assert decide(case_of(time=account())) == Decision("hidden")


def test_a_region_saves_no_more_than_the_one_around_it() -> None:
    time = account(gpu_compute=800, cpu=200)
    decision = decide(case_of(time=time, active_ns=210_000_000, most={"gpu_compute": 100_000_000}))
    assert decision.bound == "gpu_compute"
    assert decision.savings[0].saving_ns == 100_000_000


def test_what_is_replayed_decides_over_the_account() -> None:
    time, replayed = account(gpu_compute=500, sync=300, cpu=200), {"sync": 50 * MS, "cpu": 400 * MS, "gpu_compute": 0}
    verdict = judge(
        case_of(
            time=time, replayed=replayed, following={"sync": 90 * MS}, predicted=predicted(1000 * MS, {"cpu": 600 * MS})
        )
    )
    assert (verdict.bound, verdict.decided_by) == ("cpu", "replay")
    assert (verdict.saving_ns, verdict.bound_next, verdict.without_ns) == (400 * MS, "sync", 600 * MS)


def test_a_part_that_replay_cannot_shorten_is_hidden_unless_its_time_is_fixed() -> None:
    nothing = {"sync": 0, "cpu": 0, "gpu_compute": 0}
    for fixed, bound in ((100, "hidden"), (600, "unknown")):
        case = case_of(time=account(gpu_compute=1_000 - fixed, device_wait=fixed), replayed=nothing, is_saturated=False)
        assert judge(case).bound == "unknown"
        verdict = judge(changed(case, is_part=True))
        assert (verdict.bound, verdict.saving_ns) == (bound, None)


def test_what_a_thread_alone_would_save_is_not_told() -> None:
    verdict = judge(case_of(time=account(cpu=700, host_blocked=300), is_thread=True, has_gpu_work=False))
    assert (verdict.bound, verdict.saving_ns, verdict.runner_up, verdict.bound_next) == ("cpu", None, None, None)
    assert verdict.because == "the host runs its own code 70 % of the time and is blocked 30 %"


def test_host_regions_are_judged_on_host_time() -> None:
    case = case_of(time=account(), total_ns=1_000, api=ApiCalls(3, 500, None), sync=Syncs(1, 400, None))
    assert decide(changed(case, active_ns=600)).bound == "cpu"
    assert decide(changed(case, active_ns=100)).bound == "sync"
    assert decide(changed(case, active_ns=100, asleep_ns=700)).bound == "host_blocked"
    assert decide(changed(case, operations=1)).bound == "hidden"
    assert decide(case_of(time=account(), total_ns=0, active_ns=5)).bound == "hidden"


@given(st.lists(st.integers(0, 10**9), min_size=len(CAUSES), max_size=len(CAUSES)), st.integers(0, 10**10))
def test_savings_are_possible(values: list[int], active: int) -> None:
    time = dict(zip(CAUSES, values, strict=True))
    decision = decide(case_of(time=time, active_ns=active))
    for saving in decision.savings:
        assert 0 <= saving.saving_ns <= time[Cause[saving.cause.upper()]]
    assert {saving.cause for saving in decision.savings} <= {cause.key for cause in REMOVABLE}
    saved = [saving.saving_ns for saving in decision.savings]
    assert saved == sorted(saved, reverse=True)
    gpu = sum(s.saving_ns for s in decision.savings if s.cause in {cause.key for cause in BUSY_CAUSES})
    assert gpu <= sum(values) + 3


@given(st.lists(st.integers(0, 10**9), min_size=len(CAUSES), max_size=len(CAUSES)), st.booleans(), st.integers(0, 9))
def test_every_case_has_a_verdict_and_a_clause(values: list[int], has_gpu_work: bool, operations: int) -> None:
    time = dict(zip(CAUSES, values, strict=True))
    verdict = judge(case_of(time=time, has_gpu_work=has_gpu_work, operations=operations, total_ns=1, active_ns=1))
    assert verdict.bound in BOUNDS
    assert verdict.because


def test_missing_data_lowers_the_confidence_and_is_named() -> None:
    time = account(gpu_compute=300, cpu=700)
    known = case_of(time=time, active_ns=900_000_000, captured=ALL, operations=1000)

    def level(case: BoundCase) -> str:
        verdict = judge(case)
        assert bool(verdict.reasons) == (verdict.confidence != "high")
        return verdict.confidence

    assert level(known) == "high"
    assert level(changed(known, has_cpu_evidence=False)) == "medium"
    assert level(changed(known, is_clock_shifted=True)) == "medium"
    assert level(changed(known, unreliable="it is cut")) == "medium"
    assert level(changed(known, operations=1)) == "high"  # length counts, not numbers of operations
    assert level(changed(known, captured=replace(ALL, cuda_api=False))) == "low"
    assert level(changed(known, unreliable="it is cut", calls_fraction=0.08)) == "low"
    busy = changed(known, time=account(gpu_compute=700, cpu=300), active_ns=200_000_000)
    assert level(changed(busy, unreliable="it is cut")) == "medium"  # the host neither works nor sleeps for most of it
    hidden = changed(known, time=account(gpu_compute=600, cpu=400), active_ns=500_000_000)
    assert level(changed(hidden, unreliable="it is cut")) == "medium"
    works = changed(hidden, active_ns=650_000_000, unreliable="it is cut")
    assert level(works) == "medium"  # without kernels the host takes as long, and that is closer than its idle time
    copies = account(gpu_copy=600, cpu=400)
    assert level(changed(works, time=copies)) == "low"  # of which part of the host's time is: which one sets the pace
    sleeping = changed(known, time=account(gpu_compute=300, host_blocked=700), active_ns=200_000_000)
    assert level(sleeping) == "high"
    assert level(changed(sleeping, unwoken_ns=600 * MS)) == "low"  # who ended its waits is not there


def test_what_holds_every_removal_up_alike_turns_no_verdict() -> None:
    """Another rank is waited for, whatever is removed here: only a cause that may be that wait gains by it."""
    saved = {"gpu_compute": 450_000_000, "sync": 170_000_000}
    case = case_of(time=account(gpu_compute=700, cuda_api=300), captured=ALL, operations=9, replayed=saved)
    open_ns = {"gpu_compute": (300_000_000, 0)}
    less = changed(case, predicted=predicted(1000 * MS, open_ns=open_ns, saved_ns=saved))
    assert judge(less).confidence == "low"
    held = predicted(1000 * MS, open_ns=open_ns, held_ns={"gpu_compute": 300_000_000}, saved_ns=saved)
    assert judge(changed(less, predicted=held)).confidence == "high"
    waits = changed(
        less, time=account(gpu_compute=700, host_blocked=300), replayed={**saved, "host_blocked": 200_000_000}
    )
    assert judge(changed(waits, predicted=held)).confidence == "low"


def test_unattributed_time_lowers_the_confidence() -> None:
    """As far as it may turn the verdict; where it is more than half of the time, there is none."""
    for unattributed, level, of_host in (
        (40, "high", "medium"),  # never sure without GPU work
        (100, "high", "low"),
        (300, "high", "low"),
        (480, "medium", "low"),
        (510, "low", "low"),
    ):
        time = account(cpu=1000 - unattributed, unattributed=unattributed)
        case = case_of(time=time, active_ns=10**9, captured=ALL, operations=99)
        verdict = judge(case)
        assert (verdict.confidence, verdict.bound) == (level, "unknown" if unattributed > 500 else "cpu")
        assert judge(changed(case, has_gpu_work=False)).confidence == of_host
    assert "nothing of the host is on record" in str(verdict.why_not)
    assert judge(case_of(time=account(cpu=1), has_gpu_work=False, has_cpu_evidence=False)).confidence == "low"


def checks_of(signs: Signs, bounds: tuple[str, ...] | None = None) -> dict[str, Check]:
    return {check.name: check for check in checklist(signs, bounds)}


GAPS, API, SYNC = Gaps(5, 900, 500), ApiCalls(10, 4 * 10**8, 40.0), Syncs(7, 300, 2.0)


def test_the_checklist_reads_its_numbers() -> None:
    copies = {"DtoH": Copies(10, 80, 100, 10, 10, 1.0)}
    case = case_of(time=account(gpu_compute=50, host_blocked=950), api=API, sync=SYNC, memcpy=copies)
    checks = checks_of(Signs(case, GAPS, 0.1))
    assert checks["GPU utilization"].points_to == "host_blocked"
    assert checks["CUDA API calls"].points_to == "cuda_api"
    assert checks["Blocking syncs"].points_to == "sync"
    assert "10 small copies to the host" in checks["Blocking syncs"].reading
    assert checks["Copies"].points_to is None
    none = checklist(Signs(case_of(time=account(gpu_compute=1000), sync=SYNC), GAPS, None))
    assert {check.value for check in none} >= {"not captured", "100 %"}


def test_a_spinning_thread_is_not_a_working_one() -> None:
    for active, points_to in ((10**7, None), (95 * 10**7, "cpu")):
        case = case_of(
            time=account(gpu_compute=1000), active_ns=active, api=ApiCalls(1, 1, 0.1), sync=Syncs(1, 900, 0.1)
        )
        assert checks_of(Signs(case, Gaps(0, 0, 0), 0.99))["CPU utilization"].points_to == points_to


def test_a_host_that_stages_pageable_copies_does_not_spin() -> None:
    api, sync = ApiCalls(10, 97 * 10**7, 0.1), Syncs(1, 10**7, 0.1)
    case = case_of(time=account(gpu_copy=1000), active_ns=10**6, api=api, sync=sync)
    checks = checks_of(Signs(case, Gaps(0, 0, 0), 0.99, staging_ns=96 * 10**7))
    assert checks["CPU utilization"].reading == (
        "over 90 %, but its own work takes under 1 % of the time; the rest of the time it copies pageable memory"
    )
    assert checks["CUDA API calls"].reading == (
        "0 % of the time is spent in calls that do not wait, 96 % in copies of pageable memory"
    )


def test_a_sign_that_speaks_for_another_bound_says_what_that_costs() -> None:
    time = account(cpu=980, sync=10, cuda_api=10)
    signs = Signs(case_of(time=time, active_ns=95 * 10**7, api=API, sync=SYNC), GAPS, 0.95)
    checks = checks_of(signs, ("cpu",))
    assert {check.points_to for check in checks.values()} == {None, "cpu"}
    assert checks["Blocking syncs"].reading.endswith("; many, but the GPU idles for them 1 % of the time")
    assert checks["CUDA API calls"].reading.endswith(", but the GPU idles for it 1 % of the time")
    agreeing = checks_of(signs, ("cuda_api", "sync"))
    assert {check.points_to for check in agreeing.values()} == {None, "cuda_api", "sync"}


def test_a_verdict_stands_only_whatever_the_lost_work_did() -> None:
    clear = case_of(time=account(gpu_compute=700, cpu=250, unattributed=50), active_ns=260_000_000, operations=1000)
    lost = changed(clear, work={Cause.CPU: 50_000_000}, kinds=(Cause.GPU_COMPUTE,), launches=1000, lost=20)
    assert judge(lost).bound == "gpu_compute"
    much = account(gpu_compute=300, cpu=150, unattributed=550)
    lost = changed(lost, time=much, work={Cause.CPU: 550_000_000}, lost=600)
    verdict = judge(lost)
    assert (verdict.bound, verdict.saving_ns, verdict.confidence) == ("unknown", None, "low")
    assert "600 of 1,000 launches are on record without their work" in str(verdict.why_not)
    assert "compute or host code" in str(verdict.why_not)


def test_few_operations_are_a_verdict_where_one_takes_the_time() -> None:
    verdict = judge(case_of(time=account(gpu_compute=996, cpu=4), operations=2, captured=ALL))
    assert (verdict.bound, verdict.confidence) == ("gpu_compute", "high")


@pytest.mark.parametrize(("idle", "level"), [(0, "low"), (5, "low"), (200, "high")])
def test_a_cause_of_the_host_that_no_idle_time_shows_is_not_sure(idle: int, level: str) -> None:
    time = account(gpu_compute=800 - idle, host_blocked=idle, cpu=200)
    replayed = {cause.key: 0 for cause in REMOVABLE} | {"host_blocked": 300 * MS, "cpu": 20 * MS}
    case = case_of(time=time, operations=1000, captured=ALL, replayed=replayed, is_part=True, is_saturated=False)
    verdict = judge(case)
    assert (verdict.bound, verdict.confidence) == ("host_blocked", level)
    assert ("the GPU rarely idles because of blocked time there" in "".join(verdict.reasons)) is (level == "low")


def test_what_the_trace_leaves_open_may_turn_a_verdict() -> None:
    saved = {cause.key: 0 for cause in REMOVABLE} | {"cpu": 500 * MS, "gpu_copy": 200 * MS}
    time = account(cpu=150, gpu_copy=850)
    case = case_of(time=time, operations=1000, captured=ALL, replayed=saved, is_saturated=False)
    little, much = (predicted(1000 * MS, open_ns={"cpu": (ns * MS, 0)}, saved_ns=saved) for ns in (100, 400))
    verdict = judge(changed(case, predicted=little))
    assert (verdict.confidence, verdict.saving_range_ns) == ("high", (400 * MS, 500 * MS))
    verdict = judge(changed(case, predicted=much))
    assert (verdict.confidence, verdict.saving_range_ns) == ("low", (100 * MS, 500 * MS))
    assert "removing copies may save more" in verdict.reasons[0]


@pytest.mark.parametrize(("less", "level"), [(0, "high"), (100, "high"), (400, "low")])
def test_where_it_is_open_what_a_program_does_without_its_waits_others_that_save_alone_are_rivals(
    less: int, level: str
) -> None:
    saved = {"sync": 500 * MS, "gpu_compute": 100 * MS}
    case = case_of(
        time=account(gpu_compute=500, sync=200, host_blocked=300), operations=1000, captured=ALL, replayed=saved
    )
    found = predicted(1000 * MS, {"host_blocked": 700 * MS}, {"sync": (less * MS, 0)}, saved_ns=saved)
    verdict = judge(changed(case, predicted=found))
    assert (verdict.bound, verdict.confidence) == ("sync", level)


def test_without_a_replay_the_work_of_a_device_saves_up_to_all_of_its_time() -> None:
    verdict = judge(case_of(time=account(gpu_compute=970, device_wait=30), active_ns=300_000_000))
    assert (verdict.saving_ns, verdict.saving_range_ns) == (None, (0, 970 * MS))


def test_calls_that_stop_on_record_lower_the_confidence() -> None:
    case = case_of(time=account(cpu=800, gpu_compute=200), operations=1000, captured=ALL, silent_ns=300 * MS)
    verdict = judge(case)
    assert verdict.confidence == "medium"
    assert "300 ms before the end" in verdict.reasons[0]


def test_calls_of_several_threads_take_no_more_than_all_of_the_time() -> None:
    """They may call at once, and a call may reach out of the window."""
    case = case_of(time=account(cpu=1000), api=ApiCalls(3, 1_070 * MS, 1.0))
    (calls,) = [check for check in checklist(Signs(case, Gaps(0, 0, 0), None)) if check.name == "CUDA API calls"]
    assert calls.reading == "100 % of the time is spent in calls that do not wait"


def test_a_region_whose_work_is_mostly_covered_says_so() -> None:
    """Bound by the percent of it that nothing else covers."""
    time = account(gpu_compute=980, gpu_copy=10, device_wait=10)
    covered = "; its other GPU work is hidden behind other work"
    assert covered in because(case_of(time=time, is_part=True), Decision("gpu_copy"))
    assert covered not in because(case_of(time=time), Decision("gpu_copy"))
    assert covered not in because(case_of(time=time, is_part=True), Decision("gpu_compute"))


def test_of_a_range_that_is_open_nobody_says_that_it_is_little() -> None:
    """``saves little`` would stand beside ``up to 68 %``."""
    case = case_of(time=account(gpu_comm=680, gpu_compute=320))
    sure = WhatIf("comm_free", 1_000 * MS, 1_000 * MS, low_ns=995 * MS, high_ns=1_000 * MS)
    for least_ms, verb in ((995, "saves"), (320, "may save")):
        replay = Replay(predicted={"comm_free": replace(sure, low_ns=least_ms * MS)})
        assert little_alone(replace(case, replay=replay), "gpu_comm") == f"removing communication alone {verb} little"


def test_nearly_all_of_a_program_of_two_causes_is_bound_by_both() -> None:
    """A region that holds the rest of it is bound by itself; so is one whose own bound is none of the two."""
    two = Verdict("mixed", "medium", mixed_of=("cpu", "cuda_api"))
    shared = SimpleNamespace(leading=two, timeline=SimpleNamespace(total_ns=100 * MS))
    for bound, own_ns, told in (("cpu", 99, two.bound), ("cpu", 50, "cpu"), ("sync", 99, "sync")):
        assert _of_whole(Verdict(bound, "high"), own_ns * MS, shared).bound == told  # type: ignore[arg-type]
    alone = SimpleNamespace(leading=None, timeline=shared.timeline)
    assert _of_whole(Verdict("cpu", "high"), 99 * MS, alone).bound == "cpu"  # type: ignore[arg-type]
