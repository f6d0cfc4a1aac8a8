"""What standard output can show, and writing to it."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boundby.model.errors import OutputError

if TYPE_CHECKING:
    from boundby.render.terminal import ColorSystem

PIPE_WIDTH = 100
_GLYPHS = "╰─╯→…·"


@dataclass(frozen=True)
class Surface:
    """Width in cells, colours (None: none) and whether non-ASCII glyphs come through."""

    width: int
    color_system: ColorSystem | None
    unicode: bool


def surface(*, width: int | None, color: bool | None) -> Surface:
    """What standard output can show; options and NO_COLOR, FORCE_COLOR, COLUMNS override the guess."""
    terminal = sys.stdout.isatty()
    return Surface(width or _width(terminal), _color_system(terminal, color), _unicode())


def plain() -> Surface:
    """For a file: a fixed width, no colour, UTF-8."""
    return Surface(PIPE_WIDTH, None, True)


def _width(terminal: bool) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns if terminal else PIPE_WIDTH


def _color_system(terminal: bool, color: bool | None) -> ColorSystem | None:
    kind = os.environ.get("TERM", "").lower()
    if color is None:
        if os.environ.get("NO_COLOR"):
            color = False
        elif os.environ.get("FORCE_COLOR"):
            color = True
        else:
            color = terminal and kind not in ("dumb", "unknown")
    if not color:
        return None
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in kind else "standard"


def _unicode() -> bool:
    try:
        _GLYPHS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def put(text: str, *, utf8: bool) -> None:
    """Write to standard output. ``utf8``: the format says so (JSON, CSV, Markdown), whatever the locale."""
    encoding = "utf-8" if utf8 else sys.stdout.encoding or "ascii"
    data = text.encode(encoding, "backslashreplace")
    try:
        buffer = getattr(sys.stdout, "buffer", None)
        if buffer is None:  # replaced by something that takes text only
            sys.stdout.write(data.decode(encoding))
        else:
            sys.stdout.flush()
            buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"Cannot write to standard output: {error.strerror}.", "Write elsewhere with -o.") from error
