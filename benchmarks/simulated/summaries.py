"""Summaries straight from a simulated job, as the analysis of its exports would give them: for statistics over many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.simulated.jobs import Job, Meet, RankRun
from boundby.attribution.host_state import DISPATCH_LIMIT_NS, LAUNCH_LIMIT_NS
from boundby.jobs.rank_summary import Meetings, Own, Piece, RankGroup, RankSummary, compact, fingerprint, queued_ready
from boundby.model.causes import Cause


def summaries(job: Job, runs: Sequence[RankRun], *, tells_groups: bool = True) -> list[RankSummary]:
    """One summary a rank. ``tells_groups``: the trace names its process groups, as PyTorch's profiler does."""
    return [_summary(job, run, tells_groups) for run in runs]


def _summary(job: Job, run: RankRun, tells_groups: bool) -> RankSummary:
    def clock(times: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        true = np.array(times, np.int64)
        return true + np.round(run.offset_ns + run.drift * true).astype(np.int64)

    pieces = _pieces(run)
    table = Piece(
        clock([one[0] for one in pieces]),
        clock([one[1] for one in pieces]),
        np.array([one[2] for one in pieces], np.int8),
        np.array([one[3] for one in pieces], np.int32),
    )
    names, kinds_of = _groups_of(run, tells_groups), [_kind(meet, tells_groups) for meet in run.meets]
    groups, kinds = sorted(set(names)), sorted(set(kinds_of))
    start, end = clock([meet.start for meet in run.meets]), clock([meet.end for meet in run.meets])
    stream = np.array([meet.stream for meet in run.meets], np.int64)
    meetings = Meetings(
        start,
        end,
        queued_ready(start, end, stream, clock([meet.ready for meet in run.meets])),
        stream,
        np.array([groups.index(name) for name in names], np.int32),
        np.array([kinds.index(kind) for kind in kinds_of], np.int32),
        np.array([-1 if meet.node else meet.bytes for meet in run.meets], np.int64),
        np.full(len(run.meets), -1, np.int64),
        np.array([meet.region for meet in run.meets], np.int32),
    )
    window = int(table.start_ns[0]), int(table.end_ns[-1])
    steps = clock(run.steps)
    begun = clock([op.start for op in run.ops])
    kernels = [fingerprint(op.name) for op in run.ops]
    own = Own(begun, clock([op.call for op in run.ops]) + LAUNCH_LIMIT_NS, np.array(kernels, np.int64)).sorted()
    meetings, events, work = compact(table, meetings, window, steps, own)
    return RankSummary(
        name=f"rank{run.rank}",
        rank=run.rank,
        world_size=job.ranks,
        host=f"host{job.host(run.rank)}" if job.host_size > 1 else "",
        device="Simulated GPU",
        base_ns=0,
        window_ns=window,
        meetings=meetings,
        events=events,
        work=work,
        groups=tuple(RankGroup(*one) for one in groups),
        kinds=tuple(kinds),
        regions=tuple(run.paths),
        step_ns=steps,
        kernels=np.histogram(begun, np.append(steps, np.iinfo(np.int64).max))[0].astype(np.int64),
        kinds_of_kernels=own.kinds(),
    )


def _kind(meet: Meet, tells: bool) -> str:
    """What a trace calls a collective: of one inside a graph the kernel is all that tells, which sends and receives."""
    return "SendRecv" if meet.kind == "AllToAll" and (meet.node or not tells) else meet.kind


def _groups_of(run: RankRun, tells: bool) -> list[tuple[str, tuple[int, ...]]]:
    """Name and ranks of each collective's group, as far as a trace tells them. Of one inside a graph it tells which
    node it is."""
    nodes = sorted({(_kind(meet, tells), meet.node) for meet in run.meets if meet.node})
    first = {kind: place for place, (kind, _) in reversed([*enumerate(nodes)])}
    named = {node: f"{kind} {place - first[kind] + 1} of a graph" for place, (kind, node) in enumerate(nodes)}
    return [
        (named[meet.node], ()) if meet.node else (str(meet.stream // 4), meet.group) if tells else ("", ())
        for meet in run.meets
    ]


def _pieces(run: RankRun) -> list[tuple[int, int, Cause, int]]:
    """The account of a rank's device, from its first work to its last: (start, end, cause, region)."""
    found: list[tuple[int, int, Cause, int]] = []
    work = [(op.start, op.end, 0, op.region, op.call) for op in run.ops]
    work += [(meet.start, meet.end, 1, meet.region, meet.call) for meet in run.meets]
    edges = sorted(
        (time, number, enters) for number, one in enumerate(work) for time, enters in ((one[0], 1), (one[1], 0))
    )
    open_: tuple[set[int], set[int]] = set(), set()
    states = _states(run)
    at, since = edges[0][0], 0
    for time, number, enters in edges:
        if time > at:
            busy = open_[0] or open_[1]
            if busy:
                cause = Cause.GPU_COMPUTE if open_[0] else Cause.GPU_COMM
                found.append((at, time, cause, work[min(busy)][3]))
            else:
                since = _gap(found, at, time, states, since, work[number])
            at = time
        kind = work[number][2]
        open_[kind].add(number) if enters else open_[kind].discard(number)
    return found


def _states(run: RankRun) -> list[tuple[int, int, Cause, int]]:
    """What the host does, in order: the first part of a stretch of Python is dispatch."""
    states = []
    causes = {"launch": Cause.CUDA_API, "work": Cause.CPU, "sleep": Cause.HOST_BLOCKED, "sync": Cause.SYNC}
    for start, end, what, region in run.host:
        begun = start
        if what == "work":
            begun = min(end, start + DISPATCH_LIMIT_NS)
            states.append((start, begun, Cause.CUDA_API, region))
        if end > begun:
            states.append((begun, end, causes[what], region))
    return states


def _gap(
    found: list[tuple[int, int, Cause, int]],
    low: int,
    high: int,
    states: Sequence[tuple[int, int, Cause, int]],
    since: int,
    ends: tuple[int, int, int, int, int],
) -> int:
    """Divide one gap by what the host did until the launch that ends it; where to look for the next."""
    while since < len(states) and states[since][1] <= low:
        since += 1
    at, place = low, since
    while at < high and place < len(states) and states[place][0] <= ends[4]:
        start, end, cause, region = states[place]
        if min(end, high) > max(start, at):
            found.append((at, min(end, high), cause, region))
            at = min(end, high)
        place += 1
    if at < high:
        on_its_way = min(high, at + LAUNCH_LIMIT_NS)
        found.append((at, on_its_way, Cause.CUDA_API, ends[3]))
        if high > on_its_way:
            found.append((on_its_way, high, Cause.DEVICE_WAIT, ends[3]))
    return since
