"""Which files a program read and wrote, where ``--osrt-file-access`` recorded it (nsys 2025.6 and later)."""

from __future__ import annotations

import re

import numpy as np

from boundby.model.arrays import MISSING, compact, translated
from boundby.model.expressions import expression
from boundby.readers.nsys.database import Database, Reads, as_text
from boundby.readers.nsys.identity import Indexes
from boundby.trace.tables import FileAccesses

_EVENTS, _FILES = "OSRT_FILE_ACCESS_EVENTS", "OSRT_FILE_ACCESS_DESCRIPTORS"
_ACCESS = ("startedAt", "endedAt", "threadId", "fileAccessId", "apiCallId", "bytesProcessed")
DECLARED = (
    Reads(_EVENTS, _ACCESS, "which files were read and written, and how fast"),
    Reads(_FILES, ("fileAccessId", "filePath"), "paths of these files"),
)
_READ, _WRITE = (expression(word, re.IGNORECASE) for word in ("read|recv|get", "write|send|put"))


def file_accesses(database: Database, indexes: Indexes) -> FileAccesses:
    """Every access that moved bytes, by the file's path. What it does is told by the name of the call that did it."""
    raw = database.columns(_EVENTS, _ACCESS)
    moved = (raw["bytesProcessed"] > 0) & (raw["endedAt"] >= raw["startedAt"]) & (raw["startedAt"] != MISSING)
    if not moved.any():
        return FileAccesses.empty()
    raw = {column: values[moved] for column, values in raw.items()}
    texts, paths = indexes.database.texts, _paths(database)

    def is_write(call: int) -> bool:
        name = texts.get(call, "")
        return bool(_WRITE.search(name)) and not _READ.search(name)

    return FileAccesses(
        start_ns=raw["startedAt"],
        end_ns=raw["endedAt"],
        tid=raw["threadId"],
        name=translated(raw["fileAccessId"], lambda number: indexes.pool.add(paths.get(number, "(unnamed)")), np.int32),
        bytes=raw["bytesProcessed"],
        is_write=compact(translated(raw["apiCallId"], is_write, np.bool_)),
    ).sorted(indexes.pool.names())


def _paths(database: Database) -> dict[int, str]:
    if not database.has(_FILES, "fileAccessId", "filePath"):
        return {}
    rows = database.rows(f"SELECT fileAccessId, filePath FROM {_FILES}")
    return {number: as_text(path) or "(unnamed)" for number, path in rows if isinstance(number, int)}
