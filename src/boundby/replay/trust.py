"""What a trace leaves open of its own graph, and so how far a prediction can be from the truth.

A replay repeats what it cannot explain as it was measured: a sleep while the device works, a delay of a device that had
work, the part of a collective that waits for other ranks. After a change these may be gone, or may stay; and whoever
is waited for outside of the trace, a worker process or another rank, may take as long as before whatever changes here.
When a message comes the other rank decides: who comes sooner to wait for it waits for longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import (
    Int32Array,
    Int64Array,
    compact,
    factorize,
    is_any,
    is_even,
    is_in,
    median,
    narrow,
    places,
    ranked,
    scattered,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.intervals import CoveredTime, any_of, contains, union
from boundby.model.open_kinds import KINDS
from boundby.model.scale import DISPATCH_NS, HABIT, MARGIN, NEXT_TO_NOTHING, QUARTER, TENFOLD
from boundby.native.passes import Costs
from boundby.replay.engine import call_starts
from boundby.replay.graph import Graph
from boundby.replay.streams import LONG_CALL_NS
from boundby.results.report import CONFIDENCES, TOLD_ALONE, OpenDoubt, Uncertainty, Window
from boundby.trace.vocabulary.cuda import CallClass

# What a trace leaves open of a number, as one list: its range, its confidence and the reasons are views of that.

#: How wide, for its middle, a range is of which a prediction is high or medium confidence.
NARROW = 0.12
WIDE = QUARTER
#: A range narrower than this part of the window leaves nothing open that matters.
OPEN_SHARE = MARGIN
#: What the trace knows nothing of: whatever changes here, it lasts as long.
OUTSIDE = "outside"


def uncertainty(
    kind: str, low_ns: int = 0, high_ns: int = 0, steps: int = 0, *, where: Sequence[str] = (), sentence: str = ""
) -> Uncertainty:
    """One of a known kind; ``sentence``: where more is known of it than of its kind."""
    return Uncertainty(kind, tuple(where), low_ns, high_ns, steps, sentence or KINDS[kind].sentence)


def summed(told_ns: int, uncertainties: Iterable[Uncertainty]) -> tuple[int, int, int]:
    """How small and how large a number may be of which all this is uncertain, and by how many steps that lowers the
    confidence in it: the only place where uncertainties are put together."""
    low_ns = high_ns = told_ns
    steps = 0
    for doubt in uncertainties:
        low_ns, high_ns, steps = low_ns - doubt.low_ns, high_ns + doubt.high_ns, max(steps, doubt.steps)
    return low_ns, high_ns, steps


def level(steps: int) -> str:
    """The confidence that is left after so many steps down."""
    return CONFIDENCES[min(steps, len(CONFIDENCES) - 1)]


class OpenRange(NamedTuple):
    """A number with all that is uncertain of it."""

    told_ns: int
    uncertainties: tuple[Uncertainty, ...] = ()
    floor_ns: int = 0  # the busiest stream that is left, no more than is told

    @property
    def low_ns(self) -> int:
        return summed(self.told_ns, self.uncertainties)[0]

    @property
    def high_ns(self) -> int:
        return summed(self.told_ns, self.uncertainties)[1]

    @property
    def least_ns(self) -> int:
        """The low end as it is told: the work that is left takes its time, however little is known of all else."""
        return max(self.low_ns, self.floor_ns)

    @property
    def held_ns(self) -> int:
        """Of the high end: what is waited for outside of the trace."""
        return sum(doubt.high_ns for doubt in self.uncertainties if doubt.kind == OUTSIDE)

    @property
    def confidence(self) -> str:
        """By how narrow it is, and by what is uncertain whatever that is."""
        return level(max(self._steps_of_width, summed(0, self.uncertainties)[2]))

    @property
    def _steps_of_width(self) -> int:
        width = 2 * (self.high_ns - self.low_ns) / max(self.high_ns + self.low_ns, 1)
        return 0 if width <= NARROW else 1 if width <= WIDE else 2

    def confidence_of(self, measured_ns: int) -> str:
        """Never low for the width of a range that is told as one number: hardly anything of the window is open, however
        little is left of it. Never high where the range is worth a word and wider than what would be saved: then
        whether anything would be is open, as of a collective that may have waited for other ranks."""
        open_ns, saved_ns = self.high_ns - self.low_ns, max(measured_ns - self.told_ns, OPEN_SHARE * measured_ns)
        is_open = open_ns > saved_ns and self.low_ns < measured_ns
        of_width = self._steps_of_width if open_ns > TOLD_ALONE * measured_ns else min(self._steps_of_width, 1)
        return level(max(of_width, summed(0, self.uncertainties)[2], int(is_open)))

    def reaching(
        self,
        kind: str,
        low_ns: int | None = None,
        high_ns: int | None = None,
        *,
        steps: int = 0,
        where: Sequence[str] = (),
    ) -> OpenRange:
        """The range with one thing more uncertain: because of it the number may be as small as that, and as large. What
        widens nothing and lowers no confidence is not uncertain."""
        low, high, _ = summed(self.told_ns, self.uncertainties)
        less, more = max(low - (low if low_ns is None else low_ns), 0), max((high_ns or high) - high, 0)
        if not (less or more or steps):
            return self
        return self._replace(uncertainties=(*self.uncertainties, uncertainty(kind, less, more, steps, where=where)))

    def between(self, kind: str, *others_ns: int) -> OpenRange:
        """The range with one thing more uncertain, because of which the number may as well be each of these."""
        return self.reaching(kind, min(others_ns, default=None), max(others_ns, default=None))

    def told_as(self, told_ns: int, kind: str) -> OpenRange:
        """This range's ends for another number. If that lies outside of them, the range is widened to it. What is
        between the two numbers is no longer uncertain at one end, and is at the other, of this kind."""
        later_ns = told_ns - self.told_ns
        rest = _less(self.uncertainties, "high_ns" if later_ns > 0 else "low_ns", abs(later_ns))
        moved = self._replace(told_ns=told_ns, uncertainties=rest)
        return moved.reaching(kind, min(self.low_ns, told_ns), max(self.high_ns, told_ns))

    def up_to(self, most_ns: int) -> OpenRange:
        """The range as far as it is no more than that."""
        limited = self.told_as(min(self.told_ns, most_ns), "model")._replace(floor_ns=min(self.floor_ns, most_ns))
        return limited._replace(
            uncertainties=_less(limited.uncertainties, "high_ns", max(limited.high_ns - most_ns, 0))
        )

    @property
    def told(self) -> tuple[Uncertainty, ...]:
        """What is uncertain, so that it adds up to the ends as they are told."""
        return _less(self.uncertainties, "low_ns", self.least_ns - self.low_ns)


def _less(uncertainties: Sequence[Uncertainty], end: str, ns: int) -> tuple[Uncertainty, ...]:
    """Without so many nanoseconds at one end, the last first."""
    kept = []
    for doubt in reversed(uncertainties):
        less_ns = min(getattr(doubt, end), ns)
        ns -= less_ns
        doubt = replace(doubt, **{end: getattr(doubt, end) - less_ns}) if less_ns else doubt
        if doubt.low_ns or doubt.high_ns or doubt.steps:
            kept.append(doubt)
    return tuple(reversed(kept))


# A sync returns so soon after what it waits for, on a busy machine too; what is more was something else.
MOST_RETURN_NS = LONG_CALL_NS
# A call that waits for nothing known may have waited if it took so many times as long as others on a busy device.
LONG_CALL, LEAST_LONG_CALL_NS = TENFOLD, 2 * DISPATCH_NS
# The shortest of so many collectives of one size tells what the transfer takes.
LEAST_ALIKE = HABIT
# A window is looked at in so many spans of equal length; one is held up from outside if that takes so much of it.
SPANS = 50
HELD_UP = MARGIN
# Doubts below this share of the window are not told.
LEAST_DOUBT = NEXT_TO_NOTHING


class Open(Struct, frozen=True):
    """Nanoseconds that may be gone once the device is done sooner, per node or operation of a graph."""

    sleep_ns: Int64Array  # of the interval before each node: asleep, for no known reason, while the device worked
    asleep: npt.NDArray[np.intp]  # nodes before which their thread slept
    slept_ns: Int64Array  # before each of these: asleep for no known reason, whether the device worked or idled
    fed_ns: Int64Array  # of that: while another thread of the process made its input
    lag_ns: Int64Array  # from the end of what each call waited for to its return, beyond what that takes
    call_ns: Int64Array  # of calls that wait for nothing known, while the device worked; allocations may always do
    delay_ns: Int64Array  # in which the device idled although the operation was ready
    wait_inside_ns: Int64Array  # of a collective: beyond the shortest of its kind
    held_up: tuple[float, ...]  # per device: in how much of its window it waits for something outside of the trace

    device_of_node: Int32Array  # the device on which its chain launches most; -1: it launches nothing


class Arrivals(Struct, frozen=True):
    """Where a wait for other ranks ended, in order of chains and time: the node after it, when it ended, and how much
    of the interval before the node lies behind it. Shape (arrivals,)."""

    node: npt.NDArray[np.intp]
    time_ns: Int64Array
    rest_ns: Int64Array


NO_ARRIVALS = Arrivals(np.empty(0, np.intp), np.empty(0, np.int64), np.empty(0, np.int64))


def find_arrivals(timeline: Timeline, graph: Graph) -> Arrivals:
    """The last one before each node: what came before that one is there by then. None where all ranks are on record:
    what changes here changes them all."""
    links, trace, arrivals = graph.links, timeline.trace, [NO_ARRIVALS]
    here = len(unique(trace.process_of(trace.messages.thread)))
    is_outside = 0 < here < max((communicator.size for communicator in trace.communicators), default=2)
    for chain in unique(links.chain).tolist() if is_outside else ():
        threads = timeline.logical_threads.members(chain).tolist()
        awaiting = any_of(timeline.host_state.evidence(thread).awaiting for thread in threads)
        ends = awaiting.end[awaiting.end - awaiting.start >= DISPATCH_NS]
        nodes = np.flatnonzero(links.chain == chain)
        end_index = places(links.node_begin_ns[nodes], ends)
        is_last = np.append(end_index[1:] != end_index[:-1], True)[: len(end_index)] & (end_index < len(nodes))
        node, time = nodes[end_index[is_last]], ends[is_last]
        rest = links.node_begin_ns[node] - time
        waits = rest <= graph.costs.interval_ns[node] - DISPATCH_NS  # else what it called itself took the time
        arrivals.append(Arrivals(node[waits], time[waits], rest[waits]))
    return Arrivals(
        np.concatenate([part.node for part in arrivals]),
        np.concatenate([part.time_ns for part in arrivals]),
        np.concatenate([part.rest_ns for part in arrivals]),
    )


def until_arrival(graph: Graph, costs: Costs, arrivals: Arrivals, slack_ns: int) -> Costs:
    """These costs with waits for other ranks that last until their messages come, give or take ``slack_ns``."""
    if not len(arrivals.node) or costs.is_same(graph.costs):
        return costs
    node, chain = arrivals.node, graph.links.chain[arrivals.node]
    gone_ns = (graph.costs.interval_ns - costs.interval_ns)[node]
    earliest_ns = arrivals.time_ns + np.maximum(arrivals.rest_ns - np.maximum(gone_ns, 0), 0)
    for _ in range(HABIT):
        early_ns = np.maximum(earliest_ns - call_starts(graph, costs)[node], 0)
        early_ns[early_ns <= slack_ns] = 0
        if not early_ns.any():
            break
        longer_ns = np.zeros_like(costs.interval_ns)
        for number in unique(chain).tolist():
            rows = np.flatnonzero(chain == number)  # what comes later is as much later by what came before
            longer_ns[node[rows]] = np.diff(np.maximum.accumulate(early_ns[rows]), prepend=0)
        costs = costs.changed(interval_ns=costs.interval_ns + longer_ns)
    return costs


def find_open(timeline: Timeline, graph: Graph) -> Open:
    """What is open of a calibrated graph."""
    links, costs = graph.links, graph.costs
    device_of_node = _devices_of_nodes(graph)
    end = links.node_begin_ns
    asleep = np.flatnonzero(graph.pieces_of(Cause.HOST_BLOCKED))
    of_sleep, ns = places(graph.piece_at, asleep, side="right") - 1, graph.piece_ns[asleep].astype(np.int64)
    first = np.flatnonzero(np.append(True, of_sleep[1:] != of_sleep[:-1])[: len(of_sleep)])
    sleeps = of_sleep[first]
    slept = np.add.reduceat(ns, first) if len(first) else ns
    del of_sleep, ns, first
    long_calls, usual_ns = _long_calls(graph)
    calls = unique(np.concatenate((long_calls, np.flatnonzero(graph.wait_is_open & ~costs.waits))))
    is_next = (sleeps > 0) & (links.chain[sleeps] == links.chain[sleeps - 1])
    begin = np.where(is_next, links.node_end_ns[sleeps - 1], end[sleeps])
    worked, called = np.zeros(len(sleeps), np.int64), np.zeros(len(calls), np.int64)
    late = np.flatnonzero(costs.unexplained_delay_ns)
    delay = np.zeros(len(late), np.int64)
    for device in timeline.devices:
        busy, nodes_here = CoveredTime(device.busy), np.flatnonzero(device_of_node[sleeps] == device.index)
        worked[nodes_here] = busy.within(begin[nodes_here], np.maximum(end[sleeps[nodes_here]], begin[nodes_here]))
        nodes_here = np.flatnonzero(device_of_node[calls] == device.index)
        called[nodes_here] = busy.within(links.node_begin_ns[calls[nodes_here]], links.node_end_ns[calls[nodes_here]])
        is_here = graph.device[late] == device.index
        rows = late[is_here]
        delay[is_here] = np.minimum(costs.unexplained_delay_ns[rows], gap_before(device, links.start_ns[rows]))
    length = end[sleeps] - begin
    share = np.where(length > 0, worked / np.maximum(length, 1), 0.0)
    sleep_ns = (slept * share).astype(np.int64)
    thread_of, fed = links.chain[sleeps], np.zeros(len(sleeps), np.int64)
    for number in unique(thread_of).tolist():
        if len((makes := timeline.host_state.fed(number)).start):
            nodes_here = np.flatnonzero(thread_of == number)
            fed[nodes_here] = CoveredTime(makes).within(
                begin[nodes_here], np.maximum(end[sleeps[nodes_here]], begin[nodes_here])
            )
    starved_ns = np.where(device_of_node[sleeps] >= 0, slept - sleep_ns, 0)
    wait_inside_ns = compact(_waits_inside(timeline, graph))
    syncs = np.flatnonzero(graph.syncs)
    lag_ns = np.where(costs.waits[syncs], np.maximum(costs.wait_lag_ns[syncs] - MOST_RETURN_NS, 0), 0)
    # A sync that lasts although all that it is known to wait for is done: the record of something is missing.
    call_ns = np.maximum(costs.call_ns[syncs] - MOST_RETURN_NS, 0)
    own_ns = np.where(is_in(calls, long_calls), usual_ns, 0)
    call_ns = np.concatenate((call_ns, np.minimum(called, costs.call_ns[calls] - own_ns)))
    held_up = []
    for device in timeline.devices:
        is_held = (device_of_node[sleeps] == device.index) & (starved_ns > 0)
        until = end[sleeps[is_held]]
        comm = np.flatnonzero(wait_inside_ns)
        comm = comm[(graph.device[comm] == device.index) & (wait_inside_ns[comm] > 0)]
        low = np.concatenate((until - starved_ns[is_held], links.start_ns[comm]))
        held_up.append(_held_up(device, low, np.concatenate((until, links.start_ns[comm] + wait_inside_ns[comm]))))
    return Open(
        sleep_ns=scattered(links.nodes, sleeps, sleep_ns),
        asleep=sleeps,
        slept_ns=narrow(sleep_ns + starved_ns),
        fed_ns=scattered(links.nodes, sleeps, np.minimum(fed, slept)),
        lag_ns=scattered(links.nodes, syncs, lag_ns),
        call_ns=scattered(links.nodes, np.concatenate((syncs, calls)), call_ns),
        delay_ns=scattered(links.operations, late, delay),
        wait_inside_ns=wait_inside_ns,
        held_up=tuple(held_up),
        device_of_node=device_of_node,
    )


def _long_calls(graph: Graph) -> tuple[npt.NDArray[np.intp], int]:
    """Calls that take much longer than they usually do though they wait for nothing known; and how long that is."""
    works = is_any(graph.node_kind, (CallClass.LAUNCH, CallClass.OTHER)) & ~graph.costs.waits & ~graph.is_init
    long = np.flatnonzero(works & (graph.costs.call_ns > LEAST_LONG_CALL_NS))
    usual = median(graph.costs.call_ns[works]) if len(long) else 0.0
    return long[graph.costs.call_ns[long] > LONG_CALL * usual], int(usual)


def _devices_of_nodes(graph: Graph) -> Int32Array:
    device_of = np.full(graph.links.nodes, -1, np.int32)
    if graph.links.chains == 1 and is_even(graph.device):
        return (
            compact(np.full_like(device_of, graph.device[0])) if (graph.links.launch >= 0).any() else compact(device_of)
        )
    rows = np.flatnonzero(graph.links.launch >= 0)
    if len(rows):
        shape = graph.links.chains, int(graph.device.max()) + 1
        cell = graph.links.chain[graph.links.launch[rows]] * np.int64(shape[1]) + graph.device[rows]
        count = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
        best = np.where(count.any(axis=1), count.argmax(axis=1), -1).astype(np.int32)
        device_of = compact(best[graph.links.chain])
    return device_of


def gap_before(device: DeviceTimeline, start: Int64Array) -> Int64Array:
    """How long the device had idled when each of these began."""
    idle = device.gaps.intervals
    if len(idle.start) == 0 or len(start) == 0:
        return np.zeros(len(start), np.int64)
    gap = contains(idle, start - 1)
    return np.where(gap >= 0, (idle.end - idle.start)[gap], 0)


def _waits_inside(timeline: Timeline, graph: Graph) -> Int64Array:
    """Of each collective: by how much it took longer than the shortest of its kernel and shape, of which there are
    some. That is when the last rank had arrived; the trace of one rank does not tell when that was."""
    inside_ns = np.zeros(graph.links.operations, np.int64)
    rows = np.flatnonzero(graph.is_communication)
    if len(rows):
        table = timeline.trace.operations
        _, kind = factorize(table.name[rows], table.shape[rows])
        length = graph.costs.duration_ns[rows]
        shortest = np.full(int(kind.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(shortest, kind, length)
        shortest[np.bincount(kind) < LEAST_ALIKE] = 0  # nothing to compare with: all of it may be waiting
        inside_ns[rows] = length - shortest[kind]
    return inside_ns


def _held_up(device: DeviceTimeline, low: Int64Array, high: Int64Array) -> float:
    edges = np.linspace(device.low_ns, device.high_ns, SPANS + 1).astype(np.int64)
    within = CoveredTime(union(low, high)).within(edges[:-1], edges[1:])
    return float((within >= HELD_UP * np.maximum(np.diff(edges), 1)).mean())


def _rows(ns: Int64Array) -> tuple[npt.NDArray[np.intp], Int64Array]:
    """Where a column holds anything, and what."""
    rows = np.flatnonzero(ns)
    return rows, ns[rows]


def find_doubts(timeline: Timeline, graph: Graph, found: Open) -> dict[int, tuple[OpenDoubt, ...]]:
    """By device index: what of its window the replay had to take as it was, largest first."""
    return {device.index: tuple(_doubts(timeline, graph, found, device)) for device in timeline.devices}


def _doubts(timeline: Timeline, graph: Graph, found: Open, device: DeviceTimeline) -> Iterator[OpenDoubt]:
    links, table = graph.links, timeline.trace.operations
    window = max(device.high_ns - device.low_ns, 1)
    start, begin = (graph.device, links.start_ns, True), (found.device_of_node, links.node_begin_ns, False)
    kinds: dict[str, tuple[npt.NDArray[np.intp], Int64Array, Int32Array, Int64Array, bool]] = {
        "delays": (*_rows(found.delay_ns), *start),
        "collectives": (*_rows(found.wait_inside_ns), *start),
        "contradictions": (*_rows(graph.contradictions.by_ns), *start),
        "sleeps": (found.asleep, found.slept_ns, *begin),
        "lags": (*_rows(found.lag_ns), *begin),
        "calls": (*_rows(found.call_ns), *begin),
    }
    doubts = []
    for kind, (rows, length, of_device, times, is_operation) in kinds.items():
        time = times[rows]
        kept = (of_device[rows] == device.index) & (length > 0) & (time < device.high_ns)
        kept &= time + length > device.low_ns
        rows, length, time = rows[kept], length[kept], time[kept]
        share = min(float(length.sum()) / window, 1.0)
        if share < LEAST_DOUBT:
            continue
        lane = table.stream[rows] if is_operation else links.chain[rows].astype(np.int64)
        lanes, position = ranked(lane)
        worst = int(lanes[np.bincount(position, length).argmax()])
        lane_id = worst if is_operation else timeline.trace.threads[worst].tid
        is_worst = lane == worst
        span = Window(int(time[is_worst].min()), int((time[is_worst] + length[is_worst]).max()))
        doubts.append(
            OpenDoubt(kind, share, lane_id if is_operation else None, None if is_operation else lane_id, span)
        )
    yield from sorted(doubts, key=lambda doubt: (-doubt.share, doubt.kind))
