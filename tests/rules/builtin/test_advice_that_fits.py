"""Advice that did not fit the program on real traces, each as a small program: what it says now, and of what."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from boundby.evidence.code_lines import Hotspot
from boundby.results.report import Finding
from boundby.rules.builtin import host_rules
from boundby.simulate.instructions import (
    MS,
    US,
    Call,
    Compile,
    Copy,
    Instruction,
    Launch,
    Loop,
    Process,
    Program,
    Range,
    Record,
    S,
    Sleep,
    Sync,
    Thread,
    Work,
    program,
)
from boundby.trace.facts import GpuInfo
from boundby.trace.tables import GpuFacts, Trace
from boundby.trace.vocabulary.kernel_names import standard_work, sums_over_batch
from tests.rules.builtin.case_comm_exposed import NCCL
from tests.rules.builtin.hardware import on_gpu
from tests.rules.builtin.harness import Source, as_torch, findings, pattern

V100 = GpuFacts(80, (7, 0), 64, 65_536, 98_304)
GRADIENT = "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel_32x32<float, float>(long, float const*)"
FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>>(int)"


def of(rule: str, source: Source) -> list[Finding]:
    return [item for item in findings(source) if item.rule == rule]


def native(*body: Instruction) -> Source:
    """A program without Python."""
    return Source(Program((Process([Thread(list(body), name="solver")], name="solver"),), command=("./solver",)))


def _few_blocks(kernel: str) -> list[Finding]:
    steps = Loop(20, [Range("step {i}", [Launch(kernel, 2 * MS), Launch("gemm", 1 * MS)])])
    return of("small-grid", on_gpu(as_torch(Source(program(steps, Sync()))), shapes={kernel: (12, 1024)}))


def test_a_sum_over_the_batch_gets_no_more_blocks_by_a_larger_batch() -> None:
    (found,) = _few_blocks(GRADIENT)
    assert "a larger batch brings no more blocks" in found.advice[0]
    assert found.code == "model = torch.compile(model)"
    (other,) = _few_blocks("void at::native::topk_kernel<float>(int)")
    assert "a larger batch, or batched calls" in other.advice[0]


def test_a_list_of_parameters_has_as_many_blocks_as_it_has() -> None:
    assert not _few_blocks(FOREACH)


def test_the_kernel_named_is_the_one_with_most_time() -> None:
    kernels = [Loop(9, [Launch("scan", 1 * MS)]), Launch("sort", 2 * MS)]
    source = on_gpu(native(Loop(10, kernels), Sync()), shapes={"scan": (3, 256), "sort": (29, 128)})
    (found,) = of("small-grid", source)
    assert found.advice[0].startswith("Launch more blocks")
    assert ": the kernel scan has 3 blocks" in found.advice[0]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("matmul_naive(const float *, int)", "a matrix product"),
        ("void MatrixMulCUDA<32>(float *, float *)", "a matrix product"),
        ("sgemm_v2(float *)", "a matrix product"),
        ("convolve2D(float *)", "a convolution"),
        ("calcHistogramKernel(int *)", "a histogram"),
        ("reduce0(int *)", "a reduction"),
        ("convert_kernel(int *)", None),
        ("commands(int *)", None),
        ("transform(float *)", None),
    ],
)
def test_what_a_library_has_ready(name: str, what: str | None) -> None:
    ready = standard_work(name)
    assert (ready and ready.what) == what


def test_a_hot_kernel_of_standard_work_is_measured_against_the_library_first() -> None:
    hot = "matmul_naive(const float *, int)"
    (found,) = of("hot-kernel", native(Loop(10, [Launch(hot, 20 * MS)]), Sync()))
    assert found.advice[0].startswith("Measure it against cuBLAS first: by its name it is a matrix product")
    (other,) = of("hot-kernel", as_torch(Source(program(Loop(10, [Launch(hot, 20 * MS)]), Sync()))))
    assert not any("cuBLAS" in line for line in other.advice)


@pytest.mark.parametrize(
    ("around", "code"),
    [
        ("FusionCache::get", "nvfuser.enable_automatic_serialization()"),
        ("TorchScript::run", "torch.jit.set_fusion_strategy"),
    ],
)
def test_nvfuser_is_told_what_its_caller_can_say(around: str, code: str) -> None:
    compiles = Range(
        around, [Work(200 * US), Range("FusionExecutor::compileFusion", [Compile(60 * MS)]), Launch("part", 500 * US)]
    )
    steps = Loop(20, [Range("step {i}", [Launch("part", 500 * US), Work(50 * US)]), Sync()])
    (found,) = of("jit-compilation", as_torch(Source(program(Launch("first", 10 * US), compiles, steps))))
    assert found.code.startswith(code)


def test_few_long_collectives_are_not_to_be_joined() -> None:
    for item in of("comm-exposed", as_torch(pattern("comm"))):
        assert not any("join small ones" in line for line in item.advice)


def _steps(name: str, *lengths: int) -> Source:
    return Source(program(*(Range(name, [Launch("part", length), Sync()]) for length in lengths)))


def test_instances_of_an_operator_have_no_steady_state() -> None:
    lengths = (20 * MS, 4 * MS, 1 * MS, 4 * MS, 1 * MS, 4 * MS, 1 * MS)
    for rule in ("warm-up", "unsteady"):
        assert not of(rule, as_torch(_steps("aten::to", *lengths)))
        assert of(rule, as_torch(_steps("step", *lengths)))


def test_a_slow_and_a_fast_instance_are_named_by_their_times() -> None:
    (few,) = of("unsteady", _steps("step", 2 * MS, 4 * MS, 1 * MS, 3 * MS, 2 * MS))
    assert "in ten" not in few.title
    (slow, fast) = re.findall(r"--window ([0-9.]+)s:([0-9.]+)s", few.advice[0])
    assert 3.5e-3 < float(slow[1]) - float(slow[0]) < 4.5e-3
    assert 0.8e-3 < float(fast[1]) - float(fast[0]) < 1.5e-3
    (many,) = of("unsteady", _steps("step", *([4 * MS, 1 * MS, 3 * MS] * 10)))
    assert "in ten takes over" in many.title


def _four_gpus(source: Source) -> Source:
    def change(trace: Trace) -> Trace:
        trace = source.change(trace) if source.change else trace
        idle = tuple(GpuInfo(number, "A100", used=False) for number in (1, 2, 3))
        return replace(trace, gpus=(trace.gpus[0], *idle), gpu_facts=trace.gpu_facts[:1] * 4)

    return source.changed(change)


def test_other_gpus_are_no_matter_while_this_one_is_empty() -> None:
    busy = native(Loop(10, [Launch("add", 20 * MS)]), Sync())
    assert [item for item in of("gpu-balance", _four_gpus(on_gpu(busy))) if item.severity == "note"]
    assert not of("gpu-balance", _four_gpus(on_gpu(busy, shapes={"add": (1, 1)})))


@pytest.mark.parametrize(("size", "code"), [(8, "scale = torch.full("), (8 << 20, "DataLoader(dataset, pin_memory")])
def test_a_value_copied_to_the_device_is_no_batch(size: int, code: str) -> None:
    copy = Range("aten::to", [Range("aten::copy_", [Copy(size, memory="pageable"), Sync("stream")])])
    step = Range("step {i}", [Launch("gemm", 4 * MS), copy, Work(600 * US)])
    (found,) = of("sync-operator", as_torch(Source(program(Loop(20, [step]), Sync()))))
    assert found.code.startswith(code)
    assert ("(8 B each)" in found.title) == (size == 8)


def test_a_wait_for_an_upload_is_no_matter_of_streams() -> None:
    step = Range("step {i}", [Launch("gemm", 4 * MS), Copy(1 << 20), Sync("stream"), Work(600 * US)])
    (found,) = of("sync-call", as_torch(Source(program(Loop(20, [step]), Sync()))))
    assert "each right after a copy to the device" in found.title
    assert "non_blocking=True" in found.code


def test_one_wait_is_not_in_a_loop() -> None:
    steps = Loop(20, [Launch("gemm", 1 * MS)])
    (found,) = of("sync-call", native(steps, Sync(), Work(20 * MS), Call(), steps, Launch("end", 1 * MS)))
    assert found.advice[0].startswith("Remove the wait, unless the host needs the result there")


def _waits_in(call: str, times: int) -> list[Finding]:
    body = [Range(call, [Sleep(4 * MS, "poll")]), Launch("work", 200 * US)]
    return of("host-wait", native(Launch("begin", 200 * US), Loop(times, body), Sync()))


def test_nothing_is_sent_in_a_barrier() -> None:
    (found,) = _waits_in("MPI_Barrier", 10)
    assert found.advice[0].startswith("Record all ranks to see which one comes late")
    assert "MPI_Irecv" not in found.code


def test_few_messages_are_not_many() -> None:
    (few,) = _waits_in("MPI_Waitall", 10)
    assert "small and many" not in few.advice[0]
    (many,) = _waits_in("MPI_Waitall", 200)
    assert "small and many" in many.advice[0]


def test_what_was_begun_already_is_begun_earlier() -> None:
    (found,) = _waits_in("MPI_Waitall", 10)
    assert "Begin these messages earlier, do the GPU's work that needs no message before MPI_Waitall" in found.advice[0]
    assert found.code.splitlines()[0].endswith("// as early as possible")
    assert found.code.splitlines()[1].startswith("MPI_Waitall(...);  // after ")


def test_who_waits_in_a_send_sends_ahead() -> None:
    (found,) = _waits_in("MPI_Send", 10)
    assert found.code.startswith("MPI_Isend(")
    assert "MPI_Irecv" not in found.advice[0]


def test_a_late_start_in_cuda_is_known_to_be_cuda_s() -> None:
    start = Call(6 * S, "cudaDeviceGetStreamPriorityRange")
    (found,) = of("late-start", native(Work(1 * S), start, Launch("a", 9 * S), Sync()))
    assert (found.severity, found.code) == ("note", "CUDA_VISIBLE_DEVICES=0 ./solver")
    assert found.change.startswith("Make the context once")
    long_start = Call(30 * S, "cudaDeviceGetStreamPriorityRange")  # most of the run, and ten times what is usual
    (long,) = of("late-start", native(long_start, Launch("a", 1 * MS), Sync()))
    lazy = "CUDA_MODULE_LOADING=LAZY CUDA_VISIBLE_DEVICES=0 ./solver"
    assert (long.severity, long.code) == ("medium", f"{lazy}  # loads code when needed, and starts no other GPU")
    assert long.change.startswith("Try to shorten the start")
    (other,) = of("late-start", native(Call(), Work(6 * S), Launch("a", 1 * MS), Sync()))
    assert other.change.startswith("Find out what the program does")


def test_normalizations_sum_over_the_batch() -> None:
    assert sums_over_batch("bn_bw_1C11_kernel_new")
    assert not sums_over_batch(NCCL)


def test_what_is_uploaded_before_the_steps_is_no_batch() -> None:
    columns = [part for _ in range(6) for part in (Work(4 * MS), Copy(20 << 20), Launch("convert", 300 * US))]
    steps = Loop(20, [Range("step {i}", [Launch("gemm", 1 * MS), Work(200 * US)])])
    assert not of("host-input", Source(program(Launch("first", 10 * US), *columns, steps, Sync())))
    batches = Range("step {i}", [Copy(20 << 20), Launch("gemm", 1 * MS), Sync()])
    assert of("host-input", Source(program(Loop(20, [Work(4 * MS), batches]))))


@pytest.mark.parametrize(
    ("also", "inside"), [("softmax_backward", "y = model(x)  # and the loss"), ("softmax", "y = model(x)")]
)
def test_a_loss_is_for_a_program_that_trains(also: str, inside: str) -> None:
    steps = Loop(20, [Range("step {i}", [Launch("ampere_sgemm_128x64_tn", 4 * MS), Launch(also, 200 * US)])])
    (found,) = of("tensor-cores", on_gpu(as_torch(Source(program(steps, Sync()))), V100))
    assert inside in found.code
    assert all((line in found.code) == ("loss" in inside) for line in ("GradScaler", "scaler.scale(loss)", "update()"))


@pytest.mark.parametrize(("also", "is_whole"), [("softmax_backward", True), ("softmax", False)])
def test_who_trains_warms_up_the_backward_pass_as_well(also: str, is_whole: bool) -> None:
    step = Range("step {i}", [Work(20 * US), Launch("gemm", 150 * US, load_ns=4 * MS), Launch(also, 150 * US)])
    (found,) = of("lazy-initialization", as_torch(Source(program(Launch("first", 10 * US), Loop(20, [step]), Sync()))))
    assert (".backward()" in found.code) == is_whole


MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, MulFunctor<float>>>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


@pytest.mark.parametrize(("kernels", "is_chain"), [((MUL, MUL, MUL), False), ((MUL, ADD, MUL), True)])
def test_one_kernel_that_repeats_is_no_chain_to_fuse(kernels: tuple[str, ...], is_chain: bool) -> None:
    step = [*(Launch(kernel, 2 * MS) for kernel in kernels), Launch("gemm", 1 * MS)]
    assert bool(of("unfused-elementwise", as_torch(Source(program(Loop(20, step), Sync()))))) == is_chain


def test_a_search_for_kernels_is_the_librarys_wait() -> None:
    tries = Loop(8, [Launch("fprop", 1 * MS), Record("done"), Sync("event", event="done")])
    steps = Loop(20, [Range("aten::cudnn_convolution", [tries]), Work(600 * US)])
    (found,) = of("sync-call", as_torch(Source(program(steps, Sync()))))
    assert found.advice[0].startswith("Use few shapes, or leave the search out")
    assert found.code == "torch.backends.cudnn.benchmark = False"


@pytest.mark.parametrize(
    ("kernel", "code"), [("nvkernel_solve_F1L210_2", "#pragma omp"), ("solve_210_gpu", "#pragma acc")]
)
def test_directives_are_told_in_their_own_words(kernel: str, code: str) -> None:
    """Neither is told of streams and events, which their runtimes hold."""
    steps = Loop(20, [Launch(kernel, 1 * MS), Sync("stream"), Work(600 * US)])
    (found,) = of("sync-call", native(steps))
    assert found.code.startswith(code)
    assert "StreamWaitEvent" not in " ".join((*found.advice, found.code))


@pytest.mark.parametrize(
    ("sizes", "code"), [((16 << 20, 4 << 20) * 6, "model = Model("), ((8 << 20,) * 12, "x = decode(")]
)
def test_a_video_is_not_made_as_a_model(sizes: tuple[int, ...], code: str) -> None:
    uploads = [Copy(size, memory="pageable") for size in sizes]
    steps = Loop(20, [Range("step {i}", [Launch("gemm", 1 * MS), Work(200 * US)])])
    (found,) = of("pageable-copy", as_torch(Source(program(Launch("first", 10 * US), *uploads, steps, Sync()))))
    assert code in found.code
    assert ("Model(" in found.advice[0]) == ("Model(" in code)


@pytest.mark.parametrize(("share", "remedy"), [(0.9, "cpu.vectorise"), (0.03, "cpu.cheaper-code")])
def test_a_phase_is_of_a_function_that_holds_half_of_the_samples(
    share: float, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spots = (
        Hotspot("gc_mark_loop_serial_", "libjulia.so", round(100 * share), share),
        Hotspot("parse", "app", 2, 0.02),
    )
    monkeypatch.setattr(host_rules, "hot_functions", lambda *_: spots)
    (found,) = of(
        "host-phase", native(Launch("first", 10 * US), Work(400 * MS), Loop(20, [Launch("step", 1 * MS)]), Sync())
    )
    assert found.remedy == remedy
    assert ("computes in gc_mark_loop_serial_" in found.title) == (share > 0.5)
    assert ("gc_mark_loop_serial_" in found.change) == (share > 0.5)


COMMAND = ("./solver", "-i", "a.csv", "-v", "-u")


def test_who_prints_because_it_was_told_to_is_run_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_rules, "hot_functions", lambda *_: (Hotspot("printResults", "app", 98, 0.98),))
    body = (Launch("first", 10 * US), Work(400 * MS), Loop(20, [Launch("step", 1 * MS)]), Sync())
    told = Program((Process([Thread(list(body), name="solver")], name="solver"),), command=COMMAND)
    (found,) = of("host-phase", Source(told))
    assert found.code == "./solver -i a.csv -u"
    assert found.change == "Run it without -v: printResults seems to print, by its name"
    (other,) = of("host-phase", native(*body))
    assert other.change == "Find what is slow in printResults, and speed it up"


@pytest.mark.parametrize(("last", "shrinks"), [(200 * US, True), (900 * US, False)])
def test_a_grid_that_stays_while_the_work_shrinks_is_said_to(last: int, shrinks: bool) -> None:
    turns = [Launch("eliminate(double *, int)", round(1 * MS + (last - 1 * MS) * turn / 99)) for turn in range(100)]
    found = of("hot-kernel", on_gpu(native(*turns, Sync()), V100, shapes={"eliminate(double *, int)": (4096, 256)}))
    assert ["its grid stays 4,096 blocks" in item.title for item in found] == [shrinks]


@pytest.mark.parametrize(("kernels", "fuses"), [((MUL, MUL), False), ((MUL, ADD), True)])
def test_one_kernel_launched_again_and_again_is_not_to_be_fused(kernels: tuple[str, str], fuses: bool) -> None:
    turns = [Launch(kernels[turn % 7 % 2], 3 * US) for turn in range(2000)]
    cut = [part for turn in turns for part in (turn, Call(1 * US, "cudaMalloc"))]
    (found,) = of("launch-overhead", as_torch(Source(program(*cut, Sync()))))
    assert any("fuses" in line for line in found.advice) == fuses
    assert found.code.startswith("step = torch.compile(step)" if fuses else "x = torch.stack(items)")


@pytest.mark.parametrize("is_loop", [False, True])
def test_pinning_is_promised_nothing_where_no_buffer_is_seen_to_be_used_again(is_loop: bool) -> None:
    """Copies of one size in a row are of other buffers; with a kernel between them they may be of the same one."""
    upload, kernel = Copy(64 << 20, memory="pageable"), Launch("mine", 20 * MS)
    back = Copy(64 << 20, memory="pageable", direction="DtoH")
    body = [Loop(4, [kernel, upload, upload])] if is_loop else [kernel, *[upload] * 4, kernel]
    (found,) = of("pageable-copy", native(Launch("first", 10 * US), *body, back, Sync()))
    assert found.saving_ns is not None
    assert (found.saving_ns[0] == 0) is not is_loop
    assert found.advice[0].startswith("If a longer run copies the same buffers again, ") is not is_loop
    assert found.remedy == ("gpu_copy.pinned" if is_loop else "gpu_copy.pinned-for-reuse")
    assert (found.severity == "low") is not is_loop
