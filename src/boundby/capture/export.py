"""Turn a report (``.nsys-rep``, ``.qdrep``, ``.qdstrm``) into SQLite, through the real ``nsys export``.

nsys writes a table of columns for less than half the cost of an SQLite table. So the largest tables of the host are
exported as such from a large report, beside an SQLite file with all other tables (`boundby.readers.nsys.columnar` reads
both as one), where nobody but boundby is to read them.

The report is never changed, and a file appears at the destination only when it is whole: nsys writes to a
folder of its own beside it, and what it wrote is checked, for nsys can fail and still leave with status 0.
"""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from boundby.capture.folder import cannot_write
from boundby.capture.nsys import (
    ChildTimeoutError,
    Finished,
    Nsys,
    Progress,
    admits_failure,
    export_error,
    import_error,
    is_same_release,
    run_child,
)
from boundby.model import door
from boundby.model.errors import InputError, OutputError, ToolError, UserError
from boundby.model.scale import MOST, PATIENCE_S, PIECE_BYTES
from boundby.readers.nsys.columnar import TABLES, columns_beside, is_readable
from boundby.readers.nsys.pages import header_of
from boundby.results.write import give_name

# Mask the environment in an export: passwords and tokens lie in it, and people pass exports on.
#
# nsys notes every environment variable, in three places: as metadata of the capture, as a property of the machine, and
# as one text for each process. The .nsys-rep keeps them; nobody can take them out of that.

#: Put instead of every character. A text of the same length is written over the old one; a shorter one would leave
#: parts of that in the file.
MASK = "*"
#: table, what identifies a row, which rows. Among texts the variables of a process stand one after the other with a
#: zero byte between, as the kernel keeps them.
_PLACES = (
    ("META_DATA_CAPTURE", "rowid", "name LIKE '%ENVIRONMENT_VARIABLE'"),
    ("TARGET_INFO_SYSTEM_ENV", "rowid", "name LIKE '%Environment'"),
    ("StringIds", "id", "instr(CAST(value AS BLOB), x'00') > 0"),
)
_VARIABLE = re.compile(rb"[A-Za-z_][\w.%()]*=", re.ASCII)


def strip_environment(export: Path) -> None:
    """Mask the values of all environment variables."""
    variables: set[tuple[bytes, bytes]] = set()
    # A read-only export is somebody's own, and one without these tables has nothing to hide.
    with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(export)) as database:
        for table, key, where in _PLACES:
            with contextlib.suppress(sqlite3.OperationalError), database:
                variables |= _mask(database, table, key, where)
    if variables:
        _wipe(export, variables)


def _mask(database: sqlite3.Connection, table: str, key: str, where: str) -> set[tuple[bytes, bytes]]:
    """Mask the texts of a table that hold variables; gives these."""
    rows = database.execute(f"SELECT {key}, CAST(value AS BLOB) FROM {table} WHERE {where}").fetchall()
    secrets = {row: text for row, text in rows if text and (key == "rowid" or is_environment(text))}
    masked = [(MASK * len(text), row) for row, text in secrets.items()]
    database.executemany(f"UPDATE {table} SET value = ? WHERE {key} = ?", masked)
    return {variable for text in secrets.values() for variable in _variables(text)}


def _wipe(export: Path, variables: set[tuple[bytes, bytes]]) -> None:
    """Mask what is left in the unused parts of pages: nsys itself leaves copies there as its tables grow."""
    with export.open("r+b") as file, mmap.mmap(file.fileno(), min(LARGE_BYTES, export.stat().st_size)) as data:
        for name, value in variables:
            for start in (name + b"=", name + b'="'):
                position = data.find(start + value)
                while position >= 0:
                    begin = position + len(start)
                    data[begin : begin + len(value)] = MASK.encode() * len(value)
                    position = data.find(start + value, begin)


def _variables(text: bytes) -> set[tuple[bytes, bytes]]:
    parts = text.split(b"\0") if b"\0" in text else [text]
    pairs = (part.partition(b"=") for part in parts)
    return {(name, value.strip(b'"')) for name, _, value in pairs if value.strip(b'"')}


def is_environment(text: bytes) -> bool:
    """Whether a text is a list of variables."""
    parts = [part for part in text.split(b"\0") if part]
    return len(parts) > 1 and sum(_VARIABLE.match(part) is not None for part in parts) > len(parts) / 2


SQLITE_MAGIC = b"SQLite format 3\0"
STREAM_MAGIC = b"Nsight Systems Stream"

#: From so large a report on an export in two parts costs less than one in one part: a second start of nsys, and going
#: through all events once more, take some 50 ms and 0.2 s a million events; columns spare 1.2 s a million ranges.
LEAST_SPLIT_BYTES = 2 * PIECE_BYTES
#: The first nsys that knows ``--type=arrowdir``.
_WRITES_COLUMNS = (2023, 4)
#: What an nsys that works never takes: it exports 10 MB of a report a second and more.
LEAST_EXPORT_BYTES_PER_S = 200_000
#: In so much of a file lies what is wiped: the environment is among the first things that nsys writes. A larger report
#: speaks for itself: the other export of it holds every event as text.
LARGE_BYTES = 64 << 20
_COLUMNS_SHARE = MOST  # of the time of both parts


def export_sqlite(
    report: Path, destination: Path, nsys: Nsys, *, progress: Progress | None = None, tables: str | None = None
) -> Path:
    """Export ``report`` to the new file ``destination`` and return its path.

    ``progress`` is told None at the start (nsys may read for a while in silence), then fractions up to 1.0. ``tables``:
    patterns of the only ones wanted.

    Raises:
        InputError: the report is missing, empty, truncated, or no report.
        OutputError: the destination exists, or cannot be written (no permission, disk full).
        ToolError: nsys is too old for the report, was killed, or wrote nothing.
    """
    report, destination = Path(report), Path(destination)
    header = _read_header(report)
    if os.path.lexists(destination):
        raise OutputError(f"{destination} exists already.", "Name another file, or remove it first.")
    if progress is not None:
        progress(None)
    with _work_folder(destination.parent) as work:
        if STREAM_MAGIC in header or report.suffix.lower() == ".qdstrm":
            report = _import_stream(report, work, nsys)
        exported = work / "export.sqlite"
        finished = _run(_command(report, exported, nsys, "sqlite", tables), work, progress)
        if admits_failure(finished) or not is_whole(exported):
            raise export_error(finished, report, exported, nsys)
        _move(exported, destination)
    if progress is not None:
        progress(1.0)
    return destination


@contextlib.contextmanager
def export_to_temporary(report: Path, nsys: Nsys, *, progress: Progress | None = None) -> Iterator[Path]:
    """Export to a folder in the temporary folder (``TMPDIR``), which is removed at the end; in two parts, where that
    is quicker."""
    with _work_folder(door.temporary()) as work:
        destination = work / f"{Path(report).stem}.sqlite"
        is_split = _export_columns(Path(report), destination, nsys, work, progress)
        tables, begin = (all_but(TABLES), _COLUMNS_SHARE) if is_split else (None, 0.0)
        yield export_sqlite(report, destination, nsys, progress=_from(progress, begin, 1.0), tables=tables)


def _export_columns(report: Path, destination: Path, nsys: Nsys, work: Path, progress: Progress | None) -> bool:
    """Export `TABLES` as columns beside ``destination``. False: this is not worth it, or did not succeed (what is wrong
    with a report, the export of the rest tells), or there are no such tables."""
    try:
        is_large = report.stat().st_size >= LEAST_SPLIT_BYTES
    except OSError:
        return False
    if not is_large or nsys.version_tuple < _WRITES_COLUMNS or report.suffix.lower() == ".qdstrm":
        return False
    folder = work / "columns"
    command = _command(report, folder, nsys, "arrowdir", ",".join(f"^{table}$" for table in TABLES))
    finished = _run(command, work, _from(progress, 0.0, _COLUMNS_SHARE))
    written = {table: file for table in TABLES if (file := folder / f"{table}.arrow").is_file()}
    is_written = bool(written) and not admits_failure(finished)
    is_written = is_written and all(is_readable(file, table) for table, file in written.items())
    for table, file in written.items() if is_written else ():
        file.rename(columns_beside(destination, table))
    shutil.rmtree(folder, ignore_errors=True)
    return is_written


def all_but(tables: Iterable[str]) -> str:
    """Patterns for ``--tables`` that all names but these match: such as differ in a letter, end sooner or go on."""
    dropped = set(tables)
    begins = sorted({table[:length] for table in dropped for length in range(len(table) + 1)})
    patterns = [f"^{begin}$" for begin in begins if begin and begin not in dropped]
    for begin in begins:
        longer = [table for table in dropped if table != begin and table.startswith(begin)]
        following = "".join(sorted({table[len(begin)] for table in longer}))
        patterns.append(f"^{begin}[^{following}].*$" if following else f"^{begin}..*$")
    return ",".join(patterns)


def _from(progress: Progress | None, begin: float, end: float) -> Progress | None:
    """What is told of a part of the work, as fractions of the whole."""
    if progress is None or (begin, end) == (0.0, 1.0):
        return progress
    return lambda fraction: progress(None if fraction is None else begin + fraction * (end - begin))


def run_export(report: Path, destination: Path, nsys: Nsys, kind: str) -> None:
    """Export to another format (``json``, ``text``); ``destination`` lies in a folder of the caller's own."""
    finished = _run(_command(report, destination, nsys, kind), destination.parent)
    if admits_failure(finished) or not destination.is_file():
        raise export_error(finished, report, destination, nsys)


def is_whole(exported: Path) -> bool:
    """Whether a file is a complete SQLite file that holds tables."""
    if not exported.is_file() or exported.with_name(f"{exported.name}-journal").exists():
        return False
    header = door.first_of(exported, door.HEADER_BYTES)
    if not header.startswith(SQLITE_MAGIC):
        return False
    described = header_of(header)
    if exported.stat().st_size < described.pages * described.page_size:
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{exported.absolute().as_uri()}?immutable=1", uri=True)) as db:
            (tables,) = db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()
    except sqlite3.DatabaseError:
        return False
    return bool(tables)


def _read_header(report: Path) -> bytes:
    """The first bytes of a report that can be read and may be one."""
    try:
        header = door.first_of(report, door.HEADER_BYTES)
    except FileNotFoundError:
        raise InputError(f"{report} does not exist.", "Check the path.") from None
    except OSError as error:
        raise InputError(f"{report} cannot be read: {error.strerror}.", "Give a report file.") from error
    if not header:
        raise InputError(f"{report} is empty.", "Was the capture cut short? Capture again.")
    if header.startswith(SQLITE_MAGIC):
        raise InputError(f"{report} is a SQLite file already.", "There is nothing to export: open it as it is.")
    return header


@contextlib.contextmanager
def _work_folder(parent: Path) -> Iterator[Path]:
    """A folder for what is not whole yet, on the disk of the destination, so that a rename completes it."""
    try:
        folder = tempfile.TemporaryDirectory(prefix=".boundby-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        raise cannot_write(parent, error, "an export") from error
    with folder as path:
        yield Path(path).absolute()


def _command(report: Path, exported: Path, nsys: Nsys, kind: str, tables: str | None = None) -> list[str | Path]:
    # Words that every version since 2020 knows, and a full path, which none takes for an option.
    chosen = [] if tables is None else [f"--tables={tables}"]
    return [nsys.path, "export", f"--type={kind}", *chosen, f"--output={exported}", report.absolute()]


def _run(command: list[str | Path], work: Path, progress: Progress | None = None) -> Finished:
    """Run a program of nsys in surroundings it can write to."""
    env = {**os.environ, "TMPDIR": str(work)}
    sizes = [word.stat().st_size for word in command if isinstance(word, Path) and word.is_file()]
    limit_s = PATIENCE_S + sum(sizes) / LEAST_EXPORT_BYTES_PER_S
    if not os.access(env.get("HOME", ""), os.W_OK):
        env["HOME"] = str(work)  # nsys may want to keep settings there
    try:
        return run_child(command, env=env, progress=progress, timeout_s=limit_s)
    except ChildTimeoutError as error:
        what = f"{command[0]} did not finish within {limit_s:,.0f} s and was ended."
        raise ToolError(what, "Try again, or export it by hand: nsys export --type sqlite REPORT") from error
    except OSError as error:
        raise ToolError(f"{command[0]} cannot be run: {error.strerror}.", "Name another with --nsys.") from error


def _import_stream(stream: Path, work: Path, nsys: Nsys) -> Path:
    """Make a report of a ``.qdstrm``: what nsys leaves when it finds no importer."""
    importer = nsys.importer
    if importer is None:
        raise ToolError(
            f"{stream.name} is a raw stream that has to be imported, and {nsys.path} has no QdstrmImporter.",
            "Run the QdstrmImporter of the nsys that captured it, and give the .nsys-rep that it makes.",
        )
    copy, report = work / "stream.qdstrm", work / f"{stream.stem}.nsys-rep"
    try:
        shutil.copyfile(stream, copy)  # the importer adds a mark to the end of the stream that it reads
    except OSError as error:
        raise cannot_write(work.parent, error, "an export") from error
    finished = _run([importer, "-i", copy, "-o", report], work)
    saved = report.is_file() and report.stat().st_size > 0
    # An importer of the same release that met errors still saves what there is and tells of them in the report,
    # as `nsys profile` does. One of another release saves a report with holes.
    if not saved or (finished.returncode != 0 and not is_same_release(stream, nsys)):
        raise import_error(finished, stream, nsys)
    copy.unlink()
    return report


def _move(exported: Path, destination: Path) -> None:
    """Give a whole file its name, unless something got there first."""
    try:
        give_name(exported, destination)
    except FileExistsError:
        raise OutputError(f"{destination} appeared during the export.", "Name another file.") from None
    except OSError as error:
        raise cannot_write(destination, error, "an export") from error


# The profiler's own messages, also from exports that leave them out.
#
# nsys before 2024 exports no ``DIAGNOSTIC_EVENT`` table, though the report holds the messages, and a report that lacks
# something says there why. They are read by another kind of export, and put into the table that a later nsys would
# have written, so that everything that reads the export finds them.

#: The other export holds every event as text. Reports larger than this speak for themselves.
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
    if "DIAGNOSTIC_EVENT" in tables(export) or report.stat().st_size > LARGE_BYTES:
        return
    # What they add is worth having, and its lack no reason to fail.
    with contextlib.suppress(UserError, ChildTimeoutError, OSError, sqlite3.Error, OverflowError):
        messages = list(read_messages(report, nsys))
        with contextlib.closing(sqlite3.connect(export)) as database, database:
            database.execute(_TABLE)
            rows = [(each.time_ns, 0, 0, each.severity, each.text, each.process) for each in messages]
            database.executemany("INSERT INTO DIAGNOSTIC_EVENT VALUES (?, ?, ?, ?, ?, ?)", rows)


def read_messages(report: Path, nsys: Nsys) -> Iterator[Message]:
    """The messages in a report, through ``nsys export --type=json``."""
    with tempfile.TemporaryDirectory(prefix="boundby-", dir=door.temporary()) as folder:
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
        fits = process <= sys.maxsize  # what concerns the machine has a number that SQLite cannot hold
        return Message(severity, str(event["Text"]), int(time), process if fits else None)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
