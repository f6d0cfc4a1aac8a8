"""Real traces of the PyTorch profiler: what is read of them, and what every report of them holds."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from boundby.api import Analysis
from boundby.model.intervals import union
from boundby.readers import read_trace
from boundby.trace.tables import OpKind, Trace
from tests.support.invariants import check_invariants
from tests.support.traces import ABSENT, trace_path, traces_folder

FOLDER = "kineto"


def names() -> list[str]:
    folder = traces_folder()
    found = sorted((folder / FOLDER).rglob("*.json.gz")) if folder else []
    return [path.relative_to(folder).as_posix() for path in found] if folder and found else [ABSENT]


@cache
def read(name: str) -> Trace:
    return read_trace(trace_path(name))


@pytest.mark.parametrize("name", names())
def test_kernels_copies_busy_time_and_steps_are_those_of_a_separate_reading(name: str) -> None:
    trace = read(name)
    told = json.loads(trace_path(f"{FOLDER}/expected.json").read_text())[name.removeprefix(f"{FOLDER}/")]
    operations = trace.operations
    devices: dict[str, Any] = {}
    for device in np.unique(operations.device).tolist():
        mine = operations.take(operations.device == device)
        devices[str(trace.gpus[device].id)] = {
            "kernels": int((mine.kind == OpKind.KERNEL).sum()),
            "copies": int((mine.kind != OpKind.KERNEL).sum()),
            "busy_ns": union(mine.start_ns, mine.end_ns).total,
            "window_ns": int(mine.end_ns.max() - mine.start_ns.min()),
        }
    ranges = trace.ranges
    steps = {
        trace.names[number]: end - start
        for number, start, end in zip(
            ranges.name.tolist(), ranges.start_ns.tolist(), ranges.end_ns.tolist(), strict=True
        )
        if trace.names[number].startswith("ProfilerStep#")
    }
    place = trace.place
    assert {"devices": devices, "steps_ns": steps, "rank": place.rank, "world_size": place.world_size} == told


@pytest.mark.parametrize("name", names())
def test_every_report_adds_up_and_says_what_bounds_each_device_or_why_not(name: str) -> None:
    report = Analysis(read(name)).report
    check_invariants(report)
    for device in report.devices:
        assert device.verdict.bound != "unknown" or device.verdict.reasons or device.verdict.because
