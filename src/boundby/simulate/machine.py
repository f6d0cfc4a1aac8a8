"""The simulated machine: what calls, copies and hand-overs cost on it, and how it runs a program, event after event."""

from __future__ import annotations

import heapq
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import asdict

from boundby.simulate.instructions import (
    Alloc,
    Await,
    Call,
    Compile,
    Copy,
    GraphLaunch,
    Init,
    Instruction,
    Launch,
    Loop,
    Memset,
    NewStream,
    Node,
    Process,
    Program,
    Range,
    Record,
    Signal,
    Sleep,
    Sync,
    WaitEvent,
    Work,
)


class Machine(Struct, frozen=True, dict=True):
    """Times in ns, rates in bytes per ns (which is GB/s). All jitter is off by default: then every time is exact.

    A call that launches takes its call time; the work is handed to the device at ``submit_point`` of it, arrives
    ``launch_latency_ns`` later, and starts when the stream's operation before it has ended for ``switch_ns``.
    """

    launch_call_ns: int = 5_000
    copy_call_ns: int = 6_000
    memset_call_ns: int = 5_000
    graph_call_ns: int = 8_000
    event_call_ns: int = 1_500
    submit_point: float = 0.8  # fraction of a call after which the device has been told
    launch_latency_ns: int = 3_000
    switch_ns: int = 1_000
    graph_switch_ns: int = 500  # between the nodes of a graph

    sync_call_ns: int = 1_500  # a wait for what is done already
    sync_return_ns: int = 5_000  # from the end of what is waited for to the end of the call
    sync_spins: bool = True  # False: a waiting thread is scheduled out
    range_ns: int = 100  # to open or close an NVTX range
    wake_ns: int = 10_000  # from a signal to the run of the thread that awaited it

    queue_limit: int = 1_024  # operations of one stream not finished; the next launch waits for room

    pinned_bytes_per_ns: float = 25.0
    pageable_bytes_per_ns: float = 6.0
    device_bytes_per_ns: float = 1_000.0  # copies on the device, and sets
    copy_setup_ns: int = 1_200
    copy_engines: int = 1  # per direction
    # An asynchronous copy from pageable memory returns when what is left of it fits in the staging buffer, and a
    # small one when it has been copied there. One to pageable memory returns when it is done.
    staging_bytes: int = 65_536
    staging_bytes_per_ns: float = 10.0

    #: While a thread waits in a copy to or from pageable memory, the driver lets no other thread of its process copy:
    #: such a call goes on so long after that one has returned. 0: it does not wait.
    driver_release_ns: int = 0

    legacy_default_stream: bool = False  # True: stream 0 waits for the other streams of its process and they for it

    host_jitter: float = 0.0  # sigma of a lognormal factor of call times, host work and sleeps
    device_jitter: float = 0.0  # the same of kernels, copies, latencies and switches
    hiccup_chance: float = 0.0  # that a call or a piece of host work is interrupted (another process, a page fault)
    hiccup_ns: int = 50_000  # mean of the exponential length of an interruption

    clock_noise_ns: int = 0  # device times are written with up to this error
    clock_skew_ns: int = 0  # and with this offset
    clock_drift: float = 0.0  # and run fast by this fraction

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 0 and name not in ("clock_skew_ns", "clock_drift"):
                raise ValueError(f"{name} is negative")
            if value == 0 and ("bytes_per_ns" in name or name in ("queue_limit", "copy_engines")):
                raise ValueError(f"{name} must be more than 0")
        if self.submit_point > 1:
            raise ValueError("submit_point is a fraction of a call")

    def device(self, hears: DeviceEvents) -> SharedDevice:
        """One of its devices."""
        return SharedDevice(self, hears)

    def copy_ns(self, bytes: int, memory: str) -> int:
        """Time of a copy on the device's copy engine, by the kind of memory on its slower side."""
        rate = {
            "pageable": self.pageable_bytes_per_ns,
            "managed": self.pageable_bytes_per_ns,
            "pinned": self.pinned_bytes_per_ns,
            "device": self.device_bytes_per_ns,
        }[memory]
        return self.copy_setup_ns + round(bytes / rate)


# A program written out: loops unrolled, every cost on this machine decided (jitter drawn), nothing run yet.
#
# A counterfactual is the same script with some costs changed, so that chance plays the same in both.

Path = tuple[str, ...]


#: Streams that a thread makes while it runs are numbered from here, times its place in its process.
IDS_EACH = 1_000


class Do(IntEnum):
    """What a step is to the engine."""

    WORK = 0
    SLEEP = 1
    CALL = 2  # a CUDA call that launches nothing; it may wait
    LAUNCH = 3  # a CUDA call that launches an operation; it may wait for it
    RECORD = 4
    WAIT_EVENT = 5
    SIGNAL = 6
    AWAIT = 7
    PUSH = 8
    POP = 9


CALLS = frozenset((Do.CALL, Do.LAUNCH, Do.RECORD, Do.WAIT_EVENT))
#: The name of a call that is none.
PAGE_FAULT = ""
#: Steps in which the thread runs code of its own.
OWN_CODE = frozenset((Do.WORK, Do.PUSH, Do.POP))


class Wait(IntEnum):
    """What the host waits for in a call."""

    NONE = 0
    DEVICE = 1  # all that the process has launched on the step's device
    STREAM = 2
    EVENT = 3
    OWN_END = 4  # the operation launched by this very call
    OWN_STAGED = 5  # the same, until ``lead_ns`` after its start


class StepKind(IntEnum):
    """What an operation is; lower ones hide higher ones in the account."""

    KERNEL = 0
    GRAPH = 1
    COMM = 2
    COPY = 3
    SET = 4


class Engine(IntEnum):
    """What of the device an operation occupies."""

    COMPUTE = 0
    HTOD = 1
    DTOH = 2
    NONE = 3


class Operation(NamedTuple):
    """One device operation and its costs. ``share`` is in thousandths of the GPU. ``nodes``: (kernel, start in the
    graph, duration), ``captured``: what they were captured as. It arrives ``submit_ns + latency_ns`` after its call has
    begun (plus loading)."""

    kind: StepKind
    name: str
    ns: int
    submit_ns: int
    latency_ns: int
    switch_ns: int
    engine: Engine
    share: int = 0
    lead_ns: int = 0
    bytes: int = 0
    direction: str = ""
    memory: str = ""
    nodes: tuple[tuple[str, int, int], ...] = ()
    captured: tuple[Node, ...] = ()


class Step(NamedTuple):
    """One step of a thread. Own code takes ``host_ns``, that of a compiler ``init_ns``. A call ends
    ``max(start + host_ns, what it waits for + return_ns) + init_ns``; one that launches loads for ``init_ns`` first.

    ``excess_ns``: the part of host work beyond the dispatch limit (set after a first run). ``held``: a copy call
    that waits for its own copy. ``arrive_ns``: from the start of a record or stream wait until the stream knows.
    ``text``: the event, signal, OS call or range.
    """

    do: Do
    path: Path
    host_ns: int = 0
    call: str = ""
    wait: Wait = Wait.NONE
    return_ns: int = 0
    init_ns: int = 0
    excess_ns: int = 0
    held: bool = False
    arrive_ns: int = 0
    stream: int = 0
    device: int = 0
    text: str = ""
    domain: str | None = None
    operation: Operation | None = None


class ScriptThread(Struct, frozen=True):
    """The steps of one thread. ``number``: its place in its process. ``daemon``, ``traced``, ``unseen``: see
    ``Thread`` and ``Process``."""

    process: int
    number: int
    name: str
    delegate: bool
    steps: tuple[Step, ...]
    daemon: bool = False
    traced: bool = True
    unseen: bool = False


class Script(Struct, frozen=True):
    """All threads of all processes. ``program`` and ``machine`` are what it was made from."""

    program: Program
    machine: Machine
    threads: tuple[ScriptThread, ...]
    queue_limit: int | None  # None: no limit


def realise(program: Program, machine: Machine | None = None, seed: int = 0) -> Script:
    """Write a program out for a machine. The same seed draws the same jitter."""
    machine = machine or Machine()
    written = [
        ScriptThread(
            *(number, index, thread.name, thread.delegate),
            _write(process, index, machine, chance),
            thread.daemon,
            process.traced,
            thread.unseen,
        )
        for number, process in enumerate(program.processes)
        for index, thread in enumerate(process.threads)
        for chance in [random.Random(f"{seed} {number} {index}")]
    ]
    return Script(program, machine, tuple(written), machine.queue_limit)


def _write(process: Process, place: int, machine: Machine, chance: random.Random) -> tuple[Step, ...]:
    # Code is loaded once a process: by the main thread, as a simplification.
    writer = _Writer(machine, chance, set() if place == 0 else None, IDS_EACH * (place + 1))
    return tuple(writer.body(process.threads[place].body, (), 0))


class _Writer:
    """Unrolls one thread and draws its costs in order."""

    def __init__(self, machine: Machine, chance: random.Random, loaded: set[str] | None, made: int) -> None:
        self.machine = machine
        self.chance = chance
        self.loaded = loaded
        self.made = made  # the number of the next stream that is made
        self.streams: dict[int, int] = {}  # what the thread means by a number, where it made the stream

    def body(self, body: Sequence[Instruction], path: Path, turn: int) -> Iterator[Step]:
        for instruction in body:
            if isinstance(instruction, Loop):
                for inner in range(instruction.n):
                    yield from self.body(instruction.body, path, inner)
            elif isinstance(instruction, Range):
                inside = (*path, instruction.name.replace("{i}", "*"))
                name = instruction.name.replace("{i}", str(turn))
                cost = self.machine.range_ns
                yield Step(Do.PUSH, inside, cost, text=name, domain=instruction.domain)
                yield from self.body(instruction.body, inside, turn)
                yield Step(Do.POP, inside, cost, text=name, domain=instruction.domain)
            else:
                yield self.step(instruction, path, turn)

    def step(self, found: Instruction, path: Path, turn: int) -> Step:
        machine = self.machine
        match found:
            case Work(ns, spread):
                return Step(Do.WORK, path, self.host(ns, spread))
            case Compile(ns, spread):
                return Step(Do.WORK, path, init_ns=self.host(ns, spread))
            case Sleep(ns, on, spread):
                return Step(Do.SLEEP, path, self.varied(ns, machine.host_jitter, spread), text=on)
            case Signal(name):
                return Step(Do.SIGNAL, path, text=name)
            case Await(name):
                return Step(Do.AWAIT, path, text=name)
            case Call(ns, name):
                return Step(Do.CALL, path, self.host(ns), name)
            case Init(ns, call):
                return Step(Do.CALL, path, call=call, init_ns=self.host(ns))
            case Alloc(ns, waits, call, device):
                wait = Wait.DEVICE if waits else Wait.NONE
                return Step(Do.CALL, path, call=call, wait=wait, init_ns=self.host(ns), device=device)
            case NewStream(stream):
                self.streams[stream] = self.made
                self.made += 1
                return Step(Do.CALL, path, self.host(machine.event_call_ns), "cudaStreamCreate")
            case Sync():
                return self.sync(found, path, turn)
            case Record():
                return self.mark(found, path, turn, Do.RECORD, "cudaEventRecord")
            case WaitEvent():
                return self.mark(found, path, turn, Do.WAIT_EVENT, "cudaStreamWaitEvent")
            case Launch() | GraphLaunch() | Copy() | Memset():
                return self.launch(found, path)
        raise TypeError(f"{found!r} is not an instruction")

    def sync(self, found: Sync, path: Path, turn: int) -> Step:
        wait = {"device": Wait.DEVICE, "stream": Wait.STREAM, "event": Wait.EVENT}[found.what]
        return Step(
            Do.CALL,
            path,
            self.host(self.machine.sync_call_ns),
            f"cuda{found.what.capitalize()}Synchronize",
            wait=wait,
            return_ns=self.host(self.machine.sync_return_ns),
            stream=self.streams.get(found.stream, found.stream),
            device=found.device,
            text=_in_turn(found.event, turn),
        )

    def mark(self, found: Record | WaitEvent, path: Path, turn: int, do: Do, call: str) -> Step:
        host = self.host(self.machine.event_call_ns)
        arrive = round(host * self.machine.submit_point) + self.device(self.machine.launch_latency_ns)
        stream, event = self.streams.get(found.stream, found.stream), _in_turn(found.event, turn)
        return Step(do, path, host, call, arrive_ns=arrive, stream=stream, device=found.device, text=event)

    def copy_call(self, found: Copy, wait: Wait) -> tuple[str, int]:
        """The call that copies, and how long it takes the host."""
        if found.memory == "managed":
            return PAGE_FAULT, 0
        is_staged = not found.blocking and (found.memory, found.direction, wait) == ("pageable", "HtoD", Wait.NONE)
        staging = round(found.bytes / self.machine.staging_bytes_per_ns) if is_staged else 0
        return "cudaMemcpy" if found.blocking else "cudaMemcpyAsync", self.machine.copy_call_ns + staging

    def launch(self, found: Launch | GraphLaunch | Copy | Memset, path: Path) -> Step:
        machine = self.machine
        wait, init, is_back = Wait.NONE, 0, 0
        if isinstance(found, Launch):
            call, cost = "cudaLaunchKernel", machine.launch_call_ns
            if found.load_ns and self.loaded is not None and found.kernel not in self.loaded:
                self.loaded.add(found.kernel)
                init = self.host(found.load_ns)
        elif isinstance(found, GraphLaunch):
            call, cost = "cudaGraphLaunch", machine.graph_call_ns
        elif isinstance(found, Memset):
            call, cost = "cudaMemsetAsync", machine.memset_call_ns
        else:
            wait = self.copy_wait(found)
            call, cost = self.copy_call(found, wait)
            is_back = machine.sync_return_ns if wait == Wait.OWN_END and call else 0
        host = self.host(cost)
        return Step(
            Do.LAUNCH,
            path,
            host,
            call,
            wait,
            self.host(is_back) if is_back else 0,
            init,
            held=wait != Wait.NONE,
            stream=self.streams.get(found.stream, found.stream),
            device=found.device,
            operation=self.operation(found, round(host * machine.submit_point)),
        )

    def copy_wait(self, copy: Copy) -> Wait:
        if copy.direction == "DtoD":
            return Wait.NONE  # cudaMemcpy between device memory does not wait either
        if copy.blocking or copy.memory == "managed":
            return Wait.OWN_END
        if copy.memory != "pageable":
            return Wait.NONE
        if copy.direction == "DtoH":
            return Wait.OWN_END
        return Wait.OWN_STAGED if copy.bytes > self.machine.staging_bytes else Wait.NONE

    def operation(self, found: Launch | GraphLaunch | Copy | Memset, submit_ns: int) -> Operation:
        machine = self.machine
        latency, switch = self.device(machine.launch_latency_ns), self.device(machine.switch_ns)
        times = (submit_ns, latency, switch)
        if isinstance(found, Launch):
            kind = StepKind.COMM if found.comm else StepKind.KERNEL
            ns = self.device(found.ns, found.spread)
            return Operation(kind, found.kernel, ns, *times, Engine.COMPUTE, round(found.share * 1000))
        if isinstance(found, GraphLaunch):
            nodes, at = [], 0
            for node in found.nodes:
                length = self.device(node.ns)
                nodes.append((node.kernel, at, length))
                at += length + machine.graph_switch_ns
            ns, share = at - machine.graph_switch_ns, round(found.share * 1000)
            return Operation(
                StepKind.GRAPH,
                "graph",
                ns,
                *times,
                Engine.COMPUTE,
                share,
                nodes=tuple(nodes),
                captured=tuple(found.nodes),
            )
        if isinstance(found, Memset):
            ns = self.device(machine.copy_ns(found.bytes, "device"))
            return Operation(StepKind.SET, "memset", ns, *times, Engine.NONE, bytes=found.bytes)
        ns = self.device(machine.copy_ns(found.bytes, found.memory))
        left = max(found.bytes - machine.staging_bytes, 0) / found.bytes if found.bytes else 0
        engine = {"HtoD": Engine.HTOD, "DtoH": Engine.DTOH, "DtoD": Engine.NONE}[found.direction]
        return Operation(
            *(StepKind.COPY, "memcpy", ns, *times, engine, 0, round(ns * left)),
            *(found.bytes, found.direction, found.memory),
        )

    def host(self, ns: int, spread: float = 0.0) -> int:
        drawn = self.varied(ns, self.machine.host_jitter, spread)
        if self.machine.hiccup_chance and ns and self.chance.random() < self.machine.hiccup_chance:
            drawn += round(self.chance.expovariate(1.0) * self.machine.hiccup_ns)
        return drawn

    def device(self, ns: int, spread: float = 0.0) -> int:
        return self.varied(ns, self.machine.device_jitter, spread)

    def varied(self, ns: int, jitter: float, spread: float) -> int:
        sigma = (jitter * jitter + spread * spread) ** 0.5
        # The factor's mean is 1, so that jitter changes no program's size.
        return round(ns * self.chance.lognormvariate(-sigma * sigma / 2, sigma)) if sigma and ns else ns


def _in_turn(event: str, turn: int) -> str:
    """The event that a name means in a turn of a loop: ``{i%3}`` is the turn by three."""
    return re.sub(r"\{i%(\d+)\}", lambda slots: str(turn % int(slots[1])), event)


# How operations that are on one device at a time share it.

WHOLE_GPU = 1000  # thousandths


class Task:
    """An operation or an event's record on its way: what it waits for, and who waits for it."""

    __slots__ = ("after", "due", "end", "key", "pending", "place", "ready", "spec", "staged", "start", "waiting")

    def __init__(self, spec: Operation | None, key: tuple[int, int, int], place: tuple[int, int], ready: int) -> None:
        self.spec = spec
        self.key = key  # process, device, stream
        self.place = place
        self.ready = ready  # not before
        self.pending = 0
        self.start = -1
        self.end = -1
        self.after: list[tuple[Task, int]] = []  # who needs this one, and how long after its end
        self.waiting: list[object] = []  # hosts
        self.staged: object | None = None
        self.due = -1  # when it ends, as things are now


class DeviceEvents(Protocol):
    """Who is told what happens on a device."""

    def started(self, task: Task, time: int) -> None:
        """A task has begun."""

    def ends(self, task: Task, time: int) -> None:
        """When it would end as things are now; a later word replaces an earlier one."""

    def later(self, time: int, action: Callable[[int], None]) -> None:
        """Call back at a time, with it."""


#: What a task needs room on: a kind of engine, and which of its parts.
Room = tuple[Engine, int]


class SharedDevice:
    """One device. Operations get room in the order in which they become ready: none overtakes one that does not fit."""

    def __init__(self, machine: Machine, hears: DeviceEvents) -> None:
        self.machine, self.hears = machine, hears
        self.free: dict[Room, int] = {}
        self.queue: dict[Room, deque[Task]] = {}

    def add(self, task: Task, time: int) -> None:
        """A task is ready: start it, or let it queue for room."""
        room = self.room_for(task)
        if room[0] == Engine.NONE:
            self.start(task, time)
            return
        self.queue.setdefault(room, deque()).append(task)
        self.fill(room, time)

    def remove(self, task: Task, time: int) -> None:
        """A task has ended: its room is free."""
        room = self.room_for(task)
        if room[0] != Engine.NONE:
            self.free[room] += need(task)
            self.fill(room, time)

    def room_for(self, task: Task) -> Room:
        """What a task needs."""
        assert task.spec is not None
        return task.spec.engine, 0

    def fill(self, room: Room, time: int) -> None:
        """Start what fits, first come, first served."""
        queue = self.queue.get(room)
        whole = {Engine.COMPUTE: WHOLE_GPU}.get(room[0], self.machine.copy_engines)
        while queue and self.free.setdefault(room, whole) >= need(queue[0]):
            task = queue.popleft()
            self.free[room] -= need(task)
            self.start(task, time)

    def start(self, task: Task, time: int) -> None:
        """It begins, and lasts as long as it lasts."""
        assert task.spec is not None
        task.start = time
        self.hears.started(task, time)
        task.due = time + task.spec.ns
        self.hears.ends(task, task.due)


def need(task: Task) -> int:
    """How much of its engine a task takes: of the GPU in thousandths, else one engine."""
    assert task.spec is not None
    return task.spec.share if task.spec.engine == Engine.COMPUTE else 1


# The event-driven machine: host threads and devices, one event after the other in the order of time.
#
# Nothing here looks ahead or sorts afterwards: a host thread runs until something else comes first, a device starts
# what is ready when there is room, and whoever waits is woken. Ties go to the device, then to whoever came first.

_DONE, _READY, _STAGED, _LATER, _RESUME = range(5)  # kinds of events, in the order of equal times


class DeadlockError(ValueError):
    """Threads wait for what never comes: the program is wrong."""


class Executed(Struct, frozen=True):
    """One operation as it ran: of which thread and step (indexes into the script), and when, in ns."""

    thread: int
    step: int
    start_ns: int
    end_ns: int
    spec: Operation


class Run(Struct, frozen=True):
    """What happened. ``start_ns[t][s]`` and ``end_ns[t][s]``: step ``s`` of thread ``t``. ``operations`` in the order
    in which they were launched. A daemon has done only as many steps as it has times."""

    script: Script
    start_ns: tuple[list[int], ...]
    end_ns: tuple[list[int], ...]
    operations: tuple[Executed, ...]


class _Host:
    """A thread: where it is and what it waits for."""

    __slots__ = ("at", "daemon", "ends", "held", "last", "next", "process", "starts", "steps", "waits")

    def __init__(self, at: int, thread: ScriptThread) -> None:
        self.at = at
        self.process = thread.process
        self.daemon = thread.daemon
        self.steps = thread.steps
        self.next = 0  # index of the step to begin, or of the one that waits
        self.starts = [0] * len(thread.steps)
        self.ends = [0] * len(thread.steps)
        self.waits = 0  # unfinished tasks
        self.held = False  # in a call that it has begun, by the driver
        self.last: int | None = None  # when a wait ended, for the step that waited


def simulate(script: Script) -> Run:
    """Run a script from time 0 until every thread is through and every device idle."""
    return _Simulation(script).run()


class _Simulation:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.heap: list[tuple[int, int, int, Task | _Host | Callable[[int], None]]] = []
        self.count = 0
        self.hosts = [_Host(number, thread) for number, thread in enumerate(script.threads)]
        self.devices: dict[int, SharedDevice] = {}
        self.tails: dict[tuple[int, int], dict[int, Task]] = {}  # (process, device) -> stream -> latest
        self.events: dict[tuple[int, str], Task] = {}
        self.signals: dict[tuple[int, str], int] = {}
        self.awaiting: dict[tuple[int, str], deque[_Host]] = {}
        self.queued: dict[tuple[int, int, int], int] = {}
        self.room: dict[tuple[int, int, int], deque[_Host]] = {}
        self.driver: dict[int, tuple[_Host, deque[_Host]]] = {}  # process -> who holds the driver, who waits for it
        self.launched: list[Task] = []
        self.lasting = sum(not thread.daemon for thread in script.threads)  # threads that are not through

    def run(self) -> Run:
        for host in self.hosts:
            self.push(0, _RESUME, host)
        heap = self.heap
        while heap:
            time, kind, _, who = heapq.heappop(heap)
            if isinstance(who, _Host):
                if self.lasting or not who.daemon:
                    self.advance(who, time)
            elif not isinstance(who, Task):
                who(time)
            elif kind == _DONE:
                if who.end < 0 and who.due == time:  # else it was told another end since
                    self.finish(who, time)
            elif kind == _READY:
                self.make_ready(who, time)
            elif isinstance(who.staged, _Host):
                self.wake(who.staged, time)
        self.check()
        operations = [
            Executed(*task.place, task.start, task.end, task.spec) for task in self.launched if task.spec is not None
        ]
        return Run(
            self.script,
            tuple(host.starts[: host.next] for host in self.hosts),
            tuple(host.ends[: host.next] for host in self.hosts),
            tuple(operations),
        )

    def push(self, time: int, kind: int, who: Task | _Host | Callable[[int], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (time, kind, self.count, who))

    def check(self) -> None:
        stuck = [host for host in self.hosts if host.next < len(host.steps) and not host.daemon]
        if stuck:
            where = ", ".join(f"thread {host.at} in {host.steps[host.next].text!r}" for host in stuck)
            raise DeadlockError(f"The program waits for signals that never come: {where}.")

    # Host

    def advance(self, host: _Host, time: int) -> None:
        """Run a thread's steps until it waits or something else comes first."""
        steps, heap = host.steps, self.heap
        while host.next < len(steps):
            step = steps[host.next]
            if host.last is None:
                host.starts[host.next], host.held = host.starts[host.next] if host.held else time, False
                end = self.begin(host, step, time)
                if end is None:
                    return  # whoever it waits for will wake it
            else:
                begun, host.last = host.starts[host.next], None
                end = self.end_of_wait(step, begun, time)
                self.release(host, end)
            host.ends[host.next] = time = end
            host.next += 1
            if heap and heap[0][0] <= time:
                self.push(time, _RESUME, host)
                return
        self.through(host)

    def through(self, host: _Host) -> None:
        """A thread has done its last step. Daemons end with the last thread that is none."""
        if host.next == len(host.steps) and not host.daemon:
            self.lasting -= 1

    def begin(self, host: _Host, step: Step, time: int) -> int | None:
        """Do a step that begins now; when it ends, or None: it waits."""
        do = step.do
        if do == Do.LAUNCH:
            return self.launch(host, step, time)
        if do == Do.CALL:
            if step.wait != Wait.NONE and self.wait_for(host, self.targets(host, step)):
                return None
            return time + step.host_ns + step.init_ns
        if do in (Do.RECORD, Do.WAIT_EVENT):
            self.mark(host, step, time)
        elif do == Do.SIGNAL:
            self.signal((host.process, step.text), time)
        elif do == Do.AWAIT:
            key = host.process, step.text
            if not self.signals.get(key):
                self.awaiting.setdefault(key, deque()).append(host)
                return None
            self.signals[key] -= 1
        return time + step.host_ns + step.init_ns

    def end_of_wait(self, step: Step, begun: int, done: int) -> int:
        """When a step ends whose wait was over at ``done``."""
        if step.do == Do.AWAIT:
            return done
        if step.do == Do.LAUNCH:
            return max(begun + step.init_ns + step.host_ns, done + step.return_ns)
        return max(begun + step.host_ns, done + step.return_ns) + step.init_ns

    def targets(self, host: _Host, step: Step) -> Iterable[Task]:
        tails = self.tails.get((host.process, step.device), {})
        if step.wait == Wait.DEVICE:
            return tails.values()
        target = self.events.get((host.process, step.text)) if step.wait == Wait.EVENT else tails.get(step.stream)
        return (target,) if target is not None else ()

    def wait_for(self, host: _Host, targets: Iterable[Task]) -> bool:
        for task in targets:
            if task.end < 0:
                task.waiting.append(host)
                host.waits += 1
        return host.waits > 0

    def wake(self, host: _Host, time: int) -> None:
        """What a thread waited for is over; its call returns a little later."""
        host.last = time
        self.push(time, _RESUME, host)

    def signal(self, key: tuple[int, str], time: int) -> None:
        if self.awaiting.get(key):
            host = self.awaiting[key].popleft()
            self.wake(host, time + self.script.machine.wake_ns)
        else:
            self.signals[key] = self.signals.get(key, 0) + 1

    # From host to device

    def launch(self, host: _Host, step: Step, time: int) -> int | None:
        """Hand an operation over. A full queue holds the call up before anything else."""
        key = host.process, step.device, step.stream
        if self.script.machine.driver_release_ns and step.operation and step.operation.kind == StepKind.COPY:
            holder = self.driver.get(host.process)
            if holder is not None:
                host.held = True
                holder[1].append(host)
                return None
            if step.wait != Wait.NONE:
                self.driver[host.process] = host, deque()
        limit = self.script.queue_limit
        if limit is not None and self.queued.get(key, 0) >= limit:
            self.room.setdefault(key, deque()).append(host)
            return None
        spec = step.operation
        assert spec is not None
        ready = time + step.init_ns + spec.submit_ns + spec.latency_ns
        task = Task(spec, key, (host.at, host.next), ready)
        self.queued[key] = self.queued.get(key, 0) + 1
        self.launched.append(task)
        self.enqueue(task, spec.switch_ns)
        if step.wait == Wait.OWN_END:
            task.waiting.append(host)
            host.waits += 1
            return None
        if step.wait == Wait.OWN_STAGED:
            task.staged = host
            return None
        return time + step.init_ns + step.host_ns

    def release(self, host: _Host, time: int) -> None:
        """Whoever held the driver returns from its call: those that waited for it go on a little later."""
        holder = self.driver.get(host.process)
        if holder is not None and holder[0] is host:
            del self.driver[host.process]
            for held in holder[1]:
                self.push(time + self.script.machine.driver_release_ns, _RESUME, held)

    def mark(self, host: _Host, step: Step, time: int) -> None:
        """Put an event's record, or a wait for one, into the stream."""
        key = host.process, step.device, step.stream
        task = Task(None, key, (host.at, host.next), time + step.arrive_ns)
        name = host.process, step.text
        if step.do == Do.RECORD:
            self.events[name] = task
        elif name in self.events:
            self.follow(task, self.events[name], 0)
        self.enqueue(task, 0)

    def enqueue(self, task: Task, lag: int) -> None:
        """Behind the stream's latest, and behind other streams where the legacy default stream says so."""
        process, device, stream = task.key
        tails = self.tails.setdefault((process, device), {})
        if self.script.machine.legacy_default_stream:
            before = tails.values() if stream == 0 else [tails[s] for s in (0, stream) if s in tails]
        else:
            before = [tails[stream]] if stream in tails else []
        for earlier in before:
            self.follow(task, earlier, lag)
        tails[stream] = task
        if not task.pending:
            self.push(task.ready, _READY, task)

    def follow(self, task: Task, earlier: Task, lag: int) -> None:
        if earlier.end >= 0:
            task.ready = max(task.ready, earlier.end + lag)
        else:
            earlier.after.append((task, lag))
            task.pending += 1

    # SharedDevice

    def make_ready(self, task: Task, time: int) -> None:
        """All that a task waited for is over."""
        if task.spec is None:
            self.finish(task, time)
        else:
            self.device(task).add(task, time)

    def device(self, task: Task) -> SharedDevice:
        number = task.key[1]
        if number not in self.devices:
            self.devices[number] = self.script.machine.device(self)
        return self.devices[number]

    def started(self, task: Task, time: int) -> None:
        if task.staged is not None and task.spec is not None:
            self.push(time + task.spec.lead_ns, _STAGED, task)

    def ends(self, task: Task, time: int) -> None:
        self.push(time, _DONE, task)

    def later(self, time: int, action: Callable[[int], None]) -> None:
        self.push(time, _LATER, action)

    def finish(self, task: Task, time: int) -> None:
        task.end = time
        if task.spec is not None:
            self.leave(task, time)
        for later, lag in task.after:
            later.ready = max(later.ready, time + lag)
            later.pending -= 1
            if not later.pending:
                self.push(max(later.ready, time), _READY, later)
        task.after.clear()
        for host in task.waiting:
            assert isinstance(host, _Host)
            host.waits -= 1
            if not host.waits:
                self.wake(host, time)
        task.waiting.clear()

    def leave(self, task: Task, time: int) -> None:
        """Give back its room on the device and its place in the queue."""
        self.device(task).remove(task, time)
        self.queued[task.key] -= 1
        if self.room.get(task.key):
            host = self.room[task.key].popleft()
            end = self.launch(host, host.steps[host.next], time)
            if end is not None:
                host.ends[host.next] = end
                host.next += 1
                self.push(end, _RESUME, host)
