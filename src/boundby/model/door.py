"""The one door to files: regular ones, opened without waiting for anybody, read up to a bound.

A pipe, a device or a folder by a report's name raises OSError, whose ``strerror`` ends a sentence, as what the system
itself refuses does; so does a file that is longer than what its reader may hold.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import BinaryIO

from boundby.model.errors import OutputError
from boundby.model.scale import PIECE_BYTES

#: What people and programs write about a run (settings, budgets, facts, results) is shorter.
MOST_TEXT_BYTES = 1 << 30
#: What one person writes, or one answer of a program, is shorter.
MOST_WRITTEN_BYTES = 1 << 24
#: In which a file shows what it is; compressed text shows itself only in so many.
HEADER_BYTES = 1_000


class RefusedError(OSError):
    """Not opened, or not read to its end, though the system would."""


def temporary() -> Path:
    """The folder for what is needed for a while only. Raises OutputError where there is none to write to."""
    import tempfile

    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise OutputError(
            "No folder for temporary files can be written to.", "Set TMPDIR to a folder with room."
        ) from error


def opened(path: Path, *, buffering: int = -1) -> BinaryIO:
    """A regular file, for reading. Raises OSError."""
    # A pipe without a writer is opened at once, and refused by what it is.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | _CLOSED_ON_EXEC)
    try:
        kind = os.fstat(handle).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
        if not stat.S_ISREG(kind):
            raise RefusedError(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(handle, "rb", buffering=buffering)
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: Path, most: int = MOST_TEXT_BYTES) -> bytes:
    """All of a file. Raises OSError, also for more than ``most`` bytes."""
    content = bytearray()
    with opened(path) as file:
        # Asked for ``most`` at once, Python takes room for as much.
        while len(content) <= most and (part := file.read(PIECE_BYTES)):
            content += part
    if len(content) > most:
        raise RefusedError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return bytes(content)


def read_text(path: Path, most: int = MOST_TEXT_BYTES, *, errors: str = "strict") -> str:
    """All of a text in UTF-8, whatever ends its lines. Raises OSError as ``read_bytes`` does, UnicodeDecodeError."""
    text = read_bytes(path, most).decode("utf-8", errors)
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def first_of(path: Path, count: int) -> bytes:
    """The begin of a file. Raises OSError."""
    with opened(path) as file:
        return file.read(count)


_CLOSED_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
