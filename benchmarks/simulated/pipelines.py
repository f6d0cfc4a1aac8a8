"""Pipelines as published traces of real jobs hold them: one operation after the other on each rank, one forward and one
backward in turn, a transfer that both ends are in.

Each rank is a list of operations. Compute takes what its micro batch takes; a transfer begins when the last has come.
The same job with even operations is what the job would gain by: means of compute, over all ranks, steps and micro
batches, as in "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025).
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

MS = 1_000_000
#: Transfers of each kind, nanoseconds.
_TRANSFER_NS = {"sendrecv": 380_000, "_allgather_base": 25 * MS, "_reduce_scatter_base": 55 * MS, "allreduce": 40_000}
_STREAM = {"compute": 7, "sendrecv": 9}
_OTHER_STREAM = 11
_KERNEL = {"sendrecv": "SendRecv", "_allgather_base": "AllGather", "_reduce_scatter_base": "ReduceScatter_Sum_bf16"}


class Pipeline(Struct, frozen=True):
    """A job of ``stages`` times ``replicas`` ranks, which count replicas first. ``slow``: how many times as long a rank
    computes; ``more``: a stage; ``lengths``: sigma of the logarithm of a micro batch's length."""

    stages: int = 4
    replicas: int = 2
    micro: int = 4
    steps: int = 12
    forward_ns: int = 64 * MS
    backward_ns: int = 137 * MS
    slow: Mapping[int, float] = field(default_factory=dict)
    more: Mapping[int, float] = field(default_factory=dict)
    lengths: float = 0.0
    jitter: float = 0.02
    late_ns: int = 0  # the host begins a step up to so much later on each rank
    clock_ns: int = 0
    seed: int = 0
    is_even: bool = False

    @property
    def ranks(self) -> int:
        return self.stages * self.replicas


class Op(NamedTuple):
    """``group``: who takes part, itself alone where it computes."""

    name: str
    kind: str
    group: tuple[int, ...]
    ns: int


class Done(NamedTuple):
    op: Op
    start: int
    end: int
    step: int
    number: int  # of its group, from 1 on


def run(job: Pipeline) -> list[list[Done]]:
    """What each rank did, in order, in nanoseconds of one clock."""
    even = _even(job) if job.is_even else {}
    at = [0] * job.ranks
    found: list[list[Done]] = [[] for _ in range(job.ranks)]
    numbers: dict[tuple[int, ...], int] = {}
    for step in range(job.steps):
        begun = max(at)
        chance = random.Random(f"late {job.seed} {step}")
        at = [begun + (0 if job.is_even else chance.randint(0, job.late_ns)) for _ in range(job.ranks)]
        left = [list(_step(job, rank, step, even)) for rank in range(job.ranks)]
        place = [0] * job.ranks
        while any(place[rank] < len(left[rank]) for rank in range(job.ranks)):
            moved = False
            for rank in range(job.ranks):
                if place[rank] == len(left[rank]):
                    continue
                op = left[rank][place[rank]]
                those = [one for one in op.group if place[one] < len(left[one])]
                ready = [one for one in those if left[one][place[one]].group == op.group]
                if len(ready) < len(op.group):
                    continue
                end = max(at[one] for one in op.group) + op.ns
                number = numbers[op.group] = numbers.get(op.group, 0) + 1
                for one in op.group:
                    found[one].append(Done(left[one][place[one]], at[one], end, step, number))
                    at[one] = end + 10_000
                    place[one] += 1
                moved = True
            if not moved:
                raise ValueError("the ranks wait for each other")
    return found


def gain(job: Pipeline) -> float:
    """What share of its length the job would gain if its operations were even."""
    return 1 - length_ns(run(replace(job, is_even=True))) / length_ns(run(job))


def length_ns(done: Sequence[Sequence[Done]]) -> int:
    """How long a job takes from its first operation to its last."""
    return max(one[-1].end for one in done) - max(one[0].end for one in done)


def _even(job: Pipeline) -> dict[str, int]:
    """The mean of all computing operations of each name."""
    plain = replace(job, is_even=False)
    every: dict[str, list[int]] = {}
    for rank in range(job.ranks):
        for step in range(job.steps):
            for op in _step(plain, rank, step, {}):
                if op.kind == "compute":
                    every.setdefault(op.name, []).append(op.ns)
    return {name: sum(values) // len(values) for name, values in every.items()}


def _step(job: Pipeline, rank: int, step: int, even: Mapping[str, int]) -> Iterator[Op]:
    stage, replica = divmod(rank, job.replicas)
    data = tuple(stage * job.replicas + one for one in range(job.replicas))
    ends = (replica, (job.stages - 1) * job.replicas + replica)
    chance = random.Random(f"{job.seed} {rank} {step}")
    turn: dict[str, int] = {}

    def meet(name: str, kind: str, group: tuple[int, ...]) -> Iterator[Op]:
        if len(group) > 1:
            yield Op(name, kind, group, _TRANSFER_NS[kind])

    def passes(name: str, other: int) -> Iterator[Op]:
        if 0 <= other < job.stages:
            low, high = sorted((stage, other))
            yield from meet(name, "sendrecv", (low * job.replicas + replica, high * job.replicas + replica))

    def compute(name: str, ns: int) -> Iterator[Op]:
        micro = turn[name] = turn.get(name, -1) + 1
        if name in even:
            yield Op(name, "compute", (rank,), even[name])
            return
        length = random.Random(f"length {job.seed} {replica} {step} {micro}").gauss(0, 1) * job.lengths
        vary = 2.718281828 ** (chance.gauss(0, job.jitter) + (length if name != "optimizer" else 0))
        yield Op(name, "compute", (rank,), round(ns * vary * job.slow.get(rank, 1.0) * job.more.get(stage, 1.0)))

    warm = min(job.stages - stage - 1, job.micro)
    yield from meet("params-all-gather", "_allgather_base", data)
    for _ in range(warm):
        yield from passes("forward-recv", stage - 1)
        yield from compute("forward-compute", job.forward_ns)
        yield from passes("forward-send", stage + 1)
    steady = job.micro - warm
    if steady:
        yield from passes("forward-recv", stage - 1)
    for number in range(steady):
        yield from compute("forward-compute", job.forward_ns)
        yield from passes("backward-recv", stage + 1)
        yield from compute("backward-compute", job.backward_ns)
        yield from passes("backward-send" if number == steady - 1 else "forward-recv", stage - 1)
    for _ in range(warm):
        yield from passes("backward-recv", stage + 1)
        yield from compute("backward-compute", job.backward_ns)
        yield from passes("backward-send", stage - 1)
    yield from meet("layernorm-grads-all-reduce", "allreduce", data)
    if stage in (0, job.stages - 1) and job.stages > 2:
        yield from meet("embedding-grads-all-reduce", "allreduce", ends)
    yield from meet("grads-reduce-scatter", "_reduce_scatter_base", data)
    yield from meet("optimizer-clip-main-grad", "allreduce", tuple(range(job.ranks)))
    yield from compute("optimizer", 42 * MS)


def write(job: Pipeline, folder: Path) -> list[Path]:
    """One trace a rank, as PyTorch's profiler writes them."""
    done = run(job)
    groups = sorted({one.op.group for of_rank in done for one in of_rank if len(one.op.group) > 1})
    names = {group: str(number) for number, group in enumerate(groups, 1)}
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(job, rank, of_rank, names, folder / f"rank_{rank}.json.gz") for rank, of_rank in enumerate(done)]


def _write(job: Pipeline, rank: int, done: Sequence[Done], names: Mapping[tuple[int, ...], str], path: Path) -> Path:
    clock = random.Random(f"clock {job.seed} {rank}").randint(-job.clock_ns, job.clock_ns) + 1000 * MS
    host = {"ph": "X", "pid": 100 + rank, "tid": 1}
    events: list[dict[str, Any]] = []
    begins = [min(one.start for one in done if one.step == step) - 20_000 for step in range(job.steps)]
    for step in range(job.steps):
        # Ids of calls count on from step to step, each with its wait at the end.
        mine = [(number + step, one) for number, one in enumerate(done, 1) if one.step == step]
        low, high = min(one.start for _, one in mine), max(one.end for _, one in mine)
        ends = min([high, *begins[step + 1 : step + 2]])  # on the host a step ends before the next one begins
        args: dict[str, Any] = {}
        annotation = {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "args": args}
        events.append({**host, **annotation, **_times(clock + low - 20_000, clock + ends)})
        for turn, (number, one) in enumerate(mine):
            at = clock + low - 15_000 + 1_000 * turn
            told = {"External id": number}
            events.append({**host, "cat": "cpu_op", "name": one.op.name, **_times(at, at + 900), "args": told})
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": number, **told}}
            events.append({**host, **launch, **_times(at + 100, at + 800)})
            events.append(_on_device(one, number, names, clock))
        wait = {"cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "args": {"correlation": mine[-1][0] + 1}}
        events.append({**host, **wait, **_times(clock + low + 1_000 * len(mine), clock + ends)})
    groups = [
        {"pg_name": name, "pg_desc": "", "backend_config": "cuda:nccl", "pg_size": len(group), "ranks": list(group)}
        for group, name in names.items()
    ]
    file = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Simulated GPU", "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": job.ranks, "pg_config": groups},
        "traceEvents": events,
    }
    with gzip.open(path, "wt", compresslevel=1) as target:
        json.dump(file, target)
    return path


def _on_device(one: Done, number: int, names: Mapping[tuple[int, ...], str], clock: int) -> dict[str, Any]:
    op = one.op
    stream = _STREAM.get(op.kind, _OTHER_STREAM)
    args: dict[str, Any] = {"correlation": number, "External id": number, "device": 0, "stream": stream}
    args |= {"grid": [132, 1, 1], "block": [256, 1, 1]}
    name = f"{op.name.replace('-', '_')}_kernel"
    if op.kind != "compute":
        name = f"ncclDevKernel_{_KERNEL.get(op.kind, 'AllReduce_Sum_bf16')}_RING_LL(x)"
        args |= {"Collective name": op.kind, "Process Group Name": names[op.group], "Seq": one.number}
        args |= {"Process Group Ranks": str(list(op.group)), "Group size": len(op.group), "dtype": "BFloat16"}
        args |= {"In msg nelems": 1000, "Out msg nelems": 1000}
    place = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream}
    return {**place, **_times(clock + one.start, clock + one.end), "args": args}


def _times(start: int, end: int) -> dict[str, float]:
    return {"ts": start / 1000, "dur": (end - start) / 1000}
