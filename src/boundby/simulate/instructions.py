"""Programs in a small readable form: what host threads do, one instruction after the other.

>>> step = Range("step {i}", [Launch("gemm", 300 * US), Launch("relu", 20 * US), *item(), Work(150 * US)])
>>> train = program(Loop(100, [step]))
>>> len(train.processes[0].threads[0].body)
1

All times are nanoseconds, all sizes bytes. Bodies become tuples, so that programs can be compared and hashed.
What the machine adds (call times, latencies, bandwidth, jitter) is not here but in ``machine.Machine``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from boundby.model.units import MS as MS
from boundby.model.units import US as US
from boundby.model.units import S as S

Direction = Literal["HtoD", "DtoH", "DtoD"]
Memory = Literal["pageable", "pinned", "managed", "device"]


class Instruction(Struct, frozen=True):
    """One thing that a thread does, or a body of such things."""


class Work(Instruction, frozen=True):
    """Host code on a CPU. ``spread``: sigma of a lognormal factor for each time it runs."""

    ns: int
    spread: float = 0.0


class Compile(Instruction, frozen=True):
    """Host code of a compiler: initialization, on whatever thread it runs."""

    ns: int
    spread: float = 0.0


class Sleep(Instruction, frozen=True):
    """The thread is blocked in the operating system, in the call ``on``: a file, a socket, a worker process."""

    ns: int
    on: str = "poll"
    spread: float = 0.0


class Launch(Instruction, frozen=True):
    """A kernel of ``ns`` on the device. ``comm``: it is communication (name it nccl...). ``share``: the part of the
    GPU that it needs; kernels of different streams run together while their shares fit in 1. ``load_ns``: what the
    first launch of this kernel in the process takes longer (lazy module load)."""

    kernel: str
    ns: int
    stream: int = 0
    device: int = 0
    comm: bool = False
    share: float = 1.0
    load_ns: int = 0
    spread: float = 0.0


class Node(Struct, frozen=True):
    """A kernel of a CUDA graph. ``within``: the ranges that were open when it was captured, before all else."""

    kernel: str
    ns: int
    within: tuple[str, ...] = ()


class GraphLaunch(Instruction, frozen=True):
    """One call that runs its nodes in order on the device."""

    nodes: Sequence[Node]
    stream: int = 0
    device: int = 0
    share: float = 1.0

    def __post_init__(self) -> None:
        force_setattr(self, "nodes", tuple(self.nodes))


class Copy(Instruction, frozen=True):
    """cudaMemcpyAsync, or cudaMemcpy where ``blocking``. ``memory``: the kind of the host's side; of ``managed`` memory
    no call copies: the host waits in a page fault while the driver moves its pages."""

    bytes: int
    direction: Direction = "HtoD"
    memory: Memory = "pinned"
    blocking: bool = False
    stream: int = 0
    device: int = 0


class Memset(Instruction, frozen=True):
    """cudaMemsetAsync."""

    bytes: int
    stream: int = 0
    device: int = 0


class Sync(Instruction, frozen=True):
    """The host waits: for everything on a device, for a stream, or for the latest record of an event."""

    what: Literal["device", "stream", "event"] = "device"
    stream: int = 0
    device: int = 0
    event: str = ""


class Record(Instruction, frozen=True):
    """cudaEventRecord: the event is done when all that the stream holds now is done. ``{i%3}`` in its name, here and
    where it is waited for, takes three events in turn, by the turn of the innermost loop."""

    event: str
    stream: int = 0
    device: int = 0


class WaitEvent(Instruction, frozen=True):
    """cudaStreamWaitEvent: the stream, not the host, waits for the latest record. Never recorded: no wait."""

    event: str
    stream: int = 0
    device: int = 0


class NewStream(Instruction, frozen=True):
    """cudaStreamCreate: from here on this thread means a new stream by the number. Its work before goes on where it
    was. The number is the thread's own: no other thread can name what it made."""

    stream: int


class Alloc(Instruction, frozen=True):
    """Memory (de)allocation; ``waits``: it waits first for all that the process runs on the device."""

    ns: int
    waits: bool = False
    call: str = "cudaMalloc"
    device: int = 0


class Init(Instruction, frozen=True):
    """Context creation, module load, JIT."""

    ns: int
    call: str = "cuLibraryLoadData"


class Call(Instruction, frozen=True):
    """Any other CUDA call: a query, an attribute."""

    ns: int = 1 * US
    name: str = "cudaStreamIsCapturing"


class Signal(Instruction, frozen=True):
    """Hand over to whoever of the process awaits this name (a counting semaphore)."""

    name: str


class Await(Instruction, frozen=True):
    """Wait in the operating system for a ``Signal`` of this name; one that came before counts."""

    name: str


class Range(Instruction, frozen=True):
    """An NVTX push/pop range. ``{i}`` in the name is the turn of the innermost loop."""

    name: str
    body: Sequence[Instruction]
    domain: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "body", tuple(_flat(self.body)))


class Loop(Instruction, frozen=True):
    """The body, ``n`` times."""

    n: int
    body: Sequence[Instruction]

    def __post_init__(self) -> None:
        force_setattr(self, "body", tuple(_flat(self.body)))


INSTRUCTIONS: tuple[type[Instruction], ...] = tuple(Instruction.__subclasses__())


class Thread(Struct, frozen=True):
    """A host thread. ``delegate``: it works on behalf of the process's first annotated thread, as autograd's does,
    and its ranges lie inside the one open there. ``daemon``: it goes on until the last thread that is none has ended,
    wherever it is then. ``unseen``: the capture holds its CUDA calls and ranges, but no switch and no OS call of it."""

    body: Sequence[Instruction]
    name: str = "python"
    delegate: bool = False
    daemon: bool = False
    unseen: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "body", tuple(_flat(self.body)))


class Process(Struct, frozen=True):
    """Threads that share streams, events and signals. The first is the main thread. ``traced``: False is somebody
    else's program on the same machine: no export shows it, and no change of the program changes it."""

    threads: Sequence[Thread]
    name: str = "python"
    traced: bool = True

    def __post_init__(self) -> None:
        force_setattr(self, "threads", tuple(self.threads))


class Program(Struct, frozen=True):
    """Processes that start together and share the machine's devices."""

    processes: Sequence[Process]
    name: str = "program"
    command: Sequence[str] = ("python", "train.py")

    def __post_init__(self) -> None:
        force_setattr(self, "processes", tuple(self.processes))
        force_setattr(self, "command", tuple(self.command))
        for problem in _problems(self):
            raise ValueError(problem)


def program(*body: Instruction | Iterable[Instruction], name: str = "program") -> Program:
    """A program of one thread."""
    return threads(Thread(tuple(_flat(body))), name=name)


def threads(*members: Thread, name: str = "program") -> Program:
    """A program of one process with these threads."""
    return Program((Process(members),), name)


def item(bytes: int = 4, *, stream: int = 0, device: int = 0, memory: Memory = "pinned") -> list[Instruction]:
    """``tensor.item()`` as PyTorch does it: a small copy to the host, then a wait for the stream."""
    return [
        Copy(bytes, "DtoH", memory, stream=stream, device=device),
        Sync("stream", stream=stream, device=device),
    ]


def walk(body: Iterable[Instruction]) -> Iterator[Instruction]:
    """Every instruction once, loops and ranges before what they hold."""
    for instruction in body:
        yield instruction
        if isinstance(instruction, Loop | Range):
            yield from walk(instruction.body)


def _flat(body: Iterable[object]) -> Iterator[Instruction]:
    for part in body:
        if isinstance(part, Instruction):
            yield part
        elif isinstance(part, Iterable) and not isinstance(part, str | bytes):
            yield from _flat(part)
        else:
            raise TypeError(f"{part!r} is not an instruction")


def _problems(program: Program) -> Iterator[str]:
    if not program.processes or any(not process.threads for process in program.processes):
        yield "a program needs a process, and a process a thread"
    for process in program.processes:
        for thread in process.threads:
            for instruction in walk(thread.body):
                yield from (f"{instruction!r}: {problem}" for problem in _faults(instruction))


def _faults(found: Instruction) -> Iterator[str]:
    for name in ("ns", "bytes", "load_ns", "n", "stream", "device", "spread"):
        if getattr(found, name, 0) < 0:
            yield f"{name} is negative"
    match found:
        case Launch() | GraphLaunch():
            yield from _faults_of_launch(found)
        case Copy():
            if found.direction not in ("HtoD", "DtoH", "DtoD") or found.memory not in get_args(Memory):
                yield "no such direction or memory"
            if (found.direction == "DtoD") != (found.memory == "device"):
                yield "a DtoD copy is between device memory, any other has host memory on one side"
        case Sync():
            if found.what not in ("device", "stream", "event"):
                yield "what is device, stream or event"
            if (found.what == "event") != bool(found.event):
                yield "an event is named for what='event' only"


def _faults_of_launch(found: Launch | GraphLaunch) -> Iterator[str]:
    if not 0 <= found.share <= 1:
        yield "share must lie between 0 and 1"
    if isinstance(found, GraphLaunch):
        if not found.nodes:
            yield "a graph needs a node"
    elif found.comm != ("nccl" in found.kernel.lower()):
        yield "a communication kernel, and no other, has nccl in its name"
