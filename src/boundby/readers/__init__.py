"""Readers: one per kind of input, each turning a file into a `Trace`. To add one: a package with ``sniff``, whose
module ``reader`` has ``read`` and is imported for a file of its kind, and its name in `READERS`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from boundby.model.door import HEADER_BYTES
from boundby.model.library import required
from boundby.model.stage import Room, stage
from boundby.readers import kineto, nsys
from boundby.readers.files import first_bytes, no_report
from boundby.readers.kineto import holds_trace
from boundby.readers.plausible import without_broken
from boundby.readers.sanitize import in_turns
from boundby.trace.tables import Trace

Progress = Callable[[str, float | None], None]


#: Each has ``sniff(header)``: whether a file that begins with these bytes is of its kind; and in its module ``reader``
#: ``read(path, *, name, source, progress, room)``: the trace in such a file.
READERS: tuple[ModuleType, ...] = (nsys, kineto)


def read_trace(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    source: str = "nsys-sqlite",
    progress: Progress | None = None,
    room: Room | None = None,
) -> Trace:
    """Read a report with the first reader that knows its kind.

    ``name`` and ``source`` say where the file came from when it was made from another report. ``room``: how much memory
    its analysis may take; of an nsys export that takes more the last part is read, and the trace says so. Raises
    InputError for anything that holds no event that can be read, SelectionError where what must be read does not fit,
    OutOfBoundsError for what takes longer than any trace of its size.
    The file is opened read-only and nothing is created beside it.
    """
    required()
    location = Path(path)
    package: ModuleType | None
    if kind := nsys.export_kind(location):
        package, source = nsys, kind
    else:
        header = first_bytes(location, HEADER_BYTES)
        package = next((package for package in READERS if package.sniff(header)), None)
    if package is None:
        raise no_report(location, header)
    reader = importlib.import_module(f"{package.__name__}.reader")
    files = location.iterdir() if location.is_dir() else (location,)
    with stage(f"reading {name or location}", size=sum(file.stat().st_size for file in files)):
        trace: Trace = reader.read(location, name=name, source=source, progress=progress or _silent, room=room)
        return without_broken(in_turns(trace))


def _silent(stage: str, fraction: float | None) -> None:
    """No progress is shown."""


__all__ = ["READERS", "holds_trace", "read_trace"]
