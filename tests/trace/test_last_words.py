"""Endings of programs, as they stand in standard error: which are failures, why, and where."""

from __future__ import annotations

import pytest

from boundby.trace.vocabulary.last_words import (
    FAILED,
    INTERRUPTED,
    LONGEST_WORDS,
    UNCLEAR,
    lacked_file,
    last_words,
    masked,
)

IMPORT = """\
Traceback (most recent call last):
  File "/content/nanoTabPFN/train.py", line 6, in <module>
    import schedulefree
ModuleNotFoundError: No module named 'schedulefree'
"""
OUT_OF_MEMORY = """\
  3%|▎         | 3/100 [00:01<00:40,  2.4it/s]
Traceback (most recent call last):
  File "/home/anna/run/train.py", line 88, in <module>
    main()
  File "/home/anna/run/train.py", line 61, in main
    loss = model(x).sum()
  File "/opt/conda/lib/python3.10/site-packages/torch/nn/modules/module.py", line 1518, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB
"""
SHAPES = """\
Traceback (most recent call last):
  File "bench.py", line 12, in <module>
    a @ b
RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 256x10)
"""
ASYNC_CUDA = """\
Traceback (most recent call last):
  File "gather.py", line 44, in <module>
    step(x)
  File "gather.py", line 30, in step
    print(x.sum().item())
RuntimeError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.

"""
CHAINED = """\
Traceback (most recent call last):
  File "load.py", line 3, in read
    return cache[name]
KeyError: 'weights'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "load.py", line 9, in <module>
    read("weights")
  File "load.py", line 5, in read
    return open(name)
FileNotFoundError: [Errno 2] No such file or directory: 'weights'
"""
WORKER = """\
Traceback (most recent call last):
  File "/home/anna/run/train.py", line 20, in <module>
    for batch in loader:
  File "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py", line 630, in __next__
    data = self._next_data()
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py", line 308, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/anna/run/dataset.py", line 44, in __getitem__
    raise ValueError("cannot read sample 17")
ValueError: cannot read sample 17
"""
TORCHRUN = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/app/ddp.py", line 40, in <module>
[rank1]:     dist.all_reduce(x)
[rank1]: ValueError: tensors must be on the same device
W0101 10:00:00.000000 140 torch/distributed/elastic/multi/api.py:851] Sending process 12 closing signal SIGTERM
E0101 10:00:00.300000 140 torch/distributed/elastic/multi/api.py:826] failed (exitcode: 1) local_rank: 1 (pid: 13)
Traceback (most recent call last):
  File "/opt/conda/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/conda/lib/python3.10/site-packages/torch/distributed/launcher/api.py", line 268, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
ddp.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2024-01-01_10:00:00
  exitcode  : 1 (pid: 13)
============================================================
"""
DEEPSPEED = """\
Traceback (most recent call last):
  File "/app/ds.py", line 5, in <module>
    engine = deepspeed.initialize(config="ds.json")
FileNotFoundError: [Errno 2] No such file or directory: 'ds.json'
[2024-05-01 10:00:03,000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4242
[2024-05-01 10:00:03,100] [ERROR] [launch.py:325:sigkill_handler] ['python', 'ds.py'] exits with return code = 1
"""
UNCAUGHT = """\
terminate called after throwing an instance of 'std::runtime_error'
  what():  cannot open mesh.obj
"""
THRUST = """\
terminate called after throwing an instance of 'thrust::system::system_error'
  what():  radix_sort: failed on 1st step: cudaErrorInvalidDevice: invalid device ordinal
Aborted (core dumped)
"""
ASSERTION = "a.out: solver.cpp:142: void step(int): Assertion `n > 0' failed.\n"
PYTHON_SEGFAULT = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f1 (most recent call first):
  File "/app/ext.py", line 10 in call
  File "/app/main.py", line 4 in <module>
"""
UCX = """\
[node7:771889:0:771889]      cma_ep.c:84   process_vm_readv(pid=771888 {0x7f,5}-->{0x7c,5}) returned -1: Bad address
==== backtrace (tid: 771889) ====
 0 0x000000000000338a uct_cma_ep_tx_error()  /build-result/src/ucx/src/uct/sm/cma_ep.c:85
10 0x0000000000070b2c PMPI_Recv()  /var/jenkins/workspace/ompi/mpi/c/profile/precv.c:82
11 0x0000000000046c0f MPI_Recv()  ???:0
13 0x0000000000403995 MAIN_()  /home/anna/p2p/src/test.f90:81
=================================
[node7:771889] *** Process received signal ***
[node7:771889] Signal: Aborted (6)
[node7:771889] *** End of error message ***
--------------------------------------------------------------------------
mpirun noticed that process rank 1 with PID 0 on node node7 exited on signal 6 (Aborted).
--------------------------------------------------------------------------
"""
MPI_ABORT = """\
--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD
with errorcode 3.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
--------------------------------------------------------------------------
"""
MPICH = """\
Abort(671705350) on node 1 (rank 1 in comm 0): Fatal error in PMPI_Recv: Message truncated, error stack:
PMPI_Recv(173).............: MPI_Recv(buf=0x55, count=10, MPI_INT, src=0, tag=0) failed

===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   EXIT CODE: 143
===================================================================================
"""
OPEN_MPI_SIGNAL = """\
[node7:4711] *** Process received signal ***
[node7:4711] Signal: Segmentation fault (11)
[node7:4711] Signal code: Address not mapped (1)
[node7:4711] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x38f50)[0x7fec7f251f50]
[node7:4711] *** End of error message ***
"""
GFORTRAN = """\
Program received signal SIGSEGV: Segmentation fault - invalid memory reference.

Backtrace for this error:
#0  0x7f2d in ???
#1  0x55aa in relax_
\tat /home/anna/heat.f90:81
#2  0x55ab in main
\tat /home/anna/heat.f90:120
Segmentation fault (core dumped)
"""
FORTRAN = """\
At line 17 of file input.f90 (unit = 10, file = 'case.nml')
Fortran runtime error: End of file

Error termination. Backtrace:
"""
OPENACC = """\
Failing in Thread:1
Accelerator Fatal Error: call to cuMemAlloc returned error 2 (CUDA_ERROR_OUT_OF_MEMORY): Out of memory
 File: /home/anna/stencil.c
 Function: main:33
 Line: 41
"""
JULIA = """\
ERROR: LoadError: UndefVarError: `CuArry` not defined
Stacktrace:
 [1] top-level scope
   @ ~/bench/run.jl:3
in expression starting at /home/anna/bench/run.jl:3
"""
RUST = "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds: the len is 3 but the index is 9\n"
USAGE = "usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data\n"
CLICK = "Usage: train [OPTIONS]\nTry 'train --help' for help.\n\nError: No such option: --epoch\n"
NO_SCRIPT = (
    "/home/anna/env/bin/python: can't open file '/home/anna/perf_test.py': [Errno 2] No such file or directory\n"
)
NO_MODULE = "/usr/bin/python3: No module named trainer\n"
SYNTAX = '  File "train.py", line 3\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n'
NO_LIBRARY = "./solver: error while loading shared libraries: libcudart.so.11.0: cannot open shared object file\n"
SHELL = "./run.sh: line 3: trainx: command not found\n"
CUDA_CHECK = 'loading...\nCUDA error at solver.cu:88 code=2(cudaErrorMemoryAllocation) "cudaMalloc(&d, n)"\n'
GPU_ASSERT = "GPUassert: invalid configuration argument kernel.cu 120\n"
OOM_KILLED = (
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.0. Some of your processes may have been killed.\n"
)
HEAP = "epoch 1\ndouble free or corruption (!prev)\nAborted (core dumped)\n"
RICH = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /app/train.py:14 in <module>                                                │
│ ❱ 14 fit(None)                                                               │
╰──────────────────────────────────────────────────────────────────────────────╯
TypeError: fit() got None
"""
WANDB_AFTER = f"""\
{IMPORT}wandb: Run history:
wandb:     loss 0.3
wandb: Synced 5 W&B file(s)
"""


@pytest.mark.parametrize(
    ("text", "words", "where"),
    [
        pytest.param(IMPORT, "No module named 'schedulefree'", "train.py:6", id="import"),
        pytest.param(OUT_OF_MEMORY, "CUDA out of memory", "train.py:61", id="out of memory"),
        pytest.param(SHAPES, "shapes cannot be multiplied", "bench.py:12", id="shapes"),
        pytest.param(ASYNC_CUDA, "device-side assert triggered", "gather.py:30", id="device-side assert"),
        pytest.param(CHAINED, "FileNotFoundError", "load.py:5", id="chained"),
        pytest.param(WORKER, "cannot read sample 17", "dataset.py:44", id="DataLoader worker"),
        pytest.param(TORCHRUN, "tensors must be on the same device", "ddp.py:40", id="torchrun"),
        pytest.param(DEEPSPEED, "'ds.json'", "ds.py:5", id="deepspeed"),
        pytest.param(UNCAUGHT, "cannot open mesh.obj (std::runtime_error)", None, id="C++ exception"),
        pytest.param(THRUST, "cudaErrorInvalidDevice", None, id="thrust"),
        pytest.param(ASSERTION, "`n > 0' failed", "solver.cpp:142", id="assertion"),
        pytest.param(PYTHON_SEGFAULT, "Fatal Python error: Segmentation fault", "ext.py:10", id="python segfault"),
        pytest.param(UCX, "Bad address", "test.f90:81", id="UCX"),
        pytest.param(MPI_ABORT, "MPI_ABORT was invoked on rank 0", None, id="MPI_ABORT"),
        pytest.param(MPICH, "Fatal error in PMPI_Recv", None, id="MPICH"),
        pytest.param(OPEN_MPI_SIGNAL, "Segmentation fault (11)", None, id="Open MPI's handler"),
        pytest.param(GFORTRAN, "SIGSEGV", "heat.f90:81", id="gfortran segfault"),
        pytest.param(FORTRAN, "End of file", "input.f90:17", id="Fortran"),
        pytest.param(OPENACC, "CUDA_ERROR_OUT_OF_MEMORY", "stencil.c:41", id="OpenACC"),
        pytest.param(JULIA, "UndefVarError", "run.jl:3", id="Julia"),
        pytest.param(RUST, "panicked", "main.rs:4", id="Rust"),
        pytest.param(USAGE, "arguments are required: --data", None, id="argparse"),
        pytest.param(CLICK, "No such option: --epoch", None, id="click"),
        pytest.param(NO_SCRIPT, "can't open file '~/perf_test.py'", None, id="no script"),
        pytest.param(NO_MODULE, "No module named trainer", None, id="no module"),
        pytest.param(SYNTAX, "SyntaxError: invalid syntax", "train.py:3", id="syntax"),
        pytest.param(NO_LIBRARY, "libcudart.so.11.0", None, id="no library"),
        pytest.param(SHELL, "trainx: command not found", None, id="shell"),
        pytest.param(CUDA_CHECK, "cudaErrorMemoryAllocation", "solver.cu:88", id="CUDA check"),
        pytest.param(GPU_ASSERT, "invalid configuration argument", "kernel.cu:120", id="GPUassert"),
        pytest.param(OOM_KILLED, "oom-kill", None, id="out of host memory"),
        pytest.param(HEAP, "double free or corruption", None, id="heap"),
        pytest.param(RICH, "fit() got None", "train.py:14", id="rich"),
        pytest.param(WANDB_AFTER, "schedulefree", "train.py:6", id="wandb tidies up"),
        pytest.param(f"\x1b[31m{SHAPES}\x1b[0m", "shapes cannot", "bench.py:12", id="in colour"),
    ],
)
def test_a_failure_is_told_by_its_own_words(text: str, words: str, where: str | None) -> None:
    said = last_words(text)
    assert said is not None
    assert said.ended == FAILED
    assert words in said.words
    assert said.where == where
    assert said.lines
    assert "anna" not in f"{said}"


CAUGHT = f"""\
ERROR:root:could not write the checkpoint
{SHAPES}epoch 2: loss 0.31
epoch 3: loss 0.30
"""
TENSORFLOW = """\
2024-01-01 10:00:00.1: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:485] Unable to register cuFFT factory
2024-01-01 10:00:09.1: W tensorflow/core/common_runtime/bfc_allocator.cc:290] Allocator (GPU_0_bfc) ran out of memory
2024-01-01 10:00:09.2: I xla/stream_executor/cuda/cuda_driver.cc:1: failed to allocate 2.00GiB (2147483648 bytes)
"""
JAX = "E0101 10:00:00.000000   12 cuda_dnn.cc:400] There was an error before creating cudnn handle; falling back\n"
WARNING = """\
/app/infer.py:34: FutureWarning: You are using `torch.load` with `weights_only=False`
  model.load_state_dict(torch.load('simple_cnn.pth'))
"""
SHUTDOWN = """\
Exception ignored in: <function Pool.__del__ at 0x7f>
Traceback (most recent call last):
  File "/usr/lib/python3.10/multiprocessing/pool.py", line 268, in __del__
    self._change_notifier.put(None)
OSError: [Errno 9] Bad file descriptor
"""
THREAD = """\
Exception in thread Thread-3 (upload):
Traceback (most recent call last):
  File "metrics.py", line 9, in upload
    post(url)
ConnectionError: refused
"""
LEAK = "[rank0]:[W1] Warning: destroy_process_group() was not called before program exit (function operator())\n"
TESTS = "=========== 1 failed, 212 passed, 3 warnings in 41.02s ===========\n"


@pytest.mark.parametrize(
    "text", [CAUGHT, TENSORFLOW, JAX, WARNING, SHUTDOWN, THREAD, LEAK, TESTS, "", "wrote out.bin\n", "Killing time\n"]
)
def test_an_error_after_which_the_program_runs_on_is_none(text: str) -> None:
    assert last_words(text) is None
    assert last_words("", text) is None


INSIDE = """\
Traceback (most recent call last):
  File "/app/sweep.py", line 8, in main
    fit(batch)
RuntimeError: shapes do not fit
"""
AGAIN = SHAPES + SHAPES
HYDRA = f"Error executing job with overrides: []\n{INSIDE}"
LAUNCHED = f"{INSIDE}mpirun noticed that process rank 1 with PID 0 on node node7 exited on signal 6 (Aborted).\n"


@pytest.mark.parametrize("text", [INSIDE, AGAIN])
def test_a_traceback_that_was_caught_does_not_tell_the_end(text: str) -> None:
    said = last_words(text)
    assert said is not None
    assert said.ended == UNCLEAR
    assert "RuntimeError" in said.words
    assert last_words(text, exit_code=0) is None
    known = last_words(text, exit_code=1)
    assert known is not None
    assert (known.ended, known.words) == (FAILED, said.words)


@pytest.mark.parametrize(
    ("text", "words"),
    [(HYDRA, "shapes do not fit"), (LAUNCHED, "shapes do not fit"), (INSIDE + HEAP, "double free")],
)
def test_an_error_that_was_caught_counts_where_something_else_tells_the_end(text: str, words: str) -> None:
    said = last_words(text)
    assert said is not None
    assert said.ended == FAILED
    assert words in said.words


@pytest.mark.parametrize("text", [IMPORT, UCX, UNCAUGHT])
def test_a_program_that_left_with_zero_has_not_failed(text: str) -> None:
    assert last_words(text, exit_code=0) is None


KEYBOARD = """\
  3%|▎         | 3/100 [00:01<00:40,  2.4it/s]^CTraceback (most recent call last):
  File "train.py", line 31, in <module>
    loss.backward()
KeyboardInterrupt
"""
SIGTERM = """\
Traceback (most recent call last):
  File "/opt/conda/lib/python3.10/site-packages/torch/distributed/elastic/multiprocessing/api.py", line 62, in _handler
    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 18 got signal: 15
"""
TIME_LIMIT = "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2024-01-01T10:00:00 DUE TO TIME LIMIT ***\n"


@pytest.mark.parametrize("text", [KEYBOARD.replace("^C", "\n"), SIGTERM, TIME_LIMIT, "epoch 3\nAborted!\n"])
def test_who_was_stopped_did_not_fail(text: str) -> None:
    said = last_words(text)
    assert said is not None
    assert said.ended == INTERRUPTED


def test_the_exit_status_tells_where_no_words_do() -> None:
    assert last_words("", exit_code=3) is not None
    said = last_words("reading the mesh\nno mesh in case.nml, giving up\n", exit_code=1)
    assert said is not None
    assert said.words == "no mesh in case.nml, giving up"
    stopped = last_words("", exit_code=130)
    assert stopped is not None
    assert stopped.ended == INTERRUPTED


def test_tests_of_which_none_passed_have_failed() -> None:
    said = last_words("", "=========== 2 errors in 0.31s ===========\n")
    assert said is not None
    assert said.words == "pytest: 2 errors in 0.31s"


def test_what_is_private_is_masked() -> None:
    assert masked("/home/anna/x.py and C:\\Users\\anna\\x") == "~/x.py and ~\\x"
    assert "hunter2" not in masked("OSError: password=hunter2 refused for https://anna:hunter2@host/x")
    assert "hf_abcdefghijklmnop" not in masked("401 for hf_abcdefghijklmnop")


def test_words_fit_a_screen() -> None:
    said = last_words(
        f'RuntimeError\nTraceback (most recent call last):\n  File "a.py", line 1\nValueError: {"x" * 900}\n'
    )
    assert said is not None
    assert len(said.words) == LONGEST_WORDS
    assert all(len(line) <= 200 for line in said.lines)


def test_a_signal_is_named_where_nothing_was_said() -> None:
    told = last_words("", "", 139)
    assert told is not None
    assert (told.ended, told.words) == (FAILED, "ended by SIGSEGV")
    told = last_words("", "", 143)
    assert told is not None
    assert (told.ended, told.words) == (INTERRUPTED, "ended by SIGTERM")


LAUNCH = """\
--------------------------------------------------------------------------
mpirun was unable to launch the specified application as it could not access
or execute an executable:

Executable: ./nothere
Node: vm

while attempting to start process rank 0.
--------------------------------------------------------------------------
"""
SHOW_HELP = """\
rank 1: mesh.dat has 3 cells, expected 4
[vm:09054] [[20384,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file orte/util/show_help.c at 512
"""


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        (LAUNCH, "mpirun was unable to launch ./nothere: no such executable"),
        (SHOW_HELP, "rank 1: mesh.dat has 3 cells, expected 4"),
        ("\n".join(SHOW_HELP.splitlines()[1:]), "mpirun reports an error, whose text is lost"),
        ("Usage: ./sim <steps> <dt>\n  steps  how many\n", "Usage: ./sim <steps> <dt>"),
    ],
)
def test_who_starts_a_program_tells_that_it_failed(errors: str, words: str) -> None:
    said = last_words(errors)
    assert said is not None
    assert (said.ended, said.words) == (FAILED, words)


@pytest.mark.parametrize("last", ["Done.", "All tests PASSED", "Result = PASS", "Elapsed time: 1.2 s", "All finished!"])
def test_a_program_that_came_to_its_end_has_not_failed(last: str) -> None:
    """What it wrote to standard error has no order beside what it wrote to standard output."""
    assert last_words(IMPORT, f"loading\n{last}\n") is None
    assert last_words(IMPORT, f"loading\n{last}\n", exit_code=1) is not None
    assert last_words(IMPORT, "Done loading the configuration\n") is not None


@pytest.mark.parametrize(
    "line",
    [
        "2024-01-01 00:00:01: E external/xla/cuda_driver.cc:266] failed call to cuInit: no CUDA-capable device",
        "error: unable to read config, using defaults",
        "CUDA error: peer access is not supported, disabling it",
    ],
)
def test_who_logs_an_error_and_goes_on_has_not_failed(line: str) -> None:
    assert last_words(f"{line}\n") is None


def test_the_line_of_a_librarys_log_is_none_of_the_program() -> None:
    said = last_words(
        "[rank1]:[E ProcessGroupNCCL.cpp:474] [Rank 1] Watchdog caught collective operation timeout\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [Rank 1] NCCL watchdog thread terminated with exception: timeout\n"
    )
    assert said is not None
    assert said.where is None


@pytest.mark.parametrize(
    "line",
    [
        "Couldn't open file: densenet201.weights",
        "cutlass_profiler: cannot open data.bin",
        "can't read data.bin",
        "./solve: input.dat: No such file or directory",
        "[11/20/2025-14:02:11] [E] Error[4]: [network.cpp::validate::2671] Error Code 4: Internal Error",
    ],
)
def test_a_program_that_lacks_something_may_end_for_it(line: str) -> None:
    said = last_words(f"starting\n{line}\n")
    assert said is not None
    assert said.ended == UNCLEAR
    assert said.words == line.strip()
    assert last_words(f"{line}\nepoch 1 loss 0.3\n") is None


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("Loading weights from a.cfg...Couldn't open file: densenet201.weights", "densenet201.weights"),
        ("can't read /data/set one", "/data/set"),
        ("./solve: input.dat: No such file or directory", "input.dat"),
        ("failed to connect", ""),
        ("RuntimeError: shapes do not fit (sweep.py:8)", ""),
    ],
)
def test_the_file_that_a_program_lacks_is_the_last_that_it_names(line: str, file: str) -> None:
    assert lacked_file(line) == file
