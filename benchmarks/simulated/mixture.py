"""Random mixtures of parts of any size: what a program does in a step, before it is laid out in loops and threads."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from boundby.simulate.instructions import (
    MS,
    US,
    Alloc,
    Await,
    Call,
    Copy,
    GraphLaunch,
    Instruction,
    Launch,
    Loop,
    Memory,
    Memset,
    Node,
    Process,
    Program,
    Range,
    Record,
    Signal,
    Sleep,
    Sync,
    Thread,
    WaitEvent,
    Work,
    item,
    walk,
)
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import Capture
from boundby.simulate.patterns import NCCL, log_uniform

#: A part of a mixture takes between these times.
LEAST_PART_NS, MOST_PART_NS = 10 * US, 3 * MS
#: About so many instructions a program; steps are repeated until there are as many.
INSTRUCTION_BUDGET = 1_500
LEAST_STEPS, MOST_STEPS = 4, 40


#: What a thread does before it wakes another: takes a lock, puts something into a queue.
_HAND_OVER = Work(5 * US)


@dataclass
class Layout:
    """Where the parts of a mixture go. ``stream``: where the part before this one launched."""

    chance: random.Random
    streams: int
    share: float
    stream: int = 0
    used: int = field(default=0)

    def move(self) -> list[Instruction]:
        """Now and then to another stream, which mostly waits for the one before."""
        if self.streams == 1 or self.chance.random() < 0.5:
            return []
        before, self.stream = self.stream, self.chance.randrange(self.streams)
        if before == self.stream or self.chance.random() < 0.3:
            return []
        self.used += 1
        return [Record(f"event_{self.used}", before), WaitEvent(f"event_{self.used}", self.stream)]


@dataclass
class Draft:
    """A program before it is laid out: what the main thread does at first (``first``) and in every step (``body``),
    what helper threads do in every step, threads that run beside it and processes of others. What makes programs
    untidy changes it in place (``untidy.FEATURES``)."""

    chance: random.Random
    machine: Machine
    layout: Layout
    label: str
    body: list[Instruction]
    first: list[Instruction] = field(default_factory=list)
    helpers: list[Helper] = field(default_factory=list)
    daemons: list[Thread] = field(default_factory=list)
    neighbours: list[Process] = field(default_factory=list)
    capture: Capture = field(default_factory=Capture)

    def size(self) -> int:
        """A random length of a part."""
        return log_uniform(self.chance, LEAST_PART_NS, MOST_PART_NS)

    def put(self, *body: Instruction, name: str) -> None:
        """Another part of the step, somewhere in it."""
        self.body.insert(self.chance.randint(0, len(self.body)), Range(name, body))

    def finished(self) -> Program:
        """The body in a loop, with helpers that take part in every turn of it."""
        size = sum(_count(part) for part in (*self.body, *(one for helper in self.helpers for one in helper.body)))
        steps = max(LEAST_STEPS, min(MOST_STEPS, INSTRUCTION_BUDGET // max(size, 1)))
        step = [Range("step {i}", self.body)] if self.chance.random() < 0.9 else self.body
        helpers = [Thread((Loop(steps, one.body),), one.name, one.delegate, unseen=one.unseen) for one in self.helpers]
        first = [*self.first, *([Launch("warm_up", 5 * US)] if self.chance.random() < 0.5 else [])]
        main = Thread((*first, Loop(steps, step), Sync()))
        mine = Process((main, *helpers, *self.daemons))
        return Program((mine, *self.neighbours), self.label)


class Helper(Struct, frozen=True):
    """A thread that does this in every step. ``delegate``, ``unseen``: see ``Thread``."""

    name: str
    body: Sequence[Instruction]
    delegate: bool = False
    unseen: bool = False


def mixture(chance: random.Random, machine: Machine) -> Draft:
    """Two to six parts in nested ranges, on one to three streams, some of them perhaps on threads of their own."""
    shape = chance.choices(["one", "autograd", "feeding", "both"], [5, 2, 2, 1])[0]
    layout = Layout(chance, chance.choices([1, 2, 3], [6, 3, 1])[0], chance.choice([1.0, 1.0, 0.5, 0.3]))
    kinds = chance.choices(sorted(_PARTS), [_PARTS[kind][1] for kind in sorted(_PARTS)], k=chance.randint(2, 6))
    parts = [part(kind, layout, chance) for kind in kinds]
    if not any(isinstance(one, Launch | GraphLaunch) for made in parts for one in walk([made])):
        parts.append(part("compute", layout, chance))
    body = _nested(parts, chance, depth=chance.randint(0, 3))
    if chance.random() < 0.4:
        body = [*body, Sync("device")]
    label = "mixture " + "+".join(sorted(set(kinds))) + f" {shape} {layout.streams} streams"
    draft = Draft(chance, machine, layout, label, body)
    feeder = _feeder(chance, layout) if shape in ("feeding", "both") else []
    if shape in ("autograd", "both"):
        delegate(draft, _nested([part(kind, layout, chance) for kind in ("compute", "api")], chance, depth=1))
    if feeder:
        feed(draft, [Helper("feeder", feeder)], "batch", "data", ahead=chance.randint(1, 3))
    return draft


def delegate(draft: Draft, body: Sequence[Instruction]) -> None:
    """A thread like autograd's does this in the end of every step, while the main thread sleeps."""
    draft.body.append(Range("backward", [Signal("backward"), Await("backward done")]))
    turn = [Await("backward"), *body, _HAND_OVER, Signal("backward done")]
    draft.helpers.append(Helper("pt_autograd_0", turn, delegate=True))


def feed(draft: Draft, stages: Sequence[Helper], name: str, region: str, *taken: Instruction, ahead: int) -> None:
    """Threads that hand each other work, the last of them to the step, which begins with it: each ``ahead`` steps
    ahead. ``taken``: what the step does with it first."""
    for number, stage in enumerate(stages):
        room, done = (f"{name} room {number}", f"{name} {number}")
        before: list[Instruction] = (
            [Await(f"{name} {number - 1}"), Signal(f"{name} room {number - 1}")] if number else []
        )
        draft.helpers.append(Helper(stage.name, [*before, Await(room), *stage.body, _HAND_OVER, Signal(done)]))
        draft.first += [Signal(room)] * ahead
    last = len(stages) - 1
    draft.body.insert(0, Range(region, [Await(f"{name} {last}"), *taken, Signal(f"{name} room {last}")]))


def _feeder(chance: random.Random, layout: Layout) -> list[Instruction]:
    size = log_uniform(chance, LEAST_PART_NS, MOST_PART_NS)
    load: Instruction = Sleep(size, "read") if chance.random() < 0.5 else Work(size)
    if chance.random() < 0.5:
        return [load]
    return [load, Copy(log_uniform(chance, 1e4, 1e7), "HtoD", stream=layout.streams)]


def _count(instruction: Instruction) -> int:
    if isinstance(instruction, Loop):
        return instruction.n * sum(map(_count, instruction.body))
    return 2 + sum(map(_count, instruction.body)) if isinstance(instruction, Range) else 1


def _nested(parts: Sequence[Instruction], chance: random.Random, depth: int) -> list[Instruction]:
    """Neighbouring parts in common ranges, to this depth."""
    if depth == 0 or len(parts) < 2:
        return list(parts)
    middle = chance.randint(1, len(parts) - 1)
    halves = [_nested(half, chance, depth - 1) for half in (parts[:middle], parts[middle:])]
    return [Range(f"phase_{depth}{letter}", half) for letter, half in zip("ab", halves, strict=True)]


def part(kind: str, layout: Layout, chance: random.Random) -> Instruction:
    """One part in a range of its name, with whatever moves it to its stream."""
    size = log_uniform(chance, LEAST_PART_NS, MOST_PART_NS)
    return Range(kind, [*layout.move(), *_PARTS[kind][0](size, layout)])


Maker = Callable[[int, Layout], "list[Instruction]"]


def _compute(size: int, at: Layout) -> list[Instruction]:
    kernels = at.chance.randint(1, 6)
    work = at.chance.choice([0, 5, 20]) * US
    return [
        Loop(kernels, [Launch("gemm", size // kernels, at.stream, share=at.share), *([Work(work)] if work else [])])
    ]


def _api(size: int, at: Layout) -> list[Instruction]:
    work = at.chance.choice([0, 3, 10, 30]) * US
    turns = max(2, min(100, size // (6 * US + work)))
    kernel = Launch("elementwise", log_uniform(at.chance, 1.5 * US, 6 * US), at.stream, share=at.share)
    return [Loop(turns, [kernel, *([Call()] if at.chance.random() < 0.2 else []), *([Work(work)] if work else [])])]


def _sync(size: int, at: Layout) -> list[Instruction]:
    kernel = Launch("nonzero", min(size, 200 * US), at.stream)
    waits: list[list[Instruction]] = [
        item(stream=at.stream),
        item(stream=at.stream, memory="pageable"),
        [Copy(8, "DtoH", "pageable", blocking=True, stream=at.stream)],
        [Sync("stream", at.stream)],
        [Record("done", at.stream), Sync("event", event="done")],
    ]
    return [Loop(at.chance.randint(1, 4), [kernel, *at.chance.choice(waits), Work(at.chance.randint(5, 60) * US)])]


def _cpu(size: int, at: Layout) -> list[Instruction]:
    return [Work(size, at.chance.choice([0.0, 0.0, 0.1]))]


def _blocked(size: int, at: Layout) -> list[Instruction]:
    return [Sleep(size, at.chance.choice(["read", "poll", "recv", "futex"]), at.chance.choice([0.0, 0.0, 0.1]))]


def _copy(size: int, at: Layout) -> list[Instruction]:
    return [Copy(size * 25, at.chance.choice(["HtoD", "DtoH"]), stream=at.stream)]


def _pageable(size: int, at: Layout) -> list[Instruction]:
    memory: Memory = "pageable"
    is_blocking = at.chance.random() < 0.5
    return [Copy(size * 6, at.chance.choice(["HtoD", "DtoH"]), memory, is_blocking, at.stream)]


def _comm(size: int, at: Layout) -> list[Instruction]:
    return [Launch(NCCL, size, at.stream, comm=True, share=at.chance.choice([1.0, 0.2]))]


def _init(size: int, at: Layout) -> list[Instruction]:
    waits, call = at.chance.random() < 0.5, at.chance.choice(["cudaMalloc", "cudaFree"])
    return [Alloc(size, waits or call == "cudaFree", call)]  # cudaFree always waits for the device


def _graph(size: int, at: Layout) -> list[Instruction]:
    nodes = max(2, min(40, size // (10 * US)))
    return [GraphLaunch(tuple(Node(f"fused_{number}", size // nodes) for number in range(nodes)), at.stream)]


def _set(size: int, at: Layout) -> list[Instruction]:
    return [Memset(size * 100, at.stream)]


#: kind -> its maker, and how often it is drawn
_PARTS: dict[str, tuple[Maker, int]] = {
    "compute": (_compute, 8),
    "api": (_api, 5),
    "sync": (_sync, 5),
    "cpu": (_cpu, 5),
    "blocked": (_blocked, 3),
    "copy": (_copy, 3),
    "pageable": (_pageable, 2),
    "comm": (_comm, 3),
    "init": (_init, 2),
    "graph": (_graph, 2),
    "set": (_set, 1),
}
