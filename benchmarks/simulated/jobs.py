"""Jobs of many ranks on a modelled machine, with known answers: who holds up whom, why, and what that costs.

Each rank is a host thread that launches onto a compute stream and onto one stream for each kind of collective.
A collective begins on a rank when its turn on its stream has come and what was launched before it has ended, and ends
on all
ranks together, its transfer after the last has come. Chance is drawn apart from what is planted, so that the same job
without a plant is the true counterfactual.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from benchmarks.simulated.full_export import Export
from boundby.simulate.nsys_export import FIRST_PID, GPU_FACTS, GPU_NAME, PRODUCT

US, MS = 1_000, 1_000_000
LAUNCH_NS, LATENCY_NS, RETURN_NS = 4 * US, 3 * US, 5 * US
COMPUTE_STREAM = 7
#: Exports hold no negative times: their clocks begin so much earlier.
_CLOCK_ZERO_NS = 1_000 * MS
#: Streams of the collectives of each kind of group, as a framework makes one for each process group.
_GROUPS = ("dp", "tp", "pp_down", "pp_up", "world", "embedding", "dp2", "ep", "wrap_down", "wrap_up")
STREAMS = {name: 20 + 4 * place for place, name in enumerate(_GROUPS)}

#: In this share of the steps, and in two at the least, a rank that pauses does so.
PAUSED_SHARE = 0.2

PlantKind = Literal[
    "slow_device",
    "slow_machine",
    "slow_input",
    "host_pauses",
    "uneven_stage",
    "uneven_batch",
    "sequence_lengths",
    "hot_expert",
    "slow_link",
]
#: The cause, in the culprit's own account, that each plant shows as.
CAUSE_OF: dict[PlantKind, str] = {
    "slow_device": "gpu_compute",
    "slow_machine": "gpu_compute",
    "slow_input": "host_blocked",
    "host_pauses": "cpu",
    "uneven_stage": "gpu_compute",
    "uneven_batch": "gpu_compute",
    "sequence_lengths": "gpu_compute",
    "hot_expert": "gpu_compute",
    "slow_link": "gpu_comm",
}


class Plant(Struct, frozen=True):
    """One thing that is wrong. ``where``: the rank, the stage, the machine, or the first rank of the group that it
    befalls; None: any rank at any step. ``size``: by how much, a fraction (of kernels, of a step, of a transfer)."""

    kind: PlantKind
    where: int | None
    size: float
    fair: bool = False  # uneven batches or stages dealt out evenly: the same work, the same on all ranks


class Job(Struct, frozen=True):
    """What runs. Ranks count tensor parallel first, then data parallel, then pipeline stages."""

    data: int = 2
    tensor: int = 1
    pipeline: int = 1
    steps: int = 8
    layers: int = 3  # of each stage
    kernels: int = 3  # of each layer, forward; twice as many backward
    micro: int = 1  # batches of a step, one after the other through the pipeline
    kernel_ns: int = 300 * US
    data_ns: int = 300 * US  # what the loader keeps the host waiting
    host_ns: int = 40 * US  # Python between layers
    transfer_ns: int = 500 * US  # of a gradient bucket
    jitter: float = 0.03  # sigma of each kernel's and each host part's length
    spread: float = 0.005  # sigma of how fast devices are
    clock_ns: int = 50 * MS  # clocks differ by up to this
    drift: float = 5e-6
    noise_ns: int = 1_500  # of each rank's end of one collective
    skew_ns: int = 20 * MS  # ranks begin within this time of each other
    embedding: bool = False  # the first and the last stage reduce the gradients of what they share
    chunks: int = 1  # parts of the model on each stage, through which each micro batch goes in turn (interleaved)
    experts: int = 1  # ranks of a replica group that share experts: tokens go to them and back in every layer
    gradients: int = 1  # communicators that gradients are reduced in, turn by turn
    beside: bool = False  # a kernel runs beside what tensor parallel ranks wait for
    graphs: bool = False  # forward and backward are CUDA graphs: one call, and nothing told of collectives inside
    host_size: int = 1  # ranks of one machine, which has one clock
    late: float = 0.0  # the profiler begins up to so many steps later on each rank, wherever that is by then
    early_ns: int = 0  # what waits for a collective begins up to so long before its end
    log_ns: int = 0  # rank 0 writes a log at the end of each step
    checkpoint_ns: int = 0  # rank 0 writes one in the middle of the run
    plants: tuple[Plant, ...] = ()
    seed: int = 0

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.pipeline

    def place(self, rank: int) -> tuple[int, int, int]:
        """(stage, place in data parallel, place in tensor parallel)."""
        return rank // (self.data * self.tensor), rank // self.tensor % self.data, rank % self.tensor

    def at(self, stage: int, data: int, tensor: int) -> int:
        """The rank at a place."""
        return (stage * self.data + data) * self.tensor + tensor

    def group(self, name: str, rank: int) -> tuple[int, ...]:
        """The ranks that a rank meets in a kind of group."""
        stage, data, tensor = self.place(rank)
        if name == "ep":
            first = data - data % self.experts
            return tuple(self.at(stage, first + one, tensor) for one in range(self.experts))
        if name in ("dp", "dp2"):
            return tuple(self.at(stage, one, tensor) for one in range(self.data))
        if name == "tp":
            return tuple(self.at(stage, data, one) for one in range(self.tensor))
        if name == "pp":
            return tuple(self.at(one, data, tensor) for one in range(self.pipeline))
        if name == "embedding":
            ends = sorted({0, self.pipeline - 1})
            return tuple(self.at(one, data, tensor) for one in ends) if self.embedding and stage in ends else ()
        return tuple(range(self.ranks))

    def host(self, rank: int) -> int:
        """The machine of a rank."""
        return rank // self.host_size

    @property
    def features(self) -> dict[str, bool]:
        """What it has beside plain data, tensor and pipeline parallelism."""
        return {
            "embedding group": self.embedding,
            "interleaved stages": self.chunks > 1,
            "experts": self.experts > 1,
            "several communicators": self.gradients > 1 and self.data > 1,
            "waits beside kernels": (self.beside and self.tensor > 1) or self.early_ns > 0,
            "CUDA graphs": self.graphs,
            "machines of several": self.host_size > 1,
            "drifting clocks": self.drift > 1e-6,
            "late profilers": self.late > 0,
        }

    @property
    def step_ns(self) -> int:
        """About how long a step computes."""
        return 3 * self.layers * self.kernels * self.micro * self.chunks * self.kernel_ns

    @property
    def link(self) -> str:
        """The kind of group in which a slow link can be told from a slow network: there are others like it."""
        return "dp" if self.data > 1 and self.tensor * self.pipeline > 1 else "tp"

    def without(self, *plants: Plant) -> Job:
        """The same job, with the same chance, without these. Uneven batches of all ranks, and layers of a stage, are
        dealt out evenly: the work has to be done."""
        kept = []
        for plant in self.plants:
            if plant not in plants:
                kept.append(plant)
            elif plant.kind in ("uneven_stage", "sequence_lengths") or (plant.kind, plant.where) == (
                "uneven_batch",
                None,
            ):
                kept.append(replace(plant, fair=True))
        return replace(self, plants=tuple(kept))

    def more_kernels(self, plant: Plant) -> int:
        """How many more kernels a layer of an uneven stage has."""
        return max(round(self.kernels * plant.size), 1)

    def batch(self, replica: int, step: int, plant: Plant) -> float:
        """How large a replica's batch of a step is, where they are uneven."""
        if plant.fair:
            return sum(self.batch(one, step, replace(plant, fair=False)) for one in range(self.data)) / self.data
        drawn = random.Random(f"batch {self.seed} {replica} {step}").gauss(0, plant.size)
        return math.exp(drawn - plant.size**2 / 2)

    def length(self, replica: int, step: int, micro: int, plant: Plant) -> float:
        """How long a micro batch is beside the usual one, where lengths differ."""
        if plant.fair:
            every = product(range(self.data), range(self.steps), range(self.micro))
            same = replace(plant, fair=False)
            return sum(self.length(*one, same) for one in every) / (self.data * self.steps * self.micro)
        drawn = random.Random(f"length {self.seed} {replica} {step} {micro}").gauss(0, plant.size)
        return math.exp(drawn - plant.size**2 / 2)


class Meet(NamedTuple):
    """One rank's part of one collective. Times are true time, later the rank's own clock."""

    start: int
    end: int
    stream: int
    kind: str
    bytes: int
    group: tuple[int, ...]
    region: int
    call: int
    ready: int
    node: int = 0  # of its graph; 0: in none


class Op(NamedTuple):
    """A kernel of the rank's own, and the call that launched it."""

    start: int
    end: int
    region: int
    call: int
    name: str


class Host(NamedTuple):
    """What the thread did: ``launch``, ``work``, ``sleep``, ``sync``."""

    start: int
    end: int
    what: str
    region: int


class RankRun(Struct):
    """What one rank did, on its own clock."""

    rank: int
    ops: list[Op] = field(default_factory=list)
    meets: list[Meet] = field(default_factory=list)
    host: list[Host] = field(default_factory=list)
    ranges: list[tuple[int, int, str]] = field(default_factory=list)  # start, end, name
    paths: list[tuple[str, ...]] = field(default_factory=lambda: [()])  # of regions, by number
    steps: list[int] = field(default_factory=list)  # when each begins on the host
    end: int = 0  # on true time: when its last work ended
    first: int = 0  # on true time: when the first collective of all ranks ended
    offset_ns: float = 0.0
    drift: float = 0.0


class _Meeting:
    """One collective of all who take part. ``end`` is known once the last has come."""

    def __init__(self, size: int) -> None:
        self.size, self.transfer, self.latest = size, 0.0, 0
        self.end = -1
        self.parts: list[tuple[_Rank, int]] = []

    def arrive(self, rank: _Rank, row: int, start: int, transfer: float) -> None:
        self.latest, self.transfer = max(self.latest, start), max(self.transfer, transfer)
        self.parts.append((rank, row))
        if len(self.parts) == self.size:
            self.end = self.latest + round(self.transfer)
            for one, place in self.parts:
                late = one.noise.randint(0, one.job.noise_ns)
                over = one.run.meets[place]._replace(end=self.end + late)
                one.run.meets[place] = one.left[over.stream] = over


_Book = dict[tuple[str, int, int, int], _Meeting]
#: A rank that runs gives what it waits for.
_Running = Generator[_Meeting, None, None]


class _Rank:
    """One rank as it runs."""

    def __init__(self, job: Job, rank: int, book: _Book) -> None:
        self.job, self.run, self.book = job, RankRun(rank), book
        self.chance = np.random.default_rng([job.seed, rank, 1])
        self.noise = random.Random(f"noise {job.seed} {rank}")
        chosen = random.Random(f"pauses {job.seed} {rank}")
        whole = range(min(2, job.steps - 1) if job.late else 0, job.steps)  # what is not recorded tells nothing
        self.paused = set(chosen.sample(whole, max(round(PAUSED_SHARE * job.steps), min(2, len(whole)))))
        self.factor = float(np.exp(self.chance.normal(0, job.spread)))
        self.host = self.noise.randint(0, job.skew_ns)
        self.device = 0
        self.pending: dict[int, _Meeting] = {}
        self.left: dict[int, Meet] = {}  # the last of each stream, once it is over
        self.counts: dict[tuple[str, int, int], int] = {}
        self.path: list[str] = []
        self.regions: dict[tuple[str, ...], int] = {(): 0}
        self.open: list[int] = []
        self.jitter: list[float] = []
        self.batch_length = 0.0
        self.stage, self.replica, _ = job.place(rank)
        self.groups = {name: job.group(name, rank) for name in ("dp", "dp2", "tp", "ep")}
        self.slowness = {name: self.slower(name) for name in self.groups}
        self.kernels, self.input_ns, self.pause_ns, self.batch = job.kernels, float(job.data_ns), 0.0, 1.0
        self.heat, self.graph, self.node, self.reduced = 1.0, -1, 0, 0
        for plant in job.plants:
            mine = plant.where in (rank, None)
            is_slow = plant.where == job.host(rank) if plant.kind == "slow_machine" else mine
            if plant.kind in ("slow_device", "slow_machine") and is_slow:
                self.factor *= 1 + plant.size
            elif plant.kind == "hot_expert" and mine:
                self.heat *= 1 + plant.size
            elif plant.kind == "slow_input" and mine:
                self.input_ns += plant.size * job.step_ns
            elif plant.kind == "host_pauses" and mine:
                self.pause_ns = plant.size * job.step_ns
            elif plant.kind == "uneven_stage" and plant.fair:
                self.factor *= 1 + job.more_kernels(plant) / (job.kernels * job.pipeline)
            elif plant.kind == "uneven_stage" and plant.where == self.stage:
                self.kernels += job.more_kernels(plant)
            elif plant.kind == "uneven_batch" and plant.where == rank:
                self.batch *= 1 + plant.size

    def region(self) -> int:
        key = tuple(self.path)
        if key not in self.regions:
            self.regions[key] = len(self.regions)
            self.run.paths.append(key)
        return self.regions[key]

    def vary(self) -> float:
        if not self.jitter:
            self.jitter = np.exp(self.chance.normal(0, self.job.jitter, 4096)).tolist()
        return self.jitter.pop()

    @contextlib.contextmanager
    def inside(self, name: str, shown: str = "") -> Iterator[None]:
        """A range around what is done."""
        self.path.append(name)
        self.region()  # it stands in the trace, whatever is done inside
        begun = self.host
        yield
        self.run.ranges.append((begun, self.host, shown or name))
        self.path.pop()

    def spend(self, what: str, ns: float) -> int:
        """When the host began to do this."""
        begun = self.host
        if ns >= 1:
            self.host += round(ns)
            self.run.host.append(Host(begun, self.host, what, self.region()))
        return begun

    @contextlib.contextmanager
    def captured(self) -> Iterator[None]:
        """What is launched inside is one graph, launched by one call."""
        if self.job.graphs:
            self.graph, self.node = self.spend("launch", LAUNCH_NS), self.node + 1
        yield
        self.graph = -1

    def launch(self) -> int:
        """When the call begins that launches the next operation."""
        if self.graph < 0:
            return self.spend("launch", LAUNCH_NS)
        self.node += 1
        return self.graph

    def kernel(self, ns: float) -> None:
        call = self.launch()
        start = max(self.device, self.host + LATENCY_NS)
        self.device = start + max(round(ns), 1)
        self.run.ops.append(Op(start, self.device, self.region(), call, f"{self.path[-1]}_gemm"))

    def layer(self, kernels: int) -> _Running:
        if self.graph < 0:
            self.spend("work", self.job.host_ns * self.vary())
        for _ in range(kernels):
            self.kernel(self.job.kernel_ns * self.factor * self.batch * self.vary())
        if self.job.experts > 1:
            yield from self.reduce("ep", 0.3)
            yield from self.join("ep")
            with self.inside("experts"):
                for _ in range(kernels):
                    self.kernel(self.job.kernel_ns * self.factor * self.batch * self.heat * self.vary())
            yield from self.reduce("ep", 0.3)
            yield from self.join("ep")
        yield from self.reduce("tp", 0.3)
        if self.job.beside:
            self.kernel(self.job.kernel_ns / 3 * self.factor * self.batch * self.vary())
        yield from self.join("tp")

    def meet(self, name: str, kind: str, group: tuple[int, ...], size: int, transfer_ns: float) -> _Running:
        """Launch a collective onto its stream; goes on once its place in the stream is known."""
        if len(group) < 2:
            return
        stream = STREAMS[name] + (group[0] == self.run.rank if name.startswith(("pp", "wrap")) else 0)
        before = self.pending.get(stream)
        if before is not None and before.end < 0:
            yield before
        call = self.launch()
        ready = max(self.device, self.host + LATENCY_NS)
        start = ready if before is None else max(ready, self.left[stream].end + US)
        key = name, group[0], group[1]
        number = self.counts[key] = self.counts.get(key, 0) + 1
        meeting = self.pending[stream] = self.book.setdefault((*key, number), _Meeting(len(group)))
        node = 0 if self.graph < 0 else self.node
        self.run.meets.append(Meet(start, -1, stream, kind, size, group, self.region(), call, ready, node))
        meeting.arrive(self, len(self.run.meets) - 1, start, transfer_ns)

    def join(self, name: str, *, sender: bool = False) -> _Running:
        """The compute stream waits for all that was launched on the collectives' stream."""
        meeting = self.pending.get(STREAMS[name] + sender)
        if meeting is None:
            return
        if meeting.end < 0:
            yield meeting
        end = self.left[STREAMS[name] + sender].end
        self.device = max(self.device, end + US - self.noise.randint(0, self.job.early_ns))

    def sync(self) -> None:
        begun = self.host
        self.host = max(begun + US, self.device + RETURN_NS)
        self.run.host.append(Host(begun, self.host, "sync", self.region()))

    def begin_batch(self, step: int, micro: int) -> None:
        """What is worked on from here on is as long as this micro batch."""
        for plant in self.job.plants:
            if plant.kind == "sequence_lengths":
                if not plant.fair or not self.batch_length:
                    self.batch_length = self.job.length(self.replica, step, micro, plant)
                self.batch = self.batch_length

    def slower(self, name: str) -> float:
        """How much a slow link makes of a transfer."""
        factor = 1.0
        for plant in self.job.plants:
            if plant.kind == "slow_link" and self.job.link == name and plant.where is not None:
                factor *= 1 + plant.size * (self.run.rank in self.job.group(name, plant.where))
        return factor

    def reduce(self, name: str, part: float) -> _Running:
        ns, kind = self.job.transfer_ns * part, "AllToAll" if name == "ep" else "AllReduce"
        yield from self.meet(name, kind, self.groups[name], round(ns * 100), ns * self.slowness.get(name, 1.0))

    def reduce_gradients(self) -> _Running:
        self.reduced += 1
        name = "dp2" if self.job.gradients > 1 and self.reduced % 2 else "dp"
        ns = self.job.transfer_ns
        yield from self.meet(name, "AllReduce", self.groups["dp"], ns * 100, ns * self.slowness["dp"])

    def neighbour(self, by: int, *, wraps: bool) -> tuple[int, ...]:
        """This rank and the same place in a stage beside it; empty where there is none. ``wraps``: beyond the last
        stage is the first."""
        job, other = self.job, self.stage + by
        if not 0 <= other < job.pipeline and not (wraps and job.pipeline > 1):
            return ()
        _, data, tensor = job.place(self.run.rank)
        return tuple(sorted((self.run.rank, job.at(other % job.pipeline, data, tensor))))

    def pass_on(self, name: str, by: int, *, wait: bool, wraps: bool) -> _Running:
        group = self.neighbour(by, wraps=wraps)
        if not 0 <= self.stage + by < self.job.pipeline:
            name = name.replace("pp", "wrap")
        yield from self.meet(name, "SendRecv", group, 1 << 20, self.job.transfer_ns / 4)
        if wait:
            yield from self.join(name, sender=bool(group) and group[0] == self.run.rank)

    def everything(self) -> _Running:
        """All that the rank does."""
        job = self.job
        yield from self.meet("world", "AllReduce", job.group("world", self.run.rank), 8, 20 * US)
        yield from self.join("world")
        self.sync()
        for number in range(job.steps):
            self.run.steps.append(self.host)
            with self.inside("step *", f"step {number}"):
                yield from self.step(number)
        self.run.end = max(self.device, self.host)

    def turns(self) -> list[tuple[int, int]]:
        """Part of the model and micro batch, in the order of the forward pass: as many micro batches as there are
        stages go through all parts, then the next."""
        job = self.job
        return [
            (chunk, turn)
            for low in range(0, job.micro, job.pipeline)
            for chunk in range(job.chunks)
            for turn in range(low, min(low + job.pipeline, job.micro))
        ]

    def forward(self, number: int) -> _Running:
        job, last = self.job, self.job.chunks - 1
        for chunk, turn in self.turns():
            yield from self.pass_on("pp_down", -1, wait=True, wraps=chunk > 0)
            self.begin_batch(number, turn)
            for _ in range(job.layers):
                yield from self.layer(self.kernels)
            yield from self.pass_on("pp_down", 1, wait=False, wraps=chunk < last)

    def backward(self, number: int) -> _Running:
        job, last = self.job, self.job.chunks - 1
        for behind, turn in self.turns():
            chunk = last - behind
            yield from self.pass_on("pp_up", 1, wait=True, wraps=chunk < last)
            self.begin_batch(number, turn)
            for _ in range(job.layers):
                yield from self.layer(2 * self.kernels)
                if turn == job.micro - 1:
                    yield from self.reduce_gradients()
            yield from self.pass_on("pp_up", -1, wait=False, wraps=chunk > 0)

    def step(self, number: int) -> _Running:
        job = self.job
        with self.inside("data"):
            self.spend("sleep", self.input_ns * self.vary())
        for plant in job.plants:
            if plant.kind == "uneven_batch" and plant.where is None:
                self.batch = job.batch(self.replica, number, plant)
        paused, self.node = number in self.paused, 0
        with self.inside("forward"):
            self.spend("work", self.pause_ns * paused)
            with self.captured():
                yield from self.forward(number)
        with self.inside("backward"), self.captured():
            yield from self.backward(number)
        with self.inside("optimizer"):
            yield from self.join("dp")
            yield from self.join("dp2")
            yield from self.meet("embedding", "AllReduce", job.group("embedding", self.run.rank), 4096, job.transfer_ns)
            yield from self.join("embedding")
            for _ in range(2):
                self.kernel(job.kernel_ns / 2 * self.factor * self.vary())
            self.sync()
        if self.run.rank == 0:
            with self.inside("log"):
                self.spend("work", job.log_ns * self.vary())
            if job.checkpoint_ns and number == job.steps // 2:
                with self.inside("checkpoint"):
                    self.spend("sleep", job.checkpoint_ns)


@lru_cache(maxsize=4)
def simulate(job: Job) -> tuple[RankRun, ...]:
    """Run a job; what each rank did, on its own clock."""
    book: _Book = {}
    ranks = [_Rank(job, number, book) for number in range(job.ranks)]
    waiting: list[tuple[_Running, _Meeting | None]] = [(rank.everything(), None) for rank in ranks]
    while waiting:
        left: list[tuple[_Running, _Meeting | None]] = []
        for running, meeting in waiting:
            if meeting is not None and meeting.end < 0:
                left.append((running, meeting))
            elif (waits := next(running, None)) is not None:
                left.append((running, waits))
        if len(left) == len(waiting) and all(meeting is not None and meeting.end < 0 for _, meeting in left):
            raise ValueError("the ranks wait for each other")
        waiting = left
    for rank in ranks:
        _cut(rank.run, job)
        clock = random.Random(f"clock {job.seed} {job.host(rank.run.rank) if job.host_size > 1 else rank.run.rank}")
        rank.run.offset_ns = clock.uniform(-job.clock_ns, job.clock_ns)
        rank.run.drift = clock.uniform(-job.drift, job.drift)
    return tuple(rank.run for rank in ranks)


def _cut(run: RankRun, job: Job) -> None:
    """Leave only what a profiler keeps that begins late: what was launched, and the ranges that were opened, since."""
    since = run.first = run.meets[0].end if run.meets else 0
    if job.late:
        since += round(random.Random(f"late {job.seed} {run.rank}").uniform(0, job.late) * job.step_ns)
        run.ops = [one for one in run.ops if one.call >= since]
        run.meets = [one for one in run.meets if one.call >= since]
        run.host = [one for one in run.host if one.start >= since]
        run.ranges = [one for one in run.ranges if one[0] >= since]
        run.steps = [one for one in run.steps if one >= since]


def length_ns(runs: Sequence[RankRun]) -> int:
    """How long a job takes: from the end of its first collective, in which ranks wait for each other to begin."""
    return max(run.end for run in runs) - max(run.first for run in runs)


#: (data, tensor, pipeline) of drawn jobs: 2 to 512 ranks, small ones more often.
SHAPES = (
    *((2, 1, 1), (3, 1, 1), (4, 1, 1), (8, 1, 1), (8, 1, 1), (16, 1, 1), (32, 1, 1), (64, 1, 1)),
    *((2, 2, 1), (4, 2, 1), (2, 4, 1), (8, 4, 1), (1, 4, 1), (16, 2, 1), (8, 8, 1)),
    *((1, 1, 2), (1, 1, 4), (2, 1, 2), (4, 1, 4), (8, 1, 2), (2, 2, 2), (4, 2, 4), (8, 2, 2)),
)
LARGE_SHAPES = ((128, 1, 1), (512, 1, 1), (32, 8, 1), (16, 4, 4), (64, 8, 1))
#: A plant that is to be found costs this share of the job at the least.
LEAST_WORTH, LEAST_RANDOM_WORTH = 0.04, 0.06


def draw(seed: int, plants: int, *, large: bool = False) -> Job:
    """A job with so many plants, each of which would cost at least `LEAST_WORTH` alone, and can be told by a trace."""
    for turn in range(100):
        chance = random.Random(f"job {seed} {turn}")
        job = _draw_shape(chance, seed * 100 + turn, large)
        job = replace(job, plants=tuple(_draw_plants(chance, job, plants)))
        slow = {plant.where for plant in job.plants} - {None}
        if len(job.plants) < plants or len(slow) == job.ranks == 2:  # of two slow ranks nobody can say what is usual
            continue
        healthy = length_ns(simulate(job.without(*job.plants))) if plants else 0
        alone = [job.without(*(other for other in job.plants if other != plant)) for plant in job.plants]
        least = [LEAST_RANDOM_WORTH if plant.where is None else LEAST_WORTH for plant in job.plants]
        costs = (length_ns(simulate(one)) - healthy for one in alone)
        if all(cost >= share * healthy for cost, share in zip(costs, least, strict=True)):
            return job
    raise ValueError("no such job was drawn")


def _draw_shape(chance: random.Random, seed: int, large: bool) -> Job:
    data, tensor, pipeline = chance.choice(LARGE_SHAPES if large else SHAPES)
    experts = chance.choice([1, 1, *(size for size in (2, 4, 8) if data % size == 0)])
    return Job(
        data,
        tensor,
        pipeline,
        steps=chance.randint(6, 12),
        layers=chance.randint(2, 4),
        kernels=chance.randint(2, 4),
        micro=chance.randint(2, 4) if pipeline > 1 else chance.choice((1, 1, 3)),
        kernel_ns=chance.randint(100, 600) * US,
        data_ns=chance.randint(0, 600) * US,
        host_ns=chance.randint(10, 80) * US,
        transfer_ns=chance.randint(100, 1_500) * US,
        jitter=chance.uniform(0.01, 0.04),
        spread=chance.uniform(0, 0.006),
        clock_ns=chance.choice((0, 50 * US, 50 * MS)),
        drift=chance.choice((0, 1e-6, 2e-5)),
        noise_ns=chance.randint(0, 3_000),
        skew_ns=chance.choice((1, 20 * MS, 500 * MS)),
        embedding=pipeline > 1 and chance.random() < 0.5,
        early_ns=chance.choice((0, 8 * US)),
        log_ns=chance.choice((0, 0, 300 * US)),
        chunks=chance.choice((1, 2)) if pipeline > 1 else 1,
        experts=experts,
        gradients=chance.choice((1, 2)),
        beside=chance.random() < 0.3,
        graphs=experts == 1 and chance.random() < 0.3,
        host_size=chance.choice([1, *(size for size in (2, 4, 8) if data * tensor >= 3 * size)]),
        late=chance.choice((0.0, 0.0, 0.0, 1.2)),
        seed=seed,
    )


def _draw_plants(chance: random.Random, job: Job, count: int) -> Iterator[Plant]:
    kinds: list[PlantKind] = ["slow_device", "slow_input", "host_pauses"]
    if job.pipeline > 1:
        kinds.append("uneven_stage")
    if job.data > 1:
        kinds.append("uneven_batch")
    if job.micro > 1:
        kinds.append("sequence_lengths")
    if job.experts > 1:
        kinds.append("hot_expert")
    if job.host_size > 1:
        kinds.append("slow_machine")
    if not job.graphs and max(job.data, job.tensor) > 1 and len(job.group(job.link, 0)) < job.ranks:
        kinds.append("slow_link")
    places = chance.sample(range(job.ranks), min(count, job.ranks))
    chosen = chance.sample(kinds, min(count, len(kinds)))
    is_one_cause = len({CAUSE_OF[kind] for kind in chosen}) < len(chosen)
    if {"uneven_batch", "sequence_lengths"} & set(chosen) and is_one_cause:
        return  # ten percent more cannot be told from chance where steps differ by thirty
    if "slow_machine" in chosen and is_one_cause and len({job.host(rank) for rank in places}) < len(places):
        return  # one rank has one excess, whatever made it
    for kind, rank in zip(chosen, places, strict=False):
        if kind == "uneven_stage":
            yield Plant(kind, chance.randrange(job.pipeline), chance.uniform(0.25, 0.8))
        elif kind == "uneven_batch":
            one = job.tensor * job.pipeline == 1 and chance.random() < 0.5
            yield Plant(kind, rank if one else None, chance.uniform(0.1, 0.3))
        elif kind == "sequence_lengths":
            yield Plant(kind, None, chance.uniform(0.15, 0.45))
        elif kind == "slow_machine":
            yield Plant(kind, job.host(rank), chance.uniform(0.06, 0.4))
        elif kind == "hot_expert":
            yield Plant(kind, rank, chance.uniform(0.2, 1.0))
        elif kind == "host_pauses":
            yield Plant(kind, rank if chance.random() < 0.5 else None, chance.uniform(0.2, 0.8))
        elif kind == "slow_link":
            yield Plant(kind, rank, chance.uniform(1, 5))
        else:
            yield Plant(kind, rank, chance.uniform(0.06, 0.4))


def write_export(run: RankRun, path: Path) -> Path:
    """What one rank did as an nsys export, on its own clock: calls, kernels, ranges, and the OS calls it sleeps in."""

    def clock(time: int) -> int:
        return max(time + round(run.offset_ns + run.drift * time) + _CLOCK_ZERO_NS, 0)

    export = Export(("python", "train.py"), {"EXPORT_PRODUCT_NAME": PRODUCT})
    thread = export.thread(pid=FIRST_PID + run.rank)
    export.gpu(0, GPU_NAME, GPU_FACTS)
    work = [(op.call, op.start, op.end, op.name, COMPUTE_STREAM) for op in run.ops]
    names = {kind: f"ncclDevKernel_{kind}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)" for kind in ("AllReduce",)}
    names["SendRecv"] = names["AllToAll"] = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    work += [(meet.call, meet.start, meet.end, names[meet.kind], meet.stream) for meet in run.meets]
    for call, start, end, name, stream in sorted(work):
        launched = export.api(thread, clock(call), clock(call + LAUNCH_NS), "cudaLaunchKernel_v7000", stream=stream)
        export.kernel(launched, clock(start), clock(end), name=name, stream=stream)
    for start, end, what, _ in run.host:
        if what == "sync":
            export.api(thread, clock(start), clock(end), "cudaStreamSynchronize_v3020", stream=COMPUTE_STREAM)
        elif what == "sleep":
            export.osrt(thread, clock(start), clock(end), "poll")
    for start, end, name in run.ranges:
        export.nvtx(thread, clock(start), clock(end), name)
    return export.write(path)
