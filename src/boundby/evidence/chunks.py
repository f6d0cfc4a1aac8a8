"""Work cut into chunks: copies of one size and kernels that take less time to run than to call, and how long the same
work would take in larger chunks."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from boundby.evidence.context import Rows, RuleContext, SavingNs, once
from boundby.evidence.device_work import device_work
from boundby.evidence.transfers import bandwidth_of, link_rate
from boundby.model.arrays import median, ranked
from boundby.model.scale import HABIT, HALF
from boundby.trace.tables import Direction, OpKind

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


def times_larger(context: RuleContext, of: Chunks) -> int:
    """How many times as large chunks should be: a copy then runs for several times as long as its call; two chunks
    stay, so that copies of one hide behind the other."""
    wanted = RUNS_FOR * of.call_ns * _rate(context, of.copies) / of.bytes_each
    return max(min(round(wanted), len(of.kernels) // 2), 2)


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
