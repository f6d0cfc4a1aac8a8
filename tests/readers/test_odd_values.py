"""Values that no clean export holds: each gives an error, or the right answer and a warning; never a wrong number."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from benchmarks.simulated.full_export import Export
from msgspec.structs import fields

import boundby
from boundby.model.errors import InputError
from boundby.readers import read_trace
from boundby.render import terminal
from boundby.results import saved
from boundby.results.report import Report
from boundby.trace.tables import Trace
from tests.support.alter import alter
from tests.support.bad_files import good
from tests.support.invariants import check_invariants
from tests.support.training import MS, training_loop

T = TypeVar("T")

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
COPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
CALL = "CUPTI_ACTIVITY_KIND_RUNTIME"
DAMAGED = "some rows of the report are missing or cannot be right: others may be, too"
INT64_MAX = (1 << 63) - 1
HUGE = (INT64_MAX, INT64_MAX - 1, 1 << 62, -(1 << 62), 1 - (1 << 63), -(1 << 63), 1 << 53, -(1 << 53), 10**18)


def in_turns(places: Iterable[tuple[str, str]], times: int, values: Iterable[T]) -> list[tuple[str, str, T]]:
    """Each place with some of the values, so that each value is in some: ``benchmarks.fuzz`` tries the rest."""
    turns = itertools.cycle(values)
    return [(table, column, next(turns)) for table, column in places for _ in range(times)]


def analyzed(path: Path) -> Report:
    report = boundby.analyze(path)
    check_invariants(report)
    return report


def result(report: Report) -> dict[str, object]:
    """All but the description of the trace, which holds its warnings and its length, and what its quality says."""
    found: dict[str, Any] = {key: value for key, value in report.to_dict().items() if key != "trace"}
    found["findings"] = [item.title for item in report.findings if not item.rule.startswith("trace-")]
    for part in ("devices", "regions"):  # why a verdict is no surer: that warnings are there is one reason
        found[part] = [
            {
                **each,
                "reasons": [text for text in each["reasons"] if text != DAMAGED],
                "uncertainties": [one for one in each["uncertainties"] if one["sentence"] != DAMAGED],
            }
            for each in found[part]
        ]
    return found


def content(trace: Trace) -> bytes:
    """All that an analysis looks at, but for the warnings."""
    return pickle.dumps(
        [getattr(trace, each.name) for each in fields(trace) if each.name not in ("backtraces", "warnings")]
    )


def warnings(report: Report) -> list[str]:
    return [warning.message for warning in report.trace.warnings if warning.code == "broken-rows"]


@pytest.fixture
def spoiled(tmp_path: Path) -> Callable[..., Path]:
    """A whole export and a change made to it."""

    def spoil(*statements: str, loose: str | None = None) -> Path:
        return alter(good(tmp_path), *statements, loose=loose)

    return spoil


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return analyzed(good(tmp_path_factory.mktemp("clean")))


# --- NULLs and values of other types ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "column", "what"),
    [
        (KERNEL, "start", "GPU operations"),
        (KERNEL, "end", "GPU operations"),
        (COPY, "start", "GPU operations"),
        (CALL, "start", "CUDA API calls"),
        (CALL, "globalTid", "CUDA API calls"),
        ("NVTX_EVENTS", "start", "NVTX ranges"),
        ("NVTX_EVENTS", "globalTid", "NVTX ranges"),
        ("OSRT_API", "start", "OS runtime calls"),
        ("OSRT_API", "globalTid", "OS runtime calls"),
        ("SCHED_EVENTS", "start", "context switches"),
        ("SCHED_EVENTS", "isSchedIn", "context switches"),
        ("SCHED_EVENTS", "globalTid", "context switches"),
        ("COMPOSITE_EVENTS", "start", "CPU samples"),
        ("COMPOSITE_EVENTS", "globalTid", "CPU samples"),
        ("PROFILER_OVERHEAD", "start", "profiler overheads"),
    ],
)
def test_rows_that_cannot_be_placed_are_as_if_they_were_not_there(
    spoiled: Callable[..., Path], table: str, column: str, what: str
) -> None:
    null = read_trace(spoiled(f"UPDATE {table} SET {column} = NULL WHERE rowid = 1", loose=table))
    gone = read_trace(spoiled(f"DELETE FROM {table} WHERE rowid = 1"))
    assert [warning.message for warning in null.warnings if warning.code == "broken-rows"] == [
        f"1 of the {what} had no usable time or thread and were left out."
    ]
    assert content(null) == content(gone)


@pytest.mark.parametrize("table", [CALL, "NVTX_EVENTS", "OSRT_API"])
def test_host_events_without_an_end_last_to_the_end_of_the_trace(spoiled: Callable[..., Path], table: str) -> None:
    last = "(SELECT max(end) FROM NVTX_EVENTS)"
    # A thread that has made other calls since was in none of them to the end: of calls the last one hangs.
    row = f"(SELECT rowid FROM {table} ORDER BY start DESC LIMIT 1)" if table == CALL else "3"
    null = analyzed(spoiled(f"UPDATE {table} SET end = NULL WHERE rowid = {row}", loose=table))
    assert warnings(null) == []
    closed = analyzed(spoiled(f"UPDATE {table} SET end = {last} WHERE rowid = {row}", loose=table))
    assert null.devices == closed.devices


def test_a_call_without_an_end_that_others_follow_is_left_out(spoiled: Callable[..., Path]) -> None:
    null = analyzed(spoiled(f"UPDATE {CALL} SET end = NULL WHERE rowid = 3", loose=CALL))
    gone = analyzed(spoiled(f"DELETE FROM {CALL} WHERE rowid = 3"))
    assert warnings(null) == [
        "1 of the CUDA API calls had times that contradict those of many others and were left out."
    ]
    assert result(null) == result(gone)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (KERNEL, "demangledName"),
        (KERNEL, "shortName"),
        (KERNEL, "globalPid"),
        (KERNEL, "deviceId"),
        (KERNEL, "streamId"),
        (KERNEL, "correlationId"),
        (COPY, "bytes"),
        (COPY, "copyKind"),
        (COPY, "srcKind"),
        (CALL, "nameId"),
        (CALL, "correlationId"),
        (CALL, "returnValue"),
        ("NVTX_EVENTS", "text"),
        ("NVTX_EVENTS", "domainId"),
        ("OSRT_API", "nameId"),
        ("StringIds", "value"),
        ("StringIds", "id"),
        ("ThreadNames", "nameId"),
        ("PROCESSES", "pid"),
        ("TARGET_INFO_GPU", "id"),
        ("TARGET_INFO_GPU", "name"),
        ("META_DATA_EXPORT", "value"),
        ("META_DATA_EXPORT", "name"),
        ("META_DATA_CAPTURE", "value"),
        ("ENUM_CUDA_MEMCPY_OPER", "name"),
        ("ENUM_CUDA_MEM_KIND", "id"),
    ],
)
def test_nulls_elsewhere_are_not_captured(spoiled: Callable[..., Path], table: str, column: str) -> None:
    report = analyzed(spoiled(f"UPDATE {table} SET {column} = NULL", loose=table))
    assert "None" not in saved.render(report)
    assert [gpu.id for gpu in report.trace.gpus if gpu.used] == [0]


def test_numbers_kept_as_text_or_fractions_are_read(spoiled: Callable[..., Path], clean: Report) -> None:
    """As pandas' to_sql and spreadsheets leave them."""
    rows = f"CREATE TABLE new AS SELECT * FROM {KERNEL}"
    typed = "UPDATE new SET start = CAST(start AS TEXT), end = CAST(end AS REAL)"
    path = spoiled(rows, f"DROP TABLE {KERNEL}", typed, f"ALTER TABLE new RENAME TO {KERNEL}")
    assert result(analyzed(path)) == result(clean)


@pytest.mark.parametrize("value", ["'soon'", "x'00ff'", "'12 ms'", "1e300", "9e999", "''", "-9e999"])
@pytest.mark.parametrize(
    ("table", "column"),
    [(KERNEL, "start"), (CALL, "correlationId"), ("NVTX_EVENTS", "end"), ("SCHED_EVENTS", "isSchedIn")],
)
def test_anything_but_a_number_is_an_error(spoiled: Callable[..., Path], table: str, column: str, value: str) -> None:
    with pytest.raises(InputError, match=f"table {table} holds something that is not a number"):
        boundby.analyze(spoiled(f"UPDATE {table} SET {column} = {value} WHERE rowid = 2", loose=table))


TEXTS = ("CAST(x'66FFFE6F' AS TEXT)", "x'66FFFE6F'", "1.5", "char(27) || '[31m' || char(10)")
TOLD = (("NVTX_EVENTS", "text"), ("TARGET_INFO_GPU", "name"), ("META_DATA_CAPTURE", "value"))


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [*(("StringIds", "value", text) for text in TEXTS), *in_turns(TOLD, 2, TEXTS)],
)
def test_texts_of_any_kind(spoiled: Callable[..., Path], clean: Report, table: str, column: str, value: str) -> None:
    """Invalid UTF-8, bytes, numbers and control characters are shown somehow and change no time."""
    path = spoiled(f"UPDATE {table} SET {column} = {value}", loose=table)
    report = analyzed(path)
    if table != "StringIds":  # names of calls are what the account rests on
        window = clean.devices[0].window  # which names of ranges may have set: it follows the steps
        same = boundby.analyze(path, window=f"{window.start_ns}ns:{window.end_ns}ns")
        assert same.devices[0].time == clean.devices[0].time
    if table not in ("StringIds", "NVTX_EVENTS"):
        assert report.devices[0].time == clean.devices[0].time
    shown = terminal.render(report, width=100, color_system=None, unicode=True)
    assert "\x1b" not in shown
    saved.render(report).encode()


# --- impossible numbers ----------------------------------------------------------------------------------------


TIMED = (KERNEL, COPY, CALL, "NVTX_EVENTS", "OSRT_API", "PROFILER_OVERHEAD")


@pytest.mark.parametrize(
    ("table", "column", "value"),
    in_turns([*itertools.product(TIMED, ["start", "end"]), ("SCHED_EVENTS", "start")], 1, HUGE),
)
def test_one_impossible_time_spoils_one_row(spoiled: Callable[..., Path], table: str, column: str, value: int) -> None:
    report = analyzed(spoiled(f"UPDATE {table} SET {column} = {value} WHERE rowid = 1", loose=table))
    assert abs(report.devices[0].window.start_ns) < 10**9
    assert report.devices[0].window_ns < 10**9
    if value != -(1 << 63):  # boundby's own mark for NULL
        assert len(warnings(report)) == 1


NUMBERS = (
    (KERNEL, "correlationId"),
    (KERNEL, "deviceId"),
    (KERNEL, "streamId"),
    (KERNEL, "globalPid"),
    (KERNEL, "demangledName"),
    (COPY, "bytes"),
    (COPY, "copyKind"),
    (COPY, "dstKind"),
    (CALL, "correlationId"),
    (CALL, "globalTid"),
    (CALL, "nameId"),
    (CALL, "eventClass"),
    ("NVTX_EVENTS", "globalTid"),
    ("NVTX_EVENTS", "domainId"),
    ("NVTX_EVENTS", "eventType"),
    ("SCHED_EVENTS", "isSchedIn"),
    ("ThreadNames", "globalTid"),
    ("TARGET_INFO_GPU", "id"),
    ("PROCESSES", "pid"),
)


@pytest.mark.parametrize(
    ("rows", "table", "column", "value"),
    [(("rowid = 1", "1")[number % 2], *place) for number, place in enumerate(in_turns(NUMBERS, 1, HUGE))],
)
def test_other_impossible_numbers(spoiled: Callable[..., Path], rows: str, table: str, column: str, value: int) -> None:
    report = analyzed(spoiled(f"UPDATE {table} SET {column} = {value} WHERE {rows}", loose=table))
    assert report.devices[0].window_ns < 10**9
    saved.render(report)


@pytest.mark.parametrize("column", ["start", "end"])
def test_all_times_impossible(spoiled: Callable[..., Path], column: str) -> None:
    """Which half of the events is right cannot be known, but nothing overflows."""
    analyzed(spoiled(f"UPDATE {KERNEL} SET {column} = {INT64_MAX} - rowid * 1000000000000000000"))


def test_ends_before_starts(spoiled: Callable[..., Path]) -> None:
    swapped = "SET start = end, end = start WHERE rowid = 1"
    operation = analyzed(spoiled(f"UPDATE {KERNEL} {swapped}"))
    assert warnings(operation) == ["1 of the GPU operations had no usable time or thread and were left out."]
    for table, what in ((CALL, "CUDA API calls"), ("NVTX_EVENTS", "NVTX ranges"), ("OSRT_API", "OS runtime calls")):
        backwards = analyzed(spoiled(f"UPDATE {table} {swapped}"))
        instant = analyzed(spoiled(f"UPDATE {table} SET start = end WHERE rowid = 1"))
        assert warnings(backwards) == [f"1 of the {what} ended before they started and count as instants."]
        assert result(backwards) == result(instant)


def test_correlation_ids_beyond_cuptis_match_nothing(spoiled: Callable[..., Path]) -> None:
    strange = analyzed(spoiled(f"UPDATE {KERNEL} SET correlationId = 1 << 33 WHERE rowid = 1"))
    none = analyzed(spoiled(f"UPDATE {KERNEL} SET correlationId = 0 WHERE rowid = 1"))
    assert warnings(strange) == [
        "1 of the GPU operations had impossible correlation ids and were matched with nothing."
    ]
    assert result(strange) == result(none)


def test_no_thread_is_usable(tmp_path: Path) -> None:
    export = Export()
    export.nvtx(export.thread(), 0, MS, "work")
    path = export.write(tmp_path / "report.sqlite")
    with pytest.raises(InputError, match="none of its events has a usable time and thread"):
        boundby.analyze(alter(path, "UPDATE NVTX_EVENTS SET globalTid = -9223372036854775807"))


@pytest.mark.parametrize("value", ["NULL", "1.5", "'one'", "x'01'"])
def test_a_gpu_without_a_number_is_not_listed(tmp_path: Path, value: str) -> None:
    export = training_loop(1)
    export.gpu(0, "A100")
    export.gpu(1, "B200")
    path = export.write(tmp_path / "report.sqlite")
    report = analyzed(alter(path, f"UPDATE TARGET_INFO_GPU SET id = {value} WHERE id = 1", loose="TARGET_INFO_GPU"))
    assert [gpu.name for gpu in report.trace.gpus] == ["A100"]


def test_negative_bytes_count_as_none(spoiled: Callable[..., Path]) -> None:
    report = analyzed(spoiled(f"UPDATE {COPY} SET bytes = -5"))
    assert all(copies.bytes == 0 for copies in report.devices[0].memcpy.values())
    assert "had impossible sizes" in warnings(report)[0]


def test_no_event_takes_any_time(tmp_path: Path) -> None:
    """One instant is no window: an error, not a division by zero."""
    path = training_loop(1).write(tmp_path / "report.sqlite", drop=(COPY, "CUPTI_ACTIVITY_KIND_MEMSET"))
    alter(path, f"DELETE FROM {KERNEL} WHERE rowid > 1", f"UPDATE {KERNEL} SET end = start", f"DELETE FROM {CALL}")
    with pytest.raises(boundby.model.errors.UserError):
        boundby.analyze(path)
