"""Results as JSON, and back: what ``-o result.json`` writes can be shown, drawn, compared and checked again.

The text is byte-stable: keys stand in the order of the dataclasses, no float is NaN or infinite, no string holds a
lone surrogate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from boundby.__about__ import __version__
from boundby.model import door
from boundby.model.errors import InputError
from boundby.model.expressions import expression
from boundby.results.codec import Json, from_plain, to_plain

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
