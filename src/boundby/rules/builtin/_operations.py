"""What the rules on operations of the device share: the figures of those that a match is about or of their launches,
the match, and which kernels leave the GPU empty by their launch shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.evidence.code_lines import line_of_calls
from boundby.evidence.context import MOST_EXAMPLES, Int, Rows, RuleContext, SavingNs, once
from boundby.evidence.device_work import SHORT_KERNEL_NS, device_work, kernel_name
from boundby.evidence.initialization import place_beyond_warm_up
from boundby.evidence.interruptions import held_up_ns
from boundby.evidence.launches import Launches, Part, launches
from boundby.evidence.transfers import bandwidth_of
from boundby.model.arrays import (
    as_rows,
    as_slice,
    ascend,
    factorize,
    group_counts,
    group_sums,
    grouped,
    is_even,
    largest,
    median,
    merged,
    pick,
    ranked,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.intervals import NOTHING
from boundby.model.scale import A_FEW_LINES, HALF, MOST, NEARLY_ALL, QUARTER, SMALL
from boundby.model.units import bandwidth, count, duration, percent, place, size
from boundby.replay.device_concurrency import WARP
from boundby.results.report import Example
from boundby.rules.rule import Match
from boundby.trace.tables import Direction, OpKind
from boundby.trace.vocabulary.kernel_names import KernelKind, kernel_label

# Where less of the time lies in the region that is named as the place, the title says so.
MOSTLY_INSIDE = 1 - SMALL
_WAY = {Direction.HTOD: "host to device", Direction.DTOH: "device to host"}


@once
def _labels_of_names(context: RuleContext) -> tuple[list[str], Int]:
    """The labels of operations, in order, and of each name which one it has."""
    names, used = context.trace.names, unique(context.operations.name)
    used = used[used >= 0]
    labels = [kernel_label(names[number]) for number in used.tolist()]
    numbers = {label: position for position, label in enumerate(sorted(set(labels)))}
    of_name = np.full(len(names), NOTHING, np.int64)
    of_name[used] = [numbers[label] for label in labels]
    return list(numbers), of_name


class MatchedOperations(Struct, frozen=True, eq=False, dict=True):
    """The operations that a match is about: ``rows`` of ``context.operations``."""

    context: RuleContext
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def at(self) -> slice | Rows:
        """The rows; a slice, which copies nothing, where they follow one another."""
        return as_slice(self.rows)

    @cached_property
    def duration_ns(self) -> Int:
        """The duration of each."""
        return device_work(self.context).duration_ns[self.at]

    @property
    def total_ns(self) -> int:
        """Their durations, summed."""
        return int(self.duration_ns.sum())

    @property
    def whole_ns(self) -> int:
        """Their time in ns, with what lies outside of the window."""
        return int(device_work(self.context).whole_ns[self.at].sum())

    @property
    def took(self) -> str:
        """How long that is, and what lies in the window where some of them reach beyond."""
        inside = f", {duration(self.total_ns)} of that in the window" if self.whole_ns > self.total_ns else ""
        return f"{duration(self.whole_ns)}{inside}"

    @property
    def exposed_ns(self) -> int:
        """The time in which they run and nothing that counts before them does."""
        return int(device_work(self.context).exposed_ns[self.at].sum())

    @property
    def region(self) -> int:
        """The region that launched them, weighted by their time."""
        regions = self.context.timeline.launch_region[self.at]
        return place_beyond_warm_up(self.context, regions, np.maximum(self.duration_ns, 1))

    def examples(self) -> tuple[Example, ...]:
        """The longest of them."""
        longest = self.rows[largest(self.duration_ns, MOST_EXAMPLES, self.rows)]
        table, length_ns = self.context.operations, device_work(self.context).duration_ns
        low_ns = {device.index: device.low_ns for device in self.context.timeline.devices}
        begins = (max(int(table.start_ns[row]), low_ns[int(table.device[row])]) for row in longest)
        return tuple(
            Example(begin_ns, int(length_ns[row]), self.name_of(row))
            for begin_ns, row in zip(begins, longest.tolist(), strict=True)
        )

    def name_of(self, row: int) -> str:
        """What one of them is called."""
        return kernel_name(self.context, row)

    def per_device(self) -> list[tuple[int, Rows]]:
        """Devices, and the rows that ran there."""
        device = self.context.operations.device[self.rows]
        return [(number, self.rows[device == number]) for number in unique(device).tolist()]

    def saving_without(self, cause: Cause, least: float = 1.0, most: float = 1.0) -> SavingNs:
        """What is saved if ``least`` to ``most`` of their time, which the account has as ``cause``, is gone: by replay,
        else by what they hold of the account."""
        low, high = self.context.saving((cause.key,), operations=self.rows) or (0, self._most_exposed_ns())
        return round(low * least), round(high * most)

    def saving_by_speed(self, least: float, most: float) -> SavingNs:
        """What is saved if they run ``least`` to ``most`` times as fast: by replay, else by their share."""
        by_share = (0, round(self._most_exposed_ns() * (1 - 1 / most)))
        return self.context.saving_by_speed(self.rows, least, most) or by_share

    def _most_exposed_ns(self) -> int:
        """What they hold of a device: the most of any, as devices run side by side."""
        exposed_ns = device_work(self.context).exposed_ns
        return max((int(exposed_ns[rows].sum()) for _, rows in self.per_device()), default=0)

    def match(
        self,
        title: str,
        evidence: dict[str, object],
        saving_ns: SavingNs | None,
        advice: tuple[str, ...],
        *,
        cost_ns: int | None = None,
        severity: str | None = None,
        instances: int | None = None,
    ) -> Match:
        """The match on all of them, or on so many ``instances``."""
        instances = len(self) if instances is None else instances
        region, examples = self.region, self.examples()
        tree, launched = self.context.timeline.ownership.regions, self.context.timeline.launch_region[self.rows]
        inside = pick(tree.subtree(region), launched, False)
        if (part := float(self.duration_ns[inside].sum()) / max(self.total_ns, 1)) < MOSTLY_INSIDE:
            title += f"; {percent(part)} of that in {place(self.context.path(region))}"
        if (gpus := len(unique(self.context.operations.device[self.rows]))) > 1:
            title += f" (sum of {gpus} GPUs)"
        where = line_of_calls(self.context, self.context.calls.of_operation[self.rows], self.duration_ns)
        return Match(region, title, evidence, saving_ns, advice, examples, severity, instances, cost_ns, where=where)


class KernelSet(MatchedOperations, frozen=True, eq=False, dict=True):
    """Kernels. ``name`` says what one is called as an example, where its label is not enough."""

    name: Callable[[int], str] | None = None

    @property
    def share(self) -> float:
        """Their part of kernel time: of the durations of all kernels, summed as theirs are."""
        return self.total_ns / max(device_work(self.context).kernels_ns, 1)

    @property
    def longest(self) -> int:
        """The row of the one that takes longest."""
        return int(self.rows[np.argmax(self.duration_ns)])

    def name_of(self, row: int) -> str:
        """What one of them is called."""
        return kernel_name(self.context, row) if self.name is None else self.name(row)

    def mean(self, values: npt.NDArray[np.floating | np.integer]) -> float:
        """The mean of one value a kernel, weighted by their time."""
        return float(np.average(values, weights=self.duration_ns))

    def by_label(self, most: int) -> list[tuple[str, KernelSet]]:
        """Those of the labels with most time, most first."""
        label_of, name, sets = _labels_of_names(self.context)[1], self.context.operations.name[self.at], []
        for label, number, _, _ in self._labels(most):
            rows = self.rows[np.flatnonzero(pick(label_of == number, name, False))]
            sets.append((label, KernelSet(self.context, rows if ascend([rows]) else np.sort(rows))))
        return sets

    @cached_property
    def _of_names(self) -> tuple[Int, Int, Int]:
        """The names that they have, and of each how many kernels and how long."""
        name, names = self.context.operations.name[self.at], len(self.context.trace.names)
        times, total_ns = group_counts(name, names), group_sums(name, self.duration_ns, names)
        used = np.flatnonzero(times)
        return used, times[used], total_ns[used]

    def _labels(self, most: int) -> list[tuple[str, int, int, int]]:
        """Labels with most time, their places, how many kernels they are and how long."""
        if not len(self):
            return []
        (texts, label_of), (names, *figures) = _labels_of_names(self.context), self._of_names
        times, total_ns = (group_sums(label_of[names], column, len(texts)) for column in figures)
        seen = np.flatnonzero(times)
        chosen = seen[largest(total_ns[seen], most, seen)].tolist()
        return [(texts[number], number, int(times[number]), int(total_ns[number])) for number in chosen]

    def by_name(self) -> list[KernelSet]:
        """Those of each full name (template arguments and all), most time first."""
        if is_even(name := self.context.operations.name[self.at]):
            return [self]
        _, groups = grouped(name)
        sets = [KernelSet(self.context, self.rows[rows]) for rows in groups]
        return sorted(sets, key=lambda kernels: (-kernels.total_ns, int(kernels.rows[0])))

    def named(self, most: int = 5) -> list[str]:
        """``label: 12 x, 3.40 ms`` of those that take most of the time, for evidence."""
        return [f"{label}: {count(times)} x, {duration(total_ns)}" for label, _, times, total_ns in self._labels(most)]

    def evidence(self, **figures: object) -> dict[str, object]:
        """How many, how long, these figures, and which."""
        return {
            "count": len(self),
            "total_ns": self.total_ns,
            "share_of_kernel_time_fraction": round(self.share, 4),
            **figures,
            "kernels": self.named(),
        }


class CopySet(MatchedOperations, frozen=True):
    """Copies, or migrations of managed memory."""

    @property
    def byte_count(self) -> int:
        """Bytes that they move."""
        return int(self.context.operations.bytes[self.rows].sum())

    @property
    def bytes_per_ns(self) -> float:
        """Their rate: GB/s."""
        return bandwidth_of(self.context, self.rows)

    @property
    def to_device(self) -> int:
        """How many go from the host to the device."""
        return int((self.context.operations.direction[self.rows] == Direction.HTOD).sum())

    @property
    def common_size(self) -> tuple[int, int]:
        """The size that most of their bytes come in, and how many have it."""
        distinct, of_row = ranked(self.context.operations.bytes[self.rows])
        times = np.bincount(of_row)
        best = int(np.lexsort((distinct, -(distinct * times)))[0])
        return int(distinct[best]), int(times[best])

    def name_of(self, row: int) -> str:
        """``16.8 MB host to device at 12.3 GB/s``."""
        table, copy = self.context.operations, CopySet(self.context, np.array([row]))
        way = _WAY.get(Direction(int(table.direction[row])), "copy")
        return f"{size(copy.byte_count)} {way} at {bandwidth(copy.byte_count / max(copy.whole_ns, 1) * 1e9)}"

    def evidence(self, **figures: object) -> dict[str, object]:
        """Counts, bytes, time, rate, the commonest size, how much of it no kernel hides, and these figures."""
        call = unique(self.context.calls.of_operation[self.rows])
        common, times = self.common_size
        return {
            "count": len(self),
            "bytes": self.byte_count,
            "to_device_count": self.to_device,
            "total_ns": self.total_ns,
            "exposed_ns": self.exposed_ns,
            "calls_ns": int(self.context.call_ns(call[call >= 0]).sum()) if call.max() >= 0 else None,
            "bandwidth_bytes_per_s": round(self.bytes_per_ns * 1e9),
            "commonest_size_bytes": common,
            "commonest_size_count": times,
            **figures,
        }


# Blocks for a multiprocessor: above half, filling the rest gains little.
FEW_BLOCKS = HALF
# Kernels that run together for more of the time fill the GPU together.
ALONE = NEARLY_ALL
# So many different shapes are shown as evidence.
_MOST_SHAPES = A_FEW_LINES


@once
def small_block_rows(context: RuleContext) -> Rows:
    """Kernels with more than one block, of fewer threads than a warp has."""
    threads, blocks = device_work(context).threads, device_work(context).blocks
    fits = (threads.table > 0) & (threads.table < WARP) & (blocks.table > 1)
    if not fits.any():
        return np.empty(0, np.intp)
    return np.flatnonzero(device_work(context).is_kernel & pick(fits, threads.number, False))


@once
def few_block_rows(context: RuleContext) -> Rows:
    """Long kernels on few of the multiprocessors; not those that walk a list of parameters, which have as many blocks
    as there are parameters."""
    work = device_work(context)
    rows = np.flatnonzero(work.is_kernel & (work.duration_ns >= SHORT_KERNEL_NS))
    rows = rows[work.kind[rows] != KernelKind.MULTI_TENSOR]
    blocks = work.blocks[rows]
    few: Rows = rows[(blocks > 0) & (blocks <= FEW_BLOCKS * work.multiprocessors[rows])]
    return few


@once
def small_grid_rows(context: RuleContext) -> Rows:
    """Those of them that run alone."""
    return alone_rows(context, few_block_rows(context))


def alone_rows(context: RuleContext, kernels: Rows) -> Rows:
    """Those of these kernels that no other kernel shares the device with for more than the rest of their time."""
    work, table = device_work(context), context.operations
    computes = work.in_window & (table.kind <= OpKind.GRAPH)
    alone = [np.zeros(0, np.intp)]
    for device, rows in KernelSet(context, kernels).per_device():
        others = np.flatnonzero(computes & (table.device == device))
        begun, ended = merged(table.start_ns[others]), merged(table.end_ns[others])
        own = work.duration_ns[rows]
        start, end = table.start_ns[rows], table.end_ns[rows]
        busy = _time_since(begun, end) - _time_since(ended, end) - _time_since(begun, start) + _time_since(ended, start)
        alone.append(rows[busy - own <= (1 - ALONE) * own])
    return merged(*alone)


def _time_since(events: Int, instants: Int) -> Int:
    """The time from each event (ascending) to an instant after it, summed over events. Shape of ``instants``."""
    before = np.searchsorted(events, instants)
    summed: Int = before * instants - np.append(0, np.cumsum(events))[before]
    return summed


def distinct_shapes(values: npt.NDArray[np.integer]) -> list[int]:
    """Different numbers of blocks or threads, smallest first, for evidence."""
    distinct: list[int] = unique(values)[:_MOST_SHAPES].tolist()
    return distinct


# Launches, messages or collectives of which each has its price: a hundred; fewer take no share of the time.
ENOUGH = 100


class LaunchSet(Struct, frozen=True):
    """The launches that a match is about: all of one part, at least one."""

    context: RuleContext
    part: Part
    of: Launches
    call: Rows
    gap_ns: npt.NDArray[np.integer]  # from the launch before each, or -1
    kernels: KernelSet  # what they launched
    median_ns: float  # of the kernels' durations
    between_ns: int | None  # the host's median time from launch to launch; None where others always come in between
    small_share: float | None  # kernels with fewer blocks than the GPU has multiprocessors; None: not told of any
    multiprocessors: int  # of the largest GPU that they run on; 0 where that is not told

    def __len__(self) -> int:
        return len(self.call)

    @property
    def are_small(self) -> bool:
        """Whether they are small-batch's to tell of: most of their kernels are; else launch-overhead's."""
        return (self.small_share or 0.0) >= MOST

    @property
    def region(self) -> int:
        """The region that made these launches, each counting alike."""
        return self.context.place(self._regions)

    @property
    def _regions(self) -> npt.NDArray[np.integer]:
        return self.context.timeline.launch_region[self.kernels.at]

    @property
    def cost_ns(self) -> int:
        """The host's time from launch to launch, and the kernels' own: no change to launches saves more. Where another
        process takes the device in turns, without what that adds to both: launches wait for a full queue meanwhile."""
        held_ns = held_up_ns(self.context, self.kernels.rows)
        if held_ns and len(gap_ns := self.gap_ns[self.gap_ns > 0]):
            return round(float(median(gap_ns))) * len(gap_ns) + self.kernels.total_ns - held_ns
        return int(np.maximum(self.gap_ns, 0).sum()) + self.kernels.total_ns

    def saving_ns(self, least: float, most: float, *causes: Cause) -> SavingNs:
        """What launching them at no cost would save, and of that the part that the rule supposes."""
        low, high = self.of.saving(self.context, self.part, *causes)
        return round(least * low), round(most * high)

    def match(self, title: str, evidence: dict[str, object], saving_ns: SavingNs, advice: tuple[str, ...]) -> Match:
        """The match."""
        figures: dict[str, object] = {
            "count": len(self),
            "kernel_median_ns": round(self.median_ns),
            "launch_to_launch_median_ns": self.between_ns,
        }
        if self.small_share is not None:
            figures["small_grid_fraction"] = round(self.small_share, 4)
            figures["multiprocessors"] = self.multiprocessors
        region = self.region
        inside = float(pick(self.context.tree.subtree(region), self._regions, False).mean())
        if inside < MOSTLY_INSIDE:
            title += f"; {percent(inside)} of these launches lie in {place(self.context.path(region))}"
        return Match(
            region=region,
            title=title,
            evidence={**figures, **evidence},
            saving_ns=saving_ns,
            advice=advice,
            examples=self._examples(),
            instances=len(self),
            cost_ns=self.cost_ns,
            where=line_of_calls(self.context, self.call, np.maximum(self.gap_ns, 1)),
        )

    def _examples(self) -> tuple[Example, ...]:
        """The longest waits of the host from one launch to the next."""
        longest = largest(self.gap_ns, MOST_EXAMPLES)
        longest = longest[self.gap_ns[longest] >= 0]
        names = [kernel_name(self.context, row) for row in self.kernels.rows[longest].tolist()]
        started, gaps = self.context.calls.start_ns[self.call[longest]].tolist(), self.gap_ns[longest].tolist()
        return tuple(
            Example(start_ns - gap_ns, gap_ns, f"from the previous launch to that of {name}")
            for start_ns, gap_ns, name in zip(started, gaps, names, strict=True)
        )


def launched(context: RuleContext, part: Part) -> LaunchSet | None:
    """The launches of one part; None without any."""
    work, of = device_work(context), launches(context)
    rows = as_rows(of.part == part)  # most often all, which copies nothing
    kernels, gap_ns = KernelSet(context, of.operation[rows]), of.gap_ns[rows]
    if len(kernels) == 0:
        return None
    pairs, of_kernel = factorize(work.blocks.number[kernels.at], work.multiprocessors.number[kernels.at])
    blocks, multiprocessors = work.blocks.of(pairs[:, 0]), work.multiprocessors.of(pairs[:, 1])
    times = np.where((blocks > 0) & (multiprocessors > 0), group_counts(of_kernel, len(pairs)), 0)
    shaped = int(times.sum())
    return LaunchSet(
        context,
        part,
        of,
        of.call[rows],
        gap_ns,
        kernels,
        median_ns=float(median(kernels.duration_ns)),
        between_ns=round(median(known_ns)) if len(known_ns := gap_ns[gap_ns >= 0]) else None,
        small_share=int(times[blocks < multiprocessors].sum()) / shaped if shaped else None,
        multiprocessors=int(multiprocessors[times > 0].max(initial=0)),
    )


@once
def _rest(context: RuleContext) -> LaunchSet | None:
    return launched(context, Part.REST)


def in_no_order(context: RuleContext) -> LaunchSet | None:
    """The launches that repeat in no fixed order, if they are enough, in number and of all, and the GPU idles for
    launches at all."""
    if context.time_ns(Cause.CUDA_API) < context.least_ns:
        return None
    some = _rest(context)
    share = QUARTER * len(launches(context).call)
    return None if some is None or len(some) < max(ENOUGH, share) else some
