"""Copies: whose rule each belongs to, and what counts as coming back."""

from __future__ import annotations

import pytest

from boundby.evidence.transfers import Transfer, is_upload, link_rate, transfers
from boundby.simulate.instructions import MS, US, Copy, Instruction, Launch, Loop, Sync, Work, program
from boundby.trace.tables import GpuFacts
from tests.rules.builtin.hardware import A100, on_gpu
from tests.rules.builtin.harness import Source, context_of

SIZE = 64 << 20
IN, OUT = Copy(SIZE, "HtoD"), Copy(SIZE, "DtoH")
KERNEL = Launch("stencil", 300 * US)


def _returns(*body: Instruction) -> tuple[int, int]:
    """How many copies return, and how often."""
    found = transfers(context_of(Source(program(Loop(8, body)))))
    return len(found.rows(Transfer.RETURNS)), found.returns


def test_out_and_back_returns() -> None:
    # Seven times out of eight there is a next step; the first way in and the last way out have to be.
    assert _returns(IN, KERNEL, OUT, Sync()) == (14, 7)


def test_two_arrays_return() -> None:
    assert _returns(IN, IN, KERNEL, OUT, OUT, Sync()) == (28, 7)


def test_data_that_the_host_makes_anew_does_not_return() -> None:
    assert _returns(Work(10 * MS), IN, KERNEL, OUT, Sync()) == (0, 0)


def test_another_size_does_not_return() -> None:
    assert _returns(IN, KERNEL, Copy(SIZE // 2, "DtoH"), Sync()) == (0, 0)


def test_copies_side_by_side_do_not_return() -> None:
    assert _returns(Copy(SIZE, "HtoD", stream=1), KERNEL, Copy(SIZE, "DtoH", stream=2)) == (0, 0)


def test_what_no_kernel_reads_does_not_return() -> None:
    assert _returns(IN, OUT, Sync()) == (0, 0)


def test_small_copies_are_nobody_s() -> None:
    found = transfers(context_of(Source(program(Loop(5, [KERNEL, Copy(4096, "HtoD", "pageable")])))))
    assert len(found.rows(Transfer.PAGEABLE)) == 0


def test_copies_before_the_first_kernel_are_an_upload() -> None:
    upload = Loop(5, [Copy(SIZE, "HtoD", "pageable")])
    context = context_of(Source(program(upload, Loop(5, [KERNEL]), Sync())))
    assert is_upload(context, transfers(context).rows(Transfer.PAGEABLE))
    context = context_of(Source(program(Loop(5, [Copy(SIZE, "HtoD", "pageable"), Launch("gemm", 5 * MS)]), Sync())))
    assert not is_upload(context, transfers(context).rows(Transfer.PAGEABLE))


@pytest.mark.parametrize(
    ("facts", "name", "expected"),
    [
        (A100, "NVIDIA A100-SXM4-80GB", (24.0, "PCIe 4.0 x16")),
        (GpuFacts(80, (7, 0)), "Tesla V100-SXM2-16GB", (12.0, "PCIe 3.0 x16")),
        (GpuFacts(132, (9, 0)), "NVIDIA H100 PCIe", (50.0, "PCIe 5.0 x16")),
        (GpuFacts(132, (9, 0)), "NVIDIA GH200 480GB", None),
        (GpuFacts(76, (8, 9)), "NVIDIA RTX 5000 Ada Generation Laptop GPU", (12.0, "PCIe 4.0 x8")),
        (GpuFacts(), "NVIDIA A100-SXM4-80GB", None),
    ],
)
def test_the_link_is_assumed_from_the_generation(
    facts: GpuFacts, name: str, expected: tuple[float, str] | None
) -> None:
    context = context_of(on_gpu(Source(program(KERNEL, Sync())), facts, name=name))
    assert link_rate(context, 0) == expected
