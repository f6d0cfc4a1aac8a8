"""A budget file: TOML with limits. Whatever is wrong in it is one sentence with its line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from boundby.compare.gate import Limit, LimitError, parse
from boundby.model import door
from boundby.model.errors import InputError

_KEYS = ("limits", "limit", "steps")
_LIMIT_KEYS = ("check", "why", "optional")
_EXAMPLE = 'Such as: limits = ["step.time < 12 ms"]'


class Budget(Struct, frozen=True):
    """``steps``: a glob of the region that is the program's step (None: guessed)."""

    limits: tuple[Limit, ...]
    steps: str | None = None


def read(path: Path) -> Budget:
    """The budget in a file. Raises InputError, LimitError."""
    try:
        text = door.read_text(path)
    except OSError as error:
        raise InputError(f"Cannot read the budget {path}: {error.strerror}.", "Check the name.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"The budget {path} is not text.", "Give a TOML file.") from error
    return loads(text, str(path))


def loads(text: str, name: str = "budget") -> Budget:
    """The budget that TOML text holds."""
    data = _toml(text, name)
    for key in data:
        if key not in _KEYS:
            raise _wrong(text, name, key, f"there is no setting {key!r}", f"Known are {', '.join(_KEYS)}.")
    steps = data.get("steps")
    if steps is not None and not isinstance(steps, str):
        raise _wrong(text, name, "steps", "steps is not the name of a region", 'Such as: steps = "train/batch"')
    plain, tables = data.get("limits", []), data.get("limit", [])
    if not isinstance(plain, list) or not all(isinstance(item, str) for item in plain):
        raise _wrong(text, name, "limits", "limits is not a list of strings", _EXAMPLE)
    if not isinstance(tables, list) or not all(isinstance(item, dict) for item in tables):
        raise _wrong(text, name, "limit", "limit is not a list of tables", "Write [[limit]] before each.")
    limits = [_limit(text, name, {"check": item}) for item in plain] + [_limit(text, name, item) for item in tables]
    if not limits:
        raise InputError(f"{name} holds no limit.", _EXAMPLE)
    return Budget(tuple(limits), steps)


def _toml(text: str, name: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name} is not TOML: {error}.", _EXAMPLE) from error


def _limit(text: str, name: str, item: Mapping[str, Any]) -> Limit:
    check = item.get("check")
    for key, value in item.items():
        expected = {"check": str, "why": str, "optional": bool}.get(key)
        if expected is None:
            raise _wrong(text, name, key, f"a limit has no {key!r}", f"Known are {', '.join(_LIMIT_KEYS)}.")
        if not isinstance(value, expected):
            kind = "true or false" if expected is bool else "a string"
            raise _wrong(text, name, key, f"{key} is not {kind}", _EXAMPLE)
    if check is None:
        raise _wrong(text, name, "[[limit]]", "a [[limit]] has no check", 'Such as: check = "step.time < 12 ms"')
    try:
        return parse(check, optional=item.get("optional", False), reason=item.get("why", ""))
    except LimitError as error:
        raise LimitError(f"{name}, line {_line(text, check)}: {error.message}", error.next_step) from error


def _wrong(text: str, name: str, where: str, what: str, hint: str) -> InputError:
    return InputError(f"{name}, line {_line(text, where)}: {what}.", hint)


def _line(text: str, wanted: str) -> int:
    """The line that holds the text; TOML parsers do not tell."""
    for candidate in (wanted, wanted.replace("\\", "\\\\").replace('"', '\\"')):
        for number, line in enumerate(text.splitlines(), 1):
            if candidate and candidate in line.partition("#")[0]:
                return number
    return 1
