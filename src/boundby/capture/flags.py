"""From what a user asks and what nsys and the machine allow to the arguments of ``nsys profile``.

Flags differ from 2022 to 2026, so each is looked up in the help of the nsys that is used. What cannot be
recorded is dropped and told, with what the report will lack.
"""

from __future__ import annotations

import csv
import ctypes
import errno
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path, PurePath

from msgspec import Struct

from boundby.capture.nsys import ChildTimeoutError, Nsys, ask, run_child
from boundby.model import door
from boundby.model.errors import ToolError, UserError
from boundby.model.scale import ANSWER_S
from boundby.trace.vocabulary.range_names import STEPS_RANGE

# What this machine lets a profiler see: GPUs and their driver, CPU sampling, performance counters, the container.

#: ``perf_event_open`` by machine; it has no wrapper in the C library.
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "ppc64le": 319}
#: Capabilities that lift limits on profilers, by bit number (linux/capability.h).
CAPABILITIES = {"SYS_PTRACE": 19, "SYS_ADMIN": 21, "PERFMON": 38}


class InstalledGpu(Struct, frozen=True):
    """One GPU, as nvidia-smi tells of it."""

    name: str
    memory: str | None = None


class Computer(Struct, frozen=True):
    """What is there and what is permitted. The texts say why something is not; None: it is."""

    kernel: str
    gpus: tuple[InstalledGpu, ...]
    driver: str | None
    no_sampling: str | None
    no_counters: str | None
    root: Path = Path("/")

    @property
    def kernel_version(self) -> tuple[int, ...]:
        match = re.match(r"(\d+)\.(\d+)", self.kernel)
        return (int(match[1]), int(match[2])) if match else ()


def look_at_machine(root: Path = Path("/")) -> Computer:
    """Ask the machine. ``root`` stands for the root folder, below which /proc is read."""
    gpus, driver = find_gpus(root)
    return Computer(
        kernel=platform.release(),
        gpus=gpus,
        driver=driver,
        no_sampling=why_no_sampling(root),
        no_counters=why_no_counters(root),
        root=root,
    )


def find_gpus(root: Path = Path("/")) -> tuple[tuple[InstalledGpu, ...], str | None]:
    """The NVIDIA GPUs and the driver's version, by nvidia-smi, else by what the driver shows in /proc."""
    answer = ask(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"], ANSWER_S)
    if answer is not None and answer.returncode == 0:
        rows = [[cell.strip() for cell in row] for row in csv.reader(answer.lines)]
        rows = [row for row in rows if len(row) == 3]
        if rows:
            return tuple(InstalledGpu(name, memory) for name, memory, _ in rows), rows[0][2]
    texts = [_read(path) for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))]
    models = [match[1].strip() for text in texts if (match := re.search(r"Model:\s*(.+)", text))]
    version = re.search(r"Kernel Module\D*([\d.]+)", _read(root / "proc/driver/nvidia/version"))
    return tuple(InstalledGpu(model) for model in models), version[1] if version else None


def why_no_sampling(root: Path = Path("/")) -> str | None:
    """Why a process may not sample itself and watch its context switches; None where it may."""
    number = _try_perf_event()
    if number in (0, None):
        return None
    paranoid = perf_event_paranoid(root)
    if number in (errno.EACCES, errno.EPERM) and paranoid is not None and paranoid > 2 and os.geteuid() != 0:
        return f"kernel.perf_event_paranoid is {paranoid}, above 2"
    if number in (errno.EACCES, errno.EPERM):
        return "the container or the system forbids perf_event_open"
    return f"perf_event_open does not work here ({os.strerror(number)})"


#: How a machine is made to let users read GPU performance counters.
PERMIT_COUNTERS = (
    "Record as root; or permit it to everyone: echo options nvidia NVreg_RestrictProfilingToAdminUsers=0 | "
    "sudo tee /etc/modprobe.d/nvidia-profiling.conf, then restart (https://developer.nvidia.com/ERR_NVGPUCTRPERM)."
)


def why_no_counters(root: Path = Path("/")) -> str | None:
    """Why GPU performance counters may not be read; None where nothing speaks against it."""
    if is_admin_only(root) and not has_capability("SYS_ADMIN", root):
        return "the NVIDIA driver keeps GPU counters to administrators (RmProfilingAdminOnly is 1)"
    return None


def is_admin_only(root: Path = Path("/")) -> bool:
    """Whether the driver gives performance counters to administrators only."""
    return re.search(r"RmProfilingAdminOnly:\s*1", _read(root / "proc/driver/nvidia/params")) is not None


def perf_event_paranoid(root: Path = Path("/")) -> int | None:
    """The kernel's setting, None where there is none."""
    return read_number(root / "proc/sys/kernel/perf_event_paranoid")


def has_capability(name: str, root: Path = Path("/")) -> bool:
    """Whether this process holds a capability; being root in a container does not give all of them."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", _read(root / "proc/self/status"), re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> CAPABILITIES[name] & 1)


def is_seccomp_filtered(root: Path = Path("/")) -> bool:
    """Whether system calls of this process pass a filter, as in most containers."""
    return re.search(r"^Seccomp:\s*2", _read(root / "proc/self/status"), re.MULTILINE) is not None


def container_kind(root: Path = Path("/")) -> str | None:
    """The kind of container that this runs in, as far as it can be told."""
    if (root / ".dockerenv").exists():
        return "Docker"
    if (root / "run/.containerenv").exists():
        return "Podman"
    if os.environ.get("APPTAINER_CONTAINER") or os.environ.get("SINGULARITY_CONTAINER"):
        return "Apptainer"
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    groups = _read(root / "proc/1/cgroup")
    return "a container" if re.search(r"docker|kubepods|containerd|lxc", groups) else None


def read_number(path: Path) -> int | None:
    """A setting of the kernel, None where there is none."""
    text = _read(path).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


class _Perf(IntEnum):
    """Of ``perf_event_open``: the first version of its structure is known to every kernel."""

    TYPE_SOFTWARE = 1
    ATTR_SIZE = 64
    EXCLUDE_KERNEL = 1 << 5


def _try_perf_event() -> int | None:
    """0 if this process may count its own software events, else the error number; None: cannot be tried."""
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if number is None or os.name != "posix":
        return None
    attributes = bytearray(_Perf.ATTR_SIZE)
    attributes[0:4] = _Perf.TYPE_SOFTWARE.to_bytes(4, "little")
    attributes[4:8] = _Perf.ATTR_SIZE.to_bytes(4, "little")
    attributes[40:48] = _Perf.EXCLUDE_KERNEL.to_bytes(8, "little")
    try:
        library = ctypes.CDLL(None, use_errno=True)
        buffer = (ctypes.c_char * len(attributes)).from_buffer(attributes)
        handle = library.syscall(number, ctypes.byref(buffer), 0, -1, -1, 0)
    except (OSError, AttributeError, ValueError):
        return None
    if handle < 0:
        return ctypes.get_errno()
    os.close(handle)
    return 0


def _read(path: Path) -> str:
    """The text of a small file, empty where it cannot be read."""
    try:
        return door.read_text(path, errors="replace")
    except OSError:
        return ""


#: What the diagnosis needs. Libraries follow the CUDA calls that they make, so that a region's cost has a name.
DIAGNOSIS_TRACE = ("cuda", "cudnn", "cublas", "nvtx", "osrt")
MPI_TRACE = ("mpi", "ucx")
#: If nothing else is accepted, this is: every nsys since 2020 takes it, with a GPU or without.
PLAIN_TRACE = ("cuda", "nvtx", "osrt")
#: Enough for "how well do kernels fill the GPU" by region; the default of 10 kHz makes exports of gigabytes.
GPU_METRICS_HZ = 1000
#: What ``--metrics`` asks for: kernels of 100 us are told apart.
FINE_METRICS_HZ = 10_000
_MPI_LAUNCHERS = ("mpirun", "mpiexec", "orterun", "srun")
_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")
#: Before 2023, nsys hangs on today's kernels when it samples or watches the scheduler (seen: 2022.4.2 on 6.18).
NSYS_2023 = (2023,)
SAMPLING_HANGS_FROM_KERNEL = (6,)
#: ``-t cuda`` is ``--trace=cuda``; only the short forms of flags that boundby sets itself, or refuses.
SHORT = {
    "b": "backtrace",
    "c": "capture-range",
    "d": "duration",
    "f": "force-overwrite",
    "o": "output",
    "p": "nvtx-capture",
    "s": "sample",
    "t": "trace",
    "w": "show-output",
    "x": "stop-on-exit",
    "y": "delay",
    "Y": "start-later",
}
REFUSED = {
    "output": "boundby chooses where the report goes: give the folder with -o.",
    "session-new": "boundby names the session itself.",
    "start-later": "Nothing would start the recording. Use --delay or --capture-range.",
    "help": "For help: nsys profile --help.",
}
#: With these nsys takes Python stacks itself.
PYTHON_STACKS = frozenset({"python-backtrace", "python-sampling"})
_FLAG = re.compile(r"^\s*(?:\([A-Za-z ]+\)\s*)?(?:-\w,\s*)?--([a-z][a-z0-9-]*)", re.MULTILINE)
_TRACE = re.compile(
    r"^\s*(?:-t,\s*)?--trace=(.*?)(?=^\s*(?:\([A-Za-z ]+\)\s*)?(?:-\w,\s*)?--[a-z]|\Z)", re.MULTILINE | re.DOTALL
)


class CaptureOptions(Struct, frozen=True):
    """What a user asked of the recording."""

    trace: tuple[str, ...] = ()
    """Kinds to trace; empty: what the diagnosis needs."""
    delay_s: float = 0.0
    duration_s: float | None = None
    capture_range: str | None = None
    """``nvtx:NAME``, ``cudaProfilerApi``, or ``steps``: the active ones of boundby.annotate.steps."""
    nsys_args: tuple[str, ...] = ()
    """Passed to ``nsys profile`` as they are; they win over boundby's own."""
    lines: bool = True
    """Mark which line of Python each thread of a torch program is at."""
    metrics: bool = False
    """Sample the GPU's counters finely; if they cannot be sampled, say so before the program starts."""
    is_rank: bool = False
    """One of several that are recorded side by side."""


class Support(Struct, frozen=True):
    """What one nsys takes. ``traces`` is empty where its help does not tell."""

    flags: frozenset[str]
    traces: frozenset[str]


#: Where nobody was asked: everything passes.
UNKNOWN_SUPPORT = Support(frozenset(), frozenset())


class Lack(Struct, frozen=True):
    """Something that will not be recorded, why, and what that costs."""

    what: str
    reason: str
    cost: str
    kind: str = ""
    """As the report calls it (``TraceSummary.not_recorded``); empty: no kind of its own."""

    def __str__(self) -> str:
        return f"without {self.what}: {self.reason}, so the report {self.cost}"


class Plan(Struct, frozen=True):
    """Arguments of ``nsys profile`` before the program, without output and session, and what they leave out."""

    arguments: tuple[str, ...]
    lacks: tuple[Lack, ...]
    environment: Mapping[str, str]
    """Variables that nsys needs the program to have."""


def probe_support(nsys: Nsys) -> Support:
    """Read ``nsys profile --help`` once."""
    try:
        answer = run_child([nsys.path, "profile", "--help"], env=os.environ, timeout_s=ANSWER_S, lines_kept=None)
    except (ChildTimeoutError, OSError) as error:
        raise ToolError(f"{nsys.path} does not list its options ({error}).", "Name another with --nsys.") from error
    return read_help(answer.text)


def read_help(text: str) -> Support:
    """The flags and the kinds of trace that a help text names."""
    flags = frozenset(_FLAG.findall(text))
    section = _TRACE.search(text)
    traces = frozenset(re.findall(r"'([a-z][\w-]*)'", section[1])) - {"none"} if section else frozenset()
    return Support(flags, traces)


def plan(options: CaptureOptions, support: Support, machine: Computer, nsys: Nsys, program: Sequence[str]) -> Plan:
    """What to record, and what not."""
    check_user_arguments(options.nsys_args)
    lacks: list[Lack] = []
    arguments = [_trace(options, support, machine, program, lacks)]
    arguments += _cpu(support, machine, nsys, lacks)
    arguments += _gpu(options, support, machine, nsys, lacks)
    extent, environment = _extent(options, support, nsys)
    arguments += extent
    # The program lives or dies as it would without nsys: what it leaves running goes on, and is not waited for.
    arguments += [f"--{name}={value}" for name, value in (("kill", "none"), ("wait", "primary"))]
    named = flag_names(options.nsys_args)
    kept = [each for each in arguments if _supported(each, support) and _name(each) not in named]
    return Plan((*kept, *options.nsys_args), tuple(lacks), environment)


def plain(options: CaptureOptions, full: Plan) -> Plan:
    """The least that still answers something, for an nsys that refuses the full plan."""
    wanted = ("delay", "duration", "capture-range", "capture-range-end", "nvtx-capture", "kill", "wait")
    kept = [each for each in full.arguments if _name(each) in wanted and each not in options.nsys_args]
    quiet = ("--sample=none", "--cpuctxsw=none", f"--trace={','.join(options.trace or PLAIN_TRACE)}")
    named = flag_names(options.nsys_args)
    arguments = [each for each in (*quiet, *kept) if _name(each) not in named]
    lack = Lack(
        "all but the plain traces",
        "nsys refused the rest",
        "cannot tell surely whether the host computes or sleeps",
        "cpu_scheduling",
    )
    return Plan((*arguments, *options.nsys_args), (*full.lacks, lack), full.environment)


def flag_names(arguments: Sequence[str]) -> frozenset[str]:
    """The long names of the flags among arguments."""
    return frozenset(name for each in arguments if (name := _name(each)))


def check_user_arguments(arguments: Sequence[str]) -> None:
    """Refuse what would take the recording out of boundby's hands."""
    for name in sorted(flag_names(arguments) & set(REFUSED)):
        raise UserError(f"--nsys-args cannot hold --{name}.", REFUSED[name])


def _name(argument: str) -> str:
    if argument.startswith("--"):
        return argument[2:].partition("=")[0]
    if argument.startswith("-") and len(argument) > 1:
        return SHORT.get(argument[1], argument[1])
    return ""


def _supported(argument: str, support: Support) -> bool:
    return not support.flags or _name(argument) in support.flags


def _trace(
    options: CaptureOptions, support: Support, machine: Computer, program: Sequence[str], lacks: list[Lack]
) -> str:
    wanted = options.trace or (
        *DIAGNOSIS_TRACE,
        *(MPI_TRACE if is_mpi(program) else ()),
        *(("nccl",) if len(machine.gpus) > 1 and "nccl" in support.traces else ()),
    )
    kept = [each for each in wanted if not support.traces or each in support.traces]
    missing = [each for each in wanted if each not in kept]
    if missing and options.trace:
        lacks.append(Lack(f"trace {', '.join(missing)}", "this nsys does not know it", "will lack it"))
    return f"--trace={','.join(kept or PLAIN_TRACE)}"


def is_mpi(program: Sequence[str], env: Mapping[str, str] = os.environ) -> bool:
    """Whether a program runs under MPI or starts it."""
    return PurePath(program[0]).name in _MPI_LAUNCHERS or any(name in env for name in _MPI_VARIABLES)


def _cpu(support: Support, machine: Computer, nsys: Nsys, lacks: list[Lack]) -> list[str]:
    reason = why_no_scheduling(support, machine, nsys)
    if reason is not None:
        lacks.append(
            Lack(
                "CPU scheduling and samples",
                reason,
                "cannot tell surely whether the host computes or sleeps",
                "cpu_scheduling",
            )
        )
        return ["--sample=none", "--cpuctxsw=none"]
    # No backtraces: unwinding a stack a thousand times a second costs the program time and the diagnosis reads none.
    return ["--sample=process-tree", "--cpuctxsw=process-tree", "--backtrace=none"]


def why_no_scheduling(support: Support, machine: Computer, nsys: Nsys) -> str | None:
    """Why context switches and samples are not recorded; None where they are."""
    if machine.no_sampling is not None:
        return machine.no_sampling
    if nsys.version and nsys.version_tuple < NSYS_2023 and machine.kernel_version >= SAMPLING_HANGS_FROM_KERNEL:
        return f"nsys {nsys.release} can hang on Linux {machine.kernel} when it samples"
    return "this nsys cannot" if support.flags and "cpuctxsw" not in support.flags else None


def _why_no_counters(options: CaptureOptions, machine: Computer, nsys: Nsys, flag: str | None) -> str | None:
    """Why the GPU's counters cannot be sampled by a flag of nsys; None: they can."""
    if options.is_rank:
        return "only one process at a time can sample them, and ranks are several"
    if flag is None:
        return "this nsys cannot"
    if machine.no_counters is not None or flag in flag_names(options.nsys_args):
        return machine.no_counters
    return why_no_metrics(nsys, flag)


def _gpu(options: CaptureOptions, support: Support, machine: Computer, nsys: Nsys, lacks: list[Lack]) -> list[str]:
    if not machine.gpus:
        if options.metrics:
            raise no_metrics("no NVIDIA GPU is visible here")
        lacks.append(Lack("GPU data", "no NVIDIA GPU is visible here", "covers the host only", "cuda"))
        return []
    arguments = ["--cuda-graph-trace=node"]
    if "cuda-graph-trace" not in support.flags and support.flags:
        lacks.append(
            Lack(
                "kernels inside CUDA graphs",
                "this nsys cannot",
                "counts each graph as one piece of work",
                "cuda_graphs",
            )
        )
    name = next((each for each in ("gpu-metrics-devices", "gpu-metrics-device") if each in support.flags), None)
    reason = _why_no_counters(options, machine, nsys, name)
    if reason is not None:
        if options.metrics:
            raise no_metrics(reason)
        lacks.append(Lack("GPU metrics", reason, "will not show how well running kernels fill the GPU", "gpu_metrics"))
        return arguments
    frequency = FINE_METRICS_HZ if options.metrics else GPU_METRICS_HZ
    return [*arguments, f"--{name}=all", f"--gpu-metrics-frequency={frequency}"]


def no_metrics(reason: str) -> ToolError:
    """For who insists on GPU metrics: why there are none, and what would permit them."""
    is_permission = "permit" in reason or "administrators" in reason
    step = PERMIT_COUNTERS if is_permission else "Record without --metrics: boundby then takes what it can."
    return ToolError(f"GPU metrics cannot be recorded: {reason}.", step)


def why_no_metrics(nsys: Nsys, name: str) -> str | None:
    """Why this nsys cannot sample GPU metrics here; None where it lists a GPU for them."""
    try:
        answer = run_child([nsys.path, "profile", f"--{name}=help"], env=os.environ, timeout_s=ANSWER_S)
    except (ChildTimeoutError, OSError):
        return "nsys did not say which GPUs it can sample"
    if re.search(r"insufficient privilege|ERR_NVGPUCTRPERM|permission", answer.text, re.IGNORECASE):
        return "the driver does not permit it (ERR_NVGPUCTRPERM)"
    # Lines such as "0: NVIDIA A100-SXM4-40GB PCI[0000:07:00.0]" are the GPUs that can be sampled.
    if re.search(r"^\s*\d+:\s", answer.text, re.MULTILINE):
        return None
    return "nsys cannot sample this GPU"


def _seconds(value: float, nsys: Nsys) -> str:
    # Before (seen: 2022.4), --delay and --duration take whole seconds.
    takes_fractions = not nsys.version_tuple or nsys.version_tuple >= NSYS_2023
    return f"{value:g}" if takes_fractions else str(math.ceil(value))


def _extent(options: CaptureOptions, support: Support, nsys: Nsys) -> tuple[list[str], dict[str, str]]:
    """Which part of the run is recorded."""
    arguments = []
    environment: dict[str, str] = {}
    if options.delay_s:
        arguments.append(f"--delay={_seconds(options.delay_s, nsys)}")
    if options.duration_s is not None:
        arguments.append(f"--duration={_seconds(options.duration_s, nsys)}")
    if options.capture_range is None:
        return arguments, environment
    if "capture-range" not in support.flags and support.flags:
        raise ToolError("This nsys cannot wait for a capture range.", "Use --delay and --duration, or a newer nsys.")
    kind, _, name = options.capture_range.partition(":")
    if kind == "steps":
        kind, name = "nvtx", STEPS_RANGE
    arguments += [f"--capture-range={kind}", "--capture-range-end=stop"]
    if kind == "nvtx":
        # In any domain: the nvtx package and torch use different ones. And also unregistered names, as torch's are.
        arguments.append(f"--nvtx-capture={name if '@' in name else f'{name}@*'}")
        environment["NSYS_NVTX_PROFILER_REGISTER_ONLY"] = "0"
    return arguments, environment


def command_line(nsys: Nsys, chosen: Plan, report: Path, session: str, support: Support) -> list[str]:
    """The whole of ``nsys profile``, up to the program."""
    own = [f"--output={str(report).replace('%', '%%')}", "--force-overwrite=true", f"--session-new={session}"]
    return [str(nsys.path), "profile", *(each for each in own if _supported(each, support)), *chosen.arguments]
