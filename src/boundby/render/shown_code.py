"""Code and shell commands on lines of a given width, so that what is copied from them still runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

from boundby.model.late import expression

_INNER = "    "  # before what goes on
_REMARK = expression(r"(.*?)(?:(?:^| +)(#|//) (.*))?")
_COMMAND = expression(r"(?:[A-Z_][A-Z0-9_]*=\S* )*[\w./~][\w./~+-]*(?: .*)?")
_STATEMENT = expression(r"\s\S?=\s|[;{}]$|\):?$")
_SHELL_WORD = expression(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"])+""")


def is_command(code: str) -> bool:
    """Whether a line is for a shell, not for a compiler or an interpreter."""
    return bool(_COMMAND.fullmatch(code)) and not _STATEMENT.search(code)


def lines(text: str, room: int) -> list[str]:
    """One line of code on as many as it takes, its remark below on lines of its own. A command goes on behind a
    backslash; a word of it stays whole, even if it is longer than a line."""
    if cell_len(text) <= room:
        return [text]
    outer = text[: len(text) - len(text.lstrip())]
    match = _REMARK.fullmatch(text.lstrip())
    code, mark, remark = match.groups("") if match else (text.lstrip(), "", "")
    inner = outer + _INNER if code else outer
    if is_command(code):
        words, end = _SHELL_WORD.findall(code), " \\"
    else:
        words, end = [part for word in code.split(" ") for part in chop_cells(word, room - len(inner)) or [""]], ""
    return [*_code(code, words, outer, room, end), *_remark(mark, remark, inner, room)]


def _code(code: str, words: Sequence[str], outer: str, room: int, end: str) -> list[str]:
    if cell_len(outer + code) <= room:
        return [outer + code] if code else []
    first, *further = _filled(words, room - len(outer + _INNER + end))
    shown = [outer + first, *(outer + _INNER + line for line in further)]
    return [*(line + end for line in shown[:-1]), shown[-1]]


def _remark(mark: str, remark: str, indent: str, room: int) -> list[str]:
    begin = f"{indent}{mark} "
    words = [part for word in remark.split() for part in chop_cells(word, room - len(begin))]
    return [begin + line for line in _filled(words, room - len(begin))]


def _filled(words: Sequence[str], room: int) -> list[str]:
    """Words on lines of at most so many cells, where each fits on one."""
    filled: list[str] = []
    for word in words:
        if filled and cell_len(filled[-1]) + 1 + cell_len(word) <= room:
            filled[-1] += f" {word}"
        else:
            filled.append(word)
    return filled
