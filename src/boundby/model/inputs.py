"""What can be analysed, one row each: how its files are called. Whoever asks for a kind by a name asks here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from msgspec import Struct


class InputKind(Struct, frozen=True):
    """Files of one kind."""

    suffixes: tuple[str, ...]
    source: str  # what a trace of it is called in reports
    needs_nsys: bool = False  # it is exported first
    is_folder: bool = False  # a folder of such files is one report
    is_sought: bool = True  # found in folders by its name; else only where it is named
    is_nsys: bool = True  # nothing else is called so
    sure_suffixes: tuple[str, ...] = ()  # where other files may be called so: what nothing else is called


#: The first is preferred where several are of one recording: what needs no nsys comes first.
INPUTS = (
    InputKind((".sqlite",), "nsys-sqlite"),
    InputKind((".nsys-rep",), "nsys-rep", needs_nsys=True),
    InputKind((".qdrep",), "nsys-qdrep", needs_nsys=True),
    InputKind((".qdstrm",), "nsys-rep", needs_nsys=True),
    InputKind((".json", ".json.gz"), "pytorch", is_nsys=False, sure_suffixes=(".pt.trace.json", ".json.gz")),
    InputKind((".sqlite3", ".db"), "nsys-sqlite", is_sought=False),
    InputKind((".arrow",), "nsys-arrow", is_folder=True, is_sought=False),
    InputKind((".parquet",), "nsys-parquet", is_folder=True, is_sought=False),
)


def by_suffix(*, sought: bool = False) -> Iterator[tuple[str, InputKind]]:
    """Each suffix of a file, and its kind, preferred ones first. ``sought``: those that folders are searched for."""
    for kind in INPUTS:
        if not kind.is_folder and (kind.is_sought or not sought):
            yield from ((suffix, kind) for suffix in kind.suffixes)


def named(*sources: str) -> str:
    """``.json, .json.gz``: the suffixes of these sources that folders are searched for, as people are told of them."""
    return ", ".join(suffix for suffix, kind in by_suffix(sought=True) if kind.source in sources)


def input_kind(path: PurePath | str, *, sought: bool = False) -> InputKind | None:
    """Of a file by its name; None: no report is called so."""
    name = PurePath(path).name.lower()
    return next((kind for suffix, kind in by_suffix(sought=sought) if name.endswith(suffix)), None)


def split_suffix(path: PurePath) -> tuple[str, str] | None:
    """The name before the suffix, and the suffix, of a file that folders are searched for; None: it is none."""
    name = path.name
    ending = next((suffix for suffix, _ in by_suffix(sought=True) if name.lower().endswith(suffix)), None)
    return None if ending is None else (name[: -len(ending)], ending)
