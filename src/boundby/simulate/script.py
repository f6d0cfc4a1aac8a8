"""A program written out: loops unrolled, every cost on this machine decided (jitter drawn), nothing run yet.

A counterfactual is the same script with some costs changed, so that chance plays the same in both.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from boundby.simulate.machine import Machine
from boundby.simulate.program import (
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

Path = tuple[str, ...]


#: Streams that a thread makes while it runs are numbered from here, times its place in its process.
_FIRST_MADE = 1_000


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


class Kind(IntEnum):
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
    graph, duration). It arrives ``submit_ns + latency_ns`` after its call has begun (plus loading)."""

    kind: Kind
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
            *(number, place, thread.name, thread.delegate),
            _write(process, place, machine, chance),
            thread.daemon,
            process.traced,
            thread.unseen,
        )
        for number, process in enumerate(program.processes)
        for place, thread in enumerate(process.threads)
        for chance in [random.Random(f"{seed} {number} {place}")]
    ]
    return Script(program, machine, tuple(written), machine.queue_limit)


def _write(process: Process, place: int, machine: Machine, chance: random.Random) -> tuple[Step, ...]:
    # Code is loaded once a process: by the main thread, as a simplification.
    writer = _Writer(machine, chance, set() if place == 0 else None, _FIRST_MADE * (place + 1))
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
        for found in body:
            if isinstance(found, Loop):
                for inner in range(found.n):
                    yield from self.body(found.body, path, inner)
            elif isinstance(found, Range):
                inside = (*path, found.name.replace("{i}", "*"))
                name = found.name.replace("{i}", str(turn))
                cost = self.machine.range_ns
                yield Step(Do.PUSH, inside, cost, text=name, domain=found.domain)
                yield from self.body(found.body, inside, turn)
                yield Step(Do.POP, inside, cost, text=name, domain=found.domain)
            else:
                yield self.step(found, path, turn)

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
            call, cost = "cudaMemcpy" if found.blocking else "cudaMemcpyAsync", machine.copy_call_ns
            if found.memory == "managed":
                call, cost = PAGE_FAULT, 0
            wait = self.copy_wait(found)
            is_back = machine.sync_return_ns if wait == Wait.OWN_END and call else 0
            if not found.blocking and found.memory == "pageable" and found.direction == "HtoD" and wait == Wait.NONE:
                cost += round(found.bytes / machine.staging_bytes_per_ns)
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
            kind = Kind.COMM if found.comm else Kind.KERNEL
            ns = self.device(found.ns, found.spread)
            return Operation(kind, found.kernel, ns, *times, Engine.COMPUTE, round(found.share * 1000))
        if isinstance(found, GraphLaunch):
            nodes, at = [], 0
            for node in found.nodes:
                length = self.device(node.ns)
                nodes.append((node.kernel, at, length))
                at += length + machine.graph_switch_ns
            ns, share = at - machine.graph_switch_ns, round(found.share * 1000)
            return Operation(Kind.GRAPH, "graph", ns, *times, Engine.COMPUTE, share, nodes=tuple(nodes))
        if isinstance(found, Memset):
            ns = self.device(machine.copy_ns(found.bytes, "device"))
            return Operation(Kind.SET, "memset", ns, *times, Engine.NONE, bytes=found.bytes)
        ns = self.device(machine.copy_ns(found.bytes, found.memory))
        left = max(found.bytes - machine.staging_bytes, 0) / found.bytes if found.bytes else 0
        engine = {"HtoD": Engine.HTOD, "DtoH": Engine.DTOH, "DtoD": Engine.NONE}[found.direction]
        return Operation(
            *(Kind.COPY, "memcpy", ns, *times, engine, 0, round(ns * left)),
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
