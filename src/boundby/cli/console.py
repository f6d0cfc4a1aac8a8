"""Standard output and error: what they can show, writing to them, and what is being done meanwhile."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click
from msgspec import Struct

from boundby.model.errors import OutputError
from boundby.model.scale import MOMENT_S
from boundby.model.units import LINE
from boundby.render.formats import BY_SUFFIX, Surface

if TYPE_CHECKING:
    from rich.console import RenderableType

    from boundby.document.blocks import Document
    from boundby.render.face import ColorSystem
    from boundby.results.saved import Saved

S = TypeVar("S", bound="Saved")
PIPE_WIDTH = LINE
#: How any document can be shown.
DOCUMENT_FORMATS = ("terminal", "markdown", "html", "json")
_GLYPHS = "╰─╯→…·"
Progress = Callable[[str, "float | None"], None]


class View(Struct, frozen=True):
    """What a user said of how results look, and of what is told meanwhile."""

    quiet: bool = False
    color: bool | None = None
    """None: on a terminal; NO_COLOR and FORCE_COLOR are obeyed."""
    width: int | None = None
    """Columns; None: the terminal's, or those of COLUMNS."""
    full: bool = False
    """Everything in the terminal, else one screen."""
    top: int | None = None
    sort: str = "time"

    def surface(self) -> Surface:
        """What standard output can show; options win over the environment, and that over the guess."""
        is_terminal = sys.stdout.isatty()
        look = self.width or _width(is_terminal), _color_system(is_terminal, self.color), _has_glyphs()
        return Surface(*look, self.full, self.top, self.sort)

    def plain(self) -> Surface:
        """For a file: a fixed width, no colour, UTF-8."""
        return Surface(self.width or PIPE_WIDTH, None, True, self.full, self.top, self.sort)

    def say(self, text: str) -> None:
        """Tell on stderr what is done, also where a log is all that sees it."""
        from boundby.document.blocks import clean

        if not self.quiet:
            click.echo(f"boundby: {clean(text)}", err=True)

    def note(self, text: str) -> None:
        """Tell a person on stderr, where one watches."""
        if not self.quiet and sys.stderr.isatty():
            click.echo(f"boundby: {text}", err=True)

    @contextlib.contextmanager
    def progress(self) -> Iterator[Progress | None]:
        """A callback ``(what, fraction or None)`` that draws a line on stderr, or None where nobody would see it."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        from boundby.document.blocks import clean

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as display:
            task = display.add_task("reading", total=None)
            since = [time.monotonic(), 0.0]  # when this count began, and how far it was

            def update(what: str, fraction: float | None) -> None:
                total = None if fraction is None else 1.0
                if fraction is not None and fraction < since[1]:  # another count: of the export, then of the analysis
                    since[:] = time.monotonic(), fraction
                since[1] = fraction or 0.0
                said = clean(what) + remaining(time.monotonic() - since[0], fraction)
                display.update(task, description=said, completed=fraction or 0.0, total=total)

            yield update


def remaining(elapsed_s: float, fraction: float | None) -> str:
    """How long the rest will take, where that is known and worth saying; else empty."""
    if not fraction or elapsed_s < MOMENT_S:
        return ""
    return f", about {max(1, round(elapsed_s * (1.0 - fraction) / fraction))} s left"


def painted(*parts: RenderableType, surface: Surface) -> str:
    """What rich makes of its renderables, without blanks at the ends of lines."""
    from boundby.render.face import console_on

    stream = io.StringIO()
    paper = console_on(stream, surface.width, surface.color_system)
    for part in parts:
        paper.print(part)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


class Destination(NamedTuple):
    """Where a result goes, and in which format."""

    kind: str
    file: Path | None  # None: standard output
    view: View

    @property
    def surface(self) -> Surface:
        """What can be shown there."""
        return self.view.surface() if self.file is None else self.view.plain()

    def put(self, text: str) -> None:
        """Write it there."""
        deliver(text, self.file, self.view, utf8=self.kind != "terminal")

    def show(self, result: S, document: Callable[[S], Document]) -> None:
        """Write a result there: itself as JSON, else the document that tells it."""
        from boundby.render.formats import drawn
        from boundby.results import saved

        self.put(saved.render(result) if self.kind == "json" else drawn(document(result), self.kind, self.surface))


def destination(
    format_name: str | None, output: Path | None, formats: Collection[str], view: View, inputs: Sequence[Path]
) -> Destination:
    """As asked for, else by the file's suffix; none of ``inputs`` is written over."""
    from boundby.results import write

    file = None if output == Path("-") else output
    kind = format_name or ("terminal" if file is None else BY_SUFFIX.get(file.suffix.lower(), ""))
    if kind not in formats:
        endings = " ".join(suffix for suffix, name in BY_SUFFIX.items() if name in formats)
        raise click.UsageError(f"Cannot tell a format from {file}: name it {endings}, or give --format.")
    if file is not None:
        write.check(file, inputs=inputs)
    return Destination(kind, file, view)


def deliver(text: str, output: Path | None, view: View, *, utf8: bool = False) -> None:
    """Write to a file where one is named, else to standard output."""
    if output is None or str(output) == "-":
        put(text, utf8=utf8)
        return
    from boundby.results import write

    write.write_text(output, text)
    view.note(f"wrote {output}")


def put(text: str, *, utf8: bool = False) -> None:
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


def _width(is_terminal: bool) -> int:
    columns = os.environ.get("COLUMNS", "")
    if re.fullmatch(r"[1-9][0-9]{0,4}", columns):
        return int(columns)
    if not is_terminal:
        return PIPE_WIDTH
    import shutil

    return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns


def _color_system(is_terminal: bool, color: bool | None) -> ColorSystem | None:
    kind = os.environ.get("TERM", "").lower()
    if color is None:
        if os.environ.get("NO_COLOR"):
            color = False
        elif os.environ.get("FORCE_COLOR"):
            color = True
        else:
            color = is_terminal and kind not in ("dumb", "unknown")
    if not color:
        return None
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in kind else "standard"


def _has_glyphs() -> bool:
    try:
        _GLYPHS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
