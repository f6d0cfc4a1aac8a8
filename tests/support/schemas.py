"""Whether a JSON Schema tells of everything that a result holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def assert_described(value: object, schema: Json, *, part: Json | None = None, where: str = "$") -> None:
    """Every key of ``value`` is in the schema, with a description. ``part``: where in the schema ``value`` stands."""
    part = schema if part is None else part
    assert part.get("description"), f"{where} has no description"
    part = _resolved(part, schema)
    if isinstance(value, Mapping):
        more = part.get("additionalProperties")
        if "properties" not in part and more is None:
            return  # evidence: free
        for key, item in value.items():
            inner = part.get("properties", {}).get(key)
            assert inner or more, f"{where}.{key} is not in the schema"
            if inner:
                assert_described(item, schema, part=inner, where=f"{where}.{key}")
    if isinstance(value, list) and "$ref" in part["items"]:
        for item in value:
            assert_described(item, schema, part=_resolved(part["items"], schema), where=f"{where}[]")


def _resolved(part: Json, schema: Json) -> Json:
    """The part itself, or the shared one it points to."""
    for one in (part, *part.get("anyOf", ())):
        if "$ref" in one:
            found: Json = schema["$defs"][one["$ref"].removeprefix("#/$defs/")]
            return found
    return part
