"""What a document is made of, as plain data: `boundby.render.to_terminal`, `to_markdown` and `to_html` draw it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from boundby.model.causes import CAUSE_KEYS, OTHER, info
from boundby.model.scale import HARDLY
from boundby.model.units import quoted, told_name

# Names out of a trace are anybody's text: made harmless here before any renderer shows them.

_HIDDEN = {"Cc", "Cf", "Zl", "Zp", "Cn"}  # control, format (bidi marks among them), line breaks, unassigned


def clean(text: str) -> str:
    """The text on one line, with nothing in it that a terminal or a browser would obey.

    Control and format characters become visible escapes (``\\x1b``), lone surrogates the replacement character.
    """
    if text.isprintable():
        return text
    return "".join(_visible(char) for char in text)


def clean_lines(text: str) -> list[str]:
    """Each line of a text made harmless."""
    return [clean(line).rstrip() for line in text.splitlines()]


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    if category == "Zs":
        return " "
    return char.encode("unicode_escape").decode("ascii") if category in _HIDDEN else char


def shorten(text: str, width: int, ellipsis: str = "...") -> str:
    """At most ``width`` terminal cells: the middle goes, since both ends of a name tell it apart."""
    from rich.cells import cell_len, chop_cells

    if cell_len(text) <= width:
        return text
    keep = width - len(ellipsis)
    if keep < 2:
        return chop_cells(text, width)[0] if width > 0 else ""
    head, tail = chop_cells(text, keep - keep // 2)[0], chop_cells(text[::-1], keep // 2)[0][::-1]
    if tail.endswith(")") and head.count("(") + tail.count("(") < tail.count(")"):  # what it closes is left out
        return shorten(text[:-1], width, ellipsis)
    return f"{head}{ellipsis}{tail}"


def file_name(path: str) -> str:
    """A path's last part, of whatever system it is."""
    return clean(path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1])


def part_name(part: str) -> str:
    """One part of a region's path; a range may have no name."""
    return clean(told_name(part.strip(" "))) or "(unnamed)"


def region_name(path: tuple[str, ...]) -> str:
    """``step/forward``; the root, which holds what no range owns, is ``(no range)``."""
    return "/".join(part_name(part) for part in path) if path else "(no range)"


def in_region(path: tuple[str, ...]) -> str:
    """`` in step/forward``, for a sentence; empty of the root."""
    return f" in {quoted(region_name(path))}" if path else ""


#
# A text is a string, a `Span`, or several of these one after the other. A column of a table is one `Column` in a list.

# An account as cells of a bar: which cause gets how many. Pure; each format paints them its own way.

FOLD_BELOW = HARDLY  # causes that would read "<1 %" are folded into "other"


class Segment(Struct, frozen=True):
    """One cause's part of an account."""

    cause: str  # a cause key, or "other"
    ns: int
    fraction: float

    @property
    def letter(self) -> str:
        return info(self.cause).letter

    @property
    def label(self) -> str:
        return info(self.cause).label


def segments(time: Mapping[str, int], *, fold_below: float = 0.0) -> tuple[Segment, ...]:
    """The causes that took any time, in the order of the causes, small ones folded into one last ``other``."""
    total = sum(time.values())
    if total <= 0:
        return ()
    shown = [Segment(key, time[key], time[key] / total) for key in CAUSE_KEYS if time.get(key, 0) > 0]
    small = [segment for segment in shown if segment.fraction < fold_below]
    if len(small) < 2:  # one small cause may as well be named
        return tuple(shown)
    folded = sum(segment.ns for segment in small)
    kept = [segment for segment in shown if segment.fraction >= fold_below]
    return (*kept, Segment(OTHER.key, folded, folded / total))


def cells(parts: Sequence[Segment], width: int, *, at_least_one: bool = False) -> tuple[int, ...]:
    """How many of ``width`` cells each part gets: largest remainders, so that they sum to the width.

    ``at_least_one`` takes a cell from the largest for each part that would vanish, where there is room.
    """
    if not parts or width <= 0:
        return (0,) * len(parts)
    exact = [part.fraction * width for part in parts]
    given = [int(value) for value in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: (given[i] - exact[i], i))
    for index in by_remainder[: max(width - sum(given), 0)]:
        given[index] += 1
    if at_least_one and width >= len(parts):
        for index in range(len(parts)):
            if given[index] == 0:
                given[max(range(len(parts)), key=lambda i: given[i])] -= 1
                given[index] = 1
    return tuple(given)


def letters(parts: Sequence[Segment], width: int, *, at_least_one: bool = False) -> str:
    """The bar without colour: ``CCCCCCCCMsssaah``."""
    lengths = cells(parts, width, at_least_one=at_least_one)
    return "".join(part.letter * length for part, length in zip(parts, lengths, strict=True))


#: ``good`` and ``bad``: a change for the better, for the worse. ``cause``: its letter, on its colour, before the text.
Role = Literal["", "strong", "faint", "code", "good", "bad", "cause"]
#: Where a part stands: everywhere; on a page alone; in texts (terminal, Markdown, notebook) alone.
Where = Literal["", "page", "text"]


class Span(Struct, frozen=True):
    """A piece of text."""

    text: str
    role: Role = ""
    cause: str = ""  # its key, where the role is ``cause``
    tip: str = ""  # what hovering shows
    link: str = ""


Inline = str | Span | tuple[str | Span, ...]


class Bar(Struct, frozen=True):
    """An account as a bar, ``scale`` of the width there is; what stands before and behind it."""

    parts: tuple[Segment, ...]
    scale: float = 1.0
    word: str = ""
    value: str = ""


Cell = str | Span | tuple[str | Span, ...] | Bar | tuple[Bar, ...]


class Column(Struct, frozen=True):
    """One column: its head, and what a row has there. ``goes``: where it gets narrow those with the highest number are
    left out first (0: never). ``key``: what a page sorts by; None: by no button."""

    head: str
    cell: Callable[[Any], Cell]
    right: bool = False
    goes: int = 0
    key: Callable[[Any], float | str] | None = None
    where: Where = ""
    prose: bool = False  # sentences, which may take several lines


class Table(Struct, frozen=True):
    """Rows under columns. ``depth`` indents the first column; ``below`` is a line under a row."""

    columns: tuple[Column, ...]
    rows: tuple[Any, ...]
    depth: Callable[[Any], int] = lambda _: 0
    below: Callable[[Any], str] = lambda _: ""


class Heading(Struct, frozen=True):
    """The sentence that a document or a part of it begins with; ``is_small``: the title of a few blocks."""

    text: Inline
    is_small: bool = False


class Verbatim(Struct, frozen=True):
    """Lines as they stand, spaces and all: what to write or type, or else a picture in letters. ``label``: what it
    is."""

    text: str
    label: str = "What to write or type"
    is_code: bool = True


class Paragraph(Struct, frozen=True):
    """``word`` stands before it, and its lines hang under the end of that."""

    text: Inline
    role: Literal["", "strong", "faint", "warning"] = ""
    word: str = ""


class First(Struct, frozen=True):
    """What is tried first: what to write or type, why, and at which line."""

    code: tuple[str, ...]
    because: str
    where: str


class Facts(Struct, frozen=True):
    """Short facts side by side."""

    parts: tuple[Inline, ...]
    word: str = ""
    role: Literal["", "faint"] = "faint"


class Entry(Struct, frozen=True):
    """One of a list: marks in columns of their own, the text, and lines below it."""

    text: Inline
    marks: tuple[Span, ...] = ()
    more: tuple[Inline | Verbatim, ...] = ()


class Entries(Struct, frozen=True):
    """A list; ``ordered``: numbered."""

    entries: tuple[Entry, ...]
    ordered: bool = False


class Bars(Struct, frozen=True):
    """Bars below each other, to one scale."""

    bars: tuple[Bar, ...]


class Legend(Struct, frozen=True):
    """The causes by their letters and colours, in a row."""

    causes: tuple[str, ...]


class Drawing(Struct, frozen=True):
    """What the page's script draws of ``data``, by a template of this name. Texts have none."""

    template: str
    data: Any


class Only(Struct, frozen=True):
    """Blocks that stand in some places alone."""

    where: Where
    blocks: tuple[Any, ...]


class Section(Struct, frozen=True):
    """A part with a title, which navigation leads to. A terminal has it in the head of a table that comes first."""

    title: str
    blocks: tuple[Any, ...]
    id: str
    short: str = ""  # in the navigation, where the title is long
    is_folded: bool = False  # details, which Markdown folds away


class Document(Struct, frozen=True):
    """``title`` is that of the window; ``blocks`` stand above the sections."""

    title: str
    blocks: tuple[Any, ...]
    sections: tuple[Section, ...]


def entries(texts: Iterable[Inline], *, ordered: bool = False) -> Entries:
    """A list without marks."""
    return Entries(tuple(map(Entry, texts)), ordered)


def spans(text: Inline) -> tuple[Span, ...]:
    """The pieces of a text; names of a trace in it are made harmless."""
    parts: Sequence[str | Span] = text if isinstance(text, tuple) else (text,)
    pieces = (Span(part) if isinstance(part, str) else part for part in parts)
    return tuple(piece if piece.text.isprintable() else replace(piece, text=clean(piece.text)) for piece in pieces)


def section(title: str, *blocks: object, id: str, short: str = "") -> tuple[Section, ...]:
    """A section, or none where no block is left (None, or a list or table without rows)."""
    kept = tuple(block for block in blocks if not is_empty(block))
    return (Section(title, kept, id, short),) if kept else ()


def is_empty(block: object) -> bool:
    """Nothing would be drawn."""
    if isinstance(block, Only):
        return all(map(is_empty, block.blocks))
    if isinstance(block, Table):
        return not block.rows
    if isinstance(block, Entries):
        return not block.entries
    if isinstance(block, Bars):
        return not block.bars
    if isinstance(block, First):
        return not (block.code or block.because)
    return block is None or (isinstance(block, Paragraph) and not block.text)
