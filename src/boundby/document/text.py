"""Names out of a trace are anybody's text: made harmless here before any renderer shows them."""

from __future__ import annotations

import unicodedata

_HIDDEN = {"Cc", "Cf", "Zl", "Zp", "Cn"}  # control, format (bidi marks among them), line breaks, unassigned


def clean(text: str) -> str:
    """The text on one line, with nothing in it that a terminal or a browser would obey.

    Control and format characters become visible escapes (``\\x1b``), lone surrogates the replacement character.
    """
    if text.isprintable():
        return text
    return "".join(_visible(char) for char in text)


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
    tail = chop_cells(text[::-1], keep // 2)[0][::-1]
    return f"{chop_cells(text, keep - keep // 2)[0]}{ellipsis}{tail}"


def file_name(path: str) -> str:
    """A path's last part, of whatever system it is."""
    return clean(path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1])


def part_name(part: str) -> str:
    """One part of a region's path; a range may have no name."""
    return clean(part.strip(" ")) or "(unnamed)"


def region_name(path: tuple[str, ...]) -> str:
    """``step/forward``; the root, which holds what no range owns, is ``(no range)``."""
    return "/".join(part_name(part) for part in path) if path else "(no range)"
