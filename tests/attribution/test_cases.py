"""Small programs whose account can be done in one's head."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.api import Analysis
from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.correlation.correlate import estimate_shift
from boundby.correlation.cpu_evidence import gather_evidence, lifetime
from boundby.model.causes import CAUSES
from boundby.trace.tables import MemoryKind
from tests.support.program import Program

US = 1000


def timeline_of(program: Program) -> Timeline:
    return build_timeline(program.trace(), parse_window("gpu"))


def causes(program: Program) -> dict[str, int]:
    """Microseconds by cause on device 0."""
    total = timeline_of(program).devices[0].segments.by_cause()
    return {cause.key: int(total[cause]) // US for cause in CAUSES if total[cause]}


def owners(program: Program, cause: str) -> dict[str, int]:
    """Microseconds of one cause by path."""
    timeline = timeline_of(program)
    regions = timeline.ownership.regions
    total = np.zeros((len(regions), len(CAUSES)), np.int64)
    for device in timeline.devices:
        total += device.segments.by_region_and_cause(len(regions))
    number = [c.key for c in CAUSES].index(cause)
    return {"/".join(regions.path(r)): int(total[r, number]) // US for r in range(len(regions)) if total[r, number]}


def launch(program: Program, at: int, start: int, end: int, thread: int = 0, name: str = "kernel") -> None:
    """A launch call of 5 us at ``at`` and its kernel (all in microseconds)."""
    call = program.api(at * US, (at + 5) * US, "cudaLaunchKernel_v7000", thread)
    program.kernel(start * US, end * US, call, name)


def test_a_sync_before_a_gap_is_to_blame_and_its_region_owns_it() -> None:
    program = Program()
    program.push(0, 1000 * US, "loss")
    program.push(1000 * US, 2000 * US, "backward")
    launch(program, 0, 8, 900)
    program.api(10 * US, 905 * US, "cudaStreamSynchronize_v3020")
    launch(program, 1200, 1208, 1300)
    assert causes(program) == {"gpu_compute": 984, "sync": 308}
    assert owners(program, "sync") == {"loss": 308}


def test_a_wait_is_to_blame_for_no_more_of_a_gap_than_it_took() -> None:
    """The example in docs/account.md."""
    program = Program()
    launch(program, 0, 8, 900)
    program.api(800 * US, 905 * US, "cudaStreamSynchronize_v3020")
    launch(program, 1200, 1208, 1300)
    assert causes(program) == {"gpu_compute": 984, "sync": 105, "cpu": 195, "cuda_api": 8}


def test_a_copy_that_another_class_cuts_in_two_keeps_its_owner() -> None:
    """In order of start the collective stands between two copies, of which the first is seen before and after it."""
    program = Program()
    calls = []
    for place, name in enumerate(("stage", "reduce", "flush")):
        program.push(20 * place * US, (20 * place + 10) * US, name)
        kind = "cudaLaunchKernel_v7000" if name == "reduce" else "cudaMemcpyAsync_v3020"
        calls.append(program.api(20 * place * US, (20 * place + 5) * US, kind))
    program.copy(100 * US, 200 * US, calls[0], stream=1)
    program.kernel(120 * US, 170 * US, calls[1], "ncclDevKernel_AllReduce_Sum_f32_RING_LL", stream=3)
    program.copy(200 * US, 250 * US, calls[2], stream=1)
    assert owners(program, "gpu_comm") == {"reduce": 50}
    assert owners(program, "gpu_copy") == {"stage": 50, "flush": 50}


def test_a_sync_without_a_gap_costs_nothing() -> None:
    program = Program()
    launch(program, 0, 8, 900)
    launch(program, 10, 900, 1000)
    program.api(20 * US, 905 * US, "cudaEventSynchronize")
    launch(program, 910, 1000, 1100)
    assert causes(program) == {"gpu_compute": 1092}


def test_dispatch_then_cpu_then_launch() -> None:
    program = Program()
    launch(program, 0, 8, 20)
    launch(program, 300, 308, 320)
    # Idle from 20: dispatch until 105, the host's own code until 300, the launch and its latency until 308.
    assert causes(program) == {"gpu_compute": 24, "cuda_api": 85 + 8, "cpu": 195}


def test_queued_work_that_the_device_delays() -> None:
    program = Program()
    launch(program, 0, 8, 100)
    launch(program, 10, 102, 200)
    launch(program, 20, 260, 300)
    assert causes(program) == {"gpu_compute": 92 + 98 + 40, "device_wait": 2 + 60}


def test_sleep_is_not_cpu_and_allocation_is_init() -> None:
    program = Program()
    launch(program, 0, 8, 20)
    program.sleep(10 * US, 400 * US)
    program.api(400 * US, 700 * US, "cudaMalloc_v3020")
    launch(program, 700, 708, 800)
    assert causes(program) == {"gpu_compute": 104, "host_blocked": 380, "init": 300, "cuda_api": 8}


@pytest.mark.parametrize(
    ("replays", "expected"),
    [
        (0, {"gpu_compute": 100, "init": 400, "cuda_api": 108, "cpu": 100}),
        (1, {"gpu_compute": 150, "cuda_api": 423, "cpu": 185}),
        (3, {"gpu_compute": 350, "init": 400, "cuda_api": 124, "cpu": 468}),
    ],
)
def test_a_capture_is_initialization_unless_it_is_part_of_each_round(replays: int, expected: dict[str, int]) -> None:
    """400 us of capture, two launches in it that do not run; then so many replays, 292 us apart."""
    program = Program()
    launch(program, 0, 0, 50)
    program.api(50 * US, 55 * US, "cudaStreamBeginCapture_v10000")
    for at in (150, 300):
        program.api(at * US, (at + 5) * US, "cudaLaunchKernel_v7000")
    program.api(445 * US, 450 * US, "cudaStreamEndCapture_v10000")
    for number in range(replays):
        at = 650 + 292 * number
        call = program.api(at * US, (at + 5) * US, "cudaGraphLaunch_v10000")
        program.kernel((at + 8) * US, (at + 108) * US, call)
    if not replays:
        launch(program, 650, 658, 708)
    assert causes(program) == expected


def test_an_allocation_that_waited_for_the_device_counts_as_a_sync() -> None:
    program = Program()
    launch(program, 0, 8, 500)
    program.api(10 * US, 520 * US, "cudaFree_v3020")
    launch(program, 560, 568, 600)
    assert causes(program)["sync"] == 68


def test_a_pageable_copy_waits_only_until_it_starts() -> None:
    program = Program()
    launch(program, 0, 8, 50)
    call = program.api(10 * US, 300 * US, "cudaMemcpyAsync_v3020")
    program.copy(50 * US, 290 * US, call, memory=MemoryKind.PAGEABLE)
    launch(program, 600, 608, 700)
    # Waited from 10 to 50, but before the copy; since the copy was launched that is all it waited.
    assert causes(program)["sync"] == 40


def test_backward_on_another_thread_borrows_the_open_range() -> None:
    program = Program(threads=2)
    program.push(0, 500 * US, "step")
    program.push(100 * US, 400 * US, "backward")
    for number in range(10):
        launch(program, number * 6, 8 + number * 6, 13 + number * 6)
    program.sleep(110 * US, 390 * US)
    for number in range(10):
        launch(program, 120 + number * 6, 128 + number * 6, 133 + number * 6, thread=1)
    assert owners(program, "gpu_compute") == {"step": 50, "step/backward": 50}
    # Before the first launch of the helper the host dispatched on the first thread, then slept, then the helper ran.
    assert set(causes(program)) <= {"gpu_compute", "cuda_api", "cpu", "host_blocked"}


def test_the_wait_of_one_thread_delays_its_partner() -> None:
    program = Program(threads=2)
    for number in range(10):
        launch(program, number * 6, 8 + number * 6, 13 + number * 6)
    launch(program, 70, 78, 400)
    program.api(80 * US, 405 * US, "cudaStreamSynchronize")
    for number in range(10):
        launch(program, 450 + number * 6, 458 + number * 6, 463 + number * 6, thread=1)
    assert causes(program)["sync"] == 58


def test_overlapping_kernels_belong_to_the_earliest_and_the_rest_is_hidden() -> None:
    program = Program()
    program.push(0, 10 * US, "first")
    program.push(10 * US, 20 * US, "second")
    launch(program, 0, 20, 100)
    launch(program, 12, 30, 90)
    assert owners(program, "gpu_compute") == {"first": 80}


def test_first_launch_that_loads_its_module_is_init() -> None:
    program = Program()
    launch(program, 0, 8, 20, name="other")
    call = program.api(20 * US, 3020 * US, "cudaLaunchKernel_v7000")
    program.kernel(3021 * US, 3030 * US, call, "lazy")
    launch(program, 3040, 3048, 3060, name="lazy")
    assert causes(program)["init"] == 3000


def test_unknown_launches_with_several_threads_are_unattributed() -> None:
    program = Program(threads=2)
    launch(program, 0, 8, 20)
    launch(program, 0, 30, 40, thread=1)
    program.kernel(100 * US, 120 * US, 0)
    assert causes(program)["unattributed"] == 60


def test_two_processes_with_equal_correlation_ids_stay_apart() -> None:
    program = Program(threads=2, processes=2, devices=2)
    program.push(0, 100 * US, "a", 0)
    program.push(0, 100 * US, "b", 1)
    for thread in range(2):
        program.calls.append((0, 5 * US, thread, 1, program.name("cudaLaunchKernel")))
    for thread in range(2):
        program.ops.append((8 * US, 20 * US, thread, thread, 7, 1, 0, program.name("k"), 0, -1, -1, -1, False))
    assert owners(program, "gpu_compute") == {"a": 12, "b": 12}


def test_the_clock_is_only_shifted_on_evidence() -> None:
    launch_start = np.arange(1000, dtype=np.int64) * 10_000
    assert estimate_shift(launch_start + 5_000, launch_start).shift_ns == 0
    assert estimate_shift(launch_start - 3_000, launch_start).shift_ns == 0  # within the noise of the clock fit
    late = np.where(np.arange(1000) % 2 == 0, 3_000, 400_000)
    shift = estimate_shift(launch_start + late - 148_000_000, launch_start).shift_ns
    assert 147_995_000 <= shift <= 148_000_000


def test_work_that_begins_long_after_all_launches_is_told() -> None:
    program = Program()
    for step in range(30):
        launch(program, step * 1_000, step * 1_000 + 200_000, step * 1_000 + 200_900)
    warnings = Analysis(program.trace()).report.trace.warnings
    (told,) = [one.message for one in warnings if one.code == "clock-unshown"]
    assert told.startswith("All work on GPU 0 begins 200 ms or more after its launch")


def test_a_clock_that_may_be_ahead_leaves_nothing_sure() -> None:
    """No wait contradicts it; but nothing starts within 4 ms of its launch, while the device idles most of the time."""
    program = Program()
    for step in range(30):
        launch(program, step * 10_000, step * 10_000 + 4_000, step * 10_000 + 6_000)
    analysis = Analysis(program.trace())
    [device] = analysis.devices
    assert device.clock_shift_ns == 0
    assert device.verdict.confidence == "low"
    assert "ahead of the host's" in " ".join(device.verdict.reasons)
    assert {item.confidence for item in analysis.what_if} <= {"low"}


def test_who_is_first_seen_leaving_the_cpu_was_on_it_from_the_beginning() -> None:
    """A capture range that begins while two threads run; a thread first seen coming to the CPU may be a new one."""
    program = Program(threads=3, processes=1)
    launch(program, 0, 10, 20)
    launch(program, 900, 910, 1_000)
    program.switches += [(5 * US, 0, False), (890 * US, 0, True), (700 * US, 1, False), (600 * US, 2, True)]
    trace = program.trace()
    ran = [gather_evidence(trace, number).on_cpu for number in range(3)]
    assert [[(int(a) // US, int(b) // US) for a, b in zip(one.start, one.end, strict=True)] for one in ran if one] == [
        [(890, 1_000)],  # the first switch of all: nothing was recorded before it
        [(5, 700)],
        [(600, 1_000)],
    ]
    assert lifetime(trace, 1) == (5 * US, 700 * US)


@pytest.mark.parametrize(("away_us", "waits_for_a_core"), [(200, True), (5_000, False)])
def test_who_is_away_many_times_as_long_as_it_runs_sleeps(away_us: int, waits_for_a_core: bool) -> None:
    """Off the CPU in no OS call: runnable, as far as it gets a core in turn; else asleep in a call that is not seen."""
    program = Program()
    launch(program, 0, 10, 20)
    program.sleep(0, 5 * US)
    for turn in range(10):
        at = 100 + turn * (away_us + 100)
        program.switches += [(at * US, 0, False), ((at + away_us) * US, 0, True)]
    evidence = gather_evidence(program.trace(), 0)
    assert evidence.preempted.total == (10 * away_us * US if waits_for_a_core else 0)
    assert evidence.asleep.total == (5 * US if waits_for_a_core else 5 * US + 10 * away_us * US)


def test_a_long_ioctl_is_a_wait_for_a_device_where_the_thread_never_calls_cuda() -> None:
    """A camera's thread waits in it for the next frame; in one that calls CUDA it is the GPU's driver at work."""
    program = Program(threads=2)
    launch(program, 0, 10, 20)
    for thread in (0, 1):
        program.sleep(100 * US, 100 * US + 5_000 * US, thread, "ioctl")
        program.sleep(6_000 * US, 6_000 * US + 50 * US, thread, "ioctl")
    asleep = [gather_evidence(program.trace(), thread).asleep.total for thread in (0, 1)]
    assert asleep == [0, 5_000 * US]


def test_pages_that_the_host_reads_back_are_of_the_thread_at_work() -> None:
    """No call moves them; of two threads that call CUDA the one that computes touches them, in its range."""
    program = Program(threads=2)
    program.osrt = True
    launch(program, 0, 10, 1_000)
    launch(program, 5, 15, 1_000, thread=1)
    program.sleep(20 * US, 9_000 * US, thread=1)
    program.push(1_100 * US, 8_900 * US, "check")
    for page in range(7):
        at = (2_000 + 1_000 * page) * US
        program.migration(at, at + 10 * US)
    timeline = timeline_of(program)
    [device] = timeline.devices
    assert set(device.gaps.thread.tolist()) == {0}
    assert causes(program)["cpu"] == 1_000 + 6 * 990
    [check] = [number for number, name in enumerate(timeline.ownership.regions.name) if name == "check"]
    assert timeline.launch_region[1:].tolist() == [0, *[check] * 7]


def fed(works: int, region: str = "step") -> Program:
    """A program that sleeps for 8 of each 10 ms, in a range, in which another thread works for so many microseconds."""
    program = Program(threads=2)
    for step in range(6):
        at = step * 10_000
        launch(program, at, at + 10, at + 1_000)
        program.push((at + 1_000) * US, (at + 9_900) * US, region)
        program.switches += [((at + 1_500) * US, 0, False), ((at + 9_500) * US, 0, True)]
        program.switches += [((at + 2_000) * US, 1, True), ((at + 2_000 + works) * US, 1, False)]
    return program


def test_who_waits_for_a_thread_that_itself_sleeps_waits_for_what_that_one_does() -> None:
    """A pin-memory thread that works for a quarter of each wait is no work of the program; one that works through it
    is, but where a batch is taken."""
    sleeps = 5 * 8_000
    assert causes(fed(2_000))["host_blocked"] == sleeps
    assert causes(fed(7_000))["host_blocked"] == sleeps - 5 * 7_000
    assert causes(fed(7_000, "next batch"))["host_blocked"] == sleeps


def test_what_prepares_the_input_may_take_as_long_once_nobody_waits_for_the_rest() -> None:
    """Without sleeps 5 times 8 ms go; 5 times 2 ms of them, in which another thread works on the input, may stay."""
    [answer] = Analysis(fed(2_000).trace()).predict("input_free")
    [kept] = [one for one in answer.uncertainties if one.kind == "makers"]
    assert (answer.baseline_ns - answer.predicted_ns, kept.low_ns, kept.high_ns) == (40_000 * US, 0, 10_000 * US)


def test_lost_work_of_a_thread_that_turns_from_gpu_to_gpu_may_be_of_each() -> None:
    """Two GPUs in turns, the last half of the records is missing: neither GPU's window ends where its records do."""
    program = Program(devices=2)
    for turn in range(20):
        at = 100 * turn
        call = program.api(at * US, (at + 5) * US, "cudaLaunchKernel_v7000")
        if turn < 10:
            program.kernel((at + 10) * US, (at + 90) * US, call, device=turn % 2)
    program.api(1950 * US, 2000 * US, "cudaDeviceSynchronize_v3020")
    timeline = timeline_of(program)
    assert [timeline.losses.launches_of(device.index) for device in timeline.devices] == [15, 15]
    assert [device.high_ns // US for device in timeline.devices] == [2000, 2000]
