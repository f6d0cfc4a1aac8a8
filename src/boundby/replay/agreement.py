"""Whether replay and account agree about what each thread did: where the account owns an instant of the host, the
interval of the graph that holds it has the same cause. What does not is counted, and limits what may be predicted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.segments import Segments, concatenate
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import Int8Array, Int32Array, Int64Array, as_rows, is_even, tally, unique
from boundby.model.causes import Cause
from boundby.model.intervals import IntervalSet, contains, overlay, union
from boundby.model.records import dataclass, fields

# What the account says of a thread between its calls; all else is the device's, a call's, or debited to a wait.
_BETWEEN_CALLS = (Cause.CPU, Cause.HOST_BLOCKED, Cause.INIT, Cause.UNATTRIBUTED)


@dataclass(frozen=True)
class Disagreement:
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
    found: list[Disagreement] = []
    parts = [_told(device) for device in timeline.devices]
    responsible = {one for segments in parts for one in unique(segments.thread).tolist()}
    for number in sorted(responsible):
        if not len(piece_node) or (is_even(thread) and thread[0] != number):
            continue
        rows = slice(None) if is_even(thread) else as_rows(thread[piece_node] == number)
        node, ns, cause = piece_node[rows], piece_ns[rows].astype(np.int64), piece_cause[rows]
        if not len(node):
            continue
        until = np.cumsum(ns)
        first = np.flatnonzero(np.append(True, node[1:] != node[:-1])[: len(node)])
        moved = low_ns[node[first]] - (until - ns)[first]
        end = until + np.repeat(moved, np.diff(np.append(first, len(node))))
        pieces = IntervalSet(end - ns, end)
        for segments in parts:
            own = np.flatnonzero(segments.thread == number)
            # Most lie in one interval of the same cause, which is seen without cutting the two into pieces.
            place = contains(pieces, segments.start_ns[own])
            same = (place >= 0) & (cause[place] == segments.cause[own]) & (pieces.end[place] >= segments.end_ns[own])
            own = own[~same]
            both = overlay(IntervalSet(segments.start_ns[own], segments.end_ns[own]), pieces)
            account, replay = segments.cause[own][both.left], cause[both.right]
            differ = np.flatnonzero(account != replay)
            table = tally(account[differ], replay[differ], None, (both.end - both.start)[differ])
            found += [
                Disagreement(number, Cause(one), Cause(other), total)
                for one, other, total in zip(table.group.tolist(), table.label.tolist(), table.ns.tolist(), strict=True)
            ]
    return tuple(sorted(found, key=lambda one: (-one.ns, one.thread, one.account, one.replay)))


def _told(device: DeviceTimeline) -> Segments:
    """What the account says of threads between their calls, but for what it withholds as records are missing."""
    segments, withheld = device.segments, concatenate(*device.withheld[:2])
    kept = np.isin(np.arange(max(Cause) + 1), _BETWEEN_CALLS)[segments.cause]
    if len(withheld):
        kept &= contains(union(withheld.start_ns, withheld.end_ns), segments.start_ns) < 0
    return Segments(*(getattr(segments, column.name)[kept] for column in fields(Segments)))
