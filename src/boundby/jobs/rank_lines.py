"""What a rank does at each time of the job's clock: its own work, waiting for the last to come, the transfer."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from boundby.jobs.meetings import Clock, Matched
from boundby.jobs.rank_summary import RankSummary
from boundby.model.arrays import Int64Array
from boundby.model.causes import CAUSES, LETTER, Cause

TRANSFER, WAITS, NOTHING = "=", ".", "?"


class Line(Struct, frozen=True):
    """One stretch an event, and one after the last: own work from ``since`` to ``worked``, waiting until the last rank
    ``came``, the transfer until ``until``."""

    since: Int64Array
    worked: Int64Array
    came: Int64Array
    until: Int64Array
    main: Int64Array  # the row of the work that takes most of it; -1: none
    met: Int64Array  # the collective that is waited for; -1: none

    def letters(self, summary: RankSummary, low: int, high: int, count: int) -> str:
        """What is done in each of ``count`` equal parts of a span."""
        middle = low + (2 * np.arange(count) + 1) * (high - low) // (2 * count)
        at = np.searchsorted(self.until, middle, side="right")
        letter = np.array([LETTER[Cause(cause).key] for cause in range(len(CAUSES))])
        work = letter[summary.work.cause[self.main]] if len(summary.work) else np.full(len(self.main), NOTHING)
        work = np.append(np.where(self.main >= 0, work, NOTHING), NOTHING)
        worked, came = (np.append(edge, middle[-1] + 1)[at] for edge in (self.worked, self.came))
        doing = np.where(middle < worked, work[at], np.where(middle < came, WAITS, TRANSFER))
        return "".join(np.where(middle < self.since[0], NOTHING, doing).tolist())


def line_of(summary: RankSummary, clock: Clock, matched: Matched, place: int) -> Line:
    """The line of the rank at a place."""
    work, events = summary.work, summary.events
    low, high = clock.at(np.array(summary.window_ns))
    count = len(events) + 1
    own = np.bincount(work.event, work.ns, count).astype(np.int64)
    until = np.maximum.accumulate(np.append(clock.at(events.time_ns), high))
    since = np.append(low, until[:-1])
    worked = np.minimum(since + own, until)
    main = np.full(count, -1, np.int64)
    rows = np.lexsort((work.ns, work.event))
    main[work.event[rows]] = rows  # the last of each event is its largest
    instance = matched.instance_of(place, len(summary.meetings))
    met = np.append(np.where(events.is_join, instance[events.meeting], -1), -1)
    transfer = np.where(met >= 0, np.append(matched.transfer_ns, 0)[met], 0)
    return Line(since, worked, np.clip(until - transfer, worked, until), until, main, met)
