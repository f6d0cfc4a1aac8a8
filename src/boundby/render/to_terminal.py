"""Document -> text of a terminal."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace
from rich.cells import cell_len
from rich.text import Text

from boundby.document import blocks
from boundby.document.blocks import (
    Bar,
    Bars,
    Cell,
    Document,
    Entries,
    Facts,
    First,
    Inline,
    Paragraph,
    Section,
    Span,
    Table,
    clean,
    clean_lines,
)
from boundby.model.scale import LABEL, NARROW
from boundby.render.face import DEFAULT_WIDTH, DIM, GAP, MIN_WIDTH, STRONG, ColorSystem, Face, pad

LEAST_BAR = 10
LONGEST_CELL = 30  # of what stands behind the first column; a longer title stands above its table
STYLES = {"strong": STRONG, "faint": DIM, "good": "green", "bad": "red", "warning": ""}


def render(
    document: Document, *, width: int = DEFAULT_WIDTH, color_system: ColorSystem | None = None, unicode: bool = True
) -> str:
    """The whole of it, no line wider than ``width``; ``color_system=None`` means no colour."""
    face = Face(max(width, MIN_WIDTH), color_system, unicode)
    groups = [lines(part, face) for part in _apart(document.blocks)]
    return face.text([*groups, *(section(part, face) for part in document.sections)])


def _apart(parts: Sequence[object]) -> Iterable[list[object]]:
    """Blocks with a blank line between them: before each heading, around bars and tables."""
    group: list[object] = []
    for block in _shown(parts):
        is_prose = isinstance(block, Paragraph) and not block.role
        if group and (isinstance(block, blocks.Heading | Bars | Table) or (is_prose and _has_table(group))):
            yield group
            group = []
        group.append(block)
    yield group


def _has_table(group: Sequence[object]) -> bool:
    return any(isinstance(block, Table) for block in group)


def _shown(parts: Iterable[object]) -> Iterable[object]:
    for block in parts:
        if isinstance(block, blocks.Only):
            yield from _shown(block.blocks) if block.where == "text" else ()
        else:
            yield block


def section(part: Section, face: Face) -> list[Text]:
    """A part as lines; none where nothing of it stands in texts."""
    shown = list(_shown(part.blocks))
    in_head = bool(shown) and isinstance(shown[0], Table) and len(part.title) <= LONGEST_CELL and ": " not in part.title
    drawn = [] if in_head else [face.heading(line) for line in face.wrapped(_capitals(part.title))]
    for number, group in enumerate(_apart(shown)):
        if number == 0 and in_head and isinstance(group[0], Table):
            drawn += [*_table(group[0], face, _capitals(part.title)), *lines(group[1:], face)]
        else:
            drawn += [*([Text()] if number else []), *lines(group, face)]
    return drawn if shown else []


def _capitals(title: str) -> str:
    """``WHAT IF (all ranks)``, ``FINDINGS: 2 new``: the name, not what is said of it."""
    name = re.split(r": | \(", title, maxsplit=1)[0]
    return clean(name.upper() + title[len(name) :])


def lines(parts: Iterable[object], face: Face) -> list[Text]:
    """Blocks one after the other."""
    return [line for block in _shown(parts) for line in _block(block, face)]


def _block(block: object, face: Face) -> list[Text]:
    match block:
        case blocks.Heading():
            return _flowing(block.text, face, style=STRONG)
        case Paragraph():
            return _paragraph(block, face)
        case First():
            return first(block, face)
        case Facts():
            return _facts(block, face)
        case blocks.Verbatim():
            return [face.line((line[: face.width], DIM)) for line in clean_lines(block.text)]
        case Entries():
            return _entries(block, face)
        case Bars():
            return _bars(block.bars, face)
        case Table():
            return _table(block, face)
        case blocks.Legend():
            return face.flow(face.cause(key) for key in block.causes)
    return []


def first_style(face: Face) -> str:
    """The brightest on the screen."""
    return "bold green" if face.color else STRONG


def first(told: First, face: Face, label: str = "First: ") -> list[Text]:
    """``First:`` with the code as it is to be written, why, and at which line: never cut."""
    style = first_style(face)
    lines = [line for code in told.code for line in face.verbatim(code, len(label), style)]
    lines += face.wrapped(told.because, indent=len(label))
    if told.where:
        lines += face.verbatim(told.where, len(label), STRONG)
        lines[-1] = face.line(("at".ljust(len(label)), style), lines[-1][len(label) :])
    if lines:
        lines[0] = face.line((label, style), lines[0][len(label) :])
    return lines


def _facts(block: Facts, face: Face) -> list[Text]:
    between = " · " if face.unicode else ", "
    spans_so_far: list[str | Span] = []
    for part in block.parts:
        spans_so_far += [between, *blocks.spans(part)] if spans_so_far else blocks.spans(part)
    return _flowing(tuple(spans_so_far), face, word=block.word, style=STYLES.get(block.role, ""))


def _paragraph(block: Paragraph, face: Face) -> list[Text]:
    word = block.word
    first = face.line((f"{word} ", STRONG)) if word else None
    if block.role == "warning":
        first = face.line(("! ", "bold yellow" if face.color else STRONG))
    return _flowing(block.text, face, first=first, style=STYLES.get(block.role, ""))


def _flowing(
    text: Inline, face: Face, *, word: str = "", first: Text | None = None, indent: int = 0, style: str = ""
) -> list[Text]:
    """Prose; a piece of it keeps its style where the whole stands on one line."""
    pieces = blocks.spans(text)
    if word:
        first = face.line((f"{word:<8}", STRONG))
    plain = "".join(_told(piece) for piece in pieces)
    lines = face.wrapped(plain, indent=indent, first=first, style=style)
    if len(lines) == 1 and any(piece.role for piece in pieces):
        return [face.line(" " * indent, first or "", *(_span(piece, face, style) for piece in pieces))]
    return lines


def _told(piece: Span) -> str:
    return f"{piece.text} [{piece.tip}]" if piece.tip and piece.role == "code" else piece.text


def _span(piece: Span, face: Face, style: str = "") -> Text:
    if piece.role == "cause":
        return face.cause(piece.cause, piece.text)
    if piece.role in ("good", "bad"):
        return face.painted(piece.text, STYLES[piece.role])
    return Text(face.safe(piece.text), style=STYLES.get(piece.role, style) or style)


def _entries(block: Entries, face: Face) -> list[Text]:
    lines: list[Text] = []
    columns = itertools.zip_longest(
        *([face.safe(mark.text) for mark in blocks.spans(entry.marks)] for entry in block.entries), fillvalue=""
    )
    widths = [min(max(map(cell_len, column)), face.width // 3) for column in columns]
    for number, entry in enumerate(block.entries, 1):
        pairs = zip(blocks.spans(entry.marks), widths, strict=False)
        marks = [pad(_span(replace(mark, text=face.fit(mark.text, width)), face), width + 2) for mark, width in pairs]
        first = face.line(f"{number}. " if block.ordered else "" if marks else "- ", *marks)
        lines += _flowing(entry.text, face, first=first if first.cell_len else None)
        for more in entry.more:
            indent = first.cell_len or 2
            if isinstance(more, blocks.Verbatim):
                lines += [part for line in clean_lines(more.text) for part in face.verbatim(line, indent, STRONG)]
            elif isinstance(more, Span) and more.role == "code":  # as it stands, spaces and all
                lines += face.verbatim(_plain(more), indent, STRONG)
            else:
                lines += _flowing(more, face, indent=indent, style=DIM)
    return lines


def _bars(bars: Sequence[Bar], face: Face) -> list[Text]:
    name = min(max([8, *(cell_len(bar.word) + 1 for bar in bars)]), face.width // 3)
    room = face.width - name - 11
    return [
        face.line(
            pad(face.fit(bar.word, name - 1), name),
            face.bar(bar.parts, max(round(room * bar.scale), 1)),
            f" {bar.value}",
        )
        for bar in bars
    ]


def _table(table: Table, face: Face, title: str = "") -> list[Text]:
    """Columns as wide as they need; bars share what is left; names give way first, then the least telling columns."""
    columns = [column for column in table.columns if column.where != "page" and not column.prose]
    prose = [column for column in table.columns if column.where != "page" and column.prose]  # below its row
    heads = [title if title and index == 0 else clean(column.head).upper() for index, column in enumerate(columns)]
    cells = [[_cell(column.cell(row), face) for column in columns] for row in table.rows]
    for line, row in zip(cells, table.rows, strict=True):
        line[0] = face.line("  " * table.depth(row), line[0] if isinstance(line[0], Text) else "")
    named = {index for index, column in enumerate(columns) if any(_is_name(column.cell(row)) for row in table.rows)}
    widths, kept = _widths(heads, cells, [column.goes for column in columns], named, face)
    lines = [
        face.heading(
            Text(GAP).join(
                pad(face.fit(heads[index], widths[index]), widths[index], right=columns[index].right) for index in kept
            )
        )
    ]
    for line, row in zip(cells, table.rows, strict=True):
        drawn = (
            pad(_fitted(line[index], widths[index], face), widths[index], right=columns[index].right) for index in kept
        )
        lines.append(Text(GAP, no_wrap=True).join(drawn))
        below = (table.below(row), *(_plain(column.cell(row)) for column in prose))
        lines += [line for text in below for line in face.wrapped(text, indent=2 * table.depth(row) + 2, style=DIM)]
    return lines


def _widths(
    heads: Sequence[str],
    cells: Sequence[Sequence[Text | Bar]],
    goes: Sequence[int],
    named: Collection[int],
    face: Face,
) -> tuple[list[int], list[int]]:
    """How wide each column is, and which stay. ``named``: columns of names; ``goes``: how soon each of them goes."""
    widths = [
        _natural(head, [line[index] for line in cells], face.width if index == 0 else LONGEST_CELL)
        for index, head in enumerate(heads)
    ]
    kept = list(range(len(heads)))
    least = min(NARROW, widths[0])

    def room() -> int:
        return face.width - sum(widths[index] + len(GAP) for index in kept[1:])

    narrowed = [index for index in kept[1:] if index in named]
    each = -(-(least - room()) // max(len(narrowed), 1))
    for index in narrowed:
        widths[index] -= max(min(widths[index] - NARROW, each), 0)
    while room() < least and any(goes[index] for index in kept):
        kept.remove(max(kept, key=lambda index: goes[index]))
    widths[0] = max(min(widths[0], room()), min(widths[0], 8))
    bars = [index for index in kept if any(isinstance(line[index], Bar) for line in cells)]
    for index in bars:
        widths[index] += min(max(room() - widths[0], 0) // len(bars), LABEL - LEAST_BAR)
    return widths, kept


def _is_name(cell: Cell) -> bool:
    return isinstance(cell, Span) and cell.role == "code"


def _plain(cell: Cell) -> str:
    pieces = tuple(part for part in (cell if isinstance(cell, tuple) else (cell,)) if not isinstance(part, Bar))
    return "".join(piece.text for piece in blocks.spans(pieces))


def _cell(cell: Cell, face: Face) -> Text | Bar:
    if isinstance(cell, Bar):
        return cell
    pieces = [part for part in (cell if isinstance(cell, tuple) else (cell,)) if not isinstance(part, Bar)]
    return face.line(*(_span(piece, face) for piece in blocks.spans(tuple(pieces))))


def _natural(head: str, cells: Sequence[Text | Bar], most: int) -> int:
    longest = max((LEAST_BAR if isinstance(cell, Bar) else cell.cell_len for cell in cells), default=0)
    return max(len(head), min(longest, most))


def _fitted(cell: Text | Bar, width: int, face: Face) -> Text:
    if isinstance(cell, Bar):
        return face.bar(cell.parts, max(round(width * cell.scale), 1))
    if cell.cell_len <= width:
        return cell
    indent = len(cell.plain) - len(cell.plain.lstrip())
    kept = min(indent, width // 2)
    return Text(
        " " * kept + face.fit(cell.plain.lstrip(), width - kept), style=cell.spans[0].style if cell.spans else ""
    )
