"""Which process the others wait for where all of them meet."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from boundby.evidence.context import RuleContext

# Message passing: the host waits for other ranks there, whatever its CPU does meanwhile (MPI polls).
MESSAGE_NAME = re.compile(r"^P?MPI_|^nvshmemx?_|^gloo", re.IGNORECASE)
# Nobody leaves these before all have come; in other calls of MPI a short stay does not tell who was late.
_MEETING = re.compile(r"^P?MPI_(Barrier|All\w+|Reduce_scatter\w*)$")
# The same process must account for this share of the waiting.
MOSTLY = 0.6


@dataclass(frozen=True)
class Late:
    """``pid`` comes last to ``name``. The times are those of the meeting at which the others wait most: how long it and
    how long each other process stays inside."""

    name: str
    pid: int
    inside_ns: int
    least_ns: int
    most_ns: int


def latecomer(context: RuleContext, region: int) -> Late | None:
    """The process that mostly comes last to a collective; None where it is no such region, where the processes do not
    meet equally often, or where it is not mostly the same."""
    path, trace = context.path(region), context.trace
    if not path or not _MEETING.match(path[-1]):
        return None
    numbers = [number for number, name in enumerate(trace.names) if name == path[-1]]
    rows = np.flatnonzero(np.isin(trace.ranges.name, numbers))
    process = trace.process_of_thread[trace.ranges.thread[rows]]
    distinct, counts = np.unique(process, return_counts=True)
    if len(distinct) < 2 or len(np.unique(counts)) > 1:
        return None
    order = np.lexsort((trace.ranges.start_ns[rows], process))
    length = (trace.ranges.end_ns - trace.ranges.start_ns)[rows[order]].reshape(len(distinct), -1)
    last = np.argmin(length, axis=0)
    waited = (length - length.min(axis=0)).sum(axis=0)
    of_each = np.array([int(waited[last == one].sum()) for one in range(len(distinct))])
    late = int(np.argmax(of_each))
    if of_each[late] < MOSTLY * waited.sum() or not waited.sum():
        return None
    mine = np.flatnonzero(last == late)
    worst = length[:, mine[np.argmax((length - length.min(axis=0)).sum(axis=0)[mine])]]
    others = np.delete(worst, late)
    pid = trace.processes[int(distinct[late])].pid
    return Late(path[-1], pid, int(worst[late]), int(others.min()), int(others.max()))
