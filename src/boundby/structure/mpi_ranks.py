"""Ranks of MPI that did not come to its end (what they were in when the recording ended), and messages without their
other end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.correlation.cpu_evidence import lifetime
from boundby.model import units
from boundby.model.arrays import Int64Array, factorize, is_any, is_in, places, unique
from boundby.model.scale import A_FEW_LINES, NOTABLE
from boundby.trace.facts import TraceWarning
from boundby.trace.tables import MessageTable, Trace
from boundby.trace.vocabulary.last_words import failed_in
from boundby.trace.vocabulary.os import WAITING, MessageKind, sends

#: A last call that takes less of the time since MPI_Init was cut by the recording's end, not by the program's.
STUCK_SHARE = NOTABLE
#: So many ranks that did not come to the end are told one by one.
MOST_TOLD = A_FEW_LINES


class Unfinished(Struct, frozen=True):
    """The last call of a rank that started MPI and never ended it. ``is_inside``: it never returned from it.
    ``has_failed``: it failed there, as the backtrace says that it printed."""

    process: int  # index into Trace.processes
    call: str
    is_inside: bool
    since_ns: int  # the call's begin
    until_ns: int  # its end, or that of the recording
    peer: int  # -1: not told, as the others
    tag: int
    bytes: int
    has_failed: bool = False


def unfinished(trace: Trace) -> tuple[Unfinished, ...]:
    """Those of the ranks, where at least one is stuck in a call; empty where all ended, or the recording did."""
    calls = trace.messages
    if not len(calls):
        return ()
    kind, process = trace.message_kind[calls.name], trace.process_of(calls.thread)
    ended = set(unique(process[kind == MessageKind.END]).tolist())
    latest_ns = int(calls.end_ns.max())
    failed = _failed_in(trace)
    unfinished_ranks = []
    for number in unique(process[kind == MessageKind.START]).tolist():
        if number in ended:
            continue
        rows = np.flatnonzero((process == number) & is_any(kind, WAITING))
        if not len(rows):
            continue
        row = int(rows[np.lexsort((calls.start_ns[rows], calls.end_ns[rows]))[-1]])
        if number in failed:
            since_ns = int(calls.end_ns[row])
            until_ns = max(since_ns, _last_sign_ns(trace, number))
            unfinished_ranks.append(
                Unfinished(number, failed[number], True, since_ns, until_ns, -1, -1, -1, has_failed=True)
            )
            continue
        is_inside = bool(calls.is_open[row]) or int(calls.end_ns[row]) >= latest_ns
        unfinished_ranks.append(
            Unfinished(
                number,
                trace.names[int(calls.name[row])],
                is_inside,
                int(calls.start_ns[row]),
                int(calls.end_ns[row]),
                int(calls.peer[row]),
                int(calls.tag[row]),
                int(max(calls.sent_bytes[row], calls.received_bytes[row])),
            )
        )
    begun_ns = int(calls.end_ns[kind == MessageKind.START].max(initial=trace.span_ns[0]))
    least_ns = STUCK_SHARE * max(trace.span_ns[1] - begun_ns, 1)
    stuck = any(rank.is_inside and rank.until_ns - rank.since_ns >= least_ns for rank in unfinished_ranks)
    return tuple(unfinished_ranks) if stuck else ()


def _failed_in(trace: Trace) -> dict[int, str]:
    """By process: the call in which it failed, as the backtraces say that were printed."""
    failing_call: dict[int, str] = {}
    for one in trace.written:
        for number, call in failed_in(one.text).items():
            failing_call.update({at.process: call for at in trace.threads if number in (at.tid, at.pid)})
    return failing_call


def _last_sign_ns(trace: Trace, process: int) -> int:
    """When one of the process's threads shows itself last."""
    lives = (lifetime(trace, at) for at, thread in enumerate(trace.threads) if thread.process == process)
    return max(life[1] for life in lives if life is not None)


def ending(
    name: str,
    call: str,
    lasted_ns: int | None,
    peer: str = "",
    tag: int | None = None,
    size: int | None = None,
    *,
    has_failed: bool = False,
) -> str:
    """What a rank was in when the recording ended, as a clause. ``lasted_ns`` None: in nothing on record, after that
    call."""
    if has_failed:
        return f"{name} failed in {call}"
    if lasted_ns is None:
        return f"{name} ended after {call}"
    message = f" {'to' if sends(call) else 'from'} {peer}" if peer else ""
    details = [f"tag {tag}"] * (tag is not None) + [units.size(size)] * bool(size)
    message += f" ({', '.join(details)})" if details else ""
    return f"{name} is in {call}{message} for the last {units.duration(lasted_ns)}"


def endings(clauses: Sequence[str], more: int, all_stuck: bool) -> str:
    """The clauses of several ranks as one. ``more``: ranks that did not end either."""
    parts = [*clauses, *([f"{units.plural(more, 'more rank')} did not end either"] if more > 0 else [])]
    return "; ".join([*parts, *(["no rank does what the others wait for"] if all_stuck else [])])


def not_ended(trace: Trace) -> TraceWarning | None:
    """What to tell of ranks that did not come to the end of MPI; None: all did."""
    unended = sorted(unfinished(trace), key=lambda last: (last.is_inside and not last.has_failed, last.process))
    if not unended:
        return None
    clauses = []
    for rank in unended[:MOST_TOLD]:
        number = trace.ranks.get(rank.process)
        name = f"process {trace.processes[rank.process].pid}" if number is None else f"rank {number}"
        peer = f"rank {rank.peer}" if rank.peer >= 0 else ""
        facts = (value if value >= 0 else None for value in (rank.tag, rank.bytes))
        lasted_ns = rank.until_ns - rank.since_ns if rank.is_inside else None
        clauses.append(ending(name, rank.call, lasted_ns, peer, *facts, has_failed=rank.has_failed))
    count = len(unique(trace.process_of(trace.messages.thread)))
    all_stuck = len(unended) == count and all(last.is_inside and not last.has_failed for last in unended)
    text = endings(clauses, len(unended) - MOST_TOLD, all_stuck)
    return TraceWarning("mpi-not-ended", f"MPI did not finish: {text}.")


def unmatched(trace: Trace) -> TraceWarning | None:
    """What to tell of messages that one rank sent and another one never received, or the other way round; None: there
    are none, or the recording does not tell: both ranks must be on record from MPI_Init to MPI_Finalize, in one
    numbering, and without calls that leave the other end or the tag open."""
    calls, process = trace.messages, trace.process_of(trace.messages.thread)
    kind, (is_send, is_receive) = trace.message_kind[calls.name], trace.passes_messages
    started, ended = (
        set(unique(process[kind == kind_wanted]).tolist()) for kind_wanted in (MessageKind.START, MessageKind.END)
    )
    is_open = (is_receive & ((calls.peer < 0) | (calls.tag < 0))) | (is_send & is_receive)
    is_open |= (is_send | is_receive) & (kind == MessageKind.OTHER)  # what MPI_Send_init prepares is started elsewhere
    whole = {rank for rank in started & ended if rank in trace.ranks} - set(unique(process[is_open]).tolist())
    number_of = {trace.ranks[rank]: rank for rank in whole}
    if len(number_of) < 2 or any(
        communicator.size != len(trace.ranks) for communicator in trace.communicators if communicator.size > 1
    ):
        return None
    rows = np.flatnonzero((is_send | is_receive) & is_in(process, sorted(whole)) & is_in(calls.peer, sorted(number_of)))
    alone = rows[other_ends(trace, rows, is_send[rows]) < 0]
    sentences = [_alone(trace, alone[is_send[alone] == does], sends_them=does) for does in (True, False)]
    text = "; ".join(filter(None, sentences))
    return TraceWarning("mpi-unmatched", f"{text[0].upper()}{text[1:]}.") if text else None


def _alone(trace: Trace, rows: npt.NDArray[np.intp], *, sends_them: bool) -> str:
    """``no call on record receives 5 messages that rank 0 sends to rank 1 (tags 0, 3)``: of the two ranks that have
    most of them."""
    if not len(rows):
        return ""
    calls = trace.messages
    own, peer = trace.process_of(calls.thread)[rows], calls.peer[rows]
    pairs, which = factorize(own, peer)
    pair = int(np.bincount(which).argmax())
    process, other = pairs[pair].tolist()
    tags = unique(calls.tag[rows[which == pair]]).tolist()
    more = len(rows) - int((which == pair).sum())
    who, whom = f"rank {trace.ranks[process]}", f"rank {other}"
    tag_text = f" ({'tag' if len(tags) == 1 else 'tags'} {', '.join(map(str, tags[:MOST_TOLD]))}"
    tag_text += ", ...)" if len(tags) > MOST_TOLD else ")"
    number = units.plural(len(rows) - more, "message")
    does, way = ("receives", "sends to") if sends_them else ("sends", "expects of")
    text = f"no call on record {does} {number} that {who} {way} {whom}{tag_text}"
    return f"{text}, and {more} of other ranks" if more else text


def held(
    calls: MessageTable, kind: npt.NDArray[np.int8], rows: npt.NDArray[np.intp]
) -> tuple[Int64Array, Int64Array, npt.NDArray[np.intp]]:
    """From when to when each of these messages of one thread can hold its rank, and the row of the call: its own; of
    one that was begun the next waits, up to where others are begun. ``kind``: of each call."""
    start, end, held_in = calls.start_ns[rows].copy(), calls.end_ns[rows].copy(), rows.copy()
    waits, begins = np.flatnonzero(kind == MessageKind.WAIT), np.flatnonzero(kind == MessageKind.BEGIN)
    begun = np.flatnonzero(kind[rows] == MessageKind.BEGIN)
    if not len(waits) or not len(begun):
        return start, end, held_in
    first = places(calls.start_ns[waits], end[begun])
    begun, first = begun[first < len(waits)], first[first < len(waits)]
    until = np.append(calls.start_ns[begins], np.iinfo(np.int64).max)
    following = until[places(until, calls.start_ns[waits[first]])]
    last = places(calls.start_ns[waits], following) - 1
    start[begun], end[begun], held_in[begun] = calls.start_ns[waits[first]], calls.end_ns[waits[last]], waits[first]
    return start, end, held_in


def other_ends(trace: Trace, rows: npt.NDArray[np.intp], is_send: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Of each of these calls the one that it meets: that of the other rank with the same tag, in order; -1: none."""
    calls = trace.messages
    rank = np.array([trace.ranks.get(process, -1) for process in range(len(trace.processes))] or [-1], np.int64)
    own = rank[trace.process_of(calls.thread)[rows]]
    source, target = np.where(is_send, own, calls.peer[rows]), np.where(is_send, calls.peer[rows], own)
    _, which = factorize(source, target, calls.tag[rows])
    partner = np.full(len(rows), -1, np.intp)
    if (own < 0).any() or not len(rows):
        return partner
    order = np.lexsort((calls.start_ns[rows], is_send, which))
    position = np.arange(len(rows))
    begins = np.append(True, (which[order][1:] != which[order][:-1]) | (is_send[order][1:] != is_send[order][:-1]))
    number = position - np.maximum.accumulate(np.where(begins, position, 0))
    key = which[order] * len(rows) + number
    receives, sending = order[~is_send[order]], order[is_send[order]]
    of_receive, of_send = key[~is_send[order]], key[is_send[order]]
    _, left, right = np.intersect1d(of_receive, of_send, assume_unique=True, return_indices=True)
    partner[receives[left]], partner[sending[right]] = rows[sending[right]], rows[receives[left]]
    return partner
