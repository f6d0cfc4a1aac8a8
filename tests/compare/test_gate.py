from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest
from benchmarks import gate as damaged_gate
from msgspec.structs import replace

from boundby import api
from boundby.api import Analysis
from boundby.capture.folder import last_words_of, not_recorded
from boundby.compare import gate
from boundby.compare.between import compare
from boundby.compare.quantities import ANY, QUANTITIES, KnownRecords, known, listing
from boundby.model.errors import InputError, UserError
from boundby.opening import open_trace
from boundby.results import saved
from boundby.results.comparison import GateResult
from boundby.results.report import Coverage, Report
from boundby.simulate.instructions import MS, Launch, Loop, Range, Sync, Work, program
from boundby.trace.facts import Captured, TraceWarning
from tests.compare import pairs
from tests.replay.test_replay import US
from tests.support import reports
from tests.support.alter import alter
from tests.support.program import Program


def held(*texts: str, report: Report | None = None, before: Report | None = None, fails: bool = False) -> GateResult:
    report = report if report is not None else reports.sample()
    limits = [gate.parse(text, fails=fails) for text in texts]
    return gate.check(limits, report, compare(before, report) if before is not None else None)


@pytest.mark.parametrize(
    ("text", "scope", "quantity", "operator", "value"),
    [
        ("step.time < 12 ms", "step", "time", "<", 12e6),
        ("step.time<12ms", "step", "time", "<", 12e6),
        ("gpu_utilization > 0.8", None, "gpu_utilization", ">", 0.8),
        ("gpu_utilization >= 80 %", None, "gpu_utilization", ">=", 0.8),
        ("sync.per_step <= 2", None, "sync.per_step", "<=", 2),
        ("step/loss.sync.per_step == 0", "step/loss", "sync.per_step", "==", 0),
        ("step */layers.3.mlp.time.sync < 1.5us", "step */layers.3.mlp", "time.sync", "<", 1500),
        ("'a b.time'.time.total != 1_000 ns", "a b.time", "time.total", "!=", 1000),
        ('"x < y".time < 1e3 us', "x < y", "time", "<", 1e6),
        ("copies.bytes < 2 MiB", None, "copies.bytes", "<", 2**21),
        ("api.per_ms < 20 /ms", None, "api.per_ms", "<", 20),
        ("findings.new.high == 0", None, "findings.new.high", "==", 0),
        ("*.regression <= 5 %", "*", "regression", "<=", 0.05),
        ("time.change <= 150 %", None, "time.change", "<=", 1.5),
        ("time.change > -0.05", None, "time.change", ">", -0.05),
    ],
)
def test_what_a_limit_says(text: str, scope: str | None, quantity: str, operator: str, value: float) -> None:
    limit = gate.parse(text)
    assert (limit.scope, limit.quantity, limit.operator) == (scope, quantity, operator)
    assert limit.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a limit"),
        ("step.time", "is not a limit"),
        ("step.time < fast", "is not a limit"),
        ("step.time =< 3 ms", "is not a limit"),
        ("step.time < 3", "the value of time needs a unit. Units of time: ns us"),
        ("step.time < 3 parsecs", "'parsecs' is no unit of time"),
        ("step.tme < 3 ms", "no quantity 'step.tme'. Did you mean time"),
        ("gpu_utilisation > 0.8", "Did you mean gpu_utilization"),
        ("gpu_utilization > 80", "Write 80 %"),
        ("sync.per_step < 2 ms", "has no unit"),
        ("host.p95 < 2 ms", "Name one: REGION.host.p95"),
        ("step.findings == 0", "no region has findings"),
        ("'step'.nothing < 2", "no quantity 'nothing'"),
    ],
)
def test_what_says_nothing_is_refused(text: str, problem: str) -> None:
    with pytest.raises(gate.LimitError) as caught:
        gate.parse(text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("step.time < 54 ms", True),  # 5328 ms of account in 100 instances
        ("step.time < 53 ms", False),
        ("step.host.median > 52 ms", True),
        ("step/loss.time.sync < 13 ms", True),
        ("step/loss.share.sync < 50 %", False),
        ("loss.time < 21 ms", True),  # by its last name
        ("step/*.time < 22.5 ms", True),
        ("step/*.time < 20 ms", False),
        ("gpu_utilization > 0.6", True),
        ("gpu_utilization > 0.8", False),
        ("time < 5.43 s", False),
        ("time <= 5.43 s", True),
        ("share.gpu_compute > 50 %", True),
        ("sync.per_step <= 13", True),
        ("sync.per_step < 13", False),
        ("step.kernels.per_step == 120", True),
        ("findings.high == 0", False),
        ("gaps.longest < 5 ms", True),
        ("nosuch.time < 1 s", False),
        ("data.gpu.median < 1 s", False),  # it launched nothing
    ],
)
def test_limits_on_a_report(text: str, kept: bool) -> None:
    (result,) = held(text).limits
    assert result.kept is kept, result.message
    assert result.message.endswith(".")
    (fails,) = held(text, fails=True).limits if result.measured and result.measured[0].value is not None else (None,)
    if fails is not None and len(result.measured) == 1:
        assert fails.kept is not kept


def test_a_part_of_a_report_keeps_no_limit() -> None:
    report = reports.sample()
    warning = TraceWarning("max-memory", "only the last part was read")
    part = replace(report, trace=replace(report.trace, warnings=(*report.trace.warnings, warning)))
    texts = ("gpu_utilization >= 0 %", "gpu_utilization > 100 %")
    assert [result.kept for result in held(*texts, report=report).limits] == [True, False]
    kept, broken = held(*texts, report=part).limits
    assert (kept.kept, kept.untold) == (False, True)
    assert "last part of the report" in kept.message
    assert (broken.kept, broken.untold) == (False, False)


def test_every_quantity_can_be_measured_or_says_why_not() -> None:
    values = {"ns": "1 s", "fraction": "50 %", "count": "5", "per_ms": "5", "bytes": "1 GB"}
    for name, quantity in QUANTITIES.items():
        for scope, there in (
            ("", quantity.of_whole or quantity.of_comparison),
            ("step.", quantity.of_region or quantity.of_change),
        ):
            if there is None:
                continue
            text = f"{scope}{name} < {values[quantity.unit]}"
            for report in (reports.sample(), reports.cpu_only(), reports.empty(), reports.many_devices()):
                (result,) = held(text, report=report, before=reports.sample()).limits
                assert result.message, text


def test_the_listing_names_every_quantity() -> None:
    assert [line.split()[0] for line in listing().splitlines()] == list(QUANTITIES)


def test_each_device_must_keep_a_limit() -> None:
    (result,) = held("gpu_utilization > 90 %", report=reports.two_devices()).limits
    assert [item.kept for item in result.measured] == [False, True]
    assert "GPU 0 is 61" in result.message


def test_step_is_the_region_of_that_name_else_the_one_that_repeats() -> None:
    report = pairs.run(pairs.training())
    (result,) = held("step.time < 1 s", report=report).limits
    assert result.measured[0].subject == "step *"
    assert gate.step_of(reports.empty()) is None
    (result,) = held("sync.per_step < 5", report=reports.empty()).limits
    assert not result.kept
    assert "no region that is plainly its step" in result.message


def test_an_optional_limit_is_kept_where_there_is_no_such_region() -> None:
    result = gate.check([gate.parse("nosuch.time < 1 s", optional=True)], reports.sample())
    assert result.passed
    assert result.limits[0].skipped


def test_regressions() -> None:
    base, slower = pairs.run(pairs.training()), pairs.run(pairs.training(gemm_ns=330_000), 5)
    assert held("regression <= 5 %", report=pairs.run(pairs.training(), 9), before=base).passed
    assert held("regression <= 5 %", report=base, before=base).passed
    (result,) = held("regression <= 5 %", report=slower, before=base).limits
    assert {item.subject for item in result.measured if not item.kept} == {"step *"}
    (result,) = held("any-region.regression <= 5 %", report=slower, before=base).limits
    assert {item.subject for item in result.measured if not item.kept} == {
        "step *",
        "step */forward",
        "step */backward",
    }
    assert held("regression <= 20 %", report=slower, before=base).passed
    assert held("loss.regression <= 5 %", "data.regression <= 5 %", report=slower, before=base).passed
    assert not held("step.regression <= 5 %", report=slower, before=base).passed
    assert not held("regression > 5 %", report=slower, before=base, fails=True).passed
    assert held("step.improvement > 5 %", report=base, before=slower).passed
    assert not held("time.change <= 5 %", report=slower, before=base).passed


def test_a_regression_that_cannot_be_told_is_not_passed_over() -> None:
    few = pairs.made_of(pairs.region("step", durations=[1_000_000] * 3))
    (result,) = held("regression <= 5 %", report=few, before=few).limits
    assert not result.kept
    assert "too few instances" in result.message
    assert result.untold
    assert not held("step.regression <= 5 %", report=few, before=few).passed


def test_new_findings() -> None:
    report = reports.sample()
    clean = replace(report, findings=())
    assert held("findings.new.high == 0", report=report, before=report).passed
    assert not held("findings.new.high == 0", report=report, before=clean).passed
    assert not held("findings.new.high > 0", report=report, before=clean, fails=True).passed


def test_two_runs_are_needed() -> None:
    with pytest.raises(gate.LimitError, match="needs two runs"):
        held("regression <= 5 %")


BUDGET = """\
# what we promise
steps = "step"
limits = [
  "step.time < 60 ms",
  "gpu_utilization > 50 %",
]

[[limit]]
check = "step/loss.sync.per_step <= 2"
why = "nonzero() must not come back"

[[limit]]
check = "step/decode.time < 1 ms"
optional = true
"""


def test_a_budget() -> None:
    found = gate.loads(BUDGET)
    assert found.steps == "step"
    assert [limit.text for limit in found.limits][2:] == ["step/loss.sync.per_step <= 2", "step/decode.time < 1 ms"]
    assert found.limits[2].reason == "nonzero() must not come back"
    assert [limit.optional for limit in found.limits] == [False, False, False, True]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds no limit"),
        ("limits = []", "holds no limit"),
        ("limits = [", "is not TOML"),
        ("limits = 'x'", "line 1: limits is not a list of strings"),
        ("\nlimits = [1]", "line 2: limits is not"),
        ("\n\nlimit = 3", "line 3: limit is not a list of tables"),
        ("# a\nlimits = [\n 'step.time < 1 ms',\n 'step.tme < 1 ms']", "line 4: 'step.tme < 1 ms'"),
        ("# step.tme < 1 ms\nlimits = ['step.tme < 1 ms']", "line 2"),
        ("\n[[limit]]\nwhy = 'x'", "line 2: a [[limit]] has no check"),
        ("[[limit]]\ncheck = 'findings == 0'\noptional = 'yes'", "line 3: optional is not true or false"),
        ("[[limit]]\ncheck = 'findings == 0'\nwhen = 1", "line 3: a limit has no 'when'"),
        ("[[limit]]\ncheck = 5", "line 2: check is not a string"),
        ("steps = 5\nlimits = ['findings == 0']", "line 1: steps is not"),
        ("limitz = ['findings == 0']", "line 1: there is no setting 'limitz'"),
        ("limits = ['\"a\".time < 1']", "line 1"),
    ],
)
def test_a_bad_budget_is_one_sentence_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        gate.loads(text, "budget.toml")
    assert "budget.toml" in caught.value.message
    assert problem in caught.value.message
    assert "\n" not in str(caught.value)
    assert caught.value.next_step


def test_a_budget_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot read the budget"):
        gate.read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        gate.read(tmp_path / "bad.toml")


def test_toml_is_read_on_every_python() -> None:
    assert sys.version_info >= (3, 11) or __import__("tomli")


def lossy(launches_lost: int, unrecorded_ns: int) -> Report:
    """The sample with records missing of its device."""
    report = reports.sample()
    coverage = Coverage(0.9, 0.5, 1000, launches_lost, unrecorded_ns)
    return replace(report, devices=tuple(replace(device, coverage=coverage) for device in report.devices))


def test_where_records_are_missing_a_limit_holds_only_whatever_they_would_have_said() -> None:
    report = lossy(100, reports.sample().devices[0].window_ns // 10)
    busy = report.devices[0].gpu_utilization
    sure, open_ = held(
        f"gpu_utilization < {busy + 0.2:.3f}", f"gpu_utilization < {busy + 0.05:.3f}", report=report
    ).limits
    assert (sure.kept, sure.untold, open_.kept, open_.untold) == (True, False, False, True)
    assert "100 of 1,000 launches are on record without their work" in open_.message


def test_findings_of_a_verdict_that_cannot_be_told_cannot_either() -> None:
    report = lossy(900, 10**9)
    verdict = replace(report.devices[0].verdict, bound="unknown", why_not="900 launches have no work on record")
    report = replace(report, devices=(replace(report.devices[0], verdict=verdict),))
    (result,) = held("findings < 100", report=report).limits
    assert (result.kept, result.untold) == (False, True)


def test_no_step_is_guessed() -> None:
    """One that repeats and holds little of what is launched is named, not taken."""
    report = reports.sample()
    few = tuple(replace(region, coverage=Coverage(launches=1 if region.path else 100)) for region in report.regions)
    with pytest.raises(UserError, match=r"plainly the program's step") as caught:
        held("sync.per_step < 5", report=replace(report, regions=few))
    assert "candidates: step" in str(caught.value.next_step)


def test_the_time_of_a_step_says_what_passes_between_two() -> None:
    """A loop that waits for input between its steps keeps a limit of the step's own time."""
    waits = pairs.run(program(Loop(10, [Work(8 * MS), Range("step {i}", [Launch("k", 2 * MS), Sync()])])))
    (told,) = gate.check([gate.parse("step.time < 4 ms")], waits).limits
    assert told.kept
    assert "more pass for each outside of it" in told.message
    steady = pairs.run(program(Loop(10, [Range("step {i}", [Launch("k", 2 * MS), Sync()])])))
    (told,) = gate.check([gate.parse("step.time < 4 ms")], steady).limits
    assert "outside" not in told.message


def test_a_step_is_what_all_threads_do_meanwhile() -> None:
    """A thread that makes input copies beside the steps; what comes before the first belongs to none."""
    program = Program(threads=2)
    program.push(-1_000 * US, 2_000 * US, "input", thread=1)
    for number in range(20):
        setup = program.api((number - 100) * US, (number - 99) * US, "cudaMemcpyAsync")
        program.copy((number - 90) * US, (number - 89) * US, setup)
    for step in range(10):
        base = step * 100 * US
        program.push(base, base + 90 * US, f"step {step}")
        call = program.api(base + 10 * US, base + 12 * US, "cudaLaunchKernel")
        program.kernel(base + 20 * US, base + 60 * US, call)
        for place in (30, 40, 50):
            fed = program.api(base + place * US, base + (place + 5) * US, "cudaMemcpyAsync", thread=1)
            program.copy(base + (place + 32) * US, base + (place + 33) * US, fed, stream=9)
    report = Analysis(program.trace()).report
    limits = [gate.parse("copies.per_step <= 1"), gate.parse("'step *'.copies.per_step == 0")]
    (whole, inside) = gate.check(limits, report, steps="step *").limits
    assert (whole.kept, inside.kept) == (False, True)
    assert whole.message == "copies.per_step (all threads) of step * is 3."


def damaged(report: Report, coverage: Coverage) -> Report:
    """With so much on record of every device and region."""
    devices = tuple(replace(device, coverage=coverage) for device in report.devices)
    regions = tuple(replace(region, coverage=coverage) for region in report.regions)
    return replace(report, devices=devices, regions=regions)


@pytest.mark.parametrize("quantity", ["sync.count", "sync.per_step", "sync.blocked", "api.per_step", "api.per_ms"])
def test_without_cuda_calls_nothing_is_said_of_them(quantity: str) -> None:
    report = reports.sample()
    captured = replace(report.trace.captured, cuda_api=False)
    without = replace(report, trace=replace(report.trace, captured=captured))
    unit = " s" if QUANTITIES[quantity].unit == "ns" else ""
    (result,) = held(f"{quantity} < 1000000{unit}", report=without).limits
    assert (result.kept, result.untold) == (False, True)
    lost = damaged(report, Coverage(calls_lost_fraction=0.2))
    (result,) = held(f"{quantity} < 1000000{unit}", report=lost).limits
    assert (result.kept, result.untold) == (False, True)
    (result,) = held(f"{quantity} < 0{unit}", report=lost).limits  # broken, whatever the missing calls were
    assert (result.kept, result.untold) == (False, False)


def test_lost_kernels_count_where_none_is_left() -> None:
    report = reports.sample()
    kernels = replace(report.regions[0].kernels, count=0)
    empty = replace(
        report, regions=tuple(replace(region, kernels=kernels, meanwhile=None) for region in report.regions)
    )
    lost = damaged(empty, Coverage(0.0, 0.5, 13_500, 13_500, 0))
    (result,) = held("kernels.per_step <= 20", report=lost).limits
    assert (result.kept, result.untold) == (False, True)
    (result,) = held("gaps.longest < 1 s", report=damaged(report, Coverage(0.9, 0.5, 10, 1, 2_000_000_000))).limits
    assert (result.kept, result.untold) == (False, True)


def test_rules_that_were_not_asked_make_findings_open() -> None:
    for text in ("findings.low == 0", "findings <= 1"):  # a rule lacked its data: there may be more
        (result,) = held(text).limits
        assert (result.kept, result.untold) == (False, True)
    report = replace(reports.sample(), findings=(), not_checked=())
    assert held("findings == 0", report=report).passed
    for asked in (
        replace(report.analysis, rules_disabled=("launch-overhead",)),
        replace(report.analysis, rules_checked=0),
    ):
        (result,) = held("findings == 0", report=replace(report, analysis=asked)).limits
        assert (result.kept, result.untold) == (False, True)


def test_new_findings_of_a_report_that_lost_its_rows_are_open() -> None:
    report = reports.sample()
    lost = damaged(replace(report, findings=()), Coverage(0.5, 0.5, 100, 50, 1_000_000))
    for after in (lost, replace(report, findings=(), devices=())):
        (result,) = held("findings.new == 0", report=after, before=report).limits
        assert (result.kept, result.untold) == (False, True)


def test_a_saved_finding_of_an_unknown_severity_is_refused(tmp_path: Path) -> None:
    text = saved.render(reports.sample()).replace('"severity": "high"', '"severity": "zzz"')
    path = tmp_path / "report.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="zzz"):
        api.load(path)


@pytest.mark.parametrize(
    ("quantity", "coverage", "low", "high"),
    [
        # The capture lost the calls of the last operations: whatever these were, they were more.
        ("sync.count", Coverage(uncalled=3), 2, ANY),
        ("api.per_ms", Coverage(uncalled=3), 0, ANY),
        ("time.cpu", Coverage(uncalled=3), 0, ANY),
        ("gpu_utilization", Coverage(uncalled=3), 0, ANY),  # they tell the steps, and so the window
        ("host.median", Coverage(uncalled=3), 2, 2),
        # Work was lost before the first on record: the window began up to so much earlier.
        ("time", Coverage(launches=9, launches_lost=1, before_ns=1_000), 2, 1_002),
        ("share.gpu_compute", Coverage(launches=9, launches_lost=1, before_ns=1_000), 1, 2),
        ("time.gpu_copy", Coverage(launches=9, launches_lost=1, before_ns=1_000), 0, 1_002),
        ("cpu_utilization", Coverage(launches=9, launches_lost=1, before_ns=1_000), 0, ANY),
        ("gaps.longest", Coverage(launches=9, launches_lost=1, unrecorded_ns=7), 0, 9),
        # Switches are missing: who slept is not told.
        ("time.host_blocked", Coverage(is_cpu_thinned=True), 2, 402),
    ],
)
def test_what_is_known_of_a_device_that_lost_records(
    quantity: str, coverage: Coverage, low: float, high: float
) -> None:
    records = KnownRecords(coverage, 1_000, 1, {"cpu": 400, "host_blocked": 2, "gpu_compute": 598}, 9, is_device=True)
    captured = Captured(cuda_api=True, kernels=True, osrt=True, cpu_scheduling=True, nvtx=True)
    found = known(quantity, 2, records, captured)
    assert found is not None
    assert (found.low, found.high) == (low, high)


def test_a_loop_that_was_found_is_the_step_only_by_its_name() -> None:
    report = reports.sample()
    found = replace(report, regions=tuple(replace(item, found=bool(item.path)) for item in report.regions))
    with pytest.raises(gate.LimitError, match="no region is plainly the program's step"):
        held("kernels.per_step <= 20", report=found)
    name = "/".join(next(item.path for item in report.regions if item.path))
    assert gate.step_of(found, name) is not None


@pytest.mark.parametrize("name", ["without-operations", "without-api", "calls-end", "kernels-random", "syncs-orphaned"])
def test_what_the_whole_report_breaks_no_damaged_copy_keeps(name: str) -> None:
    """A small sample of ``python -m benchmarks.gate``."""
    sample = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
    trace = open_trace(sample, None, lambda _stage, _part: None)
    limits = list(damaged_gate.broken_limits(Analysis(trace).report))
    assert len(limits) > 20
    copy = damaged_gate.DAMAGES[name](trace, random.Random(1))
    assert copy is not None
    try:
        report = Analysis(copy).report
    except UserError:
        return  # nothing is said
    assert damaged_gate.kept(limits, report) == []


def test_without_a_call_on_record_none_is_counted() -> None:
    """Nor is time that is not attributed known to be of no cause of the host."""
    records = KnownRecords(Coverage(), 1_000, 1, {"gpu_compute": 100, "unattributed": 900}, 0)
    assert known("sync.count", 0, records, Captured(cuda_api=True, kernels=True)) is None
    share = known("share.cpu", 0.0, records, Captured(cuda_api=True, kernels=True, osrt=True))
    assert share is not None
    assert (share.low, share.high) == (0.0, 0.9)


def test_without_sleeps_on_record_what_is_asleep_may_run() -> None:
    records = KnownRecords(Coverage(), 1_000, 1, {"cpu": 400, "host_blocked": 0, "gpu_compute": 600}, 9)
    share = known("share.host_blocked", 0.0, records, Captured(cuda_api=True, kernels=True))
    assert share is not None
    assert (share.low, share.high) == (0.0, 0.4)


@pytest.mark.skipif("BOUNDBY_TRACES" not in os.environ, reason="needs real traces")
def test_a_speed_up_is_no_regression() -> None:
    """A real pair that takes less than half as long after the change; some of its regions take more."""
    folder = Path(os.environ["BOUNDBY_TRACES"])
    before, after = (api.analyze(folder / f"openmp_heat_{when}.sqlite") for when in ("before", "after"))
    (result,) = held("regression <= 5 %", report=after, before=before).limits
    assert result.kept


def test_a_pipe_named_run_json_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    assert (last_words_of(tmp_path), not_recorded(tmp_path)) == (None, {})


@pytest.mark.parametrize("code", ["export-incomplete", "unbelievable-times", "end-unknown"])
def test_nothing_is_kept_of_what_may_be_another_thing_in_whole(code: str) -> None:
    """Tables may be missing, or the program may have failed: on either side of a comparison."""
    report = reports.sample()
    doubtful = replace(report, trace=replace(report.trace, warnings=(TraceWarning(code, "Why."),)))
    assert held("sync.count < 1e9").limits[0].kept
    for result in (
        held("sync.count < 1e9", "gpu_utilization > 100 %", report=doubtful),
        held("sync.count < 1e9", "gpu_utilization > 100 %", report=report, before=doubtful),
    ):
        open_, broken = result.limits
        assert (open_.kept, open_.untold) == (False, True)
        assert (broken.kept, broken.untold) == (False, False)


@pytest.mark.parametrize("text", ["", '{"exit_code": 1, "comm', "[" * 100_000, '{"exit_code": 1e999}', "null"])
def test_of_a_run_whose_facts_are_damaged_nothing_is_kept(text: str, tmp_path: Path) -> None:
    """They would tell that the program failed."""
    sample = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
    (tmp_path / "report.sqlite").write_bytes(sample.read_bytes())
    for written, kept in ((text, False), ('{"exit_code": 0}', True), ('{"exit_code": null}', True)):
        (tmp_path / "run.json").write_text(written)
        trace = open_trace(tmp_path, None, lambda _stage, _part: None)
        assert [warning.code for warning in trace.warnings] == ([] if kept else ["end-unknown"])
        assert held("sync.count < 1e9", report=Analysis(trace).report).limits[0].kept == kept


@pytest.mark.parametrize("names", ["DELETE FROM StringIds", "UPDATE StringIds SET value = 'x'"])
def test_calls_without_names_may_be_waits(names: str, tmp_path: Path) -> None:
    sample = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(sample.read_bytes())
    alter(copy, names)
    report = api.analyze(copy)
    assert report.devices[0].verdict.confidence == "low"
    result = held("sync.count < 100", "share.sync < 40 %", "findings.high == 0", report=report)
    assert all(limit.untold for limit in result.limits)
