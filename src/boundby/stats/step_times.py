"""Where the time of steps goes: of a program's, on each device, and of those of a server of language models.

A program's step begins with its range on the host, or when the step before is over on the device, and ends with its
range or its work, whichever is later. What lies between two steps is in neither.

The time from the begin of one step of a server to that of the next is cut where the device begins and ends its work
for it: host work before its first operation, the device at work, gaps in between, what the host does after, and the gap
to the next step. What idles before a first operation that is launched already, or inside a blocking call for longer
than the step works, counts apart: there the step waits for something else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.attribution.regions import project
from boundby.attribution.segments import Segments
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import Int64Array, is_any, pick, unique
from boundby.model.causes import BUSY_CAUSES, Cause
from boundby.model.intervals import NOTHING, CoveredTime, IntervalSet, any_of, complement, intersect, subtract, union
from boundby.model.scale import HALF
from boundby.results.report import StepBreakdown
from boundby.stats.device_figures import OperationSet
from boundby.stats.instances import KEPT, evenly, quantiles
from boundby.stats.work import sizes_of
from boundby.structure.found import DECODES, SERVES_PROMPTS, is_found, kinds_of_attention
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass
from boundby.trace.vocabulary.range_names import (
    BACKWARD,
    Kind,
    ServingStep,
    dimension_of_sequences,
    is_found_step,
    kind_of_found_step,
    serving_step,
)

_Rows = npt.NDArray[np.intp]
#: Why the device idles, as people who read step times ask: for input, for the host, for compilers and loading.
_PARTS = {
    "device_ns": tuple(BUSY_CAUSES),
    "input_ns": (Cause.HOST_BLOCKED,),
    "host_ns": (Cause.CPU, Cause.CUDA_API, Cause.SYNC),
    "compile_ns": (Cause.INIT,),
}


def program_steps(timeline: Timeline) -> _Rows:
    """The program's steps, in order of time: rows of its ranges; none where nothing is plainly the step."""
    region = timeline.step_region
    if region is None:
        return np.empty(0, np.intp)
    ranges = timeline.trace.ranges
    rows = np.flatnonzero((timeline.ownership.regions.of_range == region) & timeline.counted_ranges)
    return rows[np.lexsort((rows, ranges.start_ns[rows]))]


def step_of(timeline: Timeline, rows: _Rows, steps: _Rows) -> Int64Array:
    """The step that launched each operation (rows of the trace's), as its place among them; NOTHING: none did."""
    parent = timeline.ownership.regions.range_parent
    index_of = np.full(len(parent) + 1, NOTHING, np.int64)
    index_of[steps] = np.arange(len(steps))
    launched = timeline.launch_range[rows]
    used = unique(launched)  # of millions of operations many have one range
    above, step_index = used.astype(np.int64), np.full(len(used), NOTHING, np.int64)
    while (is_open := (above >= 0) & (step_index < 0)).any():  # as many turns as ranges are deep
        step_index[is_open] = index_of[above[is_open]]
        above[is_open] = parent[above[is_open]]
    of_range = np.full(len(parent) + 1, NOTHING, np.int64)  # the last: of no range
    of_range[used] = step_index
    return of_range[launched]


class MeasuredPace(Struct, frozen=True):
    """The steps of each device, in order of time; of many as many as are kept, evenly. ``total_ns``: of all of them;
    ``region``: theirs, NOTHING where nothing is plainly the step."""

    kept: tuple[StepBreakdown, ...] = ()
    total_ns: int = 0
    region: int = NOTHING


def steps_by_parts(timeline: Timeline, chosen: OperationSet) -> MeasuredPace:
    """Where the time of the program's steps goes. ``chosen``: all operations in the windows."""
    steps = program_steps(timeline)
    if not len(steps):
        return MeasuredPace()
    measured = [_breakdown_on(timeline, device, steps, chosen) for device in timeline.devices]
    return MeasuredPace(
        tuple(step for kept, _ in measured for step in kept),
        sum(total_ns for _, total_ns in measured),
        int(timeline.ownership.regions.of_range[steps[0]]),
    )


def _breakdown_on(
    timeline: Timeline, device: DeviceTimeline, steps: _Rows, chosen: OperationSet
) -> tuple[Sequence[StepBreakdown], int]:
    """Steps that are kept, and the time of all of them."""
    ranges = timeline.trace.ranges
    first, last = (time[steps] for time in _projected(timeline, device))
    kept = np.flatnonzero(last >= first)
    if not len(kept):
        return (), 0
    begin, end = bounds_of(ranges.start_ns[steps[kept]], ranges.end_ns[steps[kept]], first[kept], last[kept])
    begin, end = (np.clip(time, device.low_ns, device.high_ns) for time in (begin, end))
    parts = {name: _within(device.segments, causes, begin, end) for name, causes in _PARTS.items()}
    queued = _queued(timeline, device, chosen, steps)[kept]
    shown = np.flatnonzero(end > begin)
    shown = shown if len(shown) <= KEPT else shown[evenly(len(shown), KEPT)]
    made = [
        StepBreakdown(
            device=timeline.trace.gpus[device.index].id,
            start_ns=int(begin[at]) - device.shift.shift_ns,
            length_ns=int(end[at] - begin[at]),
            **{name: int(values[at]) for name, values in parts.items()},
            queue_median=None if np.isnan(queued[at]) else float(queued[at]),
        )
        for at in shown.tolist()
    ]
    return made, int((end - begin).sum())


def _projected(timeline: Timeline, device: DeviceTimeline) -> tuple[Int64Array, Int64Array]:
    """When the first and the last operation of each range begin and end on a device; the last before the first where it
    has none."""
    if len(device.operations.table) == len(timeline.trace.operations):
        return timeline.projected_start_ns, timeline.projected_end_ns
    rows = device.operations.rows
    return project(timeline.trace, timeline.calls, timeline.ownership.regions, timeline.launch_range, rows)


def bounds_of(
    begun: Int64Array, done: Int64Array, first: Int64Array, last: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """When steps begin and end: by their ranges on the host, and their first and last operations. Shape: (steps,)."""
    before = np.append(begun[:1], np.maximum.accumulate(last)[:-1])
    begin = np.minimum(np.maximum.accumulate(np.maximum(begun, before)), np.maximum(first, before))
    following = np.append(begin[1:], np.iinfo(np.int64).max)
    return begin, np.minimum(np.maximum(np.maximum(done, last), begin), np.maximum(following, begin))


def _within(segments: Segments, causes: Sequence[Cause], begin: Int64Array, end: Int64Array) -> Int64Array:
    chosen = is_any(segments.cause, [int(cause) for cause in causes])
    return CoveredTime(IntervalSet(segments.start_ns[chosen], segments.end_ns[chosen])).within(begin, end)


def _queued(timeline: Timeline, device: DeviceTimeline, chosen: OperationSet, steps: _Rows) -> npt.NDArray[np.float64]:
    """Operations launched and not yet begun: median over the launches of each step."""
    own = (timeline.trace.operations.device[chosen.rows] == device.index) & (chosen.queue >= 0)
    rows = np.arange(len(timeline.trace.operations))[chosen.rows][own]
    step = step_of(timeline, rows, steps)
    inside = step >= 0
    group, depth = step[inside], chosen.queue[own][inside]
    middle: npt.NDArray[np.float64]
    (middle,) = quantiles(group, depth, np.bincount(group, minlength=len(steps)), (0.5,))
    return middle


# PyTorch's attention, whose inputs are (batch, heads, length, width).
_SDPA = ("aten::scaled_dot_product_attention", "aten::_scaled_dot_product")
_QUERY_DIMENSIONS = 4
# What the host is to blame for; the rest of a gap inside a step is the device's own.
_OF_HOST = (Cause.SYNC, Cause.CUDA_API, Cause.INIT, Cause.CPU, Cause.HOST_BLOCKED)


class StepSize(Struct, frozen=True):
    """How many requests a step serves, and on how many tokens it works; None: not told."""

    requests: int | None = None
    tokens: int | None = None


class MeasuredSteps(Struct, frozen=True, dict=True):
    """The steps of one process on one device, in order of time; columns of one row a step."""

    device: DeviceTimeline
    workers: int  # processes that have such steps
    engines: tuple[str, ...]  # whose names they have
    overlaps: bool  # the host goes on to the next one without waiting for this one's work, in most
    ranges: npt.NDArray[np.intp]  # rows of the trace's ranges
    told: tuple[ServingStep | None, ...]  # by their names; None: they have none
    kinds: tuple[Kind | None, ...]
    sizes: tuple[StepSize, ...]
    begin_ns: Int64Array
    work_ns: Int64Array  # when the first and the last operation are over: shape (2, steps)
    head_ns: Int64Array
    busy_ns: Int64Array  # the device works until the next step begins
    inside_ns: Int64Array
    tail_ns: Int64Array
    gap_ns: Int64Array  # of the last step: 0
    waited_ns: Int64Array
    hidden_ns: Int64Array
    graph_fraction: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.begin_ns)

    @cached_property
    def step_ns(self) -> Int64Array:
        """Each step without the gap after it."""
        return self.head_ns + self.busy_ns + self.inside_ns + self.tail_ns


def measure_steps(timeline: Timeline) -> MeasuredSteps | None:
    """The steps of the process whose steps work longest; None: no step of a server is found."""
    trace = timeline.trace
    names = [trace.names[number] for number in trace.ranges.name.tolist()]
    steps_named = {row: step for row, name in enumerate(names) if (step := serving_step(name)) is not None}
    rows, inmost = _nested(timeline, np.array(sorted(steps_named), np.intp))
    if not len(rows):
        rows = np.flatnonzero(
            np.array([is_found(domain) for domain in trace.domains] or [False], bool)[trace.ranges.domain]
            & np.array([is_found_step(name) for name in trace.names] or [False], bool)[trace.ranges.name]
        )
    if not len(rows) and (region := timeline.step_region) is not None:
        rows = np.flatnonzero(timeline.ownership.regions.of_range == region)
    rows = rows[np.argsort(trace.ranges.start_ns[rows], kind="stable")]
    process = trace.process_of_thread[trace.ranges.thread[rows]]
    measured = [
        _measured(timeline, device, rows[process == number], steps_named)
        for number in unique(process).tolist()
        for device in timeline.devices
    ]
    every = [times for times in measured if times is not None]
    if not every:
        return None
    best = max(every, key=lambda times: (int(times.busy_ns.sum()), -int(times.ranges[0])))
    workers = len({int(trace.process_of_thread[trace.ranges.thread[times.ranges[0]]]) for times in every})
    engines = sorted(
        {steps_named[row].engine for row in inmost.tolist()}
    )  # tools that wrap an engine's steps use other names
    return replace(best, workers=workers, engines=tuple(engines))


def _nested(timeline: Timeline, rows: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of these ranges those that lie in none of the others, and those in which none of the others lies."""
    parent = timeline.ownership.regions.range_parent
    around, above = np.full(len(rows), -1, np.int64), parent[rows]
    while (above >= 0).any():  # as many turns as ranges are deep
        is_step = np.isin(above, rows)
        around = np.where((around < 0) & is_step, above, around)
        above = np.where(above >= 0, parent[above], -1)
    return rows[around < 0], rows[~np.isin(rows, around)]


def _measured(
    timeline: Timeline, device: DeviceTimeline, rows: npt.NDArray[np.intp], told: dict[int, ServingStep]
) -> MeasuredSteps | None:
    """The steps of one process on one device; None: they launch nothing there."""
    trace, calls = timeline.trace, timeline.calls
    host = trace.ranges.start_ns[rows], trace.ranges.end_ns[rows]
    own = device.operations
    call = calls.of_operation[own.rows]
    launched = np.flatnonzero(call >= 0)
    process = trace.process_of_thread[trace.ranges.thread[rows[:1]]]
    launched = launched[np.isin(own.table.process[launched], process)]
    at = calls.start_ns[call[launched]]
    step = np.searchsorted(host[0], at, side="right") - 1
    inside = (step >= 0) & (at < host[1][step])
    launched, step = launched[inside], step[inside]
    if not len(launched):
        return None
    start, end = own.table.start_ns[launched], own.table.end_ns[launched]
    first = np.full(len(rows), np.iinfo(np.int64).max)
    last = np.full(len(rows), -1, np.int64)
    np.minimum.at(first, step, start)
    np.maximum.at(last, step, end)
    kept = np.flatnonzero(last >= 0)
    first, last, begun, done = first[kept], last[kept], host[0][kept], host[1][kept]

    before = np.append(begun[0], np.maximum.accumulate(last)[:-1])
    cut = np.minimum(np.maximum.accumulate(np.maximum(begun, before)), np.maximum(first, before))
    work_begin = np.maximum(first, cut)
    until = np.append(cut[1:], max(int(last[-1]), int(done[-1])))
    work_end = np.clip(last, work_begin, np.maximum(until, work_begin))
    host_end = np.clip(done, work_end, np.maximum(until, work_end))

    low, high = int(cut[0]), int(until[-1]) + 1
    idle = complement(device.busy, low, high)
    idles = CoveredTime(idle)
    is_blocking = np.isin(calls.kind, (CallClass.SYNC, CallClass.BLOCKING_COPY))
    is_blocking &= np.isin(trace.process_of_thread[calls.thread], process)
    closing = np.full(len(rows), -1, np.int64)
    np.maximum.at(closing, step, at[inside])
    ahead = _ahead(begun, closing[kept], last, *(times[is_blocking] for times in (calls.start_ns, calls.end_ns)))
    opening = np.full(len(rows), np.iinfo(np.int64).max)
    np.minimum.at(opening, step, calls.end_ns[call[launched]])
    # A device that does not begin what is launched is busy with what is not on record, and was so before.
    arrived = np.where(opening[kept] + LAUNCH_LIMIT_NS < work_begin, cut, work_begin)
    inside_calls = intersect(idle, union(calls.start_ns[is_blocking], calls.end_ns[is_blocking]))
    busy = (until - cut) - idles.within(cut, until)
    of_step = np.maximum(np.searchsorted(cut, inside_calls.start, side="right") - 1, 0)
    long = inside_calls.end - inside_calls.start > busy[of_step]
    waiting = any_of((IntervalSet(inside_calls.start[long], inside_calls.end[long]), union(arrived, work_begin)))
    waits = CoveredTime(intersect(idle, waiting))
    pieces = device.segments.between(low, high)
    of_host = np.isin(pieces.cause, _OF_HOST)
    blamed = union(pieces.start_ns[of_host], pieces.end_ns[of_host])
    device_idle = CoveredTime(subtract(subtract(idle, blamed), waiting))

    waited = [waits.within(cut, work_begin), waits.within(work_begin, work_end)]
    gap = idles.within(host_end, until)
    gap[-1] = 0
    inside_ns = idles.within(work_begin, work_end)
    is_graph = _from_graphs(timeline, device)[launched]
    graph = np.bincount(step, (end - start) * is_graph, len(rows))[kept]
    whole = np.bincount(step, end - start, len(rows))[kept]
    steps = tuple(told.get(row) for row in rows[kept].tolist())
    kinds = _kinds(timeline, device, launched, np.searchsorted(kept, step), steps)
    kinds_named = [kind_of_found_step(trace.names[number]) for number in trace.ranges.name[rows[kept]].tolist()]
    asked = [()] * len(kept) if any(told) else _queries(timeline, rows[kept])
    kinds = tuple(
        own or kind or _kind_of_queries(queries) for own, kind, queries in zip(kinds_named, kinds, asked, strict=True)
    )
    decoded = _decoded(timeline, device, launched[~is_graph], np.searchsorted(kept, step[~is_graph]), len(kept))
    sizes = tuple(
        StepSize(step_told.requests, step_told.tokens)
        if step_told is not None
        else _size_of_queries(queries) or by_grid
        for step_told, queries, by_grid in zip(steps, asked, decoded, strict=True)
    )
    return MeasuredSteps(
        device=device,
        workers=1,
        engines=(),
        overlaps=float(ahead.mean()) > HALF if len(ahead) else False,
        ranges=rows[kept],
        told=steps,
        kinds=kinds,
        sizes=tuple(
            size if named is not None or kind != "mixed" else StepSize()
            for size, named, kind in zip(sizes, steps, kinds, strict=True)
        ),
        begin_ns=cut,
        work_ns=np.stack((work_begin, work_end)),
        head_ns=idles.within(cut, work_begin) - waited[0],
        busy_ns=busy,
        inside_ns=inside_ns - waited[1],
        tail_ns=idles.within(work_end, host_end),
        gap_ns=gap,
        waited_ns=waited[0] + waited[1],
        hidden_ns=busy + device_idle.within(work_begin, work_end),
        graph_fraction=np.divide(graph, whole, out=np.zeros(len(kept)), where=whole > 0),
    )


def _ahead(
    begun: Int64Array, closing: Int64Array, last: Int64Array, start: Int64Array, end: Int64Array
) -> npt.NDArray[np.bool_]:
    """Which steps, but for the last one, the host leaves behind while the device works on them: the next one is begun
    by then, or the last call that blocks before that (``start`` to ``end``) returns by then. ``closing``: when the last
    launch of each is made."""
    order = np.argsort(start, kind="stable")
    start, returned = start[order], np.append(-1, np.maximum.accumulate(end[order]))
    low, high = np.searchsorted(start, closing[:-1]), np.searchsorted(start, begun[1:])
    is_ahead: npt.NDArray[np.bool_] = (begun[1:] < last[:-1]) | ((high > low) & (returned[high] < last[:-1]))
    return is_ahead


def _from_graphs(timeline: Timeline, device: DeviceTimeline) -> npt.NDArray[np.bool_]:
    """Per operation of the device: whether a launch of a CUDA graph ran it."""
    calls = timeline.calls
    call = calls.of_operation[device.operations.rows]
    is_launch = np.array(["GraphLaunch" in name for name in timeline.trace.names], bool)
    by_graph = np.append(is_launch[calls.name], False)[call]
    from_graph: npt.NDArray[np.bool_] = by_graph | (device.operations.table.kind == OpKind.GRAPH)
    return from_graph


def _kinds(
    timeline: Timeline,
    device: DeviceTimeline,
    launched: npt.NDArray[np.intp],
    step: npt.NDArray[np.intp],
    told: Sequence[ServingStep | None],
) -> tuple[Kind | None, ...]:
    """The kind of each step: by its name, else by its kernels of attention."""
    if all(named is not None for named in told):
        return tuple(named.kind for named in told if named is not None)
    serves = kinds_of_attention(timeline.trace, launched + device.operations.rows.start)
    seen: list[set[Kind]] = [set() for _ in told]
    kinds: tuple[tuple[int, Kind], ...] = ((DECODES, "decode"), (SERVES_PROMPTS, "prefill"))
    for number, kind in kinds:
        for at in unique(step[serves == number]).tolist():
            seen[at].add(kind)
    by_kernels = (None if not own else "mixed" if len(own) > 1 else next(iter(own)) for own in seen)
    return tuple(kind if named is None else named.kind for named, kind in zip(told, by_kernels, strict=True))


def _decoded(
    timeline: Timeline, device: DeviceTimeline, launched: npt.NDArray[np.intp], step: npt.NDArray[np.intp], count: int
) -> list[StepSize]:
    """Of each of so many steps the sequences that it decodes, by the grids of its kernels of attention: a token each.
    (``launched``: one by one. Graphs are captured for sizes that batches are padded to.)"""
    table, shapes, names = device.operations.table, timeline.trace.shapes, timeline.trace.names
    dimension = {
        name: axis
        for name in unique(table.name[launched]).tolist()
        if name >= 0 and (axis := dimension_of_sequences(names[name])) is not None
    }
    seen: list[set[int]] = [set() for _ in range(count)]
    for name, axis in dimension.items():
        rows = np.flatnonzero(table.name[launched] == name)
        sizes = pick((shapes.grid_x, shapes.grid_y)[axis], table.shape[launched[rows]], 0)
        for at, size in zip(step[rows].tolist(), sizes.tolist(), strict=True):
            seen[at].add(size)
    return [StepSize(*[*sizes] * 2) if len(sizes) == 1 and 0 not in sizes else StepSize() for sizes in seen]


_Query = tuple[int, int]


def _queries(timeline: Timeline, steps: npt.NDArray[np.intp]) -> list[tuple[_Query, ...]]:
    """Of each step the distinct queries of PyTorch's attention, by the sizes of its inputs: sequences, and tokens of
    each. None where nothing is told, or the program trains."""
    trace, ranges = timeline.trace, timeline.trace.ranges
    if any(name.startswith(BACKWARD) for name in trace.names):
        return [()] * len(steps)
    attends = np.array([name.startswith(_SDPA) for name in trace.names] or [False], bool)
    rows = np.flatnonzero(attends[ranges.name])
    queries: list[tuple[_Query, ...]] = []
    for step in steps.tolist():
        inside = rows[(ranges.thread[rows] == ranges.thread[step]) & (ranges.start_ns[rows] >= ranges.start_ns[step])]
        inside = inside[ranges.start_ns[inside] < ranges.end_ns[step]]
        asked = {query for row in inside.tolist() if (query := _query(sizes_of(trace, row)[0])) is not None}
        queries.append(tuple(sorted(asked)))
    return queries


def _kind_of_queries(queries: tuple[_Query, ...]) -> Kind | None:
    """A query of one token for each sequence decodes, a longer one is a prompt."""
    kinds: set[Kind] = {"decode" if length == 1 else "prefill" for _, length in queries}
    return None if not kinds else "mixed" if len(kinds) > 1 else kinds.pop()


def _size_of_queries(queries: tuple[_Query, ...]) -> StepSize | None:
    """Prompts of one batch are padded to the longest: of several the tokens are not told."""
    if len(queries) != 1:
        return None
    ((sequences, length),) = queries
    return StepSize(sequences, sequences * length if sequences == 1 or length == 1 else None)


def _query(sizes: str) -> _Query | None:
    """Of attention with inputs of these sizes (batch, heads, length, width): sequences, and tokens of each."""
    try:
        query = json.loads(sizes or "[]")[0]
    except (ValueError, IndexError, TypeError, KeyError):
        return None
    is_query = (
        isinstance(query, list) and len(query) == _QUERY_DIMENSIONS and all(isinstance(size, int) for size in query)
    )
    return (query[0], query[2]) if is_query else None
