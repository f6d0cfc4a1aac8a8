"""The margins of a device's window: what its account says of the time before its first and after its last operation.

A replay follows operations, and leaves what lies before and behind all of them as it was. But nothing runs on the
device there, so that the host does one thing after the other: without a cause the margins are shorter by its time.
"""

from __future__ import annotations

import numpy as np

from boundby.attribution import segments
from boundby.attribution.segments import Segments
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import Int8Array, Int32Array, Int64Array, is_any, unique
from boundby.model.causes import BUSY_CAUSES, REMOVABLE
from boundby.model.records import dataclass, fields
from boundby.model.step_function import NOTHING, StepFunction, cut


@dataclass(frozen=True, eq=False)
class Margins:
    """Pieces of the account, one row each."""

    ns: Int64Array
    cause: Int8Array
    region: Int32Array
    call: Int64Array  # in which it lies, or which comes next (row of Calls) on the responsible thread; NOTHING

    def by_region(self, regions: int) -> Int64Array:
        """Nanoseconds of each of REMOVABLE, shape (regions, causes)."""
        total = np.zeros((regions, len(REMOVABLE)), np.int64)
        for place, cause in enumerate(REMOVABLE):
            mine = self.cause == cause
            np.add.at(total[:, place], self.region[mine], self.ns[mine])
        return total


def find_margins(timeline: Timeline, device: DeviceTimeline, first_ns: int, last_ns: int) -> Margins:
    """Those around the operations of a window, which take from ``first_ns`` to ``last_ns``."""
    spans = [(device.low_ns, first_ns), (last_ns, device.high_ns)] if first_ns <= last_ns else []
    spans = spans or [(device.low_ns, device.high_ns)]  # nothing runs in it at all
    parts = [device.segments.between(*span) for span in spans if span[0] < span[1]]
    pieces = segments.concatenate(segments.nothing(), *parts)
    idle = np.flatnonzero(~is_any(pieces.cause, BUSY_CAUSES))  # clocks err: all of it, but for some microseconds
    pieces = Segments(*(getattr(pieces, column.name)[idle] for column in fields(Segments)))
    responsible = device.gaps.thread[device.gaps.at(pieces.start_ns)]
    ns, row, call = [np.empty(0, np.int64)], [np.empty(0, np.intp)], [np.empty(0, np.int64)]
    for thread in unique(responsible).tolist():
        mine = np.flatnonzero(responsible == thread)
        start, end, place, of_piece = cut(pieces.start_ns[mine], pieces.end_ns[mine], _calls(timeline, thread))
        ns, row, call = [*ns, end - start], [*row, mine[place]], [*call, of_piece]
    rows = np.concatenate(row)
    return Margins(np.concatenate(ns), pieces.cause[rows], pieces.region[rows], np.concatenate(call))


def _calls(timeline: Timeline, thread: int) -> StepFunction:
    """The call that ends next, by those threads that work as one with this one."""
    calls, leaders = timeline.calls, timeline.logical_threads.leader
    rows = np.flatnonzero(leaders[calls.thread] == leaders[thread]) if thread >= 0 else np.empty(0, np.intp)
    rows = rows[np.argsort(calls.end_ns[rows], kind="stable")]
    return StepFunction(np.append(np.iinfo(np.int64).min, calls.end_ns[rows]), np.append(rows, NOTHING))
