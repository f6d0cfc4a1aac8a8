"""In which call a message holds its rank: a message that was begun does so where it is waited for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int64Array, places
from boundby.trace.tables import Messages
from boundby.trace.vocabulary.mpi import MessageKind


def held(
    calls: Messages, kind: npt.NDArray[np.int8], rows: npt.NDArray[np.intp]
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
