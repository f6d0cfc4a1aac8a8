"""Kernel launches in the order in which the host made them: which repeat, which are an optimizer's, what they cost."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import Bool, Int, Rows, RuleContext, SavingNs, once
from boundby.evidence.device_work import device_work
from boundby.evidence.kernels import optimizer_kernels
from boundby.model.arrays import factorize, is_any, narrow, pick, ranked, unique
from boundby.model.causes import Cause
from boundby.model.records import dataclass
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass

# So many launches in a row, seen before, are the same code running again; fewer are met by chance.
GRAM = 8  # a power of two
# A sequence is worth a graph if it came at least so often ...
LEAST_TIMES = 3
# ... and holds so many launches.
LEAST_LAUNCHES = 10
# Graphs of more launches than this are cut: a loop of one kernel has no natural length.
MOST_LAUNCHES = 1_000
# A stretch begins again if so many of its launches are those of the turn before.
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

    call: Rows  # rows of context.calls
    operation: Rows  # rows of trace.operations
    part: npt.NDArray[np.int8]  # Part
    gap_ns: Int  # from the launch before on this thread; -1 for a first one or after something else
    graphs: int  # graph launches that would take the place of the repeating ones
    units: tuple[tuple[int, int], ...]  # (kernel launches of a graph, how often it comes): what holds most first
    turns: int  # how often the first of these comes, with or without something in between
    interrupted: float  # share of the launches of no other part that lie in pieces too short for a graph
    part_of_call: npt.NDArray[np.int8]  # per row of context.calls: whose launch it is or leads up to, or -1

    def rows(self, part: Part) -> Rows:
        """Entries of one part."""
        return narrow(np.flatnonzero(self.part == part))

    def saving(self, context: RuleContext, part: Part, *causes: Cause) -> SavingNs:
        """What launching these at no cost would save (and running them, with GPU_COMPUTE among ``causes``): by replay,
        else at most their part of the account."""
        replayed = context.saving(
            (Cause.CUDA_API.key, *(cause.key for cause in causes)),
            calls=self.part_of_call == part,
            operations=self.operation[self.rows(part)],
        )
        if replayed is not None:
            return replayed
        share = len(self.rows(part)) / max(len(self.part), 1)
        return 0, round(share * min(context.time_ns(Cause.CUDA_API), context.longest_window_ns))


@once
def launches(context: RuleContext) -> Launches:
    """All single launches of a trace."""
    work, calls, table = device_work(context), context.calls, context.operations
    launched = np.flatnonzero(calls.of_operation >= 0)
    per_call = np.bincount(calls.of_operation[launched], minlength=len(calls))
    operation_of = np.full(len(calls), -1, np.int32)  # one of those that each call launched
    operation_of[calls.of_operation[launched]] = launched
    del launched
    kind = pick(table.kind, operation_of, -1)
    capturable = (per_call == 1) & (calls.kind == CallClass.LAUNCH) & is_any(kind, _CAPTURABLE)
    neutral = (calls.kind == CallClass.OTHER) | ((calls.kind == CallClass.LAUNCH) & (per_call == 0))
    # The launches of each thread in order, with everything that a graph cannot hold as a break. From here on, columns
    # over this sequence.
    sequence = np.flatnonzero(~neutral).astype(np.int32)
    operation, thread = operation_of[sequence], calls.thread[sequence]
    is_launch = capturable[sequence] & pick(work.in_window, operation, False)
    is_kernel = is_launch & pick(work.is_kernel, operation, False)
    token = _tokens(context, is_launch, operation)
    new_thread = _changes(thread)
    step = pick(_step_of(context), operation, -1)
    of_step = step[is_launch & (step >= 0)]
    if len(of_step) < max(STEPS_SHARE * np.count_nonzero(is_launch), LEAST_LAUNCHES * len(unique(of_step))):
        step[:] = -1  # ranges inside of a step, not around it
    repeats = _repeating(token, new_thread) & is_launch
    is_repeating, units, turns = _cut(token, repeats, new_thread | _changes(step), is_kernel)
    del token, step, repeats, kind, per_call
    part = np.where(is_repeating, int(Part.REPEATING), int(Part.REST)).astype(np.int8)
    optimizer = np.zeros(len(table) + 1, bool)
    optimizer[optimizer_kernels(context)] = True
    if int(optimizer.sum()) >= LEAST_OPTIMIZER:
        part[is_launch & optimizer[operation]] = Part.OPTIMIZER
    gap = np.diff(calls.start_ns[sequence], prepend=0)
    follows = is_launch & np.append(False, is_launch)[:-1] & ~new_thread & (gap <= MOST_BETWEEN_NS)
    piece = np.cumsum(~is_launch | new_thread, dtype=np.int32)
    size = np.bincount(piece[is_launch], minlength=int(piece.max(initial=0)) + 1)
    short = size[piece[is_launch & (part == Part.REST)]] < LEAST_LAUNCHES
    return Launches(
        call=narrow(sequence[is_kernel]),
        operation=narrow(operation[is_kernel]),
        part=part[is_kernel],
        gap_ns=narrow(np.where(follows, gap, -1)[is_kernel]),
        graphs=sum(times for _, times in units),
        units=units,
        turns=turns,
        interrupted=float(short.mean()) if len(short) else 0.0,
        part_of_call=_spread(calls.thread, neutral, np.where(is_launch, part, -1).astype(np.int8)),
    )


def _changes(column: npt.NDArray[np.integer]) -> Bool:
    """Where a value differs from the one before it; the first always does."""
    changes = np.ones(len(column), bool)
    changes[1:] = column[1:] != column[:-1]
    return changes


def _tokens(context: RuleContext, is_launch: Bool, operation: npt.NDArray[np.integer]) -> Int:
    """Equal numbers for equal launches (kernel, shape, stream); every break has a number of its own."""
    table, rows = context.operations, operation[is_launch]
    token = -1 - np.arange(len(operation), dtype=np.int64)
    every = table.name, table.shape, table.stream, table.kind, table.bytes
    various = [column for column in every if len(column) and bool((column != column[0]).any())] or every[:1]
    token[is_launch] = factorize(*(pick(column, rows, 0) for column in various))[1]
    return token


def _repeating(token: Int, new_thread: Bool) -> Bool:
    """Which entries lie in a run of `GRAM` that comes `LEAST_TIMES` times."""
    if len(token) < GRAM:
        return np.zeros(len(token), bool)
    code, width, factor = token.view(np.uint64) + np.uint64(1), 1, 0x9E3779B97F4A7C15
    while width < GRAM:  # of twice as many each time
        code = code[:-width] * np.uint64(factor) + code[width:]
        width, factor = 2 * width, factor * factor % (1 << 64)
    breaks = np.cumsum(np.append(False, new_thread | (token < 0)), dtype=np.int32)
    # No break inside, and no change of thread after the first.
    whole = (breaks[GRAM:] == breaks[1 : len(code) + 1]) & (token[: len(code)] >= 0)
    first = np.flatnonzero(whole)
    first = first[_is_frequent(code[first])]
    edges = np.zeros(len(token) + 1, np.int8)
    edges[first] = 1
    edges[first + GRAM] -= 1
    return np.cumsum(edges)[:-1] > 0


def _is_frequent(code: npt.NDArray[np.uint64]) -> Bool:
    """Which of these values come `LEAST_TIMES` times or more."""
    _, index = ranked(code.view(np.int64))
    times = np.bincount(index)
    return (times >= LEAST_TIMES)[index]


def _step_of(context: RuleContext) -> Int:
    """For each operation the range of its step: the outermost range around its launch that repeats; -1 without one.
    A graph holds one step at most, however alike the next one is."""
    tree = context.tree
    repeats = np.bincount(tree.of_range, minlength=len(tree)) > 1
    around = np.arange(len(tree.of_range))
    step = np.full(len(around) + 1, -1, np.int64)  # of each range; the last is for operations in none
    while len(inside := np.flatnonzero(around >= 0)):
        rows = around[inside]
        step[inside] = np.where(repeats[tree.of_range[rows]], rows, step[inside])
        around[inside] = tree.range_parent[rows]
    return pick(step, context.timeline.launch_range, -1)


def _cut(token: Int, repeats: Bool, breaks: Bool, is_kernel: Bool) -> tuple[Bool, tuple[tuple[int, int], ...], int]:
    """Which repeating entries lie in stretches long enough; the graphs that would hold all of these (how many kernels,
    how often; those that hold most launches first); and how often the first of them comes if what lies between
    launches is left out."""
    begins = repeats & (~np.append(False, repeats)[:-1] | breaks)
    stretch = np.where(repeats, np.cumsum(begins), 0)
    size = np.bincount(stretch, minlength=1)
    size[0] = 0
    is_long = size >= LEAST_LAUNCHES
    starts = np.flatnonzero(begins)
    times: dict[int, int] = {}
    sample: dict[int, Int] = {}
    known: dict[bytes, tuple[int, int]] = {}  # stretches are alike: those of every step, say
    for number in np.flatnonzero(is_long).tolist():
        first, length = int(starts[number - 1]), int(size[number])
        stretch_of = token[first : first + length]
        key = stretch_of.tobytes() + is_kernel[first : first + length].tobytes()
        if key not in known:
            period = _period(stretch_of)
            known[key] = period, int(is_kernel[first : first + period].sum())
        period, unit = known[key]
        times[unit] = times.get(unit, 0) - (-length // period)
        sample.setdefault(unit, token[first : first + period])
    units = tuple(sorted(times.items(), key=lambda item: (-item[0] * item[1], -item[0])))
    turns = _turns(token[token >= 0], sample[units[0][0]]) if units else 0
    return is_long[stretch], units, turns


def _turns(launched: Int, unit: Int) -> int:
    """How often a sequence comes among all launches, one after another."""
    found = np.ones(max(len(launched) - len(unit) + 1, 0), bool)
    for step in range(GRAM):
        found &= launched[step : step + len(found)] == unit[step]
    times, free = 0, 0
    for place in np.flatnonzero(found).tolist():
        if place >= free and np.count_nonzero(launched[place : place + len(unit)] == unit) / len(unit) >= ALIKE:
            times, free = times + 1, place + len(unit)
    return times


def _period(token: Int) -> int:
    """After how many launches all of a stretch begins again (a pass of equal layers and what is around them begins
    again after the pass, not after a layer): its own length if it never does."""
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


def _spread(thread: npt.NDArray[np.int32], neutral: Bool, part: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Give each call the part of the launch it is, or (queries, attributes, events) of the next one on its thread."""
    following = np.cumsum(~neutral, dtype=np.int32) - ~neutral
    following[following == len(part)] = -1
    is_same_thread = pick(thread[~neutral], following, -1) == thread
    return np.where(is_same_thread, pick(part, following, -1), np.int8(-1))
