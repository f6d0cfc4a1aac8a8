"""Grids whose last turn of blocks fills part of the GPU: what is told of them, to whom, and of which nothing is."""

from __future__ import annotations

from boundby.results.report import Finding
from boundby.rules.builtin.kernel_rules import TAIL_WAVE
from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, program
from tests.rules.builtin.case_tail_wave import SGEMM, kernels
from tests.rules.builtin.hardware import elementwise, on_gpu
from tests.rules.builtin.harness import Source, as_torch, findings


def found(source: Source) -> Finding:
    (finding,) = findings(source, TAIL_WAVE)
    return finding


def test_what_the_last_turn_leaves_idle_is_told_and_no_more_is_promised() -> None:
    item = found(kernels(120))  # 120 of 216 places
    assert "44 % of the multiprocessors' time is left idle" in item.title
    assert item.evidence["idle_fraction"] == 0.4444
    assert item.evidence["multiprocessors"] == 108
    assert item.evidence["waves"] == 0.14  # eight blocks of 256 threads fit at a time
    assert item.saving_ns is not None
    low, high = item.saving_ns
    assert low == 0
    assert 0.8 * 20 * 400 * US * 0.4444 <= high <= 20 * 400 * US * 0.4445
    assert "12 have a block in turn 2" in item.advice[0]


def test_a_grid_that_does_not_reach_all_multiprocessors() -> None:
    assert "launches 70 blocks on 108 multiprocessors, of which 38 have none" in found(kernels(70)).advice[0]


def test_a_librarys_kernel_is_not_the_users_to_rewrite() -> None:
    item = found(as_torch(kernels(120, SGEMM)))
    assert "sizes (batch, sequence, width) that make 108 or 216 blocks" in item.advice[0]
    assert any("max-autotune" in line for line in item.advice)
    assert not any("cudaOccupancy" in line for line in item.advice)
    own = found(kernels(120))
    assert any("cudaOccupancy" in line for line in own.advice)
    assert not any("autotune" in line for line in own.advice)


def test_what_waits_for_memory_loses_nothing_to_a_last_turn() -> None:
    assert not findings(as_torch(kernels(120, elementwise("Add"))), TAIL_WAVE)


def test_many_turns_lose_too_little_and_few_blocks_are_another_rules() -> None:
    assert not findings(kernels(5 * 108 + 1), TAIL_WAVE)
    assert not findings(kernels(40), TAIL_WAVE)


def test_kernels_beside_it_take_the_places_that_are_left() -> None:
    step = Range(
        "step {i}", [Launch("scan", 400 * US, share=0.5), Launch("other", 400 * US, stream=1, share=0.5), Sync()]
    )
    beside = on_gpu(Source(program(Loop(20, [step]))), shapes={"scan": (120, 256)})
    assert not findings(beside, TAIL_WAVE)
