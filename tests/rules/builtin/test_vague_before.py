"""Findings that were vague on real traces, each as a small program: which place, whose fault, and what would tell."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from boundby.evidence.launches import Part
from boundby.results.report import Finding
from boundby.rules.builtin._operations import launched
from boundby.simulate.instructions import (
    MS,
    US,
    Copy,
    Instruction,
    Launch,
    Loop,
    Process,
    Program,
    Range,
    Sleep,
    Sync,
    Thread,
    Work,
    program,
)
from boundby.trace.tables import Trace
from tests.rules.builtin.case_shared_gpu import STEPS, _delayed
from tests.rules.builtin.hardware import elementwise, on_gpu
from tests.rules.builtin.harness import Source, as_torch, context_of, findings


def of(rule: str, source: Source) -> list[Finding]:
    return [item for item in findings(source) if item.rule == rule]


def test_a_wait_outside_of_all_ranges_has_a_place_and_a_copy() -> None:
    """A loader's adapter copies each batch on the device and waits, between one range and another."""
    feed = [Copy(64 << 20, "DtoD", "device"), Sync("stream")]
    step = Range("step {i}", [Work(400 * US), Launch("gemm", 2 * MS)])
    body = [step, *feed, Range("[DALI] Feed", [Work(200 * US)])]
    (item,) = of("sync-call", as_torch(Source(program(Loop(20, body), Sync()))))
    assert item.region == ()
    assert 'each right after a copy on the device, between "step *" and "[DALI] Feed"' in item.title
    assert item.advice[0].startswith("Remove the wait: what uses the data comes after the copy")


@pytest.mark.parametrize(
    ("receivers", "late", "words"),
    [
        (3, 0, "it serves 3 processes one after the other"),
        (1, 0, "the messages' own way takes the time"),
        (1, 4 * MS, "it comes late"),
    ],
)
def test_who_sends_while_others_receive(receivers: int, late: int, words: str) -> None:
    wait = 1 * MS

    def receiver() -> Process:
        receive = Range("MPI_Recv", [Sleep(late + wait * receivers, "poll")])
        return Process([Thread([Launch("begin", 200 * US), Loop(10, [receive, Launch("work", 200 * US)]), Sync()])])

    send = [Range("MPI_Send", [Work(wait)]) for _ in range(receivers)]
    sender = Process([Thread([Work(300 * US), Loop(10, [*([Work(late)] if late else []), *send, Work(20 * US)])])])
    found = of("host-wait", Source(Program((sender, *(receiver() for _ in range(receivers))))))
    assert found
    assert all("it alone sends" in item.advice[0] and words in item.advice[0] for item in found)


def _phase(opens: int) -> Source:
    """A kernel, then host code that perhaps opens files, then the steps."""
    files: list[Instruction] = [part for _ in range(opens) for part in (Work(1 * MS), Sleep(5 * US, "open64"))]
    body = [Launch("gemm", 100 * US), Sync(), Work(100 * MS), *files]
    return Source(program(*body, Loop(40, [Range("step {i}", [Launch("gemm", 1 * MS)])]), Sync()))


def test_code_that_nothing_names_is_told_as_such_with_what_would_tell() -> None:
    (item,) = of("host-phase", _phase(0))
    assert item.advice[0].startswith("Record with boundby profile --nsys-args=--python-sampling=true")
    assert not any("building indexes" in line or "imports" in line for line in item.advice)


def test_where_samples_are_on_record_more_of_them_would_tell() -> None:
    def sampled(trace: Trace) -> Trace:
        return replace(trace, captured=replace(trace.captured, cpu_samples=True))

    (item,) = of("host-phase", _phase(0).changed(sampled))
    assert item.advice[0].startswith("Record more samples")


def test_work_that_is_small_as_a_whole_is_not_cut_otherwise() -> None:
    """Two chunks of 32 KiB are no more than one of 64: what helps is more work."""
    chunk = [Copy(32_768, "HtoD"), Launch("add", 2 * US), Copy(32_768, "DtoH")]
    (item,) = of("small-chunks", Source(program(Loop(2, chunk), Sync())))
    assert item.advice[0] == "Copy each array in one piece (65.5 kB); more data at once gains more"


def test_many_files_opened_are_the_cause() -> None:
    (item,) = of("host-phase", _phase(80))
    assert "and opens 80 files" in item.title
    assert item.evidence["files_opened"] == 80
    assert "80 files are opened there" in item.advice[0]


def test_instances_of_other_work_are_not_unsteady() -> None:
    def step(number: int, kernel: str, length: int) -> Range:
        return Range(f"step {number}", [Launch(f"{kernel}_{part}", length) for part in range(4)])

    steps = [step(number, *(("small", 200 * US) if number % 2 else ("large", 2 * MS))) for number in range(12)]
    (item,) = of("unsteady", Source(program(*steps, Sync())))
    assert "instances do 2 kinds of work, by their kernels" in item.title


def test_what_another_process_takes_of_the_gpu_is_not_the_optimizers() -> None:
    """Ten optimizer steps of kernels of their own, with and without slices for another process."""
    kinds = ("Mul", "Add", "addcdiv", "addcmul", "Sqrt", "Div", "Neg")
    update = [Launch(elementwise(kind), 8 * US) for kind in kinds]
    step = Range("step {i}", [Range("forward", [Launch("gemm", 3 * MS)]), Range("optimizer", [*update * 6])])
    alone = as_torch(on_gpu(Source(program(Loop(STEPS, [step]), Sync()))))
    shared = _delayed(alone, 20, 2_700_000)
    assert of("shared-gpu", shared)
    cost_ns = [cost.cost_ns for source in (alone, shared) if (cost := launched(context_of(source), Part.OPTIMIZER))]
    assert cost_ns[1] <= 1.2 * cost_ns[0]


def test_what_is_left_of_data_that_go_to_and_fro_is_told_so() -> None:
    size = 64 << 20
    way_in, way_out = Copy(size, memory="pageable"), Copy(size, "DtoH", memory="pageable")
    step = [way_in, Launch("solve", 4 * MS), way_out]
    found = of("pageable-copy", Source(program(Loop(12, step), Sync())))
    assert any("that are left once the data stays on the device" in item.title for item in found)


def test_operators_of_one_name_on_other_shapes_are_no_matter() -> None:
    lengths = [200 * US if number % 2 else 2 * MS for number in range(12)]
    steps = [Range("aten::mm", [Launch(f"gemm_{length}", length)]) for length in lengths]
    assert not of("unsteady", as_torch(Source(program(*steps, Sync()))))


def test_kernels_of_few_blocks_beside_copies_say_that_copies_run_too() -> None:
    step = [Copy(96 << 20, memory="pinned", stream=1), Launch("scan", 6 * MS, share=0.2), Sync()]
    source = on_gpu(Source(program(Loop(10, [Range("step {i}", step)]))), shapes={"scan": (4, 256)})
    (item,) = of("small-grid", source)
    assert "; copies run during " in item.title
