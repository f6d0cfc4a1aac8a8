"""An experiment's result -> terminal, HTML page."""

from __future__ import annotations

from rich.text import Text

from boundby.document import proof_document as told
from boundby.render.face import DEFAULT_WIDTH, DIM, MIN_WIDTH, ColorSystem, Face, pad
from boundby.render.html import environment
from boundby.results.proof import Proof

_SCALE = 100.0
#: Cells between two columns.
_GAP = 2


def terminal(
    proof: Proof, *, width: int = DEFAULT_WIDTH, color_system: ColorSystem | None = None, unicode: bool = True
) -> str:
    """The answer first, then what each part is worth, what was tried, and what makes it less sure."""
    face = Face(max(width, MIN_WIDTH), color_system, unicode)
    blocks = [[face.heading(told.headline(proof))]]
    blocks.append([line for sentence in told.sentences(proof) for line in face.wrapped(sentence)])
    tables = [table for table in (told.worth(proof), told.removals(proof)) if table is not None]
    blocks += [[face.painted(table.title, "bold"), *_rows(face, table)] for table in tables]
    blocks.append([line for doubt in proof.doubts for line in face.wrapped(doubt, style=DIM)])
    return face.text([block for block in blocks if block])


def _rows(face: Face, table: told.ProofTable) -> list[Text]:
    *narrow, _ = zip(table.columns, *table.rows, strict=True)
    widths = [max(map(len, column)) + _GAP for column in narrow]
    lines: list[Text] = []
    for row in (table.columns, *table.rows):
        first = "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        lines += face.wrapped(row[-1] or " ", first=pad(face.painted(first, ""), sum(widths)))
    return lines


def html(proof: Proof) -> str:
    """A whole page."""
    tables = [table for table in (told.removals(proof), told.conditions(proof)) if table is not None]
    bars = [(part, _SCALE * part.saved_per_ns.low, _SCALE * part.saved_per_ns.high) for part in proof.parts]
    return environment().get_template("proof.html.j2").render(proof=proof, tell=told, tables=tables, bars=bars)
