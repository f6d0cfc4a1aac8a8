"""Open an nsys SQLite export strictly read-only, and say clearly why one cannot be read.

Nothing beside the input is ever created: a database in WAL mode would make SQLite write ``-shm`` and ``-wal``
files, so such a file is opened as immutable, or, when its log holds data, read from a temporary copy.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sqlite3
import stat
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from boundby.model.errors import InputError
from boundby.readers.recognise import recognise

MAGIC = b"SQLite format 3\x00"
BUSY_TIMEOUT_S = 2.0  # an exporter that is still writing keeps its lock for much longer than this

#: What reading can raise. UnicodeDecodeError: Python fails to decode SQLite's message about a damaged schema.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_LONGEST_REASON = 80  # SQLite repeats whole statements in its messages


class _Connection(sqlite3.Connection):
    """Closes its cursors before itself. SQLite keeps the file locked as long as one lives, and one can live on in
    the traceback of an error that somebody keeps."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._queries: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        cursor = super().execute(*arguments)
        self._queries.add(cursor)
        return cursor

    def close(self) -> None:
        for cursor in list(self._queries):
            cursor.close()
        super().close()


@contextlib.contextmanager
def open_readonly(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection inside one read transaction. Raises InputError with the reason and the next step."""
    header = _check_file(path)
    with contextlib.ExitStack() as cleanup:
        source, query = path, "mode=ro"
        if header[18] == 2 or header[19] == 2:  # WAL mode
            query = "mode=ro&immutable=1"
            log = _beside(path, "-wal")
            if log.exists() and log.stat().st_size:
                source = _copy_with_log(path, log, Path(cleanup.enter_context(tempfile.TemporaryDirectory())))
                query = "mode=rw"  # the copy is ours: SQLite may replay its log
        try:
            address = f"file:{quote(os.fsencode(source.absolute()))}?{query}"
            connection = sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, factory=_Connection)
            cleanup.enter_context(contextlib.closing(connection))
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.isolation_level = None
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except SQLITE_ERRORS as error:
            raise explain(path, error) from error
        yield connection


def explain(path: Path, error: Exception) -> InputError:
    """The sentence for an SQLite error met while reading ``path``."""
    text = "malformed database schema" if isinstance(error, UnicodeDecodeError) else str(error)
    if "locked" in text or "busy" in text:
        return InputError(
            f"{path} is locked by another program, probably an export that is still running.",
            "Wait until it has finished, then try again.",
        )
    if "readonly" in text or "unable to open" in text or "disk I/O" in text:
        if _beside(path, "-journal").exists():
            reason = "its rollback journal still lies beside it"
            return InputError(f"{path} was left half written: {reason}.", export_again(path))
        return InputError(f"{path} cannot be opened ({text}).", "Check the file and its folder's permissions.")
    if "not a database" in text or "file is encrypted" in text:
        return InputError(f"{path} is not an SQLite database.", export_again(path))
    reason = " ".join(text.split())
    reason = reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "..."
    return InputError(f"{path} is damaged (SQLite says: {reason}).", export_again(path))


def export_again(path: Path) -> str:
    """The next step where the export is at fault. nsys overwrites no file unless it is told to."""
    report = shlex.quote(path.with_suffix(".nsys-rep").name)
    return f"Export it again (nsys export --type sqlite --force-overwrite true {report}), or give {report} itself."


def _beside(path: Path, suffix: str) -> Path:
    """A file that SQLite keeps beside the database: beside the file itself where the path is a link."""
    real = path.resolve()
    return real.with_name(real.name + suffix)


def _check_file(path: Path) -> bytes:
    """Check what can be told before SQLite looks; return the 100-byte header."""
    try:
        status = path.stat()
    except ValueError:  # a NUL in the name
        raise InputError(f"{str(path)!r} is no file name.", "Check the path.") from None
    except FileNotFoundError:
        link = f" (a link to {path.readlink()})" if path.is_symlink() else ""
        raise InputError(f"{path}{link} does not exist.", "Check the path.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).", "Check the path and its permissions.") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} is a folder.", "Name a report in it: a .nsys-rep file or its .sqlite export.")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            f"{path} is no ordinary file: a report cannot be read from a pipe or a device.",
            "Write it to a file first, and name that.",
        )
    if status.st_size == 0:
        raise InputError(f"{path} is empty: the export or the copy did not finish.", export_again(path))
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}).", f"You need read permission: chmod +r {shlex.quote(str(path))}"
        ) from None
    if not MAGIC.startswith(header[:16]) and not header.startswith(MAGIC):
        what, next_step = recognise(header)
        raise InputError(f"{path} {what}.", next_step.replace("FILE", shlex.quote(str(path))))
    _check_length(path, header, status.st_size)
    return header


def _check_length(path: Path, header: bytes, size: int) -> None:
    """A file shorter than its header says was cut off, whatever the pages that are left hold."""
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    if len(header) == 100 and (page_size < 512 or page_size & (page_size - 1)):
        raise InputError(f"{path} is damaged (its header is not valid).", export_again(path))
    pages = int.from_bytes(header[28:32], "big") if header[24:28] == header[92:96] else 0  # 0: not kept up to date
    whole = max(pages * page_size, 100)
    if size < whole:
        raise InputError(
            f"{path} is truncated: {size:,} of {whole:,} bytes are there.",
            f"Copy it again in full. {export_again(path)}",
        )


def _copy_with_log(path: Path, log: Path, folder: Path) -> Path:
    copy = folder / path.name
    try:
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
    except OSError as error:
        raise InputError(
            f"{path} has a write-ahead log, and no room was found to copy both ({os.strerror(error.errno or 0)}).",
            f"Free some space in {folder.parent}, or set TMPDIR to a folder with room.",
        ) from error
    return copy
