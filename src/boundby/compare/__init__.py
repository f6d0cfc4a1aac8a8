"""Two reports set side by side, and limits that a report or a comparison must keep."""

from boundby.compare.between import compare

__all__ = ["compare"]
