from __future__ import annotations

from msgspec.structs import replace

from boundby.claims.signs import long_gaps
from boundby.document import sentences
from boundby.document.view import (
    EXTERNAL_PACE,
    MAX_ROWS,
    ONCE,
    accounts,
    beyond_the_bar,
    is_known,
    not_by_size,
    of_each_alone,
    select,
)
from boundby.model import units
from boundby.results.report import (
    AnalysisSummary,
    Coverage,
    FirstResponse,
    Gaps,
    OneTimePart,
    Steady,
    Top,
    Uncertainty,
    WhatIf,
)
from tests.support import reports


def test_rows_hang_under_the_nearest_ancestor_shown() -> None:
    base = reports.sample()
    without_forward = replace(base, regions=tuple(r for r in base.regions if r.path != ("step", "forward")))
    rows = {row.region.path: row for row in select(without_forward).rows}
    assert rows["step", "forward", "attention"].label == "forward/attention"
    assert rows["step", "forward", "attention"].depth == 1


def test_domains_are_told_apart() -> None:
    base = reports.sample()
    step = base.regions[1]
    other = replace(step, domain="NCCL", path=("step", "inner"))
    rows = select(replace(base, regions=(*base.regions[:2], other))).rows
    assert [(row.label, row.depth) for row in rows] == [("step", 0), ("inner [NCCL]", 1)]


def test_a_range_of_a_library_inside_does_not_cut_the_tree_off() -> None:
    """Run Benchmark/Warm-up holds a range of cuBLAS, below the share shown; its siblings keep their parents."""
    base = reports.sample()
    step = replace(base.regions[1], domain="default")
    paths = (("run",), ("run", "warm"), ("run", "warm", "create"), ("run", "warm", "forward"), ("run", "measured"))
    domains = ("", "", "cuBLAS", "", "")
    regions = tuple(replace(step, path=path, domain=domain) for path, domain in zip(paths, domains, strict=True))
    rows = select(replace(base, regions=(base.regions[0], *regions))).rows
    assert [(row.label, row.depth) for row in rows] == [
        ("run", 0),
        ("warm", 1),
        ("create [cuBLAS]", 2),
        ("forward", 2),
        ("measured", 1),
    ]
    small = replace(regions[2], share=0.0, host=replace(step.host, total_ns=0))
    without = select(replace(base, regions=(base.regions[0], *regions[:2], small, *regions[3:]))).rows
    assert [(row.label, row.depth) for row in without] == [("run", 0), ("warm", 1), ("forward", 2), ("measured", 1)]


def test_one_path_in_two_domains_is_two_trees() -> None:
    base = reports.sample()
    step = base.regions[1]
    paths = (("step",), ("step", "x"), ("step",), ("step", "x"))
    domains = ("", "", "NCCL", "NCCL")
    regions = tuple(replace(step, path=path, domain=domain) for path, domain in zip(paths, domains, strict=True))
    rows = select(replace(base, regions=regions)).rows
    assert [(row.label, row.depth) for row in rows] == [("step", 0), ("x", 1), ("step [NCCL]", 0), ("x", 1)]


def test_a_great_many_regions_are_cut_to_the_largest_unless_asked_for() -> None:
    base = reports.sample()
    many = tuple(replace(base.regions[2], path=(f"r{i}",), share=0.9 - i / 1000) for i in range(200))
    report = replace(base, regions=many)
    selection = select(report)
    assert len(selection.rows) == MAX_ROWS
    assert selection.left_out == 160
    assert [row.label for row in selection.rows] == [f"r{i}" for i in range(MAX_ROWS)]
    assert len(select(report, 0.0).rows) == 200


def test_what_was_analysed_with_a_share_is_shown_with_it() -> None:
    assert select(replace(reports.sample(), analysis=AnalysisSummary(min_share=0.3))).min_share == 0.3


def test_an_empty_report_selects_nothing() -> None:
    selection = select(reports.empty())
    assert selection.rows == ()
    assert selection.outside is None


def test_what_was_not_recorded_is_not_called_idle() -> None:
    base = reports.sample()
    whole, lost = base.devices[0], replace(base.devices[0], coverage=Coverage(0.8, unrecorded_ns=10**9))
    assert [account.not_busy for account in accounts(replace(base, devices=(whole, lost)))] == ["idle", "not seen busy"]
    told, otherwise = (sentences.meanings(devices)["unattributed"] for devices in ([lost], [whole]))
    assert "records are missing" in told
    assert "records are missing" not in otherwise


def test_a_mixed_verdict_tells_of_both_what_what_if_tells() -> None:
    """The verdict ranks them once nothing waits; a sentence is of the program as it ran."""
    mixed = replace(
        reports.verdict("mixed", 300, runner_up="gpu_copy", runner_up_saving_ns=200_000_000),
        mixed_of=("gpu_compute", "gpu_copy"),
    )
    left = {
        "gpu_compute": WhatIf("infinite_gpu", 800_000_000, 1_000_000_000),
        "gpu_copy": WhatIf("copies_free", 700_000_000, 1_000_000_000),
    }
    told = sentences.outlook(mixed, 1_000_000_000, left)
    ways = [
        FirstResponse(name, name, (0, 200_000_000)) for name in ("gpu_copy.pinned", "gpu_copy.less", "gpu_compute.fuse")
    ]
    other = sentences.of_other_bound(mixed, ways)
    assert other is not None
    assert sentences.reason(other, 1_000_000_000).startswith("gpu_compute.fuse (saves up to 200 ms")
    assert sentences.of_other_bound(mixed, ways[:2]) is None
    assert "Without compute these 1.00 s would be 800 ms (-20 %)" in told
    assert "without copies they would be 700 ms (-30 %)" in told


def test_what_is_not_sure_is_told_as_a_range() -> None:
    compute = replace(reports.verdict("gpu_compute", 200_000_000), decided_by="replay")
    item = WhatIf("infinite_gpu", 800_000_000, 1_000_000_000, low_ns=400_000_000, high_ns=900_000_000)
    told = sentences.outlook(compute, 1_000_000_000, {"gpu_compute": item})
    assert told == "Without compute these 1.00 s would be 400-900 ms (-60 to -10 %)."
    doubts = (Uncertainty("model", (), 5, 5, 0, "it errs"), Uncertainty("outside", (), 0, 90, 0, "others go on"))
    unsure = replace(item, confidence="low", uncertainties=doubts)
    sure = sentences.confidence(compute, {"gpu_compute": unsure})
    assert sure == "Confidence in the verdict: high; in the savings: low (others go on)."


def test_a_number_that_a_change_beside_it_exceeds_is_told_as_its_range() -> None:
    launches = replace(reports.verdict("cuda_api", 600_000_000), decided_by="replay")
    item = WhatIf("no_launch_overhead", 400_000_000, 1_000_000_000, low_ns=380_000_000, high_ns=420_000_000)
    told = sentences.outlook(launches, 1_000_000_000, {"cuda_api": item}, claimed_ns=620_000_000)
    assert told == "Without launch overhead these 1.00 s would be 380-420 ms (-62 to -58 %)."
    told = sentences.outlook(launches, 1_000_000_000, {"cuda_api": item}, claimed_ns=590_000_000)
    assert told == "Without launch overhead these 1.00 s would be 400 ms (-60 %)."


def test_a_wide_range_is_told_by_both_ends() -> None:
    compute = replace(reports.verdict("gpu_compute", 200_000_000), decided_by="replay")
    wide = WhatIf("infinite_gpu", 800_000_000, 1_000_000_000, low_ns=200_000_000, high_ns=900_000_000)
    told = sentences.outlook(compute, 1_000_000_000, {"gpu_compute": wide})
    assert told == "Removing compute would save 10-80 % of the time; the trace does not show it more exactly."
    told = sentences.outlook(compute, 1_000_000_000, {"gpu_compute": replace(wide, high_ns=1_000_000_000)})
    assert told == "Removing compute would save up to 80 % of the time; the trace does not show it more exactly."


def test_the_next_limit_is_hidden_only_where_the_gpus_work_hides_it() -> None:
    compute = replace(reports.verdict("gpu_compute", 600_000_000), decided_by="replay", bound_next="cuda_api")
    left = {"gpu_compute": WhatIf("infinite_gpu", 400_000_000, 1_000_000_000)}
    hidden = "the next limit would be launch overhead, now hidden behind the GPU's work."
    assert sentences.outlook(compute, 1_000_000_000, left, {"cuda_api": 10_000_000}).endswith(hidden)
    after_waits = {"cuda_api": 10_000_000, "sync": 360_000_000}
    told = sentences.outlook(compute, 1_000_000_000, left, after_waits)
    assert told == "Without compute these 1.00 s would be 400 ms (-60 %)."
    shown = "the next limit would be launch overhead."
    assert sentences.outlook(compute, 1_000_000_000, left, {"cuda_api": 380_000_000}).endswith(shown)
    little = {"gpu_compute": WhatIf("infinite_gpu", 27_000_000, 1_000_000_000)}  # no letter of a bar of a hundred
    assert sentences.outlook(compute, 1_000_000_000, little, {"cuda_api": 2_000_000, "cpu": 20_000_000}).endswith(
        hidden
    )
    assert sentences.outlook(compute, 1_000_000_000, little, {"cuda_api": 20_000_000}).endswith(shown)
    blocked = replace(compute, bound="host_blocked")  # what is left is all that there is beside the waits
    left = {"host_blocked": WhatIf("input_free", 40_000_000, 1_000_000_000)}
    assert shown in sentences.outlook(
        blocked, 1_000_000_000, left, {"cuda_api": 10_000_000, "host_blocked": 960_000_000}
    )


def test_why_a_cause_saves_more_than_its_share_of_the_bar() -> None:
    either = replace(
        reports.verdict("mixed", 500_000_000), decided_by="replay", mixed_of=("cuda_api", "cpu"), runner_up="cpu"
    )
    item = WhatIf("no_launch_overhead", 500_000_000, 1_000_000_000, low_ns=480_000_000, high_ns=650_000_000)
    told = sentences.outlook(either, 1_000_000_000, {"cuda_api": item}, {"cuda_api": 310_000_000, "cpu": 390_000_000})
    assert "What removing launch overhead saves exceeds the 31 % in the bar, because later work" in told
    told = sentences.outlook(either, 1_000_000_000, {"cuda_api": item}, {"cuda_api": 490_000_000, "cpu": 390_000_000})
    assert "saves may exceed the 49 % in the bar" in told
    told = sentences.outlook(either, 1_000_000_000, {"cuda_api": item}, {"cuda_api": 510_000_000, "cpu": 390_000_000})
    assert "in the bar" not in told  # nothing says that it is more than that


def test_time_that_is_not_on_record_is_not_called_idle() -> None:
    base = reports.sample()
    device = replace(base.devices[0], exposed_by_waits_ns=base.devices[0].window_ns // 2)
    assert accounts(replace(base, devices=(device,)))[0].exposed.startswith("If no call of the host waited")
    coverage = replace(device.coverage, unrecorded_ns=device.window_ns // 5)
    assert accounts(replace(base, devices=(replace(device, coverage=coverage),)))[0].exposed == ""


def test_the_header_says_what_is_not_on_record_and_what_instants_count_from() -> None:
    base = reports.sample()
    (device,) = base.devices
    around = replace(device, startup_ns=device.window_ns, shutdown_ns=0)
    assert sentences.window(replace(base, devices=(around,))).endswith(f"{units.duration(device.window_ns)} before")
    late = replace(around.window, start_ns=3 * device.window_ns, end_ns=4 * device.window_ns)
    late_report = replace(base, devices=(replace(around, window=late),))
    begins = f"its first event comes at {units.duration(2 * device.window_ns)}"
    assert sentences.circumstances(late_report)[-1].endswith(begins)
    assert begins not in " ".join(sentences.circumstances(late_report, names_instants=False))
    lacking = replace(around, coverage=replace(device.coverage, unrecorded_ns=device.window_ns // 5))
    told = sentences.window(replace(base, devices=(lacking,)))
    assert f"(50 %), {units.duration(device.window_ns // 5)} of this without records; " in told
    assert "on record (" not in told


def test_steps_before_the_steady_ones_are_named_where_they_count_as_one_time_work() -> None:
    base = reports.sample()
    step = next(region for region in base.regions if region.path == ("step",))
    window = base.devices[0].window
    found = Steady(step.path, window, step.instances - 2, 1_000_000, "sync", "high", 0)
    host_ns = (30_000_000, 20_000_000, *(1_000_000 for _ in range(step.instances - 2)))
    regions = tuple(
        replace(region, instance_ns=replace(region.instance_ns, host_ns=host_ns)) if region is step else region
        for region in base.regions
    )
    once = (OneTimePart("other", window, 400_000_000),)
    device = replace(base.devices[0], steady=found, one_time=once)
    told = accounts(replace(base, regions=regions, devices=(device,)))[0].steady()
    assert "One-time work and the first 2 steps: 400 ms" in told
    long = replace(device, one_time=(OneTimePart("other", window, 4_000_000_000),))
    told = accounts(replace(base, regions=regions, devices=(long,)))[0].steady()
    assert "One-time work: 4.00 s" in told


def test_a_table_says_for_whom_is_waited_and_leaves_out_accounts_of_nothing() -> None:
    ranks = replace(reports.verdict("host_blocked", 1), waits_for="ranks")
    assert sentences.bound_word(ranks) == "other ranks"
    assert not is_known({"cpu": 1, "unattributed": 1_000_000})
    assert is_known({"cpu": 100_000, "unattributed": 1_000_000})


def test_the_account_alone_predicts_nothing() -> None:
    api = replace(reports.verdict("cuda_api", 210), decided_by="account")
    assert sentences.outlook(api, 1_000_000_000) == ""  # its share is in the bar
    both = replace(api, bound="mixed", mixed_of=("cuda_api", "cpu"), runner_up="cpu", runner_up_saving_ns=200_000_000)
    assert sentences.outlook(both, 1_000_000_000) == ""
    compute = replace(
        reports.verdict("gpu_compute", None), decided_by="account", saving_range_ns=(0, 920_000_000), runner_up="sync"
    )
    assert sentences.outlook(compute, 1_000_000_000, {}) == ""
    assert sentences.next_best(compute, 1_000_000_000, {}) == ""


def test_what_saves_more_than_its_own_time_says_so() -> None:
    cpu = replace(reports.verdict("cpu", 300), runner_up="gpu_copy", runner_up_saving_ns=200_000_000)
    left = {
        "cpu": WhatIf("infinite_cpu", 700_000_000, 1_000_000_000),
        "gpu_copy": WhatIf("infinite_copy", 800_000_000, 1_000_000_000),
    }
    told = sentences.next_best(cpu, 1_000_000_000, left, {"gpu_copy": 20_000_000})
    assert told == (
        "Removing copies instead of host code would save 20 %. The saving exceeds the 2 % in the bar, because later "
        "work would start earlier, too."
    )
    told = sentences.next_best(cpu, 1_000_000_000, left, {"gpu_copy": 190_000_000})
    assert told == "Removing copies instead of host code would save 20 %."
    left["gpu_copy"] = WhatIf("infinite_copy", 860_000_000, 1_000_000_000)
    assert sentences.next_best(cpu, 1_000_000_000, left, {"gpu_copy": 20_000_000}) == ""  # no choice beside 30 %


def test_nothing_is_to_be_saved_where_the_pace_comes_from_outside() -> None:
    base = reports.sample()
    paced = replace(base.devices[0], first_responses=(FirstResponse(EXTERNAL_PACE, "No change makes it faster"),))
    assert any(row.saves for row in select(base).rows)
    assert not any(row.saves for row in select(replace(base, devices=(paced,))).rows)
    assert accounts(replace(base, devices=(paced,)))[0].saves == ""


def test_a_bound_that_is_little_of_its_bar_is_explained() -> None:
    base = reports.sample()
    rows = select(base).rows
    of_copies = replace(base.regions[1].verdict, bound="gpu_copy")
    assert not_by_size([row for row in rows if row.region.verdict.bound == "gpu_compute"]) == ""
    assert not_by_size([replace(rows[0], region=replace(rows[0].region, verdict=of_copies))]).startswith("BOUND BY: ")


def test_without_a_verdict_the_call_that_holds_the_host_is_named() -> None:
    base = reports.sample()
    device = base.devices[0]
    none = replace(device.verdict, bound="unknown", why_not="no GPU work is on record", runner_up=None)
    held = replace(device.api, top=(Top("hipMemcpyWithStream", 1, device.window_ns * 9 // 10),))
    (account,) = accounts(replace(base, devices=(replace(device, verdict=none, api=held),)))
    assert account.measured[0].endswith(" s) the host is in hipMemcpyWithStream.")
    assert account.doubts == ()  # nothing to be sure of


def test_a_row_says_once_only_where_all_advice_saves_other_runs() -> None:
    base = reports.sample()
    (place, region) = next((place, one) for place, one in enumerate(base.regions) if one.path)
    start = replace(region, verdict=replace(region.verdict, bound="init"))
    warm = FirstResponse("init.warm-up", "Warm up", saving_ns=(0, 1_000))
    reuse = FirstResponse("init.reuse", "Allocate once")
    told = []
    for advice in ((warm,), (warm, reuse), ()):
        regions = list(base.regions)
        regions[place] = replace(start, first_responses=advice)
        rows = select(replace(base, regions=tuple(regions)), min_share=0).rows
        told.append(next(row.saves for row in rows if row.region.path == region.path))
    assert told[0] == ONCE
    assert ONCE not in told[1:]
    enclosing = replace(base.findings[0], remedy="init.allocate-once", region=region.path[:1], saving_ns=(0, 1_000))
    regions[place] = replace(start, first_responses=(warm,))
    for remedy, is_once in (("init.allocate-once", False), ("init.warm-up", True)):
        findings = (replace(enclosing, remedy=remedy),)
        rows = select(replace(base, regions=tuple(regions), findings=findings), min_share=0).rows
        assert (next(row.saves for row in rows if row.region.path == region.path) == ONCE) is is_once


def test_a_row_has_no_number_that_is_a_row_s_below_of_another_bound() -> None:
    base = reports.sample()
    outer, inner = next((a, b) for a in base.regions for b in base.regions if a.path and b.path[:-1] == a.path)
    whose = {outer.path: "cpu", inner.path: "host_blocked"}
    for bound, told in (("host_blocked", [""]), ("cpu", ["5.00 ms"])):
        whose[inner.path] = bound
        regions = tuple(
            replace(one, most_saved_ns=5_000_000, verdict=replace(one.verdict, bound=whose[one.path]))
            if one.path in whose
            else one
            for one in base.regions
        )
        rows = select(replace(base, regions=regions), min_share=0).rows
        assert [row.saves for row in rows if row.region.path == outer.path] == told


def test_launch_overhead_that_is_mostly_prefetching_says_so() -> None:
    base = reports.sample()
    device = base.devices[0]
    for name, share, told in (
        ("cudaMemPrefetchAsync", 0.6, "launch overhead (mostly prefetching)"),
        ("cudaMemPrefetchAsync", 0.4, "launch overhead"),
        ("cudaLaunchKernel", 0.6, "launch overhead"),
    ):
        api = replace(device.api, top=(Top(name, 10, round(share * device.time["cuda_api"])),))
        (account,) = accounts(replace(base, devices=(replace(device, api=api),)))
        assert next(account.named(part) for part in account.parts if part.cause == "cuda_api") == told


def test_a_saving_of_one_of_several_gpus_that_exceeds_its_bar_is_explained() -> None:
    base = reports.two_devices()
    for times, is_told in ((0.5, False), (1.5, True)):
        devices = []
        for device in base.devices:
            saving = round(times * device.time[device.verdict.bound])
            devices.append(replace(device, verdict=replace(device.verdict, saving_ns=saving, without_ns=None)))
        assert bool(beyond_the_bar(replace(base, devices=tuple(devices)))) is is_told
    assert beyond_the_bar(reports.sample()) == ""  # one GPU's own sentence says so


def test_a_region_s_bound_is_its_own_where_the_whole_has_two() -> None:
    base = reports.sample()
    device = base.devices[0]
    mixed = replace(device.verdict, bound="mixed", mixed_of=("sync", "cuda_api"))
    rows = [row for row in select(base).rows if not row.region.verdict.mixed_of]
    assert of_each_alone(base, rows) == ""
    assert of_each_alone(replace(base, devices=(replace(device, verdict=mixed),)), rows).startswith("BOUND BY: ")
    alike = [replace(rows[0], region=replace(rows[0].region, verdict=mixed)), *rows[1:]]
    assert of_each_alone(replace(base, devices=(replace(device, verdict=mixed),)), alike) == ""


def test_gaps_between_a_regions_work_tell_nothing_of_idle_time_before_it() -> None:
    region = next(
        one for one in reports.sample().regions if one.path and sum(one.time.values()) > one.time["gpu_compute"]
    )
    idle_ns = sum(ns for cause, ns in region.time.items() if not cause.startswith("gpu_"))
    most, little = (Gaps(1, round(part * idle_ns), 1_000, 0) for part in (0.6, 0.4))
    assert long_gaps(replace(region, gaps=most)) == (1.0, 1.0)
    assert long_gaps(replace(region, gaps=little)) is None
