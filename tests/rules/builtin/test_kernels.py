"""What is told of single kernels: no saving that a timeline cannot know, and few blocks beside other kernels."""

from __future__ import annotations

from boundby.results.report import Finding
from boundby.simulate.instructions import MS, Copy, Launch, Loop, Range, Sync, program
from tests.rules.builtin import case_hot_kernel, case_small_grid
from tests.rules.builtin.hardware import on_gpu
from tests.rules.builtin.harness import Source, findings


def told(source: Source, rule: str) -> list[Finding]:
    return [item for item in findings(source) if item.rule == rule]


def test_a_hot_kernel_promises_nothing() -> None:
    (found,) = told(on_gpu(case_hot_kernel.one()), "hot-kernel")
    assert found.saving_ns is None
    assert "89 % of kernel time" in found.title
    assert "4,000 blocks of 256 threads" in found.title
    assert found.advice[0].startswith("ncu ")
    assert "--launch-skip 9 --launch-count 3 --kernel-name stencil " in found.advice[0]  # of twenty
    assert not [line for line in found.advice if "collapse" in line]
    saved = found.evidence["saving_if_twice_as_fast_ns"]
    assert isinstance(saved, int)
    assert 0.9 * 20 * 400_000 <= saved <= 20 * 400_000


def test_of_kernels_side_by_side_the_share_is_of_their_sum() -> None:
    """800 us of which 500 us are beside another kernel of 500 us: 8 of 13, and no more than 300 us to be had."""
    step = [Launch("long", 8 * MS, share=0.5), Launch("short", 5 * MS, stream=1, share=0.5), Sync()]
    (found,) = told(on_gpu(Source(program(Loop(5, [Range("step {i}", step)])))), "hot-kernel")
    assert "62 % of kernel time" in found.title
    saved = found.evidence["saving_if_twice_as_fast_ns"]
    assert isinstance(saved, int)
    assert saved <= 5 * 3 * MS


def test_few_blocks_beside_a_longer_kernel() -> None:
    (found,) = told(case_small_grid.beside(10 * MS), "small-grid")
    assert found.title.startswith("4 kernels of 1 block take ")
    assert found.saving_ns is None
    assert "has 1 block of 256 threads for 108 multiprocessors" in found.advice[0]


def test_two_arrays_go_out_and_back() -> None:
    both = [Copy(64 << 20, "HtoD"), Copy(64 << 20, "HtoD")]
    back = [Copy(64 << 20, "DtoH"), Copy(64 << 20, "DtoH")]
    source = Source(program(Loop(15, [Range("step {i}", [*both, Launch("solve", 1 * MS), *back, Sync()])])))
    (found,) = told(source, "repeated-transfer")
    assert found.title.startswith("2 x 67.1 MB go to the host and as much comes back, 14 times")
    assert found.saving_ns is not None
    assert found.saving_ns[0] == 0  # nothing says that it is the same data
    assert found.advice[0].startswith("If it is the same data, copy once before the loop")
    total = found.evidence["total_ns"]
    assert isinstance(total, int)
    assert found.saving_ns[1] <= total
