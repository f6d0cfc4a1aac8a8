"""What a user chose about the rules: in code, on the command line, or in ``[tool.boundby]`` of a pyproject.toml.

```toml
[tool.boundby]
disable = ["trace-no-nvtx"]
thresholds.cuda-graphs.sooner_ns = 600
```
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from boundby.model import door
from boundby.model.errors import InputError, UserError
from boundby.rules.rule import Rule

FILE = "pyproject.toml"
_KEYS = ("disable", "thresholds")


class RuleError(UserError):
    """A rule or threshold that does not exist, or a value that is none."""


class Settings(Struct, frozen=True):
    """What a user chose: rules left out, changed thresholds by (rule, name), and whether small findings are shown."""

    disabled: frozenset[str] = frozenset()
    thresholds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    show_all: bool = False


def make_settings(
    rules: Iterable[Rule],
    *,
    disable: Iterable[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    show_all: bool = False,
) -> Settings:
    """Settings, checked against the rules there are. Raises RuleError.

    ``thresholds``: by rule, then by name.
    """
    by_id = {rule.id: rule for rule in rules}
    for name in disable:
        find_rule(by_id.values(), name)
    changed: dict[tuple[str, str], float] = {}
    for rule_id, values in (thresholds or {}).items():
        rule = find_rule(by_id.values(), rule_id)
        names = {threshold.name for threshold in rule.thresholds}
        for name, value in values.items():
            if name not in names:
                some = ", ".join(sorted(names)) or "none"
                raise RuleError(f"The rule {rule_id} has no threshold {name!r}.", f"Its thresholds: {some}.")
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise RuleError(f"The threshold {rule_id}.{name} is {value!r}.", "Give a number, 0 or more.")
            changed[rule_id, name] = float(value)
    return Settings(frozenset(disable), changed, show_all)


def find_rule(rules: Iterable[Rule], name: str, also: Iterable[str] = ()) -> Rule:
    """The rule of this id. Raises RuleError with the nearest ids there are, and the nearest of the words ``also``."""
    by_id = {rule.id: rule for rule in rules}
    if name in by_id:
        return by_id[name]
    import difflib

    words = list(dict.fromkeys([*by_id, *also]))
    near = difflib.get_close_matches(name, words, n=3, cutoff=0.5) or sorted(
        other for other in words if name and (name in other or other in name)
    )
    patterns = "A pattern is a verdict's name, such as sync. " if also else ""
    hint = f"Did you mean {', '.join(near[:3])}?" if near else f'{patterns}The command "boundby rules" lists the rules.'
    raise RuleError(f"There is no {'pattern or ' if also else ''}rule {name!r}.", hint)


def _read(file: Path) -> dict[str, Any] | None:
    """A TOML file; None: it does not speak of boundby."""
    try:
        text = door.read_text(file)
        if "boundby" not in text:
            return None
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        return tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}.", "Correct it, or run boundby elsewhere.") from error


def read_config(folder: Path) -> dict[str, Any]:
    """``[tool.boundby]`` of the nearest pyproject.toml in this folder or above it; {} without one.

    Raises InputError for a file that cannot be read, and for keys or values that are none of boundby's.
    """
    file = next((parent / FILE for parent in (folder, *folder.parents) if (parent / FILE).is_file()), None)
    data = None if file is None else _read(file)
    if data is None:
        return {}
    tool = data.get("tool", {})
    section: object = tool.get("boundby", {}) if isinstance(tool, dict) else {}
    if not isinstance(section, dict):
        raise InputError(f"[tool.boundby] in {file} is not a table.", "See docs/findings.md.")
    if unknown := sorted(set(section) - set(_KEYS)):
        raise InputError(f"[tool.boundby] in {file} has no key {unknown[0]!r}.", f"Keys: {', '.join(_KEYS)}.")
    disable, thresholds = section.get("disable", []), section.get("thresholds", {})
    if not isinstance(disable, list) or not all(isinstance(name, str) for name in disable):
        raise InputError(f"disable in {file} is not a list of rules.", 'Write: disable = ["trace-no-nvtx"].')
    if not isinstance(thresholds, dict) or not all(isinstance(values, dict) for values in thresholds.values()):
        raise InputError(f"thresholds in {file} is not a table.", "Write: thresholds.RULE.NAME = VALUE.")
    return {"disable": disable, "thresholds": thresholds}
