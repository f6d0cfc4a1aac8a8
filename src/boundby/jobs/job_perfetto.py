"""A job for ui.perfetto.dev: all ranks on one clock, each with its steps, its own work, its waits, and its collectives,
of which an arrow joins the parts on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import IO

import numpy as np

from boundby.document.blocks import region_name
from boundby.document.job_document import name_of, told
from boundby.jobs.meetings import Aligned, Clock
from boundby.jobs.merge import choose, line_of
from boundby.jobs.rank_summary import RankSummary
from boundby.model.arrays import Int64Array
from boundby.model.causes import CAUSES, SHORT_LABEL, Cause
from boundby.render.perfetto import Slices, Writer
from boundby.results.job_report import JobReport


class _RankTrack(IntEnum):
    """The order of a rank's tracks."""

    STEPS = 1
    WORK = 2
    COLLECTIVES = 3


def write(file: IO[bytes], summaries: Sequence[RankSummary], report: JobReport) -> None:
    """Write the trace of the ranks that ``report`` was made of. Times are the first rank's; all are moved where any
    would be negative. Raises UserError where the perfetto package is not installed."""
    kept, aligned, _ = choose(summaries)
    begin = [
        int(clock.at(np.array([of_rank.window_ns[0]]))[0]) for of_rank, clock in zip(kept, aligned.clocks, strict=True)
    ]
    first = min([*begin, int(aligned.matched.start_ns.min(initial=0))])
    writer = Writer(file, offset_ns=max(-first, 0))
    for rank, (summary, clock) in enumerate(zip(kept, aligned.clocks, strict=True)):
        _Rank(writer, summary, clock, rank, aligned, report).write()


class _Rank:
    """One rank's tracks."""

    def __init__(
        self, writer: Writer, summary: RankSummary, clock: Clock, place: int, aligned: Aligned, report: JobReport
    ) -> None:
        self.writer, self.summary, self.clock, self.report = writer, summary, clock, report
        matched = aligned.matched
        self.instance = matched.instance_of(place, len(summary.meetings))
        self.transfer_ns = matched.transfer_ns
        self.line = line_of(summary, clock, matched, place)
        self.last = matched.rank[matched.latest()[0]]
        held = [told(report, culprit) for culprit in (*report.stragglers, *report.extras) if place in culprit.ranks]
        about = " ".join([f"{summary.name}.", *held])
        self.process = writer.track(name_of(report, place), 0, place + 1, ordered=True, told=about)

    def write(self) -> None:
        clock, high = self.clock, self.summary.window_ns[1]
        steps = clock.at(np.append(self.summary.step_ns, high))
        self._put(
            "steps", _RankTrack.STEPS, steps[:-1], steps[1:], [f"step {number}" for number in range(len(steps) - 1)]
        )
        self._work()
        self._collectives()

    def _put(
        self, track: str, rank: int, start: Int64Array, end: Int64Array, names: Sequence[str], **more: Int64Array
    ) -> None:
        kept = np.flatnonzero(end > start)
        order = kept[np.lexsort((-end[kept], start[kept]))]
        name = self.writer.names.add_all(names, order)
        flow = more.pop("flow", None)
        slices = Slices(
            start[order],
            end[order],
            name,
            numbers={label.replace("_", " "): values[order] for label, values in more.items()},
            flow=None if flow is None else flow[order],
        )
        self.writer.slices(track, self.process, rank, slices)

    def _work(self) -> None:
        """Own work between events by what most of it is, then the wait that ends with the event."""
        summary, work, line = self.summary, self.summary.work, self.line
        causes = [f"{SHORT_LABEL[Cause(cause).key]} in " for cause in range(len(CAUSES))]
        regions = [region_name(path) for path in summary.regions]
        names = [
            causes[int(work.cause[row])] + regions[int(work.region[row])] if row >= 0 else ""
            for row in line.main.tolist()
        ]
        waits = [
            f"waits for {name_of(self.report, int(self.last[last_rank]))}" if last_rank >= 0 else "waits"
            for last_rank in line.met.tolist()
        ]
        track = (
            np.concatenate((line.since, line.worked, line.came)),
            np.concatenate((line.worked, line.came, line.until)),
        )
        self._put("work and waits", _RankTrack.WORK, *track, [*names, *waits, *["transfer"] * len(waits)])

    def _collectives(self) -> None:
        table, met = self.summary.meetings, self.instance
        names = [self.summary.kinds[kind] for kind in table.kind.tolist()]
        last = np.where(met >= 0, np.append(self.last, -1)[met], -1)
        self._put(
            "collectives",
            _RankTrack.COLLECTIVES,
            self.clock.at(table.start_ns),
            self.clock.at(table.end_ns),
            names,
            bytes=table.bytes,
            transfer_ns=np.where(met >= 0, np.append(self.transfer_ns, -1)[met], -1),
            last_to_come=np.array([self.summary_rank(last_rank) for last_rank in last.tolist()], np.int64),
            flow=met + 1,
        )

    def summary_rank(self, place: int) -> int:
        """A rank's number for people: its rank, else its place; -1: none."""
        rank = self.report.ranks[place].rank if place >= 0 else -1
        return place if rank is None else rank
