"""Idle time for which the host's own work or sleep is to blame, and the one rule that speaks of each piece. In a trace
without GPU work: what the annotated threads do.

Waiting for input comes first (its regions say so), then libraries that set themselves up (`lazy-initialization` tells
of them), then single long stretches (a phase that runs on the CPU), then work and sleep in between calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import DeviceTimeline
from boundby.correlation.cpu_evidence import sleeps_of
from boundby.evidence.code_lines import UNKNOWN, Hotspot, are_sampled, hottest
from boundby.evidence.context import Bool, CannotCheckError, Int, Rows, RuleContext, SavingNs, once
from boundby.evidence.feeders import (
    FEEDING,
    SATURATED,
    is_held_by_input,
    keeps_up_with_steps,
    started_processes,
    workers,
)
from boundby.evidence.latecomers import MESSAGE_NAME
from boundby.evidence.transfers import batch_uploads
from boundby.model.arrays import (
    compact,
    group_counts,
    group_sums,
    in_order,
    into_groups,
    is_any,
    is_even,
    largest,
    marked,
    median,
    merged,
    pick,
    ranked,
    spread,
    taken,
    thin,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.intervals import NOTHING, CoveredTime, IntervalSet, contains, nearest, overlay, subtract, union
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, HABIT, HALF, LIST, MANY, MOST, NEARLY_ALL, QUARTER, SEVERAL, SMALL
from boundby.model.units import duration
from boundby.replay.predictor import MODEL_ERROR
from boundby.results.report import Example
from boundby.stats.host import paged_gaps
from boundby.structure.found import is_found
from boundby.trace.program import ProgramKind
from boundby.trace.vocabulary.range_names import INPUT_NAME, is_operator

# A pace that comes from outside: work arrives every so often, whatever the GPU and the host do meanwhile.

# Fewer arrivals do not tell a clock from chance.
LEAST_ARRIVALS = MANY
# A step takes as long as the work in it and what that waits for, so that it varies by as much as the work does. A
# period that varies by less than this part of it keeps to something else.
FOLLOWS = QUARTER
# Of the periods: so many hold work of the GPU, else the arrivals are not what it works on.
MOST_PERIODS = MOST


class Pace(Struct, frozen=True):
    """``thread`` wakes every ``period_ns``, ``periods`` times between ``low_ns`` and ``high_ns``. Of each the GPU works
    for ``gpu_ns``, and the busiest thread on record (``busiest``) for ``host_ns``."""

    thread: int
    period_ns: int
    periods: int
    low_ns: int
    high_ns: int
    gpu_ns: int
    busiest: int
    host_ns: int


@once
def external_pace(context: RuleContext) -> Pace | None:
    """The pace that something outside of the program sets (a camera, a sender, a timer); None where there is none, or
    where context switches do not tell. A thread wakes ever again after the same time, though the work between two
    arrivals varies by far more; neither the GPU nor any thread fills that time, and no sleep on purpose makes it."""
    trace = context.trace
    if not context.timeline.devices or not trace.captured.cpu_scheduling:
        return None
    calling = set(unique(trace.process_of_thread[unique(context.calls.thread)]).tolist())
    threads = unique(trace.schedule.thread).tolist()
    arrivals = {thread: _arrivals(context, thread) for thread in threads if trace.threads[thread].process in calling}
    arrivals = {thread: of_thread for thread, of_thread in arrivals.items() if len(of_thread) >= LEAST_ARRIVALS}
    if not arrivals:
        return None
    on_cpu = {thread: _on_cpu(context, thread) for thread in threads}
    paces = [pace for thread, each in arrivals.items() if (pace := _pace_of(context, thread, each, on_cpu)) is not None]
    return min(paces, key=lambda pace: (-pace.periods, pace.thread), default=None)


def _on_cpu(context: RuleContext, thread: int) -> IntervalSet:
    on_cpu = context.timeline.host_state.evidence(thread).on_cpu
    return on_cpu if on_cpu is not None else union(np.empty(0, np.int64), np.empty(0, np.int64))


def _pace_of(context: RuleContext, thread: int, arrivals: Int, on_cpu: Mapping[int, IntervalSet]) -> Pace | None:
    low, high = arrivals[:-1], arrivals[1:]
    worked = {number: CoveredTime(each).within(low, high) for number, each in on_cpu.items()}
    worked_ns = {number: int(each.sum()) for number, each in worked.items()}
    gpu = np.max([CoveredTime(device.busy).within(low, high) for device in context.timeline.devices], axis=0)
    length = high - low
    whole_ns = int(length.sum())
    busiest = max(worked_ns, key=lambda number: worked_ns[number])
    is_filled = worked_ns[busiest] > SATURATED * whole_ns or int(gpu.sum()) > HALF * whole_ns
    if is_filled or (gpu > 0).mean() < MOST_PERIODS:
        return None
    if not _varies_by(length) < FOLLOWS * _varies_by(np.sum([*worked.values()], axis=0) + gpu):
        return None
    period_ns = round(median(length))
    return Pace(
        thread,
        period_ns,
        len(length),
        int(arrivals[0]) - period_ns,
        int(arrivals[-1]) + period_ns,
        gpu_ns=int(gpu.sum()) // len(length),
        busiest=busiest,
        host_ns=worked_ns[busiest] // len(length),
    )


def _arrivals(context: RuleContext, thread: int) -> Int:
    """When a thread wakes from its long sleeps inside the devices' windows, if always after the same time; none where
    it sleeps on purpose."""
    devices = context.timeline.devices
    low, high = min(device.low_ns for device in devices), max(device.high_ns for device in devices)
    asleep = context.timeline.host_state.evidence(thread).asleep
    inside = (asleep.end > low) & (asleep.end < high)
    start, end = asleep.start[inside], asleep.end[inside]
    length = end - start
    if len(length) < LEAST_ARRIVALS:
        return length[:0]
    is_long = length >= HALF * np.sort(length)[-LEAST_ARRIVALS]
    if (on_purpose := sleeps_of(context.trace, thread).get("sleep")) is not None:
        slept_ns = CoveredTime(on_purpose).within(start[is_long], end[is_long])
        if int(slept_ns.sum()) > HALF * int(length[is_long].sum()):
            return length[:0]
    arrivals: Int = end[is_long]
    period = np.diff(arrivals)
    return arrivals if _varies_by(period) < FOLLOWS * median(period) else arrivals[:0]


def _varies_by(values: Int) -> float:
    """How far the middle one of these is off their median."""
    return float(median(np.abs(values - median(values))))


#: What to advise of a thread that sleeps in a call which only lets time pass.
ON_PURPOSE = (
    "Wait for an event or a condition variable instead of sleeping: a program that polls with sleep() notices what it "
    "waits for up to one sleep too late"
)

# One stretch is a phase of its own from this share of the window, if no more than so many are half as long: many alike
# are what every step does, and no phase.
PHASE_SHARE, PHASE_ALIKE = SMALL, HABIT
# What a reader takes in: more places than this stand as one, more functions are not named.
MOST_PLACES, MOST_HOTSPOTS = LIST, A_FEW_LINES
# Pieces that are this much of a region's host time stand for all of it.
MOST_OF = NEARLY_ALL
# Between two steps: of at least so many, and in this share of them, else it is no matter of each step.
LEAST_STEPS, MOST_STEPS = HABIT, HALF
# A thread that sleeps for this share of the time between two of its calls does nothing of its own there.
SLEPT_THROUGH = MOST


class Idleness(IntEnum):
    """What the host does while a device idles, and so which rule speaks of it."""

    INPUT = 0  # fetches its next batch, or waits for it
    PHASE = 1  # one long stretch of its own
    WORK = 2
    WAIT = 3
    SETUP = 4  # a library sets itself up
    BETWEEN = 5  # from one step of a PyTorch program to the next, where nothing says what it does
    PAGES = 6  # touches managed memory that lies on the GPU, page after page
    PACE = 7  # is done until work arrives, at a pace that something outside sets
    FIRST = 8  # fetches the first batch of many, which has no work to hide behind: of no rule, and in no saving
    OPERATOR = 9  # an operator of PyTorch computes on the CPU


class HostPieces(Struct, frozen=True, dict=True):
    """Idle pieces of all devices, by start; of one thread none at the same time. ``call``: the call that ended the
    interval (row of ``context.calls``), NOTHING at the end; below NOTHING a number for each interval that no call
    ends: without GPU work for each stretch that a thread spends in one region."""

    start_ns: Int
    end_ns: Int
    cause: npt.NDArray[np.int8]
    region: Int  # the innermost that is the user's, no operator
    thread: npt.NDArray[np.integer]
    call: Int
    kind: npt.NDArray[np.int8]  # Idleness
    batch_bytes: Int  # of the upload for which the GPU idles until then, where one begins step after step; else 0
    regions: Int  # by region of the tree: the user's own one around it

    @cached_property
    def length_ns(self) -> Int:
        return self.end_ns - self.start_ns

    @cached_property
    def total_of_region(self) -> Int:
        """By region of the tree: the time of its pieces."""
        return group_sums(self.region, self.length_ns, len(self.regions))

    def of_kind(self, kind: Idleness) -> Rows:
        return np.flatnonzero(self.kind == kind)

    def total_ns(self, rows: Rows) -> int:
        return int(self.length_ns[rows].sum())

    def threads_of(self, rows: Rows) -> list[int]:
        """The threads of these pieces, ascending."""
        threads: list[int] = unique(self.thread[rows[:1] if is_even(self.thread) else rows]).tolist()
        return threads

    def of_thread(self, rows: Rows, thread: int) -> Rows:
        """Those of these pieces that are a thread's."""
        own: Rows = rows if is_even(self.thread) else rows[self.thread[rows] == thread]
        return own

    def intervals(self, rows: Rows) -> IntervalSet:
        return union(self.start_ns[rows], self.end_ns[rows])

    def asleep(self, rows: Rows) -> Rows:
        """Those of these pieces in which the host sleeps."""
        asleep: Rows = rows[self.cause[rows] == Cause.HOST_BLOCKED]
        return asleep


class Place(Struct, frozen=True):
    """Pieces of one region, or of several places that are told as one."""

    region: int
    rows: Rows
    total_ns: int
    times: int  # intervals between two calls: a gap can hold several pieces
    parts: tuple[Place, ...] = ()  # the places that it stands for, most time first; empty: only itself


@once
def host_pieces(context: RuleContext) -> HostPieces:
    """All pieces, each with the rule that speaks of it. CannotCheckError where nothing tells what the host did."""
    if not len(context.calls) and context.timeline.devices:
        raise CannotCheckError("the trace holds no CUDA API calls, so nothing shows what the host did")
    columns: list[list[npt.NDArray[Any]]] = [[np.empty(0, np.int64)] * 8]
    for device in context.timeline.devices:
        parts = device.segments
        of_host = np.flatnonzero(is_any(parts.cause, (Cause.CPU, Cause.HOST_BLOCKED)))
        of_host = of_host[parts.thread[of_host] >= 0]
        own = (parts.start_ns, parts.end_ns, parts.cause, parts.region, parts.thread)
        columns_of_starts = _library_starts(context, device)
        chosen: list[Int] = [column[of_host].astype(np.int64) for column in own]
        if len(columns_of_starts[0]):
            chosen = [np.concatenate(pair) for pair in zip(chosen, columns_of_starts, strict=True)]
        of_gaps = compact(paged_gaps(context.timeline, device)), compact(batch_uploads(context, device))
        gap = spread(0, len(chosen[0])) if all(map(is_even, of_gaps)) else device.gaps.at(chosen[0])
        columns.append([*chosen, _next_call(context, device, chosen[1]), *(taken(column, gap) for column in of_gaps)])
    regions = _user_regions(context)
    if not context.timeline.devices:
        columns += _of_threads(context, regions)
    filled = [column for column in columns if len(column[0])] or columns[:1]
    joined = filled[0] if len(filled) == 1 else [np.concatenate(column) for column in zip(*filled, strict=True)]
    order = in_order(joined[0], joined[1], joined[4])
    columns_in_order = [column[order] for column in joined]
    if len(filled) > 1 and context.timeline.devices:
        columns_in_order = _once_a_thread(columns_in_order)
    start, end, cause, region, thread, call, is_page, batch_bytes = columns_in_order
    region, thread = regions[region], thin(thread)
    is_message = np.array([bool(MESSAGE_NAME.search(name)) for name in context.tree.name], bool)
    messages = is_message[region] if is_message.any() else spread(False, len(region), np.bool_)
    kind = np.where((cause == Cause.CPU) & ~messages, np.int8(Idleness.WORK), np.int8(Idleness.WAIT))
    if context.timeline.devices:  # else there is no next launch that could be late
        _, stretch = ranked(np.maximum(call, NOTHING))
        lengths = group_sums(stretch, end - start, int(stretch.max(initial=-1)) + 1)
        long = np.flatnonzero(lengths >= PHASE_SHARE * context.longest_window_ns)
        alike = np.array([np.count_nonzero(lengths >= lengths[row] // 2) for row in long.tolist()], np.int64)
        is_phase = np.zeros(len(lengths), bool)
        is_phase[long[alike <= PHASE_ALIKE]] = True
        kind[is_phase[stretch] & ~messages] = Idleness.PHASE
        kind[cause == Cause.INIT] = Idleness.SETUP
        kind[is_page > 0] = Idleness.PAGES
    work = np.flatnonzero(is_any(kind, (Idleness.WORK, Idleness.PHASE)))
    kind[work[_in_operators(context, start[work])]] = Idleness.OPERATOR
    kind[context.regions_where(INPUT_NAME.search)[region] | _takes_next(context, start, thread)] = Idleness.INPUT
    pieces = HostPieces(start, end, cause.astype(np.int8, copy=False), region, thread, call, kind, batch_bytes, regions)
    others = is_any(kind, (Idleness.WAIT, Idleness.WORK, Idleness.PHASE)) & ~messages
    kind[_fed(context, pieces, np.flatnonzero(others))] = Idleness.INPUT
    others = is_any(kind, (Idleness.WAIT, Idleness.WORK)) & ~messages
    of_steps = _outside_of_parts(context)[region] & _among_steps(context, end)
    kind[others & (batch_bytes > 0) & of_steps] = Idleness.INPUT
    others = is_any(kind, (Idleness.WAIT, Idleness.WORK)) & ~messages
    kind[_between_steps(context, pieces, np.flatnonzero(others))] = Idleness.BETWEEN
    if (pace := external_pace(context)) is not None:
        others = is_any(kind, (Idleness.WAIT, Idleness.WORK, Idleness.BETWEEN, Idleness.INPUT))
        kind[others & (end > pace.low_ns) & (start < pace.high_ns)] = Idleness.PACE
    kind[_for_first_batch(context, pieces)] = Idleness.FIRST
    return pieces


def _in_operators(context: RuleContext, start_ns: Int) -> Bool:
    """Which of these instants lie in an operator that computes on the CPU."""
    rows, ranges = operators_on_cpu(context), context.trace.ranges
    if not context.timeline.devices or not len(rows):
        return np.zeros(len(start_ns), bool)
    inside: Bool = contains(union(ranges.start_ns[rows], ranges.end_ns[rows]), start_ns) >= 0
    return inside


def _once_a_thread(columns: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Pieces by start, without the time in which several devices idle for the same thread: it does that once."""
    start, end, thread = columns[0].copy(), columns[1], columns[4]
    for number in unique(thread).tolist():
        own = np.flatnonzero(thread == number)
        start[own[1:]] = np.maximum(start[own[1:]], np.maximum.accumulate(end[own])[:-1])
    kept = np.flatnonzero(start < end)
    kept = kept[in_order(start[kept], end[kept], thread[kept])]
    return [start[kept], *(column[kept] for column in columns[1:])]


def _takes_next(context: RuleContext, start_ns: Int, thread: npt.NDArray[Any]) -> Bool:
    """Mask over pieces: those that begin while an iterator written in Python gives the next element."""
    frames, takes = context.trace.frames, np.zeros(len(start_ns), bool)
    for number in unique(thread).tolist() if len(frames) else ():
        own = np.flatnonzero(thread == number)
        takes[own] = contains(frames.within(number, "__next__"), start_ns[own]) >= 0
    return takes


def _library_starts(context: RuleContext, device: DeviceTimeline) -> list[Int]:
    """Start, end, cause, region and thread of the initialization in a device's account in which a thread sets a library
    up, between its calls: these count by themselves."""
    parts, calls = device.segments, context.calls
    rows = np.flatnonzero((parts.cause == Cause.INIT) & (parts.thread >= 0))
    columns_of: list[list[Int]] = [[np.empty(0, np.int64)] * 5]
    for thread in unique(parts.thread[rows]).tolist():
        starting, own = context.timeline.host_state.starting(thread), calls.rows_of(thread)
        members = rows[parts.thread[rows] == thread] if len(starting.start) else rows[:0]
        if len(members):
            between = subtract(starting, IntervalSet(calls.start_ns[own], calls.end_ns[own]))
            pieces = overlay(between, IntervalSet(parts.start_ns[members], parts.end_ns[members]))
            of = members[pieces.right]
            columns = (pieces.start, pieces.end, parts.cause[of], parts.region[of], parts.thread[of])
            columns_of.append([column.astype(np.int64) for column in columns])
    return [np.concatenate(column) for column in zip(*columns_of, strict=True)]


def _for_first_batch(context: RuleContext, pieces: HostPieces) -> Rows:
    """Where steps repeat, the wait for input before any device works, if it is too short for a phase of its own."""
    rows, step = pieces.of_kind(Idleness.INPUT), context.timeline.step_region
    first_work_ns = [int(device.operations.table.start_ns.min()) for device in context.timeline.devices]
    if step is None or not first_work_ns:
        return rows[:0]
    rows = rows[pieces.end_ns[rows] <= min(first_work_ns)]
    steps = int((context.timeline.ownership.regions.of_range == step).sum())
    is_short = pieces.total_ns(rows) < PHASE_SHARE * context.longest_window_ns
    return rows if steps >= LEAST_STEPS and is_short else rows[:0]


def _outside_of_parts(context: RuleContext) -> Bool:
    """Mask over regions: those whose names do not say what the host does there: the root, the step and what is around
    it, and all that were found, not annotated."""
    tree, step = context.tree, context.timeline.step_region
    around = (
        {ROOT} if step is None else {ROOT, *(number for number in range(len(tree)) if context.subtree(number)[step])}
    )
    return np.array([number in around or is_found(domain) for number, domain in enumerate(tree.domain)], bool)


def _among_steps(context: RuleContext, end_ns: Int) -> Bool:
    """Mask over pieces that end at these instants: those in the time in which the program's steps repeat; all, where it
    has no steps. What is uploaded before them is no batch, but what the program begins with."""
    step, ranges = context.timeline.step_region, context.trace.ranges
    rows = np.flatnonzero(context.timeline.ownership.regions.of_range == (NOTHING if step is None else step))
    if step is None or not len(rows):
        return np.ones(len(end_ns), bool)
    among: Bool = (end_ns >= ranges.start_ns[rows].min()) & (end_ns <= ranges.end_ns[rows].max())
    return among


def _of_threads(context: RuleContext, users: Int) -> list[list[npt.NDArray[Any]]]:
    """Start, end, cause, region, thread and stretch of what the annotated threads do, for each of them."""
    stretches, taken = [], 0
    for account in context.timeline.threads:
        parts = account.segments
        of_host = is_any(parts.cause, (Cause.CPU, Cause.HOST_BLOCKED))
        own = (parts.start_ns, parts.end_ns, parts.cause, parts.region, parts.thread)
        kept = slice(None) if of_host.all() else of_host
        chosen = [column[kept] for column in own]
        start, end, _, region, _ = chosen
        begins, of_user = np.ones(len(start), bool), users[region]
        begins[1:] = (start[1:] != end[:-1]) | (of_user[1:] != of_user[:-1])
        stretch = np.cumsum(begins) + taken
        stretches.append([*chosen, NOTHING - stretch, *[np.zeros(len(start), np.int64)] * 2])
        taken = int(stretch.max(initial=taken))
    return stretches


def _between_steps(context: RuleContext, pieces: HostPieces, rows: Rows) -> Bool:
    """Mask over pieces: of these rows those in which a PyTorch program is between one step and the next, in no range
    that says why; and this in most steps. What most such programs do there is to fetch the next batch."""
    between = np.zeros(len(pieces.kind), bool)
    step = context.timeline.step_region if context.program.kind == ProgramKind.TORCH and len(rows) else None
    if step is None:
        return between
    ranges, tree = context.trace.ranges, context.tree
    steps = np.flatnonzero(context.timeline.ownership.regions.of_range == step)
    around = {ROOT, *(region for region in range(len(tree)) if context.subtree(region)[step] and region != step)}
    first, last = int(ranges.end_ns[steps].min()), int(ranges.start_ns[steps].max())
    inside = (pieces.start_ns[rows] >= first) & (pieces.end_ns[rows] <= last)
    rows = rows[inside & np.isin(pieces.region[rows], sorted(around))]
    starts = merged(ranges.start_ns[steps])
    held = unique(np.searchsorted(starts, pieces.start_ns[rows]))
    if len(steps) >= LEAST_STEPS and len(held) >= MOST_STEPS * (len(steps) - 1):
        between[rows] = True
    return between


def _user_regions(context: RuleContext) -> Int:
    """For each region the innermost around it (or itself) that is no framework operator's."""
    tree = context.tree
    is_user = [not is_operator(name) or INPUT_NAME.search(name) is not None for name in tree.name[1:]]
    return nearest(tree.parent, np.array([True, *is_user]))


def _next_call(context: RuleContext, device: DeviceTimeline, end: Int) -> Int:
    """The first call that begins at or after each instant, by the threads that launch what ends the gap there; NOTHING
    in the last gap, a number below for each other one that nobody's launch ends.

    Not the piece's own thread: a data feeder computes, and the launching thread's next call waits for it.
    """
    calls, leaders = context.calls, context.timeline.logical_threads.leader
    gap = device.gaps.at(end - 1)
    following = NOTHING - (len(device.gaps) - 1 - gap).astype(np.int64)
    launch = pick(calls.of_operation, device.gaps.operation[gap], NOTHING)
    wanted = pick(leaders, pick(calls.thread, launch, NOTHING), NOTHING)
    for number in unique(wanted[wanted >= 0]).tolist():
        of_threads = [calls.rows_of(thread) for thread in np.flatnonzero(leaders == number).tolist()]
        rows = np.concatenate([np.arange(calls_of.start, calls_of.stop) for calls_of in of_threads])
        rows = rows[in_order(calls.start_ns[rows])]
        chosen = wanted == number
        following[chosen] = np.append(rows, NOTHING)[np.searchsorted(calls.start_ns[rows], end[chosen], side="left")]
    return following


def _fed(context: RuleContext, pieces: HostPieces, rows: Rows) -> Bool:
    """Mask over pieces: of these rows those in which the program waits for what other processes or threads make,
    whatever its ranges are called. Where OS calls say what a thread sleeps on: regions in which the launching thread
    mostly polls while a process without CUDA calls computes. And everywhere: intervals between two calls of a thread
    that sleeps through them, while processes of the program's own name (a loader's workers) or threads that make
    batches compute, unless one of the processes only starts there."""
    fed = np.zeros(len(pieces.kind), bool)
    waits = rows[pieces.kind[rows] == Idleness.WAIT]
    asleep = pieces.asleep(waits)
    for region in unique(pieces.region[asleep]).tolist():
        inside = asleep[pieces.region[asleep] == region]
        total = pieces.total_ns(inside)
        if total < context.least_ns or _slept_on(context, pieces, inside).get("poll", 0) < FEEDING * total:
            continue
        if any(worker.is_process and worker.busy >= FEEDING for worker in workers(context, pieces.intervals(inside))):
            fed[waits[pieces.region[waits] == region]] = True
    if not len(context.calls):
        return fed
    # A long stretch inside a range of the program is a phase, which the range names.
    is_named = (pieces.kind[rows] == Idleness.PHASE) & (pieces.region[rows] != ROOT)
    waits = rows[(pieces.call[rows] >= 0) & ~is_named]
    for thread in unique(context.calls.thread[pieces.call[waits]]).tolist():
        held = waits[context.calls.thread[pieces.call[waits]] == thread]
        slept = CoveredTime(context.timeline.host_state.evidence(thread).asleep)
        held_ns = (pieces.end_ns - pieces.start_ns)[held]
        slept_ns = slept.within(pieces.start_ns[held], pieces.end_ns[held])
        _, stretch = np.unique(pieces.call[held], return_inverse=True)
        share = np.bincount(stretch, slept_ns) / np.maximum(np.bincount(stretch, held_ns), 1)
        held = held[share[stretch] >= SLEPT_THROUGH]
        inside_waits = pieces.intervals(held)
        if inside_waits.total < context.least_ns or started_processes(context, inside_waits):
            continue
        is_fed = any(worker.is_feeder and worker.busy >= FEEDING for worker in workers(context, inside_waits))
        if is_fed or keeps_up_with_steps(context, inside_waits):
            fed[held] = True
    return fed


def places(context: RuleContext, rows: Rows) -> list[Place]:
    """The pieces by region, most time first: every region that holds enough by itself, and one place for the rest."""
    pieces = host_pieces(context)
    region = pieces.region[rows]
    total = group_sums(region, pieces.length_ns[rows], len(context.tree))
    large = np.flatnonzero(total >= context.least_ns)
    large = large[np.lexsort((large, -total[large]))][:MOST_PLACES]
    group_of_region = np.full(len(context.tree), len(large), np.int32)  # the last: the rest
    group_of_region[large] = np.arange(len(large))
    group = group_of_region[region]
    count = group_counts(group, len(large) + 1)
    *of_large, rest = np.split(into_groups(group, rows, count), np.cumsum(count)[:-1])
    by_region = [
        Place(number, region_rows, int(total[number]), _count_stretches(pieces, region_rows))
        for number, region_rows in zip(large.tolist(), of_large, strict=True)
    ]
    if pieces.total_ns(rest) >= context.least_ns:
        by_region.append(place_at(context, context.place(pieces.region[rest], pieces.length_ns[rest]), rest))
    return by_region


def place_at(context: RuleContext, region: int, rows: Rows, parts: tuple[Place, ...] = ()) -> Place:
    """These pieces as one place."""
    pieces = host_pieces(context)
    return Place(region, rows, pieces.total_ns(rows), _count_stretches(pieces, rows), parts)


def _count_stretches(pieces: HostPieces, rows: Rows) -> int:
    """How many different intervals pieces lie in, by the call that ends each; where no call does, two that follow on
    each other are one."""
    call = pieces.call[rows]
    if len(call) and int(call.max()) < NOTHING:
        is_apart = pieces.start_ns[rows][1:] != pieces.end_ns[rows][:-1]
        return int(np.count_nonzero(is_apart & (call[1:] != call[:-1]))) + 1
    if _is_descending(call):
        return int(np.count_nonzero(call[1:] != call[:-1])) + 1
    return len(unique(call))


def _stretches(call: Int) -> tuple[Int, Int]:
    """The different intervals, ascending, and which of them each piece lies in."""
    if not _is_descending(call):
        return ranked(call)
    changes = np.append(True, call[1:] != call[:-1])
    distinct = call[changes][::-1]
    return distinct, len(distinct) - np.cumsum(changes)


def _is_descending(call: Int) -> bool:
    """True for the stretches of one thread, in order of time."""
    return len(call) > 0 and not (call[1:] > call[:-1]).any()


@once
def behind_input(context: RuleContext) -> str:
    """What to add to a title where processes that make the input set the pace: nothing is sure to be saved then by
    fewer launches, so that the low end of a saving is none. Empty elsewhere."""
    try:
        pieces = host_pieces(context)
    except CannotCheckError:
        return ""
    waits = [pieces.intervals(input_place.rows) for input_place in places(context, pieces.of_kind(Idleness.INPUT))]
    return " (worth it once the GPU no longer waits for input)" if is_held_by_input(context, waits) else ""


def saving(context: RuleContext, place: Place) -> SavingNs:
    """What the program would save without these stretches of work and sleep: of all such time in the region, where the
    pieces are most of it, else of the intervals that they lie in."""
    pieces = host_pieces(context)
    inside = np.zeros(len(pieces.regions), bool)
    inside[pieces.region[place.rows]] = True  # several, where places are told as one
    causes = host_causes(pieces, place.rows)
    if place.total_ns >= MOST_OF * int(pieces.total_of_region[inside].sum()):
        replayed = context.saving(causes, regions=inside[pieces.regions])
    else:
        replayed = context.saving(causes, calls=ending_calls(pieces, place.rows))
        if replayed is not None and (behind_ns := pieces.total_ns(_behind_all_work(context, place.rows))):
            replayed = round(replayed[0] + (1 - MODEL_ERROR) * behind_ns), replayed[1] + behind_ns
    low, high = replayed or (0, place.total_ns)
    # Host time that the GPU hides goes with the intervals as well; the finding speaks of the idle time only.
    return min(low, place.total_ns), min(high, place.total_ns)


def _behind_all_work(context: RuleContext, rows: Rows) -> Rows:
    """Those of these pieces that no device works after: no call ends them, and nothing hides them."""
    gaps = [device.gaps for device in context.timeline.devices]
    if not all(len(each) and each.operation[-1] < 0 for each in gaps):
        return rows[:0]
    last_ns = max(int(each.start_ns[-1]) for each in gaps)
    behind: Rows = rows[host_pieces(context).start_ns[rows] >= last_ns]
    return behind


def host_causes(pieces: HostPieces, rows: Rows) -> list[str]:
    """Keys of the causes that these pieces have."""
    causes = pieces.cause[rows]
    return [cause.key for cause in (Cause.CPU, Cause.HOST_BLOCKED) if (causes == cause).any()]


def ending_calls(pieces: HostPieces, rows: Rows) -> Rows:
    """The calls that end these pieces."""
    calls = pieces.call[rows]
    return calls[calls >= 0]


def slept_on(context: RuleContext, rows: Rows) -> dict[str, int]:
    """What the threads slept on in these pieces, by the OS runtime calls that they were in; largest first."""
    return dict(sorted(_slept_on(context, host_pieces(context), rows).items(), key=lambda item: (-item[1], item[0])))


def _slept_on(context: RuleContext, pieces: HostPieces, rows: Rows) -> dict[str, int]:
    slept_ns: dict[str, int] = {}
    for thread in pieces.threads_of(rows):
        of_thread = pieces.of_thread(rows, thread)
        for kind, asleep in sleeps_of(context.trace, thread).items():
            if inside := int(CoveredTime(asleep).within(pieces.start_ns[of_thread], pieces.end_ns[of_thread]).sum()):
                slept_ns[kind] = slept_ns.get(kind, 0) + inside
    return slept_ns


def hot_functions(context: RuleContext, rows: Rows, threads: Iterable[int] | None = None) -> tuple[Hotspot, ...]:
    """The sampled functions in which the host was meanwhile: the program's own Python ones, else the innermost that
    are no plumbing; none where so few samples fall there that chance decides. ``threads`` None: those of the pieces."""
    if not are_sampled(context.trace):
        return ()
    pieces = host_pieces(context)
    chosen = sorted(set(pieces.threads_of(rows)) if threads is None else set(threads))
    inside = pieces.intervals(rows)
    for level in ("python", "user"):
        spots = hottest(context.trace, chosen, inside, limit=MOST_HOTSPOTS, level=level)
        named = tuple(spot for spot in spots if spot.symbol != UNKNOWN)
        if named and named[0].samples >= named[0].share * SEVERAL:
            return named
    return ()


def is_seen(context: RuleContext) -> bool:
    """Whether the trace tells if the host computed or slept; else its own code is all that can be said."""
    captured = context.trace.captured
    return captured.cpu_scheduling or captured.osrt or captured.cpu_samples or len(context.trace.python_frames) > 0


def is_in_operators(context: RuleContext) -> bool:
    """Whether all that is known of the host's own work is the framework's operators in which it lies."""
    return context.trace.is_told_by_frames and not is_seen(context)


def examples(context: RuleContext, rows: Rows, does: str) -> tuple[Example, ...]:
    """The longest intervals between two calls, each with all its pieces together, and the call that ended it.
    ``does``: what the host does there, as the title says it (``sleeps``)."""
    pieces = host_pieces(context)
    calls, index = _stretches(pieces.call[rows])
    length, start = group_sums(index, pieces.length_ns[rows], len(calls)), np.full(len(calls), np.iinfo(np.int64).max)
    np.minimum.at(start, index, pieces.start_ns[rows])
    shown = []
    for number in largest(length, 3, start).tolist():
        until = f" until {context.call_name(int(calls[number]))}" if calls[number] >= 0 else " until the end"
        what = f"the host {does}{until if calls[number] >= NOTHING else ''}"
        shown.append(Example(int(start[number]), int(length[number]), what))
    return tuple(shown)


def times(context: RuleContext, place: Place, threads: int = 1) -> str:
    """``53.2 ms in one stretch``, ``120 ms (100 times 1.20 ms)`` or, of uneven ones, ``141 ms (3 times, up to 95.7
    ms)``; of several threads together."""
    together = f"{threads} threads together" if threads > 1 else ""
    if place.times <= 1:
        return f"{duration(place.total_ns)} {together or 'in one stretch'}"
    pieces, mean_ns = host_pieces(context), place.total_ns // place.times
    calls, index = _stretches(pieces.call[place.rows])
    longest_ns = int(group_sums(index, pieces.length_ns[place.rows], len(calls)).max())
    each = f", up to {duration(longest_ns)}" if mean_ns < HALF * longest_ns else f" {duration(mean_ns)}"
    each = f"{place.times:,} times{each}"
    return f"{duration(place.total_ns)} ({each}{f', {together}' if together else ''})"


# Operators that compute: others only make views, allocate or dispatch, and take microseconds wherever they run.
_COMPUTES = expression(
    r"^aten::(?:_?(?:add?mm|baddbmm|bmm|mm|mv|dot|linear|matmul|einsum)|\w*conv\w*|\w*norm\w*|\w*softmax\w*|\w*loss\w*"
    r"|\w*pool\w*|\w*(?:sort|topk|unique\w*|nonzero|cumsum|cdist|histc|bincount|index\w*|gather|scatter\w*|masked_\w+)\d?"
    r"|sum|mean|std|var|max|min|argmax|argmin|prod|all|any|eq|ne|lt|gt|le|ge|where|clamp|add_?|sub_?|mul_?|div_?|pow|exp"
    r"|log|sqrt|sigmoid|tanh|relu_?|gelu|cat|stack|upsample\w*|interpolate|grid_sampler\w*|rand\w*|normal_|uniform_"
    r"|bernoulli_?|copy_|_fft\w*|stft|linalg_\w+)$"
)


@once
def operators_on_cpu(context: RuleContext) -> Rows:
    """Innermost operator ranges that compute, launch nothing and call no CUDA: rows of ``trace.ranges``."""
    trace, tree = context.trace, context.tree
    ranges = trace.ranges
    named = np.array([is_operator(name) and bool(_COMPUTES.match(name.partition(",")[0])) for name in tree.name], bool)
    chosen = named[tree.of_range] if len(ranges) else np.empty(0, bool)
    busy = marked(context.timeline.call_range, len(ranges))
    inside = np.flatnonzero(busy)
    while len(inside):  # what holds a CUDA call, directly or further in, works with the device
        above = marked(tree.range_parent[inside], len(ranges))
        inside = np.flatnonzero(above & ~busy)
        busy |= above
    chosen &= ~busy
    parent = tree.range_parent[np.flatnonzero(chosen)]
    outer = np.zeros(len(ranges), bool)
    outer[parent[parent >= 0]] = True
    rows: Rows = np.flatnonzero(chosen & ~outer)
    return rows
