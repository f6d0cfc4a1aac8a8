"""Communication: how much of it is hidden, of each device, region and step of the program; and collectives by the size
of their messages: how fast they are, and how much of their time cannot be transfer.

Communication counts as the union of its operations, and as hidden while a kernel that is none of them runs on the same
device: what is left is the account's `gpu_comm`. A region has what its own ranges, and those in it, launched.

A collective ends when all ranks have met, so that its time holds what its rank waited for the others. A smaller message
needs no longer than a larger one of the same kind among as many ranks: what it takes beyond the fastest of these is
waiting, also where the trace is of one rank only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.timeline import DeviceTimeline, Timeline, rows_in_windows
from boundby.model.arrays import factorize, group_sums
from boundby.model.intervals import CoveredTime, union
from boundby.model.scale import TABLE
from boundby.model.units import FURTHEST_NS
from boundby.results.report import CollectiveSize, Communication
from boundby.stats.instances import KEPT, ByPlace, evenly, quantiles, with_ancestors
from boundby.stats.step_times import program_steps, step_of
from boundby.trace.tables import OpKind

Int = npt.NDArray[np.int64]
_Rows = npt.NDArray[np.intp]


class _Times(NamedTuple):
    """Nanoseconds by group: communication runs, and runs with no other kernel beside it."""

    total: Int
    exposed: Int


class _Communication(Struct, frozen=True):
    """Communication of one device within its window, in order of its rows."""

    rows: _Rows  # into Trace.operations
    start_ns: Int
    end_ns: Int
    computes: CoveredTime

    def by(self, group: npt.NDArray[np.integer], which: _Rows, groups: int) -> _Times:
        """Times of groups. ``which``: an operation of this device, once for each group that it is in."""
        used, position = np.unique(group, return_inverse=True)
        low, span = (
            int(self.start_ns.min(initial=0)),
            int(self.end_ns.max(initial=0) - self.start_ns.min(initial=0)) + 1,
        )
        total, exposed = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        at_once = max(FURTHEST_NS // span, 1)  # groups lie one after the other on one line of time
        for first in range(0, len(used), at_once):
            is_here = (position >= first) & (position < first + at_once)
            offset = (position[is_here] - first) * span - low
            start, end = union(self.start_ns[which[is_here]] + offset, self.end_ns[which[is_here]] + offset)
            number, begin = start // span, start % span + low
            hidden = self.computes.within(begin, begin + (end - start))
            of = used[first + number]
            total += group_sums(of, end - start, groups)
            exposed += group_sums(of, end - start - hidden, groups)
        return _Times(total, exposed)


def overlap_of(timeline: Timeline) -> ByPlace[Communication, Communication]:
    """What of communication is hidden; in windows, on all devices."""
    regions = timeline.ownership.regions
    total, exposed = np.zeros(len(regions), np.int64), np.zeros(len(regions), np.int64)
    steps = program_steps(timeline)
    in_steps = [np.zeros(len(steps), np.int64) for _ in range(2)]
    of_device: dict[int, Communication] = {}
    for device in timeline.devices:
        work = _work(timeline, device)
        if not len(work.rows):
            continue
        region = timeline.launch_region[work.rows].astype(np.int64)
        numbers_here = work.by(*with_ancestors(regions, region), len(regions))
        total, exposed = total + numbers_here.total, exposed + numbers_here.exposed
        of_all = work.by(np.zeros(len(region), np.int64), np.arange(len(region)), 1)
        of_device[device.index] = Communication(int(of_all.total[0]), int(of_all.exposed[0]))
        step = step_of(timeline, work.rows, steps)
        inside = np.flatnonzero(step >= 0)
        of_steps = work.by(step[inside], inside, len(steps))
        in_steps = [sum_ + more for sum_, more in zip(in_steps, of_steps, strict=True)]
    of_region = [
        Communication(int(total[number]), int(exposed[number])) if total[number] else None
        for number in range(len(regions))
    ]
    if len(steps) and in_steps[0].any():
        number = int(regions.of_range[steps[0]])
        overlap = Communication(int(total[number]), int(exposed[number]), _hidden_of_each(*in_steps))
        of_region[number] = overlap
    return ByPlace(of_device, of_region)


def _work(timeline: Timeline, device: DeviceTimeline) -> _Communication:
    table = device.operations.table
    start, end = (np.clip(time, device.low_ns, device.high_ns) for time in (table.start_ns, table.end_ns))
    runs = end > start
    chosen = np.flatnonzero(runs & table.is_communication)
    computes = runs & (table.kind <= OpKind.GRAPH) & ~table.is_communication
    rows = np.arange(len(timeline.trace.operations))[device.operations.rows][chosen]
    return _Communication(rows, start[chosen], end[chosen], CoveredTime(union(start[computes], end[computes])))


def _hidden_of_each(total: Int, exposed: Int) -> tuple[float, ...]:
    """The hidden share of each step that communicates; of many as many as are kept, evenly over time."""
    some = np.flatnonzero(total)
    some = some if len(some) <= KEPT else some[evenly(len(some), KEPT)]
    return tuple((1 - exposed[some] / total[some]).tolist())


# Collectives by the size of their messages.


class SizedCollectives(Struct, frozen=True):
    """Collectives in the windows of which the trace tells kind and size, and their groups by both and by ranks."""

    rows: npt.NDArray[np.intp]  # of Trace.operations
    length_ns: npt.NDArray[np.int64]
    group: npt.NDArray[np.intp]
    keys: npt.NDArray[np.int64]  # of each group: name, ranks, bytes; in ascending order
    counts: npt.NDArray[np.int64]
    fastest_ns: npt.NDArray[np.float64]
    median_ns: npt.NDArray[np.float64]
    waiting_ns: npt.NDArray[np.int64]  # of each collective, at least


def sized_collectives(timeline: Timeline) -> SizedCollectives | None:
    """Those of which the trace tells the size; None: of none."""
    trace, table = timeline.trace, timeline.trace.operations
    if not len(trace.collectives) or not timeline.devices:
        return None
    rows = np.arange(len(table))[rows_in_windows(timeline.devices)]
    rows = rows[table.collective[rows] >= 0]
    of = table.collective[rows]
    is_whole = (
        (trace.collective_bytes[of] > 0)
        & (trace.collectives.name[of] >= 0)
        & (table.end_ns[rows] > table.start_ns[rows])
    )
    rows, of = rows[is_whole], of[is_whole]
    if not len(rows):
        return None
    kinds = trace.collectives
    keys, group = factorize(kinds.name[of], kinds.group_size[of], trace.collective_bytes[of])
    length = (table.end_ns - table.start_ns)[rows]
    count = np.bincount(group, minlength=len(keys))
    fastest, median = quantiles(group, length, count, (0.0, 0.5))
    waiting = np.maximum(length - _needed(keys, fastest)[group], 0)
    return SizedCollectives(rows, length, group, keys, count, fastest, median, waiting)


def collectives_by_size(timeline: Timeline) -> tuple[CollectiveSize, ...]:
    """Those of which the trace tells the size, most time first; none where it tells none."""
    sized, trace = sized_collectives(timeline), timeline.trace
    if sized is None:
        return ()
    waiting, total = (group_sums(sized.group, ns, len(sized.keys)) for ns in (sized.waiting_ns, sized.length_ns))
    sizes = [
        CollectiveSize(
            name=trace.names[name],
            ranks=ranks if ranks > 0 else None,
            bytes=size,
            count=int(sized.counts[at]),
            total_ns=int(total[at]),
            median_ns=float(sized.median_ns[at]),
            fastest_ns=int(sized.fastest_ns[at]),
            gb_per_s=size / float(sized.median_ns[at]),
            waiting_ns=int(waiting[at]),
        )
        for at, (name, ranks, size) in enumerate(sized.keys.tolist())
    ]
    return tuple(
        sorted(
            sizes,
            key=lambda collective: (-collective.total_ns, collective.name, collective.ranks or 0, collective.bytes),
        )[:TABLE]
    )


def _needed(keys: npt.NDArray[np.int64], fastest: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Of each size the most that its transfer takes: the fastest one of those as large or larger, of the same kind
    among as many ranks. ``keys``: kind, ranks and size, in ascending order."""
    needed = fastest.copy()
    for at in range(len(keys) - 2, -1, -1):
        if (keys[at, :2] == keys[at + 1, :2]).all():
            needed[at] = min(needed[at], needed[at + 1])
    whole: npt.NDArray[np.int64] = needed.astype(np.int64)
    return whole
