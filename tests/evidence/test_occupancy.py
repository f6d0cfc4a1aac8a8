"""Theoretical occupancy, against NVIDIA's calculator."""

from __future__ import annotations

import pytest

from boundby.evidence.kernels import theoretical_occupancy
from boundby.trace.tables import GpuFacts

A100 = GpuFacts(108, (8, 0), 64, 65_536, 167_936)
T4 = GpuFacts(40, (7, 5), 32, 65_536, 65_536)


@pytest.mark.parametrize(
    ("facts", "threads", "registers", "shared", "fraction", "limit"),
    [
        (A100, 256, 32, 0, 1.0, "nothing"),
        (A100, 256, 64, 0, 0.5, "registers"),
        (A100, 128, 255, 0, 0.125, "registers"),
        (A100, 32, 32, 0, 0.5, "blocks"),
        (A100, 256, 32, 64 * 1024, 0.25, "shared memory"),
        (A100, 1024, 17, 0, 1.0, "nothing"),
        (T4, 128, 34, 0, 1.0, "nothing"),
        (T4, 64, 32, 0, 1.0, "nothing"),
    ],
)
def test_it_agrees_with_the_calculator(
    facts: GpuFacts, threads: int, registers: int, shared: int, fraction: float, limit: str
) -> None:
    found = theoretical_occupancy(facts, threads, registers, shared)
    assert found is not None
    assert found.fraction == pytest.approx(fraction)
    assert found.limit == limit


def test_unknown_hardware_tells_nothing() -> None:
    assert theoretical_occupancy(GpuFacts(), 256, 32, 0) is None
    assert theoretical_occupancy(A100, 0, 0, 0) is None


def test_a_kernel_that_could_not_run_by_these_limits_tells_nothing() -> None:
    assert theoretical_occupancy(A100, 256, 32, 200 * 1024) is None
