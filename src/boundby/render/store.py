"""Report -> flat tables for other tools: CSV, and rows of a SQLite database that grows with every run: to compare, to
query, to browse with Datasette.

Tables ``reports``, ``devices``, ``threads``, ``regions`` and ``findings``, tied by foreign keys, one column per cause.
A report is added in one transaction: whole or not at all. sqlite-utils is imported only here.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from boundby.__about__ import __version__
from boundby.document.blocks import clean
from boundby.model import door
from boundby.model.errors import OutputError, UserError
from boundby.model.scale import GRACE_S
from boundby.results.flat_tables import Scalar, TableColumn, columns, rows
from boundby.results.report import Report
from boundby.results.saved import to_plain, valid
from boundby.results.write import NSYS_MAGIC, SQLITE_MAGIC, reason

if TYPE_CHECKING:
    from sqlite_utils import Database


LOCK_SECONDS = GRACE_S  # how long another writer is waited for
#: Of a report as a whole; its account lies in the other tables.
_OF_REPORT = (
    TableColumn("path", str, attrgetter("trace.path")),
    TableColumn("source", str, attrgetter("trace.source")),
    TableColumn("command", str, attrgetter("trace.command")),
    TableColumn("tool_version", str, lambda _: __version__),
    TableColumn("format_version", int, attrgetter("format_version")),
    TableColumn("nsys_version", str, attrgetter("trace.nsys_version")),
    TableColumn("schema_version", str, attrgetter("trace.schema_version")),
    TableColumn("duration_ns", int, attrgetter("trace.duration_ns")),
    TableColumn("window", str, attrgetter("analysis.window")),
    TableColumn("region_glob", str, attrgetter("analysis.region_glob")),
    TableColumn("min_share", float, attrgetter("analysis.min_share")),
    TableColumn("captured", str, lambda report: _json(report.trace.captured)),
    TableColumn("warnings", str, lambda report: _json(report.trace.warnings)),
)
_REPORT_KEY = {"id": int, "report_id": int}
TABLES: dict[str, dict[str, type]] = {
    "reports": {"id": int, "created_utc": str, **{column.name: column.kind for column in _OF_REPORT}},
    "devices": {**_REPORT_KEY, **columns("devices")},
    "threads": {**_REPORT_KEY, **columns("threads")},
    "regions": {**_REPORT_KEY, "parent_id": int, **columns("regions"), "instance_ns": str},
    "findings": {**_REPORT_KEY, "region_id": int, **columns("findings"), "evidence": str, "examples": str},
}
_FOREIGN_KEYS = {
    "report_id": ("report_id", "reports", "id"),
    "parent_id": ("parent_id", "regions", "id"),
    "region_id": ("region_id", "regions", "id"),
}


def save(report: Report, path: str | Path, *, now: datetime | None = None) -> int:
    """Add the report to the database at ``path`` (made if absent) and return its id there."""
    target = Path(path)
    check(target)
    with _explained(target), _open(target) as database, _transaction(database):
        _check_tables(database, target)
        for table, columns in TABLES.items():
            _make_room(database, table, columns)
        return _add(database, report, now or datetime.now(timezone.utc))


def check(target: Path) -> None:
    """Refuse what is no database before SQLite sees it, and any nsys report. Cheap: call it before hard work."""
    _sqlite_utils()
    with _explained(target):
        if target.is_dir():
            raise OutputError(f"Cannot save to {target}: it is a folder.", "Give the name of a database file in it.")
        if not target.parent.is_dir():
            raise OutputError(f"Cannot save to {target}: its folder does not exist.", "Make the folder first.")
        if target.exists() and not target.is_file():
            raise OutputError(f"Cannot save to {target}: it is no regular file.", "Give the name of a database file.")
        start = _start(target)
    if start == NSYS_MAGIC:
        raise OutputError(f"Will not save into {target}: it is an nsys report.", "Choose another file.")
    if start not in (b"", SQLITE_MAGIC):
        raise OutputError(f"Cannot save to {target}: it is not a SQLite database.", "Choose another file.")


def _start(target: Path) -> bytes:
    if not target.exists():
        return b""
    try:
        return door.first_of(target, len(SQLITE_MAGIC))
    except OSError as error:
        raise OutputError(f"Cannot save to {target}: {error.strerror}.", "Choose another file.") from error


def _sqlite_utils() -> ModuleType:
    try:
        import sqlite_utils
    except ImportError as error:
        message = "Saving to a database needs sqlite-utils, which is not installed."
        raise UserError(message, "Run: pip install sqlite-utils") from error
    return sqlite_utils


@contextmanager
def _open(target: Path) -> Iterator[Database]:
    existed = target.exists()
    try:
        # Autocommit: the transaction below is then ours alone to begin and to end.
        connection = sqlite3.connect(target, timeout=LOCK_SECONDS, isolation_level=None, factory=_OneTransaction)
        with closing(connection):
            yield _sqlite_utils().Database(connection, execute_plugins=False)
    except BaseException:
        if not existed and target.is_file() and target.stat().st_size == 0:
            target.unlink()  # SQLite makes the file before it can know that it will stay empty
        raise


class _OneTransaction(sqlite3.Connection):
    """sqlite-utils before 4.0 ends a transaction after each insert (``with connection``). Not here."""

    def __enter__(self) -> _OneTransaction:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        return False


@contextmanager
def _transaction(database: Database) -> Iterator[None]:
    connection = database.conn
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("BEGIN IMMEDIATE")  # wait for other writers now, not half-way
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """What the system or SQLite refuses, as a sentence."""
    try:
        yield
    except sqlite3.Error as error:
        why, next_step = _why(error)
        raise OutputError(f"Cannot save to {target}: {why}.", next_step) from error
    except OSError as error:
        raise OutputError(f"Cannot save to {target}: {reason(error)}.", "Choose another file.") from error


def _why(error: sqlite3.Error) -> tuple[str, str]:
    """The reason and the next step, by the words of SQLite."""
    text = str(error)
    for words, why, next_step in _REFUSALS:
        if any(word in text for word in words):
            return why, next_step
    return text, _ELSEWHERE


_ELSEWHERE = "Choose another file. Nothing was changed."
_REFUSALS = (
    (
        ("locked", "busy"),
        f"another program has kept it locked for {LOCK_SECONDS:.0f} s",
        "Close that program, or save to another file. Nothing was changed.",
    ),
    (("readonly", "unable to open"), "no permission to write it", _ELSEWHERE),
    (("full",), "the disk is full", _ELSEWHERE),
    (("not a database", "malformed"), "it is not a SQLite database, or a damaged one", _ELSEWHERE),
)


def _check_tables(database: Database, target: Path) -> None:
    """Never add to an nsys export; nor to somebody's own table that has one of our names."""
    names = set(database.table_names())
    if any(name == "StringIds" or name.startswith(("CUPTI_", "TARGET_INFO_", "META_DATA_EXPORT")) for name in names):
        raise OutputError(f"Will not save into {target}: it is an nsys report.", "Choose another file.")
    for table in TABLES:
        if table in names and "id" not in database[table].columns_dict:
            message = f"Cannot save to {target}: it has a table {table} that boundby did not make."
            raise OutputError(message, "Choose another file.")


def _make_room(database: Database, table: str, columns: Mapping[str, type]) -> None:
    """Create the table, or give one of an earlier boundby the columns that came since."""
    target_table = _table(database, table)
    if not target_table.exists():
        keys = [_FOREIGN_KEYS[name] for name in columns if name in _FOREIGN_KEYS]
        target_table.create(dict(columns), pk="id", foreign_keys=keys)
        if "report_id" in columns:
            target_table.create_index(["report_id"])
        return
    present = target_table.columns_dict
    for name, kind in columns.items():
        if name not in present:
            target_table.add_column(name, kind)


def _add(database: Database, report: Report, now: datetime) -> int:
    report_id = _next_id(database, "reports")
    created = now.astimezone(timezone.utc).isoformat(timespec="seconds")
    values = {column.name: column.get(report) for column in _OF_REPORT}
    whole = {name: valid(value) if isinstance(value, str) else value for name, value in values.items()}
    _insert(database, "reports", [{"id": report_id, "created_utc": created, **whole}])
    first = _next_id(database, "regions")
    ids = {_key(region.domain, region.path): first + i for i, region in enumerate(report.regions)}
    by_path = {region.path: first + i for i, region in reversed(list(enumerate(report.regions)))}
    more: dict[str, list[dict[str, Scalar]]] = {
        "devices": [{} for _ in report.devices],
        "threads": [{} for _ in report.threads],
        "regions": [
            {
                "parent_id": ids.get(_key(region.domain, region.path[:-1])) if region.path else None,
                "instance_ns": _json(region.instance_ns),
            }
            for region in report.regions
        ],
        "findings": [
            {
                "region_id": by_path.get(finding.region) if finding.region is not None else None,
                "evidence": _json(finding.evidence),
                "examples": _json(finding.examples),
            }
            for finding in report.findings
        ],
    }
    for table, added in more.items():
        first = _next_id(database, table)
        pairs = enumerate(zip(rows(report, table), added, strict=True), first)
        _insert(database, table, [{"id": number, "report_id": report_id, **row, **own} for number, (row, own) in pairs])
    return report_id


def _json(value: object) -> str:
    return json.dumps(to_plain(value), ensure_ascii=False, allow_nan=False)


def _key(domain: str, path: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """A region's identity; the root belongs to every domain."""
    return (domain if path else "", path)


def _next_id(database: Database, table: str) -> int:
    # Nobody else writes inside our transaction, so ids can be given beforehand and children name their parents.
    return int(database.conn.execute(f'SELECT coalesce(max(id), 0) + 1 FROM "{table}"').fetchone()[0])


def _insert(database: Database, table: str, found: Sequence[Mapping[str, Any]]) -> None:
    if found:
        _table(database, table).insert_all([dict(row) for row in found])


def _table(database: Database, name: str) -> Any:
    # sqlite-utils types database[name] as table or view; ours are tables.
    return database[name]


# CSV: one row per region, one column per cause; or one per kernel or CUDA call of each region. For spreadsheets, so
# formulas in names are defused.

# What a spreadsheet takes for a formula. A leading apostrophe makes it text (the usual remedy).
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_of(report: Report, table: str = "regions") -> str:
    """Header and rows, lines ended by ``\\n``; empty cells mean "not captured"."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(columns(table)), lineterminator="\n")
    writer.writeheader()
    for row in rows(report, table):
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return stream.getvalue()


def _cell(value: Scalar) -> Scalar:
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if value.startswith(_FORMULA) or text.startswith(_FORMULA) else text
