"""Collectives matched over ranks, the clocks that this sets, and what of each was transfer and what waiting.

Matching needs no clock where the ranks' sequences agree. Where some ranks lack some collectives (a profile cut short, a
sampled one), the offset that brings most ends together decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from boundby.jobs.summary import UNKNOWN, RankSummary
from boundby.model.arrays import BoolArray, Int64Array
from boundby.model.records import dataclass

Float = npt.NDArray[np.float64]
#: Ends of one collective lie within this of each other once clocks are set; real sets show microseconds.
TOGETHER_NS = 100_000
#: Hosts leave a collective when they get a core: within this share of the usual time between two.
HOSTS_TOGETHER_SHARE = 0.05
#: Ends of the collectives of one group differ by such times on any rank.
_NOISE_NS = 2_000
#: Of the collectives of a group so many may end on one rank before the last has begun: else they are none.
IMPOSSIBLE_SHARE = 0.02
#: So many collectives, at the least, tell a clock's drift.
LEAST_FOR_DRIFT = 8
_ROUNDS = 4
#: Ranks of one job share at least so many of the collectives of the one that has fewer.
MATCHED_SHARE = 0.5
#: Stages are so far apart that so much of what they pass on finds a partner at that distance.
MOSTLY_PAIRED = 0.9
#: Oscillators differ by less.
MOST_DRIFT = 2e-4
_PASSING = {"sendrecv", "send", "recv", "mpisend", "mpirecv", "mpiisend", "mpiirecv", "mpissend"}


@dataclass(frozen=True)
class Clock:
    """From a rank's clock to the job's: ``time + offset + drift * (time - origin)``."""

    offset_ns: float
    drift: float
    origin_ns: int
    matched: int  # collectives that it rests on; 0: only what the file says
    residual_ns: float  # median distance of the rank's ends from the common ends
    worst_ns: float  # 95th percentile

    def at(self, time_ns: npt.NDArray[np.int64]) -> Int64Array:
        """The same instants on the job's clock."""
        shift = self.offset_ns + self.drift * (time_ns - self.origin_ns)
        return time_ns + np.round(shift).astype(np.int64)


@dataclass(frozen=True)
class Matched:
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
        found = np.full(rows, -1, np.int64)
        found[self.row[parts]] = self.instance[parts]
        return found

    @property
    def length_ns(self) -> Int64Array:
        """How long each part took."""
        return self.end_ns - self.start_ns

    @property
    def transfer_ns(self) -> Int64Array:
        """Per instance: what the last to come takes, which waits for nobody."""
        return np.maximum(np.minimum.reduceat(self.length_ns, self.first[:-1]), 0) if len(self) else self.expected

    def latest(self) -> tuple[Int64Array, Int64Array]:
        """Per instance: the part that came last, and for how long after the second last."""
        if not len(self):
            return self.expected, self.expected
        order = np.lexsort((self.rank, self.length_ns, self.instance))
        first = self.first[:-1]
        second = order[np.minimum(first + 1, first + self.size - 1)]
        return order[first], self.length_ns[second] - self.length_ns[order[first]]


@dataclass(frozen=True)
class Aligned:
    """The job's collectives and clocks, and what could not be matched."""

    matched: Matched
    clocks: tuple[Clock, ...]
    notes: tuple[str, ...]


class _Lane:
    """One rank's collectives of one group: rows in order."""

    def __init__(self, rank: int, rows: Int64Array, summary: RankSummary, name: str) -> None:
        table = summary.meetings
        self.rank, self.rows, self.name = rank, rows, name
        self.kind = tuple(summary.kinds[number] for number in table.kind[rows].tolist())
        self.sequence = table.sequence[rows]
        self.base_ns = summary.base_ns
        self.is_host = bool((table.stream[rows] == UNKNOWN).all())
        self.start, self.end = table.start_ns[rows], table.end_ns[rows]


def align(summaries: Sequence[RankSummary]) -> Aligned:
    """Match the ranks' collectives and set their clocks. Ranks are indexes of ``summaries``."""
    parts: list[_Part] = []
    passing: list[_Lane] = []
    notes = []
    for name, expected, members in _lanes(summaries):
        passes = all(is_passing(kind) for lane in members for kind in set(lane.kind))
        if passes and len(expected) != 2 and (len(members) != 2 or not _plausible(members)):
            passing += members  # who passes work on to whom is not told: ends that agree tell
            continue
        for together, group in _groups(members, expected):
            matched = _match(together)
            if not matched and min(len(lane.rows) for lane in together):
                notes.append(f"Collectives of {name or 'one group'} cannot be matched over its {len(together)} ranks.")
            parts += [(rows, name, group, max(len(expected), len(together)), kind) for rows, kind in matched]
    settled = _settle(summaries, parts, notes)
    if not passing:
        return settled
    pairs = _pairs(passing, settled.clocks)
    if not pairs and not parts:
        pairs = [
            (rows, lanes[0].name, tuple(lane.rank for lane in lanes), len(lanes), kind)
            for lanes in _by_group(passing)
            for rows, kind in _match(lanes)
        ]
    return _settle(summaries, [*parts, *pairs], notes) if pairs else settled


_Part = tuple[list[tuple[int, int]], str, tuple[int, ...], int, str]


def is_passing(kind: str) -> bool:
    """Whether it passes work on from one rank to another, rather than being the same on all."""
    return kind.lower().replace("_", "") in _PASSING


def _by_group(lanes: Sequence[_Lane]) -> Iterator[list[_Lane]]:
    for name in sorted({lane.name for lane in lanes}):
        yield [lane for lane in lanes if lane.name == name]


def _pairs(lanes: Sequence[_Lane], clocks: Sequence[Clock]) -> list[_Part]:
    """What two ranks pass on, where nothing says who to whom: ends that lie nearest to each other, on clocks already
    set."""
    rank = np.concatenate([np.full(len(lane.rows), lane.rank) for lane in lanes])
    row = np.concatenate([lane.rows for lane in lanes])
    kind = [kind for lane in lanes for kind in lane.kind]
    start = np.concatenate([clocks[lane.rank].at(lane.start) for lane in lanes])
    end = np.concatenate([clocks[lane.rank].at(lane.end) for lane in lanes])
    known = np.array([clock.matched > 0 for clock in clocks])
    order = np.lexsort((rank, end))
    taken = np.zeros(len(order), bool)
    near: list[tuple[int, int, int]] = []
    for at, one in enumerate(order.tolist()):
        for other in order[at + 1 : at + 1 + 2 * len(lanes)].tolist():
            apart = int(end[other] - end[one])
            if apart > TOGETHER_NS:
                break
            meets = start[other] < end[one] and start[one] < end[other] and known[rank[one]] and known[rank[other]]
            if meets and rank[one] != rank[other] and _can_pair(kind[one], kind[other]):
                near.append((apart, one, other))
    if not any(lane.is_host for lane in lanes):
        near = _between_stages(near, rank)
    found: list[_Part] = []
    for _, one, other in sorted(near):
        if not taken[one] and not taken[other]:
            taken[[one, other]] = True
            members = sorted([(int(rank[one]), int(row[one])), (int(rank[other]), int(row[other]))])
            found.append((members, "pairs", (members[0][0], members[1][0]), 2, "sendrecv"))
    return found


def _between_stages(near: list[tuple[int, int, int]], rank: Int64Array) -> list[tuple[int, int, int]]:
    """Of what could be one transfer (how far apart, and both parts) those between ranks as far apart as stages are:
    ranks of one stage often do the same at the same time. Stages are the outermost dimension, so that of distances
    at which nearly all parts find a partner as close the largest is taken; where there is none, all are kept."""
    of_distance: dict[int, dict[int, int]] = defaultdict(dict)
    for apart, one, other in near:
        closest = of_distance[abs(int(rank[one]) - int(rank[other]))]
        for part in (one, other):
            closest[part] = min(closest.get(part, apart), apart)
    covering = [(distance, one) for distance, one in of_distance.items() if len(one) >= MOSTLY_PAIRED * len(rank)]
    if not covering:
        return near
    typical = {distance: float(np.median(list(one.values()))) for distance, one in covering}
    close = 2 * min(typical.values()) + _NOISE_NS
    stages = max(distance for distance, apart in typical.items() if apart <= close)
    return [one for one in near if abs(int(rank[one[1]]) - int(rank[one[2]])) == stages]


def _can_pair(one: str, other: str) -> bool:
    """One sends and the other receives, as far as they say."""
    sends, receives = ("send" in one.lower(), "send" in other.lower()), ("recv" in one.lower(), "recv" in other.lower())
    return (sends[0] and receives[1]) or (sends[1] and receives[0])


def _lanes(summaries: Sequence[RankSummary]) -> list[tuple[str, tuple[int, ...], list[_Lane]]]:
    """The collectives by group: its name, the ranks it should have, and each present rank's part."""
    found: dict[tuple[str, tuple[int, ...]], list[_Lane]] = defaultdict(list)
    for place, summary in enumerate(summaries):
        table = summary.meetings
        untold = _untold_names(summary)
        keys: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
        for row, (group, stream) in enumerate(zip(table.group.tolist(), table.stream.tolist(), strict=True)):
            told = summary.groups[group]
            name = told.name if told.ranks or told.name else untold[stream]
            keys[name, told.ranks].append(row)
        for key, rows in keys.items():
            found[key].append(_Lane(place, np.array(rows, np.int64), summary, key[0]))
    ordered = sorted(found.items(), key=lambda item: item[0])
    return [
        (name, ranks, members)
        for (name, ranks), members in ordered
        if len(members) > 1 or all(is_passing(kind) for kind in members[0].kind)
    ]


def _untold_names(summary: RankSummary) -> dict[int, str]:
    """What to call the groups of a rank whose trace names none: by the kinds of collectives on each stream, and as the
    first, second of those. Ranks of other stages have other streams beside these."""
    table = summary.meetings
    kinds: dict[int, set[str]] = {}
    for stream, kind in zip(table.stream.tolist(), table.kind.tolist(), strict=True):
        kinds.setdefault(stream, set()).add(summary.kinds[kind])
    counts: dict[str, int] = defaultdict(int)
    names = {}
    for stream, met in kinds.items():
        name = " and ".join(sorted(met))
        counts[name] += 1
        names[stream] = f"{name} {counts[name]}"
    return names


def _groups(members: list[_Lane], expected: tuple[int, ...]) -> Iterator[tuple[list[_Lane], tuple[int, ...]]]:
    """Who meets whom: all, where the trace names the ranks; else the largest of the groups, of equal size and laid out
    as ranks are numbered, whose parts end together as closely as those of the smaller ones do."""
    count = len(members)
    whole = [members]
    best, found = _apart(whole), whole
    if not expected and len(members[0].rows) > 1:
        layouts = [(whole, best)]
        for size in range(count // 2, 1, -1):
            for stride in range(1, count // size + 1) if count % size == 0 else ():
                if count // size % stride == 0:
                    blocks = [
                        [members[first + offset + stride * place] for place in range(size)]
                        for first in range(0, count, stride * size)
                        for offset in range(stride)
                    ]
                    layouts.append((blocks, _apart(blocks)))
        best = min(apart for _, apart in layouts)
        if best < np.inf:
            found = next(blocks for blocks, apart in layouts if apart <= 2 * best + _NOISE_NS)
    for block in found:
        yield block, tuple(lane.rank for lane in block)


def _apart(blocks: list[list[_Lane]]) -> float:
    """How far the ends of each block's collectives lie apart, the worst of all; infinite where one can be no group."""
    worst = 0.0
    for block in blocks:
        worst = max(worst, _spread(block))
        if worst == np.inf:
            break
    return worst


def _plausible(members: list[_Lane]) -> bool:
    """Whether these can be one group."""
    return _spread(members) < np.inf


def _spread(members: list[_Lane]) -> float:
    """How far ends lie apart, the median, once a constant (and drift) is taken off; infinite for those that can be no
    group: other kinds, another order, or ends that nothing brings together."""
    first = members[0]
    if any(lane.kind != first.kind for lane in members):
        return np.inf
    zero = int(first.end[0]) if len(first.end) else 0
    end = np.stack([lane.end - zero for lane in members]).astype(np.float64)
    start = np.stack([lane.start - zero for lane in members]).astype(np.float64)
    if end.shape[1] < 2:
        return 0.0
    apart = end - end[0]
    shift = np.median(apart, axis=1, keepdims=True)
    if end.shape[1] >= LEAST_FOR_DRIFT:
        lines = [_line(at, one) for at, one in zip(end, apart, strict=True)]
        shift = np.stack([constant + slope * at for at, (constant, slope) in zip(end, lines, strict=True)])
    left = float(np.median(np.abs(apart - shift)[1:])) if len(members) > 1 else 0.0
    together = float(TOGETHER_NS)
    if all(lane.is_host for lane in members):
        together = max(together, HOSTS_TOGETHER_SHARE * float(np.median(np.diff(end[0]))))
    impossible = ((end - shift).min(axis=0) + together < (start - shift).max(axis=0)).mean()
    return left if left < together and impossible <= IMPOSSIBLE_SHARE else np.inf


def _match(lanes: list[_Lane]) -> list[tuple[list[tuple[int, int]], str]]:
    """The instances that at least two ranks hold: (rank, row) of each part, and the kind."""
    if all((lane.sequence != UNKNOWN).all() for lane in lanes):
        return _by_key(lanes, [list(zip(lane.sequence.tolist(), lane.kind, strict=True)) for lane in lanes])
    if _plausible(lanes):
        return _by_key(lanes, [list(enumerate(lane.kind)) for lane in lanes])
    # Most ranks agree; one that was cut short, or that is of another job, must not lead.
    common = max(lanes, key=lambda lane: (sum(other.kind == lane.kind for other in lanes), len(lane.rows), -lane.rank))
    agreeing = [lane for lane in lanes if lane.kind == common.kind]
    agree = len(agreeing) > 1 and _plausible(agreeing)
    keys = []
    for lane in lanes:
        same = lane is common or (agree and lane.kind == common.kind)
        place = np.arange(len(lane.rows)) if same else _nearest(lane, common)
        keys.append(
            [
                (int(at) if at >= 0 else -1 - row, kind)
                for row, (at, kind) in enumerate(zip(place, lane.kind, strict=True))
            ]
        )
    return _by_key(lanes, keys)


def _by_key(lanes: list[_Lane], keys: Sequence[Sequence[tuple[int, str]]]) -> list[tuple[list[tuple[int, int]], str]]:
    found: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for lane, own in zip(lanes, keys, strict=True):
        for key, row in zip(own, lane.rows.tolist(), strict=True):
            if key[0] >= 0:
                found[key].append((lane.rank, row))
    return [(parts, key[1]) for key, parts in sorted(found.items()) if len(parts) > 1]


def _nearest(lane: _Lane, leader: _Lane) -> Int64Array:
    """For each collective of a rank the leader's that it is, by the offset that brings most ends of one kind together
    (of equals the smallest by the files' own clocks); -1: none, and none at all where chance could do as well."""
    nothing = np.full(len(lane.rows), -1, np.int64)
    same = np.array(lane.kind, object)[:, None] == np.array(leader.kind, object)[None, :]
    told = lane.base_ns - leader.base_ns if lane.base_ns and leader.base_ns else 0
    apart = (lane.end[:, None] - leader.end[None, :] + told).astype(np.float64)
    candidates = np.sort(apart[same])
    if not len(candidates):
        return nothing
    votes = np.searchsorted(candidates, candidates + TOGETHER_NS, side="right") - np.arange(len(candidates))
    best = np.flatnonzero(votes == votes.max())
    begin = best[np.argmin(np.abs(candidates[best]))]
    number = int(votes[begin])
    by_chance = len(candidates) * TOGETHER_NS / max(float(np.ptp(candidates)), 1.0)
    is_certain = number >= MATCHED_SHARE * min(same.shape)
    is_likely = bool(told) and number > 1 + by_chance + 6 * by_chance**0.5
    if number < 2 or not (is_certain or is_likely):
        return nothing
    off = np.where(same, np.abs(apart - float(np.median(candidates[begin : begin + number]))), np.inf)
    place, back = np.argmin(off, axis=1), np.argmin(off, axis=0)
    rows = np.arange(len(place))
    return np.where((off[rows, place] <= 5 * TOGETHER_NS) & (back[place] == rows), place, -1)


def _settle(
    summaries: Sequence[RankSummary],
    parts: Sequence[_Part],
    notes: list[str],
) -> Aligned:
    """Clocks from the ends of all instances, then everything on one clock."""
    rank = np.array([one for rows, *_ in parts for one, _ in rows], np.int64)
    row = np.array([one for rows, *_ in parts for _, one in rows], np.int64)
    instance = np.repeat(np.arange(len(parts)), [len(rows) for rows, *_ in parts]).astype(np.int64)
    end = _gather(summaries, rank, row, "end_ns")
    clocks = _clocks(summaries, instance, rank, end)
    start = _on_clock(clocks, rank, _gather(summaries, rank, row, "start_ns"))
    end = _on_clock(clocks, rank, end)
    size = _gather(summaries, rank, row, "bytes")
    last_end = np.zeros(len(parts), np.int64)
    np.maximum.at(last_end, instance, end) if len(end) and end.min() >= 0 else _latest(last_end, instance, end)
    order_of = np.argsort(last_end, kind="stable")
    place = np.empty(len(parts), np.int64)
    place[order_of] = np.arange(len(parts))
    order = np.lexsort((rank, place[instance]))
    ordered = [parts[number] for number in order_of.tolist()]
    groups = sorted({(group, name) for _, name, group, _, _ in ordered})
    number = {group: at for at, group in enumerate(groups)}
    first = np.append(0, np.cumsum([len(rows) for rows, *_ in ordered])).astype(np.int64)
    size = size[order]
    matched = Matched(
        place[instance][order],
        rank[order],
        row[order],
        start[order],
        end[order],
        first,
        np.array([expected for _, _, _, expected, _ in ordered], np.int64),
        np.array([number[group, name] for _, name, group, _, _ in ordered], np.int64),
        tuple(group for group, _ in groups),
        tuple(name for _, name in groups),
        tuple(kind for *_, kind in ordered),
        np.maximum.reduceat(size, first[:-1]) if len(ordered) else np.empty(0, np.int64),
    )
    return Aligned(matched, clocks, tuple(notes))


def _latest(last: Int64Array, instance: Int64Array, end: Int64Array) -> None:
    last[:] = np.iinfo(np.int64).min
    np.maximum.at(last, instance, end)


def _gather(summaries: Sequence[RankSummary], rank: Int64Array, row: Int64Array, column: str) -> Int64Array:
    values = np.zeros(len(rank), np.int64)
    for place in np.unique(rank).tolist():
        mine = rank == place
        values[mine] = getattr(summaries[place].meetings, column)[row[mine]]
    return values


def _on_clock(clocks: Sequence[Clock], rank: Int64Array, time: Int64Array) -> Int64Array:
    values = np.zeros(len(rank), np.int64)
    for place in np.unique(rank).tolist():
        mine = rank == place
        values[mine] = clocks[place].at(time[mine])
    return values


def _clocks(
    summaries: Sequence[RankSummary], instance: Int64Array, rank: Int64Array, end: Int64Array
) -> tuple[Clock, ...]:
    """What each rank's clock is ahead or behind, on the first rank's clock. By what the files say, then by the
    medians of how far ends lie apart, rank by rank from those that are known, then by all together and with drift."""
    count = len(summaries)
    origin = np.array([summary.window_ns[0] for summary in summaries], np.int64)
    base = min((summary.base_ns for summary in summaries), default=0)
    told = np.array([summary.base_ns - base for summary in summaries], np.float64)
    offset = told - (told[0] if count else 0.0)
    drift = np.zeros(count)
    local: Float = (end - origin[rank]).astype(np.float64)
    left: Float = local
    zero = int(origin[0]) if count else 0

    def common() -> Float:
        """Every part's end in float, from a zero near by."""
        return local + (origin - zero)[rank] + offset[rank] + drift[rank] * local

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
        for place in np.flatnonzero(fresh).tolist():
            mine = (rank == place) & ~np.isnan(reference[instance])
            offset[place] += np.median(reference[instance[mine]] - now[mine])
        is_set |= fresh
    everyone = np.ones(len(rank), bool)
    rows_of = [np.flatnonzero(rank == place) for place in range(count)]
    for _ in range(_ROUNDS):
        now = common()
        left = _medians(now, instance, everyone, instances)[instance] - now
        for place, mine in enumerate(rows_of):
            if len(mine):
                fitted, slope = _line(local[mine], left[mine])
                offset[place] += fitted
                drift[place] += slope
        if count:
            drift -= drift[0]
            offset -= offset[0]
    left = np.abs(_medians(common(), instance, everyone, instances)[instance] - common()) if len(rank) else local
    return tuple(
        Clock(
            float(offset[place]),
            float(drift[place]),
            int(origin[place]),
            len(mine),
            float(np.median(left[mine])) if len(mine) else 0.0,
            float(np.percentile(left[mine], 95)) if len(mine) else 0.0,
        )
        for place, mine in enumerate(rows_of)
    )


def _reached(is_set: BoolArray, instance: Int64Array, rank: Int64Array, instances: int) -> BoolArray:
    """Ranks not yet set that meet some that are."""
    known = np.zeros(instances, bool)
    known[instance[is_set[rank]]] = True
    fresh = np.zeros(len(is_set), bool)
    fresh[rank[known[instance]]] = True
    return fresh & ~is_set


def _medians(value: Float, instance: Int64Array, counted: BoolArray, instances: int) -> Float:
    """Median of each instance's counted parts; NaN where there are none."""
    rows = np.flatnonzero(counted)
    rows = rows[np.lexsort((value[rows], instance[rows]))]
    number = np.bincount(instance[rows], minlength=instances)
    first = np.cumsum(number) - number
    middle = np.full(instances, np.nan)
    some = number > 0
    low, high = first[some] + (number[some] - 1) // 2, first[some] + number[some] // 2
    middle[some] = (value[rows[low]] + value[rows[high]]) / 2
    return middle


def _line(at: Float, value: Float) -> tuple[float, float]:
    """Constant and slope of what is left, by the medians of its two halves; a constant alone where the slope could be
    chance."""
    constant = float(np.median(value))
    if len(value) < LEAST_FOR_DRIFT:
        return constant, 0.0
    order = np.argsort(at, kind="stable")
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    apart = float(np.median(at[second]) - np.median(at[first]))
    if apart <= 0:
        return constant, 0.0
    slope = float(np.median(value[second]) - np.median(value[first])) / apart
    intercept = float(np.median(value - slope * at))
    spread = 1.4826 * float(np.median(np.abs(value - slope * at - intercept)))
    is_chance = abs(slope) * apart < 4 * 1.2533 * spread * (4 / len(value)) ** 0.5
    return (constant, 0.0) if is_chance or abs(slope) > MOST_DRIFT else (intercept, slope)
