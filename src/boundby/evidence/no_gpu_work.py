"""Why a trace holds no GPU work: the program failed, CUDA was not recorded, it is inside a call of the driver that is
not on record, nothing ran on a GPU, or it is a program of the host.

What was not recorded is never read as idleness, and what a host thread does meanwhile is then no verdict.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from boundby.model.arrays import is_in, unique
from boundby.model.late import expression
from boundby.model.scale import HALF
from boundby.model.units import duration, plural
from boundby.results.report import CodeLine, FirstResponse, NoGpuWork
from boundby.trace.facts import ProgramEnd
from boundby.trace.program import ProgramKind, program_of
from boundby.trace.stacks import Backtraces, StackSource, file_name
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.cuda import CallClass, classify_call
from boundby.trace.vocabulary.last_words import FAILED
from boundby.trace.vocabulary.profiler import Refusal, has_started_cuda, why_no_cuda

# A main thread that never comes out of the driver for so much of the recording is inside one call, or one after the
# other: starting CUDA takes seconds at most, and programs end outside of it.
_INSIDE_SHARE = HALF
_DRIVER_BINARY = expression(r"^(?:libcuda|libnvcuda|nvcuda)(?:[-.]\d[\w.]*)?(?:\.so|\.dll|$)")
_GPU_LIBRARY = expression(
    r"^(?:lib)?(?:cudart|cublas|cudnn|cufft|cusparse|cusolver|curand|nccl|torch_cuda|c10_cuda|cupy|nvinfer|acccuda"
    r"|cudafor)\w*[.-]|^libcuda\.so"
)
# Domains of NVTX that only libraries for GPUs open.
_GPU_DOMAIN = expression(r"^(?:TensorRT|myelin|NCCL|NVSHMEM|CUB|CCCL|Thrust|cuDNN|cuBLAS|libcudf)\b", re.IGNORECASE)
_CUDA_CALL = expression(r"^cu(?:da)?[A-Z]\w+$")
#: What to change first, by what a program that failed said, in words and as a command; the first that fits. ``{}`` is
#: what it names, PROGRAM its command line.
_MENDS = tuple(
    (expression(said, re.IGNORECASE), title, code)
    for said, title, code in (
        (
            r"No module named '?(\w+)",
            "Install the package that holds {}, for the Python that runs the program",
            "pip install {}  # if the module is yours: export PYTHONPATH=ITS_FOLDER",
        ),
        (
            r"cannot import name|undefined symbol|symbol lookup error",
            "Install versions that fit each other",
            "pip check",
        ),
        (
            r"error while loading shared libraries: ([^\s:]+)",
            "Put the folder of {} on LD_LIBRARY_PATH",
            "export LD_LIBRARY_PATH=FOLDER:$LD_LIBRARY_PATH  # the folder that holds {}",
        ),
        (
            r"(?:can't open file|No such (?:file|executable)|FileNotFoundError).*?'(?:[^']*/)?([^'/]+)'",
            "Give a path that exists",
            "find . -name '{}'  # where it is",
        ),
        (r"can't open file|No such (?:file|executable)|not found|FileNotFoundError", "Give a path that exists", ""),
        (
            r"arguments? (?:is|are) required|unrecognized arguments|invalid choice|^usage",
            "Correct the command line",
            "PROGRAM --help",
        ),
        (
            r"no CUDA-capable device|No CUDA GPUs|no NVIDIA driver",
            "Run it where nvidia-smi lists a GPU",
            "nvidia-smi -L",
        ),
        (r"driver version is insufficient|no kernel image", "Build it for this GPU and driver", "nvidia-smi"),
        (
            r"out of memory|bad_alloc|MemoryError",
            "Use less memory: smaller batches, or a GPU that nobody else uses",
            "",
        ),
        (
            r"process_vm_\w+\(.*Bad address",
            "Give MPI host memory, or use an MPI that takes GPU pointers (the bad address may be a GPU pointer)",
            "ompi_info --parsable --all | grep mpi_built_with_cuda_support:value  # 'false': host memory only",
        ),
        (r"MPI_ERR_TRUNCATE|Message truncated", "Receive into a buffer as large as what is sent", ""),
    )
)
_RECORD_AGAIN = "boundby profile -- PROGRAM"
_USES_THE_GPU = (CallClass.LAUNCH, CallClass.SYNC, CallClass.BLOCKING_COPY, CallClass.ALLOC)


class _Clues(Struct, frozen=True):
    """What backtraces show of CUDA. ``call``: one that needs the GPU; ``inside_ns``: how long the main thread has not
    come out of the driver when the recording ends, and in how many calls of the OS it was seen there."""

    has_library: bool = False
    call: str | None = None
    inside_ns: int = 0
    times: int = 0


def no_gpu_work(trace: Trace, end: ProgramEnd | None, launches_lost: int) -> NoGpuWork | None:
    """The diagnosis; None: there is GPU work, or calls that launched some are on record without it (records are then
    missing, which the verdict says)."""
    if len(trace.operations) or launches_lost:
        return None
    has_started, refusal = has_started_cuda(trace.diagnostics), why_no_cuda(trace.diagnostics)
    if end is not None and end.ended == FAILED:
        return _failed(end, has_started, trace.how_it_runs, refusal)
    seen = _look(trace)
    if refusal is not None and refusal.is_certain:
        return _not_recorded(refusal.because, refusal.remedy, _named(trace, refusal.command))
    if seen.inside_ns >= _INSIDE_SHARE * (trace.span_ns[1] - trace.span_ns[0]) > 0:
        return _inside_driver(seen, trace)
    if refusal is not None:
        because = f"{refusal.because}, which is the likely reason"
        return _not_recorded(because, refusal.remedy, _named(trace, refusal.command))
    if (shown := _shown(trace, seen)) is not None:
        return shown
    has_cuda = bool(len(trace.api)) or has_started or (seen.has_library and bool(trace.gpus))
    return _unused(trace) if has_cuda else NoGpuWork("host_only", "")


def _shown(trace: Trace, seen: _Clues) -> NoGpuWork | None:
    """CUDA was not recorded, although something on record shows it at work."""
    if len(trace.api):
        return None
    is_asked = "cuda" in trace.not_recorded or "CAPTURE_EVENT_TYPE" not in trace.metadata
    library = next((name for name in trace.domains if _GPU_DOMAIN.match(name)), None)
    if not is_asked and (seen.has_library or seen.call or library):
        return _not_recorded(
            "the capture did not ask for it",
            "Record again with boundby profile, which asks for CUDA",
            _named(trace, _RECORD_AGAIN),
        )
    because = None
    if seen.call is not None:
        because = f"backtraces show the program in {seen.call}, and no CUDA call is on record"
    elif library is not None:
        because = f"{library}, which runs on GPUs, opened ranges, and no CUDA call is on record"
    if because is None:
        return None
    again = (
        "Record again with boundby profile, which asks for CUDA; where that records none either, boundby doctor looks "
        "for the cause"
    )
    return _not_recorded(because, again, _named(trace, _RECORD_AGAIN))


def _look(trace: Trace) -> _Clues:
    """Only where nothing of the GPU is on record: backtraces are large."""
    if not trace.captured.backtraces or len(trace.api):
        return _Clues()
    stacks = trace.backtraces.load()
    frames = stacks.frames
    binaries = {int(number): file_name(stacks.names[int(number)]) for number in unique(frames.module)}
    symbols = sorted(stacks.names[int(number)] for number in unique(frames.symbol))
    call = next((s for s in symbols if _CUDA_CALL.match(s) and classify_call(s) in _USES_THE_GPU), None)
    inside_ns, times = _inside(trace, stacks, {n for n, name in binaries.items() if _DRIVER_BINARY.match(name)})
    return _Clues(any(map(_GPU_LIBRARY.match, binaries.values())), call, inside_ns, times)


def _inside(trace: Trace, stacks: Backtraces, driver: set[int]) -> tuple[int, int]:
    """Of the main thread that is longest in the driver when the recording ends: since when, and in how many calls of
    the OS it was seen there since."""
    in_driver = is_in(stacks.frames.module, sorted(driver))[stacks.frame]
    of_stack = np.concatenate([[0], np.cumsum(in_driver)])
    is_inside = of_stack[stacks.first[1:]] > of_stack[stacks.first[:-1]]
    longest = (0, 0)
    for number, thread in enumerate(trace.threads):
        rows = stacks.rows(StackSource.OS, number)
        if thread.pid != thread.tid or rows.start == rows.stop:
            continue
        inside = is_inside[stacks.events.stack[rows]]
        outside = np.flatnonzero(~inside)
        since = int(outside[-1]) + 1 if len(outside) else 0
        if since < len(inside):
            ns = trace.span_ns[1] - int(stacks.events.start_ns[rows][since])
            longest = max(longest, (ns, len(inside) - since))
    return longest


def _named(trace: Trace, command: str) -> str:
    """A command with the program's own command line in it."""
    return command.replace("PROGRAM", trace.how_it_runs)


def _failed(end: ProgramEnd, has_started: bool, program: str, refusal: Refusal | None) -> NoGpuWork:
    """To record again comes after the mend: the same command fails again. ``refusal``: why the profiler records no
    CUDA, which is mended as well."""
    where = f" ({end.where})" if end.where and end.where not in end.words else ""
    known_ends = (
        (title.format(*match.groups()), code.format(*match.groups()).replace("PROGRAM", program), match)
        for said, title, code in _MENDS
        if (match := said.search(end.words))
    )
    mend, code, match = next(
        known_ends, (f"Fix {end.where}" if end.where else "Let the program run to its end", "", None)
    )
    if match is not None and code.startswith("find "):  # what is not where the command has it
        program = re.sub(rf"(?<!\S)\S*\b(?={re.escape(match[1])}(?!\S))", "FOLDER/", program)
    record, then = _RECORD_AGAIN, f"{mend}, then record again"
    because = "a run that failed does not show what the program is bound by"
    if refusal is not None and "PROGRAM" in refusal.command:  # it says how to record
        record, then, because = refusal.command, f"{mend}. {refusal.remedy}", refusal.because
    again = record.replace("PROGRAM", program)
    response = FirstResponse(
        "no_gpu_work.failed",
        then,
        because=because,
        command=_RECORD_AGAIN.replace("PROGRAM", program),  # what is installed before stands in the code alone
        code=f"{code}\n{again}" if code else "",
        where=_line(end.where or ""),
    )
    return NoGpuWork("failed", f"{end.words}{where}".strip(), has_started, response)


def _line(where: str) -> CodeLine | None:
    """``train.py:6`` as a line."""
    file, _, line = where.rpartition(":")
    return CodeLine(file, int(line)) if file and line.isdigit() else None


def _not_recorded(because: str, remedy: str, command: str = "boundby doctor") -> NoGpuWork:
    response = FirstResponse(
        "no_gpu_work.not_recorded",
        remedy,
        because="this trace shows neither what the GPU did nor what the host waited for",
        command="boundby doctor",
        code=command,
    )
    return NoGpuWork("not_recorded", because, response=response)


def _inside_driver(seen: _Clues, trace: Trace) -> NoGpuWork:
    response = FirstResponse(
        "no_gpu_work.inside_driver",
        "Find the CUDA call that does not return",
        because="nsys records a call only when it returns, so that no recording shows this one",
        action="gdb shows the line. A kernel that does not end keeps the next call waiting (compute-sanitizer "
        f"{trace.how_it_runs}), and so does a GPU in trouble (dmesg | grep Xid)",
        command=_named(trace, _RECORD_AGAIN),
        code="gdb -p PID -ex bt -ex detach  # run it again; type this when it hangs",
        is_search=True,
    )
    seen_by = f"as the backtraces of {plural(seen.times, 'OS call')} show"
    because = f"for the last {duration(seen.inside_ns)} the main thread has not left libcuda, {seen_by}"
    return NoGpuWork("inside_driver", because, response=response)


_DEVICES_OF = {
    "jax": (
        "Without its CUDA plugin (pip install 'jax[cuda12]') JAX computes on the CPU",
        "python -c 'import jax; print(jax.devices())'",
    ),
    "tensorflow": (
        "An empty list is a build or a driver without CUDA",
        "python -c 'import tensorflow as tf; print(tf.config.list_physical_devices(\"GPU\"))'",
    ),
}


def _unused(trace: Trace) -> NoGpuWork:
    because, program = "a library for the GPU is loaded, and no CUDA call is on record", program_of(trace)
    if len(trace.api):
        because = f"{plural(len(trace.api), 'CUDA call')} on record, and none of them launches work"
    title, action = (
        "Find out why nothing is launched",
        "Check what each CUDA call returns (cudaGetDeviceCount first), and CUDA_VISIBLE_DEVICES",
    )
    code = "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES"
    if program.kind == ProgramKind.TORCH:
        title = "Run the model on the GPU"
        action, code = "", "model = model.to('cuda')\nbatch = batch.to('cuda', non_blocking=True)  # in the loop"
    elif program.is_python:
        title = "Run the work on the GPU: nothing was placed there"
        action, code = _DEVICES_OF.get(
            program.library, ("Ask the library for its device, and place arrays and models there", "")
        )
    response = FirstResponse(
        "no_gpu_work.unused",
        title,
        because="the GPU did nothing while the host computed",
        action=action,
        command=_named(trace, _RECORD_AGAIN),
        code=code,
    )
    return NoGpuWork("unused", because, response=response)
