"""Document -> GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from boundby.document import blocks
from boundby.document.bars import letters
from boundby.document.blocks import Bar, Bars, Cell, Document, Entries, Facts, Inline, Legend, Paragraph, Table
from boundby.model.causes import info
from boundby.render.markdown import code, escape, table

SMALL_BAR, BAR = 16, 60
INDENT = "&nbsp;" * 4  # plain spaces are dropped at the start of a cell
_MARKS = {"good": "🟢 ", "bad": "🔴 "}


def render(document: Document) -> str:
    """The whole, ended by a line break."""
    parts = [*_blocks(document.blocks)]
    for part in document.sections:
        drawn = list(_blocks(part.blocks))
        parts += [f"#### {escape(part.title)}", *drawn] if drawn else []
    return "\n\n".join(parts) + "\n"


def _blocks(found: Iterable[object]) -> Iterable[str]:
    for block in found:
        if isinstance(block, blocks.Only):
            yield from _blocks(block.blocks) if block.where == "text" else ()
        elif text := _block(block):
            yield text


def _block(block: object) -> str:
    match block:
        case blocks.Heading():
            return f"### {_inline(block.text)}"
        case Paragraph():
            if block.role == "warning":
                return f"> [!WARNING]\n> {_inline(block.text)}"
            return (f"**{escape(block.word)}** " if block.word else "") + _inline(block.text)
        case Facts():
            word = f"**{escape(block.word)}** " if block.word else ""
            return word + " · ".join(map(_inline, block.parts))
        case Entries():
            return "\n".join(_entries(block))
        case Bars():
            rows = [
                f"{bar.word:<8}{letters(bar.parts, max(round(BAR * bar.scale), 1))} {bar.value}" for bar in block.bars
            ]
            return "\n".join(["```text", *rows, "```"])
        case Table():
            return _table(block)
        case Legend():
            return ", ".join(f"`{info(key).letter}` {info(key).label}" for key in block.causes)
    return ""


def _entries(block: Entries) -> Iterable[str]:
    for number, entry in enumerate(block.entries, 1):
        start = f"{number}. " if block.ordered else "- "
        marks = "".join(f"{_inline(mark)} " for mark in entry.marks)
        yield f"{start}{marks}{_inline(entry.text)}"
        yield from (f"{' ' * len(start)}- {_inline(more)}" for more in entry.more)


def _table(block: Table) -> str:
    columns = [column for column in block.columns if column.where != "page"]
    rows = []
    for row in block.rows:
        cells = [_cell(column.cell(row)) for column in columns]
        below = block.below(row)
        cells[0] = INDENT * block.depth(row) + cells[0] + (f"<br><sub>{escape(below)}</sub>" if below else "")
        rows.append(cells)
    align = "".join("r" if column.right else "l" for column in columns)
    return table([escape(column.head) for column in columns], align, rows) if rows else ""


def _cell(cell: Cell) -> str:
    if isinstance(cell, Bar):
        bar = letters(cell.parts, max(round(SMALL_BAR * cell.scale), 1))
        return f"`{bar}`" if bar else ""
    return _inline(tuple(part for part in (cell if isinstance(cell, tuple) else (cell,)) if not isinstance(part, Bar)))


def _inline(text: Inline) -> str:
    told = []
    for piece in blocks.spans(text):
        words = code(piece.text) if piece.role == "code" else escape(piece.text)
        if text != piece.text and piece.role != "code":  # spaces at its ends part it from its neighbours
            words = words and piece.text[: len(piece.text) - len(piece.text.lstrip())] + words
            words += " " if piece.text.endswith(" ") and piece.text.strip() else ""
        if piece.role == "cause":
            words = f"`{info(piece.cause).letter}`\N{NO-BREAK SPACE}{words}"
        elif piece.role in ("strong", "good", "bad") and words:
            words = f"{_MARKS.get(piece.role, '')}**{words}**"
        told.append(words)
    return "".join(told)
