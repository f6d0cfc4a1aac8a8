from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boundby.model.causes import BOUNDS, CAUSE_KEYS
from boundby.model.errors import InputError
from boundby.render import json as report_json
from boundby.results.report import FORMAT_VERSION, WhatIf
from tests.support import reports

SCHEMA = report_json.schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
# The first published form, word for word: what readers were promised.
PROMISED = {
    "": "format_version tool trace devices regions findings not_checked what_if",
    "tool": "name version",
    "trace": "path source nsys_version schema_version gpus captured warnings",
    "trace.gpus.0": "id name",
    "trace.captured": "kernels cuda_api memcpy sync nvtx osrt cpu_scheduling cpu_samples gpu_metrics cuda_graphs",
    "trace.warnings.0": "code message",
    "devices.0": "id window busy_ns idle_ns startup_ns shutdown_ns gpu_utilization kernels time gaps bound confidence",
    "devices.0.window": "start_ns end_ns",
    "devices.0.kernels": "count total_ns",
    "devices.0.gaps": "count total_ns longest_ns",
    "regions.1": "path domain instances host_ns projected_ns time time_exclusive bound runner_up confidence"
    " gpu_utilization cpu_utilization api sync memcpy kernels launch_latency_ns",
    "regions.1.api": "calls total_ns per_ms",
    "regions.1.sync": "count blocked_ns per_ms",
    "regions.1.memcpy.HtoD": "count bytes total_ns pageable_count",
    "regions.1.kernels": "count total_ns median_ns",
    "regions.1.launch_latency_ns": "median p95",
    "findings.0": "rule severity title region evidence saving_ns advice docs",
    "not_checked.0": "rule reason",
    "what_if.0": "scenario predicted_ns baseline_ns speedup",
}


def at(data: Any, path: str) -> Any:
    for key in path.split(".") if path else []:
        data = data[int(key)] if key.isdigit() else data[key]
    return data


@pytest.mark.parametrize("path", PROMISED)
def test_the_promised_keys_are_there(path: str) -> None:
    assert set(PROMISED[path].split()) <= set(at(reports.sample().to_dict(), path))


def test_the_account_has_every_cause() -> None:
    data = reports.sample().to_dict()
    assert tuple(at(data, "devices.0.time")) == CAUSE_KEYS
    assert tuple(at(data, "regions.2.time_exclusive")) == CAUSE_KEYS
    assert at(data, "regions.0.path") == []
    assert at(data, "regions.7.projected_ns") is None


@pytest.mark.parametrize("name", sorted(reports.ALL))
def test_it_is_valid_by_the_schema(name: str) -> None:
    VALIDATOR.validate(json.loads(report_json.render(reports.ALL[name]())))


def test_the_schema_is_a_schema_and_knows_the_model() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["format_version"]["const"] == FORMAT_VERSION
    assert tuple(SCHEMA["$defs"]["time"]["properties"]) == CAUSE_KEYS
    assert tuple(SCHEMA["$defs"]["bound"]["enum"]) == BOUNDS


@pytest.mark.parametrize("name", sorted(reports.ALL))
def test_every_key_is_described(name: str) -> None:
    _described(reports.ALL[name]().to_dict(), SCHEMA, "$")


def _described(value: object, schema: Mapping[str, Any], where: str) -> None:
    schemas = list(_parts(schema))
    assert any(part.get("description") for part in schemas), f"{where} has no description"
    if isinstance(value, Mapping):
        known = {key: sub for part in schemas for key, sub in part.get("properties", {}).items()}
        more = next((part["additionalProperties"] for part in schemas if "additionalProperties" in part), None)
        for key, item in value.items():
            if more is None and not known:
                return  # evidence: free
            assert key in known or more, f"{where}.{key} is not in the schema"
            if key in known:
                _described(item, known[key], f"{where}.{key}")
    if isinstance(value, list):
        items = next(part["items"] for part in schemas if "items" in part)
        for item in value:
            if "$ref" in items or "properties" in items:
                _described(item, items, f"{where}[]")


def _parts(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = [schema]
    if "$ref" in schema:
        found += _parts(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")])
    for sub in (*schema.get("allOf", ()), *schema.get("anyOf", ())):
        found += _parts(sub)
    return found


@pytest.mark.parametrize("name", sorted(set(reports.ALL) - {"hostile"}))
def test_round_trip(name: str) -> None:
    report = reports.ALL[name]()
    assert report_json.from_dict(json.loads(report_json.render(report))) == report


def test_a_second_round_trip_changes_nothing_even_where_text_was_invalid() -> None:
    once = report_json.render(reports.hostile())
    assert report_json.render(report_json.from_dict(json.loads(once))) == once


def test_the_text_is_stable_and_valid_utf8() -> None:
    first, second = report_json.render(reports.hostile()), report_json.render(reports.hostile())
    assert first == second
    assert first.endswith("}\n")
    first.encode("utf-8")
    assert "漢字の名前" in first


def test_no_number_is_infinite_or_nan() -> None:
    report = replace(reports.sample(), what_if=(WhatIf("all", 0, 5),))
    device = replace(report.devices[0], cpu_utilization=math.nan)
    text = report_json.render(replace(report, devices=(device,)))
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    assert data["what_if"][0]["speedup"] is None
    assert data["devices"][0]["cpu_utilization"] is None


def test_evidence_of_any_kind_becomes_json() -> None:
    finding = reports.sample().findings[0]
    odd = {"n": np.int64(3), "f": np.float64(0.5), "t": (1, 2), "s": {"b", "a"}, "nan": math.nan, "o": complex(1, 2)}
    data = replace(reports.sample(), findings=(replace(finding, evidence=odd),)).to_dict()
    assert at(data, "findings.0.evidence") == {
        "n": 3,
        "f": 0.5,
        "t": [1, 2],
        "s": ["a", "b"],
        "nan": None,
        "o": "(1+2j)",
    }
    json.dumps(data, allow_nan=False)


def test_several_reports_are_an_array() -> None:
    data = json.loads(report_json.render_many([reports.sample(), reports.empty()]))
    assert [item["trace"]["path"] for item in data] == ["reports/train.sqlite", "empty.sqlite"]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"format_version": "1"},
        {"format_version": True},
        {"format_version": 1},
        {"format_version": 1, "trace": 3},
        {**reports.sample().to_dict(), "devices": 3},
        {**reports.sample().to_dict(), "regions": [{}]},
        {**reports.sample().to_dict(), "what_if": [7]},
    ],
)
def test_what_is_no_result_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(InputError, match="not a"):
        report_json.from_dict(data)


def test_a_later_format_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="format_version 2"):
        report_json.from_dict({**reports.sample().to_dict(), "format_version": FORMAT_VERSION + 1})


@settings(max_examples=60)
@given(st.data())
def test_any_damage_gives_a_report_or_an_input_error(data: st.DataObject) -> None:
    """Drop or replace one value anywhere: never another exception."""
    tree: Any = json.loads(report_json.render(reports.sample()))
    node, key = tree, data.draw(st.sampled_from(sorted(tree)))
    while isinstance(node[key], dict | list) and node[key] and data.draw(st.booleans()):
        node = node[key]
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    if data.draw(st.booleans()):
        del node[key]
    else:
        node[key] = data.draw(st.sampled_from([None, "x", 3, [], {}, [1], {"a": 1}]))
    with contextlib.suppress(InputError):
        report_json.from_dict(tree)
