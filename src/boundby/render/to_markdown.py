"""Document -> GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

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
    Legend,
    Paragraph,
    Section,
    Table,
    clean,
    clean_lines,
    letters,
    shorten,
)
from boundby.model.causes import info
from boundby.model.late import expression
from boundby.model.scale import LABEL, NARROW
from boundby.model.units import LONGEST_TOLD

INDENT = "&nbsp;" * 4  # plain spaces are dropped at the start of a cell
_BLOCK = expression(r"(?:#{1,6}|[+-]|\d{1,9}[.)])(?:\s|$)|[=-]+$")  # at the start: a heading or a list
# GitHub makes links and notifications of @name, #1 and addresses even when they are escaped; a tag between stops it.
_SPECIAL = expression(r"[@#](?=\w)|://|www\.|[\\`*_\[\]~$&<>|]")
_REPLACED = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "|": "&#124;",
    "@": "<span>@</span>",
    "#": "<span>#</span>",
    "://": "<span>:</span>//",
    "www.": "www<span>.</span>",
}
_MARKS = {"good": "🟢 ", "bad": "🔴 "}


def render(document: Document) -> str:
    """The whole, ended by a line break."""
    return "\n\n".join((*blocks_of(document.blocks), *sections(document.sections))) + "\n"


def sections(parts: Iterable[Section]) -> Iterable[str]:
    """Each part with its title; folded away where it is details."""
    for part in parts:
        if drawn := "\n\n".join(blocks_of(part.blocks)):
            title = escape(part.title)
            yield (
                f"<details><summary>{title}</summary>\n\n{drawn}\n\n</details>"
                if part.is_folded
                else f"#### {title}\n\n{drawn}"
            )


def blocks_of(found: Iterable[object]) -> Iterable[str]:
    """Those that stand in texts."""
    for block in found:
        if isinstance(block, blocks.Only):
            yield from blocks_of(block.blocks) if block.where == "text" else ()
        elif text := _block(block):
            yield text


def _block(block: object) -> str:
    match block:
        case blocks.Heading():
            return f"**{_inline(block.text)}**" if block.is_small else f"### {_inline(block.text)}"
        case blocks.Verbatim():
            return "\n".join(_fence(block))
        case Paragraph():
            if block.role == "warning":
                return f"> [!WARNING]\n> {_inline(block.text)}"
            return (f"**{escape(block.word)}** " if block.word else "") + _inline(block.text)
        case First():
            return "\n".join(first(block)).rstrip("\n")
        case Facts():
            word = f"**{escape(block.word)}** " if block.word else ""
            return word + " · ".join(map(_inline, block.parts))
        case Entries():
            return _marked(block) if _is_tabular(block) else "\n".join(_entries(block))
        case Bars():
            rows = [
                f"{bar.word:<8}{letters(bar.parts, max(round(LABEL * bar.scale), 1))} {bar.value}" for bar in block.bars
            ]
            return "\n".join(["```text", *rows, "```"])
        case Table():
            return _table(block)
        case Legend():
            return ", ".join(f"`{info(key).letter}` {info(key).label}" for key in block.causes)
    return ""


def _is_tabular(block: Entries) -> bool:
    """All have as many marks, which are words in columns, not changes for the better or the worse."""
    marks = {tuple(mark.role in ("", "strong") for mark in entry.marks) for entry in block.entries}
    return len(marks) == 1 and all(next(iter(marks))) and any(entry.marks for entry in block.entries)


def _marked(block: Entries) -> str:
    rows = [
        [
            *map(_inline, entry.marks),
            "<br>".join(_inline(part) for part in (entry.text, *entry.more) if not isinstance(part, blocks.Verbatim)),
        ]
        for entry in block.entries
    ]
    return table([""] * len(rows[0]), "l" * len(rows[0]), rows)


def _entries(block: Entries) -> Iterable[str]:
    for number, entry in enumerate(block.entries, 1):
        start = f"{number}. " if block.ordered else "- "
        marks = "".join(f"{_inline(mark)} " for mark in entry.marks)
        yield f"{start}{marks}{_inline(entry.text)}"
        for more in entry.more:
            lines = _fence(more) if isinstance(more, blocks.Verbatim) else (f"- {_inline(more)}",)
            yield from (f"{' ' * len(start)}{line}" for line in lines)


def first(told: First, label: str = "First") -> Iterator[str]:
    """What to do first: its code, why, and where, as lines."""
    if told.code:
        yield from (f"**{label}:**", "", "```text", *(line.replace("```", "") for line in told.code), "```", "")
    if told.because:
        yield from (escape(told.because) if told.code else f"**{label}:** {escape(told.because)}", "")
    if told.where:
        yield from (f"at {command(told.where)}", "")


def _fence(block: blocks.Verbatim) -> Iterable[str]:
    """Lines as they stand; nothing in them ends the fence."""
    return ("```text", *(line.replace("```", "") for line in clean_lines(block.text)), "```") if block.text else ()


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
        bar = letters(cell.parts, max(round(NARROW * cell.scale), 1))
        return f"`{bar}`" if bar else ""
    pieces = tuple(part for part in (cell if isinstance(cell, tuple) else (cell,)) if not isinstance(part, Bar))
    return _inline(pieces, code)


def _inline(text: Inline, name: Callable[[str], str] | None = None) -> str:
    """``name``: how code is written, if it may be shortened."""
    pieces = []
    for piece in blocks.spans(text):
        words = (name or command)(piece.text) if piece.role == "code" else escape(piece.text)
        if text != piece.text and piece.role != "code":  # spaces at its ends part it from its neighbours
            words = words and piece.text[: len(piece.text) - len(piece.text.lstrip())] + words
            words += " " if piece.text.endswith(" ") and piece.text.strip() else ""
        if piece.role == "cause":
            words = f"`{info(piece.cause).letter}`\N{NO-BREAK SPACE}{words}"
        elif piece.role in ("strong", "good", "bad") and words:
            words = f"{_MARKS.get(piece.role, '')}**{words}**"
        pieces.append(words)
    return "".join(pieces)


def escape(text: str) -> str:
    """Text that Markdown, HTML and GitHub leave as it is, on one line."""
    text = clean(text).strip()
    first = f"&#{ord(text[0])};" if _BLOCK.match(text) else ""
    return first + _SPECIAL.sub(lambda match: _REPLACED.get(match[0], f"\\{match[0]}"), text[1:] if first else text)


def code(text: str) -> str:
    """A name in code style, shortened."""
    return command(shorten(clean(text), LONGEST_TOLD))


def command(text: str) -> str:
    """A command in code style, whole. Entities where a code span could not hold it inside a table."""
    text = clean(text)
    if not text.strip():
        return ""
    if any(char in text for char in "`|\\"):
        return f"<code>{''.join(char if char.isalnum() or char == ' ' else f'&#{ord(char)};' for char in text)}</code>"
    return f"`{text}`"


def _unbroken(figure: str) -> str:
    """A number and its unit on one line."""
    return figure.replace(" ", "\N{NO-BREAK SPACE}")


def table(heads: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    """``align``: one letter a column, ``l`` or ``r``."""
    rows = [[_unbroken(cell) if side == "r" else cell for cell, side in zip(row, align, strict=True)] for row in rows]
    marks = ["---:" if side == "r" else "---" for side in align]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, marks, *rows))
