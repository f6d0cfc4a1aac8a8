"""How much of communication other kernels hide: of each device, of each region, and of each step of the program.

Communication counts as the union of its operations, and as hidden while a kernel that is none of them runs on the same
device: what is left is the account's `gpu_comm`. A region has what its own ranges, and those in it, launched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import group_sums
from boundby.model.intervals import CoveredTime, union
from boundby.model.units import FURTHEST_NS
from boundby.results.report import Communication
from boundby.stats.instances import KEPT, ByPlace, evenly
from boundby.stats.program_steps import program_steps, step_of
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
        used, place = np.unique(group, return_inverse=True)
        low, span = (
            int(self.start_ns.min(initial=0)),
            int(self.end_ns.max(initial=0) - self.start_ns.min(initial=0)) + 1,
        )
        total, exposed = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        at_once = max(FURTHEST_NS // span, 1)  # groups lie one after the other on one line of time
        for first in range(0, len(used), at_once):
            mine = (place >= first) & (place < first + at_once)
            offset = (place[mine] - first) * span - low
            start, end = union(self.start_ns[which[mine]] + offset, self.end_ns[which[mine]] + offset)
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
        found = work.by(*_with_ancestors(regions.parent, region), len(regions))
        total, exposed = total + found.total, exposed + found.exposed
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
        known = Communication(int(total[number]), int(exposed[number]), _hidden_of_each(*in_steps))
        of_region[number] = known
    return ByPlace(of_device, of_region)


def _work(timeline: Timeline, device: DeviceTimeline) -> _Communication:
    table = device.operations.table
    start, end = (np.clip(time, device.low_ns, device.high_ns) for time in (table.start_ns, table.end_ns))
    runs = end > start
    chosen = np.flatnonzero(runs & table.is_communication)
    computes = runs & (table.kind <= OpKind.GRAPH) & ~table.is_communication
    rows = np.arange(len(timeline.trace.operations))[device.operations.rows][chosen]
    return _Communication(rows, start[chosen], end[chosen], CoveredTime(union(start[computes], end[computes])))


def _with_ancestors(parent: npt.NDArray[np.integer], region: Int) -> tuple[Int, _Rows]:
    """Of each row its region and those around it; and which row."""
    which = np.arange(len(region))
    columns = [(region, which)]
    while len(region):
        region = parent[region].astype(np.int64)
        inside = region >= 0
        region, which = region[inside], which[inside]
        columns.append((region, which))
    return np.concatenate([one for one, _ in columns]), np.concatenate([one for _, one in columns])


def _hidden_of_each(total: Int, exposed: Int) -> tuple[float, ...]:
    """The hidden share of each step that communicates; of many as many as are kept, evenly over time."""
    some = np.flatnonzero(total)
    some = some if len(some) <= KEPT else some[evenly(len(some), KEPT)]
    return tuple((1 - exposed[some] / total[some]).tolist())
