"""What a finding promises, the mended program keeps: written without the pattern, it is as much shorter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from boundby.simulate.instructions import Instruction, Launch, Loop, Program, Range, walk
from tests.rules.builtin import (
    case_allocation,
    case_copy_overlap,
    case_cuda_graphs,
    case_launch_overhead,
    case_layout_conversion,
    case_lazy_initialization,
    case_pageable_copy,
    case_repeated_transfer,
    case_tensor_cores,
    case_unfused_elementwise,
    case_unfused_optimizer,
)
from tests.rules.builtin.harness import Source, context_of, findings
from tests.rules.builtin.random_truth import STATED_ERROR


def _faster(source: Source, kernels: str, factor: float) -> Source:
    """The same program with kernels of which this is a part of the name so many times as fast."""

    def of(body: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        return tuple(one(instruction) for instruction in body)

    def one(instruction: Instruction) -> Instruction:
        if isinstance(instruction, Launch) and kernels in instruction.kernel:
            return replace(instruction, ns=round(instruction.ns / factor))
        if isinstance(instruction, Loop | Range):
            return replace(instruction, body=of(tuple(instruction.body)))
        return instruction

    assert isinstance(source.program, Program)
    assert any(isinstance(found, Launch) and kernels in found.kernel for found in walk(_body(source.program)))
    (process,) = source.program.processes
    threads = tuple(replace(thread, body=of(tuple(thread.body))) for thread in process.threads)
    return replace(source, program=replace(source.program, processes=(replace(process, threads=threads),)))


def _body(program: Program) -> tuple[Instruction, ...]:
    return tuple(program.processes[0].threads[0].body)


# The rule, its program, and the programs that the low and the high end of its saving speak of.
MENDED: dict[str, tuple[Source, Callable[[], Source], Callable[[], Source]]] = {
    "layout-conversion": (
        case_layout_conversion.converts(),
        lambda: _faster(case_layout_conversion.converts(), "Kernel<float", 2.0),
        case_layout_conversion.channels_last,
    ),
    "tensor-cores": (
        case_tensor_cores.fp32(),
        lambda: _faster(case_tensor_cores.fp32(), "sgemm", 2.5),
        lambda: _faster(case_tensor_cores.fp32(), "sgemm", 8.0),
    ),
    "unfused-elementwise": (
        case_unfused_elementwise.chains(),
        lambda: _faster(case_unfused_elementwise.chains(), "elementwise", 1.3),
        lambda: _faster(case_unfused_elementwise.chains(), "elementwise", 4.0),
    ),
    "repeated-transfer": (
        case_repeated_transfer.out_and_back(),
        case_repeated_transfer.out_and_back,  # each time other data
        case_repeated_transfer.stays,
    ),
    "lazy-initialization": (
        case_lazy_initialization.loads(),
        case_lazy_initialization.loads,
        case_lazy_initialization.loaded,
    ),
}
# Where the remedy lies between the ends.
BETWEEN: dict[str, tuple[Source, Callable[[], Source]]] = {
    "cuda-graphs": (case_cuda_graphs.one_by_one(), case_cuda_graphs.as_graphs),
    "copy-overlap": (case_copy_overlap.in_turn(), case_copy_overlap.ahead),
    "pageable-copy": (case_pageable_copy.pageable(), case_pageable_copy.pinned),
    "allocation": (case_allocation.every_step(), case_allocation.never),
    "unfused-optimizer": (case_unfused_optimizer.tensor_by_tensor(), case_unfused_optimizer.fused),
}


def _promised(source: Source, rule: str) -> tuple[int, int]:
    (found,) = [item for item in findings(source) if item.rule == rule]
    assert found.saving_ns is not None
    return found.saving_ns


def _truth(before: Source, after: Source) -> tuple[int, float]:
    """What the mended program is shorter by, and the error stated for predictions of its length."""
    mended = context_of(after).longest_window_ns
    return context_of(before).longest_window_ns - mended, STATED_ERROR * mended


@pytest.mark.parametrize("rule", MENDED)
def test_both_ends_are_true(rule: str) -> None:
    before, least, most = MENDED[rule]
    low, high = _promised(before, rule)
    for promised, after in ((low, least), (high, most)):
        truth, error = _truth(before, after())
        # Ranges hold the replay's own error of a twentieth besides.
        assert abs(promised - truth) <= error + 0.06 * truth


@pytest.mark.parametrize("rule", BETWEEN)
def test_the_remedy_lies_between(rule: str) -> None:
    before, after = BETWEEN[rule]
    low, high = _promised(before, rule)
    truth, error = _truth(before, after())
    assert low - error <= truth <= high + error


def test_fewer_launches_lie_between() -> None:
    """Fusion that leaves half of the launches."""
    before = case_launch_overhead.short()
    low, high = _promised(before, "launch-overhead")
    assert isinstance(before.program, Program)
    half = _body(before.program)[: len(_body(before.program)) // 2]
    (process,) = before.program.processes
    shorter = replace(process, threads=(replace(process.threads[0], body=half),))
    truth, error = _truth(before, replace(before, program=replace(before.program, processes=(shorter,))))
    assert low - error <= truth <= high + error
