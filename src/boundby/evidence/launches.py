"""Kernel launches in the order in which the host made them: which repeat, and which belong to an optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import RuleContext
from boundby.evidence.devicework import Bool, Int, Rows, device_work
from boundby.evidence.kernelruns import optimizer_kernels
from boundby.model.arrays import factorize
from boundby.model.causes import Cause
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass

# So many launches in a row, seen before, are the same code running again; fewer are met by chance.
GRAM = 8
# A sequence is worth a graph if it came at least so often ...
LEAST_TIMES = 3
# ... and holds so many launches.
LEAST_LAUNCHES = 10
# Graphs of more launches than this are cut: a loop of one kernel has no natural length.
MOST_LAUNCHES = 1_000
# A stretch begins anew if so many of its launches are those of the turn before.
ALIKE = 0.95
# Host time between two launches counts as the cost of launching up to this; beyond, the host did something else.
MOST_BETWEEN_NS = 1_000_000
# An optimizer that updates tensor by tensor launches at least so many kernels.
LEAST_OPTIMIZER = 40

# Repeated ranges around this share of the launches are the program's steps.
STEPS_SHARE = 0.8

_CAPTURABLE = (OpKind.KERNEL, OpKind.MEMSET)


class Part(IntEnum):
    """Whose launches these are: each belongs to one rule only."""

    REST = 0
    REPEATING = 1
    OPTIMIZER = 2


@dataclass(frozen=True)
class Launches:
    """One entry for each call in a window that launches exactly one kernel, by thread and time."""

    call: Rows  # rows of timeline.calls
    operation: Rows  # rows of trace.operations
    part: npt.NDArray[np.int8]  # Part
    gap_ns: Int  # from the launch before on this thread; -1 for a first one or after something else
    graphs: int  # graph launches that would take the place of the repeating ones
    units: tuple[tuple[int, int], ...]  # (kernel launches of a graph, how often it comes): what holds most first
    turns: int  # how often the first of these comes, with or without something in between
    interrupted: float  # share of the launches of no other part that lie in pieces too short for a graph
    part_of_call: npt.NDArray[np.int8]  # per row of timeline.calls: whose launch it is or leads up to, or -1

    def rows(self, part: Part) -> Rows:
        """Entries of one part."""
        return np.flatnonzero(self.part == part)

    def masks(self, context: RuleContext, part: Part) -> tuple[Bool, Bool]:
        """Masks over calls and operations of one part, as replay takes them."""
        operations = np.zeros(len(context.timeline.trace.operations), bool)
        operations[self.operation[self.part == part]] = True
        return self.part_of_call == part, operations

    def saving(self, context: RuleContext, part: Part, *causes: Cause) -> tuple[int, int]:
        """What launching these in no time would save (and running them, with GPU_COMPUTE among ``causes``): by replay,
        else at most their part of the account."""
        calls, operations = self.masks(context, part)
        found = context.saving(
            (Cause.CUDA_API.key, *(cause.key for cause in causes)), calls=calls, operations=operations
        )
        if found is not None:
            return found
        share = int((self.part == part).sum()) / max(len(self.part), 1)
        return 0, round(share * min(context.time_ns(Cause.CUDA_API), context.longest_window_ns))


def launches(context: RuleContext) -> Launches:
    """All single launches of a trace. Ask for it with ``context.once(launches)``."""
    timeline, work = context.timeline, context.once(device_work)
    calls, table = timeline.calls, timeline.trace.operations
    launched = np.flatnonzero(calls.of_operation >= 0)
    per_call = np.bincount(calls.of_operation[launched], minlength=len(calls))
    operation_of = np.full(len(calls), -1, np.int64)
    operation_of[calls.of_operation[launched]] = launched
    single = (per_call == 1) & (calls.kind == CallClass.LAUNCH)
    kind = np.where(operation_of >= 0, table.kind[np.maximum(operation_of, 0)], -1) if len(table) else operation_of
    capturable = single & np.isin(kind, _CAPTURABLE)
    neutral = (calls.kind == CallClass.OTHER) | ((calls.kind == CallClass.LAUNCH) & (per_call == 0))
    # The launches of each thread in order, with everything that a graph cannot hold as a break.
    sequence = np.flatnonzero(~neutral)
    is_launch = capturable[sequence] & work.in_window[np.maximum(operation_of[sequence], 0)]
    token = _tokens(context, sequence, is_launch, operation_of)
    change = np.append(True, calls.thread[sequence][1:] != calls.thread[sequence][:-1]) if len(sequence) else is_launch
    repeats = _repeating(token, change)
    step = _step_of(context)[np.maximum(operation_of[sequence], 0)] if len(sequence) else np.zeros(0, np.int64)
    if float((step[is_launch] >= 0).mean() if is_launch.any() else 0.0) < STEPS_SHARE:
        step[:] = -1  # ranges inside of a step, not around it
    new_step = np.append(True, step[1:] != step[:-1]) if len(step) else is_launch
    is_kernel = is_launch & work.is_kernel[np.maximum(operation_of[sequence], 0)]
    stretches, units, turns = _cut(token, repeats & is_launch, change | new_step, is_kernel)
    gap = np.full(len(sequence), -1, np.int64)
    gap[1:] = np.where(change[1:], -1, np.diff(calls.start_ns[sequence]))
    both = is_launch & np.append(False, is_launch[:-1]) & (gap <= MOST_BETWEEN_NS)
    part = np.where(stretches > 0, int(Part.REPEATING), int(Part.REST)).astype(np.int8)
    optimizer = np.zeros(len(table), bool)
    optimizer[context.once(optimizer_kernels)] = True
    if int(optimizer.sum()) >= LEAST_OPTIMIZER:
        part[is_launch & optimizer[np.maximum(operation_of[sequence], 0)]] = Part.OPTIMIZER
    number = np.cumsum(~is_launch | change)
    piece = np.bincount(number[is_launch], minlength=int(number.max(initial=0)) + 1)
    rest = is_launch & (part == Part.REST)
    short = piece[number[rest]] < LEAST_LAUNCHES
    mine = np.flatnonzero(is_kernel)
    return Launches(
        call=sequence[mine],
        operation=operation_of[sequence[mine]],
        part=part[mine],
        gap_ns=np.where(both, gap, -1)[mine],
        graphs=sum(times for _, times in units),
        units=units,
        turns=turns,
        interrupted=float(short.mean()) if len(short) else 0.0,
        part_of_call=_spread(calls.thread, sequence, np.where(is_launch, part, -1).astype(np.int8)),
    )


def _tokens(context: RuleContext, sequence: Rows, is_launch: Bool, operation_of: Int) -> Int:
    """Equal numbers for equal launches (kernel, shape, stream); every break has a number of its own."""
    table = context.timeline.trace.operations
    token = -1 - np.arange(len(sequence), dtype=np.int64)
    rows = operation_of[sequence[is_launch]]
    key = (table.name[rows], table.shape[rows], table.stream[rows], table.kind[rows], table.bytes[rows])
    token[is_launch] = factorize(*key)[1]
    return token


def _repeating(token: Int, change: Bool) -> Bool:
    """Which entries lie in a run of `GRAM` that comes `LEAST_TIMES` times."""
    found = np.zeros(len(token), bool)
    if len(token) < GRAM:
        return found
    mixed = token.astype(np.uint64)
    code = np.zeros(len(token) - GRAM + 1, np.uint64)
    for step in range(GRAM):
        code = code * np.uint64(0x9E3779B97F4A7C15) + mixed[step : step + len(code)] + np.uint64(1)
    whole = np.cumsum(np.append(0, change | (token < 0)))
    start = np.arange(len(code))
    # No break inside, and no change of thread after the first.
    good = (whole[start + GRAM] - whole[start + 1] == 0) & (token[: len(code)] >= 0)
    first = np.flatnonzero(good & _is_frequent(code))
    edges = np.zeros(len(token) + 1, np.int64)
    np.add.at(edges, first, 1)
    np.add.at(edges, first + GRAM, -1)
    return np.cumsum(edges)[:-1] > 0


def _is_frequent(code: npt.NDArray[np.uint64]) -> Bool:
    """Which of these values come `LEAST_TIMES` times or more."""
    order = np.argsort(code)
    ranked = code[order]
    first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    times = np.diff(np.append(first, len(ranked)))
    found = np.empty(len(code), bool)
    found[order] = np.repeat(times >= LEAST_TIMES, times)
    return found


def _step_of(context: RuleContext) -> Int:
    """For each operation the range of its step: the outermost range around its launch that repeats; -1 without one.
    A graph holds one step at most, however alike the next one is."""
    tree = context.timeline.ownership.regions
    repeats = np.bincount(tree.of_range, minlength=len(tree)) > 1
    current = context.timeline.launch_range.copy()
    found = np.full(len(current), -1, np.int64)
    while (inside := current >= 0).any():
        rows = current[inside]
        found[inside] = np.where(repeats[tree.of_range[rows]], rows, found[inside])
        current[inside] = tree.range_parent[rows]
    return found


def _cut(token: Int, repeats: Bool, change: Bool, is_kernel: Bool) -> tuple[Int, tuple[tuple[int, int], ...], int]:
    """The number (from 1) of the stretch that each repeating entry lies in, 0 for others; the graphs that would hold
    all stretches (how many kernels, how often; those that hold most launches first); and how often the first of these
    comes if what lies between launches is left out."""
    begins = repeats & (~np.append(False, repeats[:-1]) | change)
    number = np.where(repeats, np.cumsum(begins), 0)
    size = np.bincount(number, minlength=1)
    size[0] = 0
    keep = np.flatnonzero(size >= LEAST_LAUNCHES)
    renumbered = np.zeros(len(size), np.int64)
    renumbered[keep] = np.arange(1, len(keep) + 1)
    starts = np.flatnonzero(begins)
    times: dict[int, int] = {}
    sample: dict[int, Int] = {}
    for stretch in keep.tolist():
        first, length = int(starts[stretch - 1]), int(size[stretch])
        period = _period(token[first : first + length])
        unit = int(is_kernel[first : first + period].sum())
        times[unit] = times.get(unit, 0) - (-length // period)
        sample.setdefault(unit, token[first : first + period])
    units = tuple(sorted(times.items(), key=lambda item: (-item[0] * item[1], -item[0])))
    turns = _turns(token[token >= 0], sample[units[0][0]]) if units else 0
    return renumbered[number], units, turns


def _turns(launched: Int, unit: Int) -> int:
    """How often a sequence comes among all launches, one after another."""
    found = np.ones(max(len(launched) - len(unit) + 1, 0), bool)
    for step in range(GRAM):
        found &= launched[step : step + len(found)] == unit[step]
    times, free = 0, 0
    for place in np.flatnonzero(found).tolist():
        if place >= free and float((launched[place : place + len(unit)] == unit).mean()) >= ALIKE:
            times, free = times + 1, place + len(unit)
    return times


def _period(token: Int) -> int:
    """After how many launches all of a stretch begins anew (a pass of equal layers and what is around them begins
    anew after the pass, not after a layer): its own length if it never does."""
    if (token[1:] == token[:-1]).all():  # one kernel again and again
        return min(len(token), MOST_LAUNCHES)
    gram = token[:GRAM]
    places = np.flatnonzero(token == gram[0])
    places = places[(places >= LEAST_LAUNCHES) & (places <= min(len(token) - GRAM, MOST_LAUNCHES))]
    for place in places.tolist():
        if np.array_equal(token[place : place + GRAM], gram):
            alike = token[place:] == token[:-place]
            if float(alike.mean()) >= ALIKE:
                return int(place)
    return min(len(token), MOST_LAUNCHES)


def _spread(thread: npt.NDArray[np.int32], sequence: Rows, part: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Give each call the part of the launch it is, or (queries, attributes, events) of the next one on its thread."""
    found = np.full(len(thread), -1, np.int8)
    if len(sequence) == 0:
        return found
    following = np.searchsorted(sequence, np.arange(len(thread)))
    inside = following < len(sequence)
    next_call = sequence[np.minimum(following, len(sequence) - 1)]
    same = inside & (thread[next_call] == thread)
    found[same] = part[np.minimum(following, len(sequence) - 1)][same]
    return found
