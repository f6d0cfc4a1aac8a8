"""Operators, user regions and sources of calls and gaps."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from msgspec.structs import replace

from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.evidence.operators import operators_of, source_of
from boundby.readers import read_trace
from boundby.trace.stacks import Backtraces, Frames, LazyBacktraces, StackEvents, StackSource
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.range_names import is_operator
from tests.support.program import Program
from tests.support.traces import trace_path


def timeline_of(trace: Trace) -> Timeline:
    return build_timeline(trace, parse_window("gpu"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::nonzero", True),
        ("aten::_unique2, seq = 12, op_id = 7, sizes = [[3, 4]]", True),
        ("autograd::engine::evaluate_function: MulBackward0", True),
        ("torch::autograd::AccumulateGrad", True),
        ("struct torch::autograd::CopySlices", True),
        ("NllLossBackward0, seq = 4", True),
        ("Backward pass", False),
        ("Optimizer.step#Adam.step", False),
        ("Solver::step", False),
        ("mylib::solve", False),  # a C++ program may name its ranges so
        ("step 12", False),
    ],
)
def test_operator_names(name: str, expected: bool) -> None:
    assert is_operator(name) is expected


def loss() -> Program:
    """A loss in which ``nonzero`` waits through ``item``; a custom operator; NCCL's own range."""
    program = Program(domains=("", "NCCL"))
    program.push(0, 1000, "step 1")
    program.push(10, 500, "loss")
    program.push(20, 200, "aten::nonzero, seq = 3")
    program.push(30, 190, "aten::item")
    program.push(40, 180, "aten::_local_scalar_dense, op_id = 9")
    call = program.api(50, 60, "cudaMemcpyAsync")
    program.copy(100, 120, call)
    program.api(70, 150, "cudaStreamSynchronize")
    program.push(300, 400, "mylib::fused")
    program.push(305, 395, "inner module")
    program.kernel(330, 340, program.api(310, 320, "cudaLaunchKernel"))
    program.push(600, 700, "ncclAllReduce", domain=1)
    program.kernel(630, 640, program.api(610, 620, "cudaLaunchKernel"), "nccl_kernel")
    return program


def test_innermost_outermost_and_chain() -> None:
    timeline = timeline_of(loss().trace())
    found = operators_of(timeline)
    paths = ["/".join(timeline.ownership.regions.path(int(region))) for region in found.region[np.arange(4)]]
    assert [found.chain(call)[:1] for call in range(4)] == [("aten::_local_scalar_dense",)] * 2 + [(), ()]
    assert found.chain(1) == ("aten::_local_scalar_dense", "aten::item", "aten::nonzero")
    assert found.names[found.outermost[1]] == "aten::nonzero"
    # A range of the user's inside an operator starts anew; a library's own range is passed over.
    assert paths == ["step */loss", "step */loss", "step */loss/mylib::fused/inner module", "step *"]
    assert found.of_range[np.arange(2, 4)].tolist() == [-1, -1]


def test_a_trace_without_ranges() -> None:
    program = Program()
    program.kernel(20, 30, program.api(0, 10, "cudaLaunchKernel"))
    found = operators_of(timeline_of(program.trace()))
    assert (found.of_range[0], found.region[0]) == (-1, 0)
    assert found.chain(0) == ()


def test_gaps_lead_to_the_launch_and_the_wait() -> None:
    program = Program()
    first = program.api(0, 1_000, "cudaLaunchKernel")
    program.kernel(2_000, 50_000, first)
    program.api(2_000, 51_000, "cudaStreamSynchronize")
    program.kernel(80_000, 90_000, program.api(70_000, 75_000, "cudaLaunchKernel"))
    timeline = timeline_of(program.trace())
    gaps = timeline.devices[0].gaps
    names = timeline.trace.names
    name = timeline.calls.name
    assert (gaps.start_ns.tolist(), gaps.end_ns.tolist()) == ([50_000], [80_000])
    assert names[name[timeline.calls.of_operation[gaps.operation[0]]]] == "cudaLaunchKernel"
    assert names[name[gaps.wait[0]]] == "cudaStreamSynchronize"
    assert timeline.trace.operations.start_ns[gaps.operation[0]] == 80_000
    assert (gaps.sync_ns.tolist(), timeline.waits.idle_ns[gaps.wait[0]]) == ([30_000], 30_000)


def stacks(events: list[tuple[StackSource, int, int, int]]) -> LazyBacktraces:
    """Two stacks: a Python one (0) and a C one (1). ``events``: source, thread, start, stack."""
    names = (
        "item",
        "/site-packages/torch/t.py",
        "loss",
        "/home/me/train.py",
        "at::item",
        "libtorch.so",
        "poll",
        "libc.so.6",
    )
    frames = Frames(
        np.array([0, 2, 6, 4], np.int32),
        np.array([1, 3, 7, 5], np.int32),
        np.array([5, 42, 0, 0], np.int32),
        np.ones(4, bool),
        np.zeros(4, bool),
    )
    columns = np.array(sorted(events), np.int64).reshape(-1, 4).T
    table = StackEvents(
        columns[2], columns[1].astype(np.int32), columns[0].astype(np.int8), columns[3].astype(np.int32)
    )
    built = Backtraces(table, np.array([0, 2, 4]), np.array([0, 1, 2, 3], np.int32), frames, names)
    return LazyBacktraces(lambda: built)


def test_sources_are_python_frames_first() -> None:
    trace = loss().trace()
    captured = replace(trace.captured, backtraces=True, python_stacks=True)
    both = stacks([(StackSource.PYTHON, 0, 151, 0), (StackSource.CUDA, 0, 70, 1), (StackSource.CUDA, 0, 310, 1)])
    timeline = timeline_of(replace(trace, captured=captured, backtraces=both))
    assert source_of(timeline, 1) == ("loss (train.py:42)",)
    assert source_of(timeline, 2) == ("loss (train.py:42)",)  # within 50 us, and no other call lies between
    assert source_of(timeline, 0) == ()
    only = timeline_of(replace(trace, captured=replace(captured, python_stacks=False), backtraces=both))
    assert source_of(only, 1) == ("at::item [libtorch.so]",)
    assert source_of(timeline_of(trace), 1) == ()


def test_the_syncs_of_a_real_training_loop() -> None:
    timeline = timeline_of(read_trace(trace_path("pytorch_a100_all_cpu_tables.sqlite")))
    found, calls = operators_of(timeline), timeline.calls
    syncs = [call for call in range(len(calls)) if timeline.trace.names[calls.name[call]].startswith("cudaStreamSync")]
    chains = collections.Counter(found.chain(call) for call in syncs)
    assert chains[("aten::copy_", "aten::_to_copy", "aten::to")] == 118
    assert chains[("aten::_local_scalar_dense", "aten::item")] == 1
