"""One wrong time in one row: the row goes, the verdict stays, and the report says so."""

from __future__ import annotations

import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from benchmarks import damage
from benchmarks.simulated.full_export import Export
from benchmarks.truth import made

from boundby import api
from boundby.model.errors import UserError
from boundby.opening import open_trace
from boundby.readers import read_trace
from boundby.readers.plausible import longest_ascending, out_of_order, unlike_any_machine
from tests.support.alter import alter
from tests.support.traces import kineto_traces, traces
from tests.support.training import training_loop

SAMPLE = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE {RUNTIME} SET start = 0 WHERE rowid = 1490",
        f"UPDATE {RUNTIME} SET end = end + 50000000 WHERE rowid = 700",
        f"UPDATE {RUNTIME} SET end = -9223372036854775808 WHERE rowid = 700",
        f"UPDATE {RUNTIME} SET start = -5 WHERE rowid % 5 = 0",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 0 WHERE rowid = 400",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + 50000000 WHERE rowid = 400",
    ],
)
def test_a_wrong_time_never_leads_to_a_sure_wrong_verdict(change: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.sqlite"
    path.write_bytes(SAMPLE.read_bytes())
    with closing(sqlite3.connect(path)) as database:
        database.execute(change)
        database.commit()
    whole, report = api.analyze(SAMPLE), api.analyze(path)
    assert report.devices[0].verdict.bound in (whole.devices[0].verdict.bound, "unknown")
    assert report.devices[0].verdict.confidence != "high"
    assert [warning for warning in report.trace.warnings if warning.code == "broken-rows"]


def test_the_longest_ascending_sequence() -> None:
    values = np.array([1, 2, 90, 3, 4, 4, 0, 5, 6], np.int64)
    assert values[longest_ascending(values)].tolist() == [1, 2, 3, 4, 4, 5, 6]
    assert values[out_of_order(values)].tolist() == [90, 0]


def test_copies_with_one_wrong_time_lead_to_no_confident_error() -> None:
    outcomes = list(damage.run(10, 3, ["one-time"], None))
    assert not [item for item in outcomes if item.answer == "confident"]


def test_a_step_with_others_inside_has_a_wrong_end_and_a_module_with_others_inside_does_not(tmp_path: Path) -> None:
    """24 of each: the third lasts until the sixth has begun. Steps count; the numbers of modules come again."""
    left = {}
    for name in ("step {0}", "module {1}", "step, seq = {0}"):
        export = Export()
        thread = export.thread()
        for number in range(24):
            call = export.api(thread, 1_000 * number + 50, 1_000 * number + 60, "cudaLaunchKernel")
            export.kernel(call, 1_000 * number + 100, 1_000 * number + 200)
            end = 1_000 * number + (3_500 if number == 2 else 900)
            export.nvtx(thread, 1_000 * number, end, name.format(number, number % 2), kind="startend")
        left[name] = len(read_trace(export.write(tmp_path / "report.sqlite")).ranges)
    assert left == {"step {0}": 23, "module {1}": 24, "step, seq = {0}": 24}


def ranges_left(tmp_path: Path, kind: str, *ranges: tuple[int, int, str]) -> list[str]:
    """The names of those that are left of ranges with this much beside them (times in us)."""
    export = Export()
    thread = export.thread()
    for start, end, name in ranges:
        export.nvtx(thread, start * 1_000, end * 1_000, name, kind=kind)
    call = export.api(thread, 50, 60, "cudaLaunchKernel")
    export.kernel(call, 100, 200)
    trace = read_trace(export.write(tmp_path / "report.sqlite"))
    return sorted(trace.names[name] for name in trace.ranges.name)


def test_ranges_of_a_thread_that_cross_are_left_out(tmp_path: Path) -> None:
    inside = [(10 * number + part, 10 * number + part + 2, f"part{part}") for number in range(6) for part in (1, 5)]
    steps = [(10 * number, 10 * number + 9, "work") for number in range(6)]
    whole = ranges_left(tmp_path, "pushpop", *inside, *steps)
    wrong = ranges_left(tmp_path, "pushpop", *inside, *steps, (-50, 56, "wrong"))
    assert wrong in (whole, [name for name in whole if name != "work"] + ["work"] * 5)
    assert "wrong" in ranges_left(tmp_path, "startend", *inside, *steps, (-50, 56, "wrong"))


def test_of_ranges_that_nest_by_their_numbers_none_is_left_out(tmp_path: Path) -> None:
    """A function that calls itself, and counts."""
    three = [(number, 100 - number, f"depth {number}") for number in range(3)]
    assert len(ranges_left(tmp_path, "pushpop", *three)) == 3
    two = [(0, 100, "level 1"), (10, 90, "level 2")]
    assert len(ranges_left(tmp_path, "pushpop", *two)) == 2


def test_a_step_that_begins_before_the_one_before_it_is_left_out(tmp_path: Path) -> None:
    steps = [(10 * number, 10 * number + 9, f"step {number}") for number in range(6)]
    steps[1] = (-500, 19, "step 1")
    assert ranges_left(tmp_path, "pushpop", *steps) == [f"step {number}" for number in (0, 2, 3, 4, 5)]


def test_an_operation_that_outlasts_a_wait_for_its_stream_is_left_out(tmp_path: Path) -> None:
    """Of a process that uses two devices: which of them a wait for the device is for is not told."""
    left = {}
    for length in (50, 5_000_000):
        export = Export()
        main, at = export.thread(), 0
        for number in range(120):
            device = number % 2
            call = export.api(main, at, at + 10, "cudaMemcpyAsync")
            end = at + 100 + (length if number == 117 else 50)
            export.memcpy(call, at + 100, end, device=device, stream=7 + device)
            export.api(main, at + 200, at + 300, "cudaStreamSynchronize", stream=7 + device)
            at += 1_000
        left[length] = len(read_trace(export.write(tmp_path / "report.sqlite")).operations)
    assert left == {50: 120, 5_000_000: 119}


def test_an_operation_that_begins_before_its_launch_and_the_one_before_it_is_left_out(tmp_path: Path) -> None:
    left = {}
    for early in (0, 16_000):
        export = Export()
        main = export.thread()
        for number in range(120):
            at = 12_000 * number
            call = export.api(main, at, at + 8_000, "cudaLaunchKernel")
            export.kernel(call, at + 11_000 - (early if number == 70 else 0), at + 14_000)
        left[early] = len(read_trace(export.write(tmp_path / "report.sqlite")).operations)
    assert left == {0: 120, 16_000: 119}


def test_a_migration_that_outlasts_those_which_began_later_is_left_out(tmp_path: Path) -> None:
    """A link carries one in each direction at a time: what lies between two of the other direction contradicts none."""
    left = {}
    for length in (50, 5_000_000):
        export = Export()
        main = export.thread()
        for number in range(120):
            at, kind = 100 * number, "UVM_DtoH" if number % 2 else "UVM_HtoD"
            end = at + (length if number == 40 else 250 if number % 2 else 50)
            export.memcpy(main, at, end, kind=kind)
        call = export.api(main, 12_000, 12_010, "cudaLaunchKernel")
        export.kernel(call, 12_020, 12_100)
        left[length] = len(read_trace(export.write(tmp_path / "report.sqlite")).operations)
    assert left == {50: 121, 5_000_000: 120}


@pytest.mark.parametrize("table", [RUNTIME, "CUPTI_ACTIVITY_KIND_KERNEL"])
def test_rows_that_are_there_twice_count_once(table: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.sqlite"
    path.write_bytes(SAMPLE.read_bytes())
    alter(path, f"INSERT INTO {table} SELECT * FROM {table}")
    whole, report = api.analyze(SAMPLE), api.analyze(path)
    assert report.devices[0].time == whole.devices[0].time
    assert report.devices[0].kernels.count == whole.devices[0].kernels.count
    assert "on record twice" in report.trace.warnings[0].message
    assert report.devices[0].verdict.bound == whole.devices[0].verdict.bound


def test_kernels_that_take_no_time_are_compared_with_nothing(tmp_path: Path) -> None:
    path = tmp_path / "copy.sqlite"
    path.write_bytes(SAMPLE.read_bytes())
    alter(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert api.analyze(path).devices[0].kernels.total_ns == 0


def test_a_report_of_which_many_rows_contradict_others_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "copy.sqlite"
    path.write_bytes(SAMPLE.read_bytes())
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"UPDATE {RUNTIME} SET start = -5 WHERE rowid % 5 = 0")
        database.commit()
    report = api.analyze(path)
    assert "unbelievable-times" in {warning.code for warning in report.trace.warnings}
    assert report.devices[0].verdict.confidence == "low"


def test_calls_of_a_maker_that_is_not_known_are_named(tmp_path: Path) -> None:
    export = Export()
    thread = export.thread()
    for number in range(20):
        at = 1_000_000 * number
        export.kernel(export.api(thread, at, at + 5_000, "aclrtLaunchKernel"), at + 8_000, at + 900_000)
        export.api(thread, at + 10_000, at + 910_000, "aclrtSynchronizeStream")
    report = api.analyze(export.write(tmp_path / "made.sqlite"))
    [warning] = [warning for warning in report.trace.warnings if warning.code == "broken-rows"]
    assert warning.message == (
        "20 of the CUDA API calls had names that no known call of a GPU has (aclrtSynchronizeStream: what they do is "
        "not known) and were left out."
    )
    assert report.devices[0].verdict.confidence != "high"


GPU_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


@pytest.mark.parametrize(
    ("tables", "times"),
    [
        (GPU_TABLES, "end = start + (end - start) / 1000"),  # durations in a wrong unit
        (GPU_TABLES, "start = start / 1000, end = end / 1000"),
        ((RUNTIME,), "start = start / 1000, end = end / 1000"),
        ((*GPU_TABLES, RUNTIME, "NVTX_EVENTS", "OSRT_API"), "start = start / 1000, end = end / 1000"),
        (GPU_TABLES, "start = start * 10, end = end * 10"),
        (GPU_TABLES[:1], "start = start * 1000, end = end * 1000"),
        (("NVTX_EVENTS",), "start = start * 1000, end = end * 1000"),
    ],
)
def test_times_in_a_wrong_unit_are_told_and_make_no_sure_verdict(
    tables: tuple[str, ...], times: str, tmp_path: Path
) -> None:
    path = tmp_path / "copy.sqlite"
    path.write_bytes(SAMPLE.read_bytes())
    with closing(sqlite3.connect(path)) as database:
        for table in tables:
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                database.execute(f"UPDATE {table} SET {times}")
        database.commit()
    report = api.analyze(path)
    assert "unbelievable-times" in {warning.code for warning in report.trace.warnings}
    assert {device.verdict.confidence for device in report.devices} == {"low"}


def test_waits_for_the_step_before_are_no_other_unit(tmp_path: Path) -> None:
    """The host waits for an event of the step before, while the work of this one runs: a step in twenty-five."""
    export, length = Export(), 10_000_000
    thread = export.thread()
    for step in range(25):
        at = step * length
        export.kernel(export.api(thread, at, at + 5_000, "cudaLaunchKernel_v7000"), at + length, at + 2 * length)
        export.api(thread, at + 10_000, at + length + 5_000, "cudaEventSynchronize_v3020")
    report = api.analyze(export.write(tmp_path / "behind.sqlite"))
    assert "unbelievable-times" not in {warning.code for warning in report.trace.warnings}


@pytest.mark.parametrize(("longer", "is_told"), [(1, False), (20, False), (1_000, True)])
def test_a_program_may_go_on_without_the_gpu(longer: int, is_told: bool, tmp_path: Path) -> None:
    """Ranges after all calls, for as many times as long as these take."""
    export, calls_ns = Export(), 25_000_000
    thread = export.thread()
    for step in range(25):
        at = step * calls_ns // 25
        export.kernel(export.api(thread, at, at + 5_000, "cudaLaunchKernel_v7000"), at + 8_000, at + 900_000)
        export.api(thread, at + 10_000, at + 910_000, "cudaDeviceSynchronize_v3020")
        export.nvtx(thread, at, at + 950_000, "step")
    for number in range(100):
        since = calls_ns + number * longer * calls_ns // 100
        export.nvtx(thread, since, since + 100_000, "write")
    told = unlike_any_machine(read_trace(export.write(tmp_path / "after.sqlite")))
    assert (told == "Most of 125 NVTX ranges begin after all else that is on record") is is_told
    assert told is None or is_told


def test_waits_for_a_device_that_does_nothing_are_told_only_where_all_launches_are_on_record(tmp_path: Path) -> None:
    for lost in (0, 5):
        export = Export()
        thread = export.thread()
        for number in range(20):
            at = 10_000_000 * number
            call = export.api(thread, at, at + 5_000, "cudaLaunchKernel_v7000")
            if number >= lost:
                export.kernel(call, at + 8_000, at + 17_000)
            export.api(thread, at + 10_000, at + 9_000_000, "cudaDeviceSynchronize_v3020")
        told = unlike_any_machine(read_trace(export.write(tmp_path / f"{lost}.sqlite")))
        assert told == (None if lost else "The GPU does nothing during most of 20 waits for it")


def test_time_of_which_a_single_row_tells_makes_no_sure_verdict(tmp_path: Path) -> None:
    """Steps in which the device computes; the last one ends long after anything else has."""
    found = {}
    for until in (0, 2_000_000_000):
        path = training_loop(30).write(tmp_path / f"{until}.sqlite")
        with closing(sqlite3.connect(path)) as database:
            database.execute(
                "UPDATE NVTX_EVENTS SET end = end + ? WHERE rowid = (SELECT rowid FROM NVTX_EVENTS ORDER BY end DESC)",
                (until,),
            )
            database.commit()
        found[until] = api.analyze(path).devices[0].verdict
    assert found[2_000_000_000].confidence == "low" or found[2_000_000_000].bound in ("unknown", found[0].bound)


def test_threads_whose_ids_do_not_follow_one_another_contradict_nothing(tmp_path: Path) -> None:
    """The ids of one thread's eleven copies all lie after those of the other thread's 1,300 calls, and their times do
    not: that is no wrong time of single rows."""
    export = made(81000061, ("short_streams",)).export().write(tmp_path / "two_threads.sqlite", "2023")
    assert not open_trace(export, None, lambda _stage, _part: None).is_damaged


@pytest.mark.parametrize("path", [*traces(), *kineto_traces()], ids=lambda path: path.name.split(".")[0])
def test_of_no_real_trace_a_row_is_left_out(path: Path) -> None:
    try:
        trace = open_trace(path, None, lambda _stage, _part: None)
    except UserError:
        pytest.skip("not a report")
    assert not trace.is_damaged
