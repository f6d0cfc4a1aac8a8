"""Windows, skipped warm-up, and selections."""

from __future__ import annotations

import pytest

from boundby.api import Analysis
from boundby.attribution.timeline import build_timeline, select
from boundby.attribution.windows import parse_window
from boundby.model.errors import SelectionError
from tests.support.program import Program

US = 1000


def steps(count: int = 5, period: int = 100) -> Program:
    """Steps of 90 us in 100: a launch at 10, its kernel from 20 to 60."""
    program = Program(devices=2)
    for number in range(count):
        begin = number * period
        program.push(begin * US, (begin + 90) * US, f"step {number}")
        call = program.api((begin + 10) * US, (begin + 15) * US, "cudaLaunchKernel")
        program.kernel((begin + 20) * US, (begin + 60) * US, call)
    return program


def bounds(program: Program, window: str, skip: int = 0) -> tuple[int, int]:
    device = build_timeline(program.trace(), parse_window(window, skip)).devices[0]
    return device.low_ns // US, device.high_ns // US


def test_windows() -> None:
    assert bounds(steps(), "gpu") == (0, 490)
    assert bounds(steps(), "all") == (0, 490)
    assert bounds(steps(), "30us:0.15ms") == (30, 150)
    assert bounds(steps(), ":150000ns") == (20, 150)
    assert bounds(steps(), "0.0001:") == (100, 460)
    assert bounds(steps(), f"0.0001:{'9' * 5000}") == (100, (1 << 61) // US)
    assert bounds(steps(), "nvtx:step 2") == (200, 290)
    assert bounds(steps(), "nvtx:step [12]") == (100, 290)
    assert bounds(steps(), "nvtx:step *") == (0, 490)


def test_a_step_begins_on_the_device_once_that_is_free() -> None:
    """A host that runs ahead: the device works on the step before until 300 and 600."""
    program = Program()
    for number in range(3):
        program.push(number * 100 * US, (number * 100 + 90) * US, f"step {number}")
        call = program.api((number * 100 + 10) * US, (number * 100 + 15) * US, "cudaLaunchKernel")
        program.kernel((20 + number * 300) * US, (310 + number * 300) * US, call)
    assert bounds(program, "nvtx:step 0") == (0, 310)
    assert bounds(program, "nvtx:step 1") == (310, 610)
    assert bounds(program, "gpu") == (0, 910)
    assert bounds(program, "gpu", 1) == (310, 910)


def test_one_step_that_says_so_has_a_head_and_a_tail() -> None:
    """As a profiler of one step records it; a range of another name that comes once is the program."""
    for name, expected in (("ProfilerStep#6", (0, 5000)), ("main", (3020, 3060)), ("warm-up 1", (3020, 3060))):
        program = Program()
        program.push(0, 5000 * US, name)
        program.kernel(3020 * US, 3060 * US, program.api(3010 * US, 3015 * US, "cudaLaunchKernel"))
        assert bounds(program, "gpu") == expected


@pytest.mark.parametrize("late", [600, 400_000])
def test_a_last_step_that_nothing_else_confirms_is_no_longer_than_another(late: int) -> None:
    """One row says so: its end may be a wrong time, and no verdict hangs on it alone."""
    program = steps()
    program.push(500 * US, late * US, "step 5")
    program.kernel(520 * US, 560 * US, program.api(510 * US, 515 * US, "cudaLaunchKernel"))
    assert bounds(program, "gpu") == (0, min(late, 560 + 90))


def test_work_that_waits_for_what_is_not_on_record_has_no_head() -> None:
    program = Program()
    program.push(0, 90 * US, "ProfilerStep#6")
    program.kernel(3020 * US, 3060 * US, program.api(10 * US, 15 * US, "cudaLaunchKernel"))
    assert bounds(program, "gpu") == (3020, 3060)


def test_steps_without_work_do_not_stretch_the_window() -> None:
    program = steps()
    program.push(600 * US, 9000 * US, "step 5")
    assert bounds(program, "gpu") == (0, 490)


def test_skipped_instances_are_not_counted() -> None:
    timeline = build_timeline(steps().trace(), parse_window("gpu", 2))
    assert (timeline.devices[0].low_ns // US, timeline.devices[0].high_ns // US) == (200, 490)
    assert int(timeline.counted_ranges.sum()) == 3


def ranks() -> Program:
    """Two processes with a device each and three steps; the first one's first step takes ten times as long."""
    program = Program(threads=2, processes=2, devices=2)
    for rank, first in ((0, 1000), (1, 100)):
        begin = 0
        for length in (first, 100, 100):
            program.push(begin * US, (begin + 90) * US if length == 100 else 990 * US, "step", thread=rank)
            call = program.api((begin + 10) * US, (begin + 15) * US, "cudaLaunchKernel", thread=rank)
            program.kernel((begin + 20) * US, (begin + 60) * US, call, device=rank)
            begin += length
    return program


def test_the_first_instances_of_each_process_are_skipped() -> None:
    """Of ranks that start at different times each has its own first steps, and only they are left out."""
    timeline = build_timeline(ranks().trace(), parse_window("gpu", 1))
    assert [(device.low_ns // US, device.high_ns // US) for device in timeline.devices] == [(1000, 1190), (100, 290)]
    assert int(timeline.counted_ranges.sum()) == 4  # the long first one of rank 0 runs beside all of rank 1's
    report = Analysis(ranks().trace(), skip_first=1).report
    assert [(region.path, region.instances) for region in report.regions if region.path] == [(("step",), 4)]
    warning = next(item for item in report.trace.warnings if item.code == "skipped-first")
    assert warning.message == "Left out in each of 2 processes: the first 1 of 3 instances of step."
    with pytest.raises(SelectionError, match="only 3 steps in any process"):
        build_timeline(ranks().trace(), parse_window("gpu", 3))


def test_what_lies_in_a_skipped_instance_is_no_instance() -> None:
    """``*`` stands for paths as well: step */part is part of a step, not another one."""
    program = steps()
    for number in range(5):
        program.push((number * 100 + 5) * US, (number * 100 + 50) * US, "part")
    assert bounds(program, "nvtx:step *", 2) == (200, 490)


@pytest.mark.parametrize(
    ("window", "skip", "words"),
    [
        ("nvtx:nothing", 0, "No NVTX range matches"),
        ("nvtx:stpe *", 0, "Did you mean step \\*"),
        ("sometime", 0, "not a window"),
        ("5s:1s", 0, "ends before it starts"),
        ("1x:2s", 0, "not a time"),
        ("gpu", 5, "cannot be skipped|No range repeats"),
        ("gpu", -1, "negative"),
        ("nvtx:step 2", 1, "is only 1 range of that name"),
        ("9s:", 0, "outside the trace"),
        ("nvtx:", 0, "names no range"),
    ],
)
def test_bad_windows_say_what_to_do(window: str, skip: int, words: str) -> None:
    with pytest.raises(SelectionError, match=words) as caught:
        build_timeline(steps().trace(), parse_window(window, skip))
    assert caught.value.next_step


def test_skipping_needs_ranges() -> None:
    program = Program()
    program.kernel(5 * US, 9 * US, program.api(0, US, "cudaLaunchKernel"))
    with pytest.raises(SelectionError, match="no NVTX ranges"):
        build_timeline(program.trace(), parse_window("gpu", 1))


def test_selection_of_devices_and_processes() -> None:
    program = Program(threads=2, processes=2, devices=2)
    for thread in range(2):
        program.kernel(5 * US, 9 * US, program.api(0, US, "cudaLaunchKernel", thread), device=thread)
    trace = program.trace()
    assert set(select(trace, (1,), ()).operations.device.tolist()) == {1}
    assert set(select(trace, (), (2,)).operations.process.tolist()) == {1}
    assert set(select(trace, (), (2,)).api.thread.tolist()) == {1}
    with pytest.raises(SelectionError, match="no work of device 7"):
        select(trace, (7,), ())
    with pytest.raises(SelectionError, match="no process 99"):
        select(trace, (), (99,))
