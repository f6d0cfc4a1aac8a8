from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import fields, replace

from boundby.document.sentences import not_captured
from boundby.trace.facts import Captured
from tests.support import reports


def flags(captured: Mapping[str, bool], nsys_version: str | None = "2025.1") -> list[str]:
    base = reports.sample()
    trace = replace(base.trace, captured=Captured(**captured), nsys_version=nsys_version)
    return [gap.flag for gap in not_captured(replace(base, trace=trace))]


def test_a_full_capture_lacks_nothing() -> None:
    assert flags({field.name: True for field in fields(Captured)}) == []


def test_what_never_happened_is_not_called_missing() -> None:
    full = {field.name: True for field in fields(Captured)}
    assert flags({**full, "memcpy": False, "sync": False, "cuda_graphs": False}) == []


def test_samples_are_missed_where_none_came() -> None:
    full = {field.name: True for field in fields(Captured)}
    assert flags({**full, "cpu_samples": False}) == ["--sample=process-tree"]


def test_graph_level_tracing_is_named() -> None:
    assert "--cuda-graph-trace=node" in flags({"cuda_graphs": True, "cuda_api": True})


@pytest.mark.parametrize(
    ("version", "option"),
    [
        ("2022.4.2", "--gpu-metrics-device=all"),
        ("2024.2.3", "--gpu-metrics-device=all"),
        ("2025.3.1", "--gpu-metrics-devices=all"),
        (None, "--gpu-metrics-devices=all"),
        ("odd", "--gpu-metrics-devices=all"),
    ],
)
def test_the_option_fits_the_nsys(version: str | None, option: str) -> None:
    assert flags({}, version)[-1] == option


def test_a_flag_that_was_given_is_not_told_again() -> None:
    base = reports.sample()
    why = {
        "cuda": "no NVIDIA GPU is visible here",
        "nvtx": "none was opened: annotate",
        "cpu_scheduling": "the container forbids it",
    }
    trace = replace(base.trace, captured=Captured(), not_recorded=why)
    told = {gap.kind: gap.remedy for gap in not_captured(replace(base, trace=trace))}
    assert told["CUDA"] == why["cuda"]
    assert told["NVTX ranges"] == why["nvtx"]
    assert told["CPU scheduling"] == why["cpu_scheduling"]
    assert told["OS runtime calls"] == "-t osrt"
