"""Real nsys exports to test on: found by BOUNDBY_TRACES, else in shared/traces beside the checkout.

They are never part of the project, so a clone may have none: then the tests on them are skipped, and say why.
Parametrize over ``trace_names()`` and turn a name into a file with ``trace_path(name)`` inside the test, or into its
analysis with ``analysis_of(name)``: all tests of one trace run one after the other (conftest.py), so that it is read
and analysed once for all of them.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from functools import lru_cache
from pathlib import Path

import pytest

from boundby.api import Analysis

VARIABLE = "BOUNDBY_TRACES"
REPOSITORY = Path(__file__).parents[2]
BESIDE = REPOSITORY.parent / "shared" / "traces"
#: Stands for the traces in a parametrized test where there are none; ``trace_path`` of it skips.
ABSENT = "no traces"
#: A trace that has no events.
UNREADABLE = "oddities/partial_export.sqlite"


def traces_folder() -> Path | None:
    """The folder of real traces, or None where there is none."""
    folder = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else BESIDE
    return folder if folder.is_dir() else None


def traces() -> list[Path]:
    """Every real trace, by name; those of ``oddities`` too. Empty where there is no folder."""
    folder = traces_folder()
    return sorted(folder.rglob("*.sqlite")) if folder else []


def kineto_traces() -> list[Path]:
    """Every real trace of PyTorch's profiler, by name. Empty where there is no folder."""
    folder = traces_folder()
    return sorted((folder / "kineto").rglob("*.json.gz")) if folder else []


def trace_names() -> list[str]:
    """Names to parametrize over, such as ``oddities/tiny_old.sqlite``; never empty, so that a skip is seen."""
    folder = traces_folder()
    return [path.relative_to(folder).as_posix() for path in traces()] if folder else [ABSENT]


@lru_cache(maxsize=1)
def programs() -> list[str]:
    """Of ``trace_names()`` those that can be read; of runs of one program (the same first two words) that hold the same
    tables only the smallest."""
    chosen: dict[object, str] = {}
    for name in sorted(trace_names(), key=lambda name: (size_of(name), name)):
        with contextlib.suppress(sqlite3.DatabaseError):  # no database: other tests say so
            tables = tables_of(trace_path(name)) if traces_folder() else None
            if name != UNREADABLE:
                chosen.setdefault((*name.split("_")[:2], tables), name)
    return sorted(chosen.values())


def size_of(name: str) -> int:
    """Bytes of a trace; 0 where there is none."""
    return trace_path(name).stat().st_size if traces_folder() else 0


def trace_path(name: str) -> Path:
    """The file of one trace, or a skip that says what is missing."""
    folder = traces_folder()
    if folder is None:
        pytest.skip(f"no real traces to test on: set {VARIABLE} to a folder of nsys .sqlite exports")
    path = folder / name
    if not path.exists():
        pytest.skip(f"{VARIABLE} or shared/traces holds no {name}")
    return path


@lru_cache(maxsize=2)
def analysis_of(name: str) -> Analysis:
    """The analysis of one trace as users get it, shared by the tests of this trace: do not change it."""
    return Analysis(trace_path(name))


def tables_of(path: Path) -> frozenset[str]:
    """The tables of an export."""
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return frozenset(name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'"))
    finally:
        connection.close()
