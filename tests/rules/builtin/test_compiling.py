"""JIT is a kind of `init` of its own: told by calls, ranges and compilers' processes, and by nothing less."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from boundby.api import Analysis
from boundby.correlation.starting import hands_over_code, is_compile_range, is_compiler_process
from boundby.model.causes import Cause
from boundby.readers import read_trace
from boundby.results.report import Finding
from boundby.simulate.instructions import (
    MS,
    US,
    Init,
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
from tests.rules.builtin.harness import Source, context_of, findings
from tests.support.traces import trace_path

STEP = Loop(20, [Range("step {i}", [Launch("part", 500 * US), Work(50 * US)]), Sync()])


def _jit(*body: Instruction) -> tuple[int, list[Finding]]:
    source = Source(program(Launch("first", 10 * US), *body, STEP))
    context = context_of(source)
    return context.time_ns(Cause.INIT), [item for item in findings(source) if item.rule == "jit-compilation"]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("executor_utils::Nvrtc::CompileProgram", True),
        ("FusionKernelRuntime::compileFusionParallel", True),
        ("KernelExecutor::compile", True),
        ("XlaCompile", True),
        ("_compile.compile_inner (dynamo_timed)", True),
        ("torch_inductor autotune", True),
        ("compiling the model", True),
        ("Torch-Compiled Region: 0/0", False),
        ("CompiledFunctionBackward", False),
        ("compiled step", False),
        ("## Call CompiledFxGraph 0 ##", False),
        ("forward", False),
    ],
)
def test_ranges(name: str, is_one: bool) -> None:
    assert is_compile_range(name) == is_one


def test_processes_and_calls() -> None:
    assert all(map(is_compiler_process, ("/usr/local/cuda/bin/ptxas", "cicc", "x86_64-linux-gnu-gcc-12", "g++", "ld")))
    assert not any(map(is_compiler_process, ("python3", "gpu_stats", "ldconfig", "train", "assistant")))
    assert all(map(hands_over_code, ("cuModuleLoadData", "cuModuleLoadDataEx", "cuLinkComplete")))
    assert not any(map(hands_over_code, ("cuLibraryLoadData", "cuModuleLoad", "cuModuleGetFunction")))


def test_code_that_is_handed_over_again_and_again_was_compiled_before() -> None:
    init_ns, found = _jit(*[Work(20 * MS), Init(100 * US, "cuModuleLoadData"), Launch("a", 10 * US)] * 3)
    assert init_ns >= 58 * MS
    assert len(found) == 1
    assert found[0].saving_ns is not None
    assert 50 * MS <= found[0].saving_ns[1] <= 62 * MS


def test_one_stretch_before_a_module_may_be_any_work() -> None:
    init_ns, found = _jit(Work(60 * MS), Init(100 * US, "cuModuleLoadData"))
    assert init_ns < 10 * MS
    assert not found


def test_short_stretches_are_lookups() -> None:
    _, found = _jit(*[Work(2 * MS), Init(100 * US, "cuModuleLoadData"), Launch("a", 10 * US)] * 5)
    assert not found


def test_a_range_that_only_runs_what_was_compiled_is_none() -> None:
    _, found = _jit(Range("compile", [Launch("a", 300 * US), Work(200 * US)] * 20))
    assert not found


def test_a_thread_that_sleeps_while_a_compiler_runs_waits_for_it() -> None:
    waits = [Launch("first", 10 * US), Sleep(40 * MS, "waitpid"), Launch("a", 10 * US), STEP]
    source = Source(Program((Process([Thread(waits)]), Process([Thread([Work(35 * MS)])]))))

    def named(trace: Trace) -> Trace:
        other = replace(trace.processes[1], name="/usr/local/cuda/bin/ptxas")
        return replace(trace, processes=(trace.processes[0], other))

    assert [item for item in findings(source.changed(named)) if item.rule == "jit-compilation"]
    assert not [item for item in findings(source) if item.rule == "jit-compilation"]


def test_real_traces_say_who_compiles() -> None:
    for name, least in (("jit_cpp_no_nvtx.sqlite", 0.2), ("jit_fuser_pytest.sqlite", 0.2)):
        context = Analysis(read_trace(trace_path(name))).rule_context
        assert context.time_ns(Cause.INIT) >= least * context.window_ns
        assert np.all(context.time_ns(Cause.INIT) <= context.window_ns)


def test_autotuning_is_told_by_its_flushes() -> None:
    flush = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int)"
    tries = [Launch(flush, 200 * US), Launch("_attn_fwd", 100 * US)]
    found = findings(Source(program(Loop(60, tries), STEP)))
    (tuned,) = [item for item in found if item.rule == "jit-compilation"]
    assert "tried out (autotuning)" in tuned.title
    # A step that clears a large array before each of its kernels tries nothing out.
    steps = Loop(60, [Launch(flush, 200 * US), Launch("a", 100 * US), Launch(flush, 200 * US), Launch("b", 100 * US)])
    assert not [item for item in findings(Source(program(steps, STEP))) if item.rule == "jit-compilation"]
