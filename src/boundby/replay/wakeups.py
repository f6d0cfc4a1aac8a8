"""Which thread woke which: waits of one thread for another (autograd, data feeding), told from times.

A thread in a lock or condition wait is woken by another thread of its process that has just done something and, as
often as not, then goes to sleep itself. The capture names no locks; who it was follows from who was awake.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import (
    BoolArray,
    FloatArray,
    Int32Array,
    Int64Array,
    factorize,
    group_counts,
    is_in,
    median,
    merged,
    unique,
)
from boundby.model.intervals import EMPTY, CoveredTime, IntervalSet, complement, contains, subtract, union
from boundby.model.scale import (
    DISPATCH_NS,
    HABIT,
    HALF,
    HALF_MORE,
    HARDLY,
    LAUNCH_NS,
    MOST,
    NEGLIGIBLE,
    QUARTER,
    SWITCH_NS,
)
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.os import SIGNALS, SLEEPS, WAKE_LIMIT_NS

# A wake-up takes a switch of threads at least. One that takes so many times as long as usual may have gone by way of
# another thread. A condition wait shorter than it is a hand-over of a lock and not worth following.
LEAST_WAKE_NS, LATE_WAKE = SWITCH_NS, HALF_MORE
# A signal on record is followed so long: cores that sleep deeply and profilers delay waking up. Whoever signals more
# often than in every so many of these spans seems to wake everybody.
SIGNAL_LIMIT_NS, SELDOM = 2 * DISPATCH_NS, HABIT
# Where no wake-up of the process shows how long it takes.
USUAL_WAKE_NS = LAUNCH_NS
# A region is where a thread takes its batches if that many of the times it does lie in it.
TAKING_FRACTION = MOST
# What was made is followed to where it was taken if so much of it was made before that.
CONSISTENT_FRACTION = HALF
# Where a thread works on without waiting for room, it has made one thing when it wakes who waits for it, give or take
# so much of what one takes.
SAME_FRACTION, NEVER_NS = QUARTER, np.iinfo(np.int64).max
# A thread had made a thing before its first wait if it ran for so much of what one takes; of so many waits at least.
FIRST_RUN, LEAST_ROUNDS = 1 - QUARTER, HABIT
# So much more may have been made than was taken.
LEFT_OVER = QUARTER

# Pairs of threads of which one waits for the other for less of the window are not followed.
LEAST_WAITED = HARDLY

_WAITS = ("lock", "condition")
_HAND_OVER = "condition"  # the kind of wait that is surely for another thread


class Wakeups(NamedTuple):
    """Waits that another thread ended; columns of equal length, ordered by process and end."""

    thread: Int64Array  # who waited
    begin: Int64Array
    end: Int64Array
    waker: Int64Array
    signal: Int64Array  # when the waker let it go

    def of(self, thread: int) -> IntervalSet:
        """The waits of one thread."""
        is_own = self.thread == thread
        return union(self.begin[is_own], self.end[is_own])


class HandOvers(NamedTuple):
    """What a thread takes that another made: at ``taken`` the ``taker`` needs what the ``maker`` had done by ``made``.
    Most of the time it is there already, and nothing in the trace shows that it was needed."""

    taker: Int64Array
    taken: Int64Array
    maker: Int64Array
    made: Int64Array
    lag: Int64Array  # from then to the taking, at least


NO_WAKEUPS = Wakeups(*(np.empty(0, np.int64) for _ in range(5)))


def find_wakeups(timeline: Timeline) -> Wakeups:
    """Every lock or condition wait for which the waking thread can be told."""
    trace = timeline.trace
    table, kind_of_name = trace.blocking_calls
    if len(table) == 0 or not (trace.captured.osrt or trace.is_told_by_frames):
        return NO_WAKEUPS
    kind = kind_of_name[table.name]
    waits = is_in(kind, [SLEEPS.index(what) for what in _WAITS])
    sure = kind == SLEEPS.index(_HAND_OVER)
    waits &= table.end_ns - table.start_ns >= LEAST_WAKE_NS
    process = trace.process_of_thread
    parts = []
    for number in unique(process[unique(timeline.calls.thread)]).tolist():
        members = np.flatnonzero(process == number)
        rows = np.flatnonzero(waits & is_in(table.thread, members))
        if len(rows) and len(members) > 1:
            parts.append(_in_process(timeline, members.tolist(), rows, sure))
    if not parts:
        return NO_WAKEUPS
    return _that_matter(timeline, Wakeups(*(np.concatenate(columns) for columns in zip(*parts, strict=True))))


def _that_matter(timeline: Timeline, wakeups: Wakeups) -> Wakeups:
    """Without pairs of threads that hardly wait for each other: requests to a service thread that polls, say. To follow
    them would tie the one that asks to the clock by which the other one sleeps. Where waits of a pair begin in the
    devices' windows, these count; others only show that one makes what the other takes."""
    low = min((device.low_ns for device in timeline.devices), default=0)
    high = max((device.high_ns for device in timeline.devices), default=0)
    _, pair = factorize(wakeups.thread, wakeups.waker)
    waited = np.bincount(pair, wakeups.end - wakeups.begin)
    begins = (wakeups.begin >= low) & (wakeups.begin < high)
    inside = np.bincount(pair, begins * (np.minimum(wakeups.end, high) - wakeups.begin))
    kept = (np.where(inside > 0, inside, waited) >= LEAST_WAITED * (high - low))[pair]
    return Wakeups(*(column[kept] for column in wakeups)) if kept.any() else NO_WAKEUPS


def find_hand_overs(timeline: Timeline, wakeups: Wakeups) -> HandOvers:
    """What a process's leading thread (the one with most CUDA calls) takes from the threads that it wakeups, one thing
    in each instance of the range in which it wakeups them.

    The other way round nothing is known: what it gives them, room in a queue say, it gave when it took the last.
    """
    count = group_counts(timeline.calls.thread, len(timeline.trace.threads))
    parts = [tuple(np.empty(0, np.int64) for _ in HandOvers._fields)]
    pairs = factorize(wakeups.thread, wakeups.waker)[0].tolist()
    for maker, taker in pairs:
        if count[taker] <= count[maker]:
            continue
        rows = np.flatnonzero((wakeups.thread == maker) & (wakeups.waker == taker))
        if len(rows) < LEAST_ROUNDS:
            continue
        taken = _takings(timeline, wakeups.signal[rows], taker)
        made = _makings(timeline, wakeups, rows, maker, len(taken))
        parts += _handed(wakeups, rows, taker, maker, taken, made)
    for taker, maker in pairs:  # makers that never wait for room: they work on, from one thing to the next
        if count[taker] <= count[maker] or [maker, taker] in pairs:
            continue
        rows = np.flatnonzero((wakeups.thread == taker) & (wakeups.waker == maker))
        taken = _takings(timeline, wakeups.end[rows], taker)
        made = _makings(timeline, wakeups, rows[:0], maker, len(taken))
        away = np.abs(made[:, None] - wakeups.signal[rows]).min(axis=0, initial=NEVER_NS)
        if len(made) and away.max() <= SAME_FRACTION * (made[-1] - made[0]) / max(len(made) - 1, 1):
            parts += _handed(wakeups, rows, taker, maker, taken, made)
    return HandOvers(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def makes_ahead(timeline: Timeline, wakeups: Wakeups, thread: int) -> bool:
    """Whether a thread that waits for another makes things for it, and waits for room: it had made one before it waited
    for the first time. One that uses what the other makes waits for that first."""
    rows, life = np.flatnonzero(wakeups.thread == thread), timeline.host_state.lifetime(thread)
    if life is None or len(rows) < LEAST_ROUNDS:
        return False
    runs = wakeups.begin[rows] - np.append(life[0], wakeups.end[rows][:-1])
    return bool(runs[0] >= FIRST_RUN * median(runs[1:]))


def _handed(
    wakeups: Wakeups, rows: npt.NDArray[np.intp], taker: int, maker: int, taken: Int64Array, made: Int64Array
) -> list[tuple[Int64Array, ...]]:
    """What was made before it was taken; nothing where most was not."""
    taken, made = taken[: len(made)], made[: len(taken)]
    early = made <= taken  # what it had to wait for is known from the wait
    if len(made) == 0 or early.mean() < CONSISTENT_FRACTION:
        return []
    taken, made = taken[early], made[early]
    usual = int(median((wakeups.end - wakeups.signal)[rows]))
    who = [np.full(len(made), thread, np.int64) for thread in (taker, maker)]
    return [(who[0], taken, who[1], made, np.minimum(taken - made, usual))]


def _takings(timeline: Timeline, known_ns: Int64Array, taker: int) -> Int64Array:
    """When the thread took things, of which some instants are known: in every instance of the range in which it mostly
    did, as far after its start as it did there."""
    ranges, regions = timeline.trace.ranges, timeline.ownership.regions
    region = timeline.ownership.region_of(timeline.ownership.steps(taker).at(known_ns))
    common = int(np.bincount(region).argmax())
    if common == 0 or (region == common).mean() < TAKING_FRACTION:
        return np.empty(0, np.int64)
    is_common = (ranges.thread == taker) & (regions.of_range == common)
    begins = merged(ranges.start_ns[is_common])
    instance = np.searchsorted(begins, known_ns, side="right") - 1
    is_taken = instance >= 0
    taken: Int64Array = begins.copy()
    taken[instance[is_taken]] = known_ns[is_taken]
    # Where only every second or third instance ever does, the others take nothing.
    stride = max(int(np.gcd.reduce(np.diff(instance[is_taken]))) if is_taken.sum() > 1 else 1, 1)
    return taken[int(instance[is_taken][0]) % stride :: stride] if is_taken.any() else taken[:0]


def _makings(timeline: Timeline, wakeups: Wakeups, rows: npt.NDArray[np.intp], maker: int, count: int) -> Int64Array:
    """When the thread had made each of ``count`` things, told from the lengths of its runs between two waits."""
    life = timeline.host_state.lifetime(maker)
    if life is None or count == 0:
        return np.empty(0, np.int64)
    begin, end = np.append(life[0], wakeups.end[rows]), np.append(wakeups.begin[rows], life[1])
    up = complement(wakeups.of(maker), *life)  # while it waits for others it makes nothing, either
    worked = CoveredTime(up)
    length = worked.within(begin, end)
    if length.sum() <= 0:
        return np.empty(0, np.int64)
    each = max(int(median(length[1:])) if len(rows) else int(length[0]) // count, 1)
    things = np.maximum(np.rint(length / each).astype(np.int64), 1)
    if things.sum() > count + LEFT_OVER * count:  # a run is not one thing
        things = np.maximum(np.rint(length * (count / length.sum())).astype(np.int64), 1)
    run = np.repeat(np.arange(len(things)), things)
    number = np.arange(len(run)) - np.repeat(np.cumsum(things) - things, things) + 1
    making_ns = worked.until(begin)[run] + length[run] * number // things[run]  # of what it worked
    until = np.cumsum(up.end - up.start)
    place = np.minimum(np.searchsorted(until, making_ns), len(until) - 1)
    made_ns: Int64Array = up.end[place] - (until[place] - making_ns)
    return made_ns


class _Sleeper(Struct, frozen=True):
    """What can be known of one thread that may have woken another."""

    number: int
    asleep: IntervalSet
    rests: Int64Array  # when it fell asleep, or ended, having nothing more to do
    active: IntervalSet  # it lived and did not sleep
    awake: IntervalSet  # of that outside of CUDA calls; nothing where nothing shows that it ran
    signals: Int64Array  # when it let others go, as far as that can be told from other times


class _Told(Struct, frozen=True):
    """Waits that one thread seems to have ended, told in one way."""

    waker: int
    found: BoolArray  # per wait
    seems: IntervalSet  # when it would seem to have ended a wait that ended then


def _in_process(timeline: Timeline, members: list[int], rows: npt.NDArray[np.intp], sure: BoolArray) -> Wakeups:
    table, _ = timeline.trace.blocking_calls
    order = rows[np.lexsort((table.thread[rows], table.start_ns[rows], table.end_ns[rows]))]
    thread = table.thread[order].astype(np.int64)
    begin, end = table.start_ns[order], table.end_ns[order]
    others = [described for member in members if (described := _describe(timeline, member)) is not None]
    waker = np.full(len(order), -1, np.int64)
    signal, ways = np.zeros(len(order), np.int64), list[_Told]()

    def tell(other: _Sleeper, found: BoolArray, at: Int64Array, seems: IntervalSet) -> None:
        if (found & (thread != other.number)).any():
            found = found & (thread != other.number)
            waker[found], signal[found] = other.number, at[found]
            ways.append(_Told(other.number, found, seems))

    # Best: a thread that signalled just before.
    for other in others:
        gave = _last_before(other.signals, end - LEAST_WAKE_NS)
        near = sure[order] & (gave >= begin) & (end - gave <= SIGNAL_LIMIT_NS)
        tell(other, near & (gave > signal), gave, _after(other.signals, LEAST_WAKE_NS, SIGNAL_LIMIT_NS))
    signalled = waker >= 0
    # Else a thread that itself fell asleep just before, or ended, having nothing more to do.
    for other in others:
        fell = _last_before(other.rests, end - LEAST_WAKE_NS)
        near = (end - fell <= WAKE_LIMIT_NS) & (fell >= begin) & ~signalled
        tell(other, near & ((waker < 0) | (fell > signal)), fell, _after(other.rests, LEAST_WAKE_NS, WAKE_LIMIT_NS))
    has_waker, call = waker >= 0, thread << 32 | table.name[order]
    believed = _beyond_chance(call, begin, end, waker, ways)
    usual = int(median((end - signal)[believed])) if believed.any() else USUAL_WAKE_NS
    if believed.any():
        _at_usual_distance(others, begin, end, has_waker & ~signalled, signal, usual, tell)
    # One that fell asleep longer before may have woken another, which woke this one as soon as it ran.
    late = has_waker & ~signalled & (end - signal > LATE_WAKE * usual)
    for other in others if late.any() else ():
        woke = _last_before(other.asleep.end, end - usual // 2)
        passed = late & (end - woke <= LATE_WAKE * usual) & (woke > begin)
        tell(other, passed, woke, _after(other.asleep.end, usual // 2, int(LATE_WAKE * usual)))
    # Else, or if that was long before, the only thread that was awake then and not inside a CUDA call.
    instant = end - usual
    late &= end - signal > LATE_WAKE * usual
    sole = (~has_waker | late) & sure[order] & (instant > begin)
    sole &= ~_timed_out(timeline.trace, thread, table.name[order], end - begin)
    if sole.any():
        _only_one_awake(others, sole, instant, usual, tell)
    is_beyond = _beyond_chance(call, begin, end, waker, ways)
    if len(others) == len(members):  # else somebody of whom nothing is known may have done it
        is_beyond |= sure[order] & _nobody_else(others, begin, end, waker, ways, int(LATE_WAKE * usual))
    return Wakeups(thread[is_beyond], begin[is_beyond], end[is_beyond], waker[is_beyond], signal[is_beyond])


_Tell = Callable[[_Sleeper, BoolArray, Int64Array, IntervalSet], None]


def _at_usual_distance(
    others: list[_Sleeper],
    begin: Int64Array,
    end: Int64Array,
    is_open: BoolArray,
    signal: Int64Array,
    usual_ns: int,
    tell: _Tell,
) -> None:
    """Of several that fell asleep just before a wait ended, the one that did so as long before as usual."""
    for other in others:
        fell = _last_before(other.rests, end - LEAST_WAKE_NS)
        near = is_open & (end - fell <= WAKE_LIMIT_NS) & (fell >= begin)
        near &= _away(end - fell, usual_ns) < _away(end - signal, usual_ns)
        tell(other, near, fell, _after(other.rests, LEAST_WAKE_NS, WAKE_LIMIT_NS))


def _only_one_awake(
    others: list[_Sleeper], is_open: BoolArray, instant: Int64Array, usual_ns: int, tell: _Tell
) -> None:
    """The only thread that was awake at the instant and not inside a CUDA call; or so just before it called."""
    for later_ns in (0, usual_ns):
        left = is_open.copy()
        for other, alone in zip(others, _alone([_grown(other, later_ns) for other in others]), strict=True):
            was_it = left & (contains(alone, instant) >= 0)
            tell(other, was_it, instant, IntervalSet(alone.start + usual_ns, alone.end + usual_ns))
            is_open = is_open & ~was_it


def _grown(thread: _Sleeper, by_ns: int) -> IntervalSet:
    """When the thread is awake and not inside a CUDA call, or has been so long in one at most."""
    return subtract(union(thread.awake.start, thread.awake.end + by_ns), thread.asleep) if by_ns else thread.awake


def _alone(threads: list[IntervalSet]) -> list[IntervalSet]:
    """When each is the only one that is awake: where one is, the sum of the numbers of all that are is its own."""
    sides = [(times, step * position) for position, awake in enumerate(threads) for times, step in _sides(awake)]
    at = np.concatenate([times for times, _ in sides])
    step = np.repeat(np.tile([1, -1], len(threads)), [len(times) for times, _ in sides])
    number = np.repeat([number for _, number in sides], [len(times) for times, _ in sides])
    order = np.argsort(at, kind="stable")
    at, awake, who = at[order], np.cumsum(step[order]), np.cumsum(number[order])
    rows = np.flatnonzero((awake[:-1] == 1) & (at[1:] > at[:-1]))
    rows = rows[np.argsort(who[rows], kind="stable")]
    begins = np.searchsorted(who[rows], np.arange(1, len(threads)))
    return [union(at[own], at[own + 1]) for own in np.split(rows, begins)]


def _sides(awake: IntervalSet) -> tuple[tuple[Int64Array, int], tuple[Int64Array, int]]:
    return (awake.start, 1), (awake.end, -1)


def _away(length_ns: Int64Array, usual_ns: int) -> FloatArray:
    """By what factor lengths differ from the usual one, as its logarithm."""
    away: FloatArray = np.abs(np.log(np.maximum(length_ns, 1) / max(usual_ns, 1)))
    return away


def _last_before(times: Int64Array, limit: Int64Array) -> Int64Array:
    """The last of these times up to each limit; before all time if there is none."""
    return np.append(-NEVER_NS, times)[np.searchsorted(times, limit, side="right")]


def _after(times: Int64Array, least_ns: int, most_ns: int) -> IntervalSet:
    """From so long after each of these times to so long after it."""
    return union(times + least_ns, times + most_ns)


def _timed_out(trace: Trace, thread: Int64Array, name: Int32Array, length_ns: Int64Array) -> BoolArray:
    """Waits with a timeout that take as long as the thread usually sleeps in that call: the clock may have ended them,
    and that another thread was awake then shows nothing."""
    is_usual = np.zeros(len(thread), bool)
    timed = [number for number in unique(name).tolist() if "timed" in trace.names[number]]
    calls = np.where(is_in(name, timed), thread << 32 | name, -1)
    for call in unique(calls[calls >= 0]).tolist():
        own = np.flatnonzero(calls == call)
        usual = np.abs(length_ns[own] - median(length_ns[own])) <= WAKE_LIMIT_NS
        is_usual[own] = usual & (np.count_nonzero(usual) > HALF * len(own)) & (len(own) >= LEAST_ROUNDS)
    return is_usual


def _nobody_else(
    others: list[_Sleeper], begin: Int64Array, end: Int64Array, waker: Int64Array, ways: list[_Told], before_ns: int
) -> BoolArray:
    """Waits that their waker would hardly seem to have ended by chance, each by itself, while all other threads slept:
    the first wait of a worker, for a whole start, say, whose later ones somebody else ends."""
    is_hardly_chance, active = np.zeros(len(end), bool), np.zeros(len(end), np.int64)
    length_ns = np.maximum(end - begin, 1)
    for way in ways:
        seen = np.flatnonzero(way.found & (waker == way.waker))
        covered_ns = CoveredTime(way.seems).within(begin[seen], end[seen])
        is_hardly_chance[seen[covered_ns <= NEGLIGIBLE * length_ns[seen]]] = True
    for other in others if is_hardly_chance.any() else ():
        is_active = CoveredTime(other.active).within(end - before_ns, end) > 0
        active += is_active
        is_hardly_chance &= is_active | (waker != other.number)
    is_it: BoolArray = is_hardly_chance & (active == 1)
    return is_it


def _beyond_chance(
    call: Int64Array, begin: Int64Array, end: Int64Array, waker: Int64Array, ways: list[_Told]
) -> BoolArray:
    """Which of the told waits to believe. ``call``: who waits in what. A thread that polls falls asleep so often that
    it seems to end the waits of all others. One is believed if it ends most of a thread's waits in a call, or more of
    them than by chance: than it would seem to end if they had ended at any other of their instants; or if it ends most
    of those that others, who are believed, have left, where these are not few."""
    is_sure = np.zeros(len(waker), bool)
    for each in unique(call[waker >= 0]).tolist():
        own = np.flatnonzero(call == each)
        length_ns = np.maximum(end[own] - begin[own], 1)
        for number in unique(waker[own]).tolist():
            of_waker = own[waker[own] == number]
            if number < 0 or len(of_waker) >= HALF * len(own):
                is_sure[of_waker] = number >= 0
                continue
            for way in (way for way in ways if way.waker == number):
                seen = of_waker[way.found[of_waker]]
                each_ns = way.seems.total / max(len(way.seems.start), 1)
                # Per wait, as one of seconds tells nothing of short ones; and of one more, which it would seem to end.
                share = CoveredTime(way.seems).within(begin[own], end[own]) / length_ns
                more = float(np.minimum(each_ns / length_ns, 1).mean())
                by_chance = (float(share.sum()) + more) / (len(own) + more)
                if _chance(len(seen), len(own), by_chance) <= NEGLIGIBLE:
                    is_sure[seen] = True
        left = own[~is_sure[own]]
        most = left[waker[left] == np.bincount(waker[left] + 1, minlength=1).argmax() - 1]
        if len(most) >= max(HALF * len(left), QUARTER * len(own)):
            is_sure[most] = waker[most] >= 0
    return is_sure


def _chance(count: int, of: int, share: float) -> float:
    """How likely at least so many of them are, each of this chance, at most: the lesser of two bounds, of all ways to
    choose them (Bonferroni), and of Chernoff (1952), which is close where they are many."""
    seen = count / of
    if seen <= share:
        return 1.0
    ways = math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)
    rest = (1 - seen) * math.log((1 - share) / (1 - seen)) if seen < 1 else 0.0
    return math.exp(min(ways + count * math.log(share), of * (seen * math.log(share / seen) + rest)))


def _describe(timeline: Timeline, thread: int) -> _Sleeper | None:
    evidence, life = timeline.host_state.evidence(thread), timeline.host_state.lifetime(thread)
    if life is None or not evidence.is_known:
        return None
    rows = timeline.calls.rows_of(thread)
    rests = np.append(evidence.asleep.start[evidence.asleep.start < life[1]], life[1])
    in_call = union(timeline.calls.start_ns[rows], timeline.calls.end_ns[rows] - 1)  # its own between any two of them
    is_seen = len(in_call.start) > 0 or evidence.on_cpu is not None or evidence.shown is not None
    active = complement(evidence.asleep, *life)
    awake = subtract(active, in_call) if is_seen else EMPTY
    return _Sleeper(thread, evidence.asleep, rests, active, awake, _signals(timeline.trace, thread, life))


def _signals(trace: Trace, thread: int, life: tuple[int, int]) -> Int64Array:
    """When a thread signalled; nothing where it does so all the time."""
    table = trace.os_calls
    own = np.flatnonzero(table.thread == thread)
    names = [number for number in unique(table.name[own]).tolist() if SIGNALS.search(trace.names[number])]
    starts = merged(table.start_ns[own[is_in(table.name[own], names)]]) if names else np.empty(0, np.int64)
    return starts if len(starts) * SELDOM * SIGNAL_LIMIT_NS <= life[1] - life[0] else starts[:0]
