"""The rules, one file each. Other packages add theirs through the entry point group ``boundby.rules``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from boundby.results.report import NotChecked
from boundby.rules.findings import one_line
from boundby.rules.rule import GROUPS, Rule

ENTRY_POINTS = "boundby.rules"


@cache
def builtin() -> tuple[Rule, ...]:
    """boundby's own rules, by id: the ``RULE`` of every module here."""
    modules = [importlib.import_module(f"{__name__}.{item.name}") for item in pkgutil.iter_modules(__path__)]
    return tuple(sorted((module.RULE for module in modules if hasattr(module, "RULE")), key=lambda rule: rule.id))


def third_party() -> tuple[tuple[Rule, ...], tuple[NotChecked, ...]]:
    """Rules of installed packages, and entry points that failed. One names a `Rule`, several, or a function that
    returns several. A rule whose id is taken already counts as failed."""
    found: list[Rule] = []
    broken: list[NotChecked] = []
    taken = {rule.id for rule in builtin()}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)):
        try:
            rules = _load(point)
        except Exception as error:  # whatever another package does, it must not keep this one from its work
            broken.append(NotChecked(point.name, f"the entry point {point.value} failed: {one_line(error)}"))
            continue
        for rule in rules:
            if rule.id in taken:
                broken.append(NotChecked(rule.id, f"{point.value} gives a rule of a name that is taken"))
                continue
            taken.add(rule.id)
            found.append(rule)
    return tuple(found), tuple(broken)


def _load(point: EntryPoint) -> list[Rule]:
    loaded = point.load()
    rules = [loaded] if isinstance(loaded, Rule) else list(loaded() if callable(loaded) else loaded)
    for rule in rules:
        if not isinstance(rule, Rule):
            raise TypeError(f"{rule!r} is no Rule")
        if rule.group not in GROUPS:
            raise ValueError(f"the group of {rule.id} is {rule.group!r}, not one of {', '.join(GROUPS)}")
        if not rule.disproof:  # OSError where the page is missing
            raise ValueError(f"the page of {rule.id} does not say what would prove it wrong")
    return rules


def every() -> tuple[Rule, ...]:
    """All rules that are installed and load."""
    return (*builtin(), *third_party()[0])
