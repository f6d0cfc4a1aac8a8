"""What is worked out late: regular expressions when they are first used, and answers when they are first asked for,
which whoever is asked keeps. A report meets a few of the two hundred expressions that modules hold, and to compile
them all takes a tenth of the time of a small one."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from re import compile as expression
else:

    class _Late:
        """``re.compile``, late: its methods and attributes are those of what it compiles."""

        def __init__(self, text: str | bytes, flags: int = 0) -> None:
            self._given = text, flags

        def __getattr__(self, name: str) -> Any:
            value = getattr(re.compile(*self._given), name)
            setattr(self, name, value)  # not asked for here again
            return value

    expression = _Late


Owner = TypeVar("Owner")
Key = ParamSpec("Key")
T = TypeVar("T")


def once(make: Callable[Concatenate[Owner, Key], T]) -> Callable[Concatenate[Owner, Key], T]:
    """A method, or a function of an object: each answer is kept in the object, by the arguments beside it."""

    @wraps(make)
    def remembered(owner: Owner, /, *key: Key.args, **named: Key.kwargs) -> T:
        kept = answers(owner)
        asked = make, *key
        if asked not in kept:
            kept[asked] = make(owner, *key, **named)
        return cast(T, kept[asked])

    return remembered


def answers(owner: object) -> dict[tuple[Any, ...], Any]:
    """All that is kept in an object, by the function and its further arguments."""
    kept: dict[tuple[Any, ...], Any] = vars(owner).setdefault("answers", {})
    return kept


__all__ = ["answers", "expression", "once"]
