"""Hundreds of collectives in each step, one per parameter, are told as such."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundby
from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, Work, program
from boundby.simulate.machine import Machine, realise, simulate
from boundby.simulate.nsys_export import write_export

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@pytest.mark.parametrize(("parameters", "is_told"), [(160, True), (4, False)])
def test_collectives_one_by_one(parameters: int, is_told: bool, tmp_path: Path) -> None:
    reduce = Loop(parameters, [Launch(NCCL, 4_000 * US // parameters, comm=True)])
    step = Range("step {i}", [Range("backward", [Work(20 * US), Launch("gemm_grad", 9_000 * US)]), reduce])
    run = simulate(realise(program(Loop(6, [step]), Sync()), Machine(), 0))
    report = boundby.analyze(write_export(run, tmp_path / "ddp.sqlite"))
    (found,) = [one for one in report.findings if one.rule == "comm-exposed"]
    assert found.evidence["of_a_step"] == parameters
    assert ("collectives of" in found.title) == is_told
    assert found.advice[0].startswith("Send them in buckets") == is_told
