"""What kind of program it is, by which rules choose what they advise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from boundby.readers import read_trace
from boundby.readers.nsys import metadata
from boundby.rules.remedies import by_key
from boundby.trace.program import ProgramKind, program_of
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.kernel_names import is_library_kernel
from tests.rules.builtin.harness import context_of, pattern
from tests.support.traces import trace_path


def _trace(kernel: str = "step(float *)", process: str = "", thread: str = "", command: str | None = None) -> Trace:
    trace = context_of(pattern("compute")).trace
    names = tuple(kernel if number in np.unique(trace.operations.name) else "x" for number in range(len(trace.names)))
    return replace(
        trace,
        names=names,
        command=command,
        threads=tuple(replace(one, name=thread) for one in trace.threads),
        processes=tuple(replace(one, name=process) for one in trace.processes),
    )


@pytest.mark.parametrize(
    ("kernel", "process", "thread", "command", "kind"),
    [
        ("void at::native::vectorized_elementwise_kernel<4>()", "python3", "", None, ProgramKind.TORCH),
        ("void at::native::vectorized_elementwise_kernel<4>()", "", "", None, ProgramKind.TORCH),
        ("void at::native::vectorized_elementwise_kernel<4>()", "./serve", "serve", "serve m.pt", ProgramKind.CPP),
        ("nvjet_tst_192x192", "pytest", "pt_autograd_0", "pytest tests", ProgramKind.TORCH),
        ("loop_add_fusion_1", "python3.11", "", "python3.11 train.py", ProgramKind.PYTHON),
        ("cupy_multiply__float32_float32", "python", "", None, ProgramKind.PYTHON),
        ("stencil(double *)", "./heat", "heat", "heat 8000", ProgramKind.CPP),
        ("DataLoaderKernel(float const*, int)", "./heat", "heat", "heat 8000", ProgramKind.CPP),
        ("stencil(double *)", "nsys-launcher", "python", "python run.py", ProgramKind.PYTHON),
        ("nvkernel_solve_F1L210_2", "./heat", "heat", "heat 8000", ProgramKind.DIRECTIVES),
        ("update_84_gpu", "accP2P", "MPI Rank 0", None, ProgramKind.DIRECTIVES),
        ("julia_stencil_1234(CuDeviceArray<Float32, 2, 1>)", "julia", "julia", "julia run.jl", ProgramKind.JULIA),
    ],
)
def test_kinds(kernel: str, process: str, thread: str, command: str | None, kind: ProgramKind) -> None:
    assert program_of(_trace(kernel, process, thread, command)).kind == kind


@pytest.mark.parametrize(
    ("kernel", "process", "command", "library"),
    [
        ("void vllm::rms_norm_kernel<c10::BFloat16>()", "python3", None, "vllm"),
        ("void at::native::vectorized_elementwise_kernel<4>()", "VLLM::EngineCore", None, "vllm"),
        ("void at::native::vectorized_elementwise_kernel<4>()", "python3", "vllm serve MODEL", "vllm"),
        ("void at::native::vectorized_elementwise_kernel<4>()", "python3", "python3 -m sglang.launch_server", "sglang"),
        ("void at::native::vectorized_elementwise_kernel<4>()", "python3", "python3 train.py", "torch"),
    ],
)
def test_servers_are_programs_of_torch_with_words_of_their_own(
    kernel: str, process: str, command: str | None, library: str
) -> None:
    program = program_of(_trace(kernel, process, "", command))
    assert (program.kind, program.library) == (ProgramKind.TORCH, library)
    code = {"vllm": "vllm serve", "sglang": "sglang.launch_server", "torch": "torch.compile"}[library]
    assert code in by_key()["cuda_api.cuda-graphs"].code(program, {})


@pytest.mark.parametrize(
    ("kernel", "sentinel"), [("nvkernel_solve_F1L210_2", "#pragma omp"), ("solve_210_gpu", "#pragma acc")]
)
def test_kernels_tell_whose_directives_they_are_of(kernel: str, sentinel: str) -> None:
    program = program_of(_trace(kernel, "./heat", "heat", "heat 8000"))
    assert program.kind == ProgramKind.DIRECTIVES
    assert by_key()["gpu_copy.keep-on-device"].code(program, {}).startswith(sentinel)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cpp_vector_add", ProgramKind.CPP),
        ("openmp_heat_before", ProgramKind.DIRECTIVES),
        ("openacc_mpi_4_processes_4_gpus", ProgramKind.DIRECTIVES),
        ("rapids_cudf_old_schema", ProgramKind.PYTHON),
        ("pytorch_a100_all_cpu_tables", ProgramKind.TORCH),
    ],
)
def test_kinds_of_real_traces(name: str, kind: ProgramKind) -> None:
    assert program_of(read_trace(Path(trace_path(f"{name}.sqlite")))).kind == kind


@pytest.mark.parametrize(
    ("kernel", "is_library"),
    [
        ("void at::native::<unnamed>::cunn_SoftMaxForward<4>()", True),
        ("ampere_sgemm_128x64_tn", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688f16gemm_64x64>()", True),
        ("void thrust::cuda_cub::core::_kernel_agent<>()", True),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(Params)", True),
        ("vecAdd(double *, double *, double *, int)", False),
        ("void ngp::kernel_grid<float, 3>(unsigned int)", False),
        ("nvkernel_solve_F1L210_2", False),
        ("my_gemm_tiled(float *)", False),
    ],
)
def test_whose_kernel_it_is(kernel: str, is_library: bool) -> None:
    assert is_library_kernel(kernel) == is_library


@pytest.mark.parametrize(
    ("recorded", "typed"),
    [
        ("./heat", "./heat 8000"),
        ("/usr/bin/python3", "python3 8000"),
        ("docker", "PROGRAM_IN_THE_CONTAINER"),
        ("/opt/bin/apptainer", "PROGRAM_IN_THE_CONTAINER"),
        ("./docker_bench", "./docker_bench 8000"),
    ],
)
def test_a_printed_command_can_be_typed(recorded: str, typed: str) -> None:
    """With the folder that the shell looks in; a profiler of kernels has to start inside a container."""
    command = metadata._command({"PROCESS_0:COMMAND": recorded, "PROCESS_0:ARGUMENT_0": "8000"})
    assert _trace(command=command).how_it_runs == typed
