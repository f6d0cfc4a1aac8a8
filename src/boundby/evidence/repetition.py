"""How long each instance of a repeated region took, in order of start."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from boundby.evidence.context import CannotCheckError, Int, RuleContext, once
from boundby.evidence.host_idleness import Idleness, host_pieces
from boundby.evidence.initialization import setup_calls
from boundby.model.arrays import unique
from boundby.results.report import Example
from boundby.stats.instances import instance_lengths
from boundby.structure.steps import SLOWER, count_warm_up


class Repeated(Struct, frozen=True):
    """A region that repeats, outermost of its kind. ``warm_up`` instances come before the steady ones."""

    region: int
    start_ns: Int
    host_ns: Int  # how long the range was open
    length_ns: Int  # how long it took, see instance_lengths
    thread: int
    warm_up: int

    @property
    def steady_ns(self) -> Int:
        """Lengths after the warm-up."""
        return self.length_ns[self.warm_up :]

    def examples(self, name: str, first: int, stop: int) -> tuple[Example, ...]:
        """Instances ``first`` to ``stop`` of the region of this name, counted from 0."""
        return tuple(
            Example(int(self.start_ns[number]), int(self.length_ns[number]), f"{name}, instance {number + 1}")
            for number in range(first, stop)
        )


@once
def repeated_regions(context: RuleContext) -> list[Repeated]:
    """Regions with three instances or more that cover a part of the window worth telling, no one inside another.
    CannotCheckError without any range."""
    if not len(context.trace.ranges):
        raise CannotCheckError("the trace holds no ranges, and no iterations were found in it")
    timeline, tree, ranges = context.timeline, context.tree, context.trace.ranges
    taken = np.zeros(len(tree), bool)
    repeated = []
    for region in range(1, len(tree)):  # parents stand before their children
        if taken[tree.parent[region]]:
            taken[region] = True
            continue
        rows = np.flatnonzero((tree.of_range == region) & timeline.counted_ranges & ~ranges.is_open)
        if len(rows) < 3 or len(unique(ranges.thread[rows])) > 1:
            continue
        rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
        host = ranges.end_ns[rows] - ranges.start_ns[rows]
        length = instance_lengths(timeline, rows)
        if int(length.sum()) >= context.least_ns:
            taken[region] = True
            warm_up = count_warm_up(length, SLOWER)
            repeated.append(Repeated(region, ranges.start_ns[rows], host, length, int(ranges.thread[rows[0]]), warm_up))
    return repeated


def setup_inside(context: RuleContext, item: Repeated) -> int:
    """Time of loading and first allocations inside the warm-up instances, and of libraries that set themselves up
    there, by threads of their process."""
    calls, process = context.calls, context.trace.process_of_thread
    if not len(calls):
        return 0
    rows, pieces = setup_calls(context).once, host_pieces(context)
    idle = pieces.of_kind(Idleness.SETUP)
    start = np.concatenate((calls.start_ns[rows], pieces.start_ns[idle]))
    end = np.concatenate((calls.end_ns[rows], pieces.end_ns[idle]))
    same_process = process[np.concatenate((calls.thread[rows], pieces.thread[idle]))] == process[item.thread]
    setup_ns = 0
    for low, length in zip(item.start_ns[: item.warm_up].tolist(), item.host_ns.tolist(), strict=False):
        inside = same_process & (start >= low) & (end <= low + length)
        setup_ns += int((end - start)[inside].sum())
    return setup_ns
