"""How much of communication is hidden: by hand, against the account, and in every format; waiting is no transfer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import boundby
from boundby.cli.main import main
from boundby.simulate.instructions import MS, US, Launch, Loop, Range, Record, Sync, WaitEvent, Work, program
from boundby.simulate.kineto import to_kineto
from boundby.simulate.machine import Machine, Run, realise, simulate
from boundby.simulate.nsys_export import write_export
from tests.support.traces import trace_path

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
REAL = "kineto/a100_two_ranks_nccl_rank0.json.gz"


def half_hidden() -> Run:
    """Five steps: a reduction of 4 ms, beside a kernel for its first 2 ms or so."""
    step = Range(
        "step {i}",
        [
            Launch("gemm", 1 * MS),
            Record("ready"),
            WaitEvent("ready", 2),
            Range("reduce", [Launch(NCCL, 4 * MS, 2, comm=True, share=0.2)]),
            Launch("gemm", 2 * MS, share=0.8),
            Sync(),
            Work(20 * US),
        ],
    )
    return simulate(realise(program(Loop(5, [step]), Sync()), Machine(), 0))


def by_hand(run: Run) -> tuple[int, int]:
    """Nanoseconds of all reductions, and those in which no other kernel runs, instant by instant of their edges."""
    reductions = [(one.start_ns, one.end_ns) for one in run.operations if one.spec.name == NCCL]
    others = [(one.start_ns, one.end_ns) for one in run.operations if one.spec.name != NCCL]
    hidden = sum(max(min(end, e) - max(start, s), 0) for start, end in reductions for s, e in others)
    total = sum(end - start for start, end in reductions)
    return total, total - hidden


def test_overlap_by_hand(tmp_path: Path) -> None:
    run = half_hidden()
    report = boundby.analyze(write_export(run, tmp_path / "run.sqlite"))
    (device,) = report.devices
    assert device.communication is not None
    assert (device.communication.total_ns, device.communication.exposed_ns) == by_hand(run)
    assert 0.3 < device.communication.hidden_fraction < 0.6
    regions = {region.path: region.communication for region in report.regions}
    (step,) = (one for path, one in regions.items() if path == ("step *",))
    assert step is not None
    assert len(step.hidden_of_each) == 5
    assert step.hidden_of_each == pytest.approx([step.hidden_fraction] * 5, abs=0.05)
    inner = regions["step *", "reduce"]
    assert inner is not None
    assert (inner.total_ns, inner.exposed_ns) == (step.total_ns, step.exposed_ns)


def test_what_is_left_is_the_accounts_communication() -> None:
    report = boundby.analyze(trace_path(REAL))
    parts = [(one.communication, one.time) for one in report.devices]
    parts += [(one.communication, one.time) for one in report.regions]
    for communication, time in parts:
        assert time["gpu_comm"] == (communication.exposed_ns if communication is not None else 0)


def test_overlap_stands_in_screen_csv_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_export(half_hidden(), tmp_path / "run.sqlite")
    assert main(["analyze", str(path), "-q"]) == 0
    assert "; other kernels hide" in capsys.readouterr().out
    assert main(["analyze", str(path), "--format", "csv", "-q"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert "communication_total_ns,communication_exposed_ns,communication_hidden_fraction" in head
    assert rows
    assert main(["analyze", str(path), "--format", "json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told["devices"][0]["communication"]) == {
        "total_ns",
        "exposed_ns",
        "hidden_fraction",
        "hidden_of_each",
    }


def test_a_graph_around_collectives_is_no_first_advice() -> None:
    (device,) = boundby.analyze(trace_path(REAL)).devices
    ids = [one.id for one in device.first_responses]
    assert "cuda_api.graphs-with-collectives" in ids[1:]
    assert "cuda_api.cuda-graphs" not in ids


def _one_rank(tmp_path: Path, lengths_ms: list[float], bytes_of: list[int]) -> Path:
    """A rank whose reductions have these lengths and messages."""
    steps = [
        Range(f"step {i}", [Launch("gemm", 3 * MS), Launch(NCCL, round(length * MS), comm=True), Sync()])
        for i, length in enumerate(lengths_ms)
    ]
    trace = to_kineto(simulate(realise(program(*steps), Machine(), 0)))
    reductions = [event for event in trace["traceEvents"] if event.get("name") == NCCL]
    reductions.sort(key=lambda event: event["ts"])
    for event, size in zip(reductions, bytes_of, strict=True):
        told = {"In msg nelems": size // 4, "Out msg nelems": size // 4, "dtype": "Float", "Group size": 2}
        event["args"] |= {"Collective name": "allreduce", **told}
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return path


def test_a_length_that_does_not_grow_with_the_size_is_waiting(tmp_path: Path) -> None:
    small, large = 6 << 20, 18 << 20
    path = _one_rank(tmp_path, [6.7, 1.2, 6.5, 1.2] * 5, [small, large] * 10)
    (found,) = [one for one in boundby.analyze(path).findings if one.rule == "comm-exposed"]
    assert found.evidence["waiting_ns"] == pytest.approx(10 * 5.4 * MS, rel=0.02)
    assert "waiting for other ranks, which no overlap saves" in found.title
    assert found.remedy == "gpu_comm.find-late-rank"
    assert found.advice[0].startswith("Find the rank that comes late: boundby job FOLDER")
    assert found.saving_ns is not None
    assert found.saving_ns[0] == 0


def test_transfer_is_no_waiting(tmp_path: Path) -> None:
    path = _one_rank(tmp_path, [1.0, 3.0] * 10, [6 << 20, 18 << 20] * 10)
    (found,) = [one for one in boundby.analyze(path).findings if one.rule == "comm-exposed"]
    assert found.evidence["waiting_ns"] == pytest.approx(0, abs=0.2 * MS)
    assert "waiting" not in found.title
    assert found.remedy == "gpu_comm.overlap-comm"
