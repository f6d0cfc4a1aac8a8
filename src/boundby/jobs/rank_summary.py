"""What the merge needs of one rank: its collectives, and its own work between them by step, cause and region.

A rank goes through *events*: it arrives at a collective, or it has waited for one (its device had nothing else left).
Its own
work stands before each event; what it waited is in no piece of work. A few hundred kilobytes stand for a trace of any
size.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from boundby.model.arrays import (
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
    factorize,
    group_sums,
    ranked,
    sorted_distinct,
)
from boundby.model.causes import CAUSES, Cause
from boundby.model.intervals import NOTHING, CoveredTime, IntervalSet, union
from boundby.structure.mpi_ranks import Unfinished
from boundby.trace.facts import CLOCKS_APART_NS, ProgramEnd
from boundby.trace.tables import ColumnTable

UNKNOWN = NOTHING
#: A collective that begins within this time of its stream's last one's end was held up by that, not by what it needs.
QUEUED_NS = CLOCKS_APART_NS


class RankGroup(Struct, frozen=True):
    """A process group as the rank's trace knows it. ``ranks``: empty where the trace does not tell."""

    name: str
    ranks: tuple[int, ...] = ()


class Meetings(ColumnTable, frozen=True):
    """One rank's collectives on the trace's clock, ordered by start. ``ready``: when all it needed on this rank was
    done."""

    ORDER = ("start_ns", "end_ns", "stream", "group")

    start_ns: Int64Array
    end_ns: Int64Array
    ready_ns: Int64Array
    stream: Int64Array
    group: Int32Array  # index into RankSummary.groups
    kind: Int32Array  # index into RankSummary.kinds
    bytes: Int64Array  # UNKNOWN where not told
    sequence: Int64Array  # of the group; UNKNOWN where not told
    region: Int32Array
    call: Int32Array = field(default_factory=lambda: np.empty(0, np.int32))  # the rank's own name for it, as ``kind``

    def __post_init__(self) -> None:
        if len(self.call) != len(self.kind):
            force_setattr(self, "call", self.kind)


class RankEvents(ColumnTable, frozen=True):
    """Arrivals at collectives and ends of waits for them, in order of time. ``kernels``: which have begun since the one
    before, as one number that is the same for the same kernels."""

    time_ns: Int64Array
    meeting: Int32Array
    is_join: BoolArray
    kernels: Int64Array


class RankWork(ColumnTable, frozen=True):
    """The rank's own time: before which event (their number: after the last), in which step, why and where."""

    event: Int32Array
    step: Int32Array
    cause: Int8Array
    region: Int32Array
    ns: Int64Array


class Piece(ColumnTable, frozen=True):
    """Stretches of the account that cover the window: what `compact` is made from."""

    start_ns: Int64Array
    end_ns: Int64Array
    cause: Int8Array
    region: Int32Array


class Own(ColumnTable, frozen=True):
    """Operations of the device beside communication, by start, and when each could have begun as far as its launch is
    concerned. ``kernel``: a number of its name that all ranks share (`fingerprint`); 0: it is no kernel."""

    ORDER = ("start_ns", "arrived_ns", "kernel")

    start_ns: Int64Array
    arrived_ns: Int64Array
    kernel: Int64Array

    def kinds(self) -> Int64Array:
        """Fingerprints of its kernels in order, and how many of each: shape (kinds, 2)."""
        distinct, of_row = ranked(self.kernel[self.kernel != 0])
        return np.column_stack((distinct, np.bincount(of_row, minlength=len(distinct))))


class RankSummary(Struct, frozen=True):
    """One rank. ``base_ns``: the wall clock at the trace's zero (0: not told). ``kernels``: how many each step has."""

    name: str
    rank: int  # UNKNOWN where not told
    world_size: int
    host: str
    device: str
    base_ns: int
    window_ns: tuple[int, int]
    meetings: Meetings
    events: RankEvents
    work: RankWork
    groups: tuple[RankGroup, ...]
    kinds: tuple[str, ...]
    regions: tuple[tuple[str, ...], ...]
    step_ns: Int64Array  # when each step begins on the device; empty where no steps are known
    kernels: Int64Array
    kinds_of_kernels: Int64Array  # shape (kinds, 2): their fingerprints in order, and how many of each
    warnings: tuple[str, ...] = ()
    unfinished: Unfinished | None = None  # what it was in when the recording ended, where it did not end MPI
    program: ProgramEnd | None = None  # how the program of its report ended, where that says so
    is_damaged: bool = False  # rows of it were left out
    begins_mpi: bool | None = None  # whether the start of MPI is on record; None: no call of MPI is
    #: What its thread slept on in its own blocked time, and for how long: ``("sleep", 165_000_000)``.
    slept_on: tuple[tuple[str, int], ...] = ()
    clock: str = ""  # what the times were taken by: ranks of one report have one clock; "": not told
    how_it_runs: str = "PROGRAM"  # what stands for its program in a command
    is_of_torch: bool = False  # recorded by PyTorch's profiler: the program is Python

    @property
    def own_ns(self) -> Int64Array:
        """Own time by cause, shape (causes,)."""
        return group_sums(self.work.cause, self.work.ns, len(CAUSES))

    @property
    def passed_ns(self) -> npt.NDArray[np.float64]:
        """Per event: what passed since the one before beside own work."""
        own = np.bincount(self.work.event, self.work.ns, len(self.events) + 1)[:-1]
        passed: npt.NDArray[np.float64] = np.diff(self.events.time_ns, prepend=self.window_ns[0]) - own
        return passed


def held_once(summary: RankSummary, known: dict[RankGroup, RankGroup]) -> RankSummary:
    """A summary that shares its groups of many ranks with other summaries (``known``), to save memory."""
    return replace(summary, groups=tuple(known.setdefault(group, group) for group in summary.groups))


def compact(
    pieces: Piece, meetings: Meetings, window: tuple[int, int], step_ns: Int64Array, own: Own
) -> tuple[Meetings, RankEvents, RankWork]:
    """Events and own work of a rank from its account, its collectives and its operations ``own`` (in order).
    ``pieces`` cover the window in order."""
    low, high = window
    meetings = meetings.take((meetings.end_ns > low) & (meetings.start_ns < high)).sorted()
    rows = np.arange(len(meetings), dtype=np.int32)
    left, early = _left_early(pieces, meetings, own)
    exposed = _exposed_ends(pieces, meetings)
    is_join = exposed.end > exposed.start
    of_join = np.concatenate((rows[is_join], left.astype(np.int32)))
    start, end = np.append(exposed.start[is_join], early.start), np.append(exposed.end[is_join], early.end)
    waiting = union(start, end)
    time = np.concatenate((np.clip(meetings.ready_ns, low, high), np.minimum(end, high)))
    meeting = np.concatenate((rows, of_join))
    joined = np.concatenate((np.zeros(len(rows), bool), np.ones(len(of_join), bool)))
    order = np.lexsort((meeting, ~joined, time))
    time = time[order]
    events = RankEvents(time, meeting[order], joined[order], _begun(own, time))
    return meetings, events, _work(pieces, waiting, events, step_ns)


def fingerprint(name: str) -> int:
    """A number for a kernel's name, the same on all ranks."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


def _begun(own: Own, time: Int64Array) -> Int64Array:
    """Per event the sum, whatever its overflow, of the fingerprints of what began since the one before."""
    kernels = np.zeros(len(time) + 1, np.int64)
    np.add.at(kernels, np.searchsorted(time, own.start_ns, side="right"), own.kernel)
    return kernels[:-1]


def _exposed_ends(pieces: Piece, meetings: Meetings) -> IntervalSet:
    """For each collective, the stretch up to its end in which the device did nothing but communicate; empty where it
    ended behind other work. Not a set: collectives of several streams can overlap."""
    if not len(pieces):
        return IntervalSet(meetings.end_ns, meetings.end_ns)
    is_comm = pieces.cause == Cause.GPU_COMM
    begins = is_comm & np.append(True, ~is_comm[:-1] | (pieces.start_ns[1:] != pieces.end_ns[:-1]))
    begun = np.maximum.accumulate(np.where(begins, np.arange(len(pieces)), 0))
    holds = np.clip(np.searchsorted(pieces.start_ns, meetings.end_ns - 1, side="right") - 1, 0, len(pieces) - 1)
    inside = is_comm[holds] & (pieces.end_ns[holds] >= meetings.end_ns)
    start = np.maximum(pieces.start_ns[begun[holds]], meetings.start_ns)
    return IntervalSet(np.where(inside, np.minimum(start, meetings.end_ns), meetings.end_ns), meetings.end_ns)


def _left_early(pieces: Piece, meetings: Meetings, own: Own) -> tuple[Int64Array, IntervalSet]:
    """Waits for collectives that had other work beside their end: which, and when. The rank waited for one where an
    operation that was launched long before began nearer to that one's end than to the end of all that went before."""
    is_comm = pieces.cause == Cause.GPU_COMM
    apart = pieces.start_ns[1:] != pieces.end_ns[:-1]
    begun = pieces.start_ns[is_comm & np.append(True, ~is_comm[:-1] | apart)[: len(pieces)]]
    ended = pieces.end_ns[is_comm & np.append(~is_comm[1:] | apart, True)[: len(pieces)]]
    row = np.searchsorted(own.start_ns, ended)
    follows = np.flatnonzero((row < len(own)) & np.isin(ended, own.start_ns))
    begun, ended, row = begun[follows], ended[follows], row[follows]
    by_end = np.argsort(meetings.end_ns, kind="stable")
    ends = meetings.end_ns[by_end]
    next_end = np.searchsorted(ends, ended, side="right")
    before = np.append(np.iinfo(np.int64).min, ends)[next_end]
    since = np.maximum(np.maximum(begun, before), own.arrived_ns[row])
    near = np.append(ends, np.iinfo(np.int64).max)[next_end] - ended < ended - since  # else none ends soon enough
    since, ended, next_end = since[near], ended[near], next_end[near]
    waits = []
    for low, high, first in zip(since.tolist(), ended.tolist(), next_end.tolist(), strict=True):
        until = np.searchsorted(ends, high + max(high - low, 0))
        going = by_end[first:until]
        going = going[meetings.start_ns[going] < high]
        if len(going):
            waits.append((int(going[0]), max(low, int(meetings.start_ns[going[0]])), high))
    meeting, start, end = np.array(waits, np.int64).reshape(-1, 3).T
    return meeting, IntervalSet(start, end)


def _work(pieces: Piece, waiting: IntervalSet, events: RankEvents, step_ns: Int64Array) -> RankWork:
    """The pieces outside waits, cut at events and steps, summed."""
    marks = sorted_distinct(pieces.start_ns, events.time_ns, waiting.start, waiting.end, step_ns)
    if not len(pieces):
        return RankWork.empty()
    low, high = int(pieces.start_ns[0]), int(pieces.end_ns[-1])
    start = marks[(marks >= low) & (marks < high)]
    end = np.append(start[1:], high)
    ns = end - start - CoveredTime(waiting).within(start, end)
    kept = ns > 0
    start, ns = start[kept], ns[kept]
    of_piece = np.searchsorted(pieces.start_ns, start, side="right") - 1
    columns = (
        np.searchsorted(events.time_ns, start, side="right"),
        np.searchsorted(step_ns, start, side="right") - 1,
        pieces.cause[of_piece],
        pieces.region[of_piece],
    )
    distinct, of_row = factorize(*columns)
    event, step, cause, region = (distinct[:, column] for column in range(4))
    narrow = event.astype(np.int32), step.astype(np.int32), cause.astype(np.int8), region.astype(np.int32)
    return RankWork(*narrow, group_sums(of_row, ns, len(distinct)))


def queued_ready(start_ns: Int64Array, end_ns: Int64Array, stream: Int64Array, needed_ns: Int64Array) -> Int64Array:
    """When each collective could have begun: its start, or ``needed_ns`` where it followed right on its stream's
    last; never before that one could."""
    ready: Int64Array = start_ns.copy()
    for stream_id in np.unique(stream).tolist():
        rows = np.flatnonzero(stream == stream_id)
        rows = rows[np.argsort(start_ns[rows], kind="stable")]
        behind = rows[1:][start_ns[rows[1:]] - end_ns[rows[:-1]] < QUEUED_NS]
        ready[behind] = np.minimum(needed_ns[behind], start_ns[behind])
        ready[rows] = np.maximum.accumulate(ready[rows])
    return ready


def merged(paths: Sequence[Sequence[tuple[str, ...]]]) -> tuple[list[tuple[str, ...]], list[npt.NDArray[np.int64]]]:
    """One numbering for several lists of things, and each list's numbers in it."""
    every = sorted({path for paths_of in paths for path in paths_of})
    number = {path: index for index, path in enumerate(every)}
    return every, [np.array([number[path] for path in paths_of], np.int64) for paths_of in paths]
