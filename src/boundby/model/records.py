"""Plain frozen data: ``@dataclass(frozen=True)``, for a program that makes two hundred of them at each start.

The standard library writes and compiles six functions for every frozen dataclass, about 1 ms: a quarter of the time
that a small report took. Here nothing is compiled: what makes a record, compares, hashes, prints and refuses changes is
the same for all of them, and says the same; only what fills the records of a class is compiled, once very many were
made. Fields are gone through when the first is made or asked for its ``fields``; by ``dataclasses`` itself only once
somebody asks that, whose own are these `fields` and `replace`.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import threading
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dataclasses import dataclass, fields, replace
else:

    def dataclass(*, frozen: bool, eq: bool = True, kw_only: bool = False) -> Callable[[type], type]:
        """``dataclasses.dataclass`` for frozen classes; their attributes are set once."""
        if not frozen:
            raise TypeError("what can change is a dataclasses.dataclass")

        def make(cls: type) -> type:
            shared = {
                "__init__": _fill,
                "__repr__": _repr,
                "__setattr__": _set_once,
                "__delattr__": _refuse_to_delete,
                "__kw_only__": kw_only,
            }
            shared |= {name: _Late(cls, name) for name in _LATE}
            if eq:
                shared |= {"__eq__": _equal, "__hash__": _hash}
            for name, function in shared.items():
                if name not in vars(cls):
                    setattr(cls, name, function)
            return cls

        return make

    def fields(record: Any) -> tuple[Any, ...]:
        """Names and types of the fields of a record, or of a class of them."""
        layout = getattr(record, "__layout__", None)
        return dataclasses.fields(record) if layout is None else layout.fields

    def replace(record: Any, /, **changes: object) -> Any:
        """The record, with these fields changed. Raises TypeError for what is no field."""
        layout = getattr(record, "__layout__", None)
        if layout is None:
            return dataclasses.replace(record, **changes)
        if unknown := changes.keys() - layout.names.keys():
            raise TypeError(f"{type(record).__qualname__} has no {', '.join(sorted(unknown))}")
        other = object.__new__(type(record))
        other.__dict__.update({name: getattr(record, name) for name in layout.names if name not in changes}, **changes)
        if layout.finishes:
            other.__post_init__()
        return other


class _Late:
    """What a class has once it is asked for."""

    def __init__(self, cls: type, name: str) -> None:
        self.cls, self.name = cls, name

    def __get__(self, record: object, owner: type) -> object:
        with _MAKING:
            if vars(self.cls).get(self.name) is self:
                setattr(self.cls, self.name, _LATE[self.name](self.cls))
        return getattr(owner, self.name)


_MAKING = threading.RLock()
#: What fills the records of a class is compiled once so many were made: that takes as long as it saves for 200 of them.
_MANY = 500


class _Field(NamedTuple):
    name: str
    type: object


_Rest = tuple[dict[str, object], tuple[tuple[str, Callable[[], object]], ...]]


class _Layout:
    """The fields of a class in order, what makes their defaults, and which are given by place, compared and shown."""

    def __init__(self, cls: Any) -> None:
        self.names: dict[str, bool] = {}  # and whether a field is given by name alone
        self.types: dict[str, object] = {}
        self.values: dict[str, object] = {}
        self.makers: dict[str, Callable[[], object]] = {}
        self.silent: dict[str, set[str]] = {"compare": set(), "repr": set()}
        for base in cls.__mro__[:0:-1]:
            if "__layout__" in vars(base):
                inherited = base.__layout__
                self.names |= inherited.names
                self.types |= inherited.types
                self.values |= inherited.values
                self.makers |= inherited.makers
                self.silent = {what: self.silent[what] | names for what, names in inherited.silent.items()}
        for name, annotation in vars(cls).get("__annotations__", {}).items():
            if "ClassVar" not in str(annotation).partition("[")[0]:
                self.types[name] = annotation
                self._add(name, vars(cls).get(name, dataclasses.MISSING), by_name=cls.__kw_only__)
        self.rests: dict[tuple[object, ...], _Rest] = {}  # by what is given
        self.by_place = tuple(name for name, by_name in self.names.items() if not by_name)
        self.compared = tuple(name for name in self.names if name not in self.silent["compare"])
        self.shown = tuple(name for name in self.names if name not in self.silent["repr"])
        self.finishes = hasattr(cls, "__post_init__")
        self.cls, self.made = cls, 0
        self.fields = tuple(_Field(name, self.types[name]) for name in self.names)

    def _add(self, name: str, default: Any, *, by_name: bool) -> None:
        self.names[name] = by_name
        if isinstance(default, dataclasses.Field):
            for what, names in self.silent.items():
                if not getattr(default, what):
                    names.add(name)
            if default.default_factory is not dataclasses.MISSING:
                self.makers[name] = default.default_factory
            default = default.default
        if default is not dataclasses.MISSING:
            self.values[name] = default

    def rest(self, cls: type, by_place: int, *named: str) -> _Rest:
        """What completes a record that is made of so many values by place and these by name: defaults, and what makes
        them. Raises TypeError where these are not the fields."""
        given = [*self.by_place[:by_place], *named]
        values = {name: value for name, value in self.values.items() if name not in given}
        makers = {name: make for name, make in self.makers.items() if name not in given}
        missing = ", ".join(name for name in self.names if name not in {*given, *values, *makers})
        if missing or by_place > len(self.by_place) or len({*given} & self.names.keys()) < by_place + len(named):
            wants = f"{cls.__qualname__}{self.signature()}"
            raise TypeError(f"{wants} got other arguments" + (f": {missing} missing" if missing else ""))
        return values, tuple(makers.items())

    def signature(self) -> inspect.Signature:
        """What tools show of the class."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        rows = sorted(self.names.items(), key=lambda row: row[1])
        empty = inspect.Parameter.empty
        defaults = self.values | {name: make() for name, make in self.makers.items()}
        return inspect.Signature(
            [inspect.Parameter(name, kinds[late], default=defaults.get(name, empty)) for name, late in rows]
        )

    def hasten(self) -> None:
        """Let the class have what fills its records as a function of its own, three times as fast."""
        scope: dict[str, Any] = {"_later": object()}
        given = {False: [], True: ["*"]} if True in self.names.values() else {False: []}
        lines = ["_state = self.__dict__"]
        for name, by_name in self.names.items():
            lines.append(f"_state[{name!r}] = {name}")
            default = ""
            if name in self.makers:
                scope[f"_make_{name}"], default = self.makers[name], "=_later"
                lines[-1] += f" if {name} is not _later else _make_{name}()"
            elif name in self.values:
                scope[f"_default_{name}"], default = self.values[name], f"=_default_{name}"
            given[by_name].append(name + default)
        lines += ["self.__post_init__()"] * self.finishes
        parameters = ", ".join(["self", *itertools.chain(*given.values())])
        exec(f"def __init__({parameters}):\n " + "\n ".join(lines), scope)  # names of fields alone
        if vars(self.cls).get("__init__") is _fill:
            self.cls.__init__ = scope["__init__"]


def _fill(self: Any, *values: object, **named: object) -> None:
    layout, state = self.__layout__, self.__dict__
    layout.made += 1
    if layout.made == _MANY:
        layout.hasten()
    given = (len(values), *named)  # where a record is made, its fields stand in the same order each time
    rest = layout.rests.get(given)
    if rest is None:
        rest = layout.rests[given] = layout.rest(self.__class__, *given)
    state.update(rest[0])
    if values:
        state.update(zip(layout.by_place, values, strict=False))
    state.update(named)
    for name, make in rest[1]:
        state[name] = make()
    if layout.finishes:
        self.__post_init__()


def _finish(cls: Any) -> Any:
    """Let ``dataclasses`` know the fields, too."""
    _ = cls.__layout__  # before the defaults are taken out of the class
    for late in ("__dataclass_fields__", "__match_args__"):
        if isinstance(vars(cls).get(late), _Late):
            delattr(cls, late)
    return dataclasses.dataclass(init=False, eq=False, repr=False, kw_only=cls.__kw_only__)(cls)


def _compared(record: Any) -> tuple[object, ...]:
    return tuple(getattr(record, name) for name in record.__layout__.compared)


def _equal(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in self.__layout__.shown)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _set_once(self: Any, name: str, value: object) -> None:
    if name in self.__dict__ or name not in self.__layout__.names:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _refuse_to_delete(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


#: What each is made of.
_LATE: dict[str, Callable[[Any], object]] = {
    "__layout__": _Layout,
    "__signature__": lambda cls: cls.__layout__.signature(),
    "__dataclass_fields__": lambda cls: _finish(cls).__dataclass_fields__,
    "__match_args__": lambda cls: _finish(cls).__match_args__,
}


class Mark:
    """What an annotation says of a field, without values of its own."""


LATER = Mark()  #: came after the first published form: a saved result may lack it


__all__ = ["LATER", "Mark", "dataclass", "fields", "replace"]
