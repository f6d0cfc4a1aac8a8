"""Work cut into chunks: copies of one size and kernels that take less time to run than to call, and how long the same
work would take in larger chunks."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from boundby.attribution.regions import ROOT
from boundby.evidence.context import Rows, RuleContext, SavingNs, once
from boundby.evidence.device_work import SHORT_KERNEL_NS, device_work
from boundby.evidence.launches import launches
from boundby.evidence.transfers import bandwidth_of, link_rate
from boundby.model.arrays import is_any, median, ranked
from boundby.model.causes import Cause
from boundby.model.scale import HABIT, HALF, MOST
from boundby.model.units import count
from boundby.trace.tables import Direction, OpKind
from boundby.trace.vocabulary.cuda import CallClass
from boundby.trace.vocabulary.range_names import is_item, is_operator

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
    best = max(*(one + other for one, other in zip(starts, moved, strict=True)), kernels_ns, of.calls_ns / larger)
    worst = sum(starts) + sum(moved) / RATE_LEAST + kernels_ns + of.calls_ns / larger
    return max(round(of.span_ns - worst), 0), max(round(of.span_ns - best), 0)


def _rate(context: RuleContext, copies: Rows) -> float:
    """What large copies reach, in bytes per nanosecond: by the link, else what these do."""
    told = link_rate(context, int(context.operations.device[copies[0]]))
    return max(told[0] if told else 0.0, bandwidth_of(context, copies))


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
        found = context.saving((Cause.SYNC.key, Cause.CUDA_API.key), regions=inside)
        if found is None:
            return None
        time = context.figures.inclusive[self.region] // max(len(context.timeline.devices), 1)
        most_ns = int(time.sum()) - (0 if self.has_small_grids else int(time[Cause.GPU_COMPUTE]))
        return round(left * min(found[0], most_ns)), round(left * most_ns)


@once
def items(context: RuleContext) -> Items | None:
    """The items that most of the launches are made for; None: nothing says that there are any."""
    work, of = device_work(context), launches(context)
    if not len(of.call) or median(work.duration_ns[of.operation]) > SHORT_KERNEL_NS:
        return None
    blocks, room = work.blocks[of.operation], work.multiprocessors[of.operation]
    is_small = not bool(((blocks >= room) & (room > 0)).mean() > HALF)
    found = _named(context) or _waited_for(context)
    return found and Items(*found, has_small_grids=is_small)


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
