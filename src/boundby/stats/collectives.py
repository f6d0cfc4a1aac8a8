"""Collectives by the size of their messages: how fast they are, and how much of their time cannot be transfer.

A collective ends when all ranks have met, so that its time holds what its rank waited for the others. A smaller message
needs no longer than a larger one of the same kind among as many ranks: what it takes beyond the fastest of these is
waiting, also where the trace is of one rank only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.timeline import Timeline, rows_in_windows
from boundby.model.arrays import factorize, group_sums
from boundby.model.scale import TABLE
from boundby.results.report import CollectiveSize
from boundby.stats.instances import quantiles


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
    told = (
        (trace.collective_bytes[of] > 0)
        & (trace.collectives.name[of] >= 0)
        & (table.end_ns[rows] > table.start_ns[rows])
    )
    rows, of = rows[told], of[told]
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
    found = [
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
    return tuple(sorted(found, key=lambda one: (-one.total_ns, one.name, one.ranks or 0, one.bytes))[:TABLE])


def _needed(keys: npt.NDArray[np.int64], fastest: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Of each size the most that its transfer takes: the fastest one of those as large or larger, of the same kind
    among as many ranks. ``keys``: kind, ranks and size, in ascending order."""
    needed = fastest.copy()
    for at in range(len(keys) - 2, -1, -1):
        if (keys[at, :2] == keys[at + 1, :2]).all():
            needed[at] = min(needed[at], needed[at + 1])
    whole: npt.NDArray[np.int64] = needed.astype(np.int64)
    return whole
