"""Kernel launches in the order in which the host made them: which repeat, which are an optimizer's, what they cost."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.regions import ROOT
from boundby.correlation.correlate import Calls
from boundby.evidence.context import Bool, Int, Rows, RuleContext, SavingNs, once
from boundby.evidence.device_work import SHORT_KERNEL_NS, DeviceWork, device_work
from boundby.evidence.kernels import optimizer_kernels
from boundby.evidence.transfers import bandwidth_of, link_rate
from boundby.model.arrays import (
    as_rows,
    as_slice,
    ascend,
    factorize,
    is_any,
    is_even,
    marked,
    median,
    narrow,
    pick,
    places,
    ranked,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.scale import CROWD, HABIT, HALF, MANY, MOST, NO_LAUNCH_NS, PLENTY, SEVERAL, SMALL
from boundby.model.units import count
from boundby.trace.tables import Direction, OpKind
from boundby.trace.vocabulary.cuda import CallClass
from boundby.trace.vocabulary.range_names import is_item, is_operator

# So many launches in a row, seen before, are the same code running again; fewer are met by chance.
GRAM = SEVERAL  # a power of two
# A sequence is worth a graph if it came at least so often ...
LEAST_TIMES = HABIT
# ... and holds so many launches.
LEAST_LAUNCHES = 10
# Graphs of more launches than this are cut where nothing begins again: a loop of one kernel has no natural length.
MOST_LAUNCHES = PLENTY
# A turn of more launches is not looked for.
LONGEST_TURN = CROWD
# A stretch begins again if so many of its launches are those of the turn before.
ALIKE = 1 - SMALL
# Host time between two launches counts as the cost of launching up to this; beyond, the host did something else.
MOST_BETWEEN_NS = NO_LAUNCH_NS
# An optimizer that updates tensor by tensor launches at least so many kernels.
LEAST_OPTIMIZER = MANY

# Repeated ranges around this share of the launches are the program's steps.
STEPS_SHARE = MOST

_CAPTURABLE = (OpKind.KERNEL, OpKind.MEMSET)


class Part(IntEnum):
    """Whose launches these are: each belongs to one rule only."""

    REST = 0
    REPEATING = 1
    OPTIMIZER = 2


class Launches(Struct, frozen=True):
    """One entry for each call in a window that launches exactly one kernel, by thread and time."""

    call: Rows  # rows of context.calls
    operation: Rows  # rows of trace.operations
    part: npt.NDArray[np.int8]  # Part
    gap_ns: npt.NDArray[np.integer]  # from the launch before on this thread; -1 for a first one or after something else
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
            operations=self.operation[as_rows(self.part == part)],
        )
        if replayed is not None:
            return replayed
        share = len(self.rows(part)) / max(len(self.part), 1)
        return 0, round(share * context.account_ns(Cause.CUDA_API))


@once
def launches(context: RuleContext) -> Launches:
    """All single launches of a trace."""
    work, calls, table = device_work(context), context.calls, context.operations
    launched = as_rows(calls.of_operation >= 0)
    call = calls.of_operation[launched]
    operation: Rows = np.arange(len(table), dtype=np.int32)[launched]  # type: ignore[assignment]  # numbers of rows fit
    if not ascend([call]):
        order = np.argsort(call, kind="stable")
        call, operation = call[order], operation[order]
    launching = marked(call, len(calls))
    neutral = np.flatnonzero((calls.kind == CallClass.OTHER) | ((calls.kind == CallClass.LAUNCH) & ~launching))
    del launching
    # The launches of each thread in order; everything else but neutral calls ends the sequence.
    at = as_slice(operation)
    is_launch = (work.in_window & is_any(table.kind, _CAPTURABLE))[at]
    is_launch &= pick(calls.kind, call, 0) == CallClass.LAUNCH
    again = call[1:] == call[:-1]
    is_launch[1:] &= ~again
    is_launch[:-1] &= ~again
    if not is_launch.all():
        call, operation = call[is_launch], operation[is_launch]
        at = as_slice(operation)
    is_kernel = work.is_kernel[at]
    in_sequence = call - places(neutral, call) if len(neutral) else call
    is_next = np.zeros(len(call), bool)  # comes right after the one before it, on its thread
    is_next[1:] = in_sequence[1:] == in_sequence[:-1] + 1
    if not is_even(calls.thread):
        thread = pick(calls.thread, call, 0)
        is_next[1:] &= thread[1:] == thread[:-1]
        del thread
    del in_sequence
    # From here on: pieces of launches with nothing in between.
    begins = np.flatnonzero(~is_next)
    size = np.diff(begins, append=len(call))
    token = _tokens(context, at)
    repeats = _repeating(token, begins, size)
    is_repeating, turns = repeats, 0
    units: tuple[tuple[int, int], ...] = ()
    if repeats.any():
        is_repeating, units, turns = _cut(token, repeats, ~is_next | _is_new_step(context, operation), is_kernel)
    del token, repeats
    part = np.full(len(call), int(Part.REST), np.int8)
    part[is_repeating] = Part.REPEATING
    if len(of_optimizer := optimizer_kernels(context)) >= LEAST_OPTIMIZER:
        optimizer = np.zeros(len(table), bool)
        optimizer[of_optimizer] = True
        part[optimizer[operation]] = Part.OPTIMIZER
    is_rest = part == Part.REST
    rest, is_short = int(np.count_nonzero(is_rest)), size < LEAST_LAUNCHES
    in_short = rest if is_short.all() else int(np.count_nonzero(is_rest[np.repeat(is_short, size)]))
    gap_ns = _since_the_last(pick(calls.start_ns, call, 0), is_next)
    part_of_call = _spread(calls, neutral, call, part)
    if not is_kernel.all():
        call, operation, part, gap_ns = call[is_kernel], operation[is_kernel], part[is_kernel], gap_ns[is_kernel]
    return Launches(
        call=call,
        operation=operation,
        part=part,
        gap_ns=gap_ns,
        graphs=sum(times for _, times in units),
        units=units,
        turns=turns,
        interrupted=in_short / max(rest, 1),
        part_of_call=part_of_call,
    )


def _since_the_last(start_ns: Int, is_next: Bool) -> npt.NDArray[np.int32]:
    """From each launch's start back to that of the launch before; -1 for one that does not come right after it, or so
    late that the host did something else."""
    since = np.full(len(start_ns), -1, np.int32)
    gap_ns = np.diff(start_ns)
    is_far = ~is_next[1:] | (gap_ns > MOST_BETWEEN_NS)
    since[1:] = gap_ns
    since[1:][is_far] = -1
    return since


def _tokens(context: RuleContext, operations: slice | Rows) -> Int:
    """Equal numbers for equal launches (kernel, shape, stream)."""
    table = context.operations
    every = table.name, table.shape, table.stream, table.kind, table.bytes
    various = [column[operations] for column in every if not is_even(column)] or [table.name[operations]]
    return various[0].astype(np.int64) if len(various) == 1 else factorize(*various)[1]


def _repeating(token: Int, begins: Rows, size: Int) -> Bool:
    """Which entries lie in a run of `GRAM` that comes `LEAST_TIMES` times. Pieces of these sizes begin there."""
    edges = np.zeros(len(token) + 1, np.int8)
    if len(token) < GRAM or int(size.max()) < GRAM:
        return edges[:-1] > 0
    code, width, factor = token.view(np.uint64) + np.uint64(1), 1, 0x9E3779B97F4A7C15
    while width < GRAM:  # of twice as many each time
        code = code[:-width] * np.uint64(factor) + code[width:]
        width, factor = 2 * width, factor * factor % (1 << 64)
    is_cut = np.zeros(len(token), bool)  # an end of the piece lies before the gram does
    ends = begins + size
    for back in range(1, GRAM):
        is_cut[np.maximum(ends - back, begins)] = True
    first = np.flatnonzero(~is_cut[: len(code)])
    first = first[_is_frequent(code[first])]
    edges[first] = 1
    edges[first + GRAM] -= 1
    return np.cumsum(edges)[:-1] > 0


def _is_frequent(code: npt.NDArray[np.uint64]) -> Bool:
    """Which of these values come `LEAST_TIMES` times or more."""
    _, index = ranked(code.view(np.int64))
    times = np.bincount(index)
    return (times >= LEAST_TIMES)[index]


def _is_new_step(context: RuleContext, operation: Rows) -> Bool:
    """Which launches are made in another step than the one before. A step is the outermost range around that repeats;
    a graph holds one step at most, however alike the next one is."""
    tree = context.tree
    repeats = np.bincount(tree.of_range, minlength=len(tree)) > 1
    around = np.arange(len(tree.of_range))
    step = np.full(len(around) + 1, -1, np.int64)  # of each range; the last is for operations in none
    while len(inside := np.flatnonzero(around >= 0)):
        rows = around[inside]
        step[inside] = np.where(repeats[tree.of_range[rows]], rows, step[inside])
        around[inside] = tree.range_parent[rows]
    own = pick(step, context.timeline.launch_range[operation], -1)
    inside = own[own >= 0]
    is_new = np.zeros(len(own), bool)
    if len(inside) >= max(STEPS_SHARE * len(own), LEAST_LAUNCHES * len(unique(inside))):  # else ranges inside of a step
        is_new[1:] = own[1:] != own[:-1]
    return is_new


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
    periods: dict[bytes, tuple[int, int]] = {}  # stretches are alike: those of every step, say
    for number in np.flatnonzero(is_long).tolist():
        first, length = int(starts[number - 1]), int(size[number])
        stretch_of = token[first : first + length]
        key = stretch_of.tobytes() + is_kernel[first : first + length].tobytes()
        if key not in periods:
            period = _period(stretch_of)
            periods[key] = period, int(is_kernel[first : first + period].sum())
        period, unit = periods[key]
        times[unit] = times.get(unit, 0) - (-length // period)
        sample.setdefault(unit, token[first : first + period])
    units = tuple(sorted(times.items(), key=lambda item: (-item[0] * item[1], -item[0])))
    turns = _turns(token, sample[units[0][0]]) if units else 0
    return is_long[stretch], units, turns


def _turns(launched: Int, unit: Int) -> int:
    """How often a sequence comes among all launches, one after another."""
    is_start = np.ones(max(len(launched) - len(unit) + 1, 0), bool)
    for step in range(GRAM):
        is_start &= launched[step : step + len(is_start)] == unit[step]
    times, free = 0, 0
    for position in np.flatnonzero(is_start).tolist():
        if (
            position >= free
            and np.count_nonzero(launched[position : position + len(unit)] == unit) / len(unit) >= ALIKE
        ):
            times, free = times + 1, position + len(unit)
    return times


def _is_alike(token: Int, place: int) -> bool:
    """Whether a sequence goes on from a place as it begins."""
    return float((token[place:] == token[:-place]).mean()) >= ALIKE


def _period(token: Int) -> int:
    """After how many launches all of a stretch begins again (a pass of equal layers and what is around them begins
    again after the pass, not after a layer): its own length if it never does."""
    if (token[1:] == token[:-1]).all():  # one kernel again and again
        return min(len(token), MOST_LAUNCHES)
    gram = token[:GRAM]
    positions = np.flatnonzero(token == gram[0])
    positions = positions[(positions >= LEAST_LAUNCHES) & (positions <= min(len(token) - GRAM, LONGEST_TURN))]
    for position in positions.tolist():
        begins_alike = np.array_equal(token[position : position + GRAM], gram)
        if begins_alike and _is_alike(token[: position + MOST_LAUNCHES], position) and _is_alike(token, position):
            return int(position)
    return min(len(token), MOST_LAUNCHES)


def _spread(calls: Calls, neutral: Rows, call: Rows, part: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Give each call the part of the launch it is, or (queries, attributes, events) of the next one on its thread."""
    part_of = np.full(len(calls) + 1, -1, np.int8)
    part_of[call.astype(np.intp)] = part  # rows of 32 bits take NumPy three times as long
    last = np.append(np.diff(neutral) != 1, True)[: len(neutral)]  # of neutral calls in a row
    following = neutral[last][np.cumsum(last) - last] + 1
    following[following == len(calls)] = -1
    alike = calls.thread[following] == calls.thread[neutral]
    part_of[neutral[alike]] = part_of[following[alike]]
    return part_of[:-1]


# Work cut into chunks: copies of one size and kernels that take less time to run than to call, and how long the same
# work would take in larger chunks.

# Fewer copies of one size are not chunks of one.
LEAST_COPIES = HABIT
# A copy that runs for so many times as long as its call hides it.
RUNS_FOR = 4
# Real programs reach no less than this part of the link's rate with such copies.
RATE_LEAST = HALF


class Chunks(Struct, frozen=True):
    """``copies`` of ``bytes_each`` and ``kernels``: rows of operations. The medians: how long one of them runs, and its
    call takes, waits for the device left out. ``span_ns``: from the first of them to the end of the last, without the
    loading of code."""

    copies: Rows
    kernels: Rows
    bytes_each: int
    run_ns: float
    call_ns: float
    calls_ns: int  # all of their calls, without waits and loading
    span_ns: int

    @property
    def rows(self) -> Rows:
        return np.concatenate((self.copies, self.kernels))


@once
def chunks(context: RuleContext) -> Chunks | None:
    """The chunks of a program; None where it has none, or each is worth its call."""
    work, table, calls = device_work(context), context.operations, context.calls
    ways = np.isin(table.direction, (Direction.HTOD, Direction.DTOH))
    copies = np.flatnonzero(work.in_window & (table.kind == OpKind.MEMCPY) & ways & (table.bytes > 0))
    kernels = np.flatnonzero(work.is_kernel)
    if len(copies) < LEAST_COPIES or len(kernels) < LEAST_COPIES // 2 or context.program.is_torch:
        return None  # of torch a loader sets the batches
    distinct, of_row = ranked(table.bytes[copies])
    times = np.bincount(of_row)
    best = int(np.lexsort((distinct, -(distinct * times)))[0])
    copies = copies[of_row == best]
    rows = np.concatenate((copies, kernels))
    call = calls.of_operation[rows]
    if len(copies) < LEAST_COPIES or (call < 0).any():
        return None
    waits = context.timeline.waits
    loading_ns = np.where(calls.is_first_load[call], context.call_ns(call), 0)  # once, in chunks of any size
    own_ns = np.maximum(context.call_ns(call) - loading_ns - (waits.blocked_ns + waits.held_ns)[call], 0)
    call_ns, run_ns = float(median(own_ns)), float(median(work.duration_ns[rows]))
    if run_ns >= call_ns:
        return None
    each_call = np.unique(call, return_index=True)[1]
    return Chunks(
        copies,
        kernels,
        int(distinct[best]),
        run_ns,
        call_ns,
        int(own_ns[each_call].sum()),
        int(table.end_ns[rows].max() - min(table.start_ns[rows].min(), calls.start_ns[call].min()) - loading_ns.sum()),
    )


def worth_a_call(context: RuleContext, of: Chunks) -> int:
    """How many bytes a copy moves that runs for several times as long as its call."""
    return round(RUNS_FOR * of.call_ns * _rate(context, of.copies))


def times_larger(context: RuleContext, of: Chunks) -> int:
    """How many times as large chunks should be: each is then worth its call, if there are bytes enough; two chunks
    stay, so that copies of one hide behind the other."""
    return max(min(round(worth_a_call(context, of) / of.bytes_each), len(of.kernels) // 2), 2)


def saving_by_size(context: RuleContext, of: Chunks) -> SavingNs:
    """What the same work saves in chunks ``times_larger``: a call costs what it was measured to, a copy what it costs
    to start (measured) and its bytes at the link's rate. At best both ways and kernels run side by side; at worst one
    after the other, at half the rate."""
    work, table, larger = device_work(context), context.operations, times_larger(context, of)
    rate = _rate(context, of.copies)
    each_ns = float(median(work.duration_ns[of.copies]))
    start_ns = max(each_ns - of.bytes_each / rate, 0.0)
    ways = [table.direction[of.copies] == way for way in (Direction.HTOD, Direction.DTOH)]
    starts = [start_ns * int(way.sum()) / larger for way in ways]
    moved = [of.bytes_each * int(way.sum()) / rate for way in ways]
    # Kernels of few blocks take as long with more of them, until the device is full.
    blocks, room = work.blocks[of.kernels], work.multiprocessors[of.kernels]
    fills = float(median(room / blocks)) if (blocks > 0).all() and (room > 0).all() else 1.0
    kernels_ns = int(work.duration_ns[of.kernels].sum()) / max(min(fills, larger), 1.0)
    best = max(
        *(starts_ns + other for starts_ns, other in zip(starts, moved, strict=True)), kernels_ns, of.calls_ns / larger
    )
    worst = sum(starts) + sum(moved) / RATE_LEAST + kernels_ns + of.calls_ns / larger
    return max(round(of.span_ns - worst), 0), max(round(of.span_ns - best), 0)


def _rate(context: RuleContext, copies: Rows) -> float:
    """What large copies reach, in bytes per nanosecond: by the link, else what these do."""
    link = link_rate(context, int(context.operations.device[copies[0]]))
    return max(link[0] if link else 0.0, bandwidth_of(context, copies))


class Items(Struct, frozen=True):
    """``each`` rounds of ``kernels`` launches stand in every instance of what holds them."""

    region: int  # that holds the rounds
    each: int
    kernels: int
    is_named: bool  # the rounds have ranges of their own
    has_small_grids: bool  # a kernel of all items may take no longer than one of a single item

    @property
    def text(self) -> str:
        """``80 rounds of 18 kernels each stand in every frame``."""
        return f"{count(self.each)} rounds of {count(self.kernels)} kernels each"

    def saving(self, context: RuleContext) -> SavingNs | None:
        """What one round in place of all saves: at least the launches and waits of the others; at most all of their
        time, but that of kernels which fill the GPU, since these take as long for all items as one after the other."""
        left, inside = 1 - 1 / self.each, context.subtree(self.region)
        saved = context.saving((Cause.SYNC.key, Cause.CUDA_API.key), regions=inside)
        if saved is None:
            return None
        time = context.figures.inclusive[self.region] // max(len(context.timeline.devices), 1)
        most_ns = int(time.sum()) - (0 if self.has_small_grids else int(time[Cause.GPU_COMPUTE]))
        return round(left * min(saved[0], most_ns)), round(left * most_ns)


@once
def items(context: RuleContext) -> Items | None:
    """The items that most of the launches are made for; None: nothing says that there are any."""
    work, of = device_work(context), launches(context)
    if not len(of.call) or median(work.duration_ns[of.operation]) > SHORT_KERNEL_NS:
        return None
    item_sizes = _named(context) or _waited_for(context)
    return item_sizes and Items(*item_sizes, has_small_grids=_are_small(work, of.operation))


def _are_small(work: DeviceWork, operations: Rows) -> bool:
    """Whether grids of most of these kernels leave some of the GPU's multiprocessors without a block."""
    room = work.multiprocessors[operations]
    return not bool(((work.blocks[operations] >= room) & (room > 0)).mean() > HALF)


def _named(context: RuleContext) -> tuple[int, int, int, bool] | None:
    """Ranges that are numbered as items are, several in each range around them."""
    tree, of = context.tree, launches(context)
    instances = np.bincount(tree.of_range, minlength=len(tree))
    regions = context.timeline.launch_region[of.operation]
    for region in range(1, len(tree)):  # the outermost first
        parent, name = int(tree.parent[region]), tree.name[region]
        each = instances[region] / max(int(instances[parent]), 1)
        if parent == ROOT or each < HABIT or not is_item(name) or is_operator(name):
            continue
        inside = int(np.count_nonzero(context.subtree(region)[regions]))
        if inside >= HALF * len(of.call):
            return region, round(each), max(round(inside / int(instances[region])), 1), True
    return None


def _waited_for(context: RuleContext) -> tuple[int, int, int, bool] | None:
    """Rounds that repeat in the launches of a step, with a wait in each."""
    of = launches(context)
    if not of.units:
        return None
    kernels, times = of.units[0]
    region = context.place(context.timeline.launch_region[of.operation])
    turns = int(np.count_nonzero(context.tree.of_range == region))
    waits = int(np.count_nonzero(is_any(context.calls.kind, (CallClass.SYNC, CallClass.BLOCKING_COPY))))
    if region == ROOT or not turns or times < HABIT * turns or waits < MOST * times:
        return None
    return (region, round(times / turns), kernels, False) if kernels * times >= HALF * len(of.call) else None
