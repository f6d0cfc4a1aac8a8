"""How the terminal view draws: glyphs, colours, columns, wrapping. Knows nothing of reports but their causes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from boundby.model import units
from boundby.model.causes import COLORS
from boundby.render.bars import Segment, cells
from boundby.render.text import shorten

DIM = "dim"
STRONG = "bold"
_FIGURE = re.compile(r"(\d) (%|/ms|[numkMGT]?[sB]\b|min\b|h\b)")
MIN_PROSE = 16  # cells; a column narrower than this moves below its label


@dataclass(frozen=True)
class Face:
    """The width to fill, and whether colour and non-ASCII glyphs can be used."""

    width: int
    color: bool
    unicode: bool

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
            elif isinstance(part, tuple):
                text.append(self.safe(part[0]), part[1])
            else:
                text.append(self.safe(part))
        return text

    def safe(self, text: str) -> str:
        """The text as the stream can show it."""
        return text if self.unicode else text.encode("ascii", "backslashreplace").decode("ascii")

    def fit(self, text: str, width: int) -> str:
        """Shortened in the middle to ``width`` cells."""
        return shorten(self.safe(text), width, self.ellipsis)

    def swatch(self, cause: str, letter: str) -> Text:
        """A cause's letter on its colour."""
        return Text(letter, style=self.cause_style(cause))

    def cause_style(self, cause: str) -> str:
        background, letter = COLORS.get(cause, COLORS["unknown"])
        return f"{letter} on {background}" if self.color else ""

    def _soft_style(self, cause: str) -> str:
        """For letters that fill a bar: there for who looks for them, in the colour's own shade."""
        background, letter = COLORS.get(cause, COLORS["unknown"])
        return f"{blended(letter, background, 0.42)} on {background}" if self.color else ""

    def badge(self, text: str, bound: str) -> Text:
        """The verdict of a sentence: on its colour, or plainly in capitals."""
        if not self.color:
            return Text(self.safe(text))
        return Text(f" {self.safe(text)} ", style=f"bold {self.cause_style(bound)}")

    def bar(self, parts: Sequence[Segment], width: int, *, full: bool = False) -> Text:
        """Letters on colours, so that the bar reads with either alone.

        A ``full`` bar shows every part, and in colour it carries its labels where they fit.
        """
        text = Text(no_wrap=True)
        for part, length in zip(parts, cells(parts, width, at_least_one=full), strict=True):
            label = f" {part.label} {units.percent(part.fraction)} "
            if not (full and self.color and length >= len(label)):
                text.append(part.letter * length, self._soft_style(part.cause))
                continue
            left = (length - len(label)) // 2
            text.append(part.letter * left, self._soft_style(part.cause))
            text.append(label, f"bold {self.cause_style(part.cause)}")
            text.append(part.letter * (length - left - len(label)), self._soft_style(part.cause))
        return text

    def brace(self, label: str, width: int) -> str:
        """``╰──── label ────╯`` under a part of a bar; only as much of it as fits."""
        left, run, right = ("╰", "─", "╯") if self.unicode else ("'", "-", "'")
        if width < 2:
            return right * width
        inner = f" {label} " if len(label) + 4 <= width else ""
        return f"{left}{inner:{run}^{width - 2}}{right}"

    def wrapped(self, text: str, *, indent: int = 0, first: Text | None = None, style: str = "") -> list[Text]:
        """Prose over as many lines as it takes, each under the end of ``first`` (or after ``indent``)."""
        hang = indent + (first.cell_len if first is not None else 0)
        if first is not None and self.width - hang < MIN_PROSE:
            return [Text.assemble(" " * indent, first), *self.wrapped(text, indent=4, style=style)]
        result = []
        for number, words in enumerate(_wrap(self.safe(text), self.width - hang)):
            line = Text(" " * (indent if number == 0 and first is not None else hang), no_wrap=True)
            if number == 0 and first is not None:
                line.append_text(first)
            line.append(words, style)
            result.append(line)
        return result

    def heading(self, text: str | Text) -> Text:
        """The first line of a section."""
        line = self.line(text)
        line.stylize("bold dim" if self.color else STRONG)
        return line


def pad(text: str | Text, width: int, align: str = "left") -> Text:
    """Filled with spaces to ``width`` cells."""
    text = Text(text) if isinstance(text, str) else text.copy()
    space = " " * max(width - text.cell_len, 0)
    return Text.assemble(space, text) if align == "right" else Text.assemble(text, space)


def blended(color: str, into: str, weight: float) -> str:
    """``color`` laid over ``into`` with ``weight`` (both ``#rrggbb``)."""
    pairs = ((int(color[i : i + 2], 16), int(into[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(weight * over + (1 - weight) * under):02x}" for over, under in pairs)


def _wrap(text: str, width: int) -> list[str]:
    """Words onto lines by cells (textwrap counts characters); a word longer than a line is cut.

    A figure stays beside its unit.
    """
    lines: list[str] = []
    current = ""
    for glued in _FIGURE.sub("\\1\0\\2", text).split():
        word = glued.replace("\0", " ")
        joined = f"{current} {word}" if current else word
        if cell_len(joined) <= width:
            current = joined
            continue
        if current:
            lines.append(current)
        while cell_len(word) > width:
            cut = _cells_of(word, width)
            lines.append(word[:cut])
            word = word[cut:]
        current = word
    return [*lines, current] if current or not lines else lines


def _cells_of(word: str, width: int) -> int:
    used = 0
    for index, char in enumerate(word):
        used += cell_len(char)
        if used > width:
            return max(index, 1)
    return len(word)
