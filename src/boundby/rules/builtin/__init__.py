"""The rules: a file for each kind, or for one that stands alone. Other packages add theirs (`third_party`)."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from boundby.model import door
from boundby.results.report import NotChecked
from boundby.rules.matches import one_line
from boundby.rules.rule import GROUPS, Rule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "boundby.rules"


@cache
def builtin() -> tuple[Rule, ...]:
    """boundby's own rules, by id: those of every module here."""
    names = sorted(file.stem for file in Path(__file__).parent.glob("*.py") if file.stem != "__init__")
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    by_id = {rule.id: rule for module in modules for rule in vars(module).values() if isinstance(rule, Rule)}
    return tuple(by_id[rule_id] for rule_id in sorted(by_id))


def third_party() -> tuple[tuple[Rule, ...], tuple[NotChecked, ...]]:
    """Rules of installed packages, and entry points that failed. One names a `Rule`, several, or a function that
    returns several. A rule whose id is taken already counts as failed."""
    offered: list[Rule] = []
    broken: list[NotChecked] = []
    taken = {rule.id for rule in builtin()}
    for point in sorted(_installed(), key=lambda point: (point.name, point.value)):
        try:
            rules = _load(point)
        except (
            Exception,
            SystemExit,
        ) as error:  # whatever another package does
            broken.append(NotChecked(point.name, f"the entry point {point.value} failed: {one_line(error)}"))
            continue
        for rule in rules:
            if rule.id in taken:
                broken.append(NotChecked(rule.id, f"{point.value} gives a rule whose name is taken"))
                continue
            taken.add(rule.id)
            offered.append(rule)
    return tuple(offered), tuple(broken)


def _installed() -> Iterable[EntryPoint]:
    """What other packages offer. Their files are looked at first: ``importlib.metadata`` alone costs as much as a tenth
    of a small report's analysis."""
    if not any(_offers(folder, _changed_ns(folder)) for folder in sys.path):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINTS)


def _changed_ns(place: str) -> int:
    """When something was installed there last."""
    try:
        return os.stat(place or ".").st_mtime_ns  # noqa: PTH116  (a string will do)
    except OSError:
        return 0


@lru_cache(maxsize=32)
def _offers(place: str, _changed_ns: int) -> bool:
    """Whether a distribution in this place of Python's path may have rules; archives may. It is looked again once
    something has been installed there."""
    try:
        names = [name for name in os.listdir(place or ".") if name.endswith(("-info", ".egg"))]  # noqa: PTH208  (names will do)
    except OSError:
        return os.path.isfile(place)  # noqa: PTH113  (that of pathlib raises where it may not look)
    lists = (Path(place, name, "entry_points.txt") for name in names)
    try:
        return any(ENTRY_POINTS.encode() in door.read_bytes(file) for file in lists if file.is_file())
    except OSError:
        return True


def _load(point: EntryPoint) -> list[Rule]:
    loaded = point.load()
    rules = [loaded] if isinstance(loaded, Rule) else list(loaded() if callable(loaded) else loaded)
    for rule in rules:
        if not isinstance(rule, Rule):
            raise TypeError(f"{rule!r} is not a Rule")
        if rule.group not in GROUPS:
            raise ValueError(f"the group of {rule.id} is {rule.group!r}, not one of {', '.join(GROUPS)}")
        if not rule.disproof:  # OSError where the page is missing
            raise ValueError(f"the page of {rule.id} does not say what would prove it wrong")
    return rules


def every() -> tuple[Rule, ...]:
    """All rules that are installed and load."""
    return (*builtin(), *third_party()[0])
