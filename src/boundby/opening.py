"""From what a user names (an export, a report, a folder) to a trace."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path

from msgspec.structs import replace

from boundby.attribution.cuda_graphs import captures_ranges, with_captures_of
from boundby.capture.folder import (
    FACTS,
    command_of,
    cycles_of,
    exit_code_of,
    find_in_folder,
    is_run,
    last_words_of,
    not_recorded,
    rank_of,
    reports_in,
    tells_end,
)
from boundby.model import door
from boundby.model.arrays import unique
from boundby.model.door import HEADER_BYTES
from boundby.model.errors import InputError, UserError
from boundby.model.inputs import input_kind
from boundby.model.stage import Room
from boundby.readers import READERS, read_trace
from boundby.readers.files import first_bytes, no_report
from boundby.readers.nsys import export_kind
from boundby.results.write import SQLITE_MAGIC
from boundby.trace.facts import END_UNKNOWN, JobPlace, TraceWarning
from boundby.trace.tables import Trace

#: Is called with what is being done, and the fraction that is (None: unknown).
Progress = Callable[[str, float | None], None]

STANDARD_INPUT = "-"


def open_trace(
    path: Path,
    nsys: str | PathLike[str] | None,
    progress: Progress,
    *,
    keep_export: bool = False,
    room: Room | None = None,
    captures: Sequence[str | PathLike[str]] = (),
) -> Trace:
    """Read an export, a report (exported first), a PyTorch profiler's trace, the folder of a run, or (``-``) what comes
    from standard input. ``room``: how much memory its analysis may take. ``captures``: other recordings, of the capture
    of the CUDA graphs that this one replays; a folder may hold both. Raises UserError."""
    others = [open_trace(Path(capture), nsys, progress, keep_export=keep_export, room=room) for capture in captures]
    for other in others:
        if not captures_ranges(other):
            raise InputError(
                f"{other.path} holds no capture of a CUDA graph with ranges in it.",
                "Name a recording in which the graphs are captured (cudaStreamBeginCapture), with their ranges.",
            )
    if str(path) == STANDARD_INPUT:
        return _with_captures(_from_standard_input(progress, room), others)
    if not captures and (both := _capture_and_replay(path, progress, room)) is not None:
        path, others = both
    trace = _opened(path, nsys, progress, keep_export=keep_export, room=room)
    return _with_captures(trace, others)


def _with_captures(trace: Trace, others: Iterable[Trace]) -> Trace:
    for other in others:
        trace = with_captures_of(trace, other)
    return trace


def _recordings(folder: Path) -> list[Path]:
    """The recordings of a folder that holds several, each of another process."""
    if not folder.is_dir() or export_kind(folder) or is_run(folder):
        return []
    files = reports_in(folder)
    can_be_read = all(kind is not None and not kind.needs_nsys for kind in map(input_kind, files))
    return files if can_be_read and not cycles_of(file.name for file in files) else []


def _capture_and_replay(folder: Path, progress: Progress, room: Room | None) -> tuple[Path, list[Trace]] | None:
    """Of a folder with several recordings the one that replays CUDA graphs, and those of their capture; None: it does
    not hold both, or several that replay. (The cycles of one process may be many: they are not all read.)"""
    replay, others = None, []
    for file in _recordings(folder):
        trace = read_trace(file, progress=progress, room=room)
        replays = any("GraphLaunch" in trace.names[name] for name in unique(trace.api.name).tolist())
        if replays == captures_ranges(trace) or (replays and replay is not None):
            return None
        if replays:
            replay = file
        else:
            others.append(trace)
    return None if replay is None or not others else (replay, others)


def _opened(
    path: Path,
    nsys: str | PathLike[str] | None,
    progress: Progress,
    *,
    keep_export: bool,
    room: Room | None,
) -> Trace:
    folder = path
    path, name, warnings = _file_of(path)
    with _as_sqlite(path, nsys, progress, keep_export=keep_export) as (database, source):
        trace = read_trace(database, name=name, source=source, progress=progress, room=room)
        if database != path:
            trace.backtraces.load()  # the export is about to go
            from boundby.capture.nsys import written_by

            trace = replace(trace, nsys_version=written_by(path) or trace.nsys_version)
    trace = replace(trace, command=trace.command or command_of(path.parent))
    if is_run(folder) and (rank := rank_of(folder)) is not None:
        trace = replace(trace, place=JobPlace(*rank))
    if is_run(path.parent):
        trace = replace(trace, exit_code=exit_code_of(path.parent), last_words=last_words_of(path.parent))
        if not tells_end(path.parent):
            text = f"{path.parent / FACTS} cannot be read: how the program ended is not known."
            warnings = (*warnings, TraceWarning(END_UNKNOWN, text))
    if why := not_recorded(path.parent):  # what boundby profile noted is nearer to the cause than what nsys did
        trace = replace(trace, not_recorded={**trace.not_recorded, **why})
    return replace(trace, warnings=(*warnings, *trace.warnings))


def _from_standard_input(progress: Progress, room: Room | None) -> Trace:
    """SQLite and the passes over a trace need a file: what comes is kept in one until it has been read. What no reader
    takes is not, however much may come."""
    import shutil
    import tempfile

    name, source = "(standard input)", sys.stdin and sys.stdin.buffer  # None: closed
    header = source.read(HEADER_BYTES) if source else b""
    if not header:
        raise InputError("Standard input is empty.", "Give a report, or pipe one into: boundby analyze -")
    if not any(package.sniff(header) for package in READERS):
        raise no_report(Path(name), header)
    with tempfile.TemporaryDirectory(prefix="boundby-", dir=door.temporary()) as folder:
        file = Path(folder) / "stdin"
        try:
            with file.open("wb") as kept:
                kept.write(header)
                shutil.copyfileobj(source, kept)
        except OSError as error:
            text = f"Standard input cannot be copied to {Path(folder).parent} ({os.strerror(error.errno or 0)})."
            raise InputError(
                text, "Free some space there, set TMPDIR to a folder with room, or name a file."
            ) from error
        trace = read_trace(file, name=name, progress=progress, room=room)
        trace.backtraces.load()
    return trace


def _file_of(path: Path) -> tuple[Path, str, tuple[TraceWarning, ...]]:
    """The file to read, what the report is called, and a warning where a folder did not tell which file is meant."""
    if not path.is_dir() or export_kind(path):
        return path, str(path), ()
    file = find_in_folder(path)
    if is_run(path):
        return file, str(path), ()
    if is_run(file.parent):  # the newest of several runs
        return file, str(file.parent), ()
    if cycles := cycles_of(entry.name for entry in path.iterdir()):
        others = ", ".join(name for name in cycles if name != file.name)
        text = f"{file.name} was taken, the last of the cycles that one process recorded; not read: {others}."
        return file, str(file), (TraceWarning("cycles", text),)
    text = f"boundby profile did not make the folder {path}: {file.name}, the only report in it, was taken."
    return file, str(file), (TraceWarning("folder", text),)


def _is_export(path: Path) -> bool:
    try:
        return first_bytes(path).startswith(SQLITE_MAGIC)
    except UserError:
        return False


@contextlib.contextmanager
def _as_sqlite(
    path: Path, nsys: str | PathLike[str] | None, progress: Progress, *, keep_export: bool
) -> Iterator[tuple[Path, str]]:
    """The report as an SQLite export and what it was: itself, or made from it by a real nsys."""
    kind = input_kind(path)
    if kind is None or not kind.needs_nsys or (path.is_file() and _is_export(path)):  # whatever it is called
        yield path, "nsys-sqlite"
        return
    from boundby.capture.export import export_sqlite, export_to_temporary
    from boundby.capture.nsys import find_nsys

    tool = find_nsys(nsys)

    def exporting(fraction: float | None) -> None:
        progress("exporting with nsys", fraction)

    if keep_export:
        yield export_sqlite(path, path.with_suffix(".sqlite"), tool, progress=exporting), kind.source
        return
    with export_to_temporary(path, tool, progress=exporting) as exported:
        yield exported, kind.source
