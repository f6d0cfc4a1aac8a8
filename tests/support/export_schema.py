"""The tables of real exports live with the simulator; tests take them from here."""

from __future__ import annotations

from boundby.simulate.nsys_export import GENERATIONS, tables

__all__ = ["GENERATIONS", "tables"]
