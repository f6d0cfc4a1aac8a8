"""GPU memory that calls take and give back, where the profiler recorded each allocation."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from boundby.evidence.context import Rows, RuleContext
from boundby.model.arrays import is_in, unique
from boundby.model.units import count, size


class Allocated(Struct, frozen=True):
    """What some calls allocate on GPUs, and how much of it is released again."""

    times: int
    total_bytes: int
    released_bytes: int
    common_bytes: int  # the size that most of it has
    common_times: int

    def __str__(self) -> str:
        """``200 times 512 MB, all released again``."""
        what = f"{count(self.common_times)} times {size(self.common_bytes)}"
        if self.common_times < self.times:
            what += f" and {count(self.times - self.common_times)} of other sizes"
        if self.released_bytes >= self.total_bytes:
            return f"{what}, all released again"
        if not self.released_bytes:
            return f"{what}, none released again"
        return f"{what}, {size(self.released_bytes)} of {size(self.total_bytes)} released again"

    @property
    def evidence(self) -> dict[str, object]:
        """The same as numbers."""
        return {
            "allocations": self.times,
            "allocated_bytes": self.total_bytes,
            "released_again_bytes": self.released_bytes,
            "common_size_bytes": self.common_bytes,
        }


def allocated_in(context: RuleContext, rows: Rows) -> Allocated | None:
    """What these calls allocate, by the allocations that begin in them; None: none is on record."""
    points, calls = context.trace.memory, context.calls
    if not len(points):
        return None
    inside = np.zeros(len(points), bool)
    for thread in unique(calls.thread[rows]).tolist():
        own = rows[calls.thread[rows] == thread]
        own = own[np.argsort(calls.start_ns[own], kind="stable")]
        last = np.searchsorted(calls.start_ns[own], points.start_ns, side="right") - 1
        until = np.append(calls.end_ns[own], -1)[last]
        inside |= (points.thread == thread) & (last >= 0) & (points.start_ns <= until) & (points.device >= 0)
    taken = np.flatnonzero(inside & (points.delta > 0))
    if not len(taken):
        return None
    total = int(points.delta[taken].sum())
    later = points.start_ns > points.start_ns[taken].min()
    released = (points.delta < 0) & later & is_in(points.address, points.address[taken])
    sizes, times = np.unique(points.delta[taken], return_counts=True)
    best = int(np.argmax(sizes * times))
    given_back = min(total, -int(points.delta[released].sum()))
    return Allocated(len(taken), total, given_back, int(sizes[best]), int(times[best]))
