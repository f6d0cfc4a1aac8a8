"""Numbers, names and bare tables as ``tables.py`` shows them."""

from __future__ import annotations

import statistics as plain
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from boundby.measure.results import BatchPoint
from boundby.model import units
from boundby.model.units import duration

DIM = "dim"


def clean(text: str) -> str:
    """A name on one line, with nothing in it that a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text)


def pairs(pairs: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", ratio=1)
    for label, value in pairs:
        table.add_row(Text(label), Text(value))
    return table


def table(*headings: str) -> Table:
    """``>`` before a heading puts the column to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM)
    for heading in headings:
        right = heading.startswith(">")
        text = heading.removeprefix(">")
        table.add_column(Text(text), justify="right" if right else "left", overflow="fold")
    return table


def between(low: float, high: float) -> str:
    """A range of times with one digit more than ``duration``: the two ends of a narrow one must not read the same."""
    scale, unit = next((pair for pair in _UNITS if high < 1000 * pair[0]), _UNITS[-1])
    ends = (low / scale, high / scale)
    digits = next((n for n in range(4) if f"{ends[0]:.{n}f}" != f"{ends[1]:.{n}f}" and high / scale * 10**n >= 999), 3)
    digits = min(digits, 1) if unit == "ns" else digits
    return f"{ends[0]:.{digits}f}-{ends[1]:.{digits}f} {unit}"


_UNITS = ((1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s"))


def times(ratio: float) -> str:
    return f"{ratio:,.2f} times the median" if ratio < 100 else f"{ratio:,.0f} times the median"


def median(values: Sequence[int] | None) -> str:
    return duration(plain.median(values)) if values else ""


def rate(point: BatchPoint) -> str:
    return f"{number(point.samples_per_s)} samples/s"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def change(low: int, high: int, base: int) -> str:
    ends = [units.change(end / base - 1) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def p_value(value: float | None) -> str:
    if value is None:
        return "not tested"
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}" if value > 0 else "<1e-300"
