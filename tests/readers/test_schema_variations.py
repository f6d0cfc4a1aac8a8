"""One program, written as every generation of nsys would write it, has one account. Order and layout do not count."""

from __future__ import annotations

import itertools
import pickle
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export, tables
from msgspec.structs import fields, replace

import boundby
from boundby.model.errors import UserError
from boundby.readers import read_trace
from boundby.results import saved
from boundby.results.report import DeviceReport, Finding, Report, Window
from boundby.simulate.nsys_export import GENERATIONS
from boundby.trace.tables import Trace
from tests.support.alter import alter, rewrite_schema
from tests.support.invariants import check_invariants
from tests.support.training import MS, US, training_loop

#: 2^60.6 ns: an epoch time, as nsys writes with timestamps normalized to UTC.
UNIX_TIME = 1_770_000_000_000_000_000


def analyzed(path: Path) -> Report:
    report = boundby.analyze(path)
    check_invariants(report)
    return report


def result(report: Report) -> dict[str, object]:
    """All but the description of the trace: versions and the command differ between schemas, and with the command what
    rules and first responses advise, and rules look for in programs of Python."""
    told = replace(
        report,
        devices=tuple(replace(one, first_responses=()) for one in report.devices),
        regions=tuple(replace(one, first_responses=()) for one in report.regions),
    ).to_dict()
    found = {key: value for key, value in told.items() if key not in ("trace", "analysis", "not_checked")}
    found["findings"] = [(item.rule, item.region, item.title, item.saving_ns) for item in report.findings]
    return found


def at_zero(report: Report) -> str:
    """The JSON with the window, the steps, the examples of findings and the spans of doubts moved to zero."""
    zero = report.devices[0].window.start_ns

    def of_device(device: DeviceReport) -> DeviceReport:
        spans = (Window(item.span.start_ns - zero, item.span.end_ns - zero) for item in device.doubts)
        doubts = (replace(item, span=span) for item, span in zip(device.doubts, spans, strict=True))
        window = Window(0, device.window.end_ns - device.window.start_ns)
        return replace(device, doubts=tuple(doubts), window=window)

    def moved(finding: Finding) -> Finding:
        examples = (replace(item, start_ns=item.start_ns - zero) for item in finding.examples)
        return replace(finding, examples=tuple(examples))

    devices, findings = map(of_device, report.devices), map(moved, report.findings)
    steps = (replace(step, start_ns=step.start_ns - zero) for step in report.steps)
    return saved.render(replace(report, devices=tuple(devices), findings=tuple(findings), steps=tuple(steps)))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One place for all, since results name it."""
    return tmp_path_factory.mktemp("variations") / "report.sqlite"


@pytest.fixture(scope="module")
def plain(path: Path) -> Callable[..., Report]:
    """The report of the training loop as a generation writes it."""

    @cache
    def of(schema: str = "2023") -> Report:
        return analyzed(training_loop().write(path, schema))

    return of


Plain = Callable[..., Report]


def test_every_generation_gives_the_same_account(plain: Plain) -> None:
    results = [result(plain(schema)) for schema in GENERATIONS]
    assert all(other == results[0] for other in results)


@pytest.mark.parametrize("schema", GENERATIONS)
def test_versions(plain: Plain, schema: str) -> None:
    trace = plain(schema).trace
    versions = {"2019": (None, None), "2022": ("2022.1.1.61", "2.9.1"), "2023": ("2023.4.4.54", "3.7.2")}
    assert (trace.exported_by, trace.schema_version) == versions.get(schema, ("2026.2.1.210", "3.25.0"))
    assert trace.command == (None if schema < "2023" else "python train.py --steps 4")
    assert not trace.warnings


@pytest.mark.parametrize("seed", range(len(GENERATIONS)))
def test_order_of_rows_tables_and_texts_does_not_count(path: Path, plain: Plain, seed: int) -> None:
    schema = GENERATIONS[seed]
    expected = saved.render(plain(schema))
    assert saved.render(analyzed(training_loop().write(path, schema, shuffle=seed))) == expected


@pytest.mark.parametrize("seed", range(6))
def test_order_does_not_count_where_events_coincide(path: Path, seed: int) -> None:
    export = coinciding(random.Random(seed))
    expected = saved.render(analyzed(export.write(path)))
    assert saved.render(analyzed(export.write(path, shuffle=seed))) == expected


def named(trace: Trace) -> list[list[str]]:
    """The names in the rows of every table, in order."""
    tables = (trace.operations, trace.api, trace.ranges, trace.os_calls, trace.overhead)
    return [[trace.names[name] for name in table.name.tolist()] for table in tables]


def test_rows_that_coincide_are_in_one_order(path: Path) -> None:
    export = Export()
    thread = export.thread()
    for name in "abcdefgh":
        call = export.api(thread, 0, 5, f"cudaLaunch{name}", correlation=3)
        export.kernel(call, 10, 20, name=name)
        export.nvtx(thread, 0, 5, name)
        export.osrt(thread, 0, 5, name)
        export.overhead(thread, 0, 5, name)
    expected = named(read_trace(export.write(path)))
    assert all(named(read_trace(export.write(path, shuffle=seed))) == expected for seed in range(5))


def coinciding(chance: random.Random) -> Export:
    """Few instants for many events, so that starts, ends and whole intervals are often the same."""
    export = Export()
    threads = [export.thread(1, 1), export.thread(1, 2), export.thread(2, 2)]
    for _ in range(60):
        thread = chance.choice(threads)
        start, end = sorted(chance.choices(range(0, 12 * MS, 2 * MS), k=2))
        kind = chance.choice(("range", "range", "span", "kernel", "copy", "osrt", "sync", "overhead"))
        if kind in ("range", "span"):
            nvtx = "pushpop" if kind == "range" else "startend"
            export.nvtx(thread, start, end, chance.choice("abcd"), domain=chance.choice((None, "d")), kind=nvtx)
        elif kind == "kernel":
            call = export.api(thread, start, start + 9 * US, "cudaLaunchKernel")
            export.kernel(call, end, end + MS, name=chance.choice(("k", "l")), stream=chance.choice((7, 8)))
        elif kind == "copy":
            export.memcpy(export.api(thread, start, end, "cudaMemcpy"), start, end)
        elif kind == "sync":
            export.api(thread, start, end, "cudaDeviceSynchronize")
        elif kind == "osrt":
            export.osrt(thread, start, end, chance.choice(("poll", "read", "mmap")))
        else:
            export.overhead(thread, start, end, chance.choice(("flush", "module loading")))
    launch = export.api(threads[0], 0, US, "cudaLaunchKernel")
    export.kernel(launch, 2 * MS, 3 * MS)
    return export


@pytest.mark.parametrize(("shift", "schema"), list(zip(itertools.cycle([UNIX_TIME, -(10**12), 7]), GENERATIONS)))
def test_the_zero_of_time_does_not_count(path: Path, plain: Plain, shift: int, schema: str) -> None:
    expected = plain(schema)
    shifted = analyzed(training_loop().write(path, schema, shift=shift))
    assert shifted.devices[0].window.start_ns == expected.devices[0].window.start_ns + shift
    assert at_zero(shifted) == at_zero(expected)


@pytest.mark.parametrize("schema", GENERATIONS)
def test_empty_tables_are_as_absent_ones(path: Path, plain: Plain, schema: str) -> None:
    """Exports need not be lazy."""
    assert analyzed(training_loop().write(path, schema, empty_tables=True)) == plain(schema)


@pytest.mark.parametrize("page_size", [512, 1024, 65536])
def test_page_sizes(path: Path, plain: Plain, page_size: int) -> None:
    expected = saved.render(plain())
    assert saved.render(analyzed(training_loop().write(path, page_size=page_size))) == expected


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_encodings(path: Path, plain: Plain, encoding: str, tmp_path: Path) -> None:
    expected = saved.render(plain())
    training_loop().write(path)
    copy = tmp_path / "other"
    copy.mkdir()
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy / path.name)) as target:
        target.execute(f"PRAGMA encoding = '{encoding}'")
        target.executescript("\n".join(source.iterdump()))
    copied = (copy / path.name).rename(path)
    assert saved.render(analyzed(copied)) == expected


def test_vacuum_deletes_and_added_columns(path: Path, plain: Plain) -> None:
    expected = saved.render(plain())
    training_loop().write(path)
    junk = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL"
    alter(path, junk, f"DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid > {4 * 5}")
    assert saved.render(analyzed(path)) == expected
    alter(path, "PRAGMA auto_vacuum = FULL", "VACUUM", "ALTER TABLE NVTX_EVENTS ADD COLUMN later INTEGER DEFAULT 5")
    assert saved.render(analyzed(path)) == expected


def test_tables_columns_and_indexes_of_other_tools(path: Path, plain: Plain) -> None:
    """An index must not change which text belongs to which range, nor a broken view stop the reading."""
    expected = saved.render(plain())
    training_loop().write(path)
    alter(
        path,
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN resolved_path TEXT DEFAULT 'x'",
        "CREATE TABLE EXTRAP_GPU_IDLE (start TEXT, end BLOB)",
        'CREATE TABLE "odd "" name" (a)',
        "CREATE INDEX a ON NVTX_EVENTS (eventType, text)",
        "CREATE INDEX b ON NVTX_EVENTS (text, eventType)",
        "CREATE INDEX c ON CUPTI_ACTIVITY_KIND_RUNTIME (end, start)",
        "CREATE TABLE gone (a)",
        "CREATE VIEW broken AS SELECT a FROM gone",
        "DROP TABLE gone",
    )
    assert saved.render(analyzed(path)) == expected
    unknown = "'CREATE VIRTUAL TABLE search USING none(a)'"
    rewrite_schema(path, f"INSERT INTO sqlite_master VALUES ('table', 'search', 'search', 0, {unknown})")
    assert saved.render(analyzed(path)) == expected


def test_tables_without_rowid_and_views(path: Path, plain: Plain) -> None:
    expected = saved.render(plain())
    training_loop().write(path)
    alter(
        path,
        "CREATE TABLE texts (id INTEGER NOT NULL PRIMARY KEY, value TEXT) WITHOUT ROWID",
        "INSERT INTO texts SELECT * FROM StringIds ORDER BY value",
        "DROP TABLE StringIds",
        "ALTER TABLE texts RENAME TO StringIds",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO kernels",
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM kernels",
    )
    report = analyzed(path)
    unread = tuple(table for table in report.trace.not_read if table.name != "kernels")  # which the view shows
    assert len(unread) == len(report.trace.not_read) - 1
    assert saved.render(replace(report, trace=replace(report.trace, not_read=unread))) == expected


def is_refused(path: Path, known: set[bytes] | None) -> bool:
    """True for an error; else the account adds up. A known trace is not analysed again; None: it is only read."""
    try:
        trace = read_trace(path)
        if known is None:
            return False
        content = pickle.dumps([getattr(trace, each.name) for each in fields(trace) if each.name != "backtraces"])
        if content not in known:
            analyzed(path)
            known.add(content)
    except UserError:
        return True
    return False


@pytest.mark.parametrize("schema", GENERATIONS)
def test_any_table_may_be_missing(path: Path, schema: str) -> None:
    known: set[bytes] | None = set() if schema == GENERATIONS[-1] else None
    refused = [
        table for table in tables(schema) if is_refused(training_loop(2).write(path, schema, drop=(table,)), known)
    ]
    assert refused == ["StringIds"]


ALONE_OF, TOGETHER = 4, 12
NEEDED = {
    *("start", "end", "globalTid", "nameId", "eventType", "isSchedIn"),
    *("id", "value"),  # of StringIds
}


@pytest.mark.parametrize("schema", GENERATIONS)
def test_any_column_may_be_missing_that_the_account_does_not_rest_on(path: Path, schema: str) -> None:
    newest = GENERATIONS[-1]
    turn = 0 if schema == newest else GENERATIONS.index(schema)
    columns = [
        (table, column.name)
        for table, found in tables(schema).items()
        for number, column in enumerate(found)
        # All of the newest generation's stand for those of the others: of each a fifth, and what only they have.
        if schema == newest or number % 5 == turn or column not in tables(newest).get(table, ())
    ]
    known: set[bytes] = set()
    # One of some is missing by itself, and so is each that the account rests on; of the others several.
    alone = [
        place
        for number, place in enumerate(columns)
        if place[1] in NEEDED or (schema == newest and number % ALONE_OF == 0)
    ]
    others = [place for place in columns if place not in alone]
    missing = [[place] for place in alone] + [others[start::TOGETHER] for start in range(TOGETHER)]
    refused = {
        column
        for number, places in enumerate(missing)
        if is_refused(
            training_loop(2).write(path, schema, drop=tuple(f"{table}.{column}" for table, column in places)),
            known if schema == newest and number % 3 == 0 else None,
        )
        for _, column in places
    }
    assert refused == NEEDED if schema == newest else refused <= NEEDED
