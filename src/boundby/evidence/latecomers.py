"""Collectives: who comes late to them, and how long the others wait inside theirs.

Devices meet in communication kernels, processes in calls of MPI that an annotation shows.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.evidence.context import Int, RuleContext, once
from boundby.evidence.device_work import device_work
from boundby.model.arrays import group_sums, is_any, is_in, pick, ranked, unique
from boundby.model.intervals import CoveredTime, IntervalSet, contains, union
from boundby.model.late import expression
from boundby.model.scale import HALF, SLIGHT
from boundby.stats.communication import sized_collectives
from boundby.structure.mpi_ranks import held, other_ends
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.cuda import CallClass
from boundby.trace.vocabulary.os import MessageKind, message_kind

# Message passing: the host waits for other ranks there, whatever its CPU does meanwhile (MPI polls).
MESSAGE_NAME = expression(r"^P?MPI_|^nvshmemx?_|^gloo", re.IGNORECASE)
_SENDS = expression(r"^P?MPI_(?:[IBSR]|I[bsr])?send(?:_init)?$", re.IGNORECASE)
_EXCHANGES = expression(r"send|recv|all_?to_?all|dispatch|combine|notify", re.IGNORECASE)
_RECEIVES = expression(r"^P?MPI_I?recv(?:_init)?$", re.IGNORECASE)
# The same process must account for this share of the waiting.
MOSTLY = HALF
# Where more of them end before all devices began, they are no collectives of these devices, or the clocks differ.
IMPOSSIBLE_SHARE = SLIGHT


class Collectives(Struct, frozen=True):
    """The n-th communication kernel of each device, side by side. ``start_ns``: shape (devices, collectives)."""

    devices: tuple[int, ...]
    start_ns: Int
    end_ns: Int
    row: npt.NDArray[np.intp]  # of ``context.operations``

    @property
    def waited_ns(self) -> Int:
        """How long each device's kernel ran until the last device came, shape (devices, collectives)."""
        waited: Int = np.clip(np.minimum(self.start_ns.max(axis=0), self.end_ns) - self.start_ns, 0, None)
        return waited


@once
def collectives(context: RuleContext) -> Collectives | None:
    """Communication kernels matched across devices by their order; None where they do not match (other counts, other
    names, one device, or starts so far apart that the clocks cannot be the same)."""
    table = context.operations
    of_device: dict[int, npt.NDArray[np.intp]] = {}
    for device in context.timeline.devices:
        in_window = (table.start_ns >= device.low_ns) & (table.start_ns < device.high_ns)
        rows = np.flatnonzero((table.device == device.index) & table.is_communication & in_window)
        if len(rows):
            of_device[device.index] = rows[np.argsort(table.start_ns[rows], kind="stable")]
    if len(of_device) < 2 or len({len(rows) for rows in of_device.values()}) != 1:
        return None
    rows = np.stack(list(of_device.values()))
    if (table.name[rows] != table.name[rows][0]).any():
        return None
    matched = Collectives(tuple(of_device), table.start_ns[rows], table.end_ns[rows], rows)
    # A collective ends on no device before the last one has begun it.
    if (matched.end_ns.min(axis=0) < matched.start_ns.max(axis=0)).mean() > IMPOSSIBLE_SHARE:
        return None
    return matched


@once
def is_exchange(context: RuleContext) -> bool:
    """Whether most communication hands data to chosen ranks (send and receive, all-to-all, experts' tokens), which no
    backward pass makes ready bit by bit, as it does gradients."""
    table, names, names_of = context.operations, context.trace.names, context.trace.collectives.name
    rows = np.flatnonzero(table.is_communication)
    of_name = pick(names_of, table.collective[rows], -1)
    kinds, which = ranked(np.where(of_name >= 0, of_name, table.name[rows]))
    length_ns = np.bincount(which, (table.end_ns - table.start_ns)[rows], len(kinds))
    chosen = [bool(_EXCHANGES.search(names[kind])) for kind in kinds.tolist()]
    return bool(length_ns[chosen].sum() > MOSTLY * length_ns.sum())


def waited_ns(context: RuleContext) -> int:
    """Time of all devices inside collectives before the last device came; 0 where that cannot be told."""
    matched = collectives(context)
    return 0 if matched is None else int(matched.waited_ns.sum())


def waited_by_size_ns(context: RuleContext) -> Int:
    """Of each operation at least how long it waits for other ranks while no other kernel runs: what it takes beyond the
    fastest message as large or larger, less what is hidden of it. 0 where no size is told."""
    waited = np.zeros(len(context.operations), np.int64)
    sized = sized_collectives(context.timeline)
    if sized is not None:
        work = device_work(context)
        hidden = work.duration_ns[sized.rows] - work.exposed_ns[sized.rows]
        waited[sized.rows] = np.clip(sized.waiting_ns - hidden, 0, work.exposed_ns[sized.rows])
    return waited


class Sender(Struct, frozen=True):
    """The only process that sends while others receive, and what share of their waiting it is inside a send for."""

    pid: int
    who: str  # ``rank 3``, or the process where no rank is told
    inside: float
    receivers: int


def sender(context: RuleContext, region: int, waits: IntervalSet) -> Sender | None:
    """Who sends, where the processes of a trace wait in a receive; None where it is no such region, or several do."""
    path, trace = context.path(region), context.trace
    if not path or not _RECEIVES.match(path[-1]) or not waits.total:
        return None
    process = trace.process_of_thread[trace.ranges.thread]
    named = [context.named(trace.ranges.name, pattern.match) for pattern in (_SENDS, _RECEIVES)]
    sends, receives = named
    senders = unique(process[sends]).tolist()
    if len(senders) != 1:
        return None
    sending = union(trace.ranges.start_ns[sends], trace.ranges.end_ns[sends])
    inside = int(CoveredTime(sending).within(waits.start, waits.end).sum()) / waits.total
    others = len(set(unique(process[receives]).tolist()) - set(senders))
    return Sender(trace.processes[senders[0]].pid, who(trace, senders[0]), inside, others) if others else None


class Late(Struct, frozen=True):
    """``pid`` comes last to ``name``. The times are those of the meeting at which the others wait most: how long it and
    how long each other process stays inside."""

    name: str
    pid: int
    who: str  # ``rank 3``, or the process where no rank is told
    inside_ns: int
    least_ns: int
    most_ns: int


def latecomer(context: RuleContext, region: int) -> Late | None:
    """The process that mostly comes last to a collective, while others are in it; None where it is no such region,
    where the processes do not meet equally often, or where it is not mostly the same."""
    path, trace = context.path(region), context.trace
    if not path or message_kind(path[-1]) != MessageKind.COLLECTIVE:
        return None
    numbers = [number for number, name in enumerate(trace.names) if name == path[-1]]
    rows = np.flatnonzero(np.isin(trace.ranges.name, numbers))
    process = trace.process_of_thread[trace.ranges.thread[rows]]
    distinct, counts = np.unique(process, return_counts=True)
    if len(distinct) < 2 or len(unique(counts)) > 1:
        return None
    order = np.lexsort((trace.ranges.start_ns[rows], process))
    start, end = (time[rows[order]].reshape(len(distinct), -1) for time in (trace.ranges.start_ns, trace.ranges.end_ns))
    last, length = np.argmax(start, axis=0), end - start
    waited = np.clip(np.minimum(end, start.max(axis=0)) - start, 0, None).sum(axis=0)
    of_each = np.array([int(waited[last == place_id].sum()) for place_id in range(len(distinct))])
    late = int(np.argmax(of_each))
    if of_each[late] < MOSTLY * waited.sum() or not waited.sum():
        return None
    came_last = np.flatnonzero(last == late)
    worst = length[:, came_last[np.argmax(waited[came_last])]]
    others = np.delete(worst, late)
    number = int(distinct[late])
    pid = trace.processes[number].pid
    return Late(path[-1], pid, who(trace, number), int(worst[late]), int(others.min()), int(others.max()))


def who(trace: Trace, process: int) -> str:
    """``rank 3``, or the process where no rank is told."""
    rank = trace.ranks.get(process)
    return f"process {trace.processes[process].pid}" if rank is None else f"rank {rank}"


class Messages(Struct, frozen=True):
    """What is told of the messages that ranks wait for in one kind of calls: who of the other ends comes late most, for
    how long that is waited for (of ``total_ns`` in all of these calls), how often, and how large messages are."""

    sends: bool  # the calls do; else they receive
    count: int
    total_ns: int
    median_bytes: int  # -1: not told
    late: str  # ``rank 3``; empty: nobody does
    late_ns: int
    copies: int  # calls of CUDA that copy, made inside these calls: the library moves device memory by way of the host


def messages(context: RuleContext, region: int) -> Messages | None:
    """What is told of a region that sends, receives, or waits for what was begun; None where it is none of these, or
    nothing is told of it."""
    path, trace = context.path(region), context.trace
    calls, passed = trace.messages, _passed(context)
    held_in = calls.name[passed.held_in]
    names = is_in(held_in, [number for number in unique(held_in).tolist() if path and trace.names[number] == path[-1]])
    if not names.any():
        return None
    own, other, since, until = (column[names] for column in passed[:4])
    comes = np.where(other >= 0, calls.start_ns[np.maximum(other, 0)], since)
    waited = np.clip(np.minimum(comes, until) - since, 0, None)
    culprit = trace.process_of(calls.thread)[np.maximum(other, 0)]
    waited_for = group_sums(culprit, waited, len(trace.processes))
    latest = int(waited_for.argmax())
    is_late = bool(waited_for[latest]) and waited_for[latest] >= MOSTLY * int((until - since).sum())
    sizes = np.maximum(calls.sent_bytes, calls.received_bytes)[own]
    inside = union(since, until)
    copies = is_any(context.calls.kind, (CallClass.BLOCKING_COPY,)) & (contains(inside, context.calls.start_ns) >= 0)
    return Messages(
        sends=bool(passed.is_send[names].all()),
        count=len(own),
        total_ns=int((until - since).sum()),
        median_bytes=int(np.median(sizes)) if (sizes >= 0).all() else -1,
        late=who(trace, latest) if is_late else "",
        late_ns=int(waited_for[latest]) if is_late else 0,
        copies=int(np.count_nonzero(copies)),
    )


class _Passed(NamedTuple):
    """All messages whose other end is told: rows of Trace.messages, and what holds their rank."""

    row: npt.NDArray[np.intp]
    other: npt.NDArray[np.intp]  # the row of the other end; -1: none is on record
    since_ns: Int
    until_ns: Int
    held_in: npt.NDArray[np.intp]  # the row of the call that waits for it
    is_send: npt.NDArray[np.bool_]


@once
def _passed(context: RuleContext) -> _Passed:
    """The messages of all ranks."""
    trace, calls = context.trace, context.trace.messages
    kind = trace.message_kind[calls.name]
    is_send, is_receive = trace.passes_messages
    one_way = (is_send != is_receive) & (calls.peer >= 0)
    rows = np.flatnonzero(one_way)
    since, until, held_in = calls.start_ns[rows].copy(), calls.end_ns[rows].copy(), rows.copy()
    for thread in unique(calls.thread[rows]).tolist():
        is_here, of_thread = calls.thread[rows] == thread, calls.rows_of(thread)
        own = held(calls.take(of_thread), kind[of_thread], rows[is_here] - of_thread.start)
        since[is_here], until[is_here], held_in[is_here] = own[0], own[1], own[2] + of_thread.start
    return _Passed(rows, other_ends(trace, rows, is_send[rows]), since, until, held_in, is_send[rows])
