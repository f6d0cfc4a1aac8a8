"""Collectives matched over ranks, the clocks that this sets, and what of each was transfer and what waiting.

Matching needs no clock where the ranks' sequences agree. Where some ranks lack some collectives (a profile cut short, a
sampled one), the offset that brings most ends together decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from numpy.lib.stride_tricks import sliding_window_view

from boundby.jobs.rank_summary import UNKNOWN, RankSummary, merged
from boundby.model.arrays import BoolArray, Int64Array, factorize, unique
from boundby.model.scale import CLOCK_ERROR_NS, DISPATCH_NS, HABIT, HALF, MARGIN, NEARLY_ALL, PLENTY, SEVERAL, SMALL
from boundby.trace.vocabulary.os import is_mpi, is_symmetric

Float = npt.NDArray[np.float64]
#: Ends of one collective lie within this of each other once clocks are set; real sets show microseconds.
TOGETHER_NS = DISPATCH_NS
#: Hosts leave a collective when they get a core: within this share of the usual time between two.
HOSTS_TOGETHER_SHARE = SMALL
#: Of the collectives of a group so many may end on one rank before the last has begun: else they are none.
IMPOSSIBLE_SHARE = MARGIN
#: So many collectives, at the least, tell a clock's drift: three in each half.
LEAST_FOR_DRIFT = 2 * HABIT
#: So many collectives of a group, at the most, tell who meets whom.
_MOST_LOOKED_AT = PLENTY
#: So many ends of what two sets of ranks pass on, at the most, tell how far their clocks are apart.
_MOST_BRIDGED = PLENTY
#: Rounds in which the lines of all ranks settle.
_ROUNDS = SEVERAL
#: Ranks of one job share at least so many of the collectives of the one that has fewer.
MATCHED_SHARE = HALF
#: Stages are so far apart that so much of what they pass on finds a partner at that distance.
MOSTLY_PAIRED = NEARLY_ALL
#: Oscillators differ by less.
MOST_DRIFT = 2e-4
MESSAGE = "message"  # what a message between two ranks is called whose ends and tag are told
_PASSING = {MESSAGE, "sendrecv", "send", "recv", "mpisend", "mpirecv", "mpiisend", "mpiirecv", "mpissend"}


class Clock(Struct, frozen=True):
    """From a rank's clock to the job's: ``time + offset + drift * (time - origin)``."""

    offset_ns: float
    drift: float
    origin_ns: int
    matched: int  # collectives that it rests on; 0: only what the file says
    residual_ns: float  # median distance of the rank's ends from the common ends
    worst_ns: float  # 95th percentile

    def at(self, time_ns: npt.NDArray[np.int64]) -> Int64Array:
        """Instants of this rank's clock on the job's clock, ns."""
        shift = self.offset_ns + self.drift * (time_ns - self.origin_ns)
        return time_ns + np.round(shift).astype(np.int64)


class Matched(Struct, frozen=True, dict=True):
    """All parts of all collectives, ordered by instance and rank. Instances are numbered by time of their end."""

    instance: Int64Array
    rank: Int64Array
    row: Int64Array  # of the rank's meetings
    start_ns: Int64Array  # on the job's clock
    end_ns: Int64Array
    first: Int64Array  # per instance: its first part; one more than there are instances
    expected: Int64Array  # per instance: how many ranks take part, present or not
    group: Int64Array  # per instance: index into ``groups``
    groups: tuple[tuple[int, ...], ...]  # ranks (indexes of summaries) that meet
    names: tuple[str, ...]
    kind: tuple[str, ...]  # per instance
    bytes: Int64Array  # per instance: the most that any part tells
    ready_ns: Int64Array  # per part: since when it could take place as far as its rank is concerned
    is_message: BoolArray  # per instance: of the hosts' message passing, whose parts need not end together

    def __len__(self) -> int:
        return len(self.expected)

    @property
    def size(self) -> Int64Array:
        return np.diff(self.first)

    @cached_property
    def _by_rank(self) -> tuple[Int64Array, Int64Array]:
        """All parts rank by rank, and where each rank's begin among them."""
        order = np.argsort(self.rank, kind="stable")
        return order, np.searchsorted(self.rank[order], np.arange(int(self.rank.max(initial=-1)) + 2))

    def parts_of(self, rank: int) -> Int64Array:
        """A rank's parts, in order of time."""
        order, first = self._by_rank
        return order[slice(*first[rank : rank + 2].tolist())] if rank + 1 < len(first) else order[:0]

    def instance_of(self, rank: int, rows: int) -> Int64Array:
        """Per row of a rank's meetings the instance that it is a part of; -1: none."""
        parts = self.parts_of(rank)
        instances = np.full(rows, -1, np.int64)
        instances[self.row[parts]] = self.instance[parts]
        return instances

    @cached_property
    def length_ns(self) -> Int64Array:
        """How long each part took."""
        return self.end_ns - self.start_ns

    @cached_property
    def transfer_ns(self) -> Int64Array:
        """Per instance: what the last to come takes, which waits for nobody."""
        if not len(self):
            return self.expected
        shortest = np.minimum.reduceat(self.length_ns, self.first[:-1])
        since_last = np.minimum.reduceat(self.end_ns, self.first[:-1]) - self._last_ready_ns
        return np.maximum(np.where(self.is_message, np.minimum(shortest, since_last), shortest), 0)

    @cached_property
    def _last_ready_ns(self) -> Int64Array:
        """Per instance: when its last part was ready."""
        return np.maximum.reduceat(self.ready_ns, self.first[:-1])

    @cached_property
    def is_left_early(self) -> BoolArray:
        """Per part: whether its rank went on before the last came, as who sends a small message does, or a root."""
        if not len(self):
            return np.zeros(0, bool)
        early: BoolArray = self.is_message[self.instance] & (self.end_ns < self._last_ready_ns[self.instance])
        return early

    def latest(self) -> tuple[Int64Array, Int64Array]:
        """Per instance: the part that came last, and for how long after the second last. Parts that end together came
        as late as they are short; of messages the clocks tell, and who went on before has not waited."""
        if not len(self):
            return self.expected, self.expected
        lateness = np.where(self.is_message[self.instance], -self.ready_ns, self.length_ns)
        order = np.lexsort((self.rank, lateness, self.instance))
        first = self.first[:-1]
        last, second = order[first], order[np.minimum(first + 1, first + self.size - 1)]
        since = np.where(self.is_left_early, np.iinfo(np.int64).min, np.maximum(self.start_ns, self.ready_ns))
        since[last] = np.iinfo(np.int64).min
        waiting_since = np.maximum.reduceat(since, first)
        waited = np.where(waiting_since > np.iinfo(np.int64).min, self._last_ready_ns - waiting_since, 0)
        late_by = np.where(self.is_message, np.maximum(waited, 0), self.length_ns[second] - self.length_ns[last])
        return last, late_by


class Aligned(Struct, frozen=True):
    """The job's collectives and clocks, and what could not be matched."""

    matched: Matched
    clocks: tuple[Clock, ...]
    notes: tuple[str, ...]
    begin_together: bool = False  # all ranks stand in one report, from MPI_Init on

    @property
    def together(self) -> list[int]:
        """Per rank the first of those whose clocks are set with its own, since they meet, at once or by others."""
        groups = (self.matched.groups[number] for number in set(self.matched.group.tolist()))
        return joined(len(self.clocks), groups)


class _MeetingLane:
    """One rank's collectives of one group: rows in order. ``kind``: indexes into ``kinds``, the same list for all."""

    def __init__(self, rank: int, rows: Int64Array, summary: RankSummary, name: str, kinds: _Kinds) -> None:
        table = summary.meetings
        self.rank, self.rows, self.name = rank, rows, name
        self.names, self.kind = kinds.names, kinds.of_rank[rank][table.kind[rows]]
        self.sequence = table.sequence[rows]
        self.base_ns = summary.base_ns
        self.is_host = bool((table.stream[rows] == UNKNOWN).all())
        self.start, self.end = table.start_ns[rows], table.end_ns[rows]
        self.of, self.clock = summary.name, UNKNOWN

    def on(self, aligned: Aligned) -> _MeetingLane:
        """This lane on the job's clock, as far as that is known: lanes with the same ``clock`` are on one."""
        lane, at = copy(self), aligned.clocks[self.rank].at
        lane.start, lane.end, lane.base_ns, lane.clock = at(self.start), at(self.end), 0, aligned.together[self.rank]
        return lane

    def is_like(self, other: _MeetingLane) -> bool:
        """Whether both hold the same kinds in the same order."""
        return np.array_equal(self.kind, other.kind)

    def place_in(self, leader: _MeetingLane) -> int:
        """Which of the leader's collectives its first is, where it holds a stretch of the leader's: of all such
        stretches the one whose ends lie closest to its own on a clock of its own (of equals the first by what the files
        say); -1: it holds none, or less than half."""
        if self is leader or self.is_like(leader):
            return 0
        count, whole_count = len(self.rows), len(leader.rows)
        if not MATCHED_SHARE * whole_count <= count < whole_count:
            return -1
        stretch = sliding_window_view(leader.kind, count)
        starts = np.flatnonzero((stretch == self.kind).all(axis=1))
        if not len(starts):
            return -1
        looked = _spaced(count)
        apart = (self.end[looked] - sliding_window_view(leader.end, count)[starts][:, looked]).astype(np.float64)
        end = np.repeat((self.end[looked] - self.end[0])[None].astype(np.float64), len(starts), axis=0)
        left = np.median(np.abs(apart - _shift(end, apart)), axis=1) // CLOCK_ERROR_NS
        offset_ns = self.base_ns - leader.base_ns if self.base_ns and leader.base_ns else 0
        return int(starts[np.lexsort((np.abs(np.median(apart, axis=1) + offset_ns), left))[0]])


class _Kinds(Struct, frozen=True):
    """One numbering of all ranks' kinds of collectives, and of each rank's numbers those in it."""

    names: list[str]
    of_rank: list[Int64Array]


class _Block(Struct, frozen=True):
    """Instances of one group: their parts, by instance; each instance's kind."""

    name: str
    group: tuple[int, ...]
    expected: int
    instance: Int64Array
    rank: Int64Array
    row: Int64Array
    kind: tuple[str, ...]


def align(summaries: Sequence[RankSummary]) -> Aligned:
    """Match the ranks' collectives and set their clocks. Ranks are indexes of ``summaries``."""
    blocks: list[_Block] = []
    passing: list[_MeetingLane] = []
    notes: list[str] = []
    lanes = _lanes(summaries)
    expected_lanes = [expected_lane for expected_lane in lanes if expected_lane[1]]
    for name, expected, members in expected_lanes:
        if not _into(blocks, notes, name, expected, members, len(summaries)):
            passing += members
    # Where nothing tells who meets whom, ends do: on the clocks that those groups set whose ranks are told.
    settled = _settle(summaries, blocks, notes) if expected_lanes and len(expected_lanes) < len(lanes) else None
    for name, expected, members in lanes:
        if not expected:
            on_clocks = [lane.on(settled) for lane in members] if settled is not None else members
            if not _into(blocks, notes, name, expected, on_clocks, len(summaries)):
                passing += members
    settled = _settle(summaries, blocks, notes)
    if not passing:
        return settled
    pairs = _pairs(_bridged([lane.on(settled) for lane in passing]), len(summaries))
    if not pairs and not len(settled.matched):
        by_name = [
            [passing_lane for passing_lane in passing if passing_lane.name == name]
            for name in sorted({passing_lane.name for passing_lane in passing})
        ]
        pairs = [_match(same, tuple(lane.rank for lane in same), len(same)) for same in by_name]
    return _settle(summaries, [*blocks, *pairs], notes) if pairs else settled


def _why_unmatched(name: str, together: Sequence[_MeetingLane]) -> str:
    """The group, and why what its ranks do cannot be matched."""
    of_group = f"process group {name}" if name.isdigit() else name or "one group"
    if len(together) == 1:
        return f"{of_group} are on record of one rank only ({together[0].of}): no rank is blamed for waits for them"
    return f"{of_group} cannot be matched over its {len(together)} ranks"


def _into(
    blocks: list[_Block],
    notes: list[str],
    name: str,
    expected: tuple[int, ...],
    members: list[_MeetingLane],
    ranks: int,
) -> bool:
    """Match one group's lanes, which go into ``blocks``, and what cannot be matched into ``notes``; not where they only
    pass work on, to whom is not told: ends that agree tell, once clocks are set."""
    passes = all(is_passing(lane.names[kind]) for lane in members for kind in unique(lane.kind).tolist())
    if passes and len(expected) != 2 and (ranks != 2 or len(members) != 2 or not _plausible(members)):
        return False
    for together, group in _groups(members, expected):
        block = _match(together, group, max(len(expected), len(together)))
        if not block.kind and min(len(lane.rows) for lane in together):
            notes.append(f"{'Messages' if passes else 'Collectives'} of {_why_unmatched(name, together)}.")
        blocks.append(block)
    return True


def joined(count: int, groups: Iterable[tuple[int, ...]]) -> list[int]:
    """Per rank the first of those that groups join it to, by others or at once."""
    first = list(range(count))

    def root(rank: int) -> int:
        while first[rank] != rank:
            rank = first[rank]
        return rank

    for members in sorted(groups):
        for rank in members[1:]:
            low, high = sorted((root(rank), root(members[0])))
            first[high] = low
    return [root(rank) for rank in range(count)]


def is_passing(kind: str) -> bool:
    """Whether it passes work on from one rank to another, rather than being the same on all."""
    return kind.lower().replace("_", "") in _PASSING


def _bridged(lanes: Sequence[_MeetingLane]) -> list[_MeetingLane]:
    """What ranks pass on, on one clock as far as that can be told: ranks that meet in nothing else pass on what ends
    together on the right clocks, and on no others."""
    parts: dict[int, list[_MeetingLane]] = defaultdict(list)
    for lane in lanes:
        parts[lane.clock].append(lane)
    waiting = sorted(parts.values(), key=lambda part: (-sum(len(lane.rows) for lane in part), part[0].rank))
    bridged = waiting.pop(0)
    while waiting:
        offsets = [_densest(_differences(bridged, part)) for part in waiting]
        best = max(range(len(waiting)), key=lambda index: (offsets[index][2], offsets[index][1], -index))
        offset, _, is_likely = offsets[best]
        if not is_likely:
            break
        for lane in waiting.pop(best):
            moved = copy(lane)
            moved.start, moved.end = lane.start + round(offset), lane.end + round(offset)
            moved.clock = bridged[0].clock
            bridged.append(moved)
    return [*bridged, *(lane for part in waiting for lane in part)]


def _differences(lanes: Sequence[_MeetingLane], others: Sequence[_MeetingLane]) -> Float:
    """By how much any end of the first lies after any of the others, in the middle of the time of both."""
    ends = [np.concatenate([lane.end for lane in some]) for some in (lanes, others)]
    middle = float(np.median(np.concatenate(ends)))
    first, other = (end[np.argsort(np.abs(end - middle), kind="stable")[:_MOST_BRIDGED]] for end in ends)
    apart: Float = np.subtract.outer(first, other).ravel().astype(np.float64)
    return apart


def _pairs(lanes: Sequence[_MeetingLane], ranks: int) -> list[_Block]:
    """What two ranks pass on, where nothing says who to whom: ends that lie nearest to each other, on clocks already
    set."""
    rank = np.concatenate([np.full(len(lane.rows), lane.rank) for lane in lanes])
    row = np.concatenate([lane.rows for lane in lanes])
    kind = [lane.names[kind] for lane in lanes for kind in lane.kind.tolist()]
    start = np.concatenate([lane.start for lane in lanes])
    end = np.concatenate([lane.end for lane in lanes])
    clock = np.repeat([lane.clock for lane in lanes], [len(lane.rows) for lane in lanes])
    order = np.lexsort((rank, end))
    taken = np.zeros(len(order), bool)
    near: list[tuple[int, int, int]] = []
    for at, here in enumerate(order.tolist()):
        for other in order[at + 1 : at + 1 + 2 * len(lanes)].tolist():
            apart = int(end[other] - end[here])
            if apart > TOGETHER_NS:
                break
            meets = start[other] < end[here] and start[here] < end[other] and clock[here] == clock[other]
            if meets and rank[here] != rank[other] and _can_pair(kind[here], kind[other]):
                near.append((apart, here, other))
    if not any(lane.is_host for lane in lanes):
        near = _between_stages(near, rank, end, ranks)
    pairs: dict[tuple[int, ...], list[list[int]]] = defaultdict(list)
    for _, here, other in sorted(near):
        if not taken[here] and not taken[other]:
            taken[[here, other]] = True
            first, second = sorted((here, other), key=lambda part: int(rank[part]))
            pairs[int(rank[first]), int(rank[second])].append([first, second])
    return [
        _Block(
            "pairs",
            members,
            2,
            np.repeat(np.arange(len(parts)), 2),
            rank[np.ravel(parts)],
            row[np.ravel(parts)],
            ("sendrecv",) * len(parts),
        )
        for members, parts in sorted(pairs.items())
    ]


def _between_stages(
    near: list[tuple[int, int, int]], rank: Int64Array, end: Int64Array, ranks: int
) -> list[tuple[int, int, int]]:
    """Of what could be one transfer (how far apart, and both parts) those between ranks as far apart as stages are:
    ranks of one stage often do the same at the same time. Stages are the outermost dimension, so that of distances
    at which nearly all parts find a partner as close the largest is taken; where there is none, all are kept. After
    the last stage comes the first, where stages are interleaved."""

    def between(one: int, other: int) -> int:
        distance = abs(int(rank[one]) - int(rank[other]))
        return min(distance, ranks - distance)

    of_distance: dict[int, dict[tuple[int, int], list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for _, row, other in near:
        low, high = sorted((row, other), key=lambda part: int(rank[part]))
        of_distance[between(row, other)][int(rank[low]), int(rank[high])].append((low, high))
    typical = {}
    for distance, pairs in of_distance.items():
        parts = {part for met in pairs.values() for both in met for part in both}
        if ranks % distance == 0 and len(parts) >= MOSTLY_PAIRED * len(rank):
            # Clocks of stages rest on few collectives: what counts is how steady the ends of two ranks lie apart.
            ends = [end[np.array(met)].T.astype(np.float64) for met in pairs.values()]
            off = [low - high - _shift(low[None], (low - high)[None])[0] for low, high in ends]
            typical[distance] = float(np.median(np.abs(np.concatenate(off))))
    if not typical:
        return near
    close = 2 * min(typical.values()) + CLOCK_ERROR_NS
    stages = max(distance for distance, apart in typical.items() if apart <= close)
    return [pair for pair in near if between(pair[1], pair[2]) == stages]


def _can_pair(one: str, other: str) -> bool:
    """One sends and the other receives, as far as they say."""
    sends, receives = ("send" in one.lower(), "send" in other.lower()), ("recv" in one.lower(), "recv" in other.lower())
    return (sends[0] and receives[1]) or (sends[1] and receives[0])


def _lanes(summaries: Sequence[RankSummary]) -> list[tuple[str, tuple[int, ...], list[_MeetingLane]]]:
    """The collectives by group: its name, the ranks it should have, and each present rank's part."""
    names, numbers = merged([[(kind,) for kind in of_rank.kinds] for of_rank in summaries])
    kinds = _Kinds([name for (name,) in names], numbers)
    by_key: dict[tuple[str, tuple[int, ...]], list[_MeetingLane]] = defaultdict(list)
    for rank, summary in enumerate(summaries):
        table = summary.meetings
        untold = _untold_names(summary)
        distinct, of_row = factorize(table.group, table.stream)
        of_key: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
        for number, (group, stream) in enumerate(distinct.tolist()):
            communicator = summary.groups[group]
            of_key[
                communicator.name if communicator.ranks or communicator.name else untold[stream], communicator.ranks
            ].append(number)
        for key, chosen in of_key.items():
            rows = np.flatnonzero(np.isin(of_row, chosen)).astype(np.int64)
            by_key[key].append(_MeetingLane(rank, rows, summary, key[0], kinds))
    ordered = sorted(by_key.items(), key=lambda item: item[0])
    return [
        (name, ranks, members)
        for (name, ranks), members in ordered
        if len(members) > 1 or all(is_passing(kinds.names[kind]) for kind in members[0].kind.tolist())
    ]


def _untold_names(summary: RankSummary) -> dict[int, str]:
    """What to call the groups of a rank whose trace names none: by the kinds of collectives on each stream, and as the
    first, second of those. Ranks of other stages have other streams beside these."""
    table = summary.meetings
    streams, first = np.unique(table.stream, return_index=True)
    met: dict[int, list[str]] = {int(stream): [] for stream in streams[np.argsort(first)]}
    for stream, kind in factorize(table.stream, table.kind)[0].tolist():
        met[stream].append(summary.kinds[kind])
    counts: dict[str, int] = defaultdict(int)
    names = {}
    for stream, kinds in met.items():
        name = " and ".join(sorted(kinds))
        counts[name] += 1
        names[stream] = f"{name} {counts[name]}"
    return names


def _groups(
    members: list[_MeetingLane], expected: tuple[int, ...]
) -> Iterator[tuple[list[_MeetingLane], tuple[int, ...]]]:
    """Who meets whom: all, where the trace names the ranks; else the largest of the groups, of equal size and laid out
    as ranks are numbered, whose parts end together as closely as those of the smaller ones do; of several as large the
    closest."""
    count = len(members)
    whole = [members]
    best, chosen = _apart(whole), whole
    if not expected and len(members[0].rows) > 1 and best > CLOCK_ERROR_NS:
        layouts = [(whole, best)]
        for size in range(count // 2, 1, -1):
            for stride in range(1, count // size + 1) if count % size == 0 else ():
                if count // size % stride == 0:
                    blocks = [
                        [members[first + offset + stride * number] for number in range(size)]
                        for first in range(0, count, stride * size)
                        for offset in range(stride)
                    ]
                    layouts.append((blocks, _apart(blocks)))
        best = min(apart for _, apart in layouts)
        if best < np.inf:
            near = [(len(blocks), apart, blocks) for blocks, apart in layouts if apart <= 2 * best + CLOCK_ERROR_NS]
            chosen = min(near, key=lambda candidate: candidate[:2])[2]
    for block in chosen:
        yield block, tuple(lane.rank for lane in block)


def _apart(blocks: list[list[_MeetingLane]]) -> float:
    """How far the ends of each block's collectives lie apart, the worst of all; infinite where one can be no group."""
    worst = 0.0
    for block in blocks:
        worst = max(worst, _spread(block))
        if worst == np.inf:
            break
    return worst


def _plausible(members: list[_MeetingLane]) -> bool:
    """Whether these can be one group."""
    return _spread(members) < np.inf


def _spread(members: list[_MeetingLane]) -> float:
    """How far ends lie apart, the median of the worst rank, once a constant (and drift) is taken off; infinite for
    those that can be no group: other kinds, another order, or ends that nothing brings together."""
    leader = _longest(members)
    starts = [lane.place_in(leader) for lane in members]
    shared = min(begin + len(lane.rows) for begin, lane in zip(starts, members, strict=True)) - max(starts)
    if min(starts) < 0 or shared <= 0 < len(leader.rows):
        return np.inf
    looked = max(starts) + _spaced(shared)
    zero = int(leader.end[0]) if len(leader.end) else 0
    end, start = (
        np.stack([of - zero for of in column]).astype(np.float64)
        for column in (
            [lane.end[looked - begin] for begin, lane in zip(starts, members, strict=True)],
            [lane.start[looked - begin] for begin, lane in zip(starts, members, strict=True)],
        )
    )
    if end.shape[1] < 2:
        return 0.0
    shift = _shift(end, end - end[0])
    left = float(np.median(np.abs(end - end[0] - shift), axis=1).max())
    together = float(TOGETHER_NS)
    if all(lane.is_host for lane in members):
        together = max(together, HOSTS_TOGETHER_SHARE * float(np.median(np.diff(leader.end))))
    impossible = ((end - shift).min(axis=0) + together < (start - shift).max(axis=0)).mean()
    if leader.clock != UNKNOWN and all(
        lane.clock == leader.clock for lane in members
    ):  # clocks that are set can only have drifted since
        together = min(
            together, float(TOGETHER_NS + MOST_DRIFT * np.ptp(end[0]) - np.abs(np.median(shift, axis=1)).max())
        )
    return left if left < together and impossible <= IMPOSSIBLE_SHARE else np.inf


def _longest(members: list[_MeetingLane]) -> _MeetingLane:
    """The first of those with most collectives."""
    return max(members, key=lambda lane: len(lane.rows))


def _shift(end: Float, apart: Float) -> Float:
    """Per rank a constant, and drift where there are enough ends to tell it, that brings what lies ``apart``
    together."""
    if end.shape[1] < LEAST_FOR_DRIFT:
        return np.median(apart, axis=1, keepdims=True)
    constant, slope = _lines(end, apart)
    return np.asarray(constant[:, None] + slope[:, None] * end, np.float64)


def _spaced(count: int) -> Int64Array:
    """Which collectives of a group are looked at to tell who meets whom: all, or as many as that takes, over the
    run."""
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_LOOKED_AT)).astype(np.int64))


def _match(lanes: list[_MeetingLane], group: tuple[int, ...], expected: int) -> _Block:
    """The instances that at least two ranks hold."""
    if all((lane.sequence != UNKNOWN).all() for lane in lanes):
        keys = [lane.sequence for lane in lanes]
    elif _plausible(lanes):
        leader = _longest(lanes)
        keys = [lane.place_in(leader) + np.arange(len(lane.rows)) for lane in lanes]
    else:
        # Most ranks agree; one that was cut short, or that is of another job, must not lead.
        common = max(lanes, key=lambda lane: (sum(other.is_like(lane) for other in lanes), len(lane.rows), -lane.rank))
        agreeing = [lane for lane in lanes if lane.is_like(common)]
        agree = len(agreeing) > 1 and _plausible(agreeing)
        keys = [
            np.arange(len(lane.rows)) if lane is common or (agree and lane.is_like(common)) else _nearest(lane, common)
            for lane in lanes
        ]
    key, kind, row = (
        np.concatenate(column) for column in (keys, [lane.kind for lane in lanes], [lane.rows for lane in lanes])
    )
    rank = np.repeat([lane.rank for lane in lanes], [len(lane.rows) for lane in lanes])
    has_key = np.flatnonzero(key >= 0)
    distinct, of_part = factorize(key[has_key], kind[has_key])
    is_shared = np.bincount(of_part, minlength=len(distinct)) > 1
    kept = np.flatnonzero(is_shared[of_part])
    kept = kept[np.argsort(of_part[kept], kind="stable")]
    names = lanes[0].names
    return _Block(
        lanes[0].name,
        group,
        expected,
        (np.cumsum(is_shared) - 1)[of_part[kept]],
        rank[has_key[kept]],
        row[has_key[kept]],
        tuple(names[number] for number in distinct[is_shared, 1].tolist()),
    )


def _nearest(lane: _MeetingLane, leader: _MeetingLane) -> Int64Array:
    """For each collective of a rank the leader's that it is, by the offset that brings most ends of one kind together;
    -1: none, and none at all where chance could do as well."""
    nothing = np.full(len(lane.rows), -1, np.int64)
    same = lane.kind[:, None] == leader.kind[None, :]
    offset_ns = lane.base_ns - leader.base_ns if lane.base_ns and leader.base_ns else 0
    apart = (lane.end[:, None] - leader.end[None, :] + offset_ns).astype(np.float64)
    if not same.any():
        return nothing
    offset, number, is_likely = _densest(apart[same])
    is_certain = number >= MATCHED_SHARE * min(same.shape)
    if number < 2 or not (is_certain or (bool(offset_ns) and is_likely)):
        return nothing
    off = np.where(same, np.abs(apart - offset), np.inf)
    nearest, back = np.argmin(off, axis=1), np.argmin(off, axis=0)
    rows = np.arange(len(nearest))
    return np.where((off[rows, nearest] <= 5 * TOGETHER_NS) & (back[nearest] == rows), nearest, -1)


def _densest(apart: Float) -> tuple[float, int, bool]:
    """Where most differences of ends lie together (of equals the closest, then those by which the files' own clocks err
    least), how many, and whether that is more than chance would bring together."""
    ordered = np.sort(apart)
    votes = np.searchsorted(ordered, ordered + TOGETHER_NS, side="right") - np.arange(len(ordered))
    number = int(votes.max())
    begin = np.flatnonzero(votes == number)
    wide = (ordered[begin + number - 1] - ordered[begin]) // CLOCK_ERROR_NS
    best = int(begin[np.lexsort((np.abs(ordered[begin]), wide))[0]])
    by_chance = len(ordered) * TOGETHER_NS / max(float(np.ptp(ordered)), 1.0)
    return float(np.median(ordered[best : best + number])), number, number > 1 + by_chance + 6 * by_chance**0.5


def _settle(
    summaries: Sequence[RankSummary],
    blocks: Sequence[_Block],
    notes: list[str],
) -> Aligned:
    """Clocks from the ends of all instances, then everything on one clock."""
    counts = np.array([len(block.kind) for block in blocks], np.int64)
    before = np.append(0, np.cumsum(counts))
    rank, row, instance = (
        np.concatenate([np.empty(0, np.int64), *columns])
        for columns in (
            [block.rank for block in blocks],
            [block.row for block in blocks],
            [block.instance + low for block, low in zip(blocks, before.tolist(), strict=False)],
        )
    )
    first_row = np.append(0, np.cumsum([len(summary.meetings) for summary in summaries])).astype(np.int64)
    at = first_row[rank] + row
    start, end, ready, size, stream = (
        np.concatenate([np.empty(0, np.int64), *(getattr(summary.meetings, column) for summary in summaries)])[at]
        for column in ("start_ns", "end_ns", "ready_ns", "bytes", "stream")
    )
    together = np.array([_end_together(kind) for block in blocks for kind in block.kind], bool)
    by_end = np.flatnonzero((stream != UNKNOWN) | together[instance]) if len(instance) else np.empty(0, np.intp)
    one_clock = _one_clock(summaries, rank)
    clocks = one_clock or _clocks(summaries, *(of[by_end] for of in (instance, rank, end)))
    start, end, ready = (_on_clock(clocks, rank, time) for time in (start, end, ready))
    instances = int(before[-1])
    last_end = np.full(instances, np.iinfo(np.int64).min)
    np.maximum.at(last_end, instance, end)
    order_of = np.argsort(last_end, kind="stable")
    position = np.empty(instances, np.int64)
    position[order_of] = np.arange(instances)
    order = np.lexsort((rank, position[instance]))
    groups = sorted({(block.group, block.name) for block in blocks if block.kind})
    number = {group: at for at, group in enumerate(groups)}
    group = np.repeat([number.get((block.group, block.name), -1) for block in blocks], counts).astype(np.int64)
    kinds = [kind for block in blocks for kind in block.kind]
    first = np.append(0, np.cumsum(np.bincount(position[instance], minlength=instances))).astype(np.int64)
    size = size[order]
    matched = Matched(
        position[instance][order],
        rank[order],
        row[order],
        start[order],
        end[order],
        first,
        np.repeat([block.expected for block in blocks], counts).astype(np.int64)[order_of],
        group[order_of],
        tuple(group for group, _ in groups),
        tuple(name for _, name in groups),
        tuple(kinds[instance_id] for instance_id in order_of.tolist()),
        np.maximum.reduceat(size, first[:-1]) if instances else np.empty(0, np.int64),
        ready[order],
        np.minimum.reduceat(stream[order] == UNKNOWN, first[:-1]) if instances else np.empty(0, bool),
    )
    begin_together = one_clock is not None and all(summary.begins_mpi and not summary.device for summary in summaries)
    return Aligned(matched, clocks, tuple(notes), begin_together)


def _end_together(kind: str) -> bool:
    """Whether all ranks leave it together: not where a root, or who sends, may go on before the others."""
    return kind != MESSAGE and (is_symmetric(kind) or is_passing(kind) or not is_mpi(kind))


def _one_clock(summaries: Sequence[RankSummary], rank: Int64Array) -> tuple[Clock, ...] | None:
    """The clocks of ranks that one report holds: the same; None where there are several reports."""
    if {summary.clock for summary in summaries} != {summaries[0].clock if summaries else ""} - {""}:
        return None
    matched = np.bincount(rank, minlength=len(summaries)).tolist()
    return tuple(
        Clock(0.0, 0.0, summary.window_ns[0], number, 0.0, 0.0)
        for summary, number in zip(summaries, matched, strict=True)
    )


def _on_clock(clocks: Sequence[Clock], rank: Int64Array, time: Int64Array) -> Int64Array:
    """As `Clock.at`, of times of many ranks."""
    offset, drift = (np.array([getattr(clock, name) for clock in clocks]) for name in ("offset_ns", "drift"))
    origin = np.array([clock.origin_ns for clock in clocks], np.int64)
    shift: Float = offset[rank] + drift[rank] * (time - origin[rank])
    return time + np.round(shift).astype(np.int64)


def _clocks(
    summaries: Sequence[RankSummary], instance: Int64Array, rank: Int64Array, end: Int64Array
) -> tuple[Clock, ...]:
    """What each rank's clock is ahead or behind, on the first rank's clock. By what the files say, then by the
    medians of how far ends lie apart, rank by rank from those that are known, then by all together and with drift."""
    count = len(summaries)
    origin = np.array([summary.window_ns[0] for summary in summaries], np.int64)
    base = min((summary.base_ns for summary in summaries), default=0)
    offset_told = np.array([summary.base_ns - base for summary in summaries], np.float64)
    offset = offset_told - (offset_told[0] if count else 0.0)
    drift = np.zeros(count)
    local: Float = (end - origin[rank]).astype(np.float64)
    left: Float = local
    zero = int(origin[0]) if count else 0

    def common() -> Float:
        """Every part's end in float, from a zero near by."""
        return local + (origin - zero)[rank] + offset[rank] + drift[rank] * local

    by_rank = np.argsort(rank, kind="stable")
    first = np.searchsorted(rank[by_rank], np.arange(count + 1))
    rows_of = [by_rank[low:high] for low, high in zip(first[:-1].tolist(), first[1:].tolist(), strict=True)]
    is_set = np.zeros(count, bool)
    instances = int(instance.max(initial=-1)) + 1
    while not is_set.all():
        fresh = _reached(is_set, instance, rank, instances)
        if not fresh.any():
            unset = np.flatnonzero(~is_set)
            is_set[unset[:1]] = True  # the first of those that meet nobody who is known keeps what its file says
            continue
        now = common()
        reference = _medians(now, instance, is_set[rank], instances)
        for index in np.flatnonzero(fresh).tolist():
            own = rows_of[index][~np.isnan(reference[instance[rows_of[index]]])]
            offset[index] += np.median(reference[instance[own]] - now[own])
        is_set |= fresh
    everyone = np.ones(len(rank), bool)
    counts = np.diff(first)
    with_as_many = [(np.flatnonzero(counts == number), number) for number in unique(counts).tolist() if number]
    alike = [(ranks, by_rank[first[ranks][:, None] + np.arange(number)]) for ranks, number in with_as_many]
    for _ in range(_ROUNDS):
        now = common()
        left = _medians(now, instance, everyone, instances)[instance] - now
        for ranks, rows in alike:
            fitted, slope = _lines(local[rows], left[rows])
            offset[ranks] += fitted
            drift[ranks] += slope
        if count:
            drift -= drift[0]
            offset -= offset[0]
    left = np.abs(_medians(common(), instance, everyone, instances)[instance] - common()) if len(rank) else local
    residual, worst = np.zeros(count), np.zeros(count)
    for ranks, rows in alike:
        residual[ranks], worst[ranks] = np.percentile(left[rows], (50, 95), axis=1)
    return tuple(map(Clock, *(of.tolist() for of in (offset, drift, origin, counts, residual, worst))))


def _reached(is_set: BoolArray, instance: Int64Array, rank: Int64Array, instances: int) -> BoolArray:
    """Ranks not yet set that meet some that are."""
    is_reached = np.zeros(instances, bool)
    is_reached[instance[is_set[rank]]] = True
    fresh = np.zeros(len(is_set), bool)
    fresh[rank[is_reached[instance]]] = True
    return fresh & ~is_set


def _medians(value: Float, instance: Int64Array, counted: BoolArray, instances: int) -> Float:
    """Median of each instance's counted parts, which stand together; NaN where there are none."""
    rows = np.flatnonzero(counted)
    number = np.bincount(instance[rows], minlength=instances)
    first = np.cumsum(number) - number
    middle = np.full(instances, np.nan)
    for size in unique(number).tolist():
        if size:
            those = np.flatnonzero(number == size)
            middle[those] = np.median(value[rows[first[those][:, None] + np.arange(size)]], axis=1)
    return middle


def _lines(at: Float, value: Float) -> tuple[Float, Float]:
    """Constant and slope, per rank, of what is left, shape (ranks, ends): by the medians of its two halves; a constant
    alone where the slope could be chance."""
    constant, count = np.median(value, axis=1), value.shape[1]
    none = np.zeros(len(value))
    if count < LEAST_FOR_DRIFT:
        return constant, none
    order = np.argsort(at, axis=1, kind="stable")
    halves = order[:, : count // 2], order[:, count // 2 :]
    (early, low), (late, high) = (
        [np.median(np.take_along_axis(column, half, axis=1), axis=1) for column in (at, value)] for half in halves
    )
    apart = late - early
    slope = np.divide(high - low, apart, out=none.copy(), where=apart > 0)
    intercept = np.median(value - slope[:, None] * at, axis=1)
    spread = 1.4826 * np.median(np.abs(value - slope[:, None] * at - intercept[:, None]), axis=1)
    is_chance = np.abs(slope) * apart < 4 * 1.2533 * spread * (4 / count) ** 0.5
    is_flat = (apart <= 0) | is_chance | (np.abs(slope) > MOST_DRIFT)
    return np.where(is_flat, constant, intercept), np.where(is_flat, 0.0, slope)
