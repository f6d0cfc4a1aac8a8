"""The line of the program that made each call, in a trace of PyTorch's profiler.

With ``with_stack=True`` a trace tells which function runs, and its first line only. The profiler knows more: the line
at which each call was made. Those lines are added as frames: ``train.py(84): loss.item()``.
"""

from __future__ import annotations

import json
import linecache
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from boundby.model import door
from boundby.model.units import LINE
from boundby.trace.stacks import is_user_python

#: More events than these are not gone through: each takes some 5 us.
MOST_EVENTS = 400_000
_LIST = b'"traceEvents": ['


class Alias(Struct, frozen=True):
    """What a file is called in a trace, and how far its lines lie below those that a person sees."""

    name: str
    lines_above: int = 0


def add(prof: Any, path: Path, aliases: Mapping[str, Alias] = MappingProxyType({})) -> None:
    """Add a frame for each call that the program's own code made to the trace in this file, and rename the files that
    have an alias, as cells of a notebook. A torch that does not tell lines adds nothing."""
    try:
        calls = list(_calls(prof.profiler.kineto_results.experimental_event_tree()))
    except (AttributeError, RuntimeError):
        return
    base_ns = _base_ns(path)
    if not calls or base_ns is None:
        return
    thread = calls[0][0]
    as_is = {file: Alias(file) for _, _, _, file, _, _ in calls}
    shown = {**as_is, **aliases}
    frames = [
        {
            "ph": "X",
            "cat": "python_function",
            "name": f"{shown[file].name}({line + shown[file].lines_above}): {_source(file, line) or function}",
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "ts": (start_ns - base_ns) / 1e3,
            "dur": duration_ns / 1e3,
            "args": {},
        }
        for on, start_ns, duration_ns, file, line, function in calls
        if on == thread
    ]
    _rewrite(path, ",\n".join(map(json.dumps, frames)).encode(), aliases)


def _calls(tree: list[Any]) -> Iterator[tuple[int, int, int, str, int, str]]:
    """Calls that own code made: thread, start, duration, file, line, function of the caller."""
    waiting, left = list(tree), MOST_EVENTS
    while waiting and left:
        event, left = waiting.pop(), left - 1
        waiting.extend(event.children)
        caller = getattr(event.extra_fields, "caller", None)
        if caller is not None and caller.line_number > 0 and own_file(caller.file_name):
            location = caller.file_name, caller.line_number, caller.function_name
            yield event.start_tid, event.start_time_ns, event.duration_time_ns, *location


@cache
def own_file(file: str) -> str | None:
    """The path of a file of the program's own code; None: it is a library's, or its source is not to be had. The
    profiler leaves out what ``sys.path`` has."""
    if file.startswith("<ipython-input-"):
        return file
    candidates = [Path(file)] if file.startswith("/") else [Path(folder) / file for folder in sys.path]
    file_found = next(
        (str(candidate) for candidate in candidates if candidate.is_file() or str(candidate) in linecache.cache), None
    )
    return file_found if file_found is not None and is_user_python(file_found) else None


def _source(file: str, line: int) -> str:
    """The source line, on one line."""
    text = " ".join(linecache.getline(own_file(file) or file, line).split())
    return text if len(text) <= LINE else f"{text[: LINE - 3]}..."


def _base_ns(path: Path) -> int | None:
    """The time that a trace's times count from."""
    with door.opened(path) as file:
        size = file.seek(0, os.SEEK_END)
        for start in (0, max(size - 4096, 0)):
            file.seek(start)
            _, marker, rest = file.read(4096).partition(b'"baseTimeNanoseconds":')
            digits = rest.split(b",")[0].strip(b" \n}")
            if marker and digits.isdigit():
                return int(digits)
    return None


def _rewrite(path: Path, events: bytes, aliases: Mapping[str, Alias]) -> None:
    """Put events first into the trace's list, and give files their aliases in the names of frames."""
    changed = path.with_name(f"{path.name}.lines")
    renamed = {re.escape(json.dumps(file)[1:-1]).encode(): alias for file, alias in aliases.items()}
    of_file = re.compile(b"(" + b"|".join(renamed) + rb")\((\d+)\): (?:<cell line: (\d+)>)?") if renamed else None

    def rename(match: re.Match[bytes]) -> bytes:
        alias = renamed[re.escape(match[1])]
        line = int(match[3] or match[2]) + alias.lines_above
        return f"{alias.name}({line}): {'cell' if match[3] else ''}".encode()

    try:
        with door.opened(path) as file, changed.open("wb") as out:
            for line in file:
                out.write(line if of_file is None else of_file.sub(rename, line))
                if _LIST in line:
                    out.write(events + b",\n")
                    break
            for line in file:
                out.write(line if of_file is None else of_file.sub(rename, line))
        changed.replace(path)
    finally:
        changed.unlink(missing_ok=True)
