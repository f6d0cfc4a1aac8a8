"""JSON Schemas (2020-12) of the results, by the annotations that they are written by.

python -m boundby.results.schema report > report.schema.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from boundby.model.causes import CAUSE_KEYS, MEANING
from boundby.results.comparison import Comparison, GateResult
from boundby.results.job_report import JobComparison, JobReport
from boundby.results.proof import Proof
from boundby.results.report import Report
from boundby.results.saved import (
    BY_CAUSE,
    LATER,
    Json,
    Least,
    Member,
    Natural,
    OneOf,
    PlainKind,
    Saved,
    kind_of,
    members,
    one_line,
    written,
)
from boundby.results.serving_report import ServingReport

DOCUMENTS: Mapping[str, type[Saved]] = {
    "report": Report,
    "comparison": Comparison,
    "check": GateResult,
    "job": JobReport,
    "job-comparison": JobComparison,
    "prove": Proof,
    "serving": ServingReport,
}
UNITS = (
    "Times are integer nanoseconds unless a key says otherwise; fractions are between 0 and 1. null means 'not"
    " captured' or 'does not apply'; zero is a measured zero. Keys are stable within a format_version; more may be"
    " added."
)
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema(document: type[Saved]) -> Json:
    """The schema of what ``document.to_dict`` gives."""
    shared: dict[str, Json] = {}
    body = _object(document, shared)
    head: Json = {"format_version": {"const": document.format_version, "description": "Version of this format."}}
    if document.kind:
        head["kind"] = {"const": document.kind, "description": "Tells results apart; that of one report has none."}
    if document.names_tool:
        head["tool"] = _tool()
    required = [*head, *body["required"]]
    extra: Json = {}
    if document is Comparison:
        gate = schema(GateResult)
        shared |= gate.pop("$defs")
        gate = {key: gate[key] for key in ("type", "required", "properties")}
        extra["gate"] = gate | {"description": "The result of limits; only where there were any."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"boundby {document.kind or 'result'}",
        "description": f"{one_line(document.__doc__ or '')} {UNITS}",
        "type": "object",
        "required": required,
        "properties": head | body["properties"] | extra,
        "$defs": dict(sorted(shared.items())),
    }


def _tool() -> Json:
    return {
        "type": "object",
        "description": "What wrote the result.",
        "required": ["name", "version"],
        "properties": {
            "name": {"const": "boundby", "description": "Always boundby."},
            "version": {"type": "string", "description": "Version of boundby."},
        },
    }


def _object(kind: Any, shared: dict[str, Json]) -> Json:
    """The schema of a dataclass. What it holds of others goes to ``shared`` by name."""
    keys = [key for member in members(kind) for key in written(member)]
    return {
        "type": "object",
        "description": one_line(kind.__doc__ or ""),
        "required": [member.key for member in keys if LATER not in member.kind.marks],
        "properties": {member.key: _property(member, shared) for member in keys},
    }


def _property(member: Member, shared: dict[str, Json]) -> Json:
    return _schema_of(member.kind, shared) | {"description": member.kind.meaning}


def _schema_of(kind: PlainKind, shared: dict[str, Json]) -> Json:
    name = _name_of(kind)
    if name is not None:
        if name not in shared:
            shared[name] = {}  # so that it is not gone into twice
            shared[name] = _times() if BY_CAUSE in kind.marks else _object(kind.bare, shared)
        reference = {"$ref": f"#/$defs/{name}"}
        return {"anyOf": [reference, {"type": "null"}]} if kind.is_optional else reference
    if kind.origin is tuple:
        schema = _type("array", kind)
        schema["items"] = _schema_of(kind.arguments[0], shared)
        if not kind.is_series:
            schema |= {"minItems": len(kind.arguments), "maxItems": len(kind.arguments)}
        return schema
    if kind.origin is Mapping:
        schema = _type("object", kind)
        if kind.arguments[1].bare is not object:
            schema["additionalProperties"] = _schema_of(kind.arguments[1], shared)
        return schema
    return _scalar(kind)


def _scalar(kind: PlainKind) -> Json:
    schema = _type(_SCALARS[kind.bare], kind)
    if choice := kind.mark(OneOf):
        schema["enum"] = [*choice.values, *([None] if kind.is_optional else [])]
    if least := kind.mark(Least):
        schema["minimum"] = least.value
    return schema


def _name_of(kind: PlainKind) -> str | None:
    if BY_CAUSE in kind.marks:
        return "Time"
    return str(kind.bare.__name__) if kind.is_dataclass else None


def _type(name: str, kind: PlainKind) -> Json:
    return {"type": [name, "null"] if kind.is_optional else name}


def _times() -> Json:
    natural = _schema_of(kind_of(Natural), {})
    return {
        "type": "object",
        "description": "Nanoseconds by cause. Every cause is there; none is negative.",
        "required": list(CAUSE_KEYS),
        "properties": {key: natural | {"description": f"{MEANING[key].capitalize()}."} for key in CAUSE_KEYS},
    }


if __name__ == "__main__":
    print(json.dumps(schema(DOCUMENTS[sys.argv[1]]), indent=2))
