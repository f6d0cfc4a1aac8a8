"""Responses that look at how the program is built: items, waits between them, a small device part, operators left on
the CPU, inference. Predictions are held against the program with the response carried out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.simulated.counterfactual import Case

from boundby import api
from boundby.results.report import DeviceReport, FirstResponse
from boundby.simulate.instructions import (
    MS,
    US,
    Copy,
    Instruction,
    Launch,
    Loop,
    Program,
    Range,
    Sync,
    Work,
    item,
    program,
)
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export
from tests.support.traces import analysis_of

ITEMS, KERNELS, FRAMES = 80, 18, 6


def _device(made: Program, folder: Path) -> DeviceReport:
    path = folder / f"{len([*folder.iterdir()])}.sqlite"
    write_export(Case("made", made, Machine(host_jitter=0.05, device_jitter=0.01), 1).run(), path, "2023")
    (device,) = api.analyze(path).devices
    return device


def _ids(device: DeviceReport) -> list[str]:
    return [one.id for one in device.first_responses]


def _response(device: DeviceReport, key: str) -> FirstResponse:
    return next(one for one in device.first_responses if one.id == key)


def _rounds(name: str, count: int = ITEMS, *, waits: bool = True, share: float = 0.02) -> Program:
    """Frames that work on one item after the other; without a name the rounds have no range."""
    body: list[Instruction] = []
    for number in range(KERNELS):
        body += [Work(8 * US, 0.2), Launch(f"elementwise_{number}", 3 * US, share=share)]
    body += item() if waits else []
    rounds: list[Instruction] = [Range(name, body)] if name else body
    frame = [Copy(1_000_000, "HtoD", "pinned"), Loop(count, rounds), Launch("sum", 50 * US), *item()]
    return program(Loop(FRAMES, [Range("frame {i}", frame)]), Sync(), name="items")


@pytest.mark.parametrize("name", ["item {i}", "", "crop {i}"])
def test_items_are_worked_on_as_one_batch_of_as_many_as_there_are(name: str, tmp_path: Path) -> None:
    before, after = _device(_rounds(name), tmp_path), _device(_rounds(name, 1), tmp_path)
    told = _response(before, "cuda_api.one-batch")
    assert "80" in told.title
    assert "18 kernels" in told.because
    assert told.saving_ns is not None
    low, high = told.saving_ns
    saved = before.window_ns - after.window_ns
    assert low <= saved <= 1.02 * high
    assert "cuda_api.larger-batch" not in _ids(before)
    assert (_ids(before)[0] == told.id) is bool(name)  # nothing but a name says that they are items


@pytest.mark.parametrize(("name", "waits"), [("layer {i}", True), ("block {i}", False), ("", False)])
def test_layers_are_no_items(name: str, waits: bool, tmp_path: Path) -> None:
    ids = _ids(_device(_rounds(name, waits=waits and bool(name)), tmp_path))
    assert "cuda_api.one-batch" not in ids
    assert "cuda_api.larger-batch" in ids


def test_kernels_that_fill_the_gpu_take_as_long_in_one_batch(tmp_path: Path) -> None:
    small, large = (_device(_rounds("item {i}", share=share), tmp_path) for share in (0.02, 1.0))
    savings = [_response(one, "cuda_api.one-batch").saving_ns for one in (small, large)]
    assert savings[0] is not None
    assert savings[1] is not None
    assert savings[1][1] <= large.window_ns - large.time["gpu_compute"] < savings[0][1]


def _waiting(steps: int, batch: int) -> Program:
    """As many items in all: a larger batch keeps the device longer, and the host as long as before."""
    prepare: list[Instruction] = [piece for _ in range(5) for piece in (Work(45 * US), Launch("fill", 2 * US))]
    step = [Launch("gemm", batch * 250 * US), *item(), *prepare]
    return program(Loop(steps, [Range("step {i}", step)]), Sync(), name="waiting")


def test_more_work_between_waits_is_numbered(tmp_path: Path) -> None:
    before, after = _device(_waiting(40, 1), tmp_path), _device(_waiting(20, 2), tmp_path)
    assert before.verdict.bound == "sync"
    told = _response(before, "sync.larger-batch")
    assert told.saving_ns is not None
    assert told.saving_ns[0] <= before.window_ns - after.window_ns <= told.saving_ns[1] * 1.05


def test_a_small_device_part_with_many_waits_may_run_on_the_cpu(tmp_path: Path) -> None:
    body: Sequence[Instruction] = [Launch("add", 3 * US), *item(), Work(20 * US, 0.1)]
    search = Range("search", [Loop(10, body)])
    device = _device(program(Loop(50, [Range("step {i}", [search])]), Sync()), tmp_path)
    told = _response(device, f"{device.verdict.bound}.on-cpu")
    assert told.saving_ns is not None
    assert told.saving_ns[0] == 0  # how long a CPU takes for it is in no trace
    assert "1.50 ms" in told.because
    assert "what-if" in told.command
    assert not {"cuda_api.on-cpu", "sync.on-cpu"} & {*_ids(_device(_waiting(40, 1), tmp_path))}


def test_operators_left_on_the_cpu_come_before_other_host_code(tmp_path: Path) -> None:
    forward = [Range("aten::mm, seq = {i}", [Work(20 * US), Launch("gemm", 200 * US)]) for _ in range(4)]
    left = Range("aten::cdist, seq = {i}", [Work(3 * MS, 0.1)])
    step = Range("step {i}", [left, Range("metrics", [Work(1 * MS, 0.1)]), Range("forward", forward)])
    device = _device(program(Loop(20, [step]), Sync()), tmp_path)
    assert device.verdict.bound == "cpu"
    first, second = device.first_responses[:2]
    assert first.id == "cpu.move-to-device"
    assert first.saving_ns is not None
    assert first.saving_ns[0] > 0
    assert second.id in ("cpu.find-host-code", "cpu.vectorise")
    assert second.saving_ns is not None
    assert second.saving_ns[1] < 25 * MS  # of the metrics alone: no cost is told twice


@pytest.mark.parametrize("trains", [False, True])
def test_an_engine_is_for_inference(trains: bool, tmp_path: Path) -> None:
    layer = [
        Range("aten::linear, seq = {i}", [Work(12 * US), Launch("ampere_sgemm_128x64_tn", 400 * US)]),
        Range("aten::gelu, seq = {i}", [Work(10 * US), Launch("at::native::vectorized_elementwise_kernel", 60 * US)]),
    ]
    parts = [Range("forward", layer * 8), *([Range("backward", layer * 8)] if trains else [])]
    device = _device(program(Loop(20, [Range("request {i}", parts)]), Sync()), tmp_path)
    assert device.verdict.bound == "gpu_compute"
    assert ("gpu_compute.inference-engine" in _ids(device)) is not trains


@pytest.mark.parametrize(
    ("trace", "leads"), [("kineto/b200_eager.json.gz", True), ("kineto/a100_two_ranks_nccl_rank0.json.gz", False)]
)
def test_a_graph_around_collectives_leads_only_where_a_server_captures_it(trace: str, leads: bool) -> None:
    [device] = analysis_of(trace).report.devices
    assert device.verdict.bound in ("cuda_api", "mixed")
    assert (device.first_responses[0].id == "cuda_api.cuda-graphs") is leads
