"""Mask the environment in an export: passwords and tokens lie in it, and people pass exports on.

nsys notes every environment variable, in three places: as metadata of the capture, as a property of the machine,
and as one text for each process. The .nsys-rep keeps them; nobody can take them out of that.
"""

from __future__ import annotations

import contextlib
import mmap
import re
import sqlite3
from pathlib import Path

#: Put instead of every character. A text of the same length is written over the old one; a shorter one would leave
#: parts of that in the file.
MASK = "*"
#: Where the copies lie: the environment is among the first things that nsys writes.
WIPED_BYTES = 64 << 20
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
    found = {row: text for row, text in rows if text and (key == "rowid" or is_environment(text))}
    masked = [(MASK * len(text), row) for row, text in found.items()]
    database.executemany(f"UPDATE {table} SET value = ? WHERE {key} = ?", masked)
    return {variable for text in found.values() for variable in _variables(text)}


def _wipe(export: Path, variables: set[tuple[bytes, bytes]]) -> None:
    """Mask what is left in the unused parts of pages: nsys itself leaves copies there as its tables grow."""
    with export.open("r+b") as file, mmap.mmap(file.fileno(), min(WIPED_BYTES, export.stat().st_size)) as data:
        for name, value in variables:
            for start in (name + b"=", name + b'="'):
                place = data.find(start + value)
                while place >= 0:
                    begin = place + len(start)
                    data[begin : begin + len(value)] = MASK.encode() * len(value)
                    place = data.find(start + value, begin)


def _variables(text: bytes) -> set[tuple[bytes, bytes]]:
    parts = text.split(b"\0") if b"\0" in text else [text]
    pairs = (part.partition(b"=") for part in parts)
    return {(name, value.strip(b'"')) for name, _, value in pairs if value.strip(b'"')}


def is_environment(text: bytes) -> bool:
    """Whether a text is a list of variables."""
    parts = [part for part in text.split(b"\0") if part]
    return len(parts) > 1 and sum(_VARIABLE.match(part) is not None for part in parts) > len(parts) / 2
