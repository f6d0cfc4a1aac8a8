from __future__ import annotations

import json
from functools import cache

import pytest
from msgspec.structs import replace

import boundby
from boundby.compare import between
from boundby.compare.between import compare
from boundby.compare.matching import TreePart, match, tree
from boundby.document.comparison_document import (
    document,
    finding_figures,
    findings_summary,
    headline,
    not_its_own,
    predictions,
    regions,
    verdict,
    whole_run,
)
from boundby.model.causes import SHORT_LABEL
from boundby.model.errors import SelectionError
from boundby.render import to_terminal
from boundby.results import saved
from boundby.results.comparison import Comparison, DeviceChange, FindingChange
from boundby.results.report import AnalysisSummary, NotChecked, Report, Top
from boundby.rules.builtin import builtin
from boundby.trace.facts import Captured
from boundby.trace.vocabulary.last_words import FAILED
from tests.compare import pairs
from tests.support import reports
from tests.support.traces import analysis_of, trace_names, trace_path


@cache
def heat(stage: str) -> Report:
    return boundby.analyze(trace_path(f"openmp_heat_{stage}.sqlite"))


@pytest.mark.parametrize("name", trace_names())
def test_a_trace_does_not_differ_from_itself(name: str) -> None:
    try:
        report = analysis_of(name).report
    except boundby.UserError as error:
        pytest.skip(str(error))
    found = compare(report, report)
    assert not [item.path for item in found.regions if item.significance.is_change or item.change not in (0.0, None)]
    program = report.trace.program
    failed = program is not None and program.ended == FAILED  # of such a report, too, this is told of both sides
    assert [doubt.code for doubt in found.doubts] == (["earlier-failed", "later-failed"] if failed else [])
    assert not found.predictions
    assert all(item.why_not if item.change is None else item.change == 0 for item in found.devices)
    assert all(item.status in ("remains", "unchecked") for item in found.findings)


def test_of_regions_whose_work_is_not_on_record_the_host_tells() -> None:
    report = analysis_of("ddp_clock_ahead_rows_lost.sqlite").report
    found = compare(report, report)
    (step,) = (item for item in found.regions if item.path == found.steps)
    assert step.change is None
    assert step.why_not is not None
    assert "have no work on record" in step.why_not
    assert step.significance.series == "host"
    assert "of host time and takes" in headline(found.devices[0], found)


def test_heat_before_and_after() -> None:
    found = compare(heat("before"), heat("after"))
    (device,) = found.devices
    assert device.change == pytest.approx(-0.948, abs=0.001)
    assert device.before is not None
    assert device.after is not None
    assert (device.before.verdict.bound, device.after.verdict.bound) == ("gpu_copy", "gpu_compute")
    assert device.before.time["gpu_copy"] / 1e9 == pytest.approx(26.2, abs=0.05)
    assert device.after.time["gpu_copy"] / 1e9 == pytest.approx(0.34, abs=0.005)
    changed = {item.path: item.significance.status for item in found.regions if item.significance.is_change}
    assert changed in ({}, {("phase B", "iteration"): "faster"})  # without NVTX only regions that boundby found itself


@pytest.mark.parametrize(
    ("before", "after", "scenario", "measured_s"),
    [("before", "after", "copies_free", 1.428), ("after", "final", "infinite_gpu", 0.5527)],
)
def test_heat_was_predicted(before: str, after: str, scenario: str, measured_s: float) -> None:
    """Copies were kept on the device, then kernels made faster: both predicted within 5 %."""
    found = compare(heat(before), heat(after))
    made = next(item for item in found.predictions if item.scenario == scenario)
    assert made.measured_ns / 1e9 == pytest.approx(measured_s, rel=0.001)
    assert abs(made.error) < 0.05
    assert made.also == ()


def test_what_was_not_done_is_not_compared() -> None:
    found = compare(heat("before"), heat("after"))
    assert "infinite_gpu" not in {item.scenario for item in found.predictions}


def test_reading_back_is_gone() -> None:
    before, after = pairs.run(pairs.training()), pairs.run(pairs.training(reads=0, loss="compute_loss"), 3)
    found = compare(before, after)
    by_name = {item.path[-1]: item for item in found.regions if item.path}
    loss = by_name["compute_loss"]
    assert loss.before is not None
    assert loss.before.path == ("step *", "loss")
    assert loss.matched_by == "similar"
    assert loss.significance.status == by_name["step *"].significance.status == "faster"
    assert {by_name[name].significance.status for name in ("forward", "backward", "data")} == {"same"}
    step = by_name["step *"].change
    assert step is not None
    assert step == pytest.approx(found.devices[0].change or 0, abs=0.02)
    perfect = next(item for item in found.predictions if item.scenario == "infinite_host")
    assert abs(perfect.error) < 0.06


def test_different_counts_are_set_side_by_side_per_step() -> None:
    found = compare(pairs.run(pairs.training()), pairs.run(pairs.training(steps=45), 1))
    (device,) = found.devices
    assert device.is_per_step
    assert device.change == pytest.approx(0, abs=0.02)
    assert [item.code for item in found.doubts] == ["steps"]
    assert {item.significance.status for item in found.regions if item.path} == {"same"}


def test_a_saved_result_compares_as_the_report_does() -> None:
    before, after = pairs.run(pairs.training()), pairs.run(pairs.training(reads=0), 3)
    read = [saved.from_dict(json.loads(saved.render(report)), Report) for report in (before, after)]
    assert compare(*read).to_dict() == compare(before, after).to_dict()


def test_a_result_of_an_earlier_boundby_has_no_significance() -> None:
    data = json.loads(saved.render(pairs.run(pairs.training())))
    for region in data["regions"]:
        del region["instance_ns"]
    old = saved.from_dict(data, Report)
    found = compare(old, pairs.run(pairs.training()))
    assert {item.significance.status for item in found.regions} == {"not_tested"}


def test_findings_resolved_new_remaining_and_unchecked() -> None:
    report = reports.sample()
    finding = report.findings[0]
    other = replace(finding, rule="launch", region=("step", "forward"))
    gone = replace(finding, rule="blind", region=None)
    before = replace(report, findings=(finding, other, gone))
    after = replace(report, findings=(replace(other, saving_ns=(1, 2)), replace(finding, rule="copy")))
    status = {item.finding.rule: item.status for item in compare(before, after).findings}
    assert status == {"sync-operator": "resolved", "launch": "remains", "blind": "resolved", "copy": "new"}
    blind = replace(after, not_checked=(NotChecked("blind", "CPU scheduling was not captured"),))
    assert {item.finding.rule: item.status for item in compare(before, blind).findings}["blind"] == "unchecked"


def test_a_finding_whose_region_is_gone() -> None:
    finding = replace(reports.sample().findings[0], region=("step", "loss"))
    before = replace(pairs.made_of(pairs.region("step"), pairs.region("step/loss")), findings=(finding,))
    (item,) = compare(before, pairs.made_of(pairs.region("step"))).findings
    assert (item.status, item.is_region_gone, item.measured_ns) == ("resolved", True, None)


def test_another_program_is_not_called_faster() -> None:
    before = pairs.run(pairs.training())
    other = pairs.made_of(pairs.region("decode", 3.0))
    assert not compare(before, other).is_one_program
    assert compare(before, pairs.run(pairs.training(), 1)).is_one_program


def test_a_finding_follows_its_renamed_region() -> None:
    finding = replace(reports.sample().findings[0], region=("step", "loss"))
    before = replace(pairs.made_of(pairs.region("step"), pairs.region("step/loss")), findings=(finding,))
    renamed = replace(finding, region=("step", "compute_loss"))
    after = replace(pairs.made_of(pairs.region("step"), pairs.region("step/compute_loss")), findings=(renamed,))
    assert [item.status for item in compare(before, after).findings] == ["remains"]


def test_doubts() -> None:
    report = reports.sample()
    trace = report.trace
    device = replace(report.devices[0], name="H100")
    changed = {
        "gpu": replace(report, devices=(device,)),
        "gpu-count": reports.two_devices(),
        "gpu-work": reports.cpu_only(),
        "window": replace(report, analysis=AnalysisSummary(window="all")),
        "skip-first": replace(report, analysis=AnalysisSummary(skip_first=2)),
        "selection": replace(report, analysis=AnalysisSummary(device_ids=(0,))),
        "regions": replace(report, analysis=AnalysisSummary(min_share=0.1)),
        "rules": replace(report, analysis=AnalysisSummary(rules_disabled=("x",))),
        "command": replace(report, trace=replace(trace, command="python other.py")),
        "command-unknown": replace(report, trace=replace(trace, command=None)),
        "capture": replace(report, trace=replace(trace, captured=Captured(kernels=True, cuda_api=True, nvtx=True))),
        "nsys": replace(report, trace=replace(trace, nsys_version="2025.1")),
    }
    for code, other in changed.items():
        assert code in {item.code for item in compare(report, other).doubts}
        assert code in {item.code for item in compare(other, report).doubts}


def test_steps_can_be_named() -> None:
    report = pairs.run(pairs.training())
    assert compare(report, report, steps="forward").steps == ("step *", "forward")
    with pytest.raises(SelectionError, match="nosuch"):
        compare(report, report, steps="nosuch")


def test_any_two_reports_can_be_compared() -> None:
    for before in reports.ALL.values():
        for after in reports.ALL.values():
            compare(before(), after()).to_dict()


def test_a_finding_whose_cost_fell_has_improved() -> None:
    report = reports.sample()
    old = replace(report.findings[0], saving_ns=None, evidence={"total_ns": 1_060, "median_ns": 21, "calls": 50})
    for total, trend in ((210, "improved"), (1_000, None), (2_000, "worse")):
        new = replace(old, evidence={"total_ns": total, "median_ns": 4, "calls": 50})
        (item,) = compare(replace(report, findings=(old,)), replace(report, findings=(new,))).findings
        assert (item.status, item.trend, item.title_before) == ("remains", trend, old.title)
    (old, new) = (replace(old, saving_ns=saving) for saving in ((0, 559), (0, 110)))
    (item,) = compare(replace(report, findings=(old,)), replace(report, findings=(new,))).findings
    assert item.trend == "improved"
    notes = [replace(found, severity="note") for found in (old, replace(new, saving_ns=None))]
    (item,) = compare(*(replace(report, findings=(note,)) for note in notes)).findings
    assert item.trend is None


def test_costs_are_compared_for_as_many_runs() -> None:
    """Half the steps, half the saving: as bad as before."""
    old = replace(reports.sample().findings[0], region=("step",), saving_ns=(0, 1_000))
    before = replace(pairs.made_of(pairs.region("step", durations=(10,) * 20)), findings=(old,))
    after = replace(
        pairs.made_of(pairs.region("step", durations=(10,) * 10)), findings=(replace(old, saving_ns=(0, 500)),)
    )
    (item,) = compare(before, after).findings
    assert item.trend is None


def test_what_has_come_to_another_region_is_still_there_unless_it_grew() -> None:
    base = replace(reports.sample().findings[0], rule="pageable-copy", region=("iteration",), saving_ns=(0, 330))
    before = replace(pairs.made_of(pairs.region("iteration")), findings=(base,))
    later = [replace(base, region=(name,), saving_ns=(0, high)) for name, high in (("load", 245), ("store", 66))]
    regions = [pairs.region("iteration"), pairs.region("load"), pairs.region("store")]
    found = compare(before, replace(pairs.made_of(*regions), findings=tuple(later))).findings
    assert [(item.status, item.finding.region, item.region_before, item.trend) for item in found] == [
        ("remains", ("load",), base.region, None),
        ("remains", ("store",), base.region, None),
    ]
    grown = replace(later[0], saving_ns=(0, 500))
    found = compare(before, replace(pairs.made_of(*regions), findings=(grown,))).findings
    assert [item.status for item in found] == ["new", "resolved"]
    elsewhere = replace(base, region=("other",))
    regions = [pairs.region("iteration"), pairs.region("other")]
    found = compare(
        replace(pairs.made_of(*regions), findings=(base,)), replace(pairs.made_of(*regions), findings=(elsewhere,))
    ).findings
    assert [item.status for item in found] == ["new", "resolved"], "a region that both have is another place"


def test_what_is_told_of_a_place_around_is_one_matter() -> None:
    """Not resolved in one place and new in the one around it."""
    was = replace(reports.sample().findings[0], rule="tensor-cores", region=("step",), saving_ns=(10, 100))
    now = replace(was, region=("step", "forward"), saving_ns=(30, 300))
    before, after = (
        replace(pairs.made_of(pairs.region("step"), pairs.region(("step", "forward"))), findings=(one,))
        for one in (was, now)
    )
    [item] = compare(before, after).findings
    assert (item.status, item.region_before, item.trend) == ("remains", ("step",), "worse")
    [item] = compare(after, before).findings
    assert (item.status, item.region_before, item.trend) == ("remains", ("step", "forward"), "improved")
    whole, half = replace(was, saving_ns=(30, 300)), replace(now, saving_ns=(20, 200))
    parts = half, replace(half, region=("step", "backward"))
    split = compare(replace(before, findings=(whole,)), replace(after, findings=parts)).findings
    assert [item.trend for item in split if item.status == "remains"] == [None]


def test_new_is_only_what_costs_more_than_before() -> None:
    """Half the time of the step is gone, none of its kernels': a finding on these is seen now, one on waits is new."""
    kernels, waits = (
        replace(reports.sample().findings[0], rule=rule, region=("step", "inside"))
        for rule in ("hot-kernel", "sync-call")
    )
    step = pairs.region("step")  # kernels for 14 ms, syncs for 6 ms
    was, now = (replace(step, time={**step.time, **part}) for part in ({"host_blocked": 90}, {"sync": 90_000_000}))
    found = compare(pairs.made_of(was), replace(pairs.made_of(now), findings=(kernels, waits)))
    assert [(item.status, item.is_cost_alike) for item in found.findings] == [("new", True), ("new", False)]
    assert findings_summary(found) == "1 new, 1 hidden before"


def test_a_late_start_that_both_runs_have_is_not_new() -> None:
    base = pairs.made_of(pairs.region("step"))
    late = replace(reports.sample().findings[0], rule="late-start", region=None, evidence={"startup_ns": 1_000})
    for startup_ns, is_alike in ((900, True), (100, False)):
        before = replace(base, devices=(replace(base.devices[0], startup_ns=startup_ns),))
        [item] = compare(before, replace(base, findings=(late,))).findings
        assert (item.status, item.is_cost_alike) == ("new", is_alike)


def test_what_costs_the_same_and_would_save_more_is_no_worse() -> None:
    was = replace(reports.sample().findings[0], saving_ns=(10, 100), evidence={"total_ns": 500})
    base = pairs.made_of(pairs.region("step"))
    was = replace(was, region=("step",))
    before, after = (replace(base, findings=(one,)) for one in (was, replace(was, saving_ns=(30, 300))))
    [item] = compare(before, after).findings
    assert (item.trend, item.is_cost_alike) == (None, True)
    assert "can hold the program up for longer, or save more, once others are gone" in to_terminal.render(
        document(compare(before, after)), width=200
    )


def test_programs_that_share_nothing_did_not_change() -> None:
    before = pairs.run(pairs.training(gemm_ns=500_000, reads=1))
    kernels = replace(before.devices[0].kernels, top=(Top("another", 1, 1),))
    after = replace(
        before,
        trace=replace(before.trace, command=None),
        devices=(replace(before.devices[0], kernels=kernels),),
        regions=before.regions[:1],
    )
    found = compare(before, after)
    assert "program" in {doubt.code for doubt in found.doubts}
    assert headline(found.devices[0], found).startswith("The two reports are of different programs: ")
    same = compare(before, replace(after, devices=before.devices))
    assert same.is_one_program


def test_what_no_range_owns_has_a_row() -> None:
    before = pairs.run(pairs.training(gemm_ns=500_000, reads=1))
    found = compare(before, before)
    assert found.outside is not None
    assert found.outside.before is not None
    tops = [item.before.total_ns for item in found.regions if item.before is not None and len(item.path) == 1]
    assert found.outside.before.total_ns + sum(tops) == found.before.total_ns


def test_a_part_of_a_change_saves_what_is_gone_of_the_device_s_work() -> None:
    """Not in proportion: the host limits only the last part of what all of the change would save."""
    heavy = pairs.run(pairs.training(gemm_ns=2_000_000, reads=1))
    light = pairs.run(pairs.training(gemm_ns=500_000, reads=1))
    found = compare(heavy, light)
    made = next(item for item in found.predictions if item.scenario == "infinite_gpu")
    assert abs(made.error) < 0.05


@pytest.mark.parametrize(
    ("rules", "cause", "credit"),
    [
        (("copy-exposed", "pageable-copy"), "gpu_copy", "copy time there is 6.00 ms shorter"),
        (
            ("sync-call", "sync-readback"),
            None,
            "its region is 20.0 ms shorter",
        ),  # what waits cost is the idle time after them
    ],
)
def test_the_credit_is_what_the_cause_has_less_and_is_shared(
    rules: tuple[str, str], cause: str | None, credit: str
) -> None:
    def run(each: float) -> Report:
        region = pairs.region("step", each)
        spent = {**region.time, "gpu_copy": region.time["sync"], "sync": 0}
        return pairs.made_of(replace(region, time=spent) if cause else region)

    one = replace(reports.sample().findings[0], rule=rules[0], region=("step",), saving_ns=(10**4, 10**7))
    other = replace(one, rule=rules[1], saving_ns=(10**4, 10**5))
    found = compare(replace(run(2.0), findings=(one, other)), run(1.0)).findings
    assert [(item.status, item.cause, item.together) for item in found] == [("resolved", cause, 2)] * 2
    assert {item.measured_ns for item in found} == {20_000_000}
    assert {item.cause_ns for item in found} == {6_000_000 if cause else None}
    assert finding_figures(found[1]) == (
        f"promised to save 10.0-100 us; {credit}, by this and another resolved finding together"
    )


def test_findings_of_one_place_find_the_one_that_says_the_same() -> None:
    """Where the first of three waits is gone, the others are still there."""
    first = replace(reports.sample().findings[0], rule="sync-operator", region=("step",), saving_ns=(10**6, 10**7))
    waits = [
        replace(first, title=f"{name} makes the host wait 20 times, {took} in all")
        for name, took in (("torch.nonzero", "69.2 ms"), ("torch.unique", "657 us"), ("a boolean index", "2.07 ms"))
    ]
    later = [replace(waits[1], title="torch.unique makes the host wait 20 times, 6.1 ms in all"), waits[2]]
    run = pairs.made_of(pairs.region("step", 1.0))
    found = compare(replace(run, findings=tuple(waits)), replace(run, findings=tuple(later))).findings
    told = [(item.status, item.finding.title.split(" makes")[0]) for item in found]
    assert told == [("resolved", "torch.nonzero"), ("remains", "torch.unique"), ("remains", "a boolean index")]


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ("kernel takes 100 %: 50 x 21.2 ms", "kernel takes 100 %: 50 x 4.20 ms", "was 21.2 ms"),
        ("2 copies in 232 us, while", "2 copies in 1.2 ms, while", "was 232 us"),
        ("2 copies take 3 ms", "2 copies take 3 ms", ""),
        ("two copies take 3 ms", "one copy takes 3 ms", "before: two copies take 3 ms"),
        (
            "it waits for 15.2 s (21 times 723 ms)",
            "it waits for 746 ms (3 times 249 ms)",
            "was 15.2 s (21 times 723 ms)",
        ),
        ("1 kernel (51.1 s) runs alone", "1 kernel (1.86 s) runs alone", "was 51.1 s"),
        ("9.99k kernels take 3 us", "10 kernels take 3 us, 3 % of it", "was 9.99k"),
        ("gemm_128x64 takes 3 ms", "gemm_128x32 takes 3 ms", "before: gemm_128x64 takes 3 ms"),
        ("1 x a, 2 x b, 3 x c, 4 x d, 5 x e, 6 x f, 7 x g", "2 x a, 2 x b, 3 x c, 4 x d, 5 x e, 6 x f, 8 x g", ""),
    ],
)
def test_what_it_was_is_told_by_what_differs(was: str, now: str, told: str) -> None:
    old = replace(reports.sample().findings[0], title=was, saving_ns=None)
    new = replace(old, title=now)
    assert (
        finding_figures(FindingChange(status="remains", finding=new, title_before=was, region_before=old.region))
        == told
    )


def test_real_runs_before_and_after_keep_what_was_there() -> None:
    one, two, three = (heat(stage) for stage in ("before", "after", "final"))
    found = {(item.finding.rule, item.status) for item in compare(one, two).findings}
    assert ("pageable-copy", "remains") in found
    assert ("pageable-copy", "new") not in found
    assert ("repeated-transfer", "resolved") in found
    (hot,) = (item for item in compare(two, three).findings if item.finding.rule == "hot-kernel")
    assert hot.trend == "improved"


def test_every_cause_that_a_rule_takes_away_has_a_label() -> None:
    assert {rule.cause.key for rule in builtin() if rule.cause is not None} <= set(SHORT_LABEL)


def test_windows_of_one_length_that_hold_unlike_work_are_not_called_as_fast() -> None:
    """An excerpt of a fixed length holds as many rounds as fit: its length says nothing of how long one takes."""

    def parts(times: int) -> TreePart:
        return tree(pairs.made_of(replace(pairs.region("op", 2.0), instances=times)))

    assert between._unlike_work(match(parts(20), parts(20))) == []
    told = between._how_unlike(between._unlike_work(match(parts(20), parts(18))))
    assert told == "both windows are equally long but hold different work: op ran 20 times before and 18 times after"


def test_excerpts_that_hold_unlike_mixtures_of_work_have_no_unit() -> None:
    def parts(*times: int) -> TreePart:
        regions = [replace(pairs.region(name, 2.0), instances=one) for name, one in zip("abc", times, strict=True)]
        return tree(pairs.made_of(*regions))

    def unit(before: TreePart, after: TreePart) -> str | None:
        matches = match(before, after)
        found = between._unit_of(matches, between._unlike_work(matches))
        return found[1].label if found else None

    assert unit(parts(20, 40, 10), parts(18, 36, 9)) == "a"
    assert unit(parts(20, 41, 10), parts(18, 36, 9)) == "a"  # what the windows' edges cut off
    assert unit(parts(20, 40, 10), parts(18, 48, 15)) is None


def test_a_real_excerpt_of_fixed_length_is_compared_by_what_repeats() -> None:
    names = [f"pair_fixed_window_{when}.sqlite" for when in ("before", "after")]
    found = compare(*(analysis_of(name).report for name in names))
    assert found.steps == ("FlashAttnFunc",)
    assert [(item.before.instances, item.after.instances) for item in found.devices if item.before and item.after] == [
        (33.5, 30.0)
    ] * 2
    assert all(0.10 < (item.change or 0) < 0.125 for item in found.devices)


def test_the_whole_run_is_told_where_gpu_work_is_a_part_of_it() -> None:
    found = compare(*(analysis_of(f"pair_lm_{kind}.sqlite").report for kind in ("fp32", "bf16")))
    assert whole_run(found).endswith("is 1.5 times as fast: 10.0 s instead of 15.5 s (-35 %).")
    (device,) = found.devices
    assert headline(device, found).startswith("From first to last GPU work the program is ")
    none = replace(found, after=replace(found.after, run_ns=None))
    assert whole_run(none) == ""


def test_mean_and_median_of_opposite_signs_say_why() -> None:
    found = compare(*(analysis_of(f"pair_lm_{kind}.sqlite").report for kind in ("fp32", "bf16")))
    rows, _ = regions(found)
    odd = [row for row in rows if row.below]
    assert [(row.state[0], row.typical[0]) for row in odd] == [("-", "+")]
    assert odd[0].below == (
        "the median rose while the mean fell: fewer instances are very slow (the mean was 2.3 times the median, "
        "and is 1.1 times)"
    )
    told = {
        row.typical.startswith("host ")
        for row in rows
        if row.change.significance.series == "host" and row.status == "faster"
    }
    assert told == {True}  # the mean beside it is of the account


def test_a_prediction_tells_what_became_of_its_causes() -> None:
    """Of several causes together, one of which grew, a part that is gone would say what no table does."""
    found = compare(*(analysis_of(f"pair_input_{workers}_workers.sqlite").report for workers in (2, 8)))
    assert predictions(found)[1].told == "host code and blocked cut from 15.2 s to 753 ms"


def test_a_verdict_has_the_name_that_its_own_report_gives_it() -> None:
    found = compare(*(analysis_of(f"pair_input_{workers}_workers.sqlite").report for workers in (2, 8)))
    for one in (found, saved.loads(saved.render(found), Comparison)):
        assert verdict(one.devices[0]).endswith("It was waiting for input and is now compute bound.")


def test_the_whole_run_is_told_first_where_it_changed_the_other_way() -> None:
    opposite = compare(*(analysis_of(f"pair_{kind}.sqlite").report for kind in ("pageable", "pinned")))
    told = to_terminal.render(document(opposite), width=200)
    whole = "takes 2.2 times as long: 10.2 s instead of 4.62 s (+122 %). 6.27 s of it lie before and after GPU work"
    versions = "If both commands run versions of one program, from first to last GPU work it is 1.1 times as fast"
    assert told.index(whole) < told.index(versions)
    assert "different programs" not in told
    alike = compare(*(analysis_of(f"pair_lm_{kind}.sqlite").report for kind in ("fp32", "bf16")))
    told = to_terminal.render(document(alike), width=200)
    assert told.index("From first to last GPU work") < told.index("All that is on record")


def test_time_that_another_program_took_is_no_gain() -> None:
    reports_of = [analysis_of(f"pair_lm_{kind}.sqlite").report for kind in ("fp32", "bf16")]
    found = compare(*reports_of)
    had = "another process or context had GPU 0 for 4.34 s."
    told = "Up to 4.34 s of the change are no gain of the program, which itself is 1.5 to 3.1 times as fast: "
    told += f"in the first run {had}"
    assert list(not_its_own(found.devices[0], found)) == [told]
    together = {item.finding.rule: item.together for item in found.findings if item.status == "resolved"}
    assert together == {"tensor-cores": 2, "shared-gpu": 2}  # the window holds the time of its kernels
    back = compare(*reversed(reports_of))
    told = f"Up to 4.34 s of the change are no loss of the program: in the second run {had}"
    assert list(not_its_own(back.devices[0], back)) == [told]
    assert not list(not_its_own(*_same(reports_of[0])))


def _same(report: Report) -> tuple[DeviceChange, Comparison]:
    found = compare(report, report)
    return found.devices[0], found


def test_what_saves_a_run_nothing_is_no_promise() -> None:
    warm_up = replace(reports.sample().findings[0], remedy="init.warm-up")
    found = FindingChange(status="new", finding=warm_up, saving_after_ns=(0, 66_000_000))
    told = "what you time gets shorter by up to 66.0 ms; the whole run does not"
    assert finding_figures(found) == told
    left = FindingChange(status="resolved", finding=warm_up, saving_before_ns=(0, 66_000_000))
    assert finding_figures(left) == f"promised: {told}"
    assert finding_figures(replace(found, finding=replace(warm_up, remedy=""))) == "would save up to 66.0 ms"
