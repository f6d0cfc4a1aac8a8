"""Results as JSON, and back: what ``-o result.json`` writes can be shown, drawn, compared and checked again.

The text is byte-stable: keys stand in the order of the fields, no float is NaN or infinite, no string holds a lone
surrogate.

A field is written under its own name and in its own place; JSON, its schema and flat tables all follow the annotations.
What is to be said beyond a field's type stands in ``Annotated``: a text (what it means, for the schema and the docs)
and marks such as ``Named`` or ``Flat``. ``@derived`` properties are written too, and passed over when read.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, Union

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from boundby.__about__ import __version__
from boundby.model import door
from boundby.model.causes import CAUSE_KEYS
from boundby.model.errors import InputError
from boundby.model.late import expression
from boundby.trace.facts import LATER as LATER
from boundby.trace.facts import Mark

Json = dict[str, Any]
Getter = Callable[[Any], Any]
T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


class Least(Struct, frozen=True):
    """The smallest value possible."""

    value: int


class OneOf(Struct, frozen=True):
    """The only values possible."""

    values: tuple[str, ...]


class Named(Struct, frozen=True):
    """The key, where it is not the field's name."""

    key: str


class Flat(Struct, frozen=True):
    """The inner keys (``only`` these and in this order, if any are named) stand among those of what holds it."""

    only: tuple[str, ...] = ()


class ColumnMark(Struct, frozen=True):
    """In flat tables: another ``name`` (of what has parts, their prefix), and ``after`` which field it stands.
    ``joined``: what stands between the parts of a tuple of texts. ``is_left_out``: it has no column."""

    name: str | None = None
    after: str = ""
    joined: str | None = None
    is_left_out: bool = False


UNWRITTEN = Mark()  #: not in JSON, nor in tables
BY_CAUSE = Mark()  #: a mapping of every cause to nanoseconds, in the order of causes
NO_COLUMN = ColumnMark(is_left_out=True)
JSON_ONLY = (LATER, NO_COLUMN)  #: a key that older results lack, and of which tables have no column

Natural = Annotated[int, Least(0)]
NonNegative = Annotated[float, Least(0)]
Times = Annotated[Mapping[str, Natural], BY_CAUSE]
RegionPath = Annotated[tuple[str, ...], ColumnMark(joined="/")]


class _Derived(Struct, frozen=True):
    after: str
    is_key: bool
    is_column: bool


def derived(after: str, *, is_key: bool = True, is_column: bool = True) -> Callable[[Function], Function]:
    """Mark the getter of a property as written ``after`` a field: as a JSON key, as a column of tables, or both. Its
    docstring is its meaning."""

    def mark(function: Function) -> Function:
        function.__dict__["derived"] = _Derived(after, is_key, is_column)
        return function

    return mark


class PlainKind(Struct, frozen=True, dict=True):
    """An annotation taken apart: the bare type, whether None will do, and every mark."""

    bare: Any
    is_optional: bool
    marks: tuple[Any, ...]

    def mark(self, kind: type[T]) -> T | None:
        """The first mark of a kind."""
        return next((mark for mark in self.marks if isinstance(mark, kind)), None)

    @functools.cached_property
    def origin(self) -> Any:
        return typing.get_origin(self.bare) or self.bare

    @functools.cached_property
    def arguments(self) -> tuple[PlainKind, ...]:
        """What a tuple or mapping holds."""
        return tuple(kind_of(argument) for argument in typing.get_args(self.bare) if argument is not Ellipsis)

    @functools.cached_property
    def is_dataclass(self) -> bool:
        return isinstance(self.bare, type) and issubclass(self.bare, Struct)

    @functools.cached_property
    def least(self) -> int | None:
        """The smallest number possible."""
        mark = self.mark(Least)
        return mark.value if mark else None

    @functools.cached_property
    def values(self) -> tuple[str, ...] | None:
        """The only texts possible."""
        mark = self.mark(OneOf)
        return mark.values if mark else None

    @functools.cached_property
    def is_series(self) -> bool:
        """A tuple of any length."""
        return self.origin is tuple and Ellipsis in typing.get_args(self.bare)

    @functools.cached_property
    def meaning(self) -> str:
        """The text of the annotation, else the docstring of what the field holds, on one line."""
        text = self.mark(str) or (self.bare.__doc__ if self.is_dataclass else "") or ""
        return one_line(text)


class Member(Struct, frozen=True, dict=True):
    """One field or derived property of a result, in its place."""

    name: str
    kind: PlainKind
    is_required: bool = False  # a field without a default
    derived: _Derived | None = None

    @functools.cached_property
    def key(self) -> str:
        """Its key in JSON."""
        named = self.kind.mark(Named)
        return named.key if named else self.name

    @functools.cached_property
    def is_key(self) -> bool:
        return self.derived.is_key if self.derived else UNWRITTEN not in self.kind.marks

    @functools.cached_property
    def is_column(self) -> bool:
        column = self.kind.mark(ColumnMark)
        if column is not None and column.is_left_out:
            return False
        return self.derived.is_column if self.derived else UNWRITTEN not in self.kind.marks


def one_line(text: str) -> str:
    """The first paragraph of a docstring, without its line breaks."""
    return " ".join(text.strip().split("\n\n")[0].split())


def kind_of(annotation: Any) -> PlainKind:
    """Take an annotation apart."""
    marks: tuple[Any, ...] = ()
    is_optional = False
    while True:
        if typing.get_origin(annotation) is Annotated:
            annotation, *more = typing.get_args(annotation)
            for mark in more:
                marks += mark if isinstance(mark, tuple) else (mark,)
        elif typing.get_origin(annotation) in (Union, types.UnionType):
            (annotation,) = (argument for argument in typing.get_args(annotation) if argument is not type(None))
            is_optional = True
        else:
            return PlainKind(annotation, is_optional, marks)


@functools.cache
def members(kind: Any) -> tuple[Member, ...]:
    """Fields of a dataclass in order of definition, each followed by the properties derived from it."""
    keys = [Member(field.name, kind_of(field.type), field.required) for field in fields(kind)]
    for name, value in ((name, value) for base in kind.__mro__ for name, value in vars(base).items()):
        mark = getattr(value.fget, "derived", None) if isinstance(value, property) else None
        if mark is not None:
            returned = typing.get_type_hints(value.fget, include_extras=True)["return"]
            index = next(number for number, member in enumerate(keys) if member.name == mark.after)
            returned_kind = kind_of(Annotated[returned, one_line(value.__doc__ or "")])
            keys.insert(index + 1, Member(name, returned_kind, derived=mark))
    return tuple(keys)


def written(member: Member) -> tuple[Member, ...]:
    """The members that a field gives keys to: itself, or what it holds where that is flat."""
    flat = member.kind.mark(Flat)
    if not member.is_key:
        return ()
    if flat is None:
        return (member,)
    inner = {member_key.name: member_key for member_key in members(member.kind.bare) if member_key.is_key}
    return tuple(inner[name] for name in flat.only or inner)


def _plain_float(value: float, *, keep_infinite: bool) -> Any:
    if math.isfinite(value):
        return value
    return {"number": str(value)} if keep_infinite else None


def to_plain(value: Any, *, keep_infinite: bool = False) -> Any:
    """Only what JSON has. Evidence can hold anything a rule found handy, and text anything a trace holds.

    A float that is no number becomes None, or with ``keep_infinite`` an object that ``from_plain`` knows.
    """
    if value is None or isinstance(value, int):  # True and False are integers
        return value
    if isinstance(value, str):
        return valid(value)
    if isinstance(value, float):
        return _plain_float(value, keep_infinite=keep_infinite)
    if isinstance(value, Struct):
        return {key: to_plain(order(get(value)), keep_infinite=keep_infinite) for key, get, order in _keys(type(value))}
    if isinstance(value, Mapping):
        return {valid(str(key)): to_plain(item, keep_infinite=keep_infinite) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, keep_infinite=keep_infinite) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((to_plain(item, keep_infinite=keep_infinite) for item in value), key=repr)
    item = getattr(value, "item", None)  # a NumPy scalar
    return to_plain(item(), keep_infinite=keep_infinite) if callable(item) else valid(str(value))


@functools.cache
def _keys(kind: Any) -> tuple[tuple[str, Getter, Getter], ...]:
    """Of a dataclass: each key, what gets its value, and what brings that into its order."""
    return tuple(
        (inner.key, attrgetter(inner.name if inner is member else f"{member.name}.{inner.name}"), _order(inner.kind))
        for member in members(kind)
        for inner in written(member)
    )


def _order(kind: PlainKind) -> Getter:
    """Mappings get an order of their own, whatever order they were filled in. Free ones (evidence) keep theirs."""
    if BY_CAUSE in kind.marks:
        return lambda time: {key: time.get(key, 0) for key in CAUSE_KEYS}
    if kind.origin is Mapping and kind.arguments[1].bare is not object:
        return lambda mapping: {key: mapping[key] for key in sorted(mapping)}
    return _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def from_plain(kind: type[T], data: Any) -> T:
    """The other direction. Unknown keys are passed over (a later boundby may write more).

    Raises:
        ValueError: it is something else, or a key without a default is missing. The message names it.
    """
    result: T = _built(kind_of(kind), data, "it")
    return result


def _built(kind: PlainKind, data: Any, where: str) -> Any:
    if data is None and kind.is_optional:
        return None
    if kind.is_dataclass:
        return _built_dataclass(kind.bare, _checked(data, dict, where))
    if kind.origin is tuple:
        return _built_items(kind, _checked(data, list, where), where)
    if kind.origin is Mapping:
        return _built_entries(kind, _checked(data, dict, where), where)
    if kind.bare is object:
        return data
    return _built_scalar(kind, data, where)


def _built_scalar(kind: PlainKind, data: Any, where: str) -> Any:
    if kind.bare is float and isinstance(data, dict) and isinstance(data.get("number"), str):
        return float(data["number"])
    is_whole = kind.bare is float and type(data) is int  # stays as it was written
    return _bounded(kind, data if is_whole else _checked(data, kind.bare, where), where)


def _built_items(kind: PlainKind, items: list[Any], where: str) -> tuple[Any, ...]:
    inner = kind.arguments
    if kind.is_series:
        return tuple(_built(inner[0], item, where) for item in items)
    if len(items) != len(inner):
        raise ValueError(f"{where}: {len(inner)} values were expected, and there are {len(items)}")
    return tuple(_built(item_kind, item, where) for item_kind, item in zip(inner, items, strict=True))


def _built_entries(kind: PlainKind, entries: dict[str, Any], where: str) -> dict[str, Any]:
    if BY_CAUSE in kind.marks and (missing := [key for key in CAUSE_KEYS if key not in entries]):
        raise ValueError(f"{where}: {missing[0]} is missing")
    keys = CAUSE_KEYS if BY_CAUSE in kind.marks else entries
    return {key: _built(kind.arguments[1], entries[key], where) for key in keys}


def _bounded(kind: PlainKind, value: Any, where: str) -> Any:
    """A text or number, if it is one that could have been written. JSON's 1e999 and NaN are none."""
    if isinstance(value, str):
        if kind.values is not None and value not in kind.values:
            raise ValueError(f"{where}: {value!r:.40} is none of {', '.join(kind.values)}")
    elif abs(value) > sys.maxsize:
        raise ValueError(f"{where}: {value!r:.40} is beyond all numbers of a result")
    elif kind.least is not None and value < kind.least:
        raise ValueError(f"{where}: {value!r:.40} is less than {kind.least}")
    return value


def _checked(data: Any, kind: type[Any], where: str) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise ValueError(f"{where}: {kind.__name__} was expected, and there is {data!r:.40}")
    return data


def _built_dataclass(kind: Any, data: Json) -> Any:
    values = {}
    for member in members(kind):
        if member.derived or not member.is_key:
            continue
        if member.kind.mark(Flat):
            values[member.name] = _built_dataclass(member.kind.bare, data)
        elif member.key in data:
            values[member.name] = _built(member.kind, data[member.key], member.key)
        elif member.is_required:
            raise ValueError(f"{member.key} is missing")
    return kind(**values)


def valid(text: str) -> str:
    """The same text, fit for UTF-8: only lone surrogates (undecodable bytes of a trace) are replaced."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


# The text of a result, and the file that holds it.

#: An array of integers over several lines. No string looks like it: line breaks in strings are escaped.
_NUMBERS = expression(r"\[\n\s+-?\d+(?:,\n\s+-?\d+)*\n\s+\]")

#: Control characters that JSON lets stand, and those that turn the direction of text.
_OBEYED = expression("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Saved:
    """A result that is a file of its own. Keys of a ``format_version`` are stable; more may be added."""

    format_version: ClassVar[int] = 1
    kind: ClassVar[str] = ""  # tells results apart; the result of one report, the first there was, has none
    written_by: ClassVar[str] = "boundby analyze REPORT --format json -o result.json"
    names_tool: ClassVar[bool] = True
    keeps_infinite: ClassVar[bool] = False  # floats that are no numbers survive, else they become null

    def to_dict(self) -> Json:
        """The JSON form as plain dicts, lists, strings, numbers, booleans and None."""
        data: Json = {"format_version": self.format_version}
        if self.kind:
            data["kind"] = self.kind
        if self.names_tool:
            data["tool"] = {"name": "boundby", "version": __version__}
        data |= to_plain(self, keep_infinite=self.keeps_infinite)
        return data


S = TypeVar("S", bound=Saved)


def render(result: Saved) -> str:
    """The JSON text of one result, ended by a line break."""
    return dumps(result.to_dict())


def render_many(results: Sequence[Saved]) -> str:
    """An array of results."""
    return dumps([result.to_dict() for result in results])


def escaped(text: str) -> str:
    """The same JSON, without characters that a terminal obeys: they can only stand in its strings."""
    return _OBEYED.sub(lambda char: f"\\u{ord(char[0]):04x}", text)


def dumps(data: object) -> str:
    """Plain data as text: indented, arrays of integers on one line."""
    text = escaped(msgspec.json.format(msgspec.json.encode(data), indent=2).decode()) + "\n"
    return _NUMBERS.sub(lambda array: " ".join(array[0].split()).replace("[ ", "[").replace(" ]", "]"), text)


def _only(several: list[object], where: str) -> object:
    if len(several) != 1:
        raise InputError(f"{where} holds {len(several)} results.", "Give a file with one.")
    return several[0]


def from_dict(data: object, *kinds: type[S], where: str = "This") -> S:
    """The result, one of ``kinds``, that ``to_dict`` wrote. Raises InputError for anything else."""
    command = " ".join(kinds[0].written_by.split()[:2])
    how = f"Write one with: {kinds[0].written_by}"
    if isinstance(data, list):  # of several reports
        data = _only(data, where)
    version = data.get("format_version") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or type(version) is not int:
        raise InputError(f"{where} is not a result of {command}.", how)
    written = data.get("kind", "")
    kind = next((kind for kind in kinds if kind.kind == written), None)
    if kind is None:
        raise InputError(f"{where} is a {written or 'report'}, not a result of {command}.", how)
    if version > kind.format_version:
        message = f"{where} has format_version {version}; this boundby reads up to {kind.format_version}."
        raise InputError(message, "Update boundby (git pull, then pip install .)")
    try:
        return from_plain(kind, data)
    except ValueError as error:
        raise InputError(f"{where} is not a complete result of {command}: {error}.", how) from error


def loads(text: str, *kinds: type[S], where: str = "This") -> S:
    """The result in a JSON text. Raises InputError as ``from_dict`` does."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON.", f"Write one with: {kinds[0].written_by}") from error
    return from_dict(data, *kinds, where=where)


def load(path: str | PathLike[str], *kinds: type[S]) -> S:
    """The result in a file, one of ``kinds``: what a command wrote with ``-o``. Raises InputError if it is none."""
    try:
        text = door.read_text(Path(path))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.", "Check the name.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not JSON.", f"Write one with: {kinds[0].written_by}") from error
    return loads(text, *kinds, where=str(path))
