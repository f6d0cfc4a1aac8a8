"""The reader of nsys SQLite exports."""

from __future__ import annotations

_MAGIC = b"SQLite format 3\x00"


def sniff(header: bytes) -> bool:
    """True for the first bytes of an SQLite database, one cut short included."""
    return header.startswith(_MAGIC) or _MAGIC.startswith(header[: len(_MAGIC)])
