"""One export of several processes, split into one export a process, each on a clock of its own."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

_PROCESS = "({column} >> 24) & 16777215"  # of a globalTid or globalPid


def split(export: Path, folder: Path, offset_ns: Mapping[int, int]) -> list[Path]:
    """One file for each process id, its rows alone, with its offset added to all their times."""
    return [_one(export, folder / f"process_{pid}.sqlite", pid, offset) for pid, offset in offset_ns.items()]


def _one(export: Path, path: Path, pid: int, offset_ns: int) -> Path:
    shutil.copyfile(export, path)
    path.chmod(0o644)
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}
            for column in sorted(columns & {"globalTid", "globalPid"}):
                process = _PROCESS.format(column=column)
                connection.execute(f'DELETE FROM "{table}" WHERE {process} != ?', (pid,))
            for column in sorted(columns & {"start", "end"}):
                connection.execute(f'UPDATE "{table}" SET "{column}" = "{column}" + ?', (offset_ns,))
        connection.commit()
        connection.execute("VACUUM")
    return path
