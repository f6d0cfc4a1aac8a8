"""The reader of nsys exports: SQLite files, and folders of columns (``--type arrowdir`` and ``parquetdir``)."""

from __future__ import annotations

from pathlib import Path

from boundby.model.inputs import INPUTS

_MAGIC = b"SQLite format 3\x00"

#: What an export that is a folder is called as a ``source``, by the end of its files' names.
COLUMN_FILES = {kind.suffixes[0]: kind.source for kind in INPUTS if kind.is_folder}
_TELLING = ("StringIds", "NVTX_EVENTS", "META_DATA_CAPTURE", "TARGET_INFO_SESSION_START_TIME")


def sniff(header: bytes) -> bool:
    """True for the first bytes of an SQLite database, one cut short included."""
    return header.startswith(_MAGIC) or _MAGIC.startswith(header[: len(_MAGIC)])


def export_kind(folder: Path) -> str | None:
    """What kind of export a folder is, as a ``source``; None where it is none."""
    kinds = (kind for end, kind in COLUMN_FILES.items() for table in _TELLING if (folder / f"{table}{end}").is_file())
    return next(kinds, None)
