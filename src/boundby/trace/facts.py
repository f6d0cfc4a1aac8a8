"""What a trace says of itself: the GPUs, what was captured, what lowers certainty."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated

from msgspec import Struct


class Mark:
    """One word of what an annotation says of a field, without a value of its own."""


LATER = Mark()  #: came after the first published form: a saved result may lack it

#: The code of warnings about rows whose values cannot be right.
BROKEN_ROWS = "broken-rows"
#: The code of the warning that so many are that no row of the report can be relied on.
UNBELIEVABLE = "unbelievable-times"
#: The code of the warning that an export ended early.
EXPORT_INCOMPLETE = "export-incomplete"
#: The code of the warning that a run's folder does not tell how its program ended.
END_UNKNOWN = "end-unknown"
#: The code of the warning that operations inside CUDA graphs are counted in the ranges of their capture.
GRAPH_RANGES = "graph-ranges"
#: The script that `boundby profile` has nsys start, and the program with it.
LAUNCHING_SCRIPT = "boundby-run"
#: ``Trace.not_recorded`` of CUDA, where there was none to record.
NO_GPU = "no NVIDIA GPU on that machine"
#: ``Trace.source`` of what PyTorch's profiler wrote.
PYTORCH = "pytorch-profiler"

#: The clocks of devices and host, which profilers fit to each other, differ by no more in healthy traces, and drift
#: apart by less (a real trace: 5.7 us after 25 s).
CLOCKS_APART_NS = 20_000


class TraceWarning(Struct, frozen=True):
    """Something about the trace that lowers certainty."""

    code: Annotated[str, "Stable slug."]  # with an anchor in the docs
    message: Annotated[str, "One sentence."]


class UnreadTable(Struct, frozen=True):
    """A table of the report that boundby does not read."""

    name: Annotated[str, "Name."]
    rows: Annotated[int | None, "How many; null: it cannot be counted."]
    holds: Annotated[str, "What it holds."]


class Cycle(Struct, frozen=True):
    """One of several stretches of a program that a schedule had recorded, between which nothing was: from the start of
    its first event to the end of its last one."""

    low_ns: int
    high_ns: int
    first_step: int
    last_step: int

    @property
    def steps(self) -> int:
        return self.last_step - self.first_step + 1

    def __str__(self) -> str:
        return str(self.first_step) if self.steps == 1 else f"{self.first_step}-{self.last_step}"


class GpuInfo(Struct, frozen=True):
    """One GPU that the report lists."""

    id: Annotated[int, "Device id, as used in the account."]
    name: Annotated[str, "Name."]
    used: Annotated[bool, "Whether any work ran on it."] = True


class ProcessGroup(Struct, frozen=True):
    """A group of ranks that communicate."""

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()  # (): not told


class Communicator(Struct, frozen=True):
    """A communicator of MPI as one process knows it. ``handle``: its own name for it, from ``since_ns`` on."""

    process: int  # index into Trace.processes
    handle: int
    since_ns: int
    rank: int  # of the process, in it
    size: int  # ranks in it
    members: tuple[int, ...] = ()  # ranks of the job, in order; (): not told


#: Rank and size in the environment, by who sets them, the innermost launcher first. What Slurm tells of a step, only
#: srun sets.
RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


class JobPlace(Struct, frozen=True):
    """Which rank of a job a trace is of. None: not told."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None  # of communication

    @classmethod
    def in_environment(cls, env: Mapping[str, str]) -> JobPlace:
        """As a launcher tells its ranks; nothing outside a job, or in one of a single rank."""
        for rank, size in RANK_VARIABLES:
            values = env.get(rank, ""), env.get(size, "")
            if values[0].isdecimal() and values[1].isdecimal() and int(values[0]) < int(values[1]):
                return cls(int(values[0]), int(values[1])) if int(values[1]) > 1 else cls()
        return cls()


class Written(Struct, frozen=True):
    """The end of what a process wrote to standard error or to standard output."""

    pid: int
    is_error: bool
    text: str


class Severity(IntEnum):
    """Of the profiler's own notes (DIAGNOSTIC_EVENT)."""

    INFORMATION = 1
    WARNING = 2
    ERROR = 3


class Diagnostic(Struct, frozen=True):
    """What the profiler noted of itself. ``severity`` is a `Severity`."""

    severity: int
    text: str


class HostMachine(Struct, frozen=True):
    """What was recorded of the machine. None: not told."""

    cores: int | None = None
    cuda_driver: str | None = None  # the newest CUDA that the driver supports: 12.4
    name: str = ""


class ProgramEnd(Struct, frozen=True):
    """How the program ended, where it failed, was stopped, or may have failed."""

    ended: Annotated[str, "failed, interrupted, or unclear: an error is the last that it printed."]
    words: Annotated[str, "What it said last, one line; empty: nothing."] = ""
    where: Annotated[str | None, "File and line of the program's own code that its words name."] = None
    after_ns: Annotated[int, "From the first event of the recording to the last one."] = 0
    before_gpu_work: Annotated[bool, "Whether no GPU work is on record."] = True
    exit_code: Annotated[int | None, "As a shell has it; null: not known."] = None
    lines: Annotated[tuple[str, ...], "The lines of its output that tell of it."] = ()


class Captured(Struct, frozen=True):
    """Which kinds of data the report holds."""

    kernels: Annotated[bool, "Kernels."] = False
    cuda_api: Annotated[bool, "CUDA runtime and driver calls."] = False
    memcpy: Annotated[bool, "Memory copies and sets."] = False
    sync: Annotated[bool, "Synchronization records."] = False
    nvtx: Annotated[bool, "NVTX ranges."] = False
    osrt: Annotated[bool, "OS runtime calls."] = False
    cpu_scheduling: Annotated[bool, "Which thread ran on which CPU, when."] = False
    cpu_samples: Annotated[bool, "CPU samples."] = False
    gpu_metrics: Annotated[bool, "GPU metrics."] = False
    cuda_graphs: Annotated[bool, "CUDA graph executions."] = False
    backtraces: Annotated[bool, "Backtraces of CPU samples, CUDA calls or OS runtime calls."] = False
    python_stacks: Annotated[bool, "Python backtraces."] = False
    shapes: Annotated[bool, LATER, "Sizes of operators' inputs."] = False
    memory: Annotated[bool, LATER, "Allocations of GPU memory: of a framework's allocator, or of CUDA."] = False
