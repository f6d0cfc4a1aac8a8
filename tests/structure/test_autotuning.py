"""Searches for the fastest kernel, known by what they do."""

from __future__ import annotations

import pytest

from boundby.attribution.timeline import build_timeline
from boundby.attribution.windows import parse_window
from boundby.correlation.starting import find_searches
from tests.support.program import Program

US = 1000


def searches(program: Program) -> list[tuple[int, int]]:
    timeline = build_timeline(program.trace(), parse_window("gpu"))
    found = find_searches(timeline.trace, timeline.calls, timeline.call_range)
    return [(low // US, high // US) for low, high in zip(found.start.tolist(), found.end.tolist(), strict=True)]


def timed(program: Program, begin: int, kernel: str) -> None:
    """A candidate: two launches between two events, and a wait for the second one, 100 us in all."""
    for number, name in enumerate(("fill", kernel)):
        call = program.api((begin + 10 * number) * US, (begin + 10 * number + 5) * US, "cudaLaunchKernel")
        program.kernel((begin + 20 + 30 * number) * US, (begin + 25 + 50 * number) * US, call, name)
    program.api((begin + 30) * US, (begin + 80) * US, "cudaEventSynchronize")


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        (["winograd", "implicit", "fft"], [(1000, 1280)]),
        (["winograd", "implicit", "winograd", "fft"], [(1000, 1380)]),
        (["winograd", "implicit"], []),  # two parts of a step, each timed
        (["step"] * 30, []),  # a program that times its steps
    ],
)
def test_candidates_that_are_timed(kernels: list[str], expected: list[tuple[int, int]]) -> None:
    program = Program()
    program.push(900 * US, 9_000 * US, "aten::cudnn_convolution")
    for number, name in enumerate(kernels):
        timed(program, 1000 + 100 * number, name)
    assert searches(program) == expected


def test_waits_of_several_operators_are_no_search() -> None:
    program = Program()
    for number in range(6):
        program.push((950 + 100 * number) * US, (1040 + 100 * number) * US, f"op {number}")
        timed(program, 955 + 100 * number, f"kernel_{number}")
    assert searches(program) == []


def test_outputs_that_are_checked() -> None:
    program = Program()
    for number in range(8):
        begin = 1000 + 100 * number
        for place, name in enumerate((f"gemm_{number}", "redzone_checker")):
            call = program.api((begin + 20 * place) * US, (begin + 20 * place + 5) * US, "cuLaunchKernel")
            program.kernel((begin + 20 * place + 8) * US, (begin + 20 * place + 18) * US, call, name)
    assert searches(program) == [(1020, 1738)]
