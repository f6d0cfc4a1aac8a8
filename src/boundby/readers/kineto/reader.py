"""Reader for the traces that ``torch.profiler`` writes (Kineto's Chrome JSON), from 2021 to 2026.

Every variation is met by looking for arguments and categories, never by asking a version. The file is read in pieces:
neither its text nor its events as Python objects are ever in memory as a whole.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from boundby.model import door
from boundby.model.errors import InputError
from boundby.model.scale import PIECE_BYTES
from boundby.model.stage import Room
from boundby.native.passes import EventScanner, JsonEvents, NotJsonError
from boundby.readers.files import PROFILE_AGAIN as _COPY_AGAIN
from boundby.readers.kineto import GZIP, GZIP_WINDOW, event_tables
from boundby.trace.tables import Trace

Progress = Callable[[str, float | None], None]

#: Text of a trace is some 10 to 40 times its packed size. What is made to fill memory is a thousand times as long.
MOST_UNPACKED = door.MOST_TEXT_BYTES
_MOST_RATIO = 200


def read(path: Path, *, name: str | None, source: str, progress: Progress, room: Room | None = None) -> Trace:  # noqa: ARG001
    """Read a PyTorch profiler trace into a Trace: see `boundby.readers.read_trace`."""
    shown = path if name is None else Path(name)
    scanner = EventScanner(event_tables.ARGUMENTS)
    size = max(path.stat().st_size, 1)
    try:
        for piece, done in _pieces(path, shown):
            progress("reading the PyTorch profiler's events", min(done / size, 1.0))
            scanner.feed(piece)
        events = scanner.finish()
    except NotJsonError as error:
        raise _no_trace(shown) if _is_json(path) else _broken(shown, error) from None
    _check(shown, events)
    return event_tables.build(events, shown, str(name or path))


def _unpacked(file: BinaryIO, packed: bytes, shown: Path) -> Iterator[tuple[bytes, int]]:
    """The text of a compressed file, of which this is the first piece."""
    unpacked, unpacker = 0, zlib.decompressobj(GZIP_WINDOW)
    while packed:
        text = unpacker.decompress(packed, PIECE_BYTES)
        unpacked += len(text)
        if unpacked > MOST_UNPACKED and unpacked > _MOST_RATIO * file.tell():
            raise InputError(
                f"{shown} unpacks to more than {_MOST_RATIO} times its size, which no trace does.", _COPY_AGAIN
            )
        if text:
            yield text, file.tell()
        packed = unpacker.unconsumed_tail
        if unpacker.eof:  # another member may follow
            packed = unpacker.unused_data or file.read(PIECE_BYTES)
            if not packed.startswith(GZIP):
                return
            unpacker = zlib.decompressobj(GZIP_WINDOW)
        packed = packed or file.read(PIECE_BYTES)
    if not unpacker.eof:
        raise InputError(f"{shown} is cut short: the compressed data end in the middle.", _COPY_AGAIN)


def _pieces(path: Path, shown: Path) -> Iterator[tuple[bytes, int]]:
    """The text in pieces, and how many bytes of the file have been read by then."""
    try:
        with door.opened(path) as file:
            first = file.read(PIECE_BYTES)
            if not first.startswith(GZIP):
                first = first.removeprefix(b"\xef\xbb\xbf")
                while first:
                    yield first, file.tell()
                    first = file.read(PIECE_BYTES)
                return
            yield from _unpacked(file, first, shown)
    except zlib.error:
        raise InputError(f"{shown} is damaged: its compressed data cannot be unpacked.", _COPY_AGAIN) from None
    except OSError as error:
        raise InputError(f"{shown} cannot be read ({error.strerror}).", "Check the path and its permissions.") from None


def _broken(shown: Path, error: NotJsonError) -> InputError:
    if error.is_cut:
        return InputError(f"{shown} is cut short: its JSON ends in the middle.", _COPY_AGAIN)
    return InputError(f"{shown} is damaged: what follows its first {error.at:,} bytes is not JSON.", _COPY_AGAIN)


def _check(shown: Path, events: JsonEvents) -> None:
    """A file of JSON that holds no event of the profiler is something else."""
    if event_tables.holds_events(events):
        return
    top: dict[str, Any] = events.top
    if len(events) or "deviceProperties" in top or "schemaVersion" in top:
        raise InputError(
            f"{shown} holds no event of the PyTorch profiler: no operator, annotation, call or kernel was recorded.",
            "Profile a part of the program that does something, and call the profiler's step() in its loop.",
        )
    raise _no_trace(shown)


def _is_json(path: Path) -> bool:
    """Whether a file is whole JSON, of whatever kind."""
    try:
        json.loads(door.read_bytes(path, PIECE_BYTES))
        return True
    except (OSError, ValueError, RecursionError):
        pass
    return False


def _no_trace(shown: Path) -> InputError:
    return InputError(
        f"{shown} is a JSON file without the events of a trace.",
        "Name a trace that torch.profiler wrote (export_chrome_trace), a .nsys-rep report or its .sqlite export.",
    )
