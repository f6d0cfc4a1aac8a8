"""Messages between ranks: in which call one holds its rank (one that was begun does so where it is waited for), and the
other end of each.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int64Array, factorize, places
from boundby.trace.tables import MessageTable, Trace
from boundby.trace.vocabulary.os import MessageKind


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
    found = np.full(len(rows), -1, np.intp)
    if (own < 0).any() or not len(rows):
        return found
    order = np.lexsort((calls.start_ns[rows], is_send, which))
    place = np.arange(len(rows))
    begins = np.append(True, (which[order][1:] != which[order][:-1]) | (is_send[order][1:] != is_send[order][:-1]))
    number = place - np.maximum.accumulate(np.where(begins, place, 0))
    key = which[order] * len(rows) + number
    receives, sending = order[~is_send[order]], order[is_send[order]]
    of_receive, of_send = key[~is_send[order]], key[is_send[order]]
    _, left, right = np.intersect1d(of_receive, of_send, assume_unique=True, return_indices=True)
    found[receives[left]], found[sending[right]] = rows[sending[right]], rows[receives[left]]
    return found
