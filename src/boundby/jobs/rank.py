"""From one rank's trace to its summary: the account without sync debits, cut at the collectives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.host_state import ELSEWHERE, LAUNCH_LIMIT_NS
from boundby.attribution.regions import ROOT
from boundby.attribution.segments import Segments
from boundby.attribution.timeline import DeviceTimeline, Timeline, build_timeline, select
from boundby.attribution.windows import parse_window
from boundby.capture.folder import worker_of
from boundby.correlation.cpu_evidence import sleeps_of
from boundby.jobs.meetings import is_passing
from boundby.jobs.messages import message_meetings, passing_messages
from boundby.jobs.rank_summary import (
    UNKNOWN,
    Meetings,
    Own,
    Piece,
    RankGroup,
    RankSummary,
    compact,
    fingerprint,
    queued_ready,
)
from boundby.model.arrays import Int64Array, factorize, is_any, pick, ranked, unique
from boundby.model.causes import Cause
from boundby.model.errors import InputError, SelectionError
from boundby.model.intervals import EMPTY, NOTHING, CoveredTime, IntervalSet, StepFunction, cut, union
from boundby.model.scale import LEVELS
from boundby.structure.mpi_ranks import unfinished
from boundby.structure.steps import find_steps
from boundby.trace.facts import BROKEN_ROWS, UNBELIEVABLE
from boundby.trace.program import program_end
from boundby.trace.stacks import ROUNDED_NS
from boundby.trace.tables import OpKind, Trace
from boundby.trace.vocabulary.os import MESSAGES, MessageKind
from boundby.trace.vocabulary.range_names import is_library

#: Calls of message passing that nobody leaves before all have come, or before both ends have.
_MEETING = re.compile(r"^P?MPI_(?:Barrier|All\w+|Reduce_scatter\w*|S?send|Recv|Send)$|^(?:c10d::|gloo:)\w+")
_MESSAGE = re.compile(r"^P?MPI_(?!Init|Finalize|Comm_|Wtime|Get_)|^nvshmemx?_|^gloo:|^c10d::")
_KERNEL = re.compile(r"(?:nccl|rccl)(?:Dev)?Kernel_([A-Za-z]+)", re.IGNORECASE)
_OPERATOR = re.compile(r"^(?:aten|c10d|autograd|torch|prims|nccl)::?|Backward\d*$")
EVERYBODY, PAIRS = "message passing", "messages between two"
_NAMED = re.compile(r"rank[-_. ]?(\d+)", re.IGNORECASE)
#: Regions are told apart down to so many below the step: finer ones are not the same on all ranks.
_DEPTH = LEVELS
#: A call of message passing of the host counts from this length on.
_SHORTEST_NS = ROUNDED_NS


def summarise(trace: Trace, name: str) -> list[RankSummary]:
    """One summary a process with device work (for each of its devices, if it drives several); of a trace without any,
    one for each process with ranges. Raises InputError where nothing can be accounted for."""
    summaries, lost, ended, program = (
        [],
        list[str](),
        {stuck_rank.process: stuck_rank for stuck_rank in unfinished(trace)},
        program_end(trace),
    )
    for label, part in _ranks_of(trace, name):
        try:
            timeline = build_timeline(part, parse_window("gpu"), fold=True, find=False)
        except SelectionError:  # nothing to account for
            continue
        summary = _summary(timeline, label)
        if summary is not None:
            passing = unique(trace.process_of_thread[unique(part.messages.thread)]).tolist()
            stuck = ended.get(passing[0]) if len(passing) == 1 else None
            summaries.append(replace(summary, unfinished=stuck, program=program))
        elif len(part.messages):
            lost.append(f"{label} passes messages, but none of its time can be accounted for.")
    if not summaries:
        raise InputError(
            f"{name} holds no rank: no GPU work, and no annotated host thread.", "Capture with CUDA or NVTX."
        )
    if lost:
        summaries = [replace(damaged, warnings=(*damaged.warnings, *lost), is_damaged=True) for damaged in summaries]
    is_one_place = len(summaries) > 1 and trace.place.rank is not None and not trace.ranks
    return _of_one_place(summaries) if is_one_place else summaries


def _of_one_place(found: list[RankSummary]) -> list[RankSummary]:
    """One rank has helpers beside it; of several that meet others, what the report tells is a node's number."""
    meeting = [summary for summary in found if len(summary.meetings)]
    return meeting if len(meeting) == 1 else [replace(summary, rank=UNKNOWN, world_size=UNKNOWN) for summary in found]


def _ranks_of(trace: Trace, name: str) -> Iterator[tuple[str, Trace]]:
    operations = trace.operations
    pairs = [(int(process), int(device)) for process, device in factorize(operations.process, operations.device)[0]]
    passing = unique(trace.process_of_thread[unique(trace.messages.thread)]).tolist()
    if passing and not operations.is_communication.any():  # a rank of MPI is a process, whatever devices it drives
        first = dict(reversed(pairs))
        pairs = [(process, first.get(process, -1)) for process in passing]
    if not pairs:
        pairs = [(number, -1) for number in np.unique(trace.process_of_thread[trace.ranges.thread]).tolist()]
    of_process = [process for process, _ in pairs]
    for process, device in pairs:
        if process < 0:
            continue
        part, label = trace, name
        if len(pairs) > 1 or process in passing:
            pid = trace.processes[process].pid
            chosen: tuple[int, ...] = (trace.gpus[device].id,) if device >= 0 else ()
            label = f"{name} process {pid}" + (f" GPU {chosen[0]}" if of_process.count(process) > 1 else "")
            part = select(trace, chosen, (pid,))
        yield label, part


def _summary(timeline: Timeline, label: str) -> RankSummary | None:
    trace = timeline.trace
    if timeline.devices:
        device = timeline.devices[0]
        window, segments = (device.low_ns, device.high_ns), device.segments
        gpu = trace.gpus[device.index].name
    elif timeline.threads:
        account = max(timeline.threads, key=lambda thread: (thread.total_ns, -thread.thread))
        device, gpu, segments = None, "", account.segments
        window = int(segments.start_ns[0]), int(segments.end_ns[-1])
    else:
        return None
    pieces = _without_debits(timeline, segments)
    hosts = _host_meetings(timeline)
    pieces = _as_communication(pieces, hosts.inside)
    meetings, groups, kinds = _meetings(timeline, device, hosts)
    meetings = _once_set_up(meetings, pieces)
    regions, coarse, steps = _regions(timeline, device)
    start, end, cause, region = pieces
    table = Piece(start, end, cause, coarse[region].astype(np.int32))
    meetings = replace(meetings, region=coarse[meetings.region].astype(np.int32))
    begun = _own(timeline, device)
    meetings, events, work = compact(table, meetings, window, steps, begun)
    kernels = np.zeros(max(len(steps), 1), np.int64)
    if device is not None:
        edges = np.append(steps, np.iinfo(np.int64).max) if len(steps) else np.array(window)
        kernels = np.histogram(begun.start_ns[begun.kernel != 0], edges)[0].astype(np.int64)
    job_place = trace.place
    ranks = [
        trace.ranks[process]
        for process in unique(trace.process_of_thread[unique(trace.messages.thread)]).tolist()
        if process in trace.ranks
    ]
    return RankSummary(
        name=label,
        rank=ranks[0] if len(ranks) == 1 else _rank_of(label) if job_place.rank is None else job_place.rank,
        world_size=_world_size(trace),
        host=trace.machine.name or _machine_of(label),
        device=gpu,
        base_ns=trace.start_unix_ns or 0,
        clock=trace.path,
        how_it_runs=trace.how_it_runs,
        is_of_torch=trace.is_told_by_frames,
        window_ns=window,
        meetings=meetings,
        events=events,
        work=work,
        groups=groups,
        kinds=kinds,
        regions=regions,
        step_ns=steps,
        kernels=kernels,
        kinds_of_kernels=begun.kinds(),
        warnings=tuple(sorted({warning.message for warning in trace.warnings})),
        is_damaged=any(warning.code in (BROKEN_ROWS, UNBELIEVABLE) for warning in trace.warnings),
        begins_mpi=_begins_mpi(trace),
        slept_on=_slept_on(trace, pieces, _blocked_thread(segments) if device is not None else account.thread),
    )


def _blocked_thread(segments: Segments) -> int:
    """The thread that is blocked while the device idles; -1: several are."""
    of_host = is_any(segments.cause, (Cause.HOST_BLOCKED, Cause.SYNC)) & (segments.thread >= 0)
    threads = unique(segments.thread[of_host]).tolist()
    return int(threads[0]) if len(threads) == 1 else NOTHING


def _slept_on(trace: Trace, pieces: _Columns, thread: int) -> tuple[tuple[str, int], ...]:
    """What a thread slept on in the blocked time of an account, longest first; messages apart."""
    start, end, cause, _ = pieces
    blocked = cause == Cause.HOST_BLOCKED
    if thread == NOTHING or not blocked.any():
        return ()
    slept = [
        (what, int(CoveredTime(asleep).within(start[blocked], end[blocked]).sum()))
        for what, asleep in sleeps_of(trace, thread).items()
        if what != MESSAGES
    ]
    return tuple(sorted((item for item in slept if item[1]), key=lambda item: (-item[1], item[0])))


def _begins_mpi(trace: Trace) -> bool | None:
    """Whether the start of MPI is on record; None: no call of MPI is."""
    kinds = trace.message_kind[unique(trace.messages.name)]
    return bool((kinds == MessageKind.START).any()) if len(kinds) else None


def _world_size(trace: Trace) -> int:
    """Ranks of the job, as its environment or its largest communicator tells."""
    world_size = trace.place.world_size
    largest = max((communicator.size for communicator in trace.communicators), default=UNKNOWN)
    return max(largest, UNKNOWN) if world_size is None else world_size


def _rank_of(name: str) -> int:
    """The rank that a file or folder is named for: ``rank_3.sqlite``."""
    match = _NAMED.search(name)
    return int(match[1]) if match else UNKNOWN


def _machine_of(name: str) -> str:
    """The machine that PyTorch's profiler names a file for: ``machine_pid.time.pt.trace.json``."""
    return (worker_of(PurePath(name).name) or "").rpartition("_")[0]


_Columns = tuple[Int64Array, Int64Array, npt.NDArray[np.int8], npt.NDArray[np.int64]]


def _without_debits(timeline: Timeline, segments: Segments) -> _Columns:
    """The account's pieces. Idle time that it debits to a sync is told by what the host did meanwhile: between ranks
    the question is what differs, and the debit follows from that."""
    debited = (segments.cause == Cause.SYNC) & (segments.thread >= 0)
    kept = ~debited
    starts, ends = [segments.start_ns[kept]], [segments.end_ns[kept]]
    causes, regions = [segments.cause[kept]], [segments.region[kept].astype(np.int64)]
    for thread in np.unique(segments.thread[debited]).tolist():
        rows = np.flatnonzero(debited & (segments.thread == thread))
        start, end, row, state = cut(segments.start_ns[rows], segments.end_ns[rows], timeline.host_state.states(thread))
        state = np.where((state == ELSEWHERE) | (state == NOTHING), int(Cause.CPU), state)
        region = timeline.ownership.at(thread, start)
        region = np.where(state == Cause.SYNC, segments.region[rows[row]], region)
        full = end > start
        starts.append(start[full])
        ends.append(end[full])
        causes.append(state[full].astype(np.int8))
        regions.append(region[full])
    start = np.concatenate(starts)
    order = np.argsort(start, kind="stable")
    joined = (np.concatenate(column)[order] for column in (ends, causes, regions))
    end, cause, region = joined
    return start[order], end, cause, region


class _RankHosts(Struct, frozen=True):
    """Message passing of the host: when it is in any, and meetings of it that are known by their ranges' names."""

    inside: IntervalSet
    rows: npt.NDArray[np.int64]  # ranges
    names: list[str]


def _are_told(trace: Trace) -> bool:
    """Whether more than names is told of message passing, and the devices do not communicate themselves."""
    calls = trace.messages
    return bool(((calls.communicator >= 0) | (calls.peer >= 0)).any()) and not trace.operations.is_communication.any()


def _host_meetings(timeline: Timeline) -> _RankHosts:
    """What the host passes; nothing where the devices communicate."""
    trace = timeline.trace
    if _are_told(trace):
        return _RankHosts(passing_messages(timeline), np.empty(0, np.int64), [])
    wanted = {number for number, text in enumerate(trace.names) if _MESSAGE.match(text)}
    real = {number for number in wanted if trace.names[number].startswith("gloo:")}
    if real:  # what torch's own operators only ask for
        wanted = {number for number in wanted if not trace.names[number].startswith("c10d::")}
    if not wanted or trace.operations.is_communication.any():
        return _RankHosts(EMPTY, np.empty(0, np.int64), [])
    ranges = trace.ranges
    rows = np.flatnonzero(np.isin(ranges.name, sorted(wanted)) & (ranges.end_ns - ranges.start_ns >= _SHORTEST_NS))
    rows = rows[np.lexsort((-ranges.end_ns[rows], ranges.start_ns[rows]))]
    reach = np.maximum.accumulate(ranges.end_ns[rows]) if len(rows) else rows
    outer = rows[np.append(True, ranges.start_ns[rows][1:] >= reach[:-1])] if len(rows) else rows
    names = [trace.names[number] for number in ranges.name[outer].tolist()]
    return _RankHosts(union(ranges.start_ns[outer], ranges.end_ns[outer]), outer.astype(np.int64), names)


def _as_communication(pieces: _Columns, inside: IntervalSet) -> _Columns:
    """Inside the host's message passing, what neither computes nor starts something up is communication."""
    if not len(inside.start):
        return pieces
    edges = np.ravel(np.column_stack((inside.start, inside.end)))
    steps = StepFunction(edges, np.tile([1, NOTHING], len(inside.start)))
    first, last, row, talks = cut(pieces[0], pieces[1], steps)
    idle = (pieces[2][row] != Cause.GPU_COMPUTE) & (pieces[2][row] != Cause.INIT)  # copies in it are the messages'
    cause = np.where((talks == 1) & idle, np.int8(Cause.GPU_COMM), pieces[2][row]).astype(np.int8)
    return first, last, cause, pieces[3][row]


def _once_set_up(meetings: Meetings, pieces: _Columns) -> Meetings:
    """A call of the host, in which its library first starts something up (as UCX does, which registers memory with
    CUDA), can meet others from then on."""
    done_ns = np.append(pieces[1][pieces[2] == Cause.INIT], np.iinfo(np.int64).min)
    until = pick(done_ns, np.searchsorted(done_ns[:-1], meetings.end_ns, side="right") - 1, done_ns[-1])
    is_inside = (meetings.stream == UNKNOWN) & (until > meetings.start_ns)
    return replace(meetings, ready_ns=np.where(is_inside, np.maximum(meetings.ready_ns, until), meetings.ready_ns))


def _meetings(
    timeline: Timeline, device: DeviceTimeline | None, hosts: _RankHosts
) -> tuple[Meetings, tuple[RankGroup, ...], tuple[str, ...]]:
    """Communication kernels of the device, and collective calls of the host."""
    groups: dict[RankGroup, int] = {}
    kinds: dict[str, int] = {}
    parts = []
    if device is not None:
        parts.append(_device_meetings(timeline, device, groups, kinds))
    rows, names = hosts.rows, hosts.names
    if _are_told(timeline.trace):
        parts.append(message_meetings(timeline, groups, kinds))
    start, end = timeline.trace.ranges.start_ns[rows], timeline.trace.ranges.end_ns[rows]
    met = np.array([bool(_MEETING.match(name)) for name in names], bool)
    if met.any():
        count = int(met.sum())
        kept = [name for name, is_meeting in zip(names, met.tolist(), strict=True) if is_meeting]
        kind = [kinds.setdefault(name, len(kinds)) for name in kept]
        group = [groups.setdefault(RankGroup(PAIRS if is_passing(name) else EVERYBODY), len(groups)) for name in kept]
        parts.append(
            Meetings(
                start[met],
                end[met],
                start[met].copy(),
                np.full(count, -1, np.int64),
                np.array(group, np.int32),
                np.array(kind, np.int32),
                np.full(count, UNKNOWN, np.int64),
                np.full(count, UNKNOWN, np.int64),
                timeline.ownership.region_of(rows[met]).astype(np.int32),
            )
        )
    if not parts:
        return Meetings.empty(), (), ()
    columns = ([getattr(part, column) for part in parts] for column in Meetings.__struct_fields__)
    joined = Meetings(*(np.concatenate(column) for column in columns))
    return joined, tuple(groups), tuple(kinds)


def _device_meetings(
    timeline: Timeline, device: DeviceTimeline, groups: dict[RankGroup, int], kinds: dict[str, int]
) -> Meetings:
    trace, operations = timeline.trace, device.operations
    table = operations.table
    own = np.flatnonzero(table.is_communication & (table.end_ns > table.start_ns))
    collectives = trace.collectives
    row = table.collective[own]
    of_group, of_name, sequence = (
        pick(column, row, UNKNOWN) for column in (collectives.group, collectives.name, collectives.sequence)
    )
    # A few kinds of collectives happen thousands of times: what names say is asked once for each.
    node = pick(trace.graph_nodes.node, table.node[own], UNKNOWN)
    distinct, at = factorize(of_group, of_name, table.name[own], node)
    group_of, kind_of = np.zeros(len(distinct), np.int32), np.zeros(len(distinct), np.int32)
    in_graphs: dict[str, int] = {}
    for index in np.argsort(distinct[:, -1], kind="stable").tolist():
        process_group, named, name, of_node = distinct[index].tolist()
        shape = _KERNEL.search(trace.names[name]) if name >= 0 else None
        text = trace.names[named] if named >= 0 else shape[1] if shape else "collective"
        group_named = trace.process_groups[process_group] if process_group >= 0 else None
        group, kind = (
            RankGroup(group_named.name, group_named.ranks) if group_named is not None else RankGroup(""),
            _kind(text),
        )
        if group_named is None and of_node >= 0:  # nodes are numbered as the program made them, the same on all ranks
            nth = in_graphs[kind] = in_graphs.get(kind, 0) + 1
            group = RankGroup(f"{kind} {nth} of a graph")
        group_of[index] = groups.setdefault(group, len(groups))
        kind_of[index] = kinds.setdefault(kind, len(kinds))
    size = pick(trace.collective_bytes, row, UNKNOWN)
    start, end = table.start_ns[own], table.end_ns[own]
    needed = _needed(timeline, device, own)
    return Meetings(
        start,
        end,
        queued_ready(start, end, table.stream[own], needed),
        table.stream[own].astype(np.int64),
        group_of[at],
        kind_of[at],
        size,
        sequence.astype(np.int64),
        timeline.launch_region[operations.rows][own].astype(np.int32),
    )


def _kind(text: str) -> str:
    """One word for a collective, whatever spells it: allreduce, AllReduce, _allgather_base."""
    plain = text.lower().strip("_").removeprefix("nccl:").replace("_base", "").replace("_", "")
    return "sendrecv" if plain in ("send", "recv") else plain


def _needed(timeline: Timeline, device: DeviceTimeline, mine: npt.NDArray[np.intp]) -> Int64Array:
    """When each collective's launch had arrived and all that was launched before it beside communication had ended."""
    launched, ended = _launches(timeline, device, ~device.operations.table.is_communication)
    own = _launched_ns(timeline, device)[mine]
    before = np.searchsorted(launched, own, side="left") - 1
    needed: Int64Array = np.maximum(pick(ended, before, -(1 << 62)), own + LAUNCH_LIMIT_NS)
    return needed


def _own(timeline: Timeline, device: DeviceTimeline | None) -> Own:
    """What the device does beside communication."""
    if device is None:
        return Own.empty()
    table, names = device.operations.table, timeline.trace.names
    rows = np.flatnonzero(~table.is_communication)
    arrived = _launched_ns(timeline, device)[rows] + LAUNCH_LIMIT_NS
    used, of_row = ranked(np.where(table.kind[rows] == OpKind.KERNEL, table.name[rows], NOTHING))
    numbers = np.array([fingerprint(names[name_id]) if name_id >= 0 else 0 for name_id in used.tolist()], np.int64)
    return Own(table.start_ns[rows], arrived, numbers[of_row]).sorted()


def _launched_ns(timeline: Timeline, device: DeviceTimeline) -> Int64Array:
    """When each operation's launching call began; without one, the operation."""
    launched = pick(timeline.calls.start_ns, timeline.calls.of_operation[device.operations.rows], NOTHING)
    return np.where(launched == NOTHING, device.operations.table.start_ns, launched)


def _launches(
    timeline: Timeline, device: DeviceTimeline, wanted: npt.NDArray[np.bool_]
) -> tuple[Int64Array, Int64Array]:
    """Launches of these operations in order of time, and until when all that had been launched by each ran."""
    rows = np.flatnonzero(wanted)
    launched = _launched_ns(timeline, device)[rows]
    order = np.argsort(launched, kind="stable")
    ended = device.operations.table.end_ns[rows[order]]
    return launched[order], np.maximum.accumulate(ended) if len(ended) else ended


def _regions(
    timeline: Timeline, device: DeviceTimeline | None
) -> tuple[tuple[tuple[str, ...], ...], npt.NDArray[np.int64], Int64Array]:
    """Regions as far as ranks share them: their paths, the place of each of the trace's regions among them, and when
    each step begins on the device (without one: on the host)."""
    regions, trace = timeline.ownership.regions, timeline.trace
    candidates = timeline.step_candidates
    details = map(_is_detail, regions.name, regions.domain)
    named = [
        candidate._replace(path=()) if is_detail else candidate
        for candidate, is_detail in zip(candidates, details, strict=True)
    ]
    step = find_steps(named, candidates[ROOT])
    base = int(regions.depth[step]) if step is not None else 0
    kept: dict[tuple[str, ...], int] = {(): 0}
    coarse = np.zeros(len(regions), np.int64)
    for region in range(1, len(regions)):
        above = int(regions.parent[region])
        name, domain = regions.name[region], regions.domain[region]
        is_within = name in trace.operator_names and regions.depth[region] != base + 1
        if regions.depth[region] > base + _DEPTH or _is_detail(name, domain) or is_within:
            coarse[region] = coarse[above]
            continue
        path = (*list(kept)[coarse[above]], name)
        coarse[region] = kept.setdefault(path, len(kept))
    steps = np.empty(0, np.int64)
    if step is not None:
        rows = np.flatnonzero(regions.of_range == step)
        start = trace.ranges.start_ns[rows]
        if device is not None:
            begun = timeline.projected_end_ns[rows] >= timeline.projected_start_ns[rows]
            launched, ended = _launches(timeline, device, device.operations.table.start_ns > NOTHING)
            before = pick(ended, np.searchsorted(launched, start[begun], side="left") - 1, device.low_ns)
            # What a step waits for before its first work is its own, once all work before it is done.
            start = np.minimum(timeline.projected_start_ns[rows][begun], np.maximum(start[begun], before))
        steps = np.unique(start)
    return tuple(kept), coarse, steps


def _is_detail(name: str, domain: str) -> bool:
    """Ranges of operators and libraries, which tell no part of the program."""
    return bool(_OPERATOR.search(name)) or is_library(domain)
