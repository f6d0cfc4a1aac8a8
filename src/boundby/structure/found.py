"""Regions for programs that have none: iterations and phases found in the launches, as ranges of their own domain.

Only for a process of whose launches no NVTX range of its own covers any (ranges that libraries such as NCCL open about
themselves do not count). Steps of a server are told by what they do (`server_steps`), in a process with other ranges,
too. The ranges go to the leader of the logical thread that launches most; other threads borrow them as they borrow
annotated ones. All that follows (regions, account, verdicts, what-if) treats them like any.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.correlation.correlate import Calls
from boundby.correlation.logical_threads import LogicalThreads
from boundby.model.arrays import (
    Int8Array,
    Int64Array,
    in_order,
    is_any,
    is_even,
    is_in,
    marked,
    median,
    pick,
    places,
    ranked,
    unique,
)
from boundby.model.intervals import IntervalSet, contains, union
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, CROWD, HABIT, NOTABLE, SMALL
from boundby.structure.loop_detection import LEAST_LAUNCHES, DetectedLoop, find_loop
from boundby.structure.steps import find_changes
from boundby.trace.tables import Direction, OpKind, Trace
from boundby.trace.vocabulary.cuda import CallClass
from boundby.trace.vocabulary.range_names import (
    Kind,
    fold_name,
    found_step,
    is_step,
    is_told_by_grid,
    kind_of_attention,
)

# Steps of a server of language models whose program names none, found in its launches.
#
# A server waits once a step, for the tokens of this one or of the one before: what is launched between two waits is a
# step if it holds a kernel of attention, or launches a CUDA graph. That it is a server, kernels of attention tell
# that serve prompts or decoding alone, or graphs beside other attention; and nothing is trained. A step's kind is
# that of its attention: where kernels decode alone, other attention serves prompts. One that launches a single graph
# decodes (engines capture a whole step for decoding only), and steps of different graphs have different sizes. A step
# whose kind is not told stays one of unknown kind.

_ATTENTION = expression(r"attention|attn|flash_fwd|fmha|(?<![a-z])mla(?![a-z])", re.IGNORECASE)
_OF_PROMPTS = expression(r"flash_fwd|fmha|flash_?attn_?fwd", re.IGNORECASE)
_TRAINS = expression(r"backward|bwd|dgrad|wgrad|adam|sgd|optimizer", re.IGNORECASE)
DECODES, SERVES_PROMPTS = range(1, 3)  # what an operation of attention does; 0: none is told
_Bools = npt.NDArray[np.bool_]


class ServerStep(Struct, frozen=True):
    """Launches ``first`` to before ``stop``, and what the step is called."""

    first: int
    stop: int
    name: str


class _RanForLaunches(Struct, frozen=True):
    """Of each launch, in order: what ran for it."""

    decodes: _Bools
    prefills: _Bools
    attends: _Bools
    is_graph: _Bools
    uploads: _Bools  # nothing but copies to the device, and sets
    reads: _Bools  # copies to the host
    graph: Int64Array  # which one, by its first node; -1: none, or not told


def server_steps(
    trace: Trace, calls: Calls, launches: npt.NDArray[np.intp], syncs_before: Int64Array
) -> list[ServerStep]:
    """The steps in these launches (rows of calls, in order); none where it is no server. ``syncs_before``: how often
    the host had waited before each."""
    seen = _seen(trace, calls, launches)
    if seen is None or not (seen.attends | seen.is_graph).any():
        return []
    bounds = _bounds(seen, syncs_before)
    read = [int(seen.reads[first:stop].sum()) for first, stop in itertools.pairwise(bounds)]
    if read and read[0] > median(read):  # before the first wait there may be two
        bounds = bounds[1:]
    if len(bounds) - 1 < HABIT:
        return []
    pieces = list(itertools.pairwise(bounds))
    kinds = [_kind(seen, first, stop) for first, stop in pieces]
    graphs = [
        _graph(seen, first, stop) if kind == "decode" else -1 for kind, (first, stop) in zip(kinds, pieces, strict=True)
    ]
    order = list(dict.fromkeys(graph for graph in graphs if graph >= 0))
    return [
        ServerStep(first, stop, found_step(kind, order.index(graph) if graph >= 0 and len(order) > 1 else None))
        for kind, graph, (first, stop) in zip(kinds, graphs, pieces, strict=True)
    ]


def kinds_of_attention(trace: Trace, rows: npt.NDArray[np.intp]) -> Int8Array:
    """Of each of these operations: `DECODES`, `SERVES_PROMPTS`, or 0: no attention, or of either."""
    table, kinds = trace.operations, np.zeros(len(rows), np.int8)
    name = np.where(table.kind[rows] == OpKind.KERNEL, table.name[rows], -1)
    for number in unique(name[name >= 0]).tolist():
        kind, rows_of = kind_of_attention(trace.names[number]), np.flatnonzero(name == number)
        if kind is not None and is_told_by_grid(trace.names[number]):
            kinds[rows_of[pick(trace.shapes.grid_x, table.shape[rows[rows_of]], 0) == 1]] = DECODES
        elif kind is not None:
            kinds[rows_of] = DECODES if kind == "decode" else SERVES_PROMPTS
    return kinds


def may_serve(trace: Trace) -> bool:
    """Whether kernels of attention ran, and none that trains."""
    kernels = unique(trace.operations.name[trace.operations.kind == OpKind.KERNEL])
    names = [trace.names[number] for number in kernels.tolist() if number >= 0]
    attends = any(kind_of_attention(name) or _ATTENTION.search(name) for name in names)
    return attends and not any(map(_TRAINS.search, names))


def _seen(trace: Trace, calls: Calls, launches: npt.NDArray[np.intp]) -> _RanForLaunches | None:
    """None: it trains, or nothing shows that it serves."""
    table, names = trace.operations, trace.names
    index_of = np.full(len(calls) + 1, -1, np.int64)
    index_of[launches] = np.arange(len(launches))
    of = index_of[calls.of_operation]
    rows = np.flatnonzero(of >= 0)
    of, name = of[rows], table.name[rows]
    kernels = [number for number in unique(name[table.kind[rows] == OpKind.KERNEL]).tolist() if number >= 0]
    if any(_TRAINS.search(names[number]) for number in kernels):
        return None
    kind = kinds_of_attention(trace, rows)

    def marked(wanted: _Bools) -> _Bools:
        is_wanted = np.zeros(len(launches), bool)
        is_wanted[of[wanted]] = True
        return is_wanted

    def named(pattern: re.Pattern[str]) -> _Bools:
        return is_in(name, [number for number in kernels if pattern.search(names[number])])

    decodes, prefills = marked(kind == DECODES), marked(kind == SERVES_PROMPTS)
    if decodes.any():  # whatever generates does so by these: other attention, but for kernels of both, is of prompts
        prefills |= marked((kind == 0) & named(_OF_PROMPTS))
    attends = marked((kind > 0) | named(_ATTENTION))
    is_graph = np.array(["GraphLaunch" in names[number] for number in calls.name[launches].tolist()], bool)
    if not (decodes | prefills).any() and not (is_graph.any() and attends[~is_graph].any()):
        return None
    works = np.zeros(len(launches), bool)
    works[of[~((table.kind[rows] == OpKind.MEMSET) | (table.direction[rows] == Direction.HTOD))]] = True
    graph = np.full(len(launches), np.iinfo(np.int64).max)
    np.minimum.at(graph, of, np.where(table.node[rows] >= 0, table.node[rows], np.iinfo(np.int64).max))
    graph[graph == np.iinfo(np.int64).max] = -1
    reads = np.zeros(len(launches), bool)
    reads[of[table.direction[rows] == Direction.DTOH]] = True
    return _RanForLaunches(decodes, prefills, attends, is_graph, ~works, reads, graph)


def _bounds(seen: _RanForLaunches, syncs_before: Int64Array) -> list[int]:
    """Where steps begin, and where the last one ends: uploads belong to what follows, all else that is no step by
    itself to the step before."""
    starts = [0, *(np.flatnonzero(np.diff(syncs_before)) + 1).tolist(), len(syncs_before)]
    borders: list[int] = []
    begin: int | None = None  # of uploads that wait for their step
    for first, stop in itertools.pairwise(starts):
        piece = slice(first, stop)
        if (seen.attends[piece] | seen.is_graph[piece]).any():
            borders.append(first if begin is None else begin)
            begin = None
        elif seen.uploads[piece].all():
            begin = first if begin is None else begin
        else:
            begin = None
    return [*borders, len(syncs_before)] if borders else []


def _kind(seen: _RanForLaunches, first: int, stop: int) -> Kind | None:
    piece = slice(first, stop)
    decodes, prefills = bool(seen.decodes[piece].any()), bool(seen.prefills[piece].any())
    if decodes or prefills:
        return "mixed" if decodes and prefills else "decode" if decodes else "prefill"
    graphs = int(seen.is_graph[piece].sum())
    return "decode" if graphs == 1 and not seen.attends[piece][~seen.is_graph[piece]].any() else None


def _graph(seen: _RanForLaunches, first: int, stop: int) -> int:
    """The graph that a step launches, if it is one; -1: not told."""
    launched = seen.graph[first:stop][seen.is_graph[first:stop]]
    distinct, _ = ranked(launched)
    return int(distinct[0]) if len(distinct) == 1 else -1


FOUND_DOMAIN = "boundby (found)"

# A further loop, and a phase, must take this part of the launches (of the time) to be worth a name.
LEAST_LOOP = NOTABLE
_MOST_LOOPS = HABIT
# After the last iteration calls belong to it if they are done within so many times what usually follows an iteration.
MOST_REST = A_FEW_LINES


class _Launches(Struct, frozen=True):
    """The launches of one logical thread in order of time; ``call`` is the row of the launching call."""

    thread: int  # the one that leads
    call: npt.NDArray[np.intp]
    start_ns: Int64Array
    end_ns: Int64Array
    token: Int64Array
    syncs_before: Int64Array
    calls_start_ns: Int64Array  # of all its calls, ordered
    calls_end_ns: Int64Array  # the latest end of any of them so far


class _Found(NamedTuple):
    start_ns: int
    end_ns: int
    thread: int
    name: str


def add_found(trace: Trace, calls: Calls, logical_threads: LogicalThreads) -> Trace:
    """The trace with ranges for what repeats and what changes in un-annotated processes; itself if nothing does."""
    added: list[_Found] = []
    if len(calls) == 0 or len(trace.operations) == 0:
        return trace
    process = trace.process_of_thread
    launching = marked(calls.of_operation, len(calls))
    of_call = trace.process_of(calls.thread)
    for number in unique(of_call).tolist():
        is_own = launching if is_even(of_call) else launching & (of_call == number)
        if is_own.any():
            added += _found_in(trace, calls, logical_threads, is_own, process == number)
    return _with_ranges(trace, added) if added else trace


def _found_in(
    trace: Trace,
    calls: Calls,
    logical_threads: LogicalThreads,
    launching: npt.NDArray[np.bool_],
    of_process: npt.NDArray[np.bool_],
) -> list[_Found]:
    """What is found in the launches (a mask of calls) of one process (a mask of threads)."""
    is_annotated = _is_annotated(trace, of_process, calls.start_ns, launching)
    if is_annotated and (not may_serve(trace) or _names_steps(trace, of_process)):
        return []
    rows = np.flatnonzero(launching)
    launches = _launches(trace, calls, logical_threads, rows, _first_operations(trace, calls))
    steps, all_loops = _steps(trace, calls, launches)
    if is_annotated:
        return _among_ranges(trace, launches, steps, all_loops) if steps else []
    return all_loops or _name(trace, launches)


def is_found(domain: str) -> bool:
    """True for the domain of ranges that were found and not annotated."""
    return domain == FOUND_DOMAIN


def _first_operations(trace: Trace, calls: Calls) -> npt.NDArray[np.int64]:
    """The first operation that each call launched; -1 where it launched none."""
    first = np.full(len(calls), -1, np.int64)
    with_work = np.flatnonzero(calls.of_operation >= 0)
    with_work = with_work[in_order(trace.operations.start_ns[with_work])][::-1]
    first[calls.of_operation[with_work]] = with_work  # the last write wins: the earliest
    return first


def _is_annotated(
    trace: Trace, of_process: npt.NDArray[np.bool_], start_ns: Int64Array, launches: npt.NDArray[np.bool_]
) -> bool:
    """True if a range of the process, on whatever thread, is open at any of its launches."""
    ranges = trace.ranges
    own = pick(of_process, ranges.thread, False) & ~trace.in_library
    covered = union(ranges.start_ns[own], ranges.end_ns[own])
    parts = slice(CROWD), slice(CROWD, None)  # of most programs the first tell
    return any(bool((contains(covered, start_ns[part][launches[part]]) >= 0).any()) for part in parts)


def _names_steps(trace: Trace, of_process: npt.NDArray[np.bool_]) -> bool:
    """Whether a range of the process is named as a step of its program."""
    used, shapes = trace.range_names
    steps = used[np.array(shapes.told(lambda name: is_step(fold_name(name))), bool)]
    return bool(pick(of_process, trace.ranges.thread[is_in(trace.ranges.name, steps.tolist())], False).any())


def _launches(
    trace: Trace,
    calls: Calls,
    logical_threads: LogicalThreads,
    rows: npt.NDArray[np.intp],
    first_operation: npt.NDArray[np.int64],
) -> _Launches:
    """The launches of the logical thread that launches most."""
    leaders, counts = np.unique(logical_threads.leader[calls.thread[rows]], return_counts=True)
    leader = int(leaders[np.argmax(counts)])
    rows = rows[logical_threads.leader[calls.thread[rows]] == leader]
    rows = rows[np.lexsort((rows, calls.start_ns[rows]))]
    operations = trace.operations
    what = first_operation[rows]
    kind, direction = operations.kind[what].astype(np.int64), operations.direction[what].astype(np.int64)
    token = np.where(kind == OpKind.KERNEL, operations.name[what], -2 - (kind * 16 + direction + 1))
    members = np.flatnonzero(logical_threads.leader[calls.thread] == leader)
    members = members[np.lexsort((members, calls.start_ns[members]))]
    syncs = members[is_any(calls.kind[members], (CallClass.SYNC, CallClass.BLOCKING_COPY))]
    return _Launches(
        leader,
        rows,
        calls.start_ns[rows],
        calls.end_ns[rows],
        token.astype(np.int64),
        places(calls.start_ns[syncs], calls.start_ns[rows]).astype(np.int64),
        calls.start_ns[members],
        np.maximum.accumulate(calls.end_ns[members]),
    )


def _steps(trace: Trace, calls: Calls, launches: _Launches) -> tuple[list[ServerStep], list[_Found]]:
    """The steps of a server: each from its first launch to the last call before the next one's."""
    steps = server_steps(trace, calls, launches.call, launches.syncs_before)
    loops: list[_Found] = []
    for number, step in enumerate(steps):
        following = steps[number + 1].first if number + 1 < len(steps) else None
        until = launches.calls_start_ns[-1] + 1 if following is None else launches.start_ns[following]
        last = int(places(launches.calls_start_ns, np.array([until]))[0]) - 1
        start, end = int(launches.start_ns[step.first]), int(launches.calls_end_ns[last])
        end = end if following is None else min(end, int(launches.start_ns[following]))
        loops.append(_Found(start, max(end, start + 1), launches.thread, step.name))
    return steps, loops


def _among_ranges(trace: Trace, launches: _Launches, steps: list[ServerStep], found: list[_Found]) -> list[_Found]:
    """These steps with the ranges of their thread that are opened and closed in them; none where ranges reach from one
    step into the next, or where each step's launches lie in a range of its own: that is the step."""
    own = np.flatnonzero((trace.ranges.thread == launches.thread) & ~trace.ranges.is_start_end & ~trace.in_library)
    start, end = trace.ranges.start_ns[own], trace.ranges.end_ns[own]
    first = launches.start_ns[[step.first for step in steps]]
    last = launches.start_ns[[step.stop - 1 for step in steps]]
    at, beyond = places(first, start), places(first, end)  # the steps that begin in each range
    holds, holds_several, holds_one = beyond > at, beyond - at > 1, beyond - at == 1
    if bool((holds & (start <= np.append(np.iinfo(np.int64).min, last)[at])).any()):
        return []
    begin, edge, until = first.copy(), first.copy(), np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(begin, at[holds_one], start[holds_one])
    np.minimum.at(edge, at[holds], start[holds])
    for row in np.flatnonzero(holds_several).tolist():
        inside = slice(at[row], beyond[row])
        until[inside] = np.minimum(until[inside], end[row])
    covered = np.zeros(len(first), bool)
    covered[at[holds_one & (end > last[np.minimum(at, len(last) - 1)])]] = True
    if covered.all() or bool((until < last).any()):
        return []
    close = np.array([loop.end_ns for loop in found], np.int64)
    of_step = places(begin, start, side="right") - 1
    inner = (of_step >= 0) & ~holds_several
    np.maximum.at(close, of_step[inner], end[inner])
    until = np.minimum(until, np.append(edge[1:], np.iinfo(np.int64).max))
    return [
        loop._replace(start_ns=low, end_ns=high)
        for loop, low, high in zip(found, begin.tolist(), np.minimum(close, until).tolist(), strict=True)
    ]


def _name(trace: Trace, launches: _Launches) -> list[_Found]:
    """Iterations of every loop, and phases if there is more than one."""
    loops = _loops(launches, 0, len(launches.call), _MOST_LOOPS)
    letters = [f" {chr(ord('A') + number)}" for number in range(len(loops))] if len(loops) > 1 else [""]
    library = _library_ranges(trace, launches.thread)
    phases: list[_Found] = []
    for loop, letter in zip(loops, letters, strict=False):
        start, end = _times(launches, loop.begin, loop.end, library)
        phases += [
            _Found(low, high, launches.thread, f"iteration{letter}")
            for low, high in zip(start.tolist(), end.tolist(), strict=True)
        ]
    bounds = _phases(launches, loops)
    if len(bounds) > 1:
        begin = np.array([low for low, _ in bounds], np.int64)
        start, end = _times(launches, begin, np.array([high for _, high in bounds], np.int64), library)
        phases += [
            _Found(low, high, launches.thread, f"phase {chr(ord('A') + number)}")
            for number, (low, high) in enumerate(zip(start.tolist(), end.tolist(), strict=True))
        ]
    return phases


def _loops(launches: _Launches, low: int, high: int, most: int) -> list[DetectedLoop]:
    """The loop that most of these launches lie in, and loops before and after it, in order of time."""
    if most == 0 or high - low < max(LEAST_LAUNCHES, LEAST_LOOP * len(launches.call)):
        return []
    part = slice(low, high)
    tokens, start, syncs = launches.token[part], launches.start_ns[part], launches.syncs_before[part]
    loop = find_loop(tokens, start, syncs, from_start=low == 0)
    if loop is None or loop.launches < LEAST_LOOP * len(launches.call):
        return []
    loop = DetectedLoop(loop.begin + low, loop.end + low)
    before = _loops(launches, low, int(loop.begin[0]), most - 1)
    after = _loops(launches, int(loop.end[-1]), high, most - 1 - len(before))
    return [*before, loop, *after]


def _times(
    launches: _Launches, begin: Int64Array, end: Int64Array, library: IntervalSet
) -> tuple[Int64Array, Int64Array]:
    """When runs of launches begin and end on the host.

    A run begins with its first launching call. It ends where the next one begins if they meet, else with the last call
    that comes as soon after the run, and is done as soon, as after others (a wait for its results).
    """
    count = len(launches.call)
    start = launches.start_ns[begin].copy()
    inside = contains(library, start)
    # A library's range that encloses the launch belongs to the run: it is opened for it.
    if len(library.start):
        start = np.where(inside >= 0, library.start[np.maximum(inside, 0)], start)
    last = launches.end_ns[end - 1]
    following = np.append(begin[1:], count)
    meets = end == following
    meets[-1] = False
    rest = start[1:][meets[:-1]] - last[:-1][meets[:-1]]
    usual = int(median(rest)) if len(rest) else 0
    never = np.iinfo(np.int64).max
    next_launch = np.where(end < count, launches.start_ns[np.minimum(end, count - 1)], never)
    position = places(launches.calls_start_ns, np.minimum(next_launch, last + usual), side="left") - 1
    finish = np.minimum(launches.calls_end_ns[np.maximum(position, 0)], next_launch)
    # A wait for all runs together, after the last of them, is none of its own.
    finish = np.where(finish <= last + MOST_REST * usual, np.maximum(finish, last), last)
    finish[:-1] = np.where(meets[:-1], start[1:], np.minimum(finish[:-1], start[1:]))
    return start, np.maximum(finish, start + 1)


def _library_ranges(trace: Trace, thread: int) -> IntervalSet:
    """When the thread is inside a range that a library opened about itself."""
    is_own = (trace.ranges.thread == thread) & trace.in_library & ~trace.ranges.is_start_end
    return union(trace.ranges.start_ns[is_own], trace.ranges.end_ns[is_own])


def _phases(launches: _Launches, loops: list[DetectedLoop]) -> list[tuple[int, int]]:
    """Runs of launches (first, one past the last) that behave differently; fewer than two: nothing to tell apart."""
    edges = {0, len(launches.call)}
    position = 0
    for loop in [*loops, None]:
        stop = int(loop.begin[0]) if loop is not None else len(launches.call)
        if stop > position:
            changes = find_changes(launches.token[position:stop], launches.start_ns[position:stop])
            edges |= {position + change for change in changes}
        if loop is not None:
            edges |= {int(loop.begin[0]), int(loop.end[-1])}
            position = int(loop.end[-1])
    bounds = sorted(edges)
    return _merge_short(launches, bounds)


def _merge_short(launches: _Launches, bounds: list[int]) -> list[tuple[int, int]]:
    """Runs too short to be a phase join the longer of their neighbours."""
    time = np.append(launches.start_ns, launches.end_ns.max(initial=0))
    least = SMALL * (int(time[-1]) - int(time[0]))
    while len(bounds) > 2:
        length = np.diff(time[np.array(bounds)])
        short = int(np.argmin(length))
        if length[short] >= least:
            break
        left = short > 0 and (short == len(length) - 1 or length[short - 1] >= length[short + 1])
        del bounds[short if left else short + 1]
    return list(itertools.pairwise(bounds))


def _with_ranges(trace: Trace, found: list[_Found]) -> Trace:
    """The trace with these ranges added, all columns in the readers' order."""
    names = {name: number for number, name in enumerate(trace.names)}
    for item in found:
        names.setdefault(item.name, len(names))
    domains = (*trace.domains, FOUND_DOMAIN)
    old, count = trace.ranges, len(found)
    ranges = old.and_more(
        {
            "start_ns": np.array([item.start_ns for item in found], np.int64),
            "end_ns": np.array([item.end_ns for item in found], np.int64),
            "thread": np.array([item.thread for item in found], np.int32),
            "name": np.array([names[item.name] for item in found], np.int32),
            "domain": np.full(count, len(domains) - 1, np.int32),
            "is_start_end": np.zeros(count, bool),
            "is_open": np.zeros(count, bool),
        }
    )
    # Of ranges with equal bounds the phase encloses the iteration, and both what libraries open.
    rank = np.where(
        ranges.domain == len(domains) - 1,
        [0] * len(old) + [0 if item.name.startswith("phase") else 1 for item in found],
        2,
    )
    order = np.lexsort((rank, -ranges.end_ns, ranges.start_ns, ranges.thread))
    return replace(trace, ranges=ranges.take(order), names=tuple(names), domains=domains)
