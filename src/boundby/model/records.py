"""Plain frozen data: ``@dataclass(frozen=True)``, for a program that makes two hundred of them at each start.

The standard library writes and compiles six functions for every frozen dataclass, about 1 ms: a quarter of the time
that a small report took. Here only ``__init__`` is; what compares, hashes, prints and refuses changes is the same for
all of them, and says the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, eq: bool = True, kw_only: bool = False) -> Callable[[type], type]:
        """``dataclasses.dataclass`` for frozen classes; their attributes are set once."""
        if not frozen:
            raise TypeError("what can change is a dataclasses.dataclass")

        def make(cls: type) -> type:
            shared = {"__repr__": _repr, "__setattr__": _set_once, "__delattr__": _refuse_to_delete}
            if eq:
                shared |= {"__eq__": _equal, "__hash__": _hash}
            for name, function in shared.items():
                if name not in vars(cls):
                    setattr(cls, name, function)
            return dataclasses.dataclass(eq=False, repr=False, kw_only=kw_only)(cls)

        return make


def _compared(record: Any) -> tuple[object, ...]:
    return tuple(getattr(record, field.name) for field in dataclasses.fields(record) if field.compare)


def _equal(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _set_once(self: Any, name: str, value: object) -> None:
    if name in self.__dict__ or name not in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _refuse_to_delete(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


class Mark:
    """What an annotation says of a field, without values of its own."""


LATER = Mark()  #: came after the first published form: a saved result may lack it


__all__ = ["LATER", "Mark", "dataclass"]
