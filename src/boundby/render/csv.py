"""Report -> CSV: one row per region, one column per cause; or one per kernel or CUDA call of each region. For
spreadsheets, so formulas in names are defused."""

from __future__ import annotations

import csv
import io

from boundby.document.blocks import clean
from boundby.results.flat_tables import Scalar, columns, rows
from boundby.results.report import Report

# What a spreadsheet takes for a formula. A leading apostrophe makes it text (the usual remedy).
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render(report: Report, table: str = "regions") -> str:
    """Header and rows, lines ended by ``\\n``; empty cells mean "not captured"."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(columns(table)), lineterminator="\n")
    writer.writeheader()
    for row in rows(report, table):
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return stream.getvalue()


def _cell(value: Scalar) -> Scalar:
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if value.startswith(_FORMULA) or text.startswith(_FORMULA) else text
