"""Results <-> JSON. A saved result can be shown, drawn and compared again.

``figures`` beside the raw numbers (median, percentiles, ...) are for readers of the file; loading works them out anew.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

from boundby.__about__ import __version__
from boundby.measure.results import BatchPoint, Comparison, Devices, Latency, Methods, Result, StagesResult, Throughput
from boundby.model.errors import InputError
from boundby.render.write import write_text

#: 1: the first one. A change that an older reader would misread makes it one more.
FORMAT_VERSION = 1

_KINDS: Mapping[str, type[Any]] = {
    "latency": Latency,
    "methods": Methods,
    "stages": StagesResult,
    "throughput": Throughput,
    "devices": Devices,
    "comparison": Comparison,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_FIGURES = (
    "median_ns",
    "mean_ns",
    "std_ns",
    "min_ns",
    "max_ns",
    "p90_ns",
    "p99_ns",
    "host_ns",
    "spread_fraction",
    "calls",
)


def dumps(result: Result) -> str:
    """The JSON text, ended by a line break."""
    data = {
        "format_version": FORMAT_VERSION,
        "kind": _NAMES[type(result)],
        "tool": {"name": "boundby", "version": __version__},
        **_plain(result),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def loads(text: str, where: str = "The text") -> Result:
    """The result in a JSON text.

    Raises:
        InputError: it is none, or of a later format.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InputError(f"{where} is no JSON.", "Give what boundby measure -o wrote.") from error
    if not isinstance(data, dict) or data.get("kind") not in _KINDS:
        raise InputError(f"{where} is no result of boundby measure.", "Give what boundby measure -o wrote.")
    version = data.get("format_version")
    if version != FORMAT_VERSION:
        raise InputError(
            f"{where} has the format {version!r}, and this boundby reads {FORMAT_VERSION}.",
            "Use the version that wrote it, or measure again.",
        )
    try:
        result: Result = _build(_KINDS[data["kind"]], data)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where} is damaged: {error}.", "Measure again.") from error
    return result


def save(result: Result, path: str | Path) -> None:
    """Write a result as JSON, whole or not at all."""
    write_text(path, dumps(result))


def load(path: str | Path) -> Result:
    """Read a result that ``save`` or ``boundby measure -o`` wrote. Raises InputError if it is none."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.", "Check the name.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no result of boundby measure.", "Give what boundby measure -o wrote.") from error
    return loads(text, str(path))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        data = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if isinstance(value, Latency):
            data["figures"] = {name: _plain(getattr(value, name)) for name in _FIGURES} | {
                "interval": _plain(value.interval)
            }
        elif isinstance(value, BatchPoint):
            data["samples_per_s"] = value.samples_per_s
        return data
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}  # JSON has no infinity
    return value


def _build(kind: Any, data: Any) -> Any:
    """``data`` as an instance of ``kind``, checked against its annotations."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return _build_any(arguments, data)
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"a list was expected, and there is {data!r:.40}")
        if arguments[-1] is Ellipsis:
            return tuple(_build(arguments[0], item) for item in data)
        return tuple(_build(part, item) for part, item in zip(arguments, data, strict=True))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(data, dict):
            raise ValueError(f"{kind.__name__} was expected, and there is {data!r:.40}")
        hints = typing.get_type_hints(kind)
        missing = [field.name for field in dataclasses.fields(kind) if field.name not in data]
        if missing:
            raise ValueError(f"{', '.join(missing)} is missing")
        return kind(**{field.name: _build(hints[field.name], data[field.name]) for field in dataclasses.fields(kind)})
    if kind is float and isinstance(data, dict):
        return float(data["number"])
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise ValueError(f"{kind.__name__} was expected, and there is {data!r:.40}")
    return data


def _build_any(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in kinds:
        return None
    rest = [kind for kind in kinds if kind is not type(None)]
    for kind in rest[:-1]:
        try:
            return _build(kind, data)
        except ValueError:  # noqa: PERF203 (two kinds at most)
            continue
    return _build(rest[-1], data)
