"""Programs of few operations, of one gap, of one wait: what takes the time is the verdict, however few rows say so."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundby
from boundby.results.report import DeviceReport
from boundby.simulate.instructions import (
    MS,
    Alloc,
    Copy,
    Init,
    Instruction,
    Launch,
    Loop,
    S,
    Sleep,
    Sync,
    Work,
    program,
)
from boundby.simulate.machine import realise, simulate
from boundby.simulate.nsys_export import Capture, to_export

UPLOAD = Copy(4_000_000, memory="pageable", blocking=True)
READ_BACK = Copy(4_000_000, "DtoH", memory="pageable", blocking=True)
SMALL = Launch("small", MS // 10)


def device_of(folder: Path, *body: Instruction) -> DeviceReport:
    path = to_export(simulate(realise(program(*body)))).write(folder / "made.sqlite", "2023")
    [device] = boundby.analyze(path).devices
    return device


@pytest.mark.parametrize(
    ("bound", "body"),
    [
        ("gpu_compute", [UPLOAD, UPLOAD, Launch("kernel", 2 * S), READ_BACK]),
        ("gpu_compute", [Launch("kernel", 2 * S)]),
        ("gpu_copy", [UPLOAD, UPLOAD, SMALL, READ_BACK]),
        ("cpu", [SMALL, Sync(), Work(40 * MS), SMALL]),
        ("host_blocked", [SMALL, Sync(), Sleep(40 * MS, "read"), SMALL]),
        ("init", [SMALL, Sync(), Alloc(40 * MS, call="cudaHostAlloc"), SMALL]),
        ("init", [SMALL, Sync(), Init(40 * MS), SMALL]),
    ],
)
def test_what_takes_the_time_is_the_verdict(bound: str, body: list[Instruction], tmp_path: Path) -> None:
    verdict = device_of(tmp_path, *body, Sync()).verdict
    assert (verdict.bound, verdict.confidence, verdict.why_not) == (bound, "high", None)


def test_one_wait_is_no_pattern(tmp_path: Path) -> None:
    """The device works for 25 ms, the host waits for it, then works for 15: the longer part is the verdict. Where that
    repeats, the waits are."""
    once = [Launch("fill", 25 * MS), Sync(), Work(15 * MS), SMALL]
    assert device_of(tmp_path, *once, Sync()).verdict.bound == "gpu_compute"
    many = Loop(20, [Launch("fill", 3 * MS), Sync(), Work(2 * MS), SMALL])
    assert device_of(tmp_path, many, Sync()).verdict.bound == "sync"


def test_a_host_at_work_outweighs_rare_waits(tmp_path: Path) -> None:
    """Each wait is followed at once by a launch, so that it costs nothing; the host's long part comes later. The replay
    lets the host run ahead all the same: that is a remedy, not the verdict."""
    body = Loop(4, [Launch("part", 20 * MS), Sync(), SMALL, Work(60 * MS)])
    device = device_of(tmp_path, body, SMALL, Sync())
    assert device.time["sync"] < 0.05 * sum(device.time.values())
    assert device.verdict.bound == "cpu"
    assert {saving.cause for saving in device.verdict.savings[:2]} == {"cpu", "sync"}


def test_a_gap_is_a_verdict_where_the_host_is_on_record(tmp_path: Path) -> None:
    """One early operation, a long gap, then all of the work: what filled the gap is told as far as it is known."""
    for number, (gap, bound) in enumerate(((Init(900 * MS), "init"), (Work(900 * MS), "cpu"))):
        body = program(SMALL, Sync(), gap, Loop(200, [SMALL, SMALL]), Sync())
        for capture in (Capture(), Capture(osrt=False, sched=False)):
            path = to_export(simulate(realise(body)), capture).write(
                tmp_path / f"{number}-{capture.osrt}.sqlite", "2023"
            )
            verdict = boundby.analyze(path).devices[0].verdict
            is_told = capture.osrt or bound == "init"
            assert verdict.bound == (bound if is_told else "unknown")
            assert is_told or "no GPU work is on record" in str(verdict.why_not)
