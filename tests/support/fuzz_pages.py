"""Many databases through the native reader and through SQLite: what ``scripts/fuzz-reader`` runs."""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from pathlib import Path

from boundby.model import library
from tests.readers.test_pages import differential
from tests.support.odd_databases import damage, write_odd

#: Of one database, so many damaged copies are read.
_DAMAGED_COPIES = 4


def main(folder: str, many: str, first: str) -> None:
    """Read ``many`` databases with the library in ``folder``."""
    core = ctypes.CDLL(str(Path(folder) / library.NAME))
    library._load = lambda: (core, "")  # type: ignore[assignment]
    path = Path(folder) / "odd.sqlite"
    outcomes: Counter[tuple[str, tuple[str, str]]] = Counter()
    for seed in range(int(first), int(first) + int(many)):
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


if __name__ == "__main__":
    main(*sys.argv[1:])
