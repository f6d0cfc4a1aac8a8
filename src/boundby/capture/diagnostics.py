"""The profiler's own messages, also from exports that leave them out.

nsys before 2024 exports no ``DIAGNOSTIC_EVENT`` table, though the report holds the messages, and a report that
lacks something says there why. They are read by another kind of export, and put into the table that a later nsys
would have written, so that everything that reads the export finds them.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from boundby.capture.child import ChildTimeoutError
from boundby.capture.export import run_export
from boundby.capture.locate import Nsys
from boundby.model import door
from boundby.model.errors import UserError

#: The other export holds every event as text. Reports larger than this speak for themselves.
LARGEST_REPORT_BYTES = 64 << 20
_LARGEST_INTEGER = 1 << 63
_LEVELS = {"Info": 1, "Warning": 2, "Error": 3}
_TABLE = (
    "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL,"
    " source INTEGER NOT NULL, severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER)"
)
#: The tables in which anything that happened leaves a row.
_EVENTS = (
    *("NVTX_EVENTS", "OSRT_API", "SCHED_EVENTS", "COMPOSITE_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"),
    *("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
)


class Message(Struct, frozen=True):
    """One message of the profiler. ``severity``: 1 information, 2 warning, 3 error."""

    severity: int
    text: str
    time_ns: int
    process: int | None


def add_diagnostics(report: Path, export: Path, nsys: Nsys) -> None:
    """Give an export the profiler's messages where it has none and the report is small enough to ask again."""
    if "DIAGNOSTIC_EVENT" in tables(export) or report.stat().st_size > LARGEST_REPORT_BYTES:
        return
    # What they add is worth having, and its lack no reason to fail.
    with contextlib.suppress(UserError, ChildTimeoutError, OSError, sqlite3.Error, OverflowError):
        found = list(read_messages(report, nsys))
        with contextlib.closing(sqlite3.connect(export)) as database, database:
            database.execute(_TABLE)
            rows = [(each.time_ns, 0, 0, each.severity, each.text, each.process) for each in found]
            database.executemany("INSERT INTO DIAGNOSTIC_EVENT VALUES (?, ?, ?, ?, ?, ?)", rows)


def read_messages(report: Path, nsys: Nsys) -> Iterator[Message]:
    """The messages in a report, through ``nsys export --type=json``."""
    with tempfile.TemporaryDirectory(prefix="boundby-") as folder:
        exported = Path(folder) / "report.json"
        run_export(report, exported, nsys, "json")
        with io.TextIOWrapper(door.opened(exported), encoding="utf-8", errors="replace") as file:
            for line in file:
                if '"DiagnosticEvent"' in line and (message := _message(line)) is not None:
                    yield message


def warnings_in(export: Path) -> list[str]:
    """The warnings and errors in an export, the worst first."""
    with contextlib.closing(_open(export)) as database, contextlib.suppress(sqlite3.Error):
        rows = database.execute(
            "SELECT DISTINCT severity, text FROM DIAGNOSTIC_EVENT WHERE severity > 1 ORDER BY 1 DESC"
        )
        return [str(text).strip() for _, text in rows]
    return []


def has_events(export: Path) -> bool:
    """Whether anything at all was recorded."""
    return any(count_rows(export, table) for table in _EVENTS)


def count_rows(export: Path, table: str, where: str = "1") -> int:
    """Rows of a table; 0 where there is no such table."""
    with contextlib.closing(_open(export)) as database, contextlib.suppress(sqlite3.Error):
        (number,) = database.execute(f'SELECT count(*) FROM "{table}" WHERE {where}').fetchone()
        return int(number)
    return 0


def tables(export: Path) -> frozenset[str]:
    """The names of the tables."""
    with contextlib.closing(_open(export)) as database, contextlib.suppress(sqlite3.Error):
        return frozenset(str(name) for (name,) in database.execute("SELECT name FROM sqlite_master"))
    return frozenset()


def _open(export: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{export.absolute().as_uri()}?mode=ro", uri=True)


def _message(line: str) -> Message | None:
    try:
        event = json.loads(line)["DiagnosticEvent"]
        time = re.sub(r"\D", "", str(event.get("Timestamp", {}).get("Time", ""))) or "0"
        severity = _LEVELS.get(event.get("Level", ""), 1)
        process = int(event.get("GlobalProcess", 0))
        fits = process < _LARGEST_INTEGER  # what concerns the machine has a number that SQLite cannot hold
        return Message(severity, str(event["Text"]), int(time), process if fits else None)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
