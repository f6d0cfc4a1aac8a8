"""Turn a report (``.nsys-rep``, ``.qdrep``, ``.qdstrm``) into SQLite, through the real ``nsys export``.

nsys writes a table of columns for less than half the cost of an SQLite table. So the largest tables of the host are
exported as such from a large report, beside an SQLite file with all other tables (`boundby.readers.nsys.split` reads
both as one), where nobody but boundby is to read them.

The report is never changed, and a file appears at the destination only when it is whole: nsys writes to a
folder of its own beside it, and what it wrote is checked, for nsys can fail and still leave with status 0.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from boundby.capture.child import ChildTimeoutError, Finished, Progress, run_child
from boundby.capture.failure import admits_failure, export_error, import_error, is_same_release
from boundby.capture.folder import cannot_write
from boundby.capture.locate import Nsys
from boundby.model import door
from boundby.model.errors import InputError, OutputError, ToolError
from boundby.model.scale import MOST
from boundby.readers.nsys.split import TABLES, columns_beside, is_readable

SQLITE_MAGIC = b"SQLite format 3\0"
STREAM_MAGIC = b"Nsight Systems Stream"
_HEADER_BYTES = 100

#: From so large a report on an export in two parts costs less than one in one part: a second start of nsys, and going
#: through all events once more, take some 50 ms and 0.2 s a million events; columns spare 1.2 s a million ranges.
LEAST_SPLIT_BYTES = 2_000_000
#: The first nsys that knows ``--type=arrowdir``.
_WRITES_COLUMNS = (2023, 4)
#: What an nsys that works never takes: it exports 10 MB of a report a second and more.
LEAST_EXPORT_S, LEAST_EXPORT_BYTES_PER_S = 600.0, 200_000
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
    with _work_folder(Path(tempfile.gettempdir())) as work:
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
    known = set(tables)
    begins = sorted({table[:length] for table in known for length in range(len(table) + 1)})
    patterns = [f"^{begin}$" for begin in begins if begin and begin not in known]
    for begin in begins:
        longer = [table for table in known if table != begin and table.startswith(begin)]
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
    header = door.first_of(exported, _HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(SQLITE_MAGIC):
        return False
    page_size = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    # The number of pages counts only where the writer kept it up to date (SQLite's file format, 1.3.7).
    counted = header[24:28] == header[92:96]
    if counted and exported.stat().st_size < pages * (65536 if page_size == 1 else page_size):
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
        header = door.first_of(report, _HEADER_BYTES)
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
    limit_s = LEAST_EXPORT_S + sum(sizes) / LEAST_EXPORT_BYTES_PER_S
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
        os.link(exported, destination)  # unlike a rename, it never replaces
    except FileExistsError:
        raise OutputError(f"{destination} appeared during the export.", "Name another file.") from None
    except OSError:  # a file system without links
        if os.path.lexists(destination):
            raise OutputError(f"{destination} exists already.", "Name another file.") from None
        try:
            exported.rename(destination)
        except OSError as error:
            raise cannot_write(destination, error, "an export") from error
