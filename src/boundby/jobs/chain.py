"""All ranks' events and work as one course that can be replayed: joined at the collectives that they share, in an order
in which what each needs is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.jobs.meetings import Aligned
from boundby.jobs.rank_summary import UNKNOWN, RankSummary
from boundby.model.arrays import BoolArray, Int32Array, Int64Array
from boundby.native.passes import NONE, Course, replay

Float = npt.NDArray[np.float64]


class Chain:
    """A job's course; ``cell``: of each row of all ranks' work, which factor it is multiplied by."""

    def __init__(self, summaries: Sequence[RankSummary], aligned: Aligned, cell: Int64Array) -> None:
        self.transfer_ns = aligned.matched.transfer_ns.astype(np.float64)
        counts = np.array([len(summary.events) for summary in summaries], np.int64)
        first = np.append(0, np.cumsum(counts))  # of each rank, in the list of all events
        rank = np.repeat(np.arange(len(summaries)), counts)
        is_join = np.concatenate([summary.events.is_join for summary in summaries])
        instance, queue, lag = _links(summaries, aligned, first)
        order, turn_at = _order(first, is_join, instance, queue, len(self.transfer_ns))
        self.begin_ns = np.array(
            [
                clock.at(np.array([summary.window_ns[0]]))[0]
                for summary, clock in zip(summaries, aligned.clocks, strict=True)
            ]
        )
        tail = first[1:] + np.arange(len(summaries))
        slot = np.concatenate(
            [
                low + number + summary.work.event
                for number, (summary, low) in enumerate(zip(summaries, first, strict=False))
            ]
        )
        rows = np.bincount(slot, minlength=int(first[-1]) + len(summaries))
        self.course = Course(
            order,
            turn_at,
            rank.astype(np.int32),
            instance,
            queue,
            is_join,
            lag,
            _waits(summaries, first, is_join & (instance == NONE)),
            np.append(0, np.cumsum(rows)).astype(np.int64),
            cell.astype(np.int32),
            np.concatenate([summary.work.ns for summary in summaries]).astype(np.float64),
            tail.astype(np.int32),
            len(summaries),
        )

    def own(self, table: Float) -> Float:
        """Own time per slot, shape (slots,), with the work of each cell multiplied by its factor in ``table``."""
        course = self.course
        slots = len(course.work_at) - 1
        slot = np.repeat(np.arange(slots), np.diff(course.work_at))
        return np.asarray(np.bincount(slot, course.work_ns * table[course.cell], slots), np.float64)

    def replay_slots(self, own_ns: Float, transfer_ns: Float) -> Float:
        """When each rank ends, shape (ranks,), with this much own time in each slot and these transfers."""
        slots = len(own_ns)
        cell = np.zeros(slots, np.int32)
        course = replace(self.course, work_at=np.arange(slots + 1), cell=cell, work_ns=own_ns)
        return replay(course, np.ones((1, 1)), transfer_ns[:, None], self.begin_ns)[:, 0]

    def replay(self, factor: Float, transfer_ns: Float | None = None) -> Float:
        """When each rank ends, shape (ranks, variants), with its work multiplied by ``factor``, shape (cells,
        variants), and collectives of these lengths, shape (collectives, variants)."""
        if transfer_ns is None:
            transfer_ns = np.repeat(self.transfer_ns[:, None], factor.shape[1], axis=1)
        return replay(self.course, factor, transfer_ns, self.begin_ns)


def _links(
    summaries: Sequence[RankSummary], aligned: Aligned, first: Int64Array
) -> tuple[Int32Array, Int32Array, Float]:
    """Per event: its collective's instance, the instance before it on its stream where it queued behind that, and
    how long after that one's end it began; of a wait how long after its own collective's end that was over."""
    instance = np.full(int(first[-1]), NONE, np.int32)
    queue, lag = instance.copy(), np.zeros(len(instance))
    for rank, summary in enumerate(summaries):
        table, low = summary.meetings, int(first[rank])
        of_row = np.append(aligned.matched.instance_of(rank, len(table)), NONE)
        before = np.full(len(table), NONE, np.int64)
        for stream in np.unique(table.stream).tolist():
            rows = np.flatnonzero(table.stream == stream)
            before[rows[1:]] = rows[:-1]
        is_queued = (table.ready_ns < table.start_ns) & (before != NONE) & (table.stream != UNKNOWN)
        events = summary.events
        inside = slice(low, low + len(events))
        parts = aligned.matched.parts_of(rank)
        joined = of_row.copy()  # who goes on before the last comes waits for nobody
        joined[aligned.matched.row[parts[aligned.matched.is_left_early[parts]]]] = NONE
        instance[inside] = np.where(events.is_join, joined[events.meeting], of_row[events.meeting])
        waits_for = np.where(is_queued, of_row[before], NONE)
        queue[inside] = np.where(events.is_join, NONE, waits_for[events.meeting])
        apart = np.maximum(np.where(is_queued, table.start_ns - table.end_ns[before], 0), 0)
        early = np.minimum(events.time_ns - table.end_ns[events.meeting], 0)
        lag[inside] = np.where(events.is_join, early, apart[events.meeting])
    return instance, queue, lag


def _waits(summaries: Sequence[RankSummary], first: Int64Array, is_alone: BoolArray) -> Float:
    """Per event: what is as long as measured whatever changes, the wait at a collective that nobody else holds."""
    fixed = np.zeros(len(is_alone))
    for rank, summary in enumerate(summaries):
        inside = slice(*first[rank : rank + 2].tolist())
        fixed[inside] = np.where(is_alone[inside], np.maximum(summary.passed_ns, 0), 0)
    return fixed


def _order(
    first: Int64Array, is_join: BoolArray, instance: Int32Array, queue: Int32Array, instances: int
) -> tuple[Int32Array, Int32Array]:
    """Turn by turn what is known by then, and where turns begin. Where ranks would wait for each other for ever (a
    mismatch), waits are dropped."""
    at, stop = first[:-1].copy(), first[1:]
    left = np.bincount(instance[~is_join & (instance != NONE)], minlength=max(instances, 1))
    turns: list[Int64Array] = []
    while True:
        active = np.flatnonzero(at < stop)
        if not len(active):
            break
        event = at[active]
        needed = np.where(is_join[event], instance[event], queue[event])
        is_ready = (needed == NONE) | (left[np.maximum(needed, 0)] <= 0)
        if not is_ready.any():
            blocked = event[:1]
            instance[blocked] = np.where(is_join[blocked], NONE, instance[blocked])
            queue[blocked] = NONE
            continue
        event = event[is_ready]
        at[active[is_ready]] += 1
        met = instance[event[~is_join[event]]]
        np.subtract.at(left, met[met != NONE], 1)
        turns.append(event)
    turn_at = np.append(0, np.cumsum([len(turn) for turn in turns])).astype(np.int32)
    order = np.concatenate(turns) if turns else np.empty(0)
    return order.astype(np.int32), turn_at
