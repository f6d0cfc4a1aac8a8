"""Readers: one per kind of input, each turning a file into a `Trace`. To add one: a module with ``sniff`` and ``read``,
and its name in `READERS`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from boundby.readers.files import first_bytes, no_report
from boundby.readers.kineto import reader as kineto
from boundby.readers.kineto.reader import holds_trace
from boundby.readers.nsys import reader as nsys_sqlite
from boundby.trace.tables import Trace

Progress = Callable[[str, float | None], None]


class Reader(Protocol):
    """What reads one kind of input."""

    def sniff(self, header: bytes, /) -> bool:
        """Whether a file that begins with these (up to 1,000) bytes is of this kind."""

    def read(self, path: Path, /, *, name: str | None, source: str, progress: Progress) -> Trace:
        """The trace in a file of this kind."""


_HEADER = 1_000  # bytes: compressed text shows itself only in so many

READERS: tuple[Reader, ...] = (nsys_sqlite, kineto)


def read_trace(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    source: str = "nsys-sqlite",
    progress: Progress | None = None,
) -> Trace:
    """Read a report with the first reader that knows its kind.

    ``name`` and ``source`` say where the file came from when it was made from another report. Raises InputError for
    anything that holds no event that can be read. The file is opened read-only and nothing is created beside it.
    """
    location = Path(path)
    header = first_bytes(location, _HEADER)
    reader = next((reader for reader in READERS if reader.sniff(header)), None)
    if reader is None:
        raise no_report(location, header)
    return reader.read(location, name=name, source=source, progress=progress or _silent)


def _silent(stage: str, fraction: float | None) -> None:
    """No progress is shown."""


__all__ = ["READERS", "Reader", "holds_trace", "read_trace"]
