"""Simulated programs before and after a change, analysed once each."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.simulated.counterfactual import Case
from msgspec.structs import replace

import boundby
from boundby.results.report import Instances, RegionReport, Report
from boundby.simulate.instructions import US, Instruction, Launch, Loop, Program, Range, Sync, Work, item, program
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export
from tests.support import reports

MACHINE = Machine(host_jitter=0.05, device_jitter=0.02)


def training(
    *, steps: int = 30, reads: int = 3, gemm_ns: int = 300 * US, loss: str = "loss", step: str = "step {i}"
) -> Program:
    """Forward, a loss that reads values back, backward."""
    body: list[Instruction] = []
    for _ in range(reads):
        body += [Launch("nonzero", 20 * US), *item(), Work(80 * US, 0.1)]
    return program(
        Loop(
            steps,
            [
                Range(
                    step,
                    [
                        Range("data", [Work(200 * US, 0.1)]),
                        Range("forward", [Work(30 * US), Launch("gemm", gemm_ns), Launch("relu", 40 * US)]),
                        Range(loss, [*body, Launch("cross_entropy", 50 * US)]),
                        Range("backward", [Launch("gemm_grad", 2 * gemm_ns), Launch("gemm_grad", gemm_ns)]),
                    ],
                )
            ],
        ),
        Sync(),
        name="train",
    )


def write(made: Program, path: Path, *, seed: int = 0, machine: Machine = MACHINE) -> Path:
    """A run of the program as an export."""
    return write_export(Case("pair", made, machine, seed).run(), path)


@functools.lru_cache(maxsize=64)
def run(made: Program, seed: int = 0, machine: Machine = MACHINE) -> Report:
    """A run of the program, analysed."""
    with tempfile.TemporaryDirectory() as folder:
        return boundby.analyze(write(made, Path(folder) / "run.sqlite", seed=seed, machine=machine))


def made_of(*regions: RegionReport) -> Report:
    """A report of these regions."""
    base = reports.sample()
    return replace(base, regions=(base.regions[0], *regions), findings=(), what_if=())


def region(
    path: str | tuple[str, ...], each_ms: float = 1.0, *, durations: Sequence[int] | None = None, domain: str = ""
) -> RegionReport:
    """A region of 20 instances, or as many as there are durations."""
    found = tuple(durations) if durations is not None else (round(each_ms * 1e6),) * 20
    total = sum(found) / 1e6
    made = reports.region(
        path,
        reports.account(gpu_compute=0.7 * total, sync=0.3 * total),
        reports.verdict("gpu_compute", 0.5 * total),
        instances=len(found),
        host_ms=total / max(len(found), 1),
        domain=domain,
    )
    return replace(made, instance_ns=Instances(found, found))
