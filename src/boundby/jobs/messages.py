"""One rank's calls of MPI as meetings: collectives by communicator and order, messages by both ends, tag and order.

A message that was begun (MPI_Isend, MPI_Irecv) is met where it is waited for: it is ready from its begin on, and holds
its rank up in the MPI_Wait calls that follow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.jobs.meetings import MESSAGE
from boundby.jobs.rank_summary import UNKNOWN, Meetings, RankGroup
from boundby.model.arrays import Int64Array, factorize, is_any, ranked, unique
from boundby.model.intervals import IntervalSet, any_of
from boundby.structure.mpi_ranks import held
from boundby.trace.facts import Communicator
from boundby.trace.tables import MessageTable
from boundby.trace.vocabulary.os import WAITING, MessageKind, receives, sends

WORLD = "all ranks"


def message_meetings(timeline: Timeline, groups: dict[RankGroup, int], kinds: dict[str, int]) -> Meetings:
    """The meetings of the rank's thread that passes most messages. Adds to ``groups`` and ``kinds``."""
    trace = timeline.trace
    threads, counts = np.unique(trace.messages.thread, return_counts=True)
    if not len(threads):
        return Meetings.empty()
    thread = int(threads[counts.argmax()])
    calls = trace.messages.of_thread(thread)
    kind = trace.message_kind[calls.name]
    process = trace.threads[thread].process
    own = [communicator for communicator in trace.communicators if communicator.process == process]
    communicator_of, names = _communicators(calls, own)
    is_whole = bool((kind == MessageKind.START).any())  # else others may have begun to count before
    meetings = calls.take(np.flatnonzero(kind == MessageKind.COLLECTIVE))
    parts = [
        _collectives(
            timeline, meetings, communicator_of[kind == MessageKind.COLLECTIVE], names, groups, kinds, is_whole
        )
    ]
    rank = trace.ranks.get(process, UNKNOWN)
    passes = is_any(kind, (MessageKind.SEND, MessageKind.RECEIVE, MessageKind.EXCHANGE, MessageKind.BEGIN))
    passes &= calls.peer >= 0
    if rank != UNKNOWN and passes.any():
        rows = np.flatnonzero(passes)
        parts.append(_passed(timeline, calls, kind, rows, (communicator_of, names, rank), groups, kinds))
    columns = ([getattr(part, column) for part in parts] for column in Meetings.__struct_fields__)
    return Meetings(*(np.concatenate(column) for column in columns))


def passing_messages(timeline: Timeline) -> IntervalSet:
    """When the rank is in MPI, once that has started."""
    trace = timeline.trace
    threads = unique(trace.messages.thread).tolist()
    return any_of(trace.in_messages(thread, (*WAITING, MessageKind.BEGIN)) for thread in threads)


def _communicators(calls: MessageTable, known: list[Communicator]) -> tuple[npt.NDArray[np.int64], list[RankGroup]]:
    """Of each call the communicator that it is on, and the communicators: named alike on all ranks by their size and by
    which of that size they are. Where a call does not tell its own, it is on the first."""
    groups, count = [], dict[int, int]()
    for communicator in known:
        count[communicator.size] = count.get(communicator.size, 0) + 1
        groups.append(
            RankGroup(f"communicator {count[communicator.size]} ({communicator.size} ranks)", communicator.members)
        )
    if not groups:
        return np.zeros(len(calls), np.int64), [RankGroup(WORLD)]
    handle, since = (
        np.array([getattr(communicator, what) for communicator in known], np.int64) for what in ("handle", "since_ns")
    )
    number_of = np.zeros(len(calls), np.int64)
    for number in np.argsort(since, kind="stable").tolist():  # a handle that is free is used again
        number_of[(calls.communicator == handle[number]) & (calls.start_ns >= since[number])] = number
    return number_of, groups


def _collectives(
    timeline: Timeline,
    calls: MessageTable,
    place: npt.NDArray[np.int64],
    names: list[RankGroup],
    groups: dict[RankGroup, int],
    kinds: dict[str, int],
    is_whole: bool,
) -> Meetings:
    group, kind = _named_groups(place, names, groups), _named_kinds(timeline, calls, kinds)
    sequence = _order_in(place) if is_whole else np.full(len(calls), UNKNOWN, np.int64)
    return _meetings(timeline, calls, calls.start_ns, calls.start_ns, calls.end_ns, group, kind, sequence, kind)


def _passed(
    timeline: Timeline,
    calls: MessageTable,
    kind: npt.NDArray[np.int8],
    rows: npt.NDArray[np.intp],
    own: tuple[npt.NDArray[np.int64], list[RankGroup], int],
    groups: dict[RankGroup, int],
    kinds: dict[str, int],
) -> Meetings:
    """Messages between two ranks, numbered by their ends, tag and communicator."""
    communicator_of, names, rank = own
    texts = timeline.trace.names
    is_receive = np.array([receives(text) for text in texts], bool)[calls.name[rows]]
    is_send = np.array([sends(text) for text in texts], bool)[calls.name[rows]]
    of_world = np.array([_is_world(names[number]) for number in communicator_of[rows].tolist()], bool)
    kept = (is_receive | is_send) & of_world
    rows, is_send, is_exchange = rows[kept], is_send[kept], (is_send & is_receive)[kept]
    is_send, is_exchange = _halves(calls, rows, is_send, is_exchange)
    peer, tag, on = calls.peer[rows], calls.tag[rows], communicator_of[rows]
    sends_it = np.where(is_exchange, peer > rank, is_send)
    source, target = np.where(sends_it, rank, peer), np.where(sends_it, peer, rank)
    distinct, which = factorize(on, source, target, tag, is_exchange)
    group_of = [
        groups.setdefault(
            RankGroup(
                f"{names[number].name} {'between ranks' if both else 'from rank'} {src} {'and' if both else 'to'} {dst}"
                f" with tag {tag}",
                tuple(sorted({src, dst})),
            ),
            len(groups),
        )
        for number, src, dst, tag, both in distinct.tolist()
    ]
    passing = kinds.setdefault(MESSAGE, len(kinds))
    start, end, held_in = held(calls, kind, rows)
    return _meetings(
        timeline,
        calls.take(rows),
        calls.start_ns[rows],
        start,
        end,
        np.array(group_of, np.int64)[which],
        np.full(len(rows), passing, np.int64),
        _order_in(which),
        _named_kinds(timeline, calls.take(held_in), kinds),
    )


def _halves(
    calls: MessageTable, rows: npt.NDArray[np.intp], is_send: npt.NDArray[np.bool_], is_exchange: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows send, and which both send and receive. Of a call that does both (MPI_Sendrecv) nsys 2024 writes two
    rows that begin together: one of no length for what it sends, one for what it receives; or a single one, where rank,
    tag and size of both are the same."""
    start, length = calls.start_ns[rows], (calls.end_ns - calls.start_ns)[rows]
    _, which, count = np.unique(start, return_inverse=True, return_counts=True)
    is_half = is_exchange & (count[which.reshape(-1)] > 1)
    return np.where(is_half, length == 0, is_send), is_exchange & ~is_half


def _is_world(group: RankGroup) -> bool:
    """Whether its ranks are numbered as the job's are."""
    return not group.ranks or group.ranks == tuple(range(len(group.ranks)))


def _meetings(
    timeline: Timeline,
    calls: MessageTable,
    ready: Int64Array,
    start: Int64Array,
    end: Int64Array,
    group: npt.NDArray[np.int64],
    kind: npt.NDArray[np.int64],
    sequence: Int64Array,
    call: npt.NDArray[np.int64],
) -> Meetings:
    if not len(calls):
        return Meetings.empty()
    region = timeline.ownership.at(int(calls.thread[0]), calls.start_ns)
    return Meetings(
        start,
        end,
        ready,
        np.full(len(calls), UNKNOWN, np.int64),
        group.astype(np.int32),
        kind.astype(np.int32),
        np.maximum(calls.sent_bytes, calls.received_bytes),
        sequence,
        region.astype(np.int32),
        call.astype(np.int32),
    )


def _order_in(group: npt.NDArray[np.int64]) -> Int64Array:
    """Each row's number among those of its group, in their order."""
    order = np.argsort(group, kind="stable")
    ranked = group[order]
    first = np.searchsorted(ranked, ranked)
    order_of = np.empty(len(group), np.int64)
    order_of[order] = np.arange(len(group)) - first
    return order_of


def _named_groups(
    place: npt.NDArray[np.int64], names: list[RankGroup], groups: dict[RankGroup, int]
) -> npt.NDArray[np.int64]:
    number = np.zeros(len(names), np.int64)
    for communicator_id in unique(place).tolist():
        number[communicator_id] = groups.setdefault(names[communicator_id], len(groups))
    return number[place]


def _named_kinds(timeline: Timeline, calls: MessageTable, kinds: dict[str, int]) -> npt.NDArray[np.int64]:
    names = timeline.trace.names
    used, which = ranked(calls.name)
    return np.array([kinds.setdefault(names[name_id], len(kinds)) for name_id in used.tolist()], np.int64)[which]
