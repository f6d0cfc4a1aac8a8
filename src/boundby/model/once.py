"""What is worked out when it is first asked for, and kept in whom it is asked of."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

Owner = TypeVar("Owner")
Key = ParamSpec("Key")
T = TypeVar("T")


def once(make: Callable[Concatenate[Owner, Key], T]) -> Callable[Concatenate[Owner, Key], T]:
    """A method, or a function of an object: each answer is kept in the object, by the arguments beside it."""

    @wraps(make)
    def remembered(owner: Owner, /, *key: Key.args, **named: Key.kwargs) -> T:
        known = answers(owner)
        asked = make, *key
        if asked not in known:
            known[asked] = make(owner, *key, **named)
        return cast(T, known[asked])

    return remembered


def answers(owner: object) -> dict[tuple[Any, ...], Any]:
    """All that is kept in an object, by the function and its further arguments."""
    known: dict[tuple[Any, ...], Any] = vars(owner).setdefault("answers", {})
    return known
