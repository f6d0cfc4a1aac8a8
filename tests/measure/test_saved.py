"""Results survive a file; what is no result is refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from boundby.measure import load, save
from boundby.measure.results import loads
from boundby.model.errors import InputError, OutputError
from boundby.results.saved import render
from tests.measure import made


@pytest.mark.parametrize("kind", made.every())
def test_a_result_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    result = made.every()[kind]
    save(result, tmp_path / "result.json")
    assert load(tmp_path / "result.json") == result
    assert render(load(tmp_path / "result.json")) == (tmp_path / "result.json").read_text(encoding="utf-8")


def test_what_readers_of_the_file_find() -> None:
    data = json.loads(render(made.latency()))
    assert data["format_version"] == 1
    assert data["kind"] == "latency"
    assert data["figures"]["median_ns"] == made.latency().median_ns
    assert data["figures"]["interval"]["how"] == "order statistics"
    assert len(data["block_ns"]) == 100
    assert json.loads(render(made.throughput()))["best"]["samples_per_s"] > 0


def test_infinite_numbers_survive() -> None:
    point = replace(made.devices().points[0], largest_difference=float("inf"))
    result = replace(made.devices(), points=(point,))
    assert loads(render(result)) == result


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[]", "holds 0 results"),
        ('{"kind": "report"}', "not a result of boundby measure"),
        (render(made.latency()).replace('"format_version": 1', '"format_version": 2'), "has format_version 2"),
        (render(made.latency()).replace('"first_call_ns"', '"other"'), "first_call_ns is missing"),
        (render(made.latency()).replace('"is_steady": true', '"is_steady": 5'), "bool was expected"),
        (render(made.latency()).replace('"name": "bench.py:model"', '"name": null'), "str was expected"),
    ],
)
def test_what_is_no_result(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=says):
        load(tmp_path / "other.json")


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot read"):
        load(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not JSON"):
        load(tmp_path / "bytes.json")
    with pytest.raises(OutputError):
        save(made.latency(), tmp_path / "no" / "folder.json")
