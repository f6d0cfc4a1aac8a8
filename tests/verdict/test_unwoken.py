"""A maker of batches that never waits has no row of its own: it may have worked, or slept."""

from __future__ import annotations

from pathlib import Path

from benchmarks.simulated.counterfactual import Case as Simulated
from benchmarks.simulated.counterfactual import CostRemoval

from boundby import api
from boundby.claims.verdict import judge
from boundby.simulate.instructions import US, Await, Launch, Loop, Range, Signal, Sync, Thread, Work, threads
from boundby.simulate.nsys_export import Capture
from tests.support.cases import case as case_of
from tests.support.cases import changed
from tests.verdict.test_verdict import ALL, MS, account


def test_what_another_thread_s_sleep_or_work_would_save_is_left_open(tmp_path: Path) -> None:
    feeder = Loop(20, [Await("room"), Work(800 * US), Signal("batch")])
    step = [Range("data", [Await("batch"), Signal("room")]), Launch("small", 100 * US)]
    main = Thread((Signal("room"), Signal("room"), Loop(20, [Range("step {i}", step)]), Sync()))
    case = Simulated("feeding", threads(main, Thread((feeder,), "feeder")), capture=Capture(sched=False))
    case.export().write(tmp_path / "run.sqlite", "2023")
    report = api.analyze(tmp_path / "run.sqlite")
    assert report.devices[0].verdict.confidence == "low"
    told = {one.scenario: one for one in report.what_if}
    for name, removal in (("cpu_free", CostRemoval.CPU), ("input_free", CostRemoval.SLEEPS)):
        one, truth_ns = told[name], case.truths.window(removal)
        assert one.confidence == "low"
        assert one.low_ns is not None
        assert one.high_ns is not None
        assert one.low_ns * 0.98 <= truth_ns <= one.high_ns * 1.02


def test_a_thread_nobody_sees_may_set_the_pace_of_a_busy_device() -> None:
    case = case_of(
        time=account(gpu_copy=700, gpu_compute=100, sync=200), active_ns=500 * MS, operations=100, captured=ALL
    )
    assert judge(case).confidence == "high"
    told = judge(changed(case, asleep_for_nobody_ns=130 * MS))
    assert (told.bound, told.confidence) == ("gpu_copy", "low")
    assert "13 %" in told.reasons[0]
