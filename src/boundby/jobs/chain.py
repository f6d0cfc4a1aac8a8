"""A job replayed: each rank's own work in order, joined to the others' at the collectives that they share.

A rank's own time passes; at an arrival its part of the collective begins, once its stream's last one is over; the
collective ends on
all ranks its transfer after the last has arrived; a rank that waits for it goes on then. Several variants run side by
side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from boundby.jobs.meetings import Aligned
from boundby.jobs.summary import RankSummary
from boundby.model.arrays import Int64Array
from boundby.model.records import dataclass

Float = npt.NDArray[np.float64]
NONE = -1


@dataclass(frozen=True)
class _Turn:
    """Events of different ranks that can be worked out at once, as indexes into all events."""

    arrive: Int64Array
    join: Int64Array


class Chain:
    """All ranks' events as one list, rank by rank; the order in which they can be worked out."""

    def __init__(self, summaries: Sequence[RankSummary], aligned: Aligned) -> None:
        matched = aligned.matched
        self.transfer_ns = matched.transfer_ns.astype(np.float64)
        counts = [len(one.events) for one in summaries]
        self.first = np.append(0, np.cumsum(counts)).astype(np.int64)  # of each rank, in the list of all events
        self.rank = np.repeat(np.arange(len(summaries)), counts)
        self.instance, self.queue, self.lag_ns = self._links(summaries, aligned)
        self.is_join = np.concatenate([one.events.is_join for one in summaries]) if summaries else np.empty(0, bool)
        self.begin_ns = np.array(
            [clock.at(np.array([one.window_ns[0]]))[0] for one, clock in zip(summaries, aligned.clocks, strict=True)]
        )
        self.fixed_ns = self._waits(summaries)
        self.turns = self._order(len(matched))

    def _links(self, summaries: Sequence[RankSummary], aligned: Aligned) -> tuple[Int64Array, Int64Array, Float]:
        """Per event: its collective's instance, the instance before it on its stream where it queued behind that, and
        how long after that one's end it began."""
        matched = aligned.matched
        instance = np.full(int(self.first[-1]), NONE, np.int64)
        queue, lag = instance.copy(), np.zeros(len(instance))
        for place, summary in enumerate(summaries):
            table, low = summary.meetings, int(self.first[place])
            of_row = np.full(len(table) + 1, NONE, np.int64)
            mine = matched.rank == place
            of_row[matched.row[mine]] = matched.instance[mine]
            before = np.full(len(table), NONE, np.int64)
            for stream in np.unique(table.stream).tolist():
                rows = np.flatnonzero(table.stream == stream)
                before[rows[1:]] = rows[:-1]
            is_queued = (table.ready_ns < table.start_ns) & (before != NONE)
            events = summary.events
            instance[low : low + len(events)] = of_row[events.meeting]
            waits_for = np.where(is_queued, of_row[before], NONE)
            queue[low : low + len(events)] = np.where(events.is_join, NONE, waits_for[events.meeting])
            apart = np.where(is_queued, table.start_ns - table.end_ns[before], 0)
            lag[low : low + len(events)] = np.maximum(apart, 0)[events.meeting]
        return instance, queue, lag

    def _waits(self, summaries: Sequence[RankSummary]) -> Float:
        """Per event: what is as long as measured whatever changes, the wait at a collective that nobody else holds."""
        fixed = np.zeros(len(self.rank))
        for place, summary in enumerate(summaries):
            low, high = self.first[place : place + 2].tolist()
            own = np.bincount(summary.work.event, summary.work.ns, high - low + 1)
            passed = np.diff(summary.events.time_ns, prepend=summary.window_ns[0]) - own[:-1]
            alone = self.is_join[low:high] & (self.instance[low:high] == NONE)
            fixed[low:high] = np.where(alone, np.maximum(passed, 0), 0)
        return fixed

    def _order(self, instances: int) -> list[_Turn]:
        """Turn by turn what is known by then. Where ranks would wait for each other for ever (a mismatch), waits are
        dropped."""
        at, stop = self.first[:-1].copy(), self.first[1:]
        left = np.bincount(self.instance[~self.is_join & (self.instance != NONE)], minlength=max(instances, 1))
        turns: list[_Turn] = []
        while True:
            active = np.flatnonzero(at < stop)
            if not len(active):
                return turns
            event = at[active]
            needed = np.where(self.is_join[event], self.instance[event], self.queue[event])
            known = (needed == NONE) | (left[np.maximum(needed, 0)] <= 0)
            if not known.any():
                blocked = event[:1]
                self.instance[blocked] = np.where(self.is_join[blocked], NONE, self.instance[blocked])
                self.queue[blocked] = NONE
                continue
            event = event[known]
            at[active[known]] += 1
            arrive = event[~self.is_join[event]]
            turns.append(_Turn(arrive, event[self.is_join[event]]))
            met = self.instance[arrive]
            np.subtract.at(left, met[met != NONE], 1)

    def own(self, work: Sequence[tuple[Int64Array, Float]]) -> Float:
        """Own work per event (then per rank's tail, behind all events) from each rank's pieces: (event, ns)."""
        tails = len(self.rank) + np.arange(len(work))
        total = np.zeros(len(self.rank) + len(work))
        for place, (event, ns) in enumerate(work):
            low, high = self.first[place : place + 2].tolist()
            summed = np.bincount(event, ns, high - low + 1)
            total[low:high] = summed[:-1] + self.fixed_ns[low:high]
            total[tails[place]] = summed[-1]
        return total

    def replay(self, own: Float, transfer_ns: Float | None = None) -> tuple[Float, Float]:
        """When each rank ends, shape (ranks, variants), and when each instance ended, shape (instances, variants).

        ``own``: as `own` gives, shape (events + ranks, variants). ``transfer_ns``: (instances, variants or 1).
        """
        variants = own.shape[1]
        transfer = self.transfer_ns[:, None] if transfer_ns is None else transfer_ns
        time = np.repeat(self.begin_ns.astype(np.float64)[:, None], variants, axis=1)
        latest = np.full((len(self.transfer_ns) + 1, variants), -np.inf)  # the last row: of no instance
        for turn in self.turns:
            if len(turn.join):
                rows, met = self.rank[turn.join], self.instance[turn.join]
                now = time[rows] + own[turn.join]
                known = met != NONE
                end = latest[met[known]] + transfer[met[known]]
                now[known] = np.maximum(now[known], end)
                time[rows] = now
            if len(turn.arrive):
                rows, met, queue = self.rank[turn.arrive], self.instance[turn.arrive], self.queue[turn.arrive]
                now = time[rows] + own[turn.arrive]
                time[rows] = now
                behind = queue != NONE
                if behind.any():
                    begun = latest[queue[behind]] + transfer[queue[behind]] + self.lag_ns[turn.arrive[behind], None]
                    now[behind] = np.maximum(now[behind], begun)
                np.maximum.at(latest, met, now)
        ends = time + own[len(self.rank) :]
        latest = latest[:-1] + transfer
        return ends, latest
