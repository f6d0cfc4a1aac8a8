"""How text for terminals is drawn: glyphs, colours, columns, wrapping. Knows nothing of reports but their causes.

Lines are rich's ``Text``. Its ``Table`` and ``Console`` are kept out of plain output, for their time: a table of forty
rows takes them longer than all the rest of a report takes, and importing a console longer than that.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from boundby.document.blocks import Segment, cells, shorten
from boundby.model import units
from boundby.model.causes import info
from boundby.model.late import expression
from boundby.model.scale import COLUMN, NARROW
from boundby.render import shown_code

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_WIDTH = units.LINE
MIN_WIDTH = COLUMN
LONGEST_TAIL = 14  # characters of a last word that is left out rather than broken
DIM = "dim"
STRONG = "bold"
GAP = "  "
_FIGURE = expression(r"(\d) (%|/ms|[numkMGT]?[sB]\b|min\b|h\b)")
_SENTENCE_END = expression(r"(?<=\.) (?=[A-Z])")
_PLAIN = str.maketrans({"→": "->", "✓": "+", "✗": "-", "…": "..."})

ColorSystem = Literal["standard", "256", "truecolor"]


class FaceColumn(Struct, frozen=True):
    """One column of a table. ``cell`` gives what a row has there, for a width in cells."""

    head: str
    width: int
    cell: Callable[[Any, int], str | Text]
    right: bool = False
    goes: int = 0  # where it gets narrow those with the highest number are left out first; 0: never
    tells: Callable[[Any], bool] | None = None  # whether it says anything of a row: if of none, it is left out


class Face(Struct, frozen=True):
    """The width to fill in cells, the colours (None: none), and whether non-ASCII glyphs can be used."""

    width: int
    color_system: ColorSystem | None
    unicode: bool

    @property
    def color(self) -> bool:
        return self.color_system is not None

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "..."

    @property
    def arrow(self) -> str:
        return "→" if self.unicode else "->"

    def line(self, *parts: str | tuple[str, str] | Text) -> Text:
        """One line from plain strings, (string, style) pairs and texts."""
        text = Text(no_wrap=True)
        for part in parts:
            if isinstance(part, Text):
                text.append_text(part)
                text.overflow = part.overflow or text.overflow
            elif isinstance(part, tuple):
                text.append(self.safe(part[0]), part[1])
            else:
                text.append(self.safe(part))
        return text

    def safe(self, text: str) -> str:
        """The text as the stream can show it."""
        return text if self.unicode else text.translate(_PLAIN).encode("ascii", "backslashreplace").decode("ascii")

    def fit(self, text: str, width: int) -> str:
        """Shortened in the middle to ``width`` cells."""
        return shorten(self.safe(text), width, self.ellipsis)

    def painted(self, text: str, style: str) -> Text:
        """In a style that only colour has."""
        return Text(self.safe(text), style=style if self.color else "")

    def cause(self, cause: str, word: str = "") -> Text:
        """A cause's letter on its colour, and its label or another word."""
        return self.line(self.painted(info(cause).letter, self._style(cause)), f" {word or info(cause).label}")

    def _style(self, cause: str, *, soft: bool = False) -> str:
        """``soft``: for letters that fill a bar, there for who looks for them, in the colour's own shade."""
        background, ink = info(cause).color, info(cause).ink
        return f"{blended(ink, background, 0.42) if soft else ink} on {background}"

    def badge(self, text: str, bound: str) -> Text:
        """The verdict of a sentence: on its colour, or plainly in capitals."""
        return self.painted(f" {text} " if self.color else text, f"bold {self._style(bound)}")

    def bar(self, parts: Sequence[Segment], width: int, *, full: bool = False) -> Text:
        """Letters on colours, so that the bar reads with either alone.

        A ``full`` bar shows every part, and in colour it carries its labels where they fit.
        """
        text = Text(no_wrap=True)
        for part, length in zip(parts, cells(parts, width, at_least_one=full), strict=True):
            label = f" {part.label} {units.percent(part.fraction)} "
            if not (full and self.color and length >= len(label)):
                label = ""
            left = (length - len(label)) // 2
            soft = self._style(part.cause, soft=True)
            text.append_text(self.painted(part.letter * left, soft))
            text.append_text(self.painted(label, f"bold {self._style(part.cause)}"))
            text.append_text(self.painted(part.letter * (length - left - len(label)), soft))
        return text

    def brace(self, label: str, width: int) -> str:
        """``╰──── label ────╯`` under a part of a bar; only as much of it as fits."""
        left, run, right = ("╰", "─", "╯") if self.unicode else ("'", "-", "'")
        if width < 2:
            return right * width
        inner = f" {label} " if len(label) + 4 <= width else ""
        return f"{left}{inner:{run}^{width - 2}}{right}"

    def wrapped(self, text: str, *, indent: int = 0, first: Text | None = None, style: str = "") -> list[Text]:
        """Prose over as many lines as it takes (none for none), under the end of ``first`` or after ``indent``."""
        hang = indent + (first.cell_len if first is not None else 0)
        if first is not None and self.width - hang < NARROW:
            return [Text.assemble(" " * indent, first), *self.wrapped(text, indent=4, style=style)]
        lines = [self.line(" " * hang, (words, style)) for words in _wrap(self.safe(text), self.width - hang)]
        if first is not None:
            lines = lines or [Text(" " * hang)]
            lines[0] = self.line(" " * indent, first, lines[0][hang:])
        return lines

    def verbatim(self, text: str, indent: int, style: str = "") -> list[Text]:
        """Code as it stands, spaces and all; what does not fit goes on below, so that it can be copied. A word of a
        command that no line has room for is not cut."""
        lines = shown_code.lines(self.safe(text), max(self.width - indent, NARROW))
        return [Text.assemble(" " * indent, (line, style), no_wrap=True, overflow="ignore") for line in lines]

    def within(self, text: str, most: int, style: str = "") -> list[Text]:
        """Prose on at most so many lines: the last sentences are left out, and one that alone is too long is seen to be
        cut."""
        return self.cut(self.whole(text, most, style=style), most)

    def whole(self, text: str, most: int, *, indent: int = 0, first: Text | None = None, style: str = "") -> list[Text]:
        """Prose of which the last sentences are left out where it takes more lines; its first stands whole, and of that
        no more than it takes."""
        sentences = _SENTENCE_END.split(text)
        lines = self.wrapped(text, indent=indent, first=first, style=style)
        while len(lines) > most and len(sentences) > 1:
            sentences.pop()
            lines = self.wrapped(" ".join(sentences), indent=indent, first=first, style=style)
        return lines

    def cut(self, lines: list[Text], most: int) -> list[Text]:
        """The first lines; an ellipsis where more would follow."""
        if len(lines) <= most:
            return lines
        rest = lines[most].plain.lstrip()
        last = Text.assemble(lines[most - 1], " ", lines[most][len(lines[most].plain) - len(rest) :])
        kept = set_cell_size(last.plain, max(self.width - len(self.ellipsis), 0))
        if " " in kept[-LONGEST_TAIL:]:  # no broken word, unless it is a long name
            kept = kept.rpartition(" ")[0]
        return [*lines[: most - 1], self.line(last[: len(kept.rstrip(" ,;:("))], (self.ellipsis, DIM))]

    def flow(self, entries: Iterable[Text], gap: str = "   ") -> list[Text]:
        """Entries side by side, on as many lines as they take."""
        lines: list[Text] = []
        for entry in entries:
            if lines and lines[-1].cell_len + len(gap) + entry.cell_len <= self.width:
                lines[-1] = self.line(lines[-1], gap, entry)
            else:
                lines.append(entry)
        return lines

    def heading(self, text: str | Text) -> Text:
        """The first line of a section."""
        line = self.line(text)
        line.stylize("bold dim" if self.color else STRONG)
        return line

    def heads(self, columns: Sequence[FaceColumn]) -> Text:
        """The heading of a table."""
        return self.heading(_joined(columns, (column.head for column in columns)))

    def row(self, columns: Sequence[FaceColumn], row: object) -> Text:
        """One row of a table."""
        texts = (column.cell(row, column.width) for column in columns)
        return _joined(columns, (self.safe(text) if isinstance(text, str) else text for text in texts))

    def text(self, sections: Iterable[Sequence[Text]]) -> str:
        """Sections as the stream gets them, a blank line between any two, cut at the width unless it is code;
        empty ones are left out."""
        lines = [line for section in sections if section for line in (*section, Text())][:-1]
        for line in lines:
            if line.overflow != "ignore":
                line.truncate(self.width, overflow="crop")
            if not self.color:  # colour may end in a painted space
                line.rstrip()
        if not self.color:
            return "".join(f"{line.plain}\n" for line in lines)
        stream = io.StringIO()
        console = console_on(stream, self.width, self.color_system)
        for line in lines:
            console.print(line, no_wrap=True, overflow="ignore", crop=False)
        return stream.getvalue()


def console_on(stream: io.StringIO, width: int, color_system: ColorSystem | None) -> Console:
    """What rich prints with: its renderables as they are, nothing read into their text."""
    from rich.console import Console

    return Console(
        file=stream,
        width=width,
        height=100,
        force_terminal=color_system is not None,
        color_system=color_system,
        no_color=color_system is None,
        legacy_windows=False,
        force_jupyter=False,
        markup=False,
        emoji=False,
        highlight=False,
    )


def telling(columns: Iterable[FaceColumn], rows: Sequence[object]) -> list[FaceColumn]:
    """The columns that say something of one of the rows at least."""
    return [column for column in columns if column.tells is None or any(map(column.tells, rows))]


def fitting(columns: Iterable[FaceColumn], width: int, name: int) -> tuple[list[FaceColumn], int]:
    """The columns that leave at least ``name`` cells of ``width`` to a first one, and the room they leave."""
    kept = list(columns)
    while True:
        room = width - sum(column.width + len(GAP) for column in kept)
        least_telling = max(kept, key=lambda column: column.goes)
        if room >= name or not least_telling.goes:
            return kept, room
        kept.remove(least_telling)


def natural(head: str, cells: Iterable[str | Text]) -> int:
    """The width that a column's longest cell takes."""
    lengths = (cell_len(cell) if isinstance(cell, str) else cell.cell_len for cell in cells)
    return max((len(head), *lengths))


def pad(text: str | Text, width: int, *, right: bool = False) -> Text:
    """Filled with spaces to ``width`` cells; ``right``: before it."""
    text = Text(text) if isinstance(text, str) else text
    space = " " * max(width - text.cell_len, 0)
    return Text.assemble(space, text) if right else Text.assemble(text, space)


def _joined(columns: Sequence[FaceColumn], texts: Iterable[str | Text]) -> Text:
    padded = (pad(text, column.width, right=column.right) for column, text in zip(columns, texts, strict=True))
    return Text(GAP, no_wrap=True).join(padded)


def blended(color: str, into: str, weight: float) -> str:
    """``color`` laid over ``into`` with ``weight`` (both ``#rrggbb``)."""
    pairs = ((int(color[i : i + 2], 16), int(into[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(weight * over + (1 - weight) * under):02x}" for over, under in pairs)


def _wrap(text: str, width: int) -> list[str]:
    """Words onto lines by cells (textwrap counts characters); a word longer than a line is cut.

    A figure stays beside its unit.
    """
    lines: list[str] = []
    for glued in _FIGURE.sub("\\1\0\\2", text).split():
        word = glued.replace("\0", " ")
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines += chop_cells(word, width) if cell_len(word) > width else [word]
    return lines
