"""Results survive a file; what is no result is refused with a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from boundby.measure import load, save
from boundby.measure.saved import FORMAT_VERSION, dumps, loads
from boundby.model.errors import InputError, OutputError
from tests.measure import made


@pytest.mark.parametrize("kind", made.every())
def test_a_result_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    result = made.every()[kind]
    save(result, tmp_path / "result.json")
    assert load(tmp_path / "result.json") == result
    assert dumps(load(tmp_path / "result.json")) == (tmp_path / "result.json").read_text(encoding="utf-8")


def test_what_readers_of_the_file_find() -> None:
    data = json.loads(dumps(made.latency()))
    assert data["format_version"] == FORMAT_VERSION
    assert data["kind"] == "latency"
    assert data["figures"]["median_ns"] == made.latency().median_ns
    assert data["figures"]["interval"]["how"] == "order statistics"
    assert len(data["block_ns"]) == 100
    assert json.loads(dumps(made.throughput()))["best"]["samples_per_s"] > 0


def test_infinite_numbers_survive() -> None:
    point = replace(made.devices().points[0], largest_difference=float("inf"))
    result = replace(made.devices(), points=(point,))
    assert loads(dumps(result)) == result


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON"),
        ("[]", "no result"),
        ('{"kind": "report"}', "no result"),
        (dumps(made.latency()).replace('"format_version": 1', '"format_version": 2'), "has the format 2"),
        (dumps(made.latency()).replace('"first_call_ns"', '"other"'), "first_call_ns is missing"),
        (dumps(made.latency()).replace('"is_steady": true', '"is_steady": 5'), "bool was expected"),
        (dumps(made.latency()).replace('"name": "bench.py:model"', '"name": null'), "str was expected"),
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
    with pytest.raises(InputError, match="no result"):
        load(tmp_path / "bytes.json")
    with pytest.raises(OutputError):
        save(made.latency(), tmp_path / "no" / "folder.json")
