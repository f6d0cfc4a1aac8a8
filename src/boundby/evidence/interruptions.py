"""Signs that a device did something else: kernels that take longer than their like, and gaps before kernels that were
launched long before, both in lengths that repeat (slices of time of another process); kernels that all slow down."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.evidence.context import Int, Rows, RuleContext, once
from boundby.evidence.device_work import device_work
from boundby.model.arrays import (
    as_rows,
    ascend,
    factorize,
    group_counts,
    into_groups,
    median,
    order_statistics,
    pick,
    places,
    unique,
)
from boundby.model.scale import HABIT, HALF, MANY, MOST, QUARTER

# Devices give processes slices of time of about 0.5 to 5 ms; jitter of kernels stays far below.
LEAST_SLICE_NS = 400_000
# A launch that is older than this when the operation before it ends was waited for by nobody.
LAUNCHED_BEFORE_NS = 2 * LAUNCH_LIMIT_NS
# Kernels of one name and grid: so many tell what is usual.
LEAST_ALIKE = MANY
# Lengths within this ratio count as one; the commonest two hold this share of all, where slices are the reason.
WITHIN, CONCENTRATED = 1 + QUARTER, HALF
# So many interruptions, of so many kinds of kernels, are no chance, and no property of one kernel's data.
LEAST_INTERRUPTIONS, LEAST_KINDS = MANY, HABIT
# Kernels are compared over this many parts of the time; each kind counts in parts where it came so often.
PARTS = 10
LEAST_IN_PART = HABIT
# A part of the time is slow where the kinds that run there take this much longer than in the fastest, as most kinds do.
SLOWER = 1.15
MOST_KINDS = MOST


class Interruptions(Struct, frozen=True):
    """``rows``: operations held up, first those that ran, then those that had not begun; ``length_ns`` of each."""

    device: int
    rows: Rows
    length_ns: Int
    in_kernels: int  # of them, how many were running
    common_ns: tuple[int, ...]  # the lengths that most of them have
    kinds: int

    @property
    def total_ns(self) -> int:
        return int(self.length_ns.sum())


class Slowdown(Struct, frozen=True):
    """Kinds of kernels that all take longer in some parts of the time."""

    device: int
    ratio: float
    kinds: int
    excess_ns: int
    fastest: int  # parts of the time, counted from 0
    slowest: int


def _on_device(context: RuleContext, device: int) -> slice | Rows:
    """Operations of one device in its window, in order of time: most often a slice, which copies no column."""
    table, in_window = context.operations, device_work(context).in_window
    rows = as_rows(in_window & (table.device == device))
    start_ns = table.start_ns[rows]
    return rows if ascend([start_ns]) else _numbers(rows, len(table))[np.argsort(start_ns, kind="stable")]


def _numbers(rows: slice | Rows, size: int) -> Rows:
    """The rows of a table of this size, one by one."""
    return np.arange(size)[rows] if isinstance(rows, slice) else rows


def _ended(end_ns: Int) -> Int:
    """Until when the operations before each ran, in order of time."""
    return np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end_ns))[:-1]


def _alone(context: RuleContext, rows: slice | Rows) -> slice | Rows:
    """Of a device's operations the kernels beside which nothing else runs there."""
    table, is_kernel = context.operations, device_work(context).is_kernel[rows]
    start, end = table.start_ns[rows], table.end_ns[rows]
    if not bool((start[1:] >= end[:-1]).all()):
        is_kernel = is_kernel & (_ended(end) <= start) & (np.append(start, np.iinfo(np.int64).max)[1:] >= end)
    return rows if is_kernel.all() else _numbers(rows, len(table))[is_kernel]


def _usual(kind: npt.NDArray[np.intp], duration_ns: Int) -> tuple[npt.NDArray[np.float64], Int]:
    """The lower quartile of each kernel's kind, and how many its kind has. Shapes (kernels,)."""
    order = np.lexsort((duration_ns, kind))
    counts = np.bincount(kind)
    first = np.append(0, np.cumsum(counts))[:-1]
    quartile = duration_ns[order][first + counts // 4]
    return quartile[kind].astype(np.float64), counts[kind].astype(np.int64)


@once
def interruptions(context: RuleContext) -> tuple[Interruptions, ...]:
    """Of every device on which they look like slices of time."""
    work, table, calls = device_work(context), context.operations, context.calls
    kinds_of = []
    for device in context.timeline.devices:
        # Gaps before operations that were launched before the one before them on their stream had ended.
        of_device = _on_device(context, device.index)
        start_ns, end_ns = table.start_ns[of_device], table.end_ns[of_device]
        late_at = np.flatnonzero(start_ns[1:] - end_ns[:-1] >= LEAST_SLICE_NS) + 1
        if len(late_at) < LEAST_INTERRUPTIONS // 2:
            continue
        ended, every = _ended(end_ns), _numbers(of_device, len(table))
        late_at = late_at[(start_ns - ended)[late_at] >= LEAST_SLICE_NS]
        call = calls.of_operation[every[late_at]]
        launched = pick(calls.end_ns, call, np.iinfo(np.int64).max - LAUNCHED_BEFORE_NS)
        same = table.stream[every[late_at]] == table.stream[every[late_at - 1]]
        waited = late_at[same & (launched + LAUNCHED_BEFORE_NS <= ended[late_at])]
        if len(waited) < LEAST_INTERRUPTIONS // 2:
            continue
        rows = _numbers(_alone(context, every), len(table))
        if len(rows) < LEAST_ALIKE:
            continue
        gap = start_ns - ended
        kind = factorize(table.name[rows], table.shape[rows])[1].astype(np.intp)
        duration = work.duration_ns[rows]
        usual, alike = _usual(kind, duration)
        late = np.where(alike >= LEAST_ALIKE, duration - usual, 0)
        held = late >= LEAST_SLICE_NS
        chosen = np.concatenate((rows[held], every[waited]))
        length = np.concatenate((late[held].astype(np.int64), gap[waited]))
        kinds = len(unique(kind[held]))
        if len(chosen) < LEAST_INTERRUPTIONS or kinds < LEAST_KINDS:
            continue
        common, share = _common(length)
        if share >= CONCENTRATED:
            kinds_of.append(Interruptions(device.index, chosen, length, int(held.sum()), common, kinds))
    return tuple(kinds_of)


def held_up_ns(context: RuleContext, rows: Rows) -> int:
    """How long these operations were held up, while they ran, by whoever else uses their device: of their durations,
    what is not theirs."""
    total_ns = 0
    for item in interruptions(context):
        running = slice(0, item.in_kernels)  # before those that had not begun
        total_ns += int(item.length_ns[running][np.isin(item.rows[running], rows)].sum())
    return total_ns


def _common(length: Int) -> tuple[tuple[int, ...], float]:
    """The middles of the two bands of lengths, each `WITHIN` wide, that hold most, and their share of all."""
    ordered = np.sort(length)
    middles, held, left = [], 0, ordered
    for _ in range(2):
        if not len(left):
            break
        count = np.searchsorted(left, left * WITHIN, side="right") - np.arange(len(left))
        best = int(np.argmax(count))
        band = slice(best, best + int(count[best]))
        middles.append(int(median(left[band])))
        held += int(count[best])
        left = np.delete(left, np.arange(band.start, band.stop))
    return tuple(sorted(middles)), held / max(len(length), 1)


@once
def slowdowns(context: RuleContext) -> tuple[Slowdown, ...]:
    """Of every device on which kernels of nearly all kinds are slower at one time than at another."""
    work, table = device_work(context), context.operations
    slow = []
    for device in context.timeline.devices:
        rows = _alone(context, _on_device(context, device.index))
        duration_ns = work.duration_ns[rows]
        if len(duration_ns) < LEAST_ALIKE * LEAST_KINDS:
            continue
        kind = factorize(table.name[rows], table.shape[rows])[1]
        kinds = int(kind.max()) + 1
        if kinds < LEAST_KINDS:
            continue
        # When each but the first of the parts begins, and so which kernels each has: they are in order of time.
        begins = [device.low_ns - (-part * (device.high_ns - device.low_ns) // PARTS) for part in range(1, PARTS)]
        at = [0, *places(table.start_ns[rows], np.array(begins, np.int64)).tolist(), len(duration_ns)]
        parts = [slice(first, stop) for first, stop in itertools.pairwise(at)]
        count = np.stack([group_counts(kind[part], kinds) for part in parts], axis=1)
        is_enough = count >= LEAST_IN_PART
        everywhere = is_enough.sum(axis=1) >= PARTS - 1  # what runs nearly all the time can be compared
        if everywhere.sum() < LEAST_KINDS:
            continue
        usual = np.full((kinds, PARTS), np.nan)
        for number, part in enumerate(parts):
            of_kind, some = count[:, number], np.flatnonzero(is_enough[:, number])
            by_kind, stop = into_groups(kind[part], duration_ns[part], of_kind), np.cumsum(of_kind)[some]
            middle = order_statistics(by_kind, stop - of_kind[some], stop, of_kind[some, None] // 2)
            usual[some, number] = np.maximum(middle[:, 0], 1)  # a clock's tick, at least
        relative = usual[everywhere] / np.nanmin(usual[everywhere], axis=1, keepdims=True)
        seen = ~np.isnan(relative).all(axis=0)
        of_part = np.full(PARTS, np.nanmin(relative))  # a part that shows nothing counts as the fastest
        of_part[seen] = [median(column[~np.isnan(column)]) for column in relative[:, seen].T]
        slowest, fastest = int(np.argmax(of_part)), int(np.argmin(np.where(seen, of_part, np.inf)))
        ratio = relative[:, slowest] / relative[:, fastest]
        known_ratio = ratio[~np.isnan(ratio)]
        if len(known_ratio) < LEAST_KINDS or (known_ratio >= SLOWER).mean() < MOST_KINDS:
            continue
        duration, slower = duration_ns.astype(np.float64), np.repeat(of_part / of_part[fastest], np.diff(at))
        extra = np.clip(duration / np.maximum(slower, 1) - duration, None, 0)
        compared = everywhere[kind]
        slow.append(
            Slowdown(
                device.index,
                float(median(known_ratio)),
                len(known_ratio),
                round(-float(extra[compared].sum())),
                fastest,
                slowest,
            )
        )
    return tuple(slow)
