"""The truth: what is removed, from where, and what follows for the verdict."""

from __future__ import annotations

import doctest
from types import ModuleType
from typing import Any

import pytest
from benchmarks.simulated import counterfactual as counterfactual_module
from benchmarks.simulated.counterfactual import (
    CAUSES,
    DISPATCH_LIMIT_NS,
    EVERYTHING,
    SCENARIOS,
    Case,
    CostRemoval,
    Truths,
    window_ns,
    without,
)
from benchmarks.simulated.generate import generate
from msgspec.structs import replace

from boundby.attribution.host_state import DISPATCH_LIMIT_NS as ACCOUNT_LIMIT_NS
from boundby.simulate import instructions as program_module
from boundby.simulate.instructions import (
    MS,
    US,
    Alloc,
    Await,
    Call,
    Copy,
    GraphLaunch,
    Init,
    Instruction,
    Launch,
    Loop,
    Memset,
    Node,
    Range,
    Signal,
    Sleep,
    Sync,
    Thread,
    Work,
    item,
    program,
    threads,
)
from boundby.simulate.machine import Machine, simulate
from tests.simulate.small import SMALL

NCCL = "ncclDevKernel_AllReduce"
FIRST_LAUNCH_NS = 20_000


def truths(*body: Instruction, **changes: Any) -> Truths:
    return Truths(program(*body), replace(SMALL, **changes))


def test_the_dispatch_limit_is_the_accounts() -> None:
    assert DISPATCH_LIMIT_NS == ACCOUNT_LIMIT_NS


def test_a_program_with_a_sync() -> None:
    known = truths(Loop(2, [Launch("a", 100), Sync(), Work(50)]))
    # a 8-108, sync until 113, work until 163, launch until 168, a 171-271
    assert known.window() == 271 - 8
    # a 8-108, work 5-55, launch until 60, a 109-209
    assert known.window(CostRemoval.WAITS) == 209 - 8
    # no call time and no latency, no dispatch: a 0-100, sync until 105, a 105-205
    assert known.window(CostRemoval.LAUNCHES) == 205
    # a 8-8, sync until 13, work until 63, launch, a 71-71
    assert known.window(CostRemoval.KERNELS) == 71 - 8
    # a 0-100, a 101-201
    assert known.window(SCENARIOS["infinite_host"]) == 201
    truth = known.truth()
    assert dict(truth.savings) == {"sync": 62, "gpu_compute": 201 - 55, **dict.fromkeys(
        ["gpu_comm", "gpu_copy", "cpu", "host_blocked", "init"], 0), "cuda_api": 0}  # fmt: skip
    assert truth.bound == "gpu_compute"


def test_host_work_beyond_dispatch_is_cpu() -> None:
    interval = [Work(30 * US), Sleep(50 * US), Work(60 * US)]
    last = [Call(5), Work(20 * US), Launch("c", 10)]
    known = truths(Launch("a", 10), Work(300 * US), Launch("b", 10), *interval, *last)
    base = known.window()
    # 200 us of the first interval; of the second, dispatch ends 100 us after its begin, 40 us before its end
    assert base - known.window(CostRemoval.CPU) == 200 * US + 40 * US
    dispatch = 100 * US + 30 * US + 20 * US + 20 * US
    calls = 5 + 5 + 5  # launches of b and c, and the query; a's is over when the window begins
    assert base - known.window(CostRemoval.LAUNCHES) == pytest.approx(dispatch + calls, abs=10)
    assert base - known.window(CostRemoval.SLEEPS) == 50 * US


def test_what_a_thread_computes_that_hands_over_is_input() -> None:
    known = Truths(
        threads(Thread((Launch("a", 10), Await("go"), Launch("b", 10))), Thread((Work(80 * US), Signal("go"))))
    )
    assert known.window(CostRemoval.SLEEPS) < 20 * US
    assert known.window(CostRemoval.CPU) > 80 * US


def test_removing_allocation_keeps_its_wait() -> None:
    known = truths(Launch("a", 100), Alloc(50, waits=True), Launch("b", 10))
    # a 8-108, alloc until 158, launch, b 166-176
    assert known.window() == 176 - 8
    assert known.window(CostRemoval.INIT) == (108 + 8 + 10) - 8
    # without the wait: alloc 5-55, launch until 60, b 109-119
    assert known.window(CostRemoval.WAITS) == 119 - 8


def test_loading_is_init() -> None:
    known = truths(Launch("a", 1), Launch("b", 1, load_ns=500), Init(100), Launch("c", 1))
    base = known.window()
    assert base - known.window(CostRemoval.INIT) == 600
    assert known.window(CostRemoval.LAUNCHES) == 601


def test_copies() -> None:
    known = truths(Launch("a", 100), Copy(50, "DtoH", blocking=True), Launch("b", 10))
    # a 8-108, copy 109-159, call until 164, launch, b 172-182
    assert known.window() == 182 - 8
    # copy's call 5-11, launch 11-16, b after the copy
    assert known.window(CostRemoval.WAITS) == 160 + 10 - 8
    # no time at all for the copy: its call neither waits nor takes time; the switches stay
    assert known.window(CostRemoval.COPIES) == 109 + 1 + 10 - 8


def test_pageable_copies_wait_like_syncs() -> None:
    for copy in (Copy(1000, "HtoD", "pageable"), Copy(1000, "DtoH", "pageable")):
        known = truths(Loop(3, [Launch("a", 1000), copy, Work(3000)]))
        assert known.window(CostRemoval.WAITS) < known.window()


def test_communication_is_not_computation() -> None:
    known = truths(Memset(10_000), Launch("a", 100), Launch(NCCL, 200, comm=True), GraphLaunch((Node("b", 50),)))
    assert known.window() - known.window(CostRemoval.COMM) == 200
    assert known.window() - known.window(CostRemoval.KERNELS) == 150


def test_the_queue_has_no_limit_without_a_host() -> None:
    body = [Loop(20, [Launch("a", 100, share=0.1)]), Launch("b", 3000, stream=1, share=0.1)]
    known = truths(*body, queue_limit=4)
    assert known.window(CostRemoval.LAUNCHES) > 3000 + 1000
    assert known.window(SCENARIOS["infinite_host"]) == 3000


def test_a_region_is_all_that_its_ranges_hold() -> None:
    step = Range("step {i}", [Range("wait", [Launch("a", 100), Sync()]), Range("rest", [Work(50), Launch("b", 10)])])
    known = truths(Loop(3, [step]))
    assert known.regions() == (("step *",), ("step *", "rest"), ("step *", "wait"))
    whole, inside = known.window(CostRemoval.WAITS), known.window(CostRemoval.WAITS, region=("step *", "wait"))
    assert whole == inside == known.window(CostRemoval.WAITS, region=("step *",)) < known.window()
    assert known.window(CostRemoval.WAITS, region=("step *", "rest")) == known.window()


def test_a_helper_borrows_the_open_range() -> None:
    main = Thread((Range("forward", [Launch("a", 10)]), Range("backward", [Signal("go"), Await("done")])))
    helper = Thread((Await("go"), Range("engine", [Launch("b", 90)]), Launch("c", 10), Signal("done")), delegate=True)
    for delegate in (True, False):
        made = threads(main, Thread(helper.body, delegate=delegate))
        known = Truths(made, SMALL)
        inner = ("backward", "engine") if delegate else ("engine",)
        assert inner in known.regions()
        assert known.busy(region=("backward",))["gpu_compute"] == (100 if delegate else 10)
        assert known.busy(region=inner)["gpu_compute"] == 90


def test_a_region_behind_other_work_is_hidden() -> None:
    data = Range("data", [Copy(50, "HtoD", stream=1), Work(20)])
    known = truths(Loop(5, [Range("step {i}", [data, Range("forward", [Launch("a", 100_000)])])]))
    assert known.truth(region=("step *", "data")).bound == "hidden"
    assert known.truth(region=("step *", "forward")).bound == "gpu_compute"


def test_two_equal_costs_are_mixed() -> None:
    known = truths(Loop(20, [Sleep(100_000), Launch("a", 10), Work(200_000), Launch("b", 10)]))
    truth = known.truth()
    assert truth.bound == "mixed"
    assert truth.mixed_of is not None
    assert set(truth.mixed_of) <= {"cpu", "cuda_api", "host_blocked"}


def test_a_saturated_device_is_bound_by_its_work_however_close_the_host() -> None:
    body = [Loop(50, [Launch("a", 100 * US), Work(94 * US)]), Sync()]
    truth = Truths(program(*body)).truth()
    assert truth.saturated
    assert truth.bound == "gpu_compute"
    assert dict(truth.savings)["gpu_compute"] < 0.05 * truth.window_ns


def test_nothing_worth_naming_is_unknown() -> None:
    known = truths(Launch("a", 10, share=0.5), Launch("b", 10, 1, share=0.5), Sleep(1), Launch(NCCL, 0, comm=True))
    assert all(saving <= 20 for _, saving in known.truth().savings)


def test_everything_gone_leaves_only_the_device_switching() -> None:
    known = Truths(program(Loop(10, [Launch("a", 50 * US), *item(), Work(1 * MS), Sleep(1 * MS), Alloc(1 * MS)])))
    assert known.window(EVERYTHING) == 19 * Machine().switch_ns


@pytest.fixture(scope="module", params=[seed for seed in range(60) if generate(seed).is_plain])
def plain(request: pytest.FixtureRequest) -> Case:
    return generate(request.param)


def test_removing_can_only_shorten(plain: Case) -> None:
    """One thread, one stream: there is nothing that could get in the way of anything else."""
    known = plain.truths
    for removal in (*SCENARIOS.values(), *CAUSES.values()):
        less = known.window(removal)
        assert less <= known.window() + 1
        assert known.window(removal | CostRemoval.WAITS) <= known.window(CostRemoval.WAITS) + 1
        for region in known.regions():
            # The window begins with the first operation, which may begin earlier in the one than in the other.
            part = known.window(removal, region=region)
            assert less - FIRST_LAUNCH_NS <= part <= known.window() + FIRST_LAUNCH_NS


def test_no_run_is_left_out_that_would_differ(plain: Case) -> None:
    known = plain.truths
    for removal in (*SCENARIOS.values(), *(removal | CostRemoval.WAITS for removal in CAUSES.values())):
        for region in known.regions()[:3]:
            run = simulate(without(known.script, removal, region))
            assert window_ns(run, 0) == known.window(removal, region=region)


def test_removing_what_is_not_there_changes_nothing() -> None:
    known = truths(Loop(3, [Launch("a", 100), Work(50)]))
    for removal in (CostRemoval.COMM, CostRemoval.COPIES, CostRemoval.SLEEPS, CostRemoval.INIT, CostRemoval.WAITS):
        assert known.window(removal) == known.window()


@pytest.mark.parametrize("module", [program_module, counterfactual_module])
def test_the_examples_are_true(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_what_a_feeder_makes_belongs_to_what_takes_it() -> None:
    """Half of its sleep lies in the first range of the annotated thread, which takes nothing."""
    main = Thread(
        (Range("a", [Launch("x", 10), Work(100 * US)]), Range("b", [Work(100 * US), Await("go")]), Launch("y", 10))
    )
    feeder = Thread((Sleep(200 * US, "read"), Work(100 * US), Signal("go")))
    known = Truths(threads(main, feeder), SMALL)
    asleep = {step.path: step.host_ns for step in known.script.threads[1].steps if step.text == "read"}
    assert asleep == {("b",): 200 * US}
