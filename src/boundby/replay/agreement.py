"""Whether replay and account agree about what each thread did: where the account owns an instant of the host, the
interval of the graph that holds it has the same cause. What does not is counted, and limits what may be predicted."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.segments import concatenate
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import Int8Array, Int32Array, Int64Array, as_rows, is_even, unique
from boundby.model.causes import CAUSES, Cause
from boundby.model.intervals import contains, union
from boundby.model.library import int64, integers, run
from boundby.native.passes import NONE

# What the account says of a thread between its calls; all else is the device's, a call's, or debited to a wait.
_BETWEEN_CALLS = (Cause.CPU, Cause.HOST_BLOCKED, Cause.INIT, Cause.UNATTRIBUTED)


class Disagreement(Struct, frozen=True):
    """For how long an interval of the graph has another cause than the account, on one thread."""

    thread: int
    account: Cause
    replay: Cause
    ns: int


def find_disagreements(
    timeline: Timeline,
    thread: npt.NDArray[np.integer],
    low_ns: Int64Array,
    piece_node: Int32Array,
    piece_ns: Int32Array,
    piece_cause: Int8Array,
) -> tuple[Disagreement, ...]:
    """Per thread and pair of causes, longest first. ``thread`` and ``low_ns`` of nodes: whose it is, and when the
    interval before it begins; pieces in order of their nodes."""
    total_ns: defaultdict[int, Int64Array] = defaultdict(lambda: np.zeros((len(CAUSES), len(CAUSES)), np.int64))
    for segments, cause in ((device.segments, _told(device)) for device in timeline.devices):
        owner = integers(segments.thread)
        account = int64(segments.start_ns), int64(segments.end_ns), cause, owner, owner.itemsize, len(segments)
        for number in unique(segments.thread[cause >= 0]).tolist():
            rows = _rows_of(number, thread, piece_node)
            pieces = [np.ascontiguousarray(column[rows]) for column in (piece_node, piece_ns, piece_cause)]
            by_cause = number, len(CAUSES), total_ns[number]
            run("boundby_differing", low_ns, *pieces, len(pieces[0]), *account, *by_cause)
    found = [
        Disagreement(number, Cause(one), Cause(other), int(ns[one, other]))
        for number, ns in total_ns.items()
        for one, other in np.argwhere(ns).tolist()
    ]
    return tuple(sorted(found, key=lambda one: (-one.ns, one.thread, one.account, one.replay)))


def _rows_of(number: int, thread: npt.NDArray[np.integer], piece_node: Int32Array) -> slice | npt.NDArray[np.intp]:
    """The pieces of a thread's nodes."""
    if is_even(thread):
        return slice(None) if len(thread) and thread[0] == number else slice(0)
    return as_rows(thread[piece_node] == number)


def _told(device: DeviceTimeline) -> Int8Array:
    """The cause of each segment that the account gives a thread between its calls; NONE: of all else, and of what it
    withholds as records are missing."""
    segments, withheld = device.segments, concatenate(*device.withheld[:2])
    told = np.array([cause if cause in _BETWEEN_CALLS else NONE for cause in Cause], np.int8)[segments.cause]
    if len(withheld):
        told[contains(union(withheld.start_ns, withheld.end_ns), segments.start_ns) >= 0] = NONE
    return told
