"""Time that is spent once: libraries that start, warm-up, late starts. Each is told once, under the right name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boundby import analyze
from boundby.evidence.initialization import WARM_NAME
from boundby.results.report import Finding
from boundby.simulate.instructions import (
    MS,
    US,
    Alloc,
    Call,
    Copy,
    Init,
    Instruction,
    Launch,
    Loop,
    Process,
    Program,
    Range,
    S,
    Sleep,
    Sync,
    Thread,
    Work,
    program,
)
from boundby.simulate.machine import Machine, realise, simulate
from boundby.simulate.nsys_export import write_export
from tests.rules.builtin.harness import Source, findings
from tests.support.traces import trace_path

STEP = Range("step {i}", [Launch("ampere_sgemm_128x64_tn", 2 * MS), Launch("relu", 500 * US)])
# As cuBLAS does: it is loaded, asks the driver for its entry points, and loads its code.
STARTS: tuple[Instruction, ...] = (
    Work(60 * MS),
    *(Call(1 * US, "cuGetProcAddress_v2") for _ in range(40)),
    Init(1 * MS, "cuInit"),
    Work(20 * MS),
    *(Call(1 * US, "cudaEventCreateWithFlags") for _ in range(18)),
    Init(1 * MS, "cuLibraryLoadData"),
    Work(8 * MS),
    Init(1 * MS, "cuLibraryLoadData"),
    Call(1 * US, "cuLibraryGetKernel"),
    Work(5 * MS),
)


# What could tell of the same time.
RULES = ("host-input", "host-phase", "host-wait", "host-work", "late-start", "lazy-initialization", "warm-up")


def found(*body: Instruction, rule: str | None = None) -> list[Finding]:
    """Findings on a program of one thread, of one rule or of all that could tell of time that is spent once."""
    wanted = RULES if rule is None else (rule,)
    return [item for item in findings(Source(program(*body))) if item.rule in wanted]


def on(name: str, **options: object) -> dict[str, list[Finding]]:
    """Findings on a real trace, by rule."""
    report = analyze(trace_path(f"{name}.sqlite"), **options)  # type: ignore[arg-type]
    by_rule: dict[str, list[Finding]] = {}
    for item in report.findings:
        by_rule.setdefault(item.rule, []).append(item)
    return by_rule


def test_a_library_that_starts_is_one_finding() -> None:
    (item,) = found(Launch("relu", 10 * US), *STARTS, Loop(20, [STEP]), Sync())
    assert item.rule == "lazy-initialization"
    assert "cuBLAS" in item.title
    told = item.evidence["host_in_libraries_ns"]
    assert isinstance(told, int)
    assert 90 * MS < told < 95 * MS
    assert item.evidence["libraries"] == ["cuBLAS"]
    assert item.saving_ns is not None
    assert item.saving_ns[1] > 80 * MS
    assert "run one step before the clock starts" in item.advice[0]
    assert not any("vectorise" in line.lower() for line in item.advice)


def test_a_library_that_starts_is_initialization_in_the_account(tmp_path: Path) -> None:
    """One definition for the account, the verdict and the finding."""
    path = tmp_path / "run.sqlite"
    body = (Launch("relu", 10 * US), *STARTS, Loop(20, [STEP]), Sync())
    write_export(simulate(realise(program(*body), Machine(), 0)), path)
    report = analyze(path)
    (device,), (item,) = report.devices, [one for one in report.findings if one.rule == "lazy-initialization"]
    assert device.verdict.bound == "init"
    assert device.time["init"] > 90 * MS
    assert device.time["cpu"] < 1 * MS
    assert item.saving_ns is not None
    assert item.saving_ns[1] <= device.time["init"]


def test_a_compiler_that_others_wait_for_is_one_amount() -> None:
    """XLA compiles in a pool of threads while the main thread sleeps: the account and the finding say the same."""
    report = analyze(trace_path("jax_compile.sqlite"))
    (device,), (item,) = report.devices, [one for one in report.findings if one.rule == "jit-compilation"]
    assert item.evidence["compiling_ns"] == pytest.approx(device.time["init"], rel=0.01)
    assert item.saving_ns is not None
    assert item.saving_ns[0] > 0.8 * device.time["init"]


def test_the_same_work_without_such_calls_is_the_hosts() -> None:
    rules = {item.rule for item in found(Launch("relu", 10 * US), Work(93 * MS), Loop(20, [STEP]), Sync())}
    assert rules == {"host-phase"}


def test_work_before_one_module_is_no_library() -> None:
    body = (Work(60 * MS), Init(100 * US, "cuModuleLoadData"), Call(1 * US, "cuModuleGetFunction"))
    rules = {item.rule for item in found(Launch("relu", 10 * US), *body, Loop(20, [STEP]), Sync())}
    assert "host-phase" in rules
    assert "lazy-initialization" not in rules


def test_a_long_phase_before_a_library_starts_is_not_its() -> None:
    rules = {item.rule for item in found(Launch("relu", 10 * US), Work(2 * S), *STARTS[1:], Loop(20, [STEP]), Sync())}
    assert rules == {"host-phase", "lazy-initialization"}


def test_files_mapped_one_after_the_other_are_a_library() -> None:
    maps = [Sleep(10 * US, "open64")]
    for _ in range(10):
        maps += [Sleep(10 * US, "mmap64"), Sleep(10 * US, "munmap")]
    body: list[Instruction] = [Work(10 * MS), *maps, Work(20 * MS)]
    (item,) = found(Launch("relu", 10 * US), *body, Loop(20, [STEP]), Sync())
    assert item.rule == "lazy-initialization"
    # In every step it is what the program does, and no start.
    rules = {item.rule for item in found(Loop(20, [*STEP.body, *body]), Sync())}
    assert "lazy-initialization" not in rules


def test_in_warm_up_it_is_a_note_that_shows_the_rest() -> None:
    body = (Launch("relu", 10 * US), Range("Warm-up", [*STARTS, Launch("relu", 1 * MS), Sync()]))
    (item,) = found(*body, Loop(20, [STEP]), Sync(), rule="lazy-initialization")
    assert item.severity == "note"
    assert item.saving_ns is None
    assert re.match(r"in regions named as set-up or warm-up \(\d+ % of the window\), \S", item.title)
    assert item.evidence["warm_up_regions"] == ["Warm-up"]
    assert "--window 'nvtx:step *'" in item.advice[0]
    assert not any("before the clock starts" in line for line in item.advice)


@pytest.mark.parametrize(
    "name", ["warmup", "warm_up", "Warm-up Step *", "init", "setup", "init_model", "Initialize Model"]
)
def test_names_of_warm_up(name: str) -> None:
    assert WARM_NAME.search(name)


@pytest.mark.parametrize("name", ["init_data", "initial residual", "step *", "setup_batch", "swarm", "Train"])
def test_names_of_other_regions(name: str) -> None:
    assert not WARM_NAME.search(name)


def test_what_a_message_library_pins_is_told_of_each_process() -> None:
    send = Range("MPI_Send", [Alloc(40 * MS, call="cuMemHostRegister")])
    later = [Range("MPI_Send", [Alloc(20 * US, call="cuMemHostRegister")]) for _ in range(4)]
    body = (Launch("relu", 500 * US), send, *later, Loop(20, [*STEP.body]), Sync())
    both = Program((Process((Thread(body),)), Process((Thread(tuple(_on_second(item) for item in body)),))))
    items = [item for item in findings(Source(both)) if item.rule in ("lazy-initialization", "warm-up")]
    (item,) = items
    assert item.severity == "low"
    assert item.region is None
    assert "of each of 2 processes takes up to 40.0 ms inside the message-passing library (MPI_Send)" in item.title
    assert item.evidence["processes"] == 2
    assert not any("Allocate" in line for line in item.advice)


def _on_second(item: Instruction) -> Instruction:
    """The same on device 1."""
    if isinstance(item, Launch):
        return Launch(item.kernel, item.ns, device=1)
    if isinstance(item, Loop):
        return Loop(item.n, [_on_second(one) for one in item.body])
    return Sync(device=1) if isinstance(item, Sync) else item


def test_what_a_runtime_allocates_is_not_the_programs() -> None:
    kernel = Launch("nvkernel__Z4stepPd_F1L20_2", 2 * MS)
    (item,) = found(
        Launch("nvkernel_first", 10 * US), Alloc(20 * MS, call="cuMemAllocManaged"), Loop(20, [kernel]), Sync()
    )
    assert item.severity == "low"
    assert "runtime makes these calls itself" in item.advice[0]
    assert len(item.advice) == 1


def test_no_more_is_saved_than_is_spent() -> None:
    for item in found(Launch("relu", 10 * US), Alloc(30 * MS), Loop(5, [STEP]), Sync(), rule="lazy-initialization"):
        assert item.saving_ns is not None
        total = item.evidence["total_ns"]
        assert isinstance(total, int)
        assert item.saving_ns[1] <= total


def test_warm_up_that_is_loading_is_told_once() -> None:
    first = Range("step 0", [Alloc(30 * MS), Launch("relu", 500 * US), Sync()])
    later = Loop(20, [Range("step {i}", [Launch("relu", 500 * US), Work(100 * US), Sync()])])
    rules = [item.rule for item in found(Launch("relu", 10 * US), first, later)]
    assert "lazy-initialization" in rules
    assert "warm-up" not in rules


def test_warm_up_before_the_window_is_not_told() -> None:
    first = Range("load 0", [Work(300 * MS)])
    later = Loop(20, [Range("load {i}", [Work(5 * MS)]), Launch("relu", 2 * MS)])
    assert not found(first, later, Sync(), rule="warm-up")


def test_no_command_is_recommended_that_fails(tmp_path: Path) -> None:
    """Where no region is plainly the step, the one whose first instances are left out is named."""
    first = Range("fit 0", [Work(40 * MS), Launch("relu", 500 * US), Sync()])
    later = Loop(20, [Range("fit {i}", [Launch("relu", 500 * US), Sync()])])
    other = Loop(21, [Range("score {i}", [Launch("gemm", 500 * US), Sync()])])
    path = tmp_path / "run.sqlite"
    write_export(simulate(realise(program(Launch("relu", 10 * US), first, later, other), Machine(), 0)), path)
    (item,) = [one for one in analyze(path).findings if one.rule == "warm-up"]
    command = item.advice[0].partition("boundby analyze ")[2]
    assert command == "--window 'nvtx:fit *' --skip-first 1 REPORT"
    left = analyze(path, window="nvtx:fit *", skip_first=1)
    assert [region.instances for region in left.regions if region.path == ("fit *",)] == [20]


def test_warm_up_names_no_mean() -> None:
    first = Range("step 0", [Work(30 * MS), Launch("relu", 500 * US), Sync()])
    later = Loop(20, [Range("step {i}", [Launch("relu", 500 * US), Work(100 * US), Sync()])])
    (item,) = found(Launch("relu", 10 * US), first, later, rule="warm-up")
    assert "mean" not in item.title


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is built on the CPU for 5 s, then uploaded; then steps."""
    weights = [Copy(size, memory="pageable", blocking=True) for size in (20_000_000, 30_000_000) * 4]
    build = Range("main", [Range("build model", [Work(5 * S), *weights])])
    steps = Loop(20, [Range("step {i}", [Launch("at::native::gemm", 30 * MS), Sync()])])
    path = tmp_path_factory.mktemp("late") / "late.sqlite"
    write_export(simulate(realise(program(build, steps), Machine(), 0)), path)
    return path


@pytest.mark.parametrize("options", [{}, {"window": "nvtx:step 10", "fold": False}, {"skip_first": 5}])
def test_a_late_start_is_before_the_traces_first_work(late: Path, options: dict[str, object]) -> None:
    (item,) = [one for one in analyze(late, **options).findings if one.rule == "late-start"]  # type: ignore[arg-type]
    assert item.evidence["startup_ns"] == pytest.approx(5 * S, rel=0.01)
    assert item.title.startswith("5.00 s (")
    assert "pass before the first GPU work" in item.title
    assert "5.00 s of that in build model" in item.title
    assert [one.what for one in item.examples] == ["build model"]
    assert 'torch.device("cuda")' in item.advice[0]
    assert "200 MB" in item.advice[0]


def test_a_window_that_holds_the_start_tells_no_late_start(late: Path) -> None:
    assert not [one for one in analyze(late, window="all").findings if one.rule == "late-start"]


def test_a_late_start_in_one_call_names_it() -> None:
    body = (Init(6 * S, "cuDevicePrimaryCtxRetain"), Range("frame", [Work(50 * US)]), Loop(20, [STEP]), Sync())
    (item,) = found(*body, rule="late-start")
    assert item.title.endswith("; 6.00 s of that in one cuDevicePrimaryCtxRetain")
    assert item.examples[0].what == "cuDevicePrimaryCtxRetain"
    assert item.examples[0].duration_ns == pytest.approx(6 * S, rel=0.01)


def test_a_first_launch_of_a_small_program_loads_code() -> None:
    """141 of 262 us, where later launches take 7."""
    (device,) = analyze(trace_path("cpp_vector_add.sqlite")).devices
    assert device.verdict.bound == "init"


def test_gpu_metrics_is_cublas_once() -> None:
    rules = on("gpu_metrics_2022_4")
    assert "host-phase" not in rules
    (item,) = rules["lazy-initialization"]
    assert item.title.startswith("cuBLAS starts")
    # The counters show the GPU at work meanwhile: hardly any of the time of the libraries is idle.
    assert item.evidence["host_in_libraries_ns"] == pytest.approx(0.27e6, rel=0.01)


def test_the_large_transformer_starts_late_for_its_model() -> None:
    for options in ({}, {"window": "nvtx:benchmark_loop"}):
        (item,) = on("transformer_2_7b_nvtx", **options)["late-start"]
        assert item.title.startswith("32.5 s (")
        assert "26.8 s of that in init_model" in item.title
        assert "13.6 GB" in item.advice[0]
        # The copy of 30 ms counts as far as it lies before the GPU's work: these are a part of 2.64 ms.
        calls = ["1 x cudaGetDeviceProperties 2.12 ms", "1 x cudaMemcpyAsync 346 us", "1 x cudaMalloc 163 us"]
        assert item.evidence["calls"] == calls


def test_the_large_transformers_warm_up_is_a_note() -> None:
    rules = on("transformer_2_7b_nvtx")
    (item,) = rules["lazy-initialization"]
    assert item.severity == "note"
    assert "nvtx:benchmark_loop" in item.advice[0]
    assert all(one.region != ("warmup",) for one in rules.get("host-work", []))


def test_mpi_pins_once_in_each_rank() -> None:
    rules = on("openacc_mpi_4_processes_4_gpus")
    (item,) = rules["lazy-initialization"]
    assert "of each of 4 processes takes up to 50.9 ms" in item.title
    assert "warm-up" not in rules


@pytest.mark.parametrize("name", ["openmp_heat_after", "openmp_heat_final"])
def test_openmp_runtime(name: str) -> None:
    (item,) = on(name)["lazy-initialization"]
    assert item.severity == "low"  # up to 1.6 % of the window, and nothing of it is sure


def test_rapids_starts_late_in_one_call() -> None:
    rules = on("rapids_cudf_old_schema")
    (item,) = rules["late-start"]
    assert item.examples[0].what == "cudaMemsetAsync"
    assert item.examples[0].duration_ns == pytest.approx(2157.6e6, rel=0.001)
    assert "warm-up" not in rules


def test_data_loading_before_the_window_is_no_warm_up() -> None:
    assert "warm-up" not in on("pytorch_a100_all_cpu_tables")
