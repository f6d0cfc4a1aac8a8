from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from boundby.model.causes import BOUNDS, CAUSE_KEYS
from boundby.model.errors import InputError
from boundby.results import saved
from boundby.results.report import Card, Report, WhatIf
from boundby.results.schema import DOCUMENTS, schema
from tests.support import reports, schemas

SCHEMA = schema(Report)
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)
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
    VALIDATOR.validate(json.loads(saved.render(reports.ALL[name]())))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_schema_is_a_schema(name: str) -> None:
    jsonschema_rs.meta.validate(schema(DOCUMENTS[name]))


def test_the_schema_knows_the_model() -> None:
    assert SCHEMA["properties"]["format_version"]["const"] == Report.format_version
    assert tuple(SCHEMA["$defs"]["Time"]["properties"]) == CAUSE_KEYS
    assert tuple(SCHEMA["$defs"]["RegionReport"]["properties"]["bound"]["enum"]) == BOUNDS


@pytest.mark.parametrize("name", sorted(reports.ALL))
def test_every_key_is_described(name: str) -> None:
    schemas.assert_described(reports.ALL[name]().to_dict(), SCHEMA)


@pytest.mark.parametrize("name", sorted(set(reports.ALL) - {"hostile"}))
def test_round_trip(name: str) -> None:
    report = reports.ALL[name]()
    assert saved.from_dict(json.loads(saved.render(report)), Report) == report


def test_a_second_round_trip_changes_nothing_even_where_text_was_invalid() -> None:
    once = saved.render(reports.hostile())
    assert saved.render(saved.from_dict(json.loads(once), Report)) == once


def test_the_text_is_stable_and_valid_utf8() -> None:
    first, second = saved.render(reports.hostile()), saved.render(reports.hostile())
    assert first == second
    assert first.endswith("}\n")
    first.encode("utf-8")
    assert "漢字の名前" in first


def test_no_number_is_infinite_or_nan() -> None:
    report = replace(reports.sample(), what_if=(WhatIf("all", 0, 5),))
    device = replace(report.devices[0], cpu_utilization=math.nan)
    text = saved.render(replace(report, devices=(device,)))
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
    data = json.loads(saved.render_many([reports.sample(), reports.empty()]))
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
        saved.from_dict(data, Report)


def test_a_pattern_that_is_none_is_refused() -> None:
    """A page is opened by its name."""
    [device, *others] = (made := reports.sample()).devices
    damaged = replace(made, devices=(replace(device, cards=(Card("../gpu_copy"),)), *others))
    with pytest.raises(InputError, match="pattern"):
        saved.from_dict(damaged.to_dict(), Report)


def test_a_later_format_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="format_version 2"):
        saved.from_dict({**reports.sample().to_dict(), "format_version": Report.format_version + 1}, Report)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_damage_gives_a_report_or_an_input_error(data: st.DataObject) -> None:
    """Drop or replace one value anywhere: never another exception."""
    tree: Any = json.loads(saved.render(reports.sample()))
    node, key = tree, data.draw(st.sampled_from(sorted(tree)))
    while isinstance(node[key], dict | list) and node[key] and data.draw(st.booleans()):
        node = node[key]
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    if data.draw(st.booleans()):
        del node[key]
    else:
        node[key] = data.draw(st.sampled_from([None, "x", 3, [], {}, [1], {"a": 1}]))
    with contextlib.suppress(InputError):
        saved.from_dict(tree, Report)
