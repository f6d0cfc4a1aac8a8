"""The native core built with sanitizers, against what it must equal: what ``scripts/fuzz-native`` runs."""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from boundby.model import library
from tests.readers.test_pages import differential
from tests.support.odd_databases import damage, write_odd

#: Of one database, so many damaged copies are read.
_DAMAGED_COPIES = 4
#: Random parts of the tests that hold passes against their plain twins.
_PASSES = ("account", "chain", "drawing", "events", "forward")
_RANDOM = "not real_traces and not stray_access and not other_sources"


def pages(folder: str, many: int = 10_000, first: int = 0) -> None:
    """Read ``many`` databases natively and by SQLite."""
    path = Path(folder) / "odd.sqlite"
    outcomes: Counter[tuple[str, tuple[str, str]]] = Counter()
    for seed in range(first, first + many):
        write_odd(path, seed // (1 + _DAMAGED_COPIES))
        is_damaged = seed % (1 + _DAMAGED_COPIES) > 0
        if is_damaged:
            damage(path, seed)
        try:
            outcomes["damaged" if is_damaged else "whole", differential(path)] += 1
        except BaseException:
            print(f"seed {seed}", file=sys.stderr)
            raise
        if (seed + 1) % 1000 == 0:
            print(f"{sum(outcomes.values()):,} databases", flush=True)
    for (kind, (numbers, texts)), count in sorted(outcomes.items()):
        print(f"{count:6} {kind} databases: numbers {numbers}, texts {texts}")


def passes(_: str, rounds: int = 1) -> None:
    """Run the random tests, with another seed each time."""
    tests = [f"tests/native/test_{name}.py" for name in _PASSES]
    for seed in range(rounds):
        options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-k", _RANDOM, f"--hypothesis-seed={seed}"]
        if code := pytest.main([*options, *tests]):
            sys.exit(code)


def main(folder: str, what: str, *numbers: str) -> None:
    """Run ``pages`` or ``passes`` with the library in ``folder``."""
    core = ctypes.CDLL(str(Path(folder) / library.NAME))
    library._load = lambda: (core, "")  # type: ignore[assignment]
    chosen: dict[str, Callable[..., None]] = {"pages": pages, "passes": passes}
    chosen[what](folder, *map(int, numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
