"""Ranks of MPI that did not come to its end: what they were in when the recording ended."""

from __future__ import annotations

import numpy as np

from boundby.model.arrays import is_any, unique
from boundby.model.records import dataclass
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.mpi import WAITING, MessageKind

#: A last call that takes less of the time since MPI_Init was cut by the recording's end, not by the program's.
STUCK_SHARE = 0.1


@dataclass(frozen=True)
class Unfinished:
    """The last call of a rank that started MPI and never ended it. ``is_inside``: it never returned from it."""

    process: int  # index into Trace.processes
    call: str
    is_inside: bool
    since_ns: int  # the call's begin
    until_ns: int  # its end, or that of the recording
    peer: int  # -1: not told, as the others
    tag: int
    bytes: int


def unfinished(trace: Trace) -> tuple[Unfinished, ...]:
    """Those of the ranks, where at least one is stuck in a call; empty where all ended, or the recording did."""
    calls = trace.messages
    if not len(calls):
        return ()
    kind, process = trace.message_kind[calls.name], trace.process_of(calls.thread)
    ended = set(unique(process[kind == MessageKind.END]).tolist())
    latest_ns = int(calls.end_ns.max())
    found = []
    for number in unique(process[kind == MessageKind.START]).tolist():
        if number in ended:
            continue
        rows = np.flatnonzero((process == number) & is_any(kind, WAITING))
        if not len(rows):
            continue
        row = int(rows[np.lexsort((calls.start_ns[rows], calls.end_ns[rows]))[-1]])
        is_inside = bool(calls.is_open[row]) or int(calls.end_ns[row]) >= latest_ns
        found.append(
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
    stuck = any(one.is_inside and one.until_ns - one.since_ns >= least_ns for one in found)
    return tuple(found) if stuck else ()
