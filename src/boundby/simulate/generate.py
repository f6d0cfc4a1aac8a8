"""Random programs, the same for the same seed: textbook patterns, and above all mixtures of parts of any size."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from boundby.simulate.case import Case
from boundby.simulate.machine import Machine
from boundby.simulate.patterns import NCCL, PATTERNS, log_uniform
from boundby.simulate.program import (
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
    threads,
    walk,
)

#: A part of a mixture takes between these times.
LEAST_PART_NS, MOST_PART_NS = 10 * US, 3 * MS
#: About so many instructions a program; steps are repeated until there are as many.
INSTRUCTION_BUDGET = 1_500
LEAST_STEPS, MOST_STEPS = 4, 40


def generate(seed: int) -> Case:
    """One random program. Of four, three are mixtures; the rest are patterns, healthy ones among them."""
    chance = random.Random(f"boundby {seed}")
    if chance.random() < 0.25:
        name = chance.choice(sorted(PATTERNS))
        pattern = PATTERNS[name]
        made = pattern.make(chance, chance.randint(LEAST_STEPS, 12))
        machine = _machine(chance, is_exact=chance.random() < 0.3)
        return Case(name, made, machine, seed, pattern.healthy, is_plain(made, machine))
    return _mixture(chance, seed)


def is_plain(made: Program, machine: Machine) -> bool:
    """One thread, one stream, no chance."""
    members = [thread for process in made.processes for thread in process.threads]
    found = [one for thread in members for one in walk(thread.body)]
    streams = {(one.device, one.stream) for one in found if isinstance(one, Launch | GraphLaunch | Copy | Memset)}
    spread = any(getattr(one, "spread", 0) for one in found)
    exact = not (machine.host_jitter or machine.device_jitter or machine.hiccup_chance or machine.clock_noise_ns)
    return len(members) == 1 and len(streams) <= 1 and exact and not spread


def _machine(chance: random.Random, *, is_exact: bool) -> Machine:
    quiet = {"host_jitter": 0.0, "device_jitter": 0.0, "hiccup_chance": 0.0, "clock_noise_ns": 0}
    noisy = {
        "host_jitter": chance.choice([0.02, 0.05, 0.2]),
        "device_jitter": chance.choice([0.0, 0.01, 0.05]),
        "hiccup_chance": chance.choice([0.0, 0.0, 0.0, 0.005]),
        "clock_noise_ns": chance.choice([0, 0, 200]),
    }
    return Machine(
        launch_call_ns=chance.choice([3_000, 5_000, 8_000]),
        launch_latency_ns=chance.choice([2_000, 3_000, 5_000]),
        sync_return_ns=chance.choice([3_000, 5_000, 10_000]),
        sync_spins=chance.random() < 0.8,
        legacy_default_stream=chance.random() < 0.2,
        **(quiet if is_exact else noisy),  # type: ignore[arg-type]
    )


@dataclass
class _Layout:
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


def _mixture(chance: random.Random, seed: int) -> Case:
    is_exact = chance.random() < 0.4
    machine = _machine(chance, is_exact=is_exact)
    shape = chance.choices(["one", "autograd", "feeding", "both"], [5, 2, 2, 1])[0]
    layout = _Layout(chance, chance.choices([1, 2, 3], [6, 3, 1])[0], chance.choice([1.0, 1.0, 0.5, 0.3]))
    kinds = chance.choices(sorted(_PARTS), [_PARTS[kind][1] for kind in sorted(_PARTS)], k=chance.randint(2, 6))
    parts = [_part(kind, layout, chance) for kind in kinds]
    if not any(isinstance(one, Launch | GraphLaunch) for part in parts for one in walk([part])):
        parts.append(_part("compute", layout, chance))
    body = _nested(parts, chance, depth=chance.randint(0, 3))
    if chance.random() < 0.4:
        body = [*body, Sync("device")]
    made = _laid_out(shape, body, chance, layout, parts)
    label = "mixture " + "+".join(sorted(set(kinds))) + f" {shape} {layout.streams} streams"
    return Case(label, made, machine, seed, False, is_plain(made, machine))


def _laid_out(
    shape: str, body: Sequence[Instruction], chance: random.Random, layout: _Layout, parts: Sequence[Instruction]
) -> Program:
    """The step's body in a loop, with a helper that runs some of it, and a feeder in front."""
    helpers: list[Thread] = []
    feeder: list[Instruction] = []
    if shape in ("feeding", "both"):
        feeder = _feeder(chance, layout)
        body = [Range("data", [Await("batch"), Signal("room")]), *body]
    turn: list[Instruction] = []
    if shape in ("autograd", "both"):
        turn = _nested([_part(kind, layout, chance) for kind in ("compute", "api")], chance, depth=1)
        body = [*body, Range("backward", [Signal("backward"), Await("backward done")])]
    size = sum(_count(part) for part in (*body, *turn, *feeder))
    steps = max(LEAST_STEPS, min(MOST_STEPS, INSTRUCTION_BUDGET // max(size, 1)))
    step = [Range("step {i}", body)] if chance.random() < 0.9 else list(body)
    if turn:
        helper = Loop(steps, [Await("backward"), *turn, Signal("backward done")])
        helpers.append(Thread((helper,), "pt_autograd_0", delegate=True))
    if feeder:
        helpers.append(Thread((Loop(steps, [Await("room"), *feeder, Signal("batch")]),), "feeder"))
    first: list[Instruction] = [Signal("room")] * (chance.randint(1, 3) if feeder else 0)
    if chance.random() < 0.5:
        first.append(Launch("warm_up", 5 * US))
    main = Thread((*first, Loop(steps, step), Sync()))
    return threads(main, *helpers, name=f"mixture of {len(parts)} parts")


def _feeder(chance: random.Random, layout: _Layout) -> list[Instruction]:
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


def _part(kind: str, layout: _Layout, chance: random.Random) -> Instruction:
    """One part in a range of its name, with whatever moves it to its stream."""
    size = log_uniform(chance, LEAST_PART_NS, MOST_PART_NS)
    return Range(kind, [*layout.move(), *_PARTS[kind][0](size, layout)])


Maker = Callable[[int, _Layout], "list[Instruction]"]


def _compute(size: int, at: _Layout) -> list[Instruction]:
    kernels = at.chance.randint(1, 6)
    work = at.chance.choice([0, 5, 20]) * US
    return [
        Loop(kernels, [Launch("gemm", size // kernels, at.stream, share=at.share), *([Work(work)] if work else [])])
    ]


def _api(size: int, at: _Layout) -> list[Instruction]:
    work = at.chance.choice([0, 3, 10, 30]) * US
    turns = max(2, min(100, size // (6 * US + work)))
    kernel = Launch("elementwise", log_uniform(at.chance, 1.5 * US, 6 * US), at.stream, share=at.share)
    return [Loop(turns, [kernel, *([Call()] if at.chance.random() < 0.2 else []), *([Work(work)] if work else [])])]


def _sync(size: int, at: _Layout) -> list[Instruction]:
    kernel = Launch("nonzero", min(size, 200 * US), at.stream)
    waits: list[list[Instruction]] = [
        item(stream=at.stream),
        item(stream=at.stream, memory="pageable"),
        [Copy(8, "DtoH", "pageable", blocking=True, stream=at.stream)],
        [Sync("stream", at.stream)],
        [Record("done", at.stream), Sync("event", event="done")],
    ]
    return [Loop(at.chance.randint(1, 4), [kernel, *at.chance.choice(waits), Work(at.chance.randint(5, 60) * US)])]


def _cpu(size: int, at: _Layout) -> list[Instruction]:
    return [Work(size, at.chance.choice([0.0, 0.0, 0.1]))]


def _blocked(size: int, at: _Layout) -> list[Instruction]:
    return [Sleep(size, at.chance.choice(["read", "poll", "recv", "futex"]), at.chance.choice([0.0, 0.0, 0.1]))]


def _copy(size: int, at: _Layout) -> list[Instruction]:
    return [Copy(size * 25, at.chance.choice(["HtoD", "DtoH"]), stream=at.stream)]


def _pageable(size: int, at: _Layout) -> list[Instruction]:
    memory: Memory = "pageable"
    is_blocking = at.chance.random() < 0.5
    return [Copy(size * 6, at.chance.choice(["HtoD", "DtoH"]), memory, is_blocking, at.stream)]


def _comm(size: int, at: _Layout) -> list[Instruction]:
    return [Launch(NCCL, size, at.stream, comm=True, share=at.chance.choice([1.0, 0.2]))]


def _init(size: int, at: _Layout) -> list[Instruction]:
    waits, call = at.chance.random() < 0.5, at.chance.choice(["cudaMalloc", "cudaFree"])
    return [Alloc(size, waits or call == "cudaFree", call)]  # cudaFree always waits for the device


def _graph(size: int, at: _Layout) -> list[Instruction]:
    nodes = max(2, min(40, size // (10 * US)))
    return [GraphLaunch(tuple(Node(f"fused_{number}", size // nodes) for number in range(nodes)), at.stream)]


def _set(size: int, at: _Layout) -> list[Instruction]:
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
