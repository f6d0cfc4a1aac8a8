"""How a reader declares what it reads: the register of tables (`boundby.readers.nsys.register`) is made of that."""

from __future__ import annotations

from typing import NamedTuple


class Reads(NamedTuple):
    """A table of an export, the columns that one reader asks it for, and what for. A table can be read by several."""

    table: str
    columns: tuple[str, ...]
    gives: str
